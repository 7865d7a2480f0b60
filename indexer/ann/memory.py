"""Memory that is free within the process, given back to the system before something large is made.

Reading and packing a million rows leaves some hundred MiB in the pools of Arrow and of the C library, in pieces that a
graph, which is one large block, cannot use. Nothing is known here of what is made.
"""

from __future__ import annotations

import ctypes

import pyarrow as pa


def give_back() -> None:
    """Return what the allocators hold and nobody uses; where the C library has no such call, Arrow's part alone."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc; it takes milliseconds
    if trim is not None:
        trim(0)
