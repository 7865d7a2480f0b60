"""A process that opens indexes, and stops before one of its calls, so that a writer can come between any two.

    with PausingReader() as reader:
        reader.open(index, refresh=True)    what it finds, and how many calls that takes
        reader.start(index, refresh=True, stop=7)
        ...                                 it waits before its 7th call; what is done here, it meets afterwards
        reader.end()                        what it finds

Calls are those of functions of `indexer/`. It is a process of its own, since a call that stops may hold a lock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self

Documents = dict[str, list[str]]


class Found(NamedTuple):
    """The documents that a reader found, the number of its calls, and its error, if it failed."""

    documents: Documents
    calls: int
    error: str


class PausingReader:
    """The process. A context manager."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", os.fspath(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def hold(self, index: Path) -> None:
        """Open the state that a refresh begins with."""
        self._ask({"hold": str(index)})

    def open(self, index: Path, *, refresh: bool) -> Found:
        """Open an index, without a stop."""
        return Found(*self._ask({"open": str(index), "refresh": refresh, "stop": sys.maxsize}))

    def start(self, index: Path, *, refresh: bool, stop: int) -> None:
        """Open it up to the call of this number."""
        self._answer = self._ask({"open": str(index), "refresh": refresh, "stop": stop})

    def end(self) -> Found:
        """Go on to the end, or what was found, where it did not come to that call."""
        if self._answer == "stopped":
            self._answer = self._ask({})
        return Found(*self._answer)

    def _ask(self, order: dict[str, object]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def _main() -> None:
    from states import documents_of

    import ragidx
    from ragidx.indexer.store import Store

    house = str(Path(ragidx.__file__).parent / "indexer")
    held = None

    def say(answer: object) -> None:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()

    for line in sys.stdin:
        order = json.loads(line)
        if "hold" in order:
            held = Store.open(order["hold"])
            say("held")
            continue
        calls, stop, documents, error = 0, order["stop"], {}, ""

        def seen(frame: FrameType, event: str, _: object, stop: int = stop) -> None:
            nonlocal calls
            if event == "call" and frame.f_code.co_filename.startswith(house):
                calls += 1
                if calls == stop + 1:
                    say("stopped")
                    sys.stdin.readline()

        sys.setprofile(seen)
        try:
            store = Store.open(order["open"], held if order["refresh"] else None)
            sys.setprofile(None)
            documents = documents_of(store)
        except Exception as fault:  # noqa: BLE001 -- the test says so
            sys.setprofile(None)
            error = "".join(traceback.format_exception(fault))
        say([documents, calls, error])


if __name__ == "__main__":
    _main()
