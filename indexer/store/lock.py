"""The writer's lock: one process at a time may change an index. Readers need none.

The file LOCK is locked with flock(2). The lock ends with the process, even if that is killed; the file stays. It holds
one line of JSON for the messages of other processes: the process id and the time of locking (UTC). The lock is
advisory: only ragidx respects it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from ragidx.corpora.errors import BusyError, SpecError
from ragidx.indexer import atomic
from ragidx.indexer.damage import check_name
from ragidx.indexer.store.files import LOCK

_POLL_S = 0.02  # between looks at a lock that is held


class Lock:
    """The lock of an index folder, held from its creation until `release`.

    Args:
        folder: folder of the index.
        timeout: seconds to wait while another writer holds it.

    Raises:
        BusyError: another writer holds it; the message says which process, and since when.
        SpecError: `timeout` is no number.
        RagidxError: the folder cannot be written, or its name is not UTF-8.
    """

    def __init__(self, folder: Path, timeout: float = 0.0) -> None:
        import fcntl  # POSIX only: reading an index needs no lock

        if math.isnan(timeout):  # no time is past it: it would be waited for without an end
            raise SpecError("timeout=nan is no time", "give seconds, such as 60", where="`timeout`")
        check_name(folder)
        path = folder / LOCK
        with atomic.writing(path):
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            with atomic.writing(path):
                until = time.monotonic() + timeout
                while True:
                    try:
                        fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError as fault:
                        if time.monotonic() >= until:
                            raise _busy(folder, os.pread(self._handle, 1000, 0)) from fault
                    time.sleep(_POLL_S)
                os.ftruncate(self._handle, 0)
                holder = {"pid": os.getpid(), "since": now()}
                atomic.write_all(self._handle, json.dumps(holder).encode() + b"\n")
        except BaseException:
            self.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let the next writer in; a second call does nothing."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):  # even if close(2) fails, the handle and the lock are gone
                os.close(self._handle)
            self._handle = -1


def now() -> str:
    """The time as an index writes it: UTC, to the second.

    >>> len(now())
    20
    """
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _busy(folder: Path, content: bytes) -> BusyError:
    """The error for a lock that is held; the file's content is untrusted and may be incomplete."""
    try:
        holder = json.loads(content)
        who = f"process {int(holder['pid'])}, since {datetime.strptime(holder['since'], '%Y-%m-%dT%H:%M:%SZ')} UTC"
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        who = "another process"
    return BusyError(f"the index is being written by {who}", "wait until that ends, then run again", where=str(folder))
