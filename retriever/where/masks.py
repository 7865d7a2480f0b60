"""Which rows of an index a condition allows: the condition's fields are bound to the index's own columns.

A condition is a text or a value; a mask is bool (rows,), over the whole index. `file.source`, the name of a document's
source, follows from the column `owner`.

A field of the metadata goes by its name. Where that is the name of something every chunk has, `doc_id` or `heading`,
the name means what it means in a hit, and the field is `metadata.doc_id` or `metadata.heading`, as in a hit, too.
Precomputed vectors have no headings: there `heading` is a field like any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragidx.indexer.specs import holds_precomputed
from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import State
from ragidx.indexer.store.source_list import sources_of
from ragidx.retriever.where.answers import mask
from ragidx.retriever.where.binding import bind
from ragidx.retriever.where.conditions import Condition

_STRING = "string"
_DOC_ID, _SOURCE, OWNER = "doc_id", "file.source", "owner"


def schema_of(store: State) -> dict[str, str]:
    """What conditions can ask for: metadata fields and their types, and `doc_id` and `heading`."""
    return {name: kind for name, (_, kind) in fields_of(store).items()}


def bind_to(store: State, where: str | Condition) -> Condition:
    """The condition, as text or as a value, about this index.

    Raises:
        QueryError: the condition is wrong.
    """
    return bind(where, schema_of(store))


def matching_rows(store: Store, condition: Condition) -> NDArray[np.bool_]:
    """(rows,) which rows the condition allows; reads the columns that it names and no others.

    Args:
        store: the index, or several as one: then a field that one of them does not have is null in its rows.
        condition: a condition that `bind_to` made for this index.
    """
    masks = [np.zeros(0, np.bool_)]
    for part in store.parts:
        fields = fields_of(part)
        names = sorted(condition.fields & fields.keys())
        columns = [fields[name][0] for name in names] or [_DOC_ID]
        for table in part.tables(columns):
            values = [
                pa.chunked_array([source_names(part, values.combine_chunks())]) if name == OWNER else values
                for name, values in zip(columns, table.columns, strict=True)
            ]
            masks.append(mask(condition, pa.table(values, names or [_DOC_ID])))
    return np.concatenate(masks)


def source_names(store: Store, owners: Any) -> Any:
    """The source of each row, of an array; null where a program added its document."""
    entries = sources_of(store.manifest.notes, store.path)
    numbers = pa.array([entry.number for entry in entries], pa.int32())
    names = pa.array([entry.name for entry in entries], pa.large_string())
    return names.take(pc.index_in(owners, value_set=numbers))


def fields_of(store: State) -> dict[str, tuple[str, str]]:
    """The names that a condition can use, each with its column as it is stored, `meta.year`, and its kind."""
    built_in: tuple[str, ...] = (
        ("doc_id",) if holds_precomputed(store.manifest.spec) else ("doc_id", "heading", _SOURCE)
    )
    fields = {name: (OWNER if name == _SOURCE else name, _STRING) for name in built_in}
    schema = store.manifest.schema
    for field in sorted(schema):
        name = field
        while name in fields or (name != field and name in schema):
            name = f"metadata.{name}"
        fields[name] = (f"meta.{field}", schema[field])
    return fields
