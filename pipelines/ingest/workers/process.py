"""A process of a build, a worker or that of a device: how it is started, heard and ended.

Started as `python -P -c` with pipes, so a caller's `__main__`, start methods and /dev/shm do not matter. A thread reads
what it says; while nobody takes that, a worker's silence does not count.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ragidx.corpora.limits import Limits, shown_bytes
from ragidx.pipelines.ingest.workers import frames
from ragidx.pipelines.ingest.workers.capacity import NO_MEMORY, NO_MEMORY_FOR_PDF
from ragidx.pipelines.ingest.workers.lanes import Message

SILENCE = 10
"""Times the limit on CPU time: how long a worker with a task may say nothing."""

_CODE = "import sys; sys.path[:] = {path!r}; from ragidx.pipelines.ingest.{module} import main; main()"
_TICK_S = 1.0
_PIPE_BYTES = 1 << 20
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "RAYON_NUM_THREADS"), "1"
)
_OF_WORKER = {**_ONE_THREAD, "TOKENIZERS_PARALLELISM": "false", "ARROW_DEFAULT_MEMORY_POOL": "system"}
_OF_ALL = {"ORT_DISABLE_TELEMETRY": "1"}  # whatever a library loads, onnxruntime is to tell nobody


class Process:
    """A process.

    Args:
        module: below `ragidx.pipelines.ingest`, whose `main` it runs.
        job: the job that the process is told once, when it starts.
        limits: bounds on time and memory of a worker, which gets one thread, and whose stderr nobody sees; None: the
            process is trusted.
        on_message: called in a thread with each message; False: it is not listened to any more.
        on_end: called in that thread with the reason, when it has ended.
        pass_fds: open files that it inherits.

    Attributes:
        tasks: numbers of what a worker was sent and has not done; the first is the one that it works on.
        is_ready: whether a worker has said that it is.
        ran_out_of_time: whether the process was ended because a task took too long.
    """

    def __init__(
        self,
        module: str,
        job: Message,
        limits: Limits | None,
        on_message: Callable[[Process, Message], bool],
        on_end: Callable[[Process, str], None],
        pass_fds: tuple[int, ...] = (),
    ) -> None:
        self.tasks: deque[int] = deque()
        self.is_ready = self.ran_out_of_time = False
        self._limits, self._on_message, self._on_end = limits, on_message, on_end
        self._why = ""
        path = [str(Path(entry).absolute()) for entry in sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CODE.format(path=path, module=module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if limits is None else subprocess.DEVNULL,
            bufsize=0,
            pass_fds=pass_fds,
            env=os.environ | _OF_ALL | ({} if limits is None else _OF_WORKER),
            start_new_session=True,  # Ctrl-C reaches the build alone, and that ends this process
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        with contextlib.suppress(ImportError, OSError, AttributeError):  # not everywhere; it only saves turns
            import fcntl

            fcntl.fcntl(self._out, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)
        self._thread = threading.Thread(target=self._read, daemon=True, name="ragidx-worker")
        self._thread.start()
        self.send(*job)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send a message; one that has ended takes none, and `on_end` tells."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            for part in frames.packed(header, body):
                view = memoryview(part)
                while view:
                    view = view[self._process.stdin.write(view) :]

    def kill(self, why: str = "") -> None:
        """End it for a reason."""
        self._why = self._why or why
        with contextlib.suppress(OSError):
            self._process.kill()

    def close(self) -> None:
        """End it, whatever it does."""
        self.kill()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _read(self) -> None:
        try:
            while self._on_message(self, frames.read(self._exactly)):
                pass
        except EOFError:
            pass
        except (frames.FrameError, OSError) as fault:
            self._why = f"it says what is no message: {fault}"
        finally:
            self.kill()
            status = self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._on_end(self, self._why or self._how(status))

    def _how(self, status: int) -> str:
        if self._limits is not None and status == -signal.SIGXCPU:
            self.ran_out_of_time = True
            return f"takes more than {self._limits.worker_cpu_s:g} s"
        if self._limits is not None and status in (NO_MEMORY, NO_MEMORY_FOR_PDF):
            return self._too_large(self._limits, is_pdf=status == NO_MEMORY_FOR_PDF)
        return f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with the status {status}"

    @staticmethod
    def _too_large(limits: Limits, *, is_pdf: bool = False) -> str:
        memory = limits.pdf_worker_memory_bytes if is_pdf else limits.worker_memory_bytes
        return f"needs more than {shown_bytes(memory)} of memory"

    def _exactly(self, count: int) -> bytearray:
        """So many bytes of what it says; while it has a task, it may not be silent for ever."""
        data = bytearray(count)
        view, at, limits = memoryview(data), 0, self._limits
        silent_from = time.monotonic()
        while at < count:
            if self._poll.poll(1000 * _TICK_S):
                more = os.readv(self._out, [view[at:]])
                if not more:
                    raise EOFError
                at, silent_from = at + more, time.monotonic()
            elif limits is None or not self.tasks:
                silent_from = time.monotonic()
            elif time.monotonic() - silent_from > SILENCE * limits.worker_cpu_s:
                self.kill(f"says nothing for {SILENCE * limits.worker_cpu_s:g} s")
            elif sys.platform != "linux" and self._resident() > limits.worker_memory_bytes:
                self.kill(self._too_large(limits))
        return data

    def _resident(self) -> int:
        """Bytes of memory, where the system itself sets no limit."""
        said = subprocess.run(["ps", "-o", "rss=", "-p", str(self.pid)], capture_output=True, text=True, check=False)
        return int(said.stdout.strip() or 0) * 1024
