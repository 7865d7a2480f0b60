"""Killed processes, full and closed disks, two writers: the last committed state opens, and the next build goes on."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from ragidx.corpora.errors import BusyError, RagidxError
from ragidx.indexer import atomic
from ragidx.indexer.store.store import Store

from ...raising import message_of

OLD = {"a.txt": ["a 0", "a 1"], "b.txt": ["b 0"]}
NEW = OLD | {"b.txt": ["b changed"], "c.txt": ["c 0", "c 1"]}

# A build in a process of its own, which ends at the step named `fatal`.
CHILD = """
    import json, os, resource, signal, sys
    from ragidx.corpora.errors import RagidxError

    folder, index, documents, fatal = sys.argv[1:]
    sys.path.insert(0, folder)
    from conftest import StoreKit

    def is_fatal(event, arguments):
        names = [str(argument) for argument in arguments]
        return (
            (fatal == "begun" and event == "open" and names[0].endswith("00000002-0000/vectors.faiss"))
            or (fatal == "segment" and event == "open" and names[0].endswith("00000002-0000/chunks.arrow"))
            or (fatal == "numbered" and event == "os.rename" and names[1].endswith("manifest.2.json"))
            or (fatal == "rename" and event == "os.rename" and names[1].endswith("/manifest.json"))
            or (fatal == "sweep" and event == "os.remove" and "journal" in names[0])
        )

    def trap(event, arguments):
        if is_fatal(event, arguments):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(trap)
    kit = StoreKit()
    try:
        with kit.writer(index) as writer:
            if fatal == "limit":
                resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
            for doc_id, texts in json.loads(documents).items():
                writer.delete_document(doc_id)
                kit.add(writer, kit.rows(doc_id, texts))
            if fatal == "added":
                os.kill(os.getpid(), signal.SIGKILL)
            writer.commit({}, 3)
    except RagidxError as fault:
        print(fault)
        sys.exit(fault.exit_code)
"""


@pytest.fixture
def old(tmp_path, kit) -> Path:
    kit.build(tmp_path / "index", OLD)
    return tmp_path / "index"


def die(index: Path, fatal: str, documents: dict[str, list[str]]) -> subprocess.CompletedProcess[str]:
    """Add these documents in a process that does not live to tell."""
    arguments = [str(Path(__file__).parents[1]), str(index), json.dumps(documents), fatal]
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(CHILD), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def texts(index: Path) -> set[str]:
    store = Store.open(index)
    found = store.search(np.eye(8, dtype=np.float32)[:1], 1000)
    return {row.text for row in store.rows(found.places[0])}


# How many chunks the next build encodes: none, unless the process ended before it had added them.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fatal", "left"), [("begun", 2), ("added", 0), ("segment", 0), ("numbered", 0), ("rename", 0), ("sweep", 0)]
)
def test_a_killed_writer_leaves_one_of_both_states_and_its_vectors(old, kit, fatal, left):
    killed = die(old, fatal, {name: NEW[name] for name in ("b.txt", "c.txt")})

    after = texts(old)
    manifest, encoded = kit.build(old, NEW)

    assert killed.returncode == -signal.SIGKILL
    assert after == {"a 0", "a 1", *(["b changed", "c 0", "c 1"] if fatal == "sweep" else ["b 0"])}
    assert encoded == left
    assert manifest.generation == 2
    assert texts(old) == {text for document in NEW.values() for text in document}
    assert Store.open(old).verify() == []
    names = {path.name for path in old.rglob("*") if path.is_file()}
    assert not [name for name in names if name.endswith((".tmp", ".bin"))]


@pytest.mark.slow
def test_a_disk_that_is_full_ends_in_one_line_and_the_old_state_stays(old, kit):
    full = die(old, "limit", {"c.txt": [f"c {number}" for number in range(400)]})

    assert (full.returncode, full.stderr) == (2, "")
    assert re.fullmatch(
        rf"{re.escape(str(old / 'journal'))}/f{{16}}.bin: cannot write: File too large\n"
        r"  hint: free some space \([0-9,]+ bytes were to be written\), or choose another folder with `index`\n",
        full.stdout,
    )
    assert texts(old) == {"a 0", "a 1", "b 0"}
    kit.build(old, NEW)
    assert texts(old) == {text for document in NEW.values() for text in document}


@pytest.mark.slow
@pytest.mark.parametrize("failing", ["create", "write_file", "sync_folder", "replace"])
def test_a_step_of_a_commit_that_fails_leaves_the_old_state(old, kit, monkeypatch, failing):
    """Each call of one kind fails in turn, as on a disk that is full from then on."""
    real = getattr(atomic, failing)
    for allowed in range(30):
        calls = iter(range(allowed))

        def step(*arguments, calls=calls):
            if next(calls, None) is None:
                raise RagidxError("cannot write: No space left on device")
            return real(*arguments)

        monkeypatch.setattr(atomic, failing, step)
        try:
            kit.build(old, NEW)
        except RagidxError:
            done = False
        else:
            done = True
        monkeypatch.setattr(atomic, failing, real)
        expected = {text for document in NEW.values() for text in document}
        assert texts(old) in ([expected] if done else [{"a 0", "a 1", "b 0"}, expected])
        if texts(old) == expected:
            return
    pytest.fail("the commit never came to an end")


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

    assert len(store.search(np.eye(8, dtype=np.float32)[:1], 3).places[0]) == 3
    assert store.verify() == []


def test_a_folder_that_is_read_only_is_not_written(closed, kit):
    index = closed(OLD)

    assert message_of(RagidxError, lambda: kit.writer(index)) == (
        f"{index / 'LOCK'}: cannot write: Permission denied\n"
        "  hint: make the folder writable, or choose another one with `index`"
    )
