"""What the pages of a Parquet file say that they unpack to, read from their headers before any page is.

    open file, metadata -> Column(unpacked, values, longest), one a column

A page's header may claim more than the footer does, and a reader allocates what it claims. Headers are Thrift structs
in the compact protocol; see parquet.thrift of the Parquet format. Pages are not unpacked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, NamedTuple

_HEADER_BYTES = (1 << 12, 1 << 16, 1 << 24)  # how much is read to find the end of a header
_DEEPEST = 8
_UNPACKED, _PACKED, _DATA, _DATA_2 = 2, 3, 5, 8  # fields of a PageHeader; the last two hold others
_STOP, _BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = 0, (1, 2), 3, (4, 5, 6), 7, 8, 12


class Column(NamedTuple):
    """What the pages of a column say, over all row groups.

    Attributes:
        unpacked: bytes of its pages.
        values: how many they hold; more than rows in a list.
        longest: bytes that one value can have at most where a value may be written once for many rows; else 0.
    """

    unpacked: int
    values: int
    longest: int


def declared_columns(file: IO[bytes], metadata: Any) -> list[Column]:
    """Each column of a file.

    Raises:
        ValueError: a header is damaged.
    """
    return [_column(file, metadata, number) for number in range(metadata.num_columns)]


def _column(file: IO[bytes], metadata: Any, number: int) -> Column:
    unpacked = values = longest = 0
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(number)
        is_shared = any("DICTIONARY" in name or name == "DELTA_BYTE_ARRAY" for name in chunk.encodings)
        for size, count in _pages(file, chunk):
            unpacked, values = unpacked + size, values + count
            longest = max(longest, size if is_shared else 0)
    return Column(unpacked, values, longest)


def _pages(file: IO[bytes], chunk: Any) -> Iterator[tuple[int, int]]:
    """Unpacked bytes and values of each page of a column in a row group."""
    at = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=0)
    end = at + chunk.total_compressed_size
    seen = 0
    while at < end and seen < chunk.num_values:
        header, length = _header(file, at)
        unpacked, packed = header.get(_UNPACKED, -1), header.get(_PACKED, -1)
        if unpacked < 0 or packed < 0:
            raise ValueError("a page has no size")
        content = header.get(_DATA) or header.get(_DATA_2) or {}
        count = content.get(1, 0)
        if count < 0:
            raise ValueError("a page has no size")
        seen += count
        yield unpacked, count
        at += length + packed


def _header(file: IO[bytes], at: int) -> tuple[dict[int, Any], int]:
    """The header of the page at a place, and its length."""
    for most in _HEADER_BYTES:
        file.seek(at)
        data = file.read(most)
        try:
            return _struct(data, 0)
        except IndexError:
            if len(data) < most:
                break
    raise ValueError("a page's header has no end")


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a struct by number, and where it ends."""
    found: dict[int, Any] = {}
    number = 0
    while True:
        kind, step = data[at] & 15, data[at] >> 4
        at += 1
        if kind == _STOP:
            return found, at
        if step:
            number += step
        else:
            number, at = _integer(data, at)
        if kind not in _BOOLEANS:
            found[number], at = _value(data, at, kind, depth)


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """A value and where it ends; of what a page's size does not depend on, None."""
    if depth > _DEEPEST:
        raise ValueError("a page's header is nested too deep")
    if kind in _INTEGERS:
        return _integer(data, at)
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind == _BINARY:
        length, at = _varint(data, at)
        return None, at + length
    if kind in (_BYTE, _DOUBLE):
        return None, at + (1 if kind == _BYTE else 8)
    raise ValueError("a page's header has an unknown field")  # lists and maps: no version of the format has them there


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number."""
    number, at = _varint(data, at)
    return number >> 1 ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise ValueError("a page's header has a number of too many bytes")
