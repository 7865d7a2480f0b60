"""Conditions of the machine end a build; a file that lies about its size, or quotes the system's words, is skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from ragidx.corpora.errors import CorpusError, MachineError, machine_error
from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.vectors.files import vector_batches

from ..raising import message_of
from .conftest import ReadBytes

LIE = "malloc of size 21474836480 failed"  # 20 GiB, forged into the head of a buffer


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has not as much memory as Arrow asks for."""

    def refuse(*_: object) -> None:
        raise pa.ArrowMemoryError(LIE)

    # In this order: the second module is imported when it is patched, and takes its name from the first.
    monkeypatch.setattr("ragidx.corpora.vectors.columnar.open_arrow", refuse)
    monkeypatch.setattr("ragidx.corpora.readers.records.columnar.open_arrow", refuse)


@pytest.mark.usefixtures("refused")
def test_a_small_file_that_asks_for_20_gib_is_skipped(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.arrow", b"ARROW1" + bytes(1000))

    assert found.reasons == [("a.arrow", f"damaged Arrow data: {LIE}")]


@pytest.mark.usefixtures("refused")
def test_a_small_file_of_vectors_that_asks_for_20_gib_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(b"ARROW1" + bytes(1000))

    said = message_of(CorpusError, lambda: list(vector_batches(tmp_path / "a.arrow", on_skip=lambda skip: None)))

    assert said == f"a.arrow: damaged Arrow data: {LIE}\n  hint: repair the file, or exclude it"


@pytest.mark.usefixtures("refused")
def test_a_large_file_that_asks_for_20_gib_ends_the_build_under_its_own_name(tmp_path: Path) -> None:
    with (tmp_path / "a.arrow").open("wb") as file:
        file.truncate(1 << 28)

    with pytest.raises(MachineError, match=r"^a\.arrow: not enough memory"):
        list(vector_batches(tmp_path / "a.arrow", on_skip=lambda skip: None))


@pytest.mark.parametrize("words", ["Cannot allocate memory", "Too many open files", "Too many open files in system"])
def test_a_file_whose_fields_are_the_systems_words_is_skipped(words: str, read_bytes: ReadBytes) -> None:
    assert words in {os.strerror(code) for code in (12, 23, 24)}

    found = read_bytes("a.csv", f"{words},x\n1,2\n", ReadOptions(text_field="text"))

    assert [where for where, _ in found.reasons] == ["a.csv"]
    assert words in found.reasons[0][1]


def test_a_library_for_which_no_memory_is_left_is_no_broken_installation() -> None:
    fault = ImportError("libopenblaso-r0.so: failed to map segment from shared object")

    assert str(machine_error(fault)) == (
        "not enough memory\n  hint: close other programs or allow more memory, and run it again"
    )
