"""Writers that are killed: a warm process without torch forks one for each order, in some milliseconds.

    with Writers() as writers:
        outcome = writers.run(Order("update", root, at=7))        the writer ends at the 7th step, by SIGKILL

The warm process (this file, run as a program) has one thread and has loaded numpy, Arrow and FAISS. It reads orders
as lines of JSON, and answers each with how the writer ended. A test process may have threads, and must not fork.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Self

LIMIT_S = 60  # a writer that takes longer is stuck
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_IO_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Order:
    """What a writer does, and where it ends.

    Attributes:
        operation: a name in `fault_operations.TASKS`.
        root: the folder in which `index` lies.
        at: the step before which it is killed, with `torn` the write in which; None: it is not.
        torn: the share of the bytes of that write that arrives.
        lose: a seed: what was not synced until then is lost, as when the power goes.
        after_s: it is killed so many seconds after its start, wherever it is.
        mutant: a defect that the writer gets first, from `MUTANTS`.
    """

    operation: str
    root: str
    at: int | None = None
    torn: float | None = None
    lose: int | None = None
    after_s: float | None = None
    mutant: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a writer ended: by SIGKILL, or by itself, with the text of what went wrong (empty: nothing)."""

    killed: bool
    error: str


class Writers:
    """The warm process. A context manager."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", os.fspath(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ONE_THREAD,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=LIMIT_S)

    def run(self, order: Order) -> Outcome:
        """Fork a writer, and wait for its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(dataclasses.asdict(order)) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        ending = os.waitstatus_to_exitcode(answer["status"])
        assert ending in (0, -signal.SIGKILL), f"the writer ended with {ending}: {answer['error']}"
        return Outcome(ending == -signal.SIGKILL, answer["error"])


def serve() -> None:
    """Fork a writer for each line of stdin, until that ends."""
    import fault_operations  # noqa: F401
    import pyarrow as pa
    from conftest import StoreKit

    with tempfile.TemporaryDirectory() as folder, StoreKit().writer(Path(folder)):
        StoreKit().vectors(StoreKit().rows("warm", ["text"]))
        pa.array(["what takes long is loaded here, once"])  # pandas, where it is installed
    assert "faiss" in sys.modules
    assert "torch" not in sys.modules
    assert threading.active_count() == 1
    gc.disable()  # a collection would touch, and so copy, every page of the forked process
    for line in sys.stdin:
        order = Order(**json.loads(line))
        reader, end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os._exit(_write(order, end))
        os.close(end)
        if order.after_s is not None:
            time.sleep(order.after_s)
            os.kill(pid, signal.SIGKILL)  # not yet waited for: the id is still its own
        with os.fdopen(reader, "rb") as told:
            error = told.read().decode()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(json.dumps({"status": status, "error": error}) + "\n")
        sys.stdout.flush()


def _write(order: Order, end: int) -> int:
    """The forked writer; its exit status."""
    signal.alarm(LIMIT_S)
    try:
        from conftest import StoreKit
        from fault_operations import TASKS
        from faults import Killed

        if order.mutant is not None:
            MUTANTS[order.mutant]()
        root = Path(order.root)
        layer = nullcontext() if order.at is None else Killed(root, order.at, order.torn, order.lose)
        with layer:
            TASKS[order.operation](StoreKit(), root / "index")
    except Exception:  # noqa: BLE001  whatever it is, the test is told
        os.write(end, traceback.format_exc().encode())
        return 0
    return 0


def _never_syncs() -> None:
    """What a store would be that forgot to sync: fsync does nothing, and the layer hears of none."""
    from ragidx.indexer import atomic

    atomic.NewFile.sync = lambda self: None
    atomic.sync_folder = lambda path: None


def _writes_in_place() -> None:
    """What a store would be that wrote over its files instead of renaming new ones into place."""
    from ragidx.indexer import atomic

    def write_file(path, data):
        path.unlink(missing_ok=True)
        with atomic.create(path) as file:
            file.write(data) if isinstance(data, bytes) else data(file)
        return file.entry

    atomic.write_file = write_file


MUTANTS = {"never syncs": _never_syncs, "writes in place": _writes_in_place}


if __name__ == "__main__":
    serve()
