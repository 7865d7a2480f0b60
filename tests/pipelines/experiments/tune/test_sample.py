"""The part of a corpus that a tuning is measured on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.records import Chunk
from ragidx.pipelines.experiments.evaluate.significance import FEWEST_QUERIES
from ragidx.pipelines.experiments.evaluate.tasks import Judged
from ragidx.pipelines.experiments.tune.sample import Drawn, some_queries


def drawn(n_documents: int, n_queries: int, chunks: int) -> Drawn:
    """Documents d0, d1, ... of so many chunks; query q0 is answered by d0 and d1, q1 by d1 and d2, and so on."""
    documents = {f"d{n}": [Chunk(f"d{n}", at, at + 1, "x") for at in range(chunks)] for n in range(n_documents)}
    qrels = {f"q{n}": {f"d{n}": 1, f"d{n + 1}": 2, "gone": 1, "d0": 0} for n in range(n_queries)}
    return Drawn(documents, n_documents, Judged(dict.fromkeys(qrels, "x"), qrels))


@given(n=st.integers(1, 900), chunks=st.integers(1, 4), n_queries=st.integers(1, 80))
def test_a_sample_has_the_answers_of_its_queries_and_no_more_than_there_is_time_for(
    n: int, chunks: int, n_queries: int
) -> None:
    sample = drawn(200, n_queries, chunks).sample(n)

    here = [chunk.doc_id for chunk in sample.chunks]
    answers = {name for judged in sample.judged.qrels.values() for name, gain in judged.items() if gain > 0} - {"gone"}
    size = len(sample.chunks) + len(sample.judged.texts)
    assert answers <= set(here)
    assert len(sample.judged.texts) >= min(FEWEST_QUERIES, n_queries)
    assert size <= max(n, (FEWEST_QUERIES + 1) * (1 + 2 * chunks))
    assert list(dict.fromkeys(here)) == sorted(set(here), key=lambda name: int(name[1:]))
    assert (sample.n_documents, sample.of_documents) == (len(set(here)), 200)


def test_with_time_for_all_of_it_a_sample_is_the_corpus() -> None:
    sample = drawn(30, 25, 2).sample(10_000)

    assert (sample.n_documents, len(sample.chunks), len(sample.judged.texts)) == (30, 60, 25)


def test_queries_are_drawn_by_lots_at_most_three_hundred() -> None:
    names = [f"q{n}" for n in range(400)]
    judged = Judged({name: name for name in names}, {name: {"d": 1} for name in names})

    first, other = some_queries(judged, 0), some_queries(judged, 1)

    assert len(first.qrels) == len(other.qrels) == 300
    assert list(first.qrels) != names[:300]
    assert set(first.qrels) != set(other.qrels)
