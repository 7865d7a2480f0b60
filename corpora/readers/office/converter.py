"""PDF by pypdfium2 and office files by markitdown, in a child process with limits on memory and time.

    path, ending -> Converted

One child serves many files, since markitdown takes over a second to load; after a crash or a timeout the next file
gets a new one. The sizes in an archive are checked before it is unpacked. The child runs `office_child.py`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ragidx.corpora.errors import install
from ragidx.corpora.limits import RATIO_FROM_BYTES, Limits, UnreadableError, shown_bytes
from ragidx.corpora.readers.office.zip_file import open_zip
from ragidx.corpora.records import Place

ENDINGS = (".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".odt")

_START_TIMEOUT_S = 120.0
_BLOCK_BYTES = 1 << 16
_LINE_BYTES = 1 << 16
_DETAIL_CHARS = 160
_JSON_RATIO = 6  # bytes of JSON in ASCII a byte of UTF-8, at most; with room for places
_MISSING = f"needs the extra 'docs': {install('docs')}"


_LIBRARIES = {".pdf": "pypdfium2", **dict.fromkeys((".docx", ".pptx", ".xlsx", ".epub"), "markitdown")}


@dataclass(frozen=True, slots=True)
class Converted:
    """What a file became: its text, as Markdown or plain, with its places, and what of it was skipped, and why."""

    text: str
    markdown: bool
    title: str
    author: str
    places: tuple[Place, ...]
    skips: tuple[tuple[str, str], ...]  # (after the file's name, reason)


class OfficeConverter:
    """The child process, started when the first file needs it. A context manager: it ends with the corpus."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._child: subprocess.Popen[bytes] | None = None
        self._pending = bytearray()  # read from the child, not yet used

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        self._pending.clear()
        if child is None:
            return
        _kill_group(child)
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()

    def convert(self, path: Path, ending: str) -> Converted:
        """The text of a file.

        Raises:
            UnreadableError: it is damaged or too large, takes too much time or memory, or its library is not installed.
        """
        if ending in _LIBRARIES and importlib.util.find_spec(_LIBRARIES[ending]) is None:
            raise UnreadableError(_MISSING)
        if ending != ".pdf":
            check_archive(path, ending, self._limits)
        if self._child is None or self._child.poll() is not None:
            self._start()
        deadline = time.monotonic() + self._limits.office_timeout_s
        answer = self._ask({"path": str(path.absolute()), "ending": ending}, deadline)
        if "bytes" not in answer:
            raise UnreadableError(self._reason(str(answer.get("error"))))
        found = json.loads(self._take(int(answer["bytes"]), deadline))
        return Converted(
            text=found["text"].encode("utf-8", "replace").decode(),
            markdown=found.get("markdown", True),
            title=found.get("title", ""),
            author=found.get("author", ""),
            places=tuple(Place(offset, page=page) for offset, page in found.get("pages", ())),
            skips=tuple((where, reason) for where, reason in found.get("skips", ())),
        )

    def _start(self) -> None:
        self.close()
        # -P: do not search the script's folder for modules. Its own session: one signal ends all its processes.
        self._child = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("office_child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # closing a broken pipe must not write to it again
            start_new_session=True,
        )
        limits = self._limits
        bounds = {
            "memory_bytes": limits.office_memory_bytes,
            "timeout_s": limits.office_timeout_s,
            "text_bytes": limits.office_text_bytes,
        }
        try:
            answer = self._ask(bounds, time.monotonic() + _START_TIMEOUT_S)
        except UnreadableError as fault:
            raise UnreadableError(f"the converter does not start: {fault}") from fault
        if "ready" not in answer:
            self.close()
            raise UnreadableError(f"the converter does not start: {_short(str(answer.get('error')))}")

    def _ask(self, message: dict[str, Any], deadline: float) -> dict[str, Any]:
        assert self._child is not None
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            raise self._died() from None
        while (end := self._pending.find(b"\n")) < 0:
            self._receive(deadline)
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _take(self, count: int, deadline: float) -> bytes:
        while len(self._pending) < count:
            self._receive(deadline)
        data = bytes(self._pending[:count])
        del self._pending[:count]
        return data

    def _receive(self, deadline: float) -> None:
        """Wait for more bytes of the child, until the deadline."""
        assert self._child is not None
        assert self._child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            left = deadline - time.monotonic()
            ready = left > 0 and selector.select(left)
        if not ready:
            self.close()
            raise UnreadableError(f"conversion takes more than {self._limits.office_timeout_s:g} s")
        block = os.read(self._child.stdout.fileno(), _BLOCK_BYTES)
        if not block:
            raise self._died()
        self._pending += block
        if len(self._pending) > _JSON_RATIO * self._limits.office_text_bytes + _LINE_BYTES:
            self.close()
            raise UnreadableError(self._reason("text"))

    def _died(self) -> UnreadableError:
        """The child ended: the reason for skipping the file."""
        assert self._child is not None
        status = self._child.wait()
        self.close()
        if status == -signal.SIGXCPU:
            return UnreadableError(f"conversion takes more than {self._limits.office_timeout_s:g} s")
        return UnreadableError(f"the converter ended with status {status}")

    def _reason(self, error: str) -> str:
        """The child's error as a reason."""
        if error == "memory":
            return f"conversion needs more than {shown_bytes(self._limits.office_memory_bytes)} of memory"
        if error == "text":
            return f"converts to more than {shown_bytes(self._limits.office_text_bytes)} of text"
        if error.startswith("start "):
            return f"the converter does not start: {_short(error.removeprefix('start '))}"
        if "Incorrect password" in error or error == "ValueError: encrypted":
            return "encrypted"
        if error.startswith("MissingDependencyException"):  # markitdown without its extras
            return _MISSING
        return f"cannot be converted: {_short(error)}"


def check_archive(path: Path, ending: str, limits: Limits) -> None:
    """Check the sizes in an archive's directory, before anything is unpacked.

    Raises:
        UnreadableError: it is not an archive, or expands too much.
    """
    with open_zip(path, f"damaged {ending} file") as archive:
        members = archive.infolist()
    if len(members) > limits.office_members:
        raise UnreadableError(f"an archive of more than {limits.office_members} files")
    unpacked = sum(member.file_size for member in members)
    if unpacked > limits.office_unpacked_bytes:
        raise UnreadableError(f"expands to more than {shown_bytes(limits.office_unpacked_bytes)}")
    if unpacked > RATIO_FROM_BYTES and unpacked > limits.unpacked_ratio * path.stat().st_size:
        raise UnreadableError(f"expands to more than {limits.unpacked_ratio} times its size")


def _short(text: str) -> str:
    line = next(iter(text.splitlines()), "").strip()
    return line if len(line) <= _DETAIL_CHARS else f"{line[:_DETAIL_CHARS]}..."


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:  # it ended just now
            return
