"""A table from 16-byte digests to numbers that stays small: 24 bytes an entry, less than Python objects.

Sorted numpy arrays, merged as they grow (each entry is moved log2(n / 65,536) times); the newest wait in a dict.
A digest may have several numbers. Entries are never removed; nothing is written to disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES = 16
Digests: TypeAlias = NDArray[np.bytes_]  # dtype S16; numpy cuts trailing zeros off single items, never inside an array

_WAITING = 1 << 16  # entries in the dict before they become a sorted array


def digest(text: str) -> bytes:
    """The first 16 bytes of the sha256 of `text`; lone surrogates, which no file holds, are encoded as they are."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:DIGEST_BYTES]


def as_digests(items: Sequence[bytes]) -> Digests:
    """A sequence of 16-byte strings as one array."""
    joined = b"".join(items)
    if len(joined) != DIGEST_BYTES * len(items):
        raise ValueError(f"{len(items)} digests take {len(joined)} bytes, not {DIGEST_BYTES} each")
    return np.frombuffer(joined, f"S{DIGEST_BYTES}")


class DigestTable:
    """Digests with the numbers that were added for them.

    >>> table = DigestTable()
    >>> table.add(b"a" * 16, 7)
    >>> table.find(b"a" * 16), table.find(b"b" * 16)
    ([7], [])
    """

    def __init__(self) -> None:
        self._levels: list[tuple[Digests, NDArray[np.int64]]] = []
        self._waiting: dict[bytes, int] = {}

    def add(self, key: bytes, number: int) -> None:
        """Enter one number for `key`."""
        if key in self._waiting or len(self._waiting) >= _WAITING:
            self._settle()
        self._waiting[key] = number

    def extend(self, keys: Digests, numbers: NDArray[np.int64], *, ordered: bool = False) -> None:
        """Enter many at once; `ordered`: the keys are in order."""
        if not len(keys):
            return
        order = slice(None) if ordered else np.argsort(keys, kind="stable")
        self._levels.append((keys[order], numbers[order]))
        while len(self._levels) > 1 and 2 * len(self._levels[-1][0]) >= len(self._levels[-2][0]):
            (old_keys, old_numbers), (new_keys, new_numbers) = self._levels[-2:]
            keys, numbers = np.concatenate([old_keys, new_keys]), np.concatenate([old_numbers, new_numbers])
            order = np.argsort(keys, kind="stable")  # timsort: two sorted runs are merged
            self._levels[-2:] = [(keys[order], numbers[order])]

    def find(self, key: bytes) -> list[int]:
        """All numbers of `key`."""
        found = [self._waiting[key]] if key in self._waiting else []
        wanted: Any = as_digests([key])
        for keys, numbers in self._levels:
            place = keys.searchsorted(wanted)[0]
            while place < len(keys) and keys[place : place + 1] == wanted:
                found.append(int(numbers[place]))
                place += 1
        return found

    def first(self, wanted: Sequence[bytes] | Digests) -> NDArray[np.int64]:
        """One number for each digest, -1 for those that are not here."""
        if isinstance(wanted, np.ndarray):
            self._settle()  # the dict is asked one by one, and by whole bytes
            keys_wanted, found = wanted, np.full(len(wanted), -1, np.int64)
        else:
            keys_wanted = as_digests(wanted)
            found = np.array([self._waiting.get(key, -1) for key in wanted], np.int64)
        for keys, numbers in self._levels:
            places = np.minimum(keys.searchsorted(keys_wanted), len(keys) - 1)
            known = (keys[places] == keys_wanted) & (found < 0)
            found[known] = numbers[places[known]]
        return found

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self.extend(as_digests(list(waiting)), np.fromiter(waiting.values(), np.int64, len(waiting)))
