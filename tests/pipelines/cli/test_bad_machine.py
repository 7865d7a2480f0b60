"""A machine without faiss, without room or without permission to write: an error, and the index stays as it was."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ragidx.indexer.store import Store

from ..conftest import Done
from .bad_input_kit import TINY, check_still_answers, documents_of

Run = Callable[..., Done]

NO_FAISS = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == "faiss":
            raise ModuleNotFoundError("No module named 'faiss'", name="faiss")

sys.meta_path.insert(0, Blocker())
from ragidx.pipelines.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    "args",
    [
        ("info",),
        ("build", "corpus"),
        pytest.param(("build", "corpus", *TINY, "--index", "new"), marks=pytest.mark.slow),
    ],
)
def test_without_faiss_the_message_names_what_to_install_before_anything_is_encoded(
    run_process: Run, folder: Path, args: tuple[str, ...]
) -> None:
    done = run_process(*args, code=NO_FAISS)

    assert done == (
        2,
        "",
        "Error: faiss is not installed\n  hint: pip install '.[cpu]' in a checkout of ragidx\n",
    )
    assert not (folder / "new" / "journal").exists()


@contextmanager
def _file_size_limit(limit: int) -> Iterator[None]:
    """No file of this process grows beyond `limit` bytes, as if the disk were full; Python ignores the signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


FULL = (
    r"Error: ragidx-index/\S+: cannot write: {}\n"
    r"  hint: free some space \([\d,]+ bytes were to be written\), or choose another folder with --index\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--rebuild",)])
def test_a_disk_that_fills_up_leaves_the_index_as_it_was(run: Run, index: Path, more: tuple[str, ...]) -> None:
    Path("corpus/new.txt").write_text("Zebras graze where the grass is high.")
    with _file_size_limit(600):
        done = run("build", "corpus", *TINY, *more)

    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(FULL.format("File too large"), done.err)
    check_still_answers(run)
    assert documents_of(run("build", "corpus", *TINY, *more)) == 7


@pytest.mark.slow
def test_what_the_journal_keeps_of_a_full_disk_is_named(run: Run, folder: Path) -> None:
    rows = ({"id": n, "text": f"Document {n}."} for n in range(3000))
    (folder / "many.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with _file_size_limit(1_500_000):
        done = run("build", "many.jsonl")

    kept = sum(path.stat().st_size for path in Path("ragidx-index/journal").iterdir())
    assert kept > 1 << 20
    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(
        r"Error: ragidx-index/\S+: cannot write: File too large\n"
        r"  hint: free some space \([\d,]+ bytes were to be written\), or choose another folder with --index; "
        rf"ragidx-index/journal keeps {kept:,} bytes that are encoded: build this index again to use them, or remove "
        r"it\n",
        done.err,
    )
    assert documents_of(run("build", "many.jsonl")) == 3000


@contextmanager
def _open_files_limit(more: int) -> Iterator[None]:
    """This process may open so many files more, those that it opens and closes again not counted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 0
    while more or _is_open(limit):  # what other tests left open may lie between the free numbers
        more -= not _is_open(limit)
        limit += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


MANY = r"Error: (\S+: )?too many open files\n  hint: allow more with 'ulimit -n', and run it again\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "args", [("build", "corpus", *TINY), ("query", "lake"), ("verify",), ("info",)], ids=lambda args: args[0]
)
def test_too_many_open_files_are_no_damage_and_lose_no_document(run: Run, index: Path, args: tuple[str, ...]) -> None:
    Path("corpus/table.csv").write_text("id,text\na,Zebras graze where the grass is high.\n")
    Path("corpus/more").mkdir()
    Path("corpus/more/new.txt").write_text("The grass is high.")
    allowed = shutil.copytree(index, "allowed")
    assert run(*args, "--index", str(allowed)).status == 0  # whatever is imported is imported by now

    for more in range(40):
        with _open_files_limit(more):
            done = run(*args)
        if done.status == 0:
            break
        assert (done.status, done.out) == (2, "")
        assert re.fullmatch(MANY, done.err)
        assert Store.open(index).manifest.generation == 1

    assert 0 < more < 39
    assert documents_of(run("build", "corpus", *TINY)) == 8


@pytest.fixture(scope="session")
def own_mounts() -> Callable[[str], list[str]]:
    """A command in whose process a mount of its own holds, gone with it: `script` gets the folder as $1."""
    if (
        not shutil.which("unshare")
        or subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no mounts of our own here: unshare -rm is not allowed")
    return lambda script: ["unshare", "-rm", "sh", "-c", f'set -e; {script}; exec "$@"', "sh"]


@pytest.mark.slow
def test_a_full_disk_leaves_the_index_as_it_was(run_process: Run, mini_index: Path, own_mounts: Any) -> None:
    size = sum(path.stat().st_size for path in mini_index.rglob("*"))
    script = (
        f"mkdir full; mount -t tmpfs -o size={size + 65536} none full; cp -r ragidx-index full/index; "
        '"$@" || echo "status $?" >&2; set -- "$1" -m ragidx verify --index full/index'
    )
    rows = ({"id": n, "text": f"Document {n}."} for n in range(500))
    Path("corpus/many.jsonl").write_text("\n".join(map(json.dumps, rows)))

    done = run_process("build", "corpus", "--index", "full/index", through=own_mounts(script))

    assert (done.status, done.out) == (0, "full/index: intact\n")
    message = FULL.format("No space left on device").replace("ragidx-index", "full/index")
    assert re.fullmatch(rf"{message}status 2\n", done.err)


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_a_read_only_index_answers_and_cannot_be_built(run_process: Run, own_mounts: Any) -> None:
    through = own_mounts("mount --bind ragidx-index ragidx-index; mount -o remount,bind,ro ragidx-index")

    built, told = run_process("build", "corpus", through=through), run_process("info", through=through)

    assert built == (
        2,
        "",
        "Error: ragidx-index/LOCK: cannot write: Read-only file system\n"
        "  hint: make the folder writable, or choose another one with --index\n",
    )
    assert (told.status, told.err) == (0, "")


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_output_that_cannot_be_written_is_an_error() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ragidx", "info"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    message = "Error: standard output: cannot write: No space left on device\n  hint: write to a disk with free space\n"
    assert (done.returncode, done.stderr) == (2, message)


@pytest.mark.usefixtures("index")
def test_a_run_into_a_pipe_leaves_it_a_pipe(run: Run, folder: Path) -> None:
    (folder / "q.jsonl").write_text('{"_id": "1", "text": "bees"}\n')
    os.mkfifo(folder / "pipe")
    reading = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    assert run("query", "--queries", "q.jsonl", "--run", "pipe").status == 0
    assert os.read(reading, 5) == b"1 Q0 "
    assert (folder / "pipe").is_fifo()
    os.close(reading)


@pytest.mark.usefixtures("index")
def test_a_run_that_cannot_be_written_is_an_error(run: Run, folder: Path) -> None:
    (folder / "q.jsonl").write_text('{"_id": "1", "text": "bees"}\n')

    assert run("query", "--queries", "q.jsonl", "--run", "nowhere/run.trec") == (
        2,
        "",
        "Error: nowhere/run.trec: cannot write: No such file or directory\n  hint: choose another file with --run\n",
    )
