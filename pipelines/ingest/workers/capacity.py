"""How many workers a machine has room for.

--workers N|auto -> a number: cores of the affinity and the cgroup, memory that the cgroup leaves
"""

from __future__ import annotations

import math
import os
import sys

from ragidx.corpora.errors import MachineError
from ragidx.corpora.limits import MIB
from ragidx.pipelines.base import resources

WORKER_BYTES = 512 * MIB
"""Of memory that a worker may need for common files; `auto` leaves as much for each."""

NO_MEMORY, NO_MEMORY_FOR_PDF = 3, 4
"""The statuses of a worker that reached its limit on memory: the next file may need what it still holds."""

_LEAST_BYTES = 128 * MIB
_UNLIMITED = 1 << 50


def n_workers(asked: int | None) -> int:
    """The number that is asked for, or that pays here.

    Args:
        asked: None: as many as there are cores and memory for.

    Raises:
        MachineError: there is no memory for a worker.
    """
    free = _free_bytes()
    if free < _LEAST_BYTES:
        raise MachineError(
            f"the memory limit leaves {free // MIB} MiB, and a worker needs {_LEAST_BYTES // MIB}",
            "raise the limit (`ulimit -v`, or that of the container)",
            where="`workers`",
        )
    cores = min(resources.usable_cores(), math.ceil(resources.allowed_cores() or _UNLIMITED))
    return asked or max(1, min(cores, free // WORKER_BYTES))


def has_interpreter() -> bool:
    """Whether a worker can be started: not in a program that is packed with its interpreter, for one."""
    return bool(sys.executable) and os.access(sys.executable, os.X_OK) and not getattr(sys, "frozen", False)


def _free_bytes() -> int:
    """Memory that the limits of this process leave."""
    in_groups, free = resources.free_bytes(), _UNLIMITED
    if sys.platform == "linux":
        import resource

        address_space = resource.getrlimit(resource.RLIMIT_AS)[1]
        free = free if address_space == resource.RLIM_INFINITY else address_space
    return free if in_groups is None else min(free, in_groups)
