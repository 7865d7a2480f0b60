"""The sockets by which `ragidx query` asks a service: one for each index, in a folder that only this user can open."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from ragidx.pipelines.serve.client import is_own, socket_path


@contextlib.contextmanager
def offered(index: Path) -> Iterator[socket.socket | None]:
    """The socket of an index, bound, and removed at the end; None where it cannot be had, or another service has it."""
    path = socket_path(index)
    bound = None if path is None else _bound(path)
    if path is None or bound is None:
        yield None
        return
    number = path.lstat().st_ino
    with bound:
        try:
            yield bound
        finally:
            with contextlib.suppress(OSError):
                if path.lstat().st_ino == number:  # not one that another service put there
                    path.unlink()


def _bound(path: Path) -> socket.socket | None:
    """A new socket in place of one that nobody answers."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = path.parent.lstat()
        if folder.st_uid != os.getuid() or folder.st_mode & 0o077 or path.parent.is_symlink():
            return None
        if path.exists():
            if not is_own(path) or _answers(path):
                return None
            path.unlink()  # of a service that was killed
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            before = os.umask(0o177)
            try:
                own.bind(str(path))
                own.listen()
            finally:
                os.umask(before)
        except OSError:
            own.close()
            raise
        return own
    return None


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
        return True
