"""How many workers a machine has room for.

--workers N|auto -> a number: cores of the affinity and the cgroup, memory that the cgroup leaves
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

from ragidx.corpora.errors import MachineError
from ragidx.corpora.limits import MIB

WORKER_BYTES = 512 * MIB
"""Of memory that a worker may need for common files; `auto` leaves as much for each."""

NO_MEMORY = 3
"""The status of a worker that reached its limit on memory: the next file may need what it still holds."""

_LEAST_BYTES = 128 * MIB
_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def n_workers(asked: int | None) -> int:
    """The number that is asked for, or that pays here.

    Args:
        asked: None: as many as there are cores and memory for.

    Raises:
        MachineError: there is no memory for a worker.
    """
    free = free_bytes()
    if free < _LEAST_BYTES:
        raise MachineError(
            f"the memory limit leaves {free // MIB} MiB, and a worker needs {_LEAST_BYTES // MIB}",
            "raise the limit (`ulimit -v`, or that of the container)",
            where="`workers`",
        )
    return asked or max(1, min(cores(), int(min(free, 1 << 50)) // WORKER_BYTES))


def has_interpreter() -> bool:
    """Whether a worker can be started: not in a program that is packed with its interpreter, for one."""
    return bool(sys.executable) and os.access(sys.executable, os.X_OK) and not getattr(sys, "frozen", False)


def cores() -> int:
    """Cores that this process may use."""
    n_cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    for group in _groups():
        quota = _words(group / "cpu.max")
        if len(quota) == 2 and all(word.isdigit() for word in quota):
            n_cores = min(n_cores, max(1, math.ceil(int(quota[0]) / max(1, int(quota[1])))))
    return n_cores


def free_bytes() -> float:
    """Memory that the limits of this process leave; infinite where there are none."""
    found = math.inf
    for group in _groups():
        most, used = _words(group / "memory.max"), _words(group / "memory.current")
        if most and used and most[0].isdigit():
            found = min(found, int(most[0]) - int(used[0]) + _cached(group))
    if sys.platform == "linux":
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[1]
        found = found if limit == resource.RLIM_INFINITY else min(found, limit)
    return found


def memory_limit() -> int | None:
    """Memory that the cgroups of this process allow it in all; None where they set no limit."""
    limits = [words[0] for group in _groups() if (words := _words(group / "memory.max"))]
    return min((int(limit) for limit in limits if limit.isdigit()), default=None)


def _groups() -> list[Path]:
    """The folder of this process's cgroup, and of those above it, whose limits hold for it, too."""
    try:
        own = Path(_OWN_GROUP.read_text().rpartition("0::/")[2].strip())
    except OSError:
        own = Path()
    return [_CGROUP / own, *(_CGROUP / above for above in own.parents)]


def _cached(group: Path) -> int:
    """Bytes of files that the system gives back when memory is short."""
    words = _words(group / "memory.stat")
    named = dict(zip(words[::2], words[1::2], strict=False))
    return int(named.get("inactive_file", "0"))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
