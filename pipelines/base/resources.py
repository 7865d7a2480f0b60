"""How much of the machine this process may use: the cores it is bound to, and what its control groups allow.

Control groups of Linux, version 2, read from their files; elsewhere, and where nothing is limited, None.
"""

from __future__ import annotations

import os
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """The cores to which this process is bound."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allowed_cores() -> float | None:
    """The time that the groups of this process allow, in cores; None where they set no limit."""
    shares = []
    for group in _groups():
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):  # "max" is no limit
            shares.append(int(quota) / int(period))
    return min(shares, default=None)


def allowed_bytes() -> int | None:
    """The memory that the groups of this process allow; None where they set no limit."""
    return min((int(limit) for group in _groups() if (limit := _read(group / "memory.max")).isdigit()), default=None)


def free_bytes() -> int | None:
    """The memory that they leave, with that of files, which the system gives back; None where they set no limit."""
    free = []
    for group in _groups():
        limit, used, stat = (_read(group / f"memory.{name}") for name in ("max", "current", "stat"))
        if limit.isdigit() and used.isdigit():
            _, _, cached = f"\n{stat}".partition("\ninactive_file ")
            free.append(int(limit) - int(used) + int(cached.partition("\n")[0] or 0))
    return min(free, default=None)


def _groups() -> list[Path]:
    """The folder of this process's group and those of the groups around it, each of which can set a limit.

    A container often names the path of its group on the host, which does not exist inside: its limits are then in the
    folder at the root of the mount.
    """
    name = _read(_MEMBERSHIP).rpartition("0::/")[2]
    return [_GROUPS / name, *(_GROUPS / above for above in Path(name).parents)]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""
