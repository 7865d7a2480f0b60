"""CSV and TSV: a header line, then one record a row. Streams.

    bytes -> rows -> Documents; columns are typed by all of their cells (`cells.Columns`), so a file is read twice

RFC 4180 with either newline; quoted cells may hold newlines. `dialect` finds the mark between cells and the header. A
row with fewer cells than the header lacks the last ones; what is beyond the header belongs to the last cell where that
is the text, else it is the field `more_cells`. Which field is the text is not known here. What `ir_datasets export`
writes has no header.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import IO, Any

from ragidx.corpora.errors import lone_surrogate
from ragidx.corpora.limits import UnreadableError, shown_bytes
from ragidx.corpora.readers.fields import ID_FIELDS, TEXT_FIELDS
from ragidx.corpora.readers.records.cells import Columns
from ragidx.corpora.readers.records.dialect import SAMPLE_CHARS, SAMPLE_LINES, dialect_of
from ragidx.corpora.readers.records.documents import Record, check_chosen, record_documents
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document

_SAMPLE_BYTES = 1 << 20
_MOST_COLUMNS = 10_000
_MORE = "more_cells"
_END = "\N{NULL}end"  # a last line, which no table has; behind a quote that is never closed, it is in the last cell
_MARK_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


def read_csv(file: SourceFile) -> Iterator[Document]:
    """One Document a row below the header; `.tsv` is cut at tabs."""
    # A limit of the process, 128 KiB by default: a text may be longer. It is only ever raised.
    csv.field_size_limit(max(file.limits.line_bytes, csv.field_size_limit()))
    with _reopened(file) as opened:
        silent = dataclasses.replace(file, on_skip=lambda skip: None)  # with a tally of its own
        with opened() as stream, contextlib.suppress(UnreadableError), _table(silent, stream) as table:
            columns = table.columns()
        with opened() as stream, _table(file, stream) as table:
            if table.is_exported:
                yield from record_documents(file, table.exported())
                return
            check_chosen([name for name in table.names if name], file.fields.text)
            for line in columns.broken.values():
                file.leave("columns of numbers and text", at=f":{line}")
            yield from record_documents(file, table.records(), columns.scalar)


@contextlib.contextmanager
def _reopened(file: SourceFile) -> Iterator[Callable[[], AbstractContextManager[IO[bytes]]]]:
    """What gives the bytes of a file each time from its beginning."""
    if file.member is None:
        yield file.stream
        return
    with file.path() as path:
        yield lambda: path.open("rb")


@contextlib.contextmanager
def _table(file: SourceFile, stream: IO[bytes]) -> Iterator[_Table]:
    """The table in a stream.

    Raises:
        UnreadableError: as `_Table`.
    """
    peek = getattr(stream, "peek", None)
    encoding = file.encoding_of(peek(_SAMPLE_BYTES) if peek else b"")
    # Invalid bytes become surrogates, so that one broken row does not end the file.
    lines = io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="")
    try:
        yield _Table(file, lines, encoding)
    finally:
        lines.detach()  # the caller closes the stream


class _Table:
    """The rows of some lines, which are read once.

    Args:
        file: the file that the lines are of; it reports what is wrong with a row.
        lines: all of them.
        encoding: encoding of the lines.

    Attributes:
        is_exported: whether the file was written by `ir_datasets export`.
        names: names of the columns; empty for one that is not kept.

    Raises:
        UnreadableError: there is no header.
    """

    def __init__(self, file: SourceFile, lines: io.TextIOWrapper, encoding: str) -> None:
        self._file, self._encoding = file, encoding
        source = _bounded_lines(lines, file.limits.line_bytes, encoding)
        numbered = ((number, line) for number, line in enumerate(source, start=1) if line.strip())
        self._begin, first = next(numbered, (0, ""))
        if not first:
            raise UnreadableError("empty text")
        self.is_exported = file.source.beir and first.split("\t")[0] not in ID_FIELDS
        if self.is_exported:
            self._rows: Any = itertools.chain([first], source)
            return
        sample, rest = _sample(first, source)
        dialect = dialect_of(sample, file.ending)
        if dialect.is_said:
            del sample[0]
            self._begin += 1
        self._rows = csv.reader(itertools.chain(sample, rest, [_END]), delimiter=dialect.mark)
        self._mark = dialect.mark
        if dialect.is_guess:
            file.leave("guessed separators", at=f" ({_MARK_NAMES.get(dialect.mark, dialect.mark)})")
        self.names = self._header(dialect.n_above)

    def _header(self, n_above: int) -> list[str]:
        """The name of each column, below some rows that are not blank."""
        try:
            filled = filter(None, self._rows)
            above = list(itertools.islice(filled, n_above))
            header = [name.removesuffix(_END).strip() for name in next(filled, [])]
        except csv.Error as fault:
            raise UnreadableError(f"broken header: {fault}") from fault
        self._file.leave("lines above a table", len(above), f":{self._begin}")
        if len(header) > _MOST_COLUMNS:
            raise UnreadableError(f"more than {_MOST_COLUMNS:,} columns")
        names, self._not_kept = _names(header)
        return names

    def columns(self) -> Columns:
        """The types of the columns, by all rows."""
        if self.is_exported:
            return Columns([])
        columns = Columns(self.names)
        with contextlib.suppress(UnreadableError):  # of the rest of the file
            for _, line, row in self._cells():
                columns.add(row, line)
                if columns.are_text:
                    break
        return columns

    def records(self) -> Iterator[Record]:
        """The rows below the header."""
        for number, line, row in self._cells():
            fields = {name: cell or None for name, cell in zip(self.names, row, strict=False) if name}
            if more := row[len(self.names) :]:
                fields[_MORE] = self._mark.join(more)
            yield Record(number, fields, line)

    def _cells(self) -> Iterator[tuple[int, int, list[str]]]:
        """The number of each row that can be read, the line on which it begins, and its cells."""
        rows, names, number = self._rows, self.names, 0
        is_joined = bool(names) and (len(names) == 1 or names[-1] in self._texts())
        while True:
            line = self._begin + rows.line_num
            try:
                row = next(rows, None)
            except csv.Error as fault:
                number += 1
                self._file.skip(f"broken row: {fault}", f":{line}")
                continue
            if row is None or row == [_END]:
                return
            if not row:
                continue
            number += 1
            if row[-1].endswith(_END):
                row[-1] = row[-1].removesuffix(_END)
                self._file.leave("unclosed quotes", at=f":{line}")
            if lone_surrogate("".join(row)) is not None:
                self._file.skip(f"cannot be decoded as {self._encoding}", f":{line}")
                continue
            if len(row) > len(names) and not any(row[len(names) :]):
                del row[len(names) :]
            elif len(row) != len(names):
                self._file.leave("ragged rows", at=f":{line}")
                if is_joined and len(row) > len(names):
                    row[len(names) - 1 :] = [self._mark.join(row[len(names) - 1 :])]
                row += [""] * (len(names) - len(row))
            for place in [place for place in self._not_kept if row[place].strip()]:
                self._file.skip(self._not_kept.pop(place))
            yield number, line, row

    def _texts(self) -> tuple[str, ...]:
        """Names of columns that are the text."""
        return (*TEXT_FIELDS, *(self._file.fields.text or "").split("+"))

    def exported(self) -> Iterator[Record]:
        """The rows of `ir_datasets export`: no header, no quotes; the first cell is the id, the others the text."""
        for number, line in enumerate(self._rows, start=self._begin):
            name, *cells = line.rstrip("\r\n").split("\t")
            if lone_surrogate(line) is not None:
                self._file.skip(f"cannot be decoded as {self._encoding}", f":{number}")
            elif line.strip():
                yield Record(number, {"doc_id": name or None, "text": " ".join(cells)}, number)


def _names(header: list[str]) -> tuple[list[str], dict[int, str]]:
    """The name of each column, empty for one that is not kept, and why by its place, if it has a cell."""
    first: dict[str, int] = {}
    reasons = {}
    for place, name in enumerate(header):
        if not name:
            reasons[place] = f"column {place + 1}: it has no name"
        elif first.setdefault(name, place) != place:
            reasons[place] = f"column {place + 1}: there is another '{name}'"
    return ["" if place in reasons else name for place, name in enumerate(header)], reasons


def _sample(first: str, lines: Iterator[str]) -> tuple[list[str], Iterator[str]]:
    """The first lines, and the others; what is wrong with a line comes behind those before it."""
    sample, n_chars = [first], len(first)
    try:
        while len(sample) < SAMPLE_LINES and n_chars < SAMPLE_CHARS and (line := next(lines, None)) is not None:
            sample.append(line)
            n_chars += len(line)
    except UnreadableError as fault:
        return sample, _raising(fault)
    return sample, lines


def _raising(fault: UnreadableError) -> Iterator[str]:
    raise fault
    yield ""


def _bounded_lines(lines: io.TextIOWrapper, limit: int, encoding: str) -> Iterator[str]:
    try:
        while line := lines.readline(limit + 1):
            if len(line) > limit and not line.endswith(("\n", "\r")):
                raise UnreadableError(f"a line of more than {shown_bytes(limit)}: the rest of the file is skipped")
            yield line
    except UnicodeError as fault:  # UTF-16 cut in the middle, or without the mark that it is said to have
        raise UnreadableError(f"cannot be decoded as {encoding}: the rest of the file is skipped") from fault
