"""No file, however broken, is more than documents and skips: half a minute of what `make fuzz` does for ten."""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fuzzer import answers, broken
from seeds import VECTOR_FILES, office_seeds, seeds

FOUND = sorted(Path(__file__).with_name("found").iterdir())


@pytest.mark.slow
def test_a_broken_file_is_documents_and_skips(tmp_path: Path) -> None:
    found = list(answers(tmp_path, itertools.islice(broken(random.Random(0)), 600)))

    assert len(found) == 600
    assert [answer.fault for answer in found if answer.fault] == []


@pytest.mark.slow
def test_a_file_that_was_a_finding_is_none_now(tmp_path: Path) -> None:
    found = list(answers(tmp_path, [(path.suffix, path.read_bytes()) for path in FOUND]))

    assert [answer.fault for answer in found] == [None] * len(FOUND)


@pytest.mark.slow
def test_a_good_file_is_documents(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2", reason="needs the extra 'docs'")
    good = [*seeds(), *office_seeds()]

    found = list(answers(tmp_path, good))

    assert [answer.fault for answer in found if answer.fault] == []
    assert [ending for (ending, _), answer in zip(good, found, strict=True) if not answer.documents + answer.rows] == []
    assert all(answer.rows >= 2 for seed, answer in zip(good, found, strict=True) if seed in VECTOR_FILES)
