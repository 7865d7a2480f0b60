"""PDF by pypdfium2 and office files by markitdown: which library reads which ending, and what of it may be used.

    path, ending -> Converted

The sizes in an archive are checked before it is unpacked. Time and memory are bounded by who runs this: a build reads
these files in its workers.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import check_machine, install
from ragidx.corpora.limits import RATIO_FROM_BYTES, Limits, UnreadableError, shown_bytes
from ragidx.corpora.readers.office.zip_file import open_zip
from ragidx.corpora.records import Place

ENDINGS = (".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".odt")

_DETAIL_CHARS = 160
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


def convert(path: Path, ending: str, limits: Limits) -> Converted:
    """The text of a file.

    Raises:
        UnreadableError: it is damaged or too large, or its library is not installed.
        MemoryError: it needs more than this process has.
    """
    if ending in _LIBRARIES and importlib.util.find_spec(_LIBRARIES[ending]) is None:
        raise UnreadableError(_MISSING)
    if ending != ".pdf":
        check_archive(path, ending, limits)
    try:
        answer = _converted(str(path), ending, limits)
    except (MemoryError, UnreadableError):
        raise
    except Exception as fault:  # the libraries raise anything
        check_machine(fault, path.name, path)
        raise UnreadableError(_reason(f"{type(fault).__name__}: {fault}")) from fault
    text = answer["text"].encode("utf-8", "replace").decode()
    if len(text.encode()) > limits.office_text_bytes:
        raise UnreadableError(f"converts to more than {shown_bytes(limits.office_text_bytes)} of text")
    return Converted(
        text=text,
        markdown=answer.get("markdown", True),
        title=answer.get("title", ""),
        author=answer.get("author", ""),
        places=tuple(Place(offset, page=page) for offset, page in answer.get("pages", ())),
        skips=tuple((where, reason) for where, reason in answer.get("skips", ())),
    )


def _converted(path: str, ending: str, limits: Limits) -> dict[str, Any]:
    if ending == ".pdf":
        from ragidx.corpora.readers.office import pdf

        return pdf.convert(path, limits.office_text_bytes)
    if ending == ".odt":
        from ragidx.corpora.readers.office import odf

        return odf.convert(path)
    from ragidx.corpora.readers.office import markitdown_files

    return markitdown_files.convert(path, ending)


def _reason(error: str) -> str:
    """A library's error as a reason."""
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
