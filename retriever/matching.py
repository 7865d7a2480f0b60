"""Which rows of an index a condition allows: the condition's fields are bound to the index's own columns.

A condition is text, in the language of `ragidx.retriever.where`; masks are bool (rows,), one a segment. Which rows are
dead is not looked at here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.store import Store
from ragidx.retriever.where import parse

_BUILT_IN = {"doc_id": "string", "heading": "string"}


def schema_of(store: Store) -> dict[str, str]:
    """What conditions can ask for: metadata fields and their types, and `doc_id` and `heading`."""
    return _BUILT_IN | dict(store.manifest.schema)


def matching_rows(store: Store, where: str) -> list[NDArray[np.bool_]]:
    """For each segment the rows that the condition allows; reads the columns that it names and no others.

    Raises:
        QueryError: the condition is wrong, with its place.
    """
    condition = parse(where, schema_of(store))
    columns = {name: _column(store, name) for name in sorted(condition.fields)}
    masks = []
    for segment in store.segments:
        table = segment.columns(list(columns.values()) or ["doc_id"])
        masks.append(condition.mask(table.rename_columns(list(columns) or ["doc_id"])))
    return masks


def _column(store: Store, name: str) -> str:
    return f"meta.{name}" if name in store.manifest.schema else name
