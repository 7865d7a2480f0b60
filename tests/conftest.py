"""Shared by all rooms: where the authors' numbers and the evaluation sets are, if they are here at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def evalsets() -> Path:
    """The folder of evaluation sets (BEIR layout); the test is skipped where there is none."""
    named = os.environ.get("RAGIDX_CORPORA")
    folder = (Path(named) if named else ROOT.parent / "shared" / "corpora") / "eval"
    if not folder.is_dir():
        pytest.skip("no evaluation sets: set RAGIDX_CORPORA to the folder that holds eval/")
    return folder
