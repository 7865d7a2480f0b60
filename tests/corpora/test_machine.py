"""Conditions of the machine end a build; a file that lies about its size, or quotes the system's words, is skipped."""

from __future__ import annotations

import os

import pytest

from ragidx.corpora.errors import machine_error
from ragidx.corpora.limits import ReadOptions

from .conftest import ReadBytes


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
