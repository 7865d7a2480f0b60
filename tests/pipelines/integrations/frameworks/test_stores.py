"""What the stores of LangChain, LlamaIndex and Haystack do alike: rows in and out, commits, types, and refusals."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="the extra `llamaindex` is not installed")

from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.types import VectorStoreQuery

import ragidx

from .adapters import STORES, LangChainTexts, Letters, Rows, Store, haystack, langchain, llamaindex
from .conftest import FACTS

ROWS: Rows = {
    "a": ("a cab", {"year": 1790, "subject": "history", "tags": ["x", "y"], "none": None}),
    "b": ("the feed bag", {"year": 1840, "share": 0.5, "open": True}),
    "c": ("a deaf head", {"subject": 'say "no"\\`', "heading": "H", "doc_id": "mine"}),
}


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> type[Store]:
    return STORES[request.param]


@pytest.fixture
def store(kind: type[Store], tmp_path: Path) -> Store:
    """With `ROWS`, in `store`."""
    store = kind(tmp_path / "store")
    store.add(ROWS)
    return store


def generation(store: Store) -> int:
    assert store.index is not None
    return store.index.generation


def test_a_store_is_the_same_when_it_is_opened_again_or_over_an_open_index(
    store: Store, kind: type[Store], tmp_path: Path
) -> None:
    for again in (kind(tmp_path / "store"), kind(ragidx.Index(tmp_path / "store"))):
        assert again.get(ROWS) == ROWS
        assert again.find("a deaf head")[0] == "c"
        assert again.find("a deaf head") == store.find("a deaf head")
        assert again.index is not None
        assert again.index.verify() == []


def test_before_something_is_added_there_is_nothing_and_who_adds_first_makes_it(
    kind: type[Store], tmp_path: Path
) -> None:
    store, other = kind(tmp_path / "store"), kind(tmp_path / "store")

    assert (store.find("abc"), store.get(["a"]), store.index) == ([], {}, None)
    store.delete(["a"])
    store.delete_where(year=1)
    store.add({})
    assert list(tmp_path.iterdir()) == []

    store.add({"a": ROWS["a"]})
    assert other.find("abc") == ["a"]  # which another process may have made
    other.add({"b": ROWS["b"]})
    assert sorted(store.find("abc")) == ["a", "b"]


def test_an_index_that_another_store_is_making_is_nothing_yet(kind: type[Store], tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "LOCK").touch()  # what a writer makes first
    store = kind(tmp_path / "store")

    assert (store.find("abc"), store.get(["a"]), store.index) == ([], {}, None)
    store.add({"a": ROWS["a"]})
    assert store.find("abc") == ["a"]


def test_a_call_is_one_commit_that_replaces_what_has_its_ids(store: Store) -> None:
    before = generation(store)

    store.add({"a": ("bead", {"year": 5}), "d": ("face", {})})

    assert generation(store) == before + 1
    assert store.get(["a", "d", "none"]) == {"a": ("bead", {"year": 5}), "d": ("face", {})}
    store.add({})
    assert generation(store) == before + 1
    assert sorted(store.find("abc")) == ["a", "b", "c", "d"]


def test_rows_are_deleted_by_id_and_by_filter_and_of_others_nothing_changes(store: Store) -> None:
    before = generation(store)
    for nothing in ([], ["none"]):
        store.delete(nothing)
    assert generation(store) == before
    with pytest.raises(Exception, match=r"call clear|nothing says|'operator' key"):  # each has its own kind
        store.delete_where()

    store.delete_where(year=1840)
    assert sorted(store.find("abc")) == ["a", "c"]
    store.delete(["a", "none"])
    assert store.find("abc") == ["c"]


def test_many_rows_are_asked_for_and_deleted_in_one_commit(store: Store) -> None:
    many = {f"{'x' * 36}{number}": ("abc", {"n": number}) for number in range(600)}
    store.add(many)
    before = generation(store)
    assert store.get([*many, "a"]) == {**many, "a": ROWS["a"]}

    store.delete([*many])

    assert (sorted(store.find("abc")), generation(store)) == (["a", "b", "c"], before + 1)


def test_a_search_asks_by_a_filter(store: Store) -> None:
    assert store.find("abc", year=1840) == ["b"]
    assert store.find("abc", subject='say "no"\\`') == ["c"]
    assert store.find("abc", subject="history", year=1840) == []
    assert store.find("abc", year=2000) == []


@pytest.mark.slow
def test_hybrid_search_with_vectors_of_ones_own_is_that_of_an_index_of_the_texts(tmp_path: Path) -> None:
    index = ragidx.Index(None, create={"stemmer": "english"})
    index.add(ragidx.Document(name, text, {"year": year}) for name, text, year, _ in FACTS)
    model, equal = llamaindex.RagidxEmbedding("mini"), {"stemmer": "english"}
    nodes = llamaindex.RagidxVectorStore(**equal)
    vectors = model.get_text_embedding_batch([text for _, text, *_ in FACTS])
    nodes.add(
        TextNode(id_=name, text=text, metadata={"year": year}, embedding=vector)
        for (name, text, year, _), vector in zip(FACTS, vectors, strict=True)
    )
    made = ragidx.Index(None, create={"dim": len(vectors[0]), **equal})
    texts = langchain.RagidxVectorStore(made, langchain.RagidxEmbeddings("mini"))
    texts.add_texts(
        [text for _, text, *_ in FACTS], [{"year": year} for *_, year, _ in FACTS], ids=[f[0] for f in FACTS]
    )
    late = MetadataFilters(filters=[MetadataFilter(key="year", value=1800, operator=">")])

    for question, weight, is_late in itertools.product(["bees by the river", "a tower"], [None, 0.0, 0.3, 1.0], [0, 1]):
        where = "year > 1800" if is_late else None
        hits = index.search(question, 3, mode="hybrid", weight=weight, where=where, fold=False)
        expected = {hit.doc_id: pytest.approx(hit.score, abs=1e-3) for hit in hits}
        asked: Any = {"query_str": question, "query_embedding": model.get_query_embedding(question), "alpha": weight}
        asked |= {"mode": "hybrid", "similarity_top_k": 3, "filters": late if is_late else None}
        result = nodes.query(VectorStoreQuery(**asked))
        assert dict(zip(result.ids or (), result.similarities or (), strict=True)) == expected
        found = texts.similarity_search_with_score(question, 3, filter=where, mode="hybrid", weight=weight)
        assert {one.id: score for one, score in found} == expected
    assert [one.id for one in texts.similarity_search("bees", mode="lexical")] == ["bees"]


def test_a_field_has_another_type_when_no_row_has_a_value_of_the_old_one(kind: type[Store], tmp_path: Path) -> None:
    store = kind(tmp_path / "store")
    store.add({"a": ("cab", {"y": "1990"})})

    store.add({"a": ("cab", {"y": 1990})})
    assert store.find("cab", y=1990) == ["a"]
    store.delete(["a"])
    store.add({"b": ("bag", {"y": True})})

    assert store.get(["b"]) == {"b": ("bag", {"y": True})}
    assert store.index is not None
    assert store.index.schema["y"] == "bool"


def test_a_row_whose_vector_is_of_zeros_is_kept_and_searches_skip_it(kind: type[Store], tmp_path: Path) -> None:
    store = kind(tmp_path / "store")
    blank: Rows = {"a": ("cab", {"n": 1}), "b": ("", {"n": 2}), "c": ("bag", {"n": 3})}
    if kind is LangChainTexts:  # whose index has no chunk of a blank text
        store.add(blank)
        assert sorted(store.get(blank)) == ["a", "c"]
        return

    store.add(blank)

    assert store.get(blank) == blank
    assert store.find("abc") == ["a", "c"]
    assert store.find("abc", n=2) == []
    store.add({"b": ("feed", {"n": 2})})
    assert sorted(store.find("abcdef")) == ["a", "b", "c"]


def test_vectors_of_another_width_are_refused_and_nothing_is_written(kind: type[Store], tmp_path: Path) -> None:
    if kind is LangChainTexts:
        pytest.skip("its index makes the vectors")
    kind(tmp_path / "store").add(ROWS)
    narrow = kind(tmp_path / "store", dim=3)
    before = generation(narrow)

    with pytest.raises(ragidx.RagidxError, match=r"(?s)odd.*3 dimensions.*(of the index have|the store of) 8"):
        narrow.add({"odd": ("abc", {})})

    assert generation(narrow) == before


def test_what_holds_something_else_is_refused_when_the_store_is_made(kind: type[Store], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ragidx.IndexFormatError, match="it is a file, not a folder"):
        kind(tmp_path / "file")
    if kind is not LangChainTexts:
        ragidx.Index.create(tmp_path / "texts")
        with pytest.raises(ragidx.SpecError, match=r"encodes (its )?texts|holds encoded texts"):
            kind(tmp_path / "texts")


@pytest.mark.parametrize(
    "make",
    [
        lambda: langchain.RagidxVectorStore.from_texts(["The mill."], Letters()),
        lambda: langchain.RagidxVectorStore(embedding=Letters()),
        llamaindex.RagidxVectorStore,
        haystack.RagidxDocumentStore,
    ],
)
def test_a_store_without_a_place_is_in_memory_and_writes_nothing_here(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    make()

    assert list(tmp_path.iterdir()) == []
