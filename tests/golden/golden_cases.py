"""Golden cases: the numbers of the authors' own code, discovered from their manifests."""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragidx.indexer.models.locate import locate
from ragidx.indexer.prompts.rendering import Rendered
from ragidx.indexer.prompts.tokenizer import TextTokenizer, load_tokenizer

HERE = Path(__file__).resolve().parent


def golden_folder() -> Path:
    """`$RAGIDX_GOLDEN`, else ../shared/golden beside the checkout, else the small part that stands here."""
    named = os.environ.get("RAGIDX_GOLDEN")
    if named:
        return Path(named).resolve()
    beside = HERE.parents[2] / "shared" / "golden"
    return beside if beside.is_dir() else HERE / "data"


@dataclass
class Case:
    """A manifest and its arrays."""

    manifest: dict[str, Any]
    folder: Path

    def __getattr__(self, name: str) -> Any:
        return self.manifest.get(name)

    @functools.cached_property
    def expected(self) -> dict[str, np.ndarray]:
        with np.load(self.folder / "expected.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    def path(self, relative: str) -> Path:
        return (self.folder / relative).resolve()

    @property
    def model_path(self) -> Path:
        return self.path(self.manifest["model"])

    @property
    def tokenizer(self) -> TextTokenizer:
        return tokenizer_of(self.model_path)

    def says(self, phrase: str) -> bool:
        """Whether a quirk of the manifest has these words."""
        return any(phrase in quirk for quirk in self.quirks)

    @property
    def pooled_by(self) -> str:
        """The manifest's pooling in our words."""
        words = str(self.pooling)
        if words.startswith("weighted"):
            return "weighted_mean"
        return "mean" if words.startswith(("mean", "sum")) else "last"

    def given(self) -> list[Rendered]:
        """The authors' ids without padding, and their pooled span."""
        ids, rows = self.expected["input_ids"], []
        attention = self.expected.get("attention_mask", (ids >= 0).astype(int))
        pooled = self.expected.get("embed_mask")
        for number in range(len(ids)):
            kept = attention[number].astype(bool)
            own = ids[number][kept].tolist()
            marked = list(range(len(own))) if pooled is None else np.flatnonzero(pooled[number][kept]).tolist()
            if self.skip_instruction is False:
                marked = list(range(len(own)))
            if self.method.startswith("pooling-and-attention"):
                marked = self.read_by_the_pooling(own)
            elif self.pooling == "bos_token":
                marked = [own.index(self.tokenizer.bos)]
            elif self.pooling in ("eos_token", "last_token") or (pooled is None and self.pooled_by == "last"):
                marked = [len(own) - 1]
            rows.append(Rendered(own, tuple((i, i + 1) for i in marked)))
        return rows

    def read_by_the_pooling(self, own: list[int]) -> list[int]:
        """Positions that reach the pooling: the last, all, or those whose id is not the padding's."""
        if self.method.endswith((" 1", " 2", " 3")):
            return [len(own) - 1]
        pad = self.tokenizer.pieces.token_to_id(self.pad_token or "") if self.method.endswith(" 5") else None
        return [i for i, number in enumerate(own) if number != pad]


def cases(*methods: str, starting: str = "\0") -> list[Any]:
    """The cases of some methods, as parameters of a test."""
    every = [case for case in all_cases() if case.method in methods or case.method.startswith(starting)]
    absent = pytest.param(None, marks=pytest.mark.skip(reason=f"no golden case of {methods or starting} in the folder"))
    return [pytest.param(case, id=case.id) for case in every] or [absent]


@functools.cache
def all_cases() -> list[Case]:
    manifests = sorted(golden_folder().glob("*/*/manifest.json"))
    return [Case(json.loads(path.read_text("utf-8")), path.parent) for path in manifests]


@functools.cache
def tokenizer_of(path: Path) -> TextTokenizer:
    """The tokenizer of a model folder, or of an adapter's."""
    return load_tokenizer(locate(str(path)))


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1; a zero row stays zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1)
