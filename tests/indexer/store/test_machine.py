"""What the machine refuses is not damage: no open file more, no memory. Real failures and injected ones."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from faults import Unreadable

from ragidx.corpora.errors import MachineError, machine_error
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing.history import history

MANY = "too many open files\n  hint: allow more with 'ulimit -n', and run it again"
ALL = "too many open files on this machine\n  hint: close other programs, and run it again"
MEMORY = "not enough memory\n  hint: close other programs or allow more memory, and run it again"


@pytest.mark.parametrize(("code", "told"), [(errno.EMFILE, MANY), (errno.ENFILE, ALL), (errno.ENOMEM, MEMORY)])
def test_a_manifest_that_the_machine_does_not_give_is_not_damaged(
    code: int, told: str, every_kind: Path, tmp_path: Path
) -> None:
    index = shutil.copytree(every_kind, tmp_path / "index")

    with Unreadable(index, index / "manifest.json", code), pytest.raises(MachineError) as caught:
        Store.open(index)

    assert str(caught.value) == f"{index}/manifest.json: {told}"


@pytest.mark.parametrize("pattern", ["segments/*/*", "deletions/*", "files/*"])
def test_no_file_that_the_machine_does_not_give_is_damaged(pattern: str, every_kind: Path, tmp_path: Path) -> None:
    index = shutil.copytree(every_kind, tmp_path / "index")
    manifest = Store.open(index).manifest
    dead = index / f"deletions/{manifest.generation:08d}.arrow"
    names = [dead] if pattern == "deletions/*" else sorted(index.glob(pattern))
    assert names

    for path in names:
        with Unreadable(index, path, errno.EMFILE), pytest.raises(MachineError, match="too many open files"):
            verify(index)


def test_a_kept_generation_whose_manifest_cannot_be_read_now_stays(every_kind: Path, tmp_path: Path) -> None:
    index, faults = shutil.copytree(every_kind, tmp_path / "index"), []

    with Unreadable(index, index / "manifest.1.json", errno.EMFILE):
        history(index, faults.append)

    assert [str(fault) for fault in faults] == [
        f"{index}/manifest.1.json: too many open files\n  hint: allow more with 'ulimit -n', and run it again; until "
        "then there is no rollback to generation 1; the committed state is not touched"
    ]


@pytest.mark.slow
def test_every_library_that_opens_files_says_that_there_are_too_many(tmp_path: Path) -> None:
    """In a process that may open none: what pyarrow, FAISS, NumPy and tokenizers raise."""
    code = """
import resource, sys, numpy, pyarrow, pyarrow.parquet, faiss, tokenizers
from ragidx.corpora.errors import machine_error
path = sys.argv[1]
faiss.write_index(faiss.IndexFlatIP(4), path)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
for read in (
    lambda: pyarrow.memory_map(path),
    lambda: pyarrow.OSFile(path),
    lambda: pyarrow.parquet.ParquetFile(path),
    lambda: faiss.read_index(path),
    lambda: faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC),
    lambda: numpy.memmap(path),
    lambda: tokenizers.Tokenizer.from_file(path),
):
    try:
        read()
    except Exception as fault:
        print(machine_error(fault).message)
"""

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.faiss")], capture_output=True, text=True, check=True
    )

    assert done.stdout == "too many open files\n" * 7


def _asked_too_much(library: Any) -> BaseException:
    with pytest.raises(MemoryError) as caught:
        library()
    return caught.value


def test_memory_that_no_machine_has_is_a_lie_of_the_file() -> None:
    lies = [lambda: pa.allocate_buffer(1 << 50), lambda: np.empty(1 << 55)]

    assert [machine_error(_asked_too_much(lie)) for lie in lies] == [None, None]


@pytest.mark.parametrize("fault", [MemoryError(), pa.ArrowMemoryError("malloc of size 4096 failed")])
def test_memory_that_a_machine_should_have_is_the_machines(fault: MemoryError) -> None:
    assert str(machine_error(fault, "a.txt")) == f"a.txt: {MEMORY}"


def test_a_failure_is_looked_at_to_its_cause_and_others_are_none() -> None:
    damaged = ValueError("damaged")
    damaged.__cause__ = OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    assert str(machine_error(damaged)) == MANY
    assert machine_error(OSError(errno.EIO, "Input/output error")) is None
    assert machine_error(ValueError("damaged")) is None
