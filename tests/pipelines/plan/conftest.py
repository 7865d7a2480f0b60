"""What the tests of a plan share: a tiny model, and a file of records."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx

WORDS = re.findall(
    r"\w+", "the river rises in hills and flows past an old mill before it reaches a sea where ships wait"
)


def text_of(seed: int, n: int) -> str:
    """A sentence of so many words."""
    random_ = random.Random(seed)
    return " ".join(random_.choice(WORDS) for _ in range(n)) + "."


@pytest.fixture
def tiny(tiny_model: Callable[..., Path]) -> dict[str, Any]:
    """Options for a random model of two layers that reads 128 tokens."""
    options = {
        "model": str(tiny_model("llama")),
        "method": "classical",
        "filter": ragidx.FilterSpec(tau=2),
        "chunks": ragidx.ChunkSpec(size=24),
    }
    return options | {"device": "cpu", "dtype": "float32"}


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """400 records of different lengths in one file of 80 KB."""
    path = tmp_path / "records.jsonl"
    lines = [json.dumps({"id": f"r{n}", "text": text_of(n, 10 + n % 50)}) for n in range(400)]
    path.write_text("\n".join(lines) + "\n")
    return path
