"""Full and closed disks, two writers at once: what is said, and that the committed state opens."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import numpy as np
import pytest

from ragidx.corpora.errors import BusyError, RagidxError
from ragidx.indexer import atomic
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify

from ...raising import message_of

OLD = {"a.txt": ["a 0", "a 1"], "b.txt": ["b 0"]}


@pytest.fixture
def old(tmp_path, kit) -> Path:
    kit.build(tmp_path / "index", OLD)
    return tmp_path / "index"


def test_what_the_disk_says_is_told_with_what_to_do():
    def told(code: int, size: int = 0) -> str:
        with pytest.raises(RagidxError) as caught, atomic.writing(Path("index"), size):
            raise OSError(code, os.strerror(code))
        return str(caught.value)

    assert told(errno.ENOSPC, 123_456) == (
        "index: cannot write: No space left on device\n"
        "  hint: free some space (123,456 bytes were to be written), or choose another folder with `index`"
    )
    assert told(errno.EROFS) == (
        "index: cannot write: Read-only file system\n"
        "  hint: make the folder writable, or choose another one with `index`"
    )
    assert told(errno.EIO) == (
        "index: cannot write: Input/output error\n  hint: look at the disk, or choose another folder with `index`"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_device_is_told_by_its_name():
    with pytest.raises(RagidxError) as caught, atomic.writing(Path("/dev/full"), 4):
        Path("/dev/full").write_bytes(b"text")

    assert str(caught.value) == (
        "/dev/full: cannot write: No space left on device\n"
        "  hint: free some space (4 bytes were to be written), or choose another folder with `index`"
    )


def test_two_writers_at_once(old, kit):
    with kit.writer(old) as first:
        with pytest.raises(BusyError) as caught:
            kit.writer(old)
        kit.add(first, kit.rows("c", ["c"]))
        first.commit({}, 3)

    assert re.fullmatch(
        rf"{re.escape(str(old))}: the index is being written by process {os.getpid()}, "
        r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n  hint: wait until that ends, then run again",
        str(caught.value),
    )
    with kit.writer(old) as third:
        assert third.base is not None


@pytest.mark.parametrize(
    "content", [b"", b"half", b"{}", b"[1]", b'{"pid": "x", "since": 3}', b"\xff", b"[" * 999, b'{"pid": 1e999}']
)
def test_a_lock_that_says_nothing_names_nobody(old, kit, content):
    with kit.writer(old):
        (old / "LOCK").write_bytes(content)
        with pytest.raises(BusyError) as caught:
            kit.writer(old)

    assert str(caught.value) == (
        f"{old}: the index is being written by another process\n  hint: wait until that ends, then run again"
    )


def test_a_folder_that_is_read_only_opens(closed):
    store = Store.open(closed(OLD))

    assert len(store.search(np.eye(8, dtype=np.float32)[:1], 3).rows[0]) == 3
    assert verify(store.path) == []


def test_a_folder_that_is_read_only_is_not_written(closed, kit):
    index = closed(OLD)

    assert message_of(RagidxError, lambda: kit.writer(index)) == (
        f"{index / 'LOCK'}: cannot write: Permission denied\n"
        "  hint: make the folder writable, or choose another one with `index`"
    )
