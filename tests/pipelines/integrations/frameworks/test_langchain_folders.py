"""An index that was built from files, as a LangChain store; and what a store refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="needs the extra 'langchain'")

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

import ragidx
from ragidx.frameworks.langchain import RagidxVectorStore

from ....raising import message_of

EMBEDDING = DeterministicFakeEmbedding(size=6)
FAQ = Document(id="faq-1", page_content=" Who keeps the mill? Ada does. ", metadata={"year": 2020, "none": None})


@pytest.fixture
def index(tmp_path: Path) -> ragidx.Index:
    """Of two files, one of several chunks."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "mill.md").write_text(
        "---\nyear: 1790\nadded: 2024-01-31T12:00:00\n---\n# The mill\n\nThe old mill turned for nine years.\n\n"
        "## Its river\n\nThe river drove the wheel of the mill until the dam broke.\n"
    )
    (tmp_path / "docs" / "bees.txt").write_text("Bees dance.\n\nFor each other they show where flowers are.\n")
    return ragidx.build(tmp_path / "docs", tmp_path / "index", chunks=ragidx.ChunkSpec(size=22))


def test_hits_of_files_have_their_places_and_a_programs_documents_come_back_exactly(index: ragidx.Index) -> None:
    store = RagidxVectorStore(index)
    store.add_documents([FAQ])

    found = store.similarity_search("who keeps the mill and its river?", k=9)

    assert [document for document in found if document.id == "faq-1"] == [FAQ]
    [river] = [document for document in found if "dam broke" in document.page_content]
    assert (river.metadata["source"], river.metadata["line"], river.metadata["heading"], river.metadata["year"]) == (
        "mill.md",
        9,
        "The mill > Its river",
        1790,
    )
    assert river.metadata["added"] == "2024-01-31T12:00:00+00:00"
    assert {"score", "start", "end", "dense"} <= set(river.metadata)
    assert len(found) == index.info().n_chunks - len(index.chunks(document="faq-1")) + 1
    assert found == RagidxVectorStore(index.path).similarity_search("who keeps the mill and its river?", k=9)


def test_a_hit_of_a_file_is_found_by_its_id_and_a_file_by_its_own(index: ragidx.Index) -> None:
    store = RagidxVectorStore(index)
    store.add_documents([FAQ])
    hit = store.similarity_search("the river and the dam", k=1)[0]
    assert hit.id is not None

    same, faq, whole = store.get_by_ids([hit.id, "faq-1", "none", "mill.md:0-1", "mill.md"])

    of_question = ("score", "dense", "bm25")
    kept = {name: value for name, value in hit.metadata.items() if name not in of_question}
    assert (same.id, same.page_content, same.metadata) == (hit.id, hit.page_content, kept)
    assert faq == FAQ
    assert (whole.id, whole.metadata["year"]) == ("mill.md", 1790)
    assert "# The mill" in whole.page_content
    assert "the dam broke" in whole.page_content


def test_other_searches_of_a_folder_keep_their_options(index: ragidx.Index) -> None:
    store = RagidxVectorStore(index)
    store.add_documents([FAQ, FAQ.model_copy(update={"id": "faq-2"})])

    diverse = store.max_marginal_relevance_search("the mill", k=3, lambda_mult=0.2)
    hybrid = store.similarity_search_with_score("river dam", k=2, mode="hybrid")
    files = store.similarity_search("mill", k=9, filter="file.source is not null and year < 1800")

    assert len({document.id for document in diverse}) == 3
    assert hybrid[0][0].metadata["bm25"] > 0
    assert {document.metadata["source"] for document in files} == {"mill.md"}
    assert [one.id for one in store.similarity_search("who keeps the mill?", k=2)] in (  # equal texts are both found
        ["faq-1", "faq-2"],
        ["faq-2", "faq-1"],
    )
    assert len(store.similarity_search("mill", k=9, min_score=0.99)) == 0


def test_a_store_shows_one_state_or_the_newest(index: ragidx.Index) -> None:
    stores = [RagidxVectorStore(index.path, refresh=refresh) for refresh in (None, "auto")]  # type: ignore[arg-type]

    index.add([ragidx.Document("new", "The tower is orange.")])

    found = [[one.page_content for one in store.similarity_search("tower", k=9)] for store in stores]
    assert ["The tower is orange." in texts for texts in found] == [False, True]
    assert [len(store.get_by_ids(["new"])) for store in stores] == [0, 1]


def test_other_calls_make_nothing_before_something_is_added(tmp_path: Path) -> None:
    store = RagidxVectorStore(tmp_path / "index", EMBEDDING)

    assert store.max_marginal_relevance_search("x") == []
    assert store.similarity_search_with_relevance_scores("x", score_threshold=0.5) == []
    with store.batch() as batch:
        batch.delete(["x"])
    assert list(tmp_path.iterdir()) == []


class Wrong(Embeddings):
    """Vectors that are no vectors of the texts."""

    def __init__(self, vectors: list[list[float]]) -> None:
        self.vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.vectors

    def embed_query(self, text: str) -> list[float]:
        return self.vectors[0]


def stored(path: Path, embedding: Embeddings | None = EMBEDDING) -> RagidxVectorStore:
    store = RagidxVectorStore(path / "index", embedding)
    store.add_texts(["one"], [{"n": 1, "s": "a"}], ids=["1"])
    return store


MISTAKES: list[tuple[Callable[[RagidxVectorStore], Any], type[Exception], str]] = [
    (
        lambda store: store.delete(),
        ragidx.QueryError,
        "`ids`: nothing says what to delete\n  hint: give ids or a filter; all documents at once are not deleted",
    ),
    (lambda store: store.delete(filter={}), ragidx.QueryError, "`ids`: nothing says what to delete"),
    (lambda store: store.delete("1"), TypeError, "expected a list of ids, got one string"),  # type: ignore[arg-type]
    (lambda store: store.delete(["1"], everything=True), TypeError, "a store has no option 'everything'"),
    (lambda store: store.add_texts(["a"], [{}, {}]), ValueError, "2 metadatas for 1 texts; give one for each"),
    (lambda store: store.add_texts(["a", "b"], ids=["x"]), ValueError, "1 ids for 2 texts; give one for each"),
    (lambda store: store.add_texts(["a"], colour="red"), TypeError, "a store has no option 'colour'"),
    (lambda store: store.add_texts(["a"], batch_size=0), ValueError, "batch_size=0 is less than 1"),
    (
        lambda store: store.add_texts(["a", "b"], [{"n": 2}, {"where": {"page": {1}}}], ids=["2", "3"]),
        ragidx.CorpusError,
        "3: the field 'where': {1} is a set\n"
        "  hint: give texts, finite numbers, true, false, None, times, and lists and dicts of them",
    ),
    (
        lambda store: store.add_texts(["a"], [{"n": [1]}], ids=["2"]),
        ragidx.CorpusError,
        "2: the field 'n' holds values of the type int in this index, and this is a string",
    ),
    (lambda store: store.add_texts(["a"], [{"n": ("a",)}]), ragidx.CorpusError, "the field 'n': ('a',) is a tuple"),
    (lambda store: store.add_texts(["a"], [{"d": date(2024, 1, 1)}]), ragidx.CorpusError, "1, 1) is a date\n"),
    (lambda store: store.add_texts(["a"], [{"n": float("inf")}]), ragidx.CorpusError, "inf is not a finite number"),
    (lambda store: store.add_texts(["a"], [{"n": 1 << 20_000}]), ragidx.CorpusError, "a whole number of 20,001 bits"),
    (lambda store: store.add_texts(["a"], [{1: 1}]), ragidx.CorpusError, "the field '1': the key 1 is an int"),  # type: ignore[dict-item]
    (lambda store: store.add_texts(["a"], [{"s": "\ud800"}]), ragidx.CorpusError, "'s': half of a surrogate pair"),
    (lambda store: store.add_texts(["\ud800"]), ragidx.CorpusError, "holds half of a surrogate pair, which no UTF-8"),
    (lambda store: store.add_texts([1]), ragidx.CorpusError, "the text is of the type int\n  hint: give a str"),  # type: ignore[list-item]
    (
        lambda store: store.add_texts(["a"], ids=[1]),
        ragidx.CorpusError,
        "the id 1 is of the type int\n  hint: give a str",
    ),  # type: ignore[list-item]
    (
        lambda store: store.add_texts(["a"], [{"n": "text"}], ids=["2"]),
        ragidx.CorpusError,
        "2: the field 'n' holds values of the type int in this index, and this is a string\n"
        "  hint: give it the same type, or another name",
    ),
    (
        lambda store: store.add_texts(["a", "b"], [{"new": 1}, {"new": "x"}], ids=["2", "3"]),
        ragidx.CorpusError,
        "3: the field 'new' holds values of the type int in this index, and this is a string",
    ),
    (lambda store: store.similarity_search("a", where="n == 1"), TypeError, "a store has no option 'where': give the"),
    (lambda store: store.similarity_search("a", kk=3), TypeError, "unexpected keyword argument 'kk'"),
    (lambda store: store.similarity_search("a", score_threshold=0.5), TypeError, "argument 'score_threshold'"),
    (lambda store: store.similarity_search("a", k=0), ragidx.QueryError, "k=0 asks for no hit"),
    (lambda store: store.search("a", "best"), ValueError, "search_type of best not allowed"),
]


@pytest.mark.slow
@pytest.mark.parametrize("embedding", [EMBEDDING, None], ids=["vectors", "texts"])
def test_a_mistake_is_refused_and_nothing_is_stored(tmp_path: Path, embedding: Embeddings | None) -> None:
    store = stored(tmp_path, embedding)
    assert store.index is not None
    before = store.index.generation

    for call, kind, message in MISTAKES:
        assert message in message_of(kind, lambda call=call: call(store))  # type: ignore[misc]

    assert (store.index.generation, store.index.count()) == (before, 1)


@pytest.mark.slow
def test_what_holds_for_one_kind_of_index_is_refused_by_name(tmp_path: Path) -> None:
    vectors, texts = stored(tmp_path / "a"), stored(tmp_path / "b", None)

    assert message_of(ragidx.SpecError, lambda: RagidxVectorStore(tmp_path / "b" / "index", EMBEDDING)) == (
        f"{tmp_path / 'b' / 'index'}: the index encodes its texts itself, and vectors of another embedding are not "
        "comparable\n  hint: remove `embedding`, or name another folder"
    )
    assert message_of(ragidx.SpecError, lambda: RagidxVectorStore(vectors.index).add_texts(["a"])) == (  # type: ignore[arg-type]
        f"{tmp_path / 'a' / 'index'}: the index holds precomputed vectors, and the store has nothing that makes them\n"
        "  hint: give the store the `embedding` that made them"
    )
    assert texts.get_by_ids(texts.add_texts(["  "])) == []
    assert vectors.get_by_ids(vectors.add_texts(["  "]))[0].page_content == "  "
    assert message_of(
        ragidx.QueryError, lambda: texts.similarity_search_with_relevance_scores("one", mode="lexical")
    ) == ("`mode`: relevance is of cosines, and lexical search has none\n  hint: take `mode=dense` or `hybrid`")
    assert "the store's own" in message_of(
        ragidx.CorpusError, lambda: vectors.add_texts(["a"], [{"langchain.bare": "x"}])
    )
    assert message_of(ragidx.SpecError, lambda: RagidxVectorStore(tmp_path / "c", refresh="always")) == (  # type: ignore[arg-type]
        "`refresh`: refresh is 'always'\n  hint: give \"auto\" or None"
    )


def test_an_embedding_that_makes_no_vectors_of_the_texts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a" / "index"
    few, ragged = (RagidxVectorStore(path, Wrong(vectors)) for vectors in ([[1.0, 0]], [[1.0], [1.0, 0]]))
    assert message_of(ragidx.ModelError, lambda: few.add_texts(["a", "b"])) == (
        "the embedding makes 1 vectors for 2 texts\n  hint: give one that makes a vector of each text"
    )
    with pytest.raises(ragidx.SpecError, match=r"^2nd: the embedding has 2 dimensions, and those of the index have 1"):
        ragged.add_texts(["a", "b"], ids=["1st", "2nd"])
    assert not path.exists()
    stored(tmp_path / "a")
    narrow = RagidxVectorStore(path, Wrong([[1.0, 0.0]]))
    assert message_of(ragidx.SpecError, lambda: narrow.add_texts(["a"], ids=["odd"])) == (
        "odd: the embedding has 2 dimensions, and those of the index have 6\n"
        "  hint: embed with the model of the index, or take another folder"
    )
    with pytest.raises(ragidx.QueryError, match="the query's vector has 2 dimensions, those of the index have 6"):
        narrow.similarity_search("a")
    assert ragidx.Index(path).count() == 1


def test_an_index_of_vectors_that_was_not_made_by_a_store_is_asked_by_one(tmp_path: Path) -> None:
    index = ragidx.Index.create(tmp_path / "index", dim=6)
    index.add_vectors(["a"], [EMBEDDING.embed_query("mill")], texts=["mill"], metadata=[{"year": 1790}])

    store = RagidxVectorStore(index, EMBEDDING)

    expected = [Document(id="a", page_content="mill", metadata={"year": 1790})]
    assert store.similarity_search("mill", filter={"year": 1790}) == store.get_by_ids(["a"]) == expected
