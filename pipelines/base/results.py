"""Files of results, such as pictures: whether they can be written is known before anything is computed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ragidx.corpora.errors import RagidxError
from ragidx.indexer import atomic


def check_folder(folder: Path, hint: str) -> None:
    """Whether files can be written into a folder that exists.

    Raises:
        RagidxError: they cannot, with this hint.
    """
    if not folder.is_dir():
        raise RagidxError("there is no such folder", f"create it, or {hint}", where=str(folder))
    try:
        with tempfile.TemporaryFile(dir=folder):  # permission bits are not enough: root, /proc
            pass
    except OSError as fault:
        raise RagidxError(f"the folder cannot be written to: {fault.strerror}", hint, where=str(folder)) from fault


def write_result(path: Path, content: bytes, hint: str) -> None:
    """Write a file, which appears whole or not at all.

    Raises:
        RagidxError: it cannot be written, with this hint.
    """
    try:
        atomic.write_file(path, content)
    except RagidxError as fault:  # its hint is about an index, and it may name the temporary file
        raise RagidxError(fault.message, hint, where=str(path)) from fault
