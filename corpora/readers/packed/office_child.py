"""The converter's own process: PDF and office files become Markdown here, under limits, without a network.

    stdin   {"path": ..., "ending": ".pdf"} a line, after a first line with the limits
    stdout  {"ready": true} once; then {"bytes": n} and n bytes of UTF-8, or {"error": ...}, for each request

Run as a script by `ragidx.corpora.readers.packed.office` alone; it imports nothing of ragidx, so that it starts fast. A
file that crashes it does no other harm.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

try:
    import resource
except ImportError:  # no such limits on this system; the parent's timeout still applies
    resource = None  # type: ignore[assignment]

_FORBIDDEN = (
    "socket.connect",
    "socket.getaddrinfo",
    "subprocess.Popen",
    "os.exec",
    "os.fork",
    "os.system",
    "os.posix_spawn",
)


def main() -> None:
    """Answer requests until the parent ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep what libraries print out of the answers
    requests = sys.stdin.buffer
    limits = json.loads(requests.readline())
    _limit("RLIMIT_AS", limits["memory_bytes"])
    try:
        converters = _converters()
    except (ImportError, OSError, MemoryError) as fault:
        _send(answers, error=f"{type(fault).__name__}: {fault}")
        return
    sys.addaudithook(_refuse)
    _send(answers, ready=True)
    for line in requests:
        request = json.loads(line)
        _limit_cpu(limits["timeout_s"])
        _answer(answers, converters[request["ending"]], request, limits["text_bytes"])


def _converters() -> dict[str, Any]:
    """One converter an ending; markitdown's own choice would also open archives and addresses."""
    from markitdown.converters import DocxConverter, EpubConverter, PdfConverter, PptxConverter, XlsxConverter

    kinds: dict[str, Any] = {
        ".pdf": PdfConverter,
        ".docx": DocxConverter,
        ".pptx": PptxConverter,
        ".xlsx": XlsxConverter,
        ".epub": EpubConverter,
    }
    return {ending: kind() for ending, kind in kinds.items()}


def _answer(answers: BinaryIO, converter: Any, request: dict[str, str], text_bytes: int) -> None:
    from markitdown import StreamInfo

    try:
        with Path(request["path"]).open("rb") as stream:
            text = converter.convert(stream, StreamInfo(extension=request["ending"])).markdown
        data = text.encode("utf-8", "replace")
    except MemoryError:
        _send(answers, error="memory")
    except Exception as fault:  # noqa: BLE001  # the libraries raise anything; this process contains it
        _send(answers, error=f"{type(fault).__name__}: {fault}")
    else:
        if len(data) > text_bytes:
            _send(answers, error="text")
            return
        _send(answers, bytes=len(data))
        answers.write(data)
        answers.flush()


def _send(answers: BinaryIO, **message: object) -> None:
    answers.write(json.dumps(message).encode() + b"\n")
    answers.flush()


def _limit(name: str, value: int) -> None:
    if resource is None or not hasattr(resource, name):
        return
    kind = getattr(resource, name)
    try:
        resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
    except (OSError, ValueError):  # a stricter hard limit is set already
        return


def _limit_cpu(seconds: float) -> None:
    """Limit the CPU time from now on: the system counts from the process's start."""
    if resource is None:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit("RLIMIT_CPU", math.ceil(used.ru_utime + used.ru_stime + seconds) + 1)


def _refuse(event: str, _: object) -> None:
    if event in _FORBIDDEN:
        raise PermissionError(f"{event} is not allowed in the converter")


if __name__ == "__main__":
    main()
