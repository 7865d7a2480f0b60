"""What the tests of bad input share: a model's options, and what a build has read or left alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from ..conftest import Done

Run = Callable[..., Done]

QUESTION = "The lease of the house by the lake was signed by Ada Lovelace in 1840."  # lease.txt itself
TINY = ("--model", "tiny", "--method", "classical")

WHOLE = (*TINY, "--chunk-size", "none")  # reads 128, one of them its own


def documents_of(done: Done) -> int:
    """How many documents a build that went well has read."""
    assert done.status == 0
    found = re.search(r"^documents  ([\d,]+):", done.out, re.MULTILINE)
    assert found
    return int(found[1].replace(",", ""))


def check_still_answers(run: Run, index: str = "ragidx-index") -> None:
    """The index is what it was: whole, of the first generation, and good for a question."""
    assert run("verify", "--index", index) == (0, f"{index}: intact\n", "")
    assert json.loads(run("info", "--index", index, "--json").out)["generation"] == 1
    answer = json.loads(run("query", QUESTION, "-k", "1", "--index", index, "--json").out)
    assert answer["hits"][0]["doc_id"] == "lease.txt"


def damage(path: Path, at: int = -20) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
