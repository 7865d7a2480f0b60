"""PDF by pypdfium2, RTF by striprtf, other office files by markitdown: which library reads which ending.

    path, ending -> Converted

Time and memory are bounded by who runs this: a build reads these files in its workers.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

from ragidx.corpora.errors import check_machine, first_line, install
from ragidx.corpora.limits import Limits, UnreadableError, shown_bytes
from ragidx.corpora.readers.office.converted import Converted

ENDINGS = (".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".odt", ".rtf")

_MISSING = f"needs the extra 'docs': {install('docs')}"

_LIBRARIES = {
    ".pdf": "pypdfium2",
    ".rtf": "striprtf",
    **dict.fromkeys((".docx", ".pptx", ".xlsx", ".epub"), "markitdown"),
}


def convert(path: Path, ending: str, limits: Limits) -> Converted:
    """The text of a file.

    Raises:
        UnreadableError: it is damaged or too large, or its library is not installed.
        MemoryError: it needs more than this process has.
    """
    if ending in _LIBRARIES and importlib.util.find_spec(_LIBRARIES[ending]) is None:
        raise UnreadableError(_MISSING)
    try:
        converted = _converted(str(path), ending, limits)
    except (MemoryError, UnreadableError):
        raise
    except Exception as fault:  # the libraries raise anything
        check_machine(fault, path.name)
        raise UnreadableError(_reason(fault)) from fault
    data = converted.text.encode("utf-8", "replace")
    if len(data) > limits.office_text_bytes:
        raise UnreadableError(f"converts to more than {shown_bytes(limits.office_text_bytes)} of text")
    return dataclasses.replace(converted, text=data.decode())


def _converted(path: str, ending: str, limits: Limits) -> Converted:
    if ending == ".pdf":
        from ragidx.corpora.readers.office import pdf

        return pdf.convert(path, limits.office_text_bytes)
    if ending == ".odt":
        from ragidx.corpora.readers.office import odf

        return odf.convert(path)
    if ending == ".rtf":
        from ragidx.corpora.readers.office import rtf

        return rtf.convert(path)
    from ragidx.corpora.readers.office import markitdown_files

    return markitdown_files.convert(path, ending)


def _reason(fault: Exception) -> str:
    """A library's error as a reason."""
    name, text = type(fault).__name__, first_line(fault)
    if "Incorrect password" in text or (name, text) == ("ValueError", "encrypted"):
        return "encrypted"
    if name == "MissingDependencyException":  # markitdown without its extras
        return _MISSING
    return f"cannot be converted: {name}: {text}"
