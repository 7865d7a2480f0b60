"""Shared by tests of damaged and lying indexes: the hints, and the error that opening one ends in."""

from __future__ import annotations

from pathlib import Path

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.store import Store

from ...raising import message_of

PUT_BACK = "  hint: put it back from a copy, or build again with `rebuild=True`"
GO_BACK = (
    "  hint: copy the newest manifest.<number>.json beside it over manifest.json, or build again with `rebuild=True`"
)

WAY_BACK = "  hint: put it back from a copy, go back with 'ragidx rollback 1', or build again with `rebuild=True`"

SEGMENT = "segments/00000001-0000"


def refused(path: Path) -> str:
    return message_of(IndexFormatError, lambda: Store.open(path))
