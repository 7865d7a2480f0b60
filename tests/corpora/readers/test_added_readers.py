"""Readers of other packages: how they are found, and what happens where one fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from ragidx.corpora.left_out import Left
from ragidx.corpora.readers import registry
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document

from ..conftest import ReadBytes


def read_upper(file: SourceFile) -> Iterator[Document]:
    yield Document(file.doc_id(), file.data(1000).decode().upper())


def fail(file: SourceFile) -> Iterator[Document]:
    yield Document(file.doc_id(), "first")
    raise KeyError("second\nof them")


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Declare an entry point, as an installed package does, for a reader of a module `shouting`."""

    def declare(value: str, reader: object = None) -> None:
        point = EntryPoint("shout", value, registry.ENTRY_POINTS)
        monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == registry.ENTRY_POINTS else [])
        registry._added_readers.cache_clear()
        module = ModuleType("shouting")
        module.read = reader  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "shouting", module)

    yield declare
    registry._added_readers.cache_clear()


def test_a_third_party_adds_a_reader(read_bytes: ReadBytes, added: Callable[..., None]) -> None:
    added("shouting:read", read_upper)

    found = read_bytes("a.shout", "hello")

    assert (found.ids, found.texts, found.reasons) == (["a.shout"], ["HELLO"], [])
    assert found.kinds == {"files read by other packages": 1}


def test_a_reader_of_another_package_may_say_what_it_leaves_out(
    read_bytes: ReadBytes, added: Callable[..., None]
) -> None:
    def read(file: SourceFile) -> Iterator[Document]:
        yield Document(file.doc_id(), file.data(1000).decode())
        file.leave("whispers", 2, "#line=3")

    added("shouting:read", read)

    assert read_bytes("a.shout", "hello").left == [Left("a.shout#line=3", "whispers", 2)]


def test_a_reader_that_cannot_be_loaded_is_reported(read_bytes: ReadBytes, added: Callable[..., None]) -> None:
    added("no_such_module:read")

    found = read_bytes("a.shout", "hello")

    assert found.reasons == [
        ("a.shout", "the reader 'no_such_module:read' cannot be loaded: No module named 'no_such_module'")
    ]


def test_a_defect_of_a_reader_ends_its_file_alone(read_bytes: ReadBytes, added: Callable[..., None]) -> None:
    added("shouting:read", fail)

    found = read_bytes("a.shout", "hello")

    assert found.texts == ["first"]
    assert found.reasons == [("a.shout", "a defect in its reader: KeyError: 'second\\nof them'")]
