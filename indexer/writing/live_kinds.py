"""The types of fields, by the rows that are alive: a field has a type as long as a live row has a value of it.

A commit keeps the types that it continues from, and looks only for those that rows which died in it had: in most
commits the first record batch of a segment has them all. Values that few rows have take longer, once, when one dies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import pyarrow.compute as pc

from ragidx.indexer.arrays import Bools
from ragidx.indexer.store import Store
from ragidx.indexer.store.deletions import by_segment
from ragidx.indexer.store.rows import FieldKind, Schema, places_of, schema_of, widen
from ragidx.indexer.store.segment import BATCH_ROWS, Segment

_NAMED = 3  # documents of a type

Marked = tuple[Segment, Bools | None]
"""A segment with rows of it that are marked, (rows,); None: no row is."""


def live_kinds(parts: Iterable[Marked], fields: Collection[str] | None = None) -> set[FieldKind]:
    """The kinds of which a live row has a value.

    Args:
        parts: segments with their dead rows.
        fields: names of the fields; None: all.
    """
    return _held(parts, lambda kind: fields is None or kind[0] in fields)


def schema_after(before: Schema, died: Sequence[Marked], parts: Sequence[Marked]) -> dict[str, str]:
    """The schema when some rows have died.

    Args:
        before: the schema with them, and with the rows that were added.
        died: segments with the rows that died.
        parts: the segments that stay, with all of their dead rows.
    """
    suspect: set[FieldKind] = set()
    for segment, rows in died:
        if rows is not None:
            suspect |= segment.kinds if rows.all() else _kinds_in(segment, rows, segment.kinds - suspect)
    fields = {name for name, _ in suspect - _held(parts, suspect.__contains__)}
    if not fields:
        return dict(before)
    kept = {name: kind for name, kind in before.items() if name not in fields}
    return kept | schema_of(live_kinds(parts, fields))


def mixed_fields(store: Store) -> dict[str, dict[str, list[str]]]:
    """Fields that are text because live values differ in type: of each type, by frequency, the first documents.

    Where there may be one, its columns are read.
    """
    counts: dict[FieldKind, int] = {}
    documents: dict[FieldKind, list[str]] = {}
    kinds = {kind for segment in store.segments for kind in segment.kinds}
    names = [name for name, _ in kinds if store.manifest.schema.get(name) == "string"]
    asked = sorted(kind for kind in kinds if names.count(kind[0]) > 1) if len(set(names)) < len(names) else []
    for segment, dead in zip(store.segments, by_segment(store.dead, store.manifest.segments), strict=True):
        alive = np.ones(segment.entry.rows, np.bool_) if dead is None else ~dead
        first = 0
        for batch in segment.batches(["doc_id"], kinds=asked) if segment.kinds & set(asked) else ():
            for kind, column in zip(asked, batch.columns[1:], strict=True):
                rows = np.flatnonzero(alive[first : first + len(batch)] & ~_nulls(column))
                if len(rows):
                    counts[kind] = counts.get(kind, 0) + len(rows)
                    known = documents.setdefault(kind, [])
                    for name in batch.column(0).take(places_of(rows)).to_pylist() if len(known) < _NAMED else ():
                        if name not in known[:_NAMED]:
                            known.append(name)
            first += len(batch)
    found: dict[str, dict[str, list[str]]] = {}
    for field, its_kind in sorted(counts, key=lambda one: (one[0], -counts[one])):
        found.setdefault(field, {})[its_kind] = documents[field, its_kind][:_NAMED]
    return {name: of_kinds for name, of_kinds in found.items() if len(of_kinds) > 1}


def is_plain(segments: Iterable[Segment], schema: Schema) -> bool:
    """Whether each segment has one column for a field, of the type that the schema says or a narrower one."""
    return all(
        len(schema_of(segment.kinds)) == len(segment.kinds)
        and all(name in schema and widen(kind, schema[name]) == schema[name] for name, kind in segment.kinds)
        for segment in segments
    )


def _held(parts: Iterable[Marked], is_wanted: Callable[[FieldKind], bool]) -> set[FieldKind]:
    """The kinds of which a live row has a value, of those that are wanted."""
    found: set[FieldKind] = set()
    for segment, dead in parts:
        if wanted := set(filter(is_wanted, segment.kinds - found)):
            found |= _kinds_in(segment, np.ones(segment.entry.rows, np.bool_) if dead is None else ~dead, wanted)
    return found


def _kinds_in(segment: Segment, rows: Bools, wanted: Collection[FieldKind]) -> set[FieldKind]:
    """Of which of some kinds the marked rows of a segment have a value; batches are read until all are found."""
    left = set(wanted)
    numbers = np.flatnonzero(np.add.reduceat(rows, np.arange(0, len(rows), BATCH_ROWS))).tolist()
    while left and numbers:
        asked = sorted(left)
        for batch in segment.batches([], tuple(numbers), asked):
            first = numbers.pop(0) * BATCH_ROWS
            marked = rows[first : first + len(batch)]
            left -= {
                kind for kind, column in zip(asked, batch.columns, strict=True) if (marked & ~_nulls(column)).any()
            }
            if len(left) < len(asked):
                break  # the rest is looked for alone
    return set(wanted) - left


def _nulls(column: object) -> Bools:
    nulls: Bools = pc.is_null(column).to_numpy(zero_copy_only=False)
    return nulls
