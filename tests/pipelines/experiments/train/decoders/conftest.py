"""Pairs, a corpus, and small runs over tiny decoders."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ragidx.pipelines.experiments.train.decoders.inputs import resolved_of, steps_of
from ragidx.pipelines.experiments.train.decoders.network import Network
from ragidx.pipelines.experiments.train.keywords import StepKeywords

WORDS = ["river", "mill", "lease", "tower", "bees", "planet", "bread", "harbour"]
SMALL = {"batch": 8, "rate": 5e-3, "read_tokens": 48, "rank": 4}


def pair(number: int) -> dict[str, str]:
    """A question and its answer, told apart by a word and a number."""
    word = WORDS[number % len(WORDS)]
    return {"query": f"where is {word} {number}", "positive": f"The {word} of number {number} lies in the valley."}


def write_pairs(folder: Path) -> Path:
    """80 pairs in two files of a folder."""
    folder.mkdir()
    for name, numbers in (("one", range(40)), ("two", range(40, 80))):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(pair(number)) + "\n" for number in numbers))
    return folder


def moved(network: Network) -> Network:
    """With weights as far from the start as training takes them."""
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.requires_grad:
                weight.add_(0.1 * torch.randn(weight.shape, generator=drawn))
    return network


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """80 pairs in two files of a folder."""
    return write_pairs(tmp_path / "pairs")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """60 short documents."""
    folder = tmp_path / "text"
    folder.mkdir()
    for number in range(60):
        (folder / f"{number}.txt").write_text(" ".join(pair(number + shift)["positive"] for shift in range(3)))
    return folder


@pytest.fixture
def network(tiny_model: Callable[..., Path]) -> Callable[..., Network]:
    """`network(how options, encoder options)` over a random decoder, in float32 also where bfloat16 is fast."""

    @functools.wraps(Network)
    def make(how: dict[str, Any] | None = None, family: str = "llama", **options: Any) -> Network:
        steps = steps_of("", StepKeywords, {"rank": 4, **(how or {})})
        asked = {"method": "prompteol", "dtype": "float32", "rows": steps["rows"], **options}
        return Network(resolved_of("train.contrastive", tiny_model(family), asked), steps, ["the mill", "bees"])

    return make
