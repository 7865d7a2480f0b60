"""A cache of decoded record batches: a hit needs one row of 256, and the next query often the same batches.

One cache belongs to an open index. It holds a limited number of bytes; the least recently used batch goes first.
Threads may share it: two that miss the same batch at once both decode it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

LIMIT = 16 << 20

_caches: weakref.WeakSet[BatchCache] = weakref.WeakSet()


class BatchCache:
    """Decoded batches by a key, at most `LIMIT` bytes of them."""

    def __init__(self) -> None:
        self._limit = LIMIT
        self.clear()
        _caches.add(self)

    def clear(self) -> None:
        """Forget all batches, and make a new lock: a forked child may inherit a held one, which is never released."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self.n_bytes = 0

    def get(self, key: Hashable, decode: Callable[[], Any]) -> Any:
        """The batch of this key; decoded if it is not here."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        batch = decode()
        with self._lock:
            if key not in self._kept and batch.nbytes <= self._limit:
                while self.n_bytes + batch.nbytes > self._limit:
                    self.n_bytes -= self._kept.popitem(last=False)[1].nbytes
                self._kept[key] = batch
                self.n_bytes += batch.nbytes
        return batch


def _clear_all() -> None:
    for cache in _caches:
        cache.clear()


os.register_at_fork(after_in_child=_clear_all)
