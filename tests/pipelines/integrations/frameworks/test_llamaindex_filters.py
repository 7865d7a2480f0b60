"""What filters and query modes of the LlamaIndex store find, beside `SimpleVectorStore` of LlamaIndex itself.

Where the two differ on purpose, the test says so: nested filters, which `SimpleVectorStore` refuses, are put together
of its answers to their parts; it ignores `doc_ids` and the query's own `mmr_threshold`. Of equal scores, as all are
with an `mmr_threshold` of 0, it takes the node that was added first, and ours the most similar.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ragidx

pytest.importorskip("llama_index.core", reason="needs the extra 'llamaindex'")

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from ragidx.frameworks.llamaindex import RagidxVectorStore

pytestmark = pytest.mark.slow

ODD = "a`b\\ \"c'"
TEXTS = [
    "",
    "law",
    "LAW",
    "Ünï",
    "a \"b\" 'c' \\ \n d",
    "None",
    "\N{KELVIN SIGN}ilo",
    "ſoft",
    "iİ",
    "lawyer",
    "5",
    "[]",
]
FIELDS: dict[str, list[Any]] = {
    "whole": [0, 1, -3, 2, 2**53 + 1, 2**63 - 1, None],
    "number": [0, 1, -0.5, 2.5, 2**53 + 1, 3.0, None],
    "text": [*TEXTS, None],
    "truth": [True, False, None],
    "tags": [["law"], ["law", "LAW"], ["a", "b", "lawyer"], [], [""], None],
    ODD: ["x", "law", None],
    "in": [1, 2, None],
}
VALUES: list[Any] = [
    *[0, 1, -3, 2, 2**53 + 1, 2**53, 2**63, 10**120, 0.5, 2.5, 1e-7, 9007199254740992.0, 1e300, float("inf"), None],
    *[*TEXTS, "w", "k", "s", "i", "LaW", "d", "a", "[", "d1"],
    *[["law"], ["law", "LAW"], [], ["a"], [""], [1, 2], [0.5, 1.0], ["law", "5", "d1"], [2**53 + 1], ["x"]],
    [float("nan"), 2.5],
]
KEYS = [*FIELDS, "nowhere", "doc_id", "document_id", "ref_doc_id", "_node_type", "_node_content"]
N = 48


def vectors(n: int) -> list[list[float]]:
    """Of length 1, and the same in half precision: a cosine does not depend on who computes it."""
    rng = np.random.default_rng(3)
    made = np.zeros((n, 16))
    for row in made:
        row[rng.choice(16, 4, replace=False)] = rng.choice([-0.5, 0.5], 4)
    return made.tolist()


QUERY = np.random.default_rng(5).normal(size=16).tolist()


def nodes() -> list[TextNode]:
    columns = {name: itertools.cycle([*values, ...]) for name, values in FIELDS.items()}  # ...: the field is missing
    made = []
    for number, vector in enumerate(vectors(N)):
        metadata = {name: value for name, values in columns.items() if (value := next(values)) is not ...}
        document = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"d{number % 5}")} if number % 7 else {}
        made.append(
            TextNode(id_=f"n{number}", text=f"t{number}", metadata=metadata, embedding=vector, relationships=document)
        )
    return made


EVERY = frozenset(f"n{number}" for number in range(N))


class Pair:
    """The same nodes in both stores."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.theirs = RagidxVectorStore(index=folder), SimpleVectorStore()
        self.answers: dict[tuple[str, frozenset[str]], frozenset[str] | None] = {}
        self.ours.add(nodes())
        self.theirs.add(nodes())

    def answer(self, one: MetadataFilter, among: frozenset[str]) -> frozenset[str] | None:
        """The nodes among some that they find by one filter; None: Python cannot compare that."""
        if (key := (repr(one), among)) not in self.answers:
            filters = MetadataFilters(filters=[one])
            query = VectorStoreQuery(query_embedding=QUERY, similarity_top_k=N, filters=filters, node_ids=sorted(among))
            try:
                self.answers[key] = frozenset(self.theirs.query(query).ids or ())
            except TypeError:
                self.answers[key] = None
        return self.answers[key]

    def expected(self, filters: MetadataFilters, among: frozenset[str] = EVERY) -> frozenset[str] | None:
        """The nodes among some that their answers to the parts say."""
        if not filters.filters:
            return among
        found = [
            self.expected(part, among) if isinstance(part, MetadataFilters) else self.answer(part, among)
            for part in filters.filters
        ]
        known = [part for part in found if part is not None]
        if len(known) < len(found):
            return None
        if filters.condition == FilterCondition.OR:
            return frozenset.union(*known)
        if filters.condition == FilterCondition.NOT:
            return among - frozenset.union(*known)
        return frozenset.intersection(*known)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("store") / "index")


def leaf(key: str, operator: FilterOperator, value: Any) -> MetadataFilter:
    return MetadataFilter(key=key, operator=operator, value=value)


def found_or_refused(search: Callable[[], Any]) -> Any:
    try:
        return search()
    except ragidx.QueryError as fault:
        if "cannot be asked of a field of the type" in str(fault):
            return None
        raise


@pytest.mark.parametrize("operator", list(FilterOperator), ids=lambda operator: operator.name)
def test_each_operator_finds_the_same_nodes_with_every_value_in_every_field(
    operator: FilterOperator, pair: Pair
) -> None:
    for key, value in itertools.product(KEYS, VALUES):
        filters = MetadataFilters(filters=[leaf(key, operator, value)])

        found = found_or_refused(lambda: pair.ours.get_nodes(filters=filters))  # noqa: B023

        expected = pair.expected(filters)
        assert (None if found is None else {node.node_id for node in found}) == expected, (key, value)


LEAVES = st.builds(leaf, st.sampled_from(KEYS), st.sampled_from(list(FilterOperator)), st.sampled_from(VALUES))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda parts, condition: MetadataFilters(filters=parts, condition=condition),
        st.lists(inner, max_size=3),
        st.sampled_from([*FilterCondition, None]),
    ),
    max_leaves=6,
)
IDS = st.none() | st.lists(st.sampled_from([f"n{number}" for number in range(N + 3)]), max_size=N)
DOCUMENTS = st.none() | st.lists(st.sampled_from(["d0", "d1", "d2", "d9"]), max_size=3)
MODES = st.sampled_from([VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR])


@settings(max_examples=200)
@given(TREES, st.sampled_from([*FilterCondition]), IDS, DOCUMENTS, MODES, st.integers(1, N), st.floats(0.01, 1))
@example(leaf("truth", FilterOperator.NE, 1), FilterCondition.NOT, None, None, VectorStoreQueryMode.DEFAULT, 9, 0.5)
def test_a_query_finds_the_same_nodes_in_the_same_order_with_the_same_similarities(
    pair: Pair,
    tree: MetadataFilter | MetadataFilters,
    condition: FilterCondition,
    node_ids: list[str] | None,
    doc_ids: list[str] | None,
    mode: VectorStoreQueryMode,
    k: int,
    threshold: float,
) -> None:
    filters = MetadataFilters(filters=[tree], condition=condition)
    among = EVERY
    if doc_ids is not None:  # which SimpleVectorStore ignores
        among &= {node.node_id for node in nodes() if node.ref_doc_id in doc_ids}
    if node_ids:  # an empty list is no limit, as VectorStoreIndex gives one; to theirs it is
        among &= set(node_ids)
    allowed = pair.expected(filters, among)
    options = {"mmr_threshold": threshold} if mode == VectorStoreQueryMode.MMR else {}
    query = VectorStoreQuery(
        query_embedding=QUERY, similarity_top_k=k, mode=mode, filters=filters, node_ids=node_ids, doc_ids=doc_ids
    )

    found = found_or_refused(lambda: pair.ours.query(query, **options))

    if found is None:  # by the types of all nodes, where they look at the values of those that are left
        assert pair.expected(filters) is None
        return
    if allowed is None:  # a comparison that is not reached is not refused: of each node alone they find the same
        assert all(pair.expected(filters, frozenset([one])) == {one} for one in found.ids)
        return
    reference = VectorStoreQuery(query_embedding=QUERY, similarity_top_k=k, mode=mode, node_ids=list(allowed))
    expected = pair.theirs.query(reference, **options)
    assert found.ids == expected.ids
    assert found.similarities == pytest.approx(expected.similarities, abs=1e-5)
    assert [node.node_id for node in found.nodes] == found.ids


def nested(depth: int, inner: MetadataFilter) -> MetadataFilters:
    filters = MetadataFilters(filters=[inner])
    for _ in range(depth):
        filters = MetadataFilters(filters=[filters, leaf("nowhere", FilterOperator.EQ, 1)], condition="or")
    return filters


def wide_filters() -> Iterator[MetadataFilters]:
    """Which no condition as text can say: too deep, too long, too many values."""
    yield nested(60, leaf("text", FilterOperator.EQ, "law"))
    yield MetadataFilters(filters=[leaf("text", FilterOperator.IN, ["law", *map(str, range(5000))])])
    yield MetadataFilters(filters=[leaf("whole", FilterOperator.NIN, list(range(1500)))])
    yield MetadataFilters(filters=[leaf("text", FilterOperator.TEXT_MATCH, "law" * 5000)], condition="not")


@pytest.mark.parametrize("number", range(4))
def test_filters_may_be_deeper_and_longer_than_a_condition_as_text(number: int, pair: Pair) -> None:
    filters = list(wide_filters())[number]
    query = VectorStoreQuery(query_embedding=QUERY, similarity_top_k=N, filters=filters)

    assert frozenset(pair.ours.query(query).ids) == pair.expected(filters)
    assert {node.node_id for node in pair.ours.get_nodes(filters=filters)} == pair.expected(filters)


def test_filters_of_more_than_a_hundred_levels_are_refused(pair: Pair) -> None:
    with pytest.raises(ragidx.QueryError, match="the filters are more than 100 deep"):
        pair.ours.get_nodes(filters=nested(101, leaf("text", FilterOperator.EQ, "law")))


def test_many_ids_may_be_asked_with_a_filter(pair: Pair) -> None:
    ids = [f"{'x' * 36}{number}" for number in range(2000)]
    filters = MetadataFilters(filters=[leaf("whole", FilterOperator.GTE, 1)])
    query = VectorStoreQuery(query_embedding=QUERY, similarity_top_k=9, filters=filters, node_ids=[*ids, "n1", "n3"])
    assert pair.expected(filters) >= {"n1", "n3"}

    assert sorted(pair.ours.query(query).ids or ()) == ["n1", "n3"]
    assert [node.node_id for node in pair.ours.get_nodes([*ids, "n3", "n1", "n0"], filters)] == ["n3", "n1"]


def test_half_precision_changes_similarities_by_less_than_a_thousandth(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    made = [TextNode(id_=str(n), text="x", embedding=(rng.normal(size=24) * 7).tolist()) for n in range(60)]
    ours, theirs = RagidxVectorStore(index=tmp_path / "index"), SimpleVectorStore()
    ours.add(made)
    theirs.add(made)

    for _ in range(20):
        query = VectorStoreQuery(query_embedding=rng.normal(size=24).tolist(), similarity_top_k=60)
        found, expected = ours.query(query), theirs.query(query)

        assert found.similarities == pytest.approx(expected.similarities, abs=1e-3)
        exact = dict(zip(expected.ids, expected.similarities, strict=True))
        assert [exact[name] for name in found.ids] == pytest.approx(expected.similarities, abs=1e-3)
        assert sorted(found.ids) == sorted(expected.ids)


def test_the_threshold_of_the_query_itself_counts_which_theirs_ignores(pair: Pair) -> None:
    mode = VectorStoreQueryMode.MMR
    for threshold in (0.1, 0.9):
        query = VectorStoreQuery(query_embedding=QUERY, similarity_top_k=9, mode=mode, mmr_threshold=threshold)
        assert pair.ours.query(query).ids == pair.theirs.query(query, mmr_threshold=threshold).ids

    narrow = VectorStoreQuery(query_embedding=QUERY, similarity_top_k=9, mode=mode, mmr_threshold=0.1)
    plain = VectorStoreQuery(query_embedding=QUERY, similarity_top_k=9)
    assert set(pair.ours.query(narrow, mmr_prefetch_k=9).ids or ()) == set(pair.ours.query(plain).ids or ())


def test_nodes_are_deleted_by_filters_as_theirs_are(tmp_path: Path) -> None:
    removals = [
        ([f"n{number}" for number in range(20)], MetadataFilters(filters=[leaf("tags", FilterOperator.ANY, ["law"])])),
        (None, MetadataFilters(filters=[leaf("text", FilterOperator.NE, "law"), leaf("whole", FilterOperator.GT, 1)])),
        (None, MetadataFilters(filters=[leaf("tags", FilterOperator.EQ, [])])),  # which no condition says
        (["n30", "nowhere"], None),
    ]
    pair = Pair(tmp_path / "index")
    for node_ids, filters in removals:
        before = len(pair.theirs.data.embedding_dict)

        pair.ours.delete_nodes(node_ids, filters)
        pair.theirs.delete_nodes(node_ids, filters)

        assert {node.node_id for node in pair.ours.get_nodes()} == set(pair.theirs.data.embedding_dict)
        assert len(pair.theirs.data.embedding_dict) < before
