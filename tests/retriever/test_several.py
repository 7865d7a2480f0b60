"""Several indexes as one: the hits and scores of one index of all, or of each by itself, fused by places."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragidx
from ragidx.indexer.store import Store
from ragidx.retriever.fusion import Scored, rank_dense
from ragidx.retriever.hit import Hit
from ragidx.retriever.options import SearchOptions

from .fusion_kit import WORDS, Corpus, any_corpus, hybrid, lexical, named, unit

QUESTION = "who signed the lease of the mill?"
MODES: list[dict[str, Any]] = [
    {},
    {"mode": "dense", "where": "year >= 1903 or city is null"},
    {"mode": "lexical", "per_document": 1},
    {"fusion": "rrf", "weight": 0.3, "context": 1},
    {"dim": 32, "rerank_dim": 64, "fold": False},
    {"min_score": 0.1, "mmr": 0.5, "where": 'city == "Ghent" or year == 1900'},
]


def documents(chance: random.Random, first: int, count: int) -> list[ragidx.Document]:
    """Some have equal texts, and only those of even numbers a city."""
    return [
        ragidx.Document(
            f"d{chance.randrange(10**6):06}-{number}",
            " ".join(chance.choices([*WORDS, "the", "of"], k=chance.randint(1, 12))),
            {"year": chance.randint(1900, 1905)} | ({"city": "Ghent"} if number % 2 == 0 else {}),
        )
        for number in range(first, first + count)
    ]


def made(path: Path, texts: Sequence[ragidx.Document], **options: Any) -> ragidx.Index:
    stemmer = {} if options.get("lexical") is False else {"stemmer": "english"}  # a few texts say no language
    index = ragidx.Index.create(path, **stemmer | options)
    index.add(texts)
    return index


def of(*rows: tuple[str, str], **metadata: Any) -> list[ragidx.Document]:
    return [ragidx.Document(name, text, metadata) for name, text in rows]


def shown(hits: Sequence[Hit], *but: str) -> list[Any]:
    """All of hits but the index they are from, and these fields."""
    return [{name: value for name, value in hit.to_json().items() if name not in ("index", *but)} for hit in hits]


def scores(ranked: list[tuple[str, Scored]]) -> list[Any]:
    """Without the numbers of rows, which deletions may change."""
    return [(name, *one[1:]) for name, one in ranked]


# as one


@given(seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(0, 25), min_size=2, max_size=3))
@settings(max_examples=6)
def test_several_answer_as_one_index_of_all(seed: int, sizes: list[int]) -> None:
    chance = random.Random(seed)
    parts = [documents(chance, sum(sizes[:place]), size) for place, size in enumerate(sizes)]
    every = [document for part in parts for document in part]
    gone = [document.id for document in every if chance.random() < 0.2]
    with tempfile.TemporaryDirectory() as folder:
        several = [made(Path(folder, str(place)), part) for place, part in enumerate(parts)]
        one = made(Path(folder, "one"), every)
        for index in [*several, one]:
            index.delete(gone, missing="skip")
        if not one.info().n_chunks:
            return
        for options in MODES:
            has_both = {"year", "city"} <= one.schema.keys()
            asked = {name: value for name, value in options.items() if name != "where" or has_both}

            answer = ragidx.search(several, QUESTION, 8, **asked)

            assert answer.by_places == ""
            expected = one.search(QUESTION, 8, **asked)
            assert shown(answer, "score") == shown(expected, "score")
            assert [hit.score for hit in answer] == pytest.approx([hit.score for hit in expected], abs=1e-6)
            of_index = {str(index.path): {d.id for d in part} for index, part in zip(several, parts, strict=True)}
            assert all(hit.doc_id in of_index[str(hit.index)] for hit in answer)


@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(1, 59), min_size=1, max_size=2, unique=True))
@settings(max_examples=15)
def test_rows_of_several_stores_rank_as_those_of_one(seed: int, cuts: list[int]) -> None:
    corpus, chance = any_corpus(seed), np.random.default_rng(seed)
    corpus.vectors[40:45] = corpus.vectors[3]  # equal scores, by chunk id
    corpus.dead = {corpus.ids[row] for row in chance.integers(0, 60, 9)}
    bounds = [0, *sorted(cuts), 60]
    query, question = unit(chance.standard_normal(8)), " ".join(chance.choice(WORDS, 3))
    with tempfile.TemporaryDirectory() as folder:
        whole, stores = corpus.commit(Path(folder, "whole")), []
        for first, last in itertools.pairwise(bounds):
            part = Corpus(corpus.ids[first:last], corpus.vectors[first:last], corpus.texts[first:last])
            part.dead = corpus.dead & {*part.ids}
            stores.append(part.commit(Path(folder, str(first))))

        joined = Store.joined(stores)

        for k in (3, 60):
            in_both = [
                [
                    scores(lexical(store, question, k)),
                    scores(hybrid(store, query, question, k, fusion="rrf")),
                    scores(named(store, rank_dense(store, query[None], k, None, SearchOptions())[0])),
                ]
                for store in (joined, whole)
            ]
            assert in_both[0] == in_both[1]
            found, expected = (hybrid(store, query, question, k) for store in (joined, whole))
            assert [(name, one.dense, one.bm25) for name, one in found] == [
                (name, one.dense, one.bm25) for name, one in expected
            ]
            # FAISS rounds the cosines whose deviation is taken by where rows lie in a segment.
            assert [one.score for _, one in found] == pytest.approx([one.score for _, one in expected], abs=1e-6)


def test_chunks_that_are_cut_in_another_way_are_of_one_space(tmp_path: Path) -> None:
    one = made(tmp_path / "one", of(("a", "The lease was signed.")))
    other = made(tmp_path / "other", of(("b", "The mill stands.")), chunks=ragidx.ChunkSpec(size=64))

    answer = ragidx.search([one, other], QUESTION)

    assert (answer.by_places, [(hit.doc_id, hit.index) for hit in answer]) == (
        "",
        [("a", str(one.path)), ("b", str(other.path))],
    )


def test_words_are_compared_where_vectors_cannot_be(tmp_path: Path) -> None:
    texts = documents(random.Random(1), 0, 30)
    narrow = made(tmp_path / "b", texts[12:], filter=ragidx.FilterSpec("truncation", dim=64))
    one = made(tmp_path / "one", texts)

    answer = ragidx.search([made(tmp_path / "a", texts[:12]), narrow], QUESTION, mode="lexical")

    assert answer.by_places == ""
    assert shown(answer) == shown(one.search(QUESTION, mode="lexical"))


def test_vectors_are_compared_where_words_cannot_be(tmp_path: Path) -> None:
    texts = documents(random.Random(2), 0, 30)
    wordless = made(tmp_path / "b", texts[12:], lexical=False)
    one = made(tmp_path / "one", texts)
    several = [made(tmp_path / "a", texts[:12]), wordless]

    answer = ragidx.search(several, QUESTION, mode="dense")

    assert answer.by_places == ""
    assert shown(answer) == shown(one.search(QUESTION, mode="dense"))
    with pytest.raises(ragidx.QueryError, match="b: the index has no lexical part: it was built without one"):
        ragidx.search(several, QUESTION, mode="lexical")


def test_an_open_index_keeps_the_model_and_a_path_is_opened(tmp_path: Path) -> None:
    one, path = made(tmp_path / "one", of(("a", "The lease."))), tmp_path / "other"
    made(path, of(("b", "The mill."))).close()
    one = ragidx.Index(one.path)

    assert {hit.doc_id for hit in ragidx.search([one, str(path)], QUESTION)} == {"a", "b"}
    assert "encoder" in vars(one.searcher)


def test_an_index_without_chunks_changes_nothing(tmp_path: Path) -> None:
    full, empty = made(tmp_path / "a", of(("a", "The lease."))), ragidx.Index.create(tmp_path / "b", lexical=False)

    assert shown(ragidx.search([empty, full], QUESTION)) == shown(full.search(QUESTION))
    assert ragidx.search([empty], QUESTION) == []


def test_an_id_in_two_indexes_is_two_rows_and_one_document(tmp_path: Path) -> None:
    text = "The lease of the mill was signed."
    several = [made(tmp_path / name, of(("x", text), ("y", f"{text} Bees dance."))) for name in ("b", "a")]

    every = ragidx.search(several, QUESTION, fold=False)
    folded = ragidx.search(several, QUESTION, mode="lexical")

    assert [(hit.doc_id, Path(str(hit.index)).name) for hit in every] == [
        ("x", "b"),
        ("x", "a"),
        ("y", "b"),
        ("y", "a"),
    ]
    assert every[0].score == every[1].score
    assert [hit.doc_id for hit in ragidx.search(several, QUESTION, per_document=1, fold=False)] == ["x", "y"]
    assert (folded[0].doc_id, [span.doc_id for span in folded[0].also]) == ("x", ["x"])


def test_the_context_is_of_one_index(tmp_path: Path) -> None:
    first, second = made(tmp_path / "a", of(("x", "The lease."))), made(tmp_path / "b", of(("x", "The mill.")))

    assert {hit.context for hit in ragidx.search([first, second], QUESTION, context=2)} == {"The lease.", "The mill."}


# conditions


def test_a_field_that_one_index_has_is_null_in_the_other(tmp_path: Path) -> None:
    one = made(tmp_path / "a", of(("a", "The lease."), year=1900))
    other = made(tmp_path / "b", of(("b", "The mill."), city="Ghent"))

    def found(where: str) -> list[str]:
        return sorted(hit.doc_id for hit in ragidx.search([one, other], QUESTION, where=where))

    assert found("year is null") == ["b"]
    assert found('year == 1900 or city in ("Ghent")') == ["a", "b"]
    assert found('not city starts with "L"') == ["b"]
    with pytest.raises(ragidx.QueryError, match="unknown field 'town'"):
        found('town == "Ghent"')


def test_a_field_of_two_types_is_widened_as_in_one_index(tmp_path: Path) -> None:
    one = made(tmp_path / "a", of(("a", "The lease."), year=1900, size=1))
    other = made(tmp_path / "b", of(("b", "The mill."), year="c. 1900", size=1.5))

    [hit] = ragidx.search([one, other], QUESTION, where='year == "1900" and size < 1.2')

    assert hit.metadata == one.search(QUESTION)[0].metadata == {"year": 1900, "size": 1}  # as they were given


def test_a_source_is_that_of_its_own_index(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "docs" / name).mkdir(parents=True)
        (tmp_path / "docs" / name / f"{name}.md").write_text(f"The lease of {name}.")
    several = [ragidx.build(tmp_path / "docs" / name, tmp_path / name) for name in ("a", "b")]

    hits = ragidx.search(several, QUESTION, where='file.source == "b"')

    assert [hit.doc_id for hit in hits] == ["b.md"]


def test_vectors_of_a_program_have_no_heading(tmp_path: Path) -> None:
    vectors = ragidx.Index.create(tmp_path / "v", dim=2)
    vectors.add_vectors(["v"], [[1, 0]], texts=["the lease"])
    texts = made(tmp_path / "a", of(("a", "The lease.")), stemmer=None)

    def found(where: str) -> set[str]:
        return {hit.chunk_id.split(":")[0] for hit in ragidx.search([vectors, texts], "lease", where=where)}

    assert found("heading is null") == {"v"}
    assert found('heading == ""') == {"a"}


# by places


def test_other_vectors_are_fused_by_places(tmp_path: Path) -> None:
    texts = documents(random.Random(3), 0, 20)
    one = made(tmp_path / "a", texts[:10])
    other = made(tmp_path / "b", texts[10:], filter=ragidx.FilterSpec("truncation", dim=64))
    [lists] = [[index.search(QUESTION, 4) for index in (other, one)]]

    answer = ragidx.search([other, one], QUESTION, 4)

    assert answer.by_places == (
        f"the vectors of '{other.path}' and '{one.path}' are of two spaces, which differ in the filter"
    )
    assert [hit.doc_id for hit in answer] == [lists[n % 2][n // 2].doc_id for n in range(4)]
    assert [hit.score for hit in answer] == [1 / 61, 1 / 61, 1 / 62, 1 / 62]
    assert [hit.rank for hit in answer] == [1, 2, 3, 4]
    assert (answer[1].dense, answer[1].bm25) == (lists[1][0].dense, lists[1][0].bm25)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"model": "mini-decoder"}, "the vectors of 'a' and 'b' are of two spaces, which differ in the model"),
        ({"instruction": "Find it."}, "the vectors of 'a' and 'b' are of two spaces, which differ in the instruction"),
        ({"max_length": 64}, "the vectors of 'a' and 'b' are of two spaces, which differ in the method"),
        ({"stemmer": "german"}, "the words of 'a' and 'b' were stemmed in two ways"),
        ({"lexical": False}, "'a' is asked by hybrid search, 'b' by dense search"),
    ],
)
def test_why_hits_are_fused_by_places(
    options: dict[str, Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = of(("x", "The lease of the mill."), ("y", "Bees."))

    answer = ragidx.search([made(Path("a"), texts[:1]), made(Path("b"), texts[1:], **options)], QUESTION)

    assert (answer.by_places, [hit.doc_id for hit in answer]) == (why, ["x", "y"])


def test_a_filter_that_is_fitted_on_each_corpus_makes_spaces_of_its_own(tmp_path: Path) -> None:
    kept = {"filter": ragidx.FilterSpec("pca", dim=4)}
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(
            "\n".join(f'{{"text": "{name} {word} {other}"}}' for word in WORDS for other in WORDS)
        )
    one, other = (ragidx.build(tmp_path / f"{name}.jsonl", tmp_path / name, **kept) for name in ("a", "b"))

    assert "which differ in the filter" in ragidx.search([one, other], QUESTION).by_places
    assert one.spec.fingerprint() == other.spec.fingerprint()


def test_equal_passages_and_documents_are_limited_over_all_places(tmp_path: Path) -> None:
    text = "The lease of the mill was signed."
    several = [
        made(tmp_path / name, of(("x", text), ("z", f"Bees of {name} dance in the lake.")), stemmer=stemmer)
        for name, stemmer in (("a", "english"), ("b", "none"))
    ]

    answer = ragidx.search(several, QUESTION, min_z=-9.0)

    assert [(hit.doc_id, Path(str(hit.index)).name) for hit in answer] == [("x", "a"), ("z", "a"), ("z", "b")]
    assert [span.doc_id for span in answer[0].also] == ["x"]
    assert [hit.doc_id for hit in ragidx.search(several, QUESTION, per_document=1)] == ["x", "z"]


# vectors


def test_a_vector_is_compared_in_all_indexes_of_one_space_alone(tmp_path: Path) -> None:
    one, other = (ragidx.Index.create(tmp_path / name, dim=2) for name in ("a", "b"))
    one.add_vectors(["v"], [[1, 0]])
    other.add_vectors(["w"], [[1, 1]])
    third = made(tmp_path / "c", of(("a", "The lease.")))

    hits = ragidx.search([one, other], vector=[0, 1])

    assert [(hit.doc_id, hit.score) for hit in hits] == [("w", pytest.approx(0.7071, abs=1e-3)), ("v", 0.0)]
    with pytest.raises(ragidx.QueryError, match="one vector cannot be compared in all indexes: the vectors of"):
        ragidx.search([one, third], vector=[0, 1])


# what is refused


def test_what_is_no_list_of_indexes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one = made(Path("a"), of(("a", "The lease.")))

    with pytest.raises(ragidx.QueryError, match="`indexes`: no index is named"):
        ragidx.search([], QUESTION)
    with pytest.raises(ragidx.QueryError, match="a: the index is named twice"):
        ragidx.search([one, tmp_path / "a"], QUESTION)
    with pytest.raises(ragidx.IndexFormatError, match="nowhere: there is no such folder"):
        ragidx.search([one, "nowhere"], QUESTION)
    with pytest.raises(TypeError, match="expected a list of indexes, got one"):
        ragidx.search("a", QUESTION)
    with pytest.raises(TypeError, match=r"search\(\) got an unexpected keyword argument 'top'"):
        ragidx.search([one], QUESTION, top=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="give a question, or a vector"):
        ragidx.search([one])
