"""A cache of a limited number of bytes: what was asked for longest ago goes first.

An open index has one of decoded record batches, since a hit needs one row of 256 and the next query often the same
batches, and one of the words that questions ask for. Threads may share it: two that miss the same value at once both
make it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


V = TypeVar("V", bound=_Sized)
_caches: weakref.WeakSet[ByteCache[_Sized]] = weakref.WeakSet()


class ByteCache(Generic[V]):
    """Values by a key, at most `limit` bytes of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.clear()
        _caches.add(self)  # type: ignore[arg-type]  # a set of caches of any values

    def clear(self) -> None:
        """Forget all values, and make a new lock: a forked child may inherit a held one, which is never released."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, V] = OrderedDict()
        self.n_bytes = 0

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of this key; made if it is not here."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        value = make()
        with self._lock:
            if key not in self._kept and value.nbytes <= self._limit:
                while self.n_bytes + value.nbytes > self._limit:
                    self.n_bytes -= self._kept.popitem(last=False)[1].nbytes
                self._kept[key] = value
                self.n_bytes += value.nbytes
        return value


def _clear_all() -> None:
    for cache in _caches:
        cache.clear()


os.register_at_fork(after_in_child=_clear_all)
