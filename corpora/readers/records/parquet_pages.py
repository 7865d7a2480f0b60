"""What the pages of a Parquet file say that they unpack to, read from their headers before any page is.

    open file -> Column(unpacked, values, longest), one a column

A page's header may claim more than the footer does, and a reader allocates what it claims. Footer and headers are
Thrift structs in the compact protocol; see parquet.thrift of the Parquet format. They are read here and not by pyarrow,
which ends the process on damaged metadata of a column. Pages are not unpacked here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

_MARK = b"PAR1"
_HEADER_BYTES = (1 << 12, 1 << 16, 1 << 24)  # how much is read to find the end of a header
_DEEPEST = 12
_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3  # fields on the way from a footer to what it says of a column
_VALUES, _CHUNK_BYTES, _FIRST_PAGE, _FIRST_DICTIONARY = 5, 7, 9, 11  # fields of that
_KIND, _UNPACKED, _PACKED, _DATA, _DATA_2 = 1, 2, 3, 5, 8  # fields of a page's header; the last two hold others
_DICTIONARY, _DELTA_BYTE_ARRAY = 2, 7  # a kind of page, an encoding
_STOP, _BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = 0, (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12


class Column(NamedTuple):
    """What the pages of a column say, over all row groups.

    Attributes:
        unpacked: bytes of its pages.
        values: how many they hold; more than rows in a list.
        longest: bytes that a value can have that is written once for many rows; 0: there is none.
    """

    unpacked: int
    values: int
    longest: int


def declared_columns(file: IO[bytes]) -> list[Column]:
    """Each column of a file.

    Raises:
        ValueError: the footer or a header is damaged.
    """
    groups = [_list_of(group, _COLUMNS) for group in _list_of(_footer(file), _ROW_GROUPS)]
    if any(len(group) != len(groups[0]) for group in groups):
        raise ValueError("its row groups differ in their columns")
    return [_column(file, [group[number] for group in groups]) for number in range(len(groups[0]) if groups else 0)]


def _footer(file: IO[bytes]) -> dict[int, Any]:
    tail = 4 + len(_MARK)
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - tail))
    end = file.read(tail)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _MARK or length > size - tail:
        raise ValueError("it has no footer")
    file.seek(size - tail - length)
    try:
        return _struct(file.read(length), 0)[0]
    except IndexError as fault:
        raise ValueError("its footer has no end") from fault


def _list_of(fields: dict[int, Any], number: int) -> list[dict[int, Any]]:
    found = fields.get(number, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ValueError("its footer is none of Parquet")
    return found


def _number_of(fields: dict[int, Any], number: int) -> int:
    """A number that is not negative; 0 if it is missing."""
    found = fields.get(number, 0)
    if not isinstance(found, int) or found < 0:
        raise ValueError("a number in its metadata is negative or none")
    return found


def _column(file: IO[bytes], chunks: list[dict[int, Any]]) -> Column:
    unpacked = values = longest = 0
    for chunk in chunks:
        for size, count, is_shared in _pages(file, chunk.get(_METADATA)):
            unpacked, values = unpacked + size, values + count
            longest = max(longest, size if is_shared else 0)
    return Column(unpacked, values, longest)


def _pages(file: IO[bytes], chunk: object) -> Iterator[tuple[int, int, bool]]:
    """Unpacked bytes and values of each page of a column in a row group, and whether many rows may share a value."""
    if not isinstance(chunk, dict):
        raise ValueError("a column has no metadata")  # or they are encrypted
    places = (_number_of(chunk, _FIRST_DICTIONARY), _number_of(chunk, _FIRST_PAGE))
    at = min(filter(None, places), default=0)
    end, wanted = at + _number_of(chunk, _CHUNK_BYTES), _number_of(chunk, _VALUES)
    seen = 0
    while at < end and seen < wanted:
        header, length = _header(file, at)
        plain, content = header.get(_DATA), header.get(_DATA) or header.get(_DATA_2) or {}
        if not isinstance(content, dict):
            raise ValueError("a page's header is none of Parquet")
        count, encoding = _number_of(content, 1), _number_of(content, 2 if plain else 4)
        is_shared = header.get(_KIND) == _DICTIONARY or encoding == _DELTA_BYTE_ARRAY
        seen += count
        yield _number_of(header, _UNPACKED), count, is_shared
        at += length + _number_of(header, _PACKED)


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
    """A value and where it ends; of what no size depends on, None."""
    if depth > _DEEPEST:
        raise ValueError("its metadata are nested too deep")
    if kind in _INTEGERS:
        return _integer(data, at)
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind == _BINARY:
        length, at = _varint(data, at)
        return None, at + length
    if kind in (_BYTE, _DOUBLE):
        return None, at + (1 if kind == _BYTE else 8)
    if kind in _LISTS:
        return _list(data, at, depth + 1)
    raise ValueError("its metadata have an unknown field")  # maps: no version of the format has them


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    kind, count = data[at] & 15, data[at] >> 4
    at += 1
    if count == 15:
        count, at = _varint(data, at)
    if count > len(data):
        raise IndexError
    found = []
    for _ in range(count):
        item, at = (None, at + 1) if kind in _BOOLEANS else _value(data, at, kind, depth)
        found.append(item)
    return found, at


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
            raise ValueError("its metadata have a number of too many bytes")
