"""Parts of a file of JSON Lines: read one after the other, they give what the whole file gives."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.limits import Limits, ReadOptions
from ragidx.corpora.readers.layouts import Layout, Layouts
from ragidx.corpora.readers.records.jsonl import spans
from ragidx.corpora.readers.registry import is_lines, read_file
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import LineSpan, Source

LINES = [
    b"\n",
    b" \t \n",
    b"nonsense\n",
    b"[1, 2]\n",
    b'{"text": "an old mill", "n": 1}\n',
    b'{"text": "a river", "when": "x"}\r\n',
    b'{"other": "' + b"x" * 60 + b'"}\n',
]
OPTIONS = ReadOptions(limits=Limits(line_bytes=50))


def source(path: Path, span: LineSpan | None = None) -> Source:
    return Source(path, path.name, path.stat().st_size, status=path.stat(), span=span)


def read(
    path: Path, span: LineSpan | None = None, known: dict[str, Layout] | None = None
) -> tuple[list[Any], list[Skip]]:
    """The documents and skips of a file, or of a part of it, and how many bytes were said to be read."""
    skips: list[Skip] = []
    n_read: list[int] = []
    file = SourceFile(source=source(path, span), options=OPTIONS, on_skip=skips.append, layouts=Layouts(known))
    found = [(one.id, one.text, one.line, one.metadata, one.file) for one in read_file(file, n_read.append)]
    assert sum(n_read) == file.source.n_bytes
    return found, skips


@given(lines=st.lists(st.sampled_from(LINES), min_size=1, max_size=25), ends=st.booleans(), data=st.data())
def test_the_parts_of_any_file_give_all_of_it(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ends: bool, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("spans") / "records.jsonl"
    path.write_bytes(b"".join(lines) if ends else b"".join(lines).rstrip(b"\n") + b" ")
    size = path.stat().st_size
    starts = sorted(data.draw(st.sets(st.integers(1, size), max_size=5)))
    parts = spans(source(path), starts, OPTIONS)
    assert (parts[0].start, parts[-1].stop) == (0, size)
    assert all(one.stop == other.start for one, other in itertools.pairwise(parts))
    layouts = Layouts()
    file = SourceFile(source=source(path), options=OPTIONS, on_skip=lambda skip: None, layouts=layouts)
    list(read_file(file))
    documents, skips = read(path)
    of_parts = [read(path, part, layouts.used) for part in parts]
    assert [one for found, _ in of_parts for one in found] == documents
    said = [one for _, found in of_parts for one in found]
    assert said == skips or [skip.reason for skip in skips] == ["holds no document"]  # which no part can know


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("a.jsonl", ReadOptions(), True),
        ("a.ndjson", ReadOptions(), True),
        ("a.jsonl.gz", ReadOptions(), False),
        ("a.json", ReadOptions(), False),
        ("a.csv", ReadOptions(), False),
        ("a.jsonl", ReadOptions(records=("items",)), False),
    ],
)
def test_which_files_have_parts(name: str, options: ReadOptions, expected: bool) -> None:
    assert is_lines(Source(Path(name), name, 1), options) is expected


@pytest.mark.parametrize("content", ['{"text": "a"}\n'.encode("utf-16"), b"\0\0\1\2\n{}\n"])
def test_a_file_that_is_refused_has_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    assert spans(source(path), [5], ReadOptions()) == []
