"""The demo: the bundled corpus and model, three questions, and each hit's place by its vectors and by its words.

With another model, the same by its echo embeddings; and how well these, its PromptEOL embeddings and the bundled model
find what the sample's questions ask for, with and without EmbedFilter, by vectors alone and with words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.corpora.errors import SpecError
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.indexer.models.locate import locate
from ragidx.indexer.specs import FilterSpec
from ragidx.pipelines.evaluate.significance import ndcg
from ragidx.pipelines.index import Index
from ragidx.pipelines.ingest.build import build
from ragidx.pipelines.ingest.report import BuildReport, OnProgress
from ragidx.retriever.hit import Hit

QUESTIONS = (
    "Why did two radio engineers chase pigeons out of their antenna?",
    "what makes an old chocolate bar turn grey and is it safe to eat",
    "Which ship passage let foreign fish and jellyfish spread from one sea into another?",
)
_PLACES = 100  # of each list


@dataclass(frozen=True)
class PlacedHit:
    """A hit of hybrid search.

    Attributes:
        hit: with its scores.
        dense_place: among the chunks by their vectors, from 1; None: not among the first hundred.
        lexical_place: among those with a word of the question, by BM25; None likewise.
    """

    hit: Hit
    dense_place: int | None
    lexical_place: int | None


def sample_corpus() -> Path:
    """The folder of the sample's documents."""
    return Path(str(resources.files("ragidx.corpora") / "sample" / "documents"))


@dataclass(frozen=True)
class Quality:
    """How well the sample's questions are answered in one way.

    Attributes:
        name: of the way.
        dim: numbers of a vector.
        dense, hybrid: the mean nDCG@10 by vectors, and by vectors and words.
    """

    name: str
    dim: int
    dense: float
    hybrid: float


def run(folder: Path, on_progress: OnProgress | None = None) -> tuple[BuildReport, list[list[PlacedHit]]]:
    """Index the sample in `folder` and ask it the three questions, as `ragidx query` does by default.

    float32, so that the scores are the same on every machine.
    """
    report = build(sample_corpus(), folder, on_progress=on_progress, dtype="float32")
    return report, _answers(Index(folder, dtype="float32"))


def compare(
    model: str,
    folder: Path,
    on_progress: OnProgress | None = None,
    on_index: Callable[[str], None] = lambda name: None,
) -> tuple[BuildReport, list[list[PlacedHit]], list[Quality]]:
    """Index the sample with the bundled model and with two methods of another; ask the questions of the sample.

    Args:
        model: a decoder, with a head that EmbedFilter is read from.
        folder: three indexes are made in it: mini, echo, prompteol.
        on_progress: called a few times a second.
        on_index: called with the name of each before it is made.

    Raises:
        ModelError: as `locate`.
        SpecError: it is a sentence-transformers model.

    Returns:
        The report and the answers of echo at half the width, and the qualities of all ways.
    """
    if locate(model).sentence_transformers:  # what cannot be compared is refused before anything is built
        raise SpecError(
            f"'{model}' is a sentence-transformers model, and echo is for decoders", "name a decoder", where="`model`"
        )
    on_index("mini")
    build(sample_corpus(), folder / "mini", on_progress=on_progress)
    found = [_quality("mini", Index(folder / "mini"), None)]
    reports, half = {}, 0
    for method in ("echo", "prompteol"):
        on_index(method)
        # tau 1 keeps every direction, in an order in which the first numbers are a narrower filter's vector.
        own: Mapping[str, Any] = {"model": model, "method": method, "filter": FilterSpec("embedfilter", tau=1)}
        reports[method] = build(sample_corpus(), folder / method, on_progress=on_progress, **own)
        index, half = Index(folder / method), reports[method].dim // 2
        found += [_quality(method, index, None), _quality(f"{method} + EmbedFilter", index, half)]
    return reports["echo"], _answers(Index(folder / "echo"), half), found


def _quality(name: str, index: Index, dim: int | None) -> Quality:
    sample = Path(str(resources.files("ragidx.corpora") / "sample"))
    queries, qrels = load_queries(sample), load_qrels(sample)
    texts = list(queries.values())
    by_vectors = index.rank_documents(texts, 10, mode="dense", dim=dim)
    with_words = index.rank_documents(texts, 10, mode="hybrid", dim=dim)

    def mean(found: Sequence[Sequence[tuple[str, float]]]) -> float:
        ranked = zip(queries, found, strict=True)
        return float(np.mean([ndcg([doc_id for doc_id, _ in few], qrels[query]) for query, few in ranked]))

    return Quality(name, dim or index.info().dim, mean(by_vectors), mean(with_words))


def _answers(index: Index, dim: int | None = None) -> list[list[PlacedHit]]:
    answers = []
    for question in QUESTIONS:
        by_vectors = _places(index.search(question, _PLACES, mode="dense", fold=False, dim=dim))
        by_words = _places(index.search(question, _PLACES, mode="lexical", fold=False))
        hits = index.search(question, 3, dim=dim)
        answers.append([PlacedHit(hit, by_vectors.get(hit.chunk_id), by_words.get(hit.chunk_id)) for hit in hits])
    return answers


def _places(hits: list[Hit]) -> dict[str, int]:
    return {hit.chunk_id: hit.rank for hit in hits}
