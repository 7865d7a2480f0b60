"""The fields of an index while rows come in: how many there may be.

    rows -> rows with at most MAX_FIELDS fields over the whole index; what is beyond is JSON in one field

The fields that the index has come first. A table of any width can so not make every query slow.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence

from ragidx.corpora.records import OF_FILE, Scalar, plain
from ragidx.indexer.store.rows import Row, Schema, kind_of, widen

MAX_FIELDS = 1_000
SHARED = "more_fields"
SHARED_CHARS = 10_000  # of its JSON text; what is beyond is dropped

_FREE = frozenset([*OF_FILE, SHARED])  # beside those that are counted
_COUNTED = 100_000  # different names that are counted, so that a hostile corpus takes no memory


class FieldBounds:
    """What one writer has seen.

    Args:
        schema: kinds of the fields of the index that is continued.

    Attributes:
        kinds: kinds of the values so far, of each field of the index.
        shared: names of fields that are in the shared one; not all of very many.
        n_left_out: values that had no room in it.
    """

    def __init__(self, schema: Schema) -> None:
        self.kinds: dict[str, str] = dict(schema)
        self._n_counted = len(self.kinds.keys() - _FREE)
        self._last: tuple[Mapping[str, Scalar], Mapping[str, Scalar]] | None = None
        self.shared: set[str] = set()
        self.n_left_out = 0

    def bounded(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows with the fields that the index keeps; their metadata stay."""
        found = [(row, self._kept(row.seen)) for row in rows]
        return [row if kept is row.seen else dataclasses.replace(row, fields=kept) for row, kept in found]

    def _kept(self, metadata: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Metadata within the bound; the chunks of a document share one mapping."""
        if self._last is None or self._last[0] is not metadata:
            beyond = [name for name, value in metadata.items() if not self._takes(name, value)]
            self._last = metadata, self._folded(metadata, beyond) if beyond else metadata
        return self._last[1]

    def _takes(self, name: str, value: Scalar) -> bool:
        """Whether a field is one of the index, now or already; notes its kind."""
        kind, known = kind_of(value), self.kinds.get(name)
        if kind is None:
            return True
        if known is None:
            if self._n_counted >= MAX_FIELDS and name not in _FREE:
                return False
            self.kinds[name] = kind
            self._n_counted += name not in _FREE
        elif known != kind:
            self.kinds[name] = widen(known, kind)
        return True

    def _folded(self, metadata: Mapping[str, Scalar], beyond: Iterable[str]) -> Mapping[str, Scalar]:
        beyond = set(beyond) | ({SHARED} if SHARED in metadata else set())
        self.shared |= beyond if len(self.shared) < _COUNTED else set()
        folded: dict[str, object] = {}
        size = 2
        for name, value in plain({name: metadata[name] for name in metadata if name in beyond}).items():
            size += len(json.dumps(name)) + len(json.dumps(value)) + 2
            if size > SHARED_CHARS:
                self.n_left_out += 1
            else:
                folded[name] = value
        kept = {name: value for name, value in metadata.items() if name not in beyond}
        text = json.dumps(folded, ensure_ascii=False, separators=(",", ":"))
        self.kinds[SHARED] = "string"  # whatever a field of that name held before
        return kept | {SHARED: text}
