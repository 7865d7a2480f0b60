"""Which rows of an index a condition allows: the condition's fields are bound to the index's own columns.

A condition is text, in the language of `ragidx.retriever.where.parser`; masks are bool (rows,), one a segment. Which
rows are dead is not looked at here.

A field of the metadata goes by its name. Where that is the name of something every chunk has, `doc_id` or `heading`,
the name means what it means in a hit, and the field is `metadata.doc_id` or `metadata.heading`, as in a hit, too.
Precomputed vectors have no headings: there `heading` is a field like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.specs import holds_precomputed
from ragidx.indexer.store.store import Store
from ragidx.retriever.where.parser import Condition, parse

_STRING = "string"


@dataclass(frozen=True, slots=True)
class _Field:
    """What a name in a condition stands for."""

    column: str  # as a segment has it: `doc_id`, `meta.year`
    kind: str


def schema_of(store: Store) -> dict[str, str]:
    """What conditions can ask for: metadata fields and their types, and `doc_id` and `heading`."""
    return {name: field.kind for name, field in _fields(store).items()}


def parse_for(store: Store, where: str) -> Condition:
    """The condition that a text writes about this index.

    Raises:
        QueryError: the condition is wrong, with its place.
    """
    return parse(where, schema_of(store))


def matching_rows(store: Store, condition: Condition) -> list[NDArray[np.bool_]]:
    """For each segment the rows that the condition allows; reads the columns that it names and no others.

    Args:
        store: the index.
        condition: of `parse_for` it.
    """
    fields, names = _fields(store), sorted(condition.fields)
    columns = [fields[name].column for name in names]
    masks = []
    for segment in store.segments:
        table = segment.columns(columns or ["doc_id"])
        masks.append(condition.mask(table.rename_columns(names or ["doc_id"])))
    return masks


def _fields(store: Store) -> dict[str, _Field]:
    """The names that a condition can use."""
    built_in = ("doc_id",) if holds_precomputed(store.manifest.spec) else ("doc_id", "heading")
    found = {name: _Field(name, _STRING) for name in built_in}
    schema = store.manifest.schema
    for field in sorted(schema):
        name = field
        while name in found or (name != field and name in schema):
            name = f"metadata.{name}"
        found[name] = _Field(f"meta.{field}", schema[field])
    return found
