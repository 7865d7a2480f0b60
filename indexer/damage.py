"""The errors for a damaged file of an index, and for a folder that cannot hold one."""

from __future__ import annotations

from pathlib import Path

from ragidx.corpora.errors import IndexFormatError, lone_surrogate, printable

PUT_BACK = "put it back from a copy, or build again with `rebuild=True`"


def damaged(path: Path, reason: str) -> IndexFormatError:
    """A file that is not as it was written; `reason` says how that shows."""
    return IndexFormatError(f"the file is damaged: {reason}", PUT_BACK, where=str(path))


def check_name(folder: Path) -> None:
    """Refuse a folder that FAISS and Arrow cannot open.

    Raises:
        IndexFormatError: its name is not UTF-8.
    """
    if lone_surrogate(str(folder)) is not None:
        hint = "rename the folder, or name another one with `index`"
        raise IndexFormatError("its name is not UTF-8", hint, where=printable(str(folder)))
