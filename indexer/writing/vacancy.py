"""A build that is refused leaves a folder as it found it: not there, or empty.

What the next build goes on from stays: a committed state, or a journal of what was encoded. The folders above that a
build made go with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ragidx.corpora.errors import RagidxError
from ragidx.indexer import atomic
from ragidx.indexer.store.lock import LOCK, Lock
from ragidx.indexer.store.manifest import DELETIONS, FILES, JOURNAL, SEGMENTS

_PARTS = (SEGMENTS, DELETIONS, FILES, JOURNAL)  # folders of an index


@contextlib.contextmanager
def vacated_if_refused(index: Path) -> Iterator[None]:
    """Around everything that a first build writes, its writer included.

    Args:
        index: the index folder; where it holds anything now, nothing is done.
    """
    missing, is_vacant = [], False
    with contextlib.suppress(OSError):  # a folder that cannot be looked at: the writer says so
        missing = [path for path in (index, *index.parents) if not path.exists()]
        is_vacant = bool(missing) or (index.is_dir() and not any(index.iterdir()))
    try:
        yield
    except BaseException:
        if is_vacant:
            _vacate(index)
            atomic.remove_empty(missing)
        raise


def _vacate(index: Path) -> None:
    """Remove the lock and the folders of an index that hold nothing; where anything else is there, nothing."""
    if not (index / LOCK).is_file():
        return
    try:
        lock = Lock(index)  # another writer may have begun meanwhile: then it is its folder
    except RagidxError:
        return
    try:
        atomic.remove_empty(index / name for name in _PARTS)
        with contextlib.suppress(OSError):  # the build's own failure is the one to tell
            if [path.name for path in index.iterdir()] == [LOCK]:
                atomic.remove(index / LOCK)
    finally:
        lock.release()
