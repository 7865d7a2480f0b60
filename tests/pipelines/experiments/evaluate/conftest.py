"""What the tests of `evaluate` share: a BEIR corpus, pairs of sentences, runs, and what goes through a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragidx.indexer.encoders.static import StaticEncoder

WORDS = [
    *("river", "mill", "lease", "tower", "bees", "planet", "printing", "bread", "music", "bridge", "medicine", "horse"),
    *(
        "winter",
        "market",
        "school",
        "island",
        "glass",
        "garden",
        "railway",
        "ocean",
        "painting",
        "gold",
        "forest",
        "king",
    ),
]


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """24 documents, a query for each, which it answers; the first is of many chunks, the last query is not judged."""
    return write_beir(tmp_path / "beir")


@pytest.fixture
def sts(tmp_path: Path) -> Path:
    """A folder of 24 pairs of sentences, of which some share a word."""
    folder = tmp_path / "sts"
    folder.mkdir()
    lines = [
        f"{5 if place % 3 else place % 5}\tThe {word} is old.\tAn old {word if place % 3 else WORDS[place - 1]}."
        for place, word in enumerate(WORDS)
    ]
    (folder / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that goes through the bundled model, in order; queries, too."""
    seen: list[str] = []
    batches = StaticEncoder.batches

    def counted(self: StaticEncoder, texts: Sequence[str], **options: Any) -> Any:
        seen.extend(texts)
        return batches(self, texts, **options)

    monkeypatch.setattr(StaticEncoder, "batches", counted)
    return seen


def text_of(word: str) -> str:
    return f"The {word} and the story of its {word}."


def write_beir(folder: Path, words: Sequence[str] = WORDS) -> Path:
    (folder / "qrels").mkdir(parents=True)
    texts = {f"d{number}": text_of(word) for number, word in enumerate(words)}
    texts["d0"] += "".join(f"\n\nThe {words[0]} of the year {year} was another one." for year in range(1800, 1860))
    write_lines(folder / "corpus.jsonl", [{"_id": name, "title": "", "text": text} for name, text in texts.items()])
    asked = {f"q{number}": f"what is told of the {word}?" for number, word in enumerate(words)}
    asked["unjudged"] = "nobody judged this"
    write_lines(folder / "queries.jsonl", [{"_id": name, "text": text} for name, text in asked.items()])
    write_qrels(folder / "qrels" / "test.tsv", qrels_of(len(words)))
    return folder


def qrels_of(n_queries: int) -> dict[str, dict[str, int]]:
    """Query n is answered by document n, and somewhat by the next."""
    return {f"q{n}": {f"d{n}": 2, f"d{(n + 1) % n_queries}": 1} for n in range(n_queries)}


def write_lines(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_qrels(path: Path, qrels: Mapping[str, Mapping[str, int]]) -> Path:
    lines = [f"{query}\t{name}\t{grade}" for query, judged in qrels.items() for name, grade in judged.items()]
    path.write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return path


def write_run(path: Path, run: Mapping[str, Sequence[str]]) -> Path:
    """Documents of each query, best first."""
    lines = [
        f"{query} Q0 {name} {rank} {10 - rank} x" for query, names in run.items() for rank, name in enumerate(names)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path
