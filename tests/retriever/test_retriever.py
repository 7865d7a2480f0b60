"""Index: hits of an index, conditions, documents, and the errors a question can meet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ragidx
from ragidx.pipelines.index import Index

from ..measuring import ndcg_at_10


@pytest.fixture(scope="module")
def corpus_of_chunks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve documents of several chunks each; `n` and `even` are their metadata."""
    folder = tmp_path_factory.mktemp("many")
    words = ["river", "mill", "lease", "tower", "bees", "planet", "printing", "bread", "music"]
    words += ["bridge", "medicine", "market"]
    for n, word in enumerate(words):
        text = "\n\n".join(f"Paragraph {p} of the {word}: {f'the {word} and its story ' * 6}." for p in range(4))
        head = f"---\nn: {n}\neven: {str(n % 2 == 0).lower()}\n" + ("rare: yes please\n" if n == 5 else "") + "---\n"
        (folder / f"{word}.md").write_text(f"{head}# {word}\n\n{text}\n")
    return folder


@pytest.fixture(scope="module", params=["flat", "hnsw"])
def retriever(
    request: pytest.FixtureRequest, corpus_of_chunks: Path, tmp_path_factory: pytest.TempPathFactory
) -> Index:
    index = tmp_path_factory.mktemp(request.param) / "index"
    ragidx.build(corpus_of_chunks, index, chunks=ragidx.ChunkSpec(size=48), index_type=request.param)
    return Index(index)


@pytest.mark.slow
def test_hits_are_ranked_from_1_by_falling_cosine(retriever: Index) -> None:
    hits = retriever.search("the story of bees", k=5, mode="dense")

    assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5]
    assert hits[0].doc_id == "bees.md"
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(-1 <= hit.score <= 1 for hit in hits)


@pytest.mark.slow
def test_scores_are_cosines_of_query_and_chunk_below_its_title(retriever: Index) -> None:
    hit = retriever.search("the story of bees", k=1, mode="dense")[0]
    query = retriever.searcher.encode(["the story of bees"])

    chunk = retriever.searcher.encode([f"{hit.heading}\n\n{hit.text}"])

    assert hit.heading
    assert hit.score == pytest.approx(float((query @ chunk.T)[0, 0]), abs=2e-3)


def test_offsets_and_ids_point_into_the_document(retriever: Index, corpus_of_chunks: Path) -> None:
    for hit in retriever.search("bridge", k=4):
        text = (corpus_of_chunks / hit.doc_id).read_text().split("---\n", 2)[2].lstrip("\n")
        assert hit.chunk_id == f"{hit.doc_id}:{hit.start}-{hit.end}"
        assert hit.text in text
        assert hit.end - hit.start == len(hit.text)


def test_k_larger_than_the_index_gives_all_chunks(retriever: Index) -> None:
    assert len(retriever.search("bees", k=10_000)) == retriever.searcher.store.manifest.n_chunks


def test_a_condition_always_gives_k_hits_if_so_many_exist(retriever: Index) -> None:
    hits = retriever.search("bees", k=4, where="n == 11")

    assert {hit.doc_id for hit in hits} == {"market.md"}
    assert len(hits) == 4


def test_documents_count_by_their_best_chunk(retriever: Index) -> None:
    found = retriever.rank_documents(["the story of bees", "old mill"], k=12)

    for documents in found:
        assert len({doc_id for doc_id, _ in documents}) == 12
        assert [score for _, score in documents] == sorted((score for _, score in documents), reverse=True)
    assert found[0][0][0] == "bees.md"
    best = retriever.search("the story of bees", k=1)[0]
    assert found[0][0][1] == pytest.approx(best.score, abs=1e-6)


def test_questions_from_many_threads_give_the_same_hits(retriever: Index) -> None:
    expected = [hit.chunk_id for hit in retriever.search("bees", k=5)]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: [h.chunk_id for h in retriever.search("bees", k=5)], range(16)))

    assert answers == [expected] * 16


def test_a_list_instead_of_a_question_is_a_type_error(retriever: Index) -> None:
    with pytest.raises(TypeError) as no_text:
        retriever.search(["x"])  # type: ignore[arg-type]  # what is tested

    assert str(no_text.value) == "a query is a str, got ['x']"


def test_a_question_that_spells_special_tokens_is_text(retriever: Index) -> None:
    assert len(retriever.search("[CLS] [SEP] </s> {text}", k=2)) == 2


@pytest.mark.slow
def test_the_sample_answers_its_questions() -> None:
    """The offline quality test: see corpora/sample/README.md for how the questions were judged."""
    import tempfile

    from ragidx.corpora.evalsets import load_qrels, load_queries
    from ragidx.pipelines.cli.demo import sample_corpus

    sample = sample_corpus().parent
    with tempfile.TemporaryDirectory() as folder:
        ragidx.build(sample / "documents", f"{folder}/index")
        queries = load_queries(sample)
        found = Index(f"{folder}/index").rank_documents(list(queries.values()), k=10)

    run = {query: dict(documents) for query, documents in zip(queries, found, strict=True)}
    assert len(queries) == 60
    assert ndcg_at_10(load_qrels(sample), run) > 0.75
