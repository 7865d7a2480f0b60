"""What the tests of filters share: a corpus of sixty chunks, a tiny model, and the filters that are fitted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers import source_file
from ragidx.indexer.specs import FILTERS

FITTED = [name for name, kind in FILTERS.items() if kind.calibrated]
WORDS = ["river", "mill", "lease", "tower", "bees", "planet", "type", "bread", "music", "bridge", "cure", "market"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Sixty short records, each of them a chunk."""
    rows = [
        {"id": f"r{n}", "text": f"The {WORDS[n % 12]} number {n} stands by the {WORDS[n * 7 % 11]}, {n * n}."}
        for n in range(60)
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def closed(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, when the index is built, no file of a corpus can be opened."""

    def refuse(path: Path) -> Any:
        raise UnreadableError(f"{path} was opened")

    monkeypatch.setattr(source_file, "_open_regular", refuse)


@pytest.fixture
def tiny(tiny_model: Callable[..., Path]) -> dict[str, Any]:
    """Options: a random model, 32 wide, that encodes in float32."""
    return {"model": str(tiny_model("llama")), "method": "classical", "dtype": "float32", "device": "cpu"}
