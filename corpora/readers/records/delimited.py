"""CSV and TSV: a header line, then one record a row. Streams.

    bytes -> rows -> Documents; cells are typed by their text (`fields.from_text`)

RFC 4180 with either newline; quoted cells may hold newlines. A .csv whose header has no comma but a semicolon or a tab
is read with that. Which field is the text is not known here. What `ir_datasets export` writes has no header.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from typing import IO, Any

from ragidx.corpora.errors import lone_surrogate
from ragidx.corpora.limits import UnreadableError, shown_bytes
from ragidx.corpora.readers.fields import ID_FIELDS, from_text
from ragidx.corpora.readers.records.documents import Record, check_chosen, record_documents
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document

_SAMPLE_BYTES = 1 << 20
_MOST_COLUMNS = 10_000


def read_csv(file: SourceFile) -> Iterator[Document]:
    """One Document a row below the header; `.tsv` is cut at tabs."""
    with file.stream() as stream:
        encoding = _encoding(file, stream)
        # Invalid bytes become surrogates, so that one broken row does not end the file.
        lines = io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="")
        try:
            yield from _documents(file, lines, encoding)
        finally:
            lines.detach()  # the caller closes the stream


def _encoding(file: SourceFile, stream: IO[bytes]) -> str:
    peek = getattr(stream, "peek", None)
    return file.encoding_of(peek(_SAMPLE_BYTES) if peek else b"")


def _documents(file: SourceFile, lines: io.TextIOWrapper, encoding: str) -> Iterator[Document]:
    # A limit of the process, 128 KiB by default: a text may be longer. It is only ever raised.
    csv.field_size_limit(max(file.limits.line_bytes, csv.field_size_limit()))
    source = _bounded_lines(lines, file.limits.line_bytes, encoding)
    number, first = next(((number, line) for number, line in enumerate(source, start=1) if line.strip()), (0, ""))
    if not first:
        raise UnreadableError("empty text")
    if file.source.beir and first.split("\t")[0] not in ID_FIELDS:
        exported = _exported(file, itertools.chain([first], source), number, encoding)
        yield from record_documents(file, exported, from_text)
        return
    rows = csv.reader(itertools.chain([first], source), delimiter=_delimiter(first, file.ending))
    try:
        header = [name.strip() for name in next(rows)]
    except csv.Error as fault:
        raise UnreadableError(f"broken header: {fault}") from fault
    if len(header) > _MOST_COLUMNS:
        raise UnreadableError(f"more than {_MOST_COLUMNS:,} columns")
    names = _names(file, header)
    check_chosen([name for name in names if name], file.fields.text)
    yield from record_documents(file, _records(file, rows, names, number - 1, encoding), from_text)


def _delimiter(header: str, ending: str) -> str:
    if ending == ".tsv":
        return "\t"
    return next((mark for mark in ",;\t" if mark in header), ",")


def _names(file: SourceFile, header: list[str]) -> list[str]:
    """The name of each column; empty for a skipped one."""
    names: dict[str, int] = {}
    for number, name in enumerate(header, start=1):
        if not name:
            file.skip(f"column {number}: it has no name")
        elif names.setdefault(name, number) != number:
            file.skip(f"column {number}: there is another '{name}'")
    return [name if names.get(name) == number else "" for number, name in enumerate(header, start=1)]


def _records(file: SourceFile, rows: Any, names: list[str], before: int, encoding: str) -> Iterator[Record]:
    """The rows of a csv.reader below its header; `before`: lines that the reader has not seen."""
    number = 0
    while True:
        line = before + rows.line_num + 1  # where the row begins
        try:
            row = next(rows, None)
        except csv.Error as fault:
            number += 1
            file.skip(f"broken row: {fault}", f":{line}")
            continue
        if row is None:
            return
        if not row:
            continue
        number += 1
        if len(row) != len(names):
            file.skip(f"{len(row)} cells where the header has {len(names)}", f":{line}")
        elif lone_surrogate("".join(row)) is not None:
            file.skip(f"cannot be decoded as {encoding}", f":{line}")
        else:
            yield Record(number, {name: cell or None for name, cell in zip(names, row, strict=True) if name}, line)


def _exported(file: SourceFile, lines: Iterator[str], begin: int, encoding: str) -> Iterator[Record]:
    """The rows of `ir_datasets export`: no header, no quotes; the first cell is the id, the others the text."""
    for number, line in enumerate(lines, start=begin):
        name, *cells = line.rstrip("\r\n").split("\t")
        if lone_surrogate(line) is not None:
            file.skip(f"cannot be decoded as {encoding}", f":{number}")
        elif line.strip():
            yield Record(number, {"doc_id": name or None, "text": " ".join(cells)}, number)


def _bounded_lines(lines: io.TextIOWrapper, limit: int, encoding: str) -> Iterator[str]:
    try:
        while line := lines.readline(limit + 1):
            if len(line) > limit and not line.endswith(("\n", "\r")):
                raise UnreadableError(f"a line of more than {shown_bytes(limit)}: the rest of the file is skipped")
            yield line
    except UnicodeDecodeError as fault:  # UTF-16 cut in the middle
        raise UnreadableError(f"cannot be decoded as {encoding}: the rest of the file is skipped") from fault
