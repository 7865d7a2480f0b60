"""The demo: the bundled corpus and model, three questions, the preset and echo + EmbedFilter side by side.

Without the extra `models` the preset is all there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ragidx.indexer.devices import missing_models
from ragidx.pipelines.build.build import build
from ragidx.pipelines.build.options import BuildKeywords
from ragidx.pipelines.build.report import BuildReport, OnProgress
from ragidx.retriever.hit import Hit
from ragidx.retriever.retriever import Retriever

QUESTIONS = (
    "Why did two radio engineers chase pigeons out of their antenna?",
    "what makes an old chocolate bar turn grey and is it safe to eat",
    "Which ship passage let foreign fish and jellyfish spread from one sea into another?",
)


@dataclass(frozen=True)
class Side:
    """One way to encode the corpus, and what it answered: hits by question."""

    name: str
    report: BuildReport
    answers: list[list[Hit]]


def sample_corpus() -> Path:
    """The folder of the sample's documents."""
    return Path(str(resources.files("ragidx.corpora") / "sample" / "documents"))


def run(folder: Path, on_progress: OnProgress | None = None) -> list[Side]:
    """Index the sample below `folder` and ask it the three questions: with the bundled model's preset and, where the
    extra `models` is installed, with echo embeddings, filtered at tau = 2. float32, so that the scores are the same on
    every machine.
    """
    ways: list[tuple[str, BuildKeywords]] = [
        ("preset", {"dtype": "float32"}),
        ("echo", {"dtype": "float32", "method": "echo", "tau": 2.0}),
    ]
    sides = []
    for name, options in ways[:1] if missing_models() else ways:
        report = build(sample_corpus(), folder / name, on_progress=on_progress, **options)
        retriever = Retriever.open(folder / name, dtype="float32")
        sides.append(Side(name, report, retriever.search_batch(QUESTIONS, k=3)))
    return sides
