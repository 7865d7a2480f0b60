"""A table of an engine that is asked as an index is: questions are encoded here, compared there.

    "lancedb:DIR#NAME" -> About -> a searcher: encoder and filter of the index, rows of the engine

Cosines are computed again of what an engine finds, so scores are those of the index. In hybrid search the two lists,
by vectors and by the engine's own full-text search, are fused by places.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from ragidx.corpora.errors import IndexFormatError, QueryError, SpecError
from ragidx.corpora.whole_documents import metadata_from_text
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.arrays import slices
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store.manifest import Manifest, file_entry
from ragidx.indexer.store.rows import Row
from ragidx.indexer.store.scores import cosines
from ragidx.pipelines.integrations.engines.layout import DIGEST, FIXED, METADATA, SCORE, SOURCE, vectors_of
from ragidx.pipelines.integrations.engines.table import ReplacedError, Table
from ragidx.pipelines.integrations.engines.target import Target
from ragidx.retriever.contents import values
from ragidx.retriever.fusion import LEAST_FOUND, MARGIN, Scored, by_places
from ragidx.retriever.models import HERE, ModelPlace
from ragidx.retriever.options import HYBRID, LEXICAL, RRF, SearchOptions
from ragidx.retriever.rows import BLOCK, VECTOR
from ragidx.retriever.searcher import Searcher
from ragidx.retriever.where.conditions import Field
from ragidx.retriever.where.masks import fields_of
from ragidx.retriever.where.parser import MAX_DEPTH

if TYPE_CHECKING:
    from ragidx.indexer.arrays import Floats, Ints
    from ragidx.pipelines.integrations.engines.layout import AboutTable
    from ragidx.retriever.rows import Queries
    from ragidx.retriever.where.conditions import Condition

_Answer = TypeVar("_Answer")


class RemoteRows:
    """The state of a table.

    Args:
        table: the table with the rows.
        about: what the table holds.
        shown: the target, for messages.
    """

    def __init__(self, table: Table, about: AboutTable, shown: str) -> None:
        self.path, self.manifest = Path(shown), _manifest(about)
        self.table, self.about = table, about
        self._whole: RemoteRows | None = None  # of what is asked: the table is closed when nobody has that
        weakref.finalize(self, table.close)
        self._found: dict[str, int] = {}
        self._rows: list[Row] = []
        self._vectors: list[Floats] = []

    def is_of(self, about: AboutTable, table: Table) -> bool:
        """Whether a table that was opened now is this one, in this state."""
        return self.about.is_of(about) and self.table.rows_in == table.rows_in

    def asked(self) -> Self:
        other = copy.copy(self)
        other._whole = self
        other._found, other._rows, other._vectors = {}, [], []
        return other

    @property
    def has_words(self) -> bool:
        return self.table.has_words

    @property
    def words_by(self) -> str:
        return self.table.words_by

    def blob(self, name: str) -> bytes:
        if name not in self.about.files:
            hint = "export again, with `replace=True`"
            raise IndexFormatError(f"the table holds no file {name!r}", hint, where=str(self.path))
        return self.about.files[name]

    def allowed(self, where: Condition | None) -> Condition | None:
        return self._followed(partial(self._said, where))

    def ranked(self, queries: Queries, k: int, allowed: Condition | None, options: SearchOptions) -> list[list[Scored]]:
        each = (queries.of([number]) for number in range(len(queries)))
        return [self._followed(partial(self._ranked, query, k, allowed, options)) for query in each]

    def knows_a_word(self, text: str) -> bool:
        return self._followed(partial(self._knows, text))

    def rows(self, numbers: Sequence[int] | Ints) -> list[Row]:
        return [self._rows[number] for number in numbers]

    def vectors(self, rows: Sequence[int] | Ints) -> Floats:
        return np.array([self._vectors[row] for row in rows], np.float32).reshape(-1, self.manifest.dim)

    def around(self, row: int, n: int) -> Sequence[Row]:
        found = self._rows[row]
        of_document = sorted(self.named("doc_id", [found.doc_id]), key=lambda one: one.start)
        at = [one.chunk_id for one in of_document].index(found.chunk_id)
        return of_document[max(0, at - n) : at + n + 1]

    def folder_of(self, row: int) -> None:
        return None

    def named(self, column: str, names: Sequence[str]) -> list[Row]:
        columns = [name for name in self.table.schema().names if name not in (DIGEST, VECTOR)]
        by = (column, list(dict.fromkeys(names)))
        found = self._followed(lambda: list(self.table.select(columns=columns, ids=by)))
        return [self._row(one) for batch in found for one in batch.to_pylist()]

    def vectors_named(self, ids: Sequence[str]) -> dict[str, Floats]:
        columns, by = ["chunk_id", "vector"], ("chunk_id", list(dict.fromkeys(ids)))
        found = self._followed(lambda: list(self.table.select(columns=columns, ids=by)))
        pairs = (zip(batch.column("chunk_id").to_pylist(), vectors_of(batch), strict=True) for batch in found)
        return {name: vector.astype(np.float32) for name, vector in itertools.chain.from_iterable(pairs)}

    def by_document(self) -> Iterator[Row]:
        ids = (name for batch in self.record_batches(["doc_id"], None) for name in batch.column(0).to_pylist())
        for names in slices(list(dict.fromkeys(ids)), BLOCK):
            yield from sorted(self.named("doc_id", names), key=lambda row: row.doc_id)

    def record_batches(self, columns: Sequence[str], allowed: Condition | None) -> Iterator[Any]:
        own = self.about.columns()
        stored = {of: own[field] for field, (of, _) in fields_of(self).items()}
        asked = [stored.get(name, name) for name in columns]
        for batch in self.table.select(allowed, list(dict.fromkeys(asked))):
            yield pa.RecordBatch.from_arrays([batch.column(name) for name in asked], names=list(columns))

    def _said(self, where: Condition | None) -> Condition | None:
        """The condition as an engine is asked it: a test in Python becomes the values that pass it.

        Raises:
            QueryError: it is deeper than that of a text, which engines are known to read, or tests whole lists.
        """
        if where is None:
            return None
        if where.depth > MAX_DEPTH:
            hint = "write it in another way, or ask the index"
            raise QueryError(f"an engine takes a condition of {MAX_DEPTH} levels at most", hint, where="condition")
        return where.fold(self._spelled)

    def _spelled(self, node: Condition, parts: list[Condition]) -> Condition:
        if node.test is None:
            return dataclasses.replace(node, parts=tuple(parts))
        field = str(node.field)
        if self.about.fields[field] == "list":
            raise QueryError("an engine tests no lists", "ask the index", where=f"condition, field {field!r:.80}")
        every = values(self, field, limit=self.manifest.n_chunks)
        passing: list[Any] = [value for value, _ in every if node.test(value)]
        return Field(field).is_in(one.replace(tzinfo=UTC) if isinstance(one, datetime) else one for one in passing)

    def _followed(self, ask: Callable[[], _Answer]) -> _Answer:
        """An answer; of the rows that are there now, where those that were opened are gone."""
        try:
            return ask()
        except ReplacedError:
            self._found.clear()  # what was found is of rows that are gone
            self.table.follow()
            return ask()

    def _ranked(self, query: Queries, k: int, where: Condition | None, options: SearchOptions) -> list[Scored]:
        """The best chunks for one query."""
        vector = None if query.vectors is None else query.vectors[0]
        wide = max(LEAST_FOUND, k) if options.mode == HYBRID else k
        n_near, n_words, most = wide + MARGIN, wide, self.table.max_rows
        if options.k + MARGIN <= most:  # hits of few long documents are looked for among as many rows as there may be
            n_near, n_words = min(n_near, most), min(n_words, most)
        near, by_words = list[int](), dict[int, float]()
        with self.table.snapshot():
            if options.mode != LEXICAL:
                assert vector is not None
                near = self._kept(self.table.nearest(vector, n_near, where)) if vector.any() else []
                near = [row for row in near if self._vectors[row].any()]
            if options.mode in (LEXICAL, HYBRID):
                found = self.table.by_words((query.texts or [""])[0], n_words, where)
                by_words = dict(zip(self._kept(found), found.column(SCORE).to_pylist(), strict=True))
            # What is not found has no word of the question, where all that has one is found, and there is any.
            is_known = 0 < len(by_words) < n_words or (
                options.mode == HYBRID and not by_words and where is not None and self._knows((query.texts or [""])[0])
            )
        rest = 0.0 if is_known else None
        rows = list(dict.fromkeys([*near, *by_words]))
        dense: dict[int, float | None] = dict.fromkeys(rows)
        if vector is not None and vector.any():
            known = [row for row in rows if self._vectors[row].any()]
            dense.update(zip(known, cosines(self.vectors(known), vector).tolist(), strict=True))
        scores: Mapping[int, float | None] = dense if options.mode != LEXICAL else by_words
        if options.mode == HYBRID:
            near.sort(key=lambda row: (-(dense[row] or 0.0), self._rows[row].chunk_id))
            scores = by_places(near[:wide], list(by_words), options.weight)
        order = sorted(scores, key=lambda row: (-(scores[row] or 0.0), self._rows[row].chunk_id))
        return [Scored(row, scores[row] or 0.0, dense[row], by_words.get(row, rest)) for row in order[:k]]

    def _knows(self, text: str) -> bool:
        return len(self.table.by_words(text, 1, None)) > 0

    def _kept(self, found: Any) -> list[int]:
        """The numbers of rows that were found, which are remembered."""
        numbers = []
        for one, vector in zip(found.drop_columns(["vector"]).to_pylist(), vectors_of(found), strict=True):
            number = self._found.setdefault(one["chunk_id"], len(self._rows))
            if number == len(self._rows):
                self._rows.append(self._row(one))
                self._vectors.append(vector.astype(np.float32))
            numbers.append(number)
        return numbers

    def _row(self, found: Mapping[str, Any]) -> Row:
        values = ((name, found[column]) for name, column in self.about.metadata_columns().items())
        fields = {
            name: value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
            for name, value in values
            if value is not None
            and not (isinstance(value, float) and not math.isfinite(value))  # JSON has no such number
        }
        metadata: Any = {"metadata": fields}
        if (whole := found.get(METADATA)) is not None:
            try:
                metadata = {"metadata": metadata_from_text(whole), "fields": fields}
            except ValueError as fault:
                hint = "export again, with `replace=True`"
                raise IndexFormatError(f"a row has {fault}", hint, where=found["chunk_id"]) from fault
        source = self.about.own_columns().get(SOURCE)
        owner = int(source is not None and found[source] is not None)
        return Row(**{name: found[name] for name in FIXED}, text_hash=b"", doc_hash=b"", owner=owner, **metadata)


class RemoteSearcher(Searcher):
    """A table that answers as an index does. Safe to use from several threads."""

    store: RemoteRows

    @classmethod
    def open(cls, path: str | Path, place: ModelPlace = HERE, before: Searcher | None = None) -> RemoteSearcher:
        """The state of the table that a target names.

        Args:
            path: the target that names the table.
            place: where the model of the table is, and where it runs.
            before: a state that is open, which is returned if the table still has it; None: there is none.

        Raises:
            SpecError: there is no such table, or it is none of an index.
            EngineError: the engine does not answer.
        """
        target = Target.parse(str(path))
        with ExitStack() as undone:
            table = target.open()
            undone.callback(table.close)
            about = table.about()
            if about is None:
                hint = f"write one: `ragidx export --to {target.shown}`"
                raise SpecError("there is no such table", hint, where=target.shown)
            if isinstance(before, RemoteSearcher) and before.store.is_of(about, table):
                return before
            opened = cls(RemoteRows(table, about, target.shown), place)
            if before is not None:
                opened._inherit(before)
            undone.pop_all()
        return opened

    def options(self, **options: Any) -> SearchOptions:
        """Options of a search as of an index; but an engine compares whole vectors, and fuses by places."""
        for name in ("dim", "rerank_dim", "min_z"):
            if options.get(name) is not None:
                raise QueryError("an engine cannot do that", "remove it, or ask the index", where=f"`{name}`")
        if options.get("fusion") not in (None, RRF):
            raise QueryError("an engine fuses by places", "write rrf, or ask the index", where="`fusion`")
        checked = super().options(**options)
        return dataclasses.replace(checked, fusion=RRF)


def _manifest(about: AboutTable) -> Manifest:
    """What an index would say of the rows of a table."""
    kinds = {column: about.fields[field] for field, column in about.own_columns().items()}
    own = {name: kinds[column] for name, column in about.metadata_columns().items()}
    return Manifest(
        generation=about.generation,
        created=about.created,
        spec=about.spec,
        fingerprint=about.fingerprint,
        dim=about.dim,
        index=IndexOptions(),
        schema=own,
        segments=(),
        lexical=LexicalSpec.of(about.stemmer) if about.stemmer else None,
        files={name: file_entry(data) for name, data in about.files.items()},
        deletions=None,
        n_chunks=about.n_rows,
        n_documents=about.n_documents,
        notes=about.notes,
    )
