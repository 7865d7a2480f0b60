"""A mail of Outlook, made by hand: a compound file of storages and streams (MS-CFB) with properties (MS-OXMSG)."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from typing import TypeAlias

Storage: TypeAlias = Mapping[str, "bytes | Storage"]

_SECTOR, _MINI, _CUTOFF = 512, 64, 4096
_FREE, _END, _FAT, _NONE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD, 0xFFFFFFFF
TEXT, BYTES, TIME = 0x001F, 0x0102, 0x0040


def compound(root: Storage) -> bytes:
    """A compound file of version 3; its FAT has one sector, which is 64 KiB of streams."""
    entries: list[tuple[str, int, bytes, int]] = []  # name, type, data, child
    siblings: dict[int, int] = {}

    def add(name: str, content: bytes | Storage, kind: int) -> int:
        number = len(entries)
        entries.append((name, kind, content if isinstance(content, bytes) else b"", _NONE))
        if not isinstance(content, bytes):
            children = [add(inner, each, 2 if isinstance(each, bytes) else 1) for inner, each in content.items()]
            siblings.update(itertools.pairwise(children))
            entries[number] = (name, kind, b"", children[0] if children else _NONE)
        return number

    add("Root Entry", root, 5)
    fat: list[int] = [_FAT]
    sectors: list[bytes] = []

    def place(data: bytes) -> int:
        if not data:
            return _END
        start, count = len(fat), -(-len(data) // _SECTOR)
        fat.extend([*range(start + 1, start + count), _END])
        sectors.append(data.ljust(count * _SECTOR, b"\0"))
        return start

    mini, minifat, starts = b"", list[int](), dict[int, int]()
    for number, (_, kind, data, _) in enumerate(entries):
        if kind == 2 and len(data) < _CUTOFF:
            start, count = len(minifat), -(-len(data) // _MINI)
            starts[number] = start if count else _END
            minifat.extend([*range(start + 1, start + count), _END] if count else [])
            mini += data.ljust(count * _MINI, b"\0")
        elif kind == 2:
            starts[number] = place(data)
    starts[0] = place(mini)
    minifat_at = place(b"".join(struct.pack("<I", each) for each in minifat).ljust(-len(minifat) % 128, b"\xff"))
    directory = b""
    for number, (name, kind, data, child) in enumerate(entries):
        raw = name.encode("utf-16-le") + b"\0\0"
        size = len(mini) if number == 0 else len(data)
        directory += raw.ljust(64, b"\0") + struct.pack("<HBB", len(raw), kind, 1)
        directory += struct.pack("<III", _NONE, siblings.get(number, _NONE), child) + bytes(36)
        directory += struct.pack("<IQ", starts.get(number, 0), size)
    directory_at = place(directory)
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH6x", 62, 3, 0xFFFE, 9, 6)
    header += struct.pack("<IIIIIIIII", 0, 1, directory_at, 0, _CUTOFF, minifat_at, 1 if minifat else 0, _END, 0)
    header += struct.pack("<I", 0) + b"\xff" * 4 * 108
    assert len(fat) <= 128
    table = b"".join(struct.pack("<I", each) for each in fat).ljust(_SECTOR, b"\xff")
    return header + table + b"".join(sectors)


def storage(header: int, properties: Mapping[int, str | bytes | int], **inner: Storage) -> Storage:
    """A storage of properties by number: text, bytes, or a time as the count of 100 ns since 1601."""
    found: dict[str, bytes | Storage] = {}
    table = bytes(header)
    for number, value in properties.items():
        if isinstance(value, int):
            table += struct.pack("<HHIQ", TIME, number, 6, value)
            continue
        kind, data = (TEXT, value.encode("utf-16-le")) if isinstance(value, str) else (BYTES, value)
        found[f"__substg1.0_{number:04X}{kind:04X}"] = data
        table += struct.pack("<HHIII", kind, number, 6, len(data) + (2 if kind == TEXT else 0), 0)
    return {"__properties_version1.0": table, **found, **inner}


def msg(
    properties: Mapping[int, str | bytes | int], *attached: tuple[str, bytes], message: Storage | None = None
) -> bytes:
    """A message with attachments, and a message inside."""
    files: dict[str, Storage] = {
        f"__attach_version1.0_#{number:08X}": storage(8, {0x3707: name, 0x3701: data})
        for number, (name, data) in enumerate(attached)
    }
    if message is not None:
        files["__attach_version1.0_#000000FF"] = storage(8, {}, **{"__substg1.0_3701000D": message})
    return compound(storage(32, properties, **files))
