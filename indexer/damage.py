"""The error for a damaged file of an index."""

from __future__ import annotations

from pathlib import Path

from ragidx.corpora.errors import IndexFormatError

PUT_BACK = "put it back from a copy, or build again with `rebuild=True`"


def damaged(path: Path, reason: str) -> IndexFormatError:
    """A file that is not as it was written; `reason` says how that shows."""
    return IndexFormatError(f"the file is damaged: {reason}", PUT_BACK, where=str(path))
