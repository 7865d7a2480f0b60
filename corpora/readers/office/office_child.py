"""The converter's own process: PDF and office files become text here, under limits, without a network.

    stdin   {"path": ..., "ending": ".pdf"} a line, after a first line with the limits
    stdout  {"ready": true} once; then {"bytes": n} and n bytes of JSON, or {"error": ...}, for each request
    JSON    {"text": ...}, and where a file has them "pages": [[offset, page]], "title", "author",
            "markdown": false, "skips": [[where, reason]]

Run as a script by `converter.py` alone; it imports nothing of ragidx, so that it starts fast, and a library when the
first file needs it. A file that crashes it does no other harm.
"""

from __future__ import annotations

import html
import importlib.util
import itertools
import json
import math
import os
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

try:
    import resource
except ImportError:  # no such limits on this system; the parent's timeout still applies
    resource = None  # type: ignore[assignment]

Converter: TypeAlias = Callable[[str, int], dict[str, Any]]  # path, bytes of text at most

_HERE = {".pdf": "pdf_child", ".odt": "odf_child"}  # converters in scripts beside this one
_SLIDE = re.compile(r"<!-- Slide number: (\d{1,9}) -->")
_SHEET = re.compile(r"^## ", re.MULTILINE)
_PROPERTIES_BYTES = 1 << 20
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
    sys.addaudithook(_refuse)
    _send(answers, ready=True)
    converters: dict[str, Converter] = {}
    for line in requests:
        request = json.loads(line)
        _limit_cpu(limits["timeout_s"])
        ending = request["ending"]
        try:
            if ending not in converters:
                converters[ending] = _converter(ending)
        except (ImportError, OSError, MemoryError) as fault:
            _send(answers, error=f"start {type(fault).__name__}: {fault}")
            continue
        _answer(answers, converters[ending], request["path"], limits["text_bytes"])


def _converter(ending: str) -> Converter:
    """What converts files of an ending."""
    if ending not in _HERE:
        return _markitdown(ending)
    name = _HERE[ending]
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    converter: Converter = module.convert
    return converter


def _markitdown(ending: str) -> Converter:
    """The converter of one ending; markitdown's own choice would also open archives and addresses."""
    from markitdown import StreamInfo
    from markitdown.converters import DocxConverter, EpubConverter, PptxConverter, XlsxConverter

    kinds: dict[str, Any] = {
        ".docx": DocxConverter,
        ".pptx": PptxConverter,
        ".xlsx": XlsxConverter,
        ".epub": EpubConverter,
    }
    converter = kinds[ending]()
    chapters = _noted_chapters(converter) if ending == ".epub" else []

    def convert(path: str, _: int) -> dict[str, Any]:
        chapters.clear()
        with Path(path).open("rb") as stream:
            text = converter.convert(stream, StreamInfo(extension=ending)).markdown
        return {"text": text, "pages": _pages(text, ending, chapters), **_properties(path)}

    return convert


def _noted_chapters(converter: Any) -> list[str]:
    """Gets the Markdown of each chapter when a book is converted; where markitdown has another build, of none."""
    found: list[str] = []
    inner = getattr(converter, "_html_converter", None)
    plain: Any = getattr(inner, "convert", None)

    def convert(*given: Any, **options: Any) -> Any:
        result = plain(*given, **options)
        found.append(result.markdown.strip())
        return result

    if plain is not None:
        inner.convert = convert  # type: ignore[union-attr]  # `plain` is of it
    return found


def _properties(path: str) -> dict[str, str]:
    """Title and author that an office file names; an .epub names them in its package."""
    found: dict[str, str] = {}
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name == "docProps/core.xml" or name.endswith(".opf")]
        data = archive.read(names[0])[:_PROPERTIES_BYTES] if names else b""
    for field, tag in (("title", b"title"), ("author", b"creator")):
        if words := re.search(rb"<dc:%s(?:\s[^<>]{0,500})?>([^<]{1,1000})</dc:" % tag, data):
            found[field] = " ".join(html.unescape(words[1].decode("utf-8", "replace")).split())
    return found


def _pages(text: str, ending: str, chapters: list[str]) -> list[list[int]]:
    """Where slides, sheets and chapters begin in markitdown's text; what is above the first chapter is of it."""
    if ending == ".pptx":
        return [[found.start(), int(found[1])] for found in _SLIDE.finditer(text)]
    if ending == ".xlsx":
        return [[found.start(), number] for number, found in enumerate(_SHEET.finditer(text), start=1)]
    if not chapters or not text.endswith("\n\n".join(chapters)):
        return []
    lengths = [len(chapter) + 2 for chapter in chapters]
    starts = itertools.accumulate(lengths[:-1], initial=len(text) + 2 - sum(lengths))
    return [[start if number > 1 else 0, number] for number, start in enumerate(starts, start=1)]


def _answer(answers: BinaryIO, convert: Converter, path: str, text_bytes: int) -> None:
    try:
        found = convert(path, text_bytes)
        size = len(found["text"].encode("utf-8", "replace"))
        data = json.dumps(found).encode()
    except MemoryError:
        _send(answers, error="memory")
    except Exception as fault:  # noqa: BLE001  # the libraries raise anything; this process contains it
        _send(answers, error=f"{type(fault).__name__}: {fault}")
    else:
        if size > text_bytes:
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
