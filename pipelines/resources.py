"""How much of the machine this process may use: the cores it is bound to, and what its control groups allow.

Control groups of Linux, version 1 and 2, read from their files; elsewhere, and where nothing is limited, None.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # version 1 writes a number a little below 2**63 where there is no limit


def usable_cores() -> int:
    """The cores to which this process is bound."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allowed_cores(mount: Path = _MOUNT, membership: str | None = None) -> float | None:
    """The time that the groups of this process allow, in cores; None where they set no limit.

    Args:
        mount: where the groups are mounted.
        membership: the groups of the process as /proc/self/cgroup has them; None: of this process.
    """
    shares = []
    for folder in _groups("cpu", mount, membership):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        quota, period = quota or _read(folder / "cpu.cfs_quota_us"), period or _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):  # "max" and "-1" are no limit
            shares.append(int(quota) / int(period))
    return min(shares, default=None)


def allowed_bytes(mount: Path = _MOUNT, membership: str | None = None) -> int | None:
    """The memory that the groups of this process allow; None where they set no limit."""
    limits = []
    for folder in _groups("memory", mount, membership):
        limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
        if limit.isdigit() and int(limit) < _UNLIMITED:
            limits.append(int(limit))
    return min(limits, default=None)


def _groups(controller: str, mount: Path, membership: str | None) -> Iterator[Path]:
    """The folder of this process's group and those of the groups around it, each of which can set a limit.

    A container often names the path of its group on the host, which does not exist inside: its limits are then in the
    folder at the root of the mount.
    """
    text = _read(Path("/proc/self/cgroup")) if membership is None else membership
    for line in text.splitlines():
        _, controllers, path = line.split(":", maxsplit=2)
        if controllers and controller not in controllers.split(","):
            continue
        root = mount if not controllers else mount / controllers
        if not root.is_dir():  # "cpu,cpuacct" is often mounted under each of its names alone
            root = mount / controller
        folder = root / path.strip("/")
        yield from (place for place in (folder, *folder.parents) if place.is_relative_to(root))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""
