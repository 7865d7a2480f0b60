"""The demo: the bundled corpus and model, three questions, and each hit's place by its vectors and by its words."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ragidx.pipelines.index import Index, build
from ragidx.pipelines.ingest.report import OnProgress
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


def run(folder: Path, on_progress: OnProgress | None = None) -> tuple[Index, list[list[PlacedHit]]]:
    """Index the sample in `folder` and ask it the three questions, as `ragidx query` does by default."""
    index = build(sample_corpus(), folder, on_progress=on_progress)
    answers = []
    for question in QUESTIONS:
        by_vectors = _places(index.search(question, _PLACES, mode="dense", fold=False))
        by_words = _places(index.search(question, _PLACES, mode="lexical", fold=False))
        hits = index.search(question, 3)
        answers.append([PlacedHit(hit, by_vectors.get(hit.chunk_id), by_words.get(hit.chunk_id)) for hit in hits])
    return index, answers


def _places(hits: list[Hit]) -> dict[str, int]:
    return {hit.chunk_id: hit.rank for hit in hits}
