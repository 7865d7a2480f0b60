"""How many bytes an Arrow file says that its batches take, read from their headers before any batch is.

    open file -> bytes that all record batches and dictionaries take in memory

A buffer that is packed begins with its length unpacked, and Arrow allocates that much. The layout is that of the Arrow
columnar format: Message, RecordBatch and Footer are FlatBuffers tables. Batches are not read here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, NamedTuple

FILE_MARK = b"ARROW1"
_CONTINUES = b"\xff\xff\xff\xff"
_DICTIONARY, _BATCH = 2, 3  # kinds of messages that have a body
_MOST_HEADER_BYTES = 1 << 24


def declared_bytes(file: IO[bytes], size: int) -> int:
    """The sum over all batches and dictionaries of an Arrow IPC file or stream; the file is left anywhere.

    Raises:
        ValueError: a header is damaged.
    """
    try:
        starts = _file_starts(file, size) if file.read(len(FILE_MARK)) == FILE_MARK else _stream_starts(file)
        return sum(_message_bytes(file, start) for start in starts)
    except (struct.error, IndexError, OverflowError) as fault:
        raise ValueError("a header points out of the file") from fault


class _Table(NamedTuple):
    """A FlatBuffers table: `data` and where in it the table begins."""

    data: bytes
    at: int

    def place(self, field: int) -> int:
        """Where the value of a field is; 0: the table does not have it."""
        known = self.at - _int(self.data, self.at, "<i")
        slot = 4 + 2 * field
        found = _int(self.data, known + slot, "<H") if slot < _int(self.data, known, "<H") else 0
        return self.at + found if found else 0

    def table(self, field: int) -> _Table | None:
        """The table that a field names."""
        place = self.place(field)
        return _Table(self.data, place + _int(self.data, place, "<I")) if place else None

    def number(self, field: int, form: str) -> int:
        """The number of a field; 0 if it is missing."""
        place = self.place(field)
        return _int(self.data, place, form) if place else 0

    def structs(self, field: int, form: str) -> Iterator[tuple[int, ...]]:
        """The structs of a list of them."""
        place = self.place(field)
        if place:
            start = place + _int(self.data, place, "<I")
            count, width = _int(self.data, start, "<I"), struct.calcsize(form)
            if start + 4 + count * width > len(self.data):
                raise IndexError
            yield from struct.iter_unpack(form, self.data[start + 4 : start + 4 + count * width])


def _int(data: bytes, place: int, form: str) -> int:
    if place < 0:
        raise IndexError
    return int(struct.unpack_from(form, data, place)[0])


def _root(data: bytes) -> _Table:
    return _Table(data, _int(data, 0, "<I"))


def _file_starts(file: IO[bytes], size: int) -> Iterator[int]:
    """Where the messages begin that the footer of a file names."""
    tail = 4 + len(FILE_MARK)
    file.seek(max(0, size - tail))
    length = _int(file.read(4), 0, "<i")
    if not 0 < length <= size:
        raise IndexError
    file.seek(max(0, size - tail - length))
    footer = _root(file.read(length))
    for field in (2, 3):  # dictionaries, record batches
        for start, _, _ in footer.structs(field, "<qi4xq"):
            yield start


def _stream_starts(file: IO[bytes]) -> Iterator[int]:
    """Where the messages of a stream begin."""
    start = 0
    while True:
        header, body = _header(file, start)
        if not header:
            return
        yield start
        start = body + _root(header).number(3, "<q")


def _header(file: IO[bytes], start: int) -> tuple[bytes, int]:
    """The header of the message that begins at a place, empty at the end of a stream; and where its body begins."""
    file.seek(start)
    prefix = file.read(8)
    is_old = prefix[:4] != _CONTINUES  # before Arrow 0.15 a length alone
    if len(prefix) < (4 if is_old else 8):
        return b"", start
    length = _int(prefix, 0 if is_old else 4, "<i")
    begins = start + (4 if is_old else 8)
    if not 0 <= length <= _MOST_HEADER_BYTES:
        raise IndexError
    file.seek(begins)
    return file.read(length), begins + length


def _message_bytes(file: IO[bytes], start: int) -> int:
    """What the body of a message takes, unpacked."""
    header, body = _header(file, start)
    message = _root(header) if header else None
    kind = message.number(1, "<B") if message else 0
    content = message.table(2) if message and kind in (_DICTIONARY, _BATCH) else None
    batch = content.table(1) if content and kind == _DICTIONARY else content
    if message is None or batch is None:
        return 0
    if batch.table(3) is None:  # nothing is packed
        return message.number(3, "<q")
    return sum(_unpacked(file, body + offset, length) for offset, length in batch.structs(2, "<qq") if length)


def _unpacked(file: IO[bytes], start: int, length: int) -> int:
    file.seek(start)
    declared = _int(file.read(8), 0, "<q")
    return length if declared == -1 else declared
