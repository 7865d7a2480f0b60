"""A table of an engine that is asked as an index is: questions are encoded here, compared there.

    "lancedb:DIR#NAME" -> About -> a searcher: encoder and filter of the index, rows of the engine

Cosines are computed again of what an engine finds, so scores are those of the index. In hybrid search the two lists,
by vectors and by the engine's own full-text search, are fused by places.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from ragidx.corpora.errors import QueryError, SpecError
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.atomic import temporary_room
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store import Store
from ragidx.indexer.store.rows import Row
from ragidx.indexer.store.scores import cosines
from ragidx.indexer.writing import StoreWriter
from ragidx.pipelines.integrations.engines.columns import FIXED, SCORE, vectors_of
from ragidx.pipelines.integrations.engines.table import ReplacedError, Table, Target
from ragidx.retriever.contents import columns_of, values
from ragidx.retriever.fusion import RRF_CONSTANT, Scored
from ragidx.retriever.models import HERE, ModelPlace
from ragidx.retriever.options import HYBRID, LEXICAL, RRF, SearchOptions
from ragidx.retriever.ranking import StoreElsewhere
from ragidx.retriever.searcher import Searcher
from ragidx.retriever.where.conditions import Field
from ragidx.retriever.where.masks import fields_of
from ragidx.retriever.where.parser import MAX_DEPTH

if TYPE_CHECKING:
    from ragidx.indexer.arrays import Floats, Ints
    from ragidx.indexer.store.manifest import Manifest
    from ragidx.pipelines.integrations.engines.about import AboutTable
    from ragidx.retriever.hit import Hits
    from ragidx.retriever.ranking import Queries
    from ragidx.retriever.where.conditions import Condition

_Answer = TypeVar("_Answer")

_MARGIN = 10  # rows more than hits: an engine may round where the scores are computed again
_LEAST_FOUND = 100  # rows of each list that are fused
_SOURCE = "file.source"


class RemoteStore(StoreElsewhere):
    """The state of a table.

    Args:
        table: with the rows.
        about: what it holds.
        shown: the target, for messages.
    """

    def __init__(self, table: Table, about: AboutTable, shown: str) -> None:
        seed = _seed(about)
        super().__init__(Path(shown), _manifest(seed.manifest, about), [], None, seed._blobs)
        self.table, self.about = table, about
        self._whole: RemoteStore | None = None  # of what is asked: the table is closed when nobody has that
        weakref.finalize(self, table.close)
        self._found: dict[str, int] = {}
        self._rows: list[Row] = []
        self._vectors: list[Floats] = []

    def is_of(self, about: AboutTable, table: Table) -> bool:
        """Whether a table that was opened now is this one, in this state."""
        return self.about.is_of(about) and self.table.rows_in == table.rows_in

    def asked(self) -> RemoteStore:
        """The same state, for some questions: it remembers what is found for them."""
        other = copy.copy(self)
        other._whole = self
        other._found, other._rows, other._vectors = {}, [], []
        return other

    @property
    def lexical(self) -> Any:
        """Whether there is one is asked alone."""
        return True if self.table.has_words else None

    @property
    def words_by(self) -> str:
        """What the scores of words are, `Hit.bm25`."""
        return self.table.words_by

    def ranked(self, queries: Queries, k: int, options: SearchOptions) -> list[list[Scored]]:
        return [
            self._followed(partial(self._ranked, queries.of([number]), k, options)) for number in range(len(queries))
        ]

    def knows_a_word(self, text: str) -> bool:
        return self._followed(partial(self._knows, text))

    def rows(self, numbers: Sequence[int] | Ints) -> list[Row]:
        return [self._rows[number] for number in numbers]

    def vectors(self, rows: Sequence[int] | Ints, dim: int | None = None) -> Floats:
        return np.array([self._vectors[row] for row in rows], np.float32).reshape(-1, self.manifest.dim)

    def rows_named(self, column: str, names: Sequence[str]) -> list[Row]:
        columns = [*FIXED, *self.about.own_columns().values()]
        by = (column, list(dict.fromkeys(names)))
        found = self._followed(lambda: list(self.table.select(columns=columns, ids=by)))
        return [self._row(one) for batch in found for one in batch.to_pylist()]

    def record_batches(self, columns: Sequence[str], where: Condition | None) -> Iterator[Any]:
        own, known = self.about.columns(), columns_of(self)
        stored = {of: own[field] for field, (of, _) in fields_of(self).items()}
        asked = [stored.get(known.get(name, name), name) for name in columns]
        for batch in self.table.select(self._said(where), list(dict.fromkeys(asked))):
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
        names = {of: name for name, of in columns_of(self).items()}
        every = values(self, names[fields_of(self)[field][0]], limit=self.manifest.n_chunks)
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

    def _ranked(self, query: Queries, k: int, options: SearchOptions) -> list[Scored]:
        """The best chunks for one query."""
        vector, where = None if query.vectors is None else query.vectors[0], self._said(options.where)
        wide = max(_LEAST_FOUND, k) if options.mode == HYBRID else k
        n_near, n_words, most = wide + _MARGIN, wide, self.table.max_rows
        if options.k + _MARGIN <= most:  # hits of few long documents are looked for among as many rows as there may be
            n_near, n_words = min(n_near, most), min(n_words, most)
        near, by_words = list[int](), dict[int, float]()
        with self.table.snapshot():
            if options.mode != LEXICAL:
                assert vector is not None
                near = self._kept(self.table.nearest(vector, n_near, where))
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
        if vector is not None:
            dense.update(zip(rows, cosines(self.vectors(np.array(rows, np.int64)), vector).tolist(), strict=True))
        lists = [sorted(near, key=lambda row: (-(dense[row] or 0.0), self._rows[row].chunk_id))[:wide], list(by_words)]
        scores: Mapping[int, float | None] = dense if options.mode != LEXICAL else by_words
        if options.mode == HYBRID:
            fused: dict[int, float] = defaultdict(float)
            for weight, ranked in zip((options.weight, 1 - options.weight), lists, strict=True):
                for place, row in enumerate(ranked, start=1):
                    fused[row] += weight / (RRF_CONSTANT + place)
            scores = fused
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
        metadata = {}
        for field, column in self.about.own_columns().items():
            value = found[column]
            if isinstance(value, float) and not math.isfinite(value):  # JSON has no such number
                continue
            if field != _SOURCE and value is not None:
                metadata[_plain(field)] = value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
        fixed = {name: found[name] for name in FIXED}
        return Row(**fixed, text_hash=b"", doc_hash=b"", metadata=metadata)


class RemoteSearcher(Searcher):
    """A table that answers as an index does. Safe to use from several threads."""

    store: RemoteStore

    @classmethod
    def open(cls, path: str | Path, place: ModelPlace = HERE, before: Searcher | None = None) -> RemoteSearcher:
        """The state of the table that a target names.

        Args:
            path: the target.
            place: where its model is, and where it runs.
            before: a state that is open; it is returned if it is still the one that is there.

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
            opened = cls(RemoteStore(table, about, target.shown), place)
            if before is not None:
                opened._inherit(before)
            undone.pop_all()
        return opened

    def options(self, *, in_words: bool = True, **options: Any) -> SearchOptions:
        """As of an index, but an engine compares whole vectors, and hybrid search is by places."""
        for name in ("dim", "rerank_dim", "min_z"):
            if options.get(name) is not None:
                raise QueryError("an engine cannot do that", "remove it, or ask the index", where=f"`{name}`")
        if options.get("fusion") not in (None, RRF):
            raise QueryError("an engine fuses by places", "write rrf, or ask the index", where="`fusion`")
        checked = super().options(in_words=in_words, **options)
        return dataclasses.replace(checked, fusion=RRF)

    def hits(self, queries: Queries, options: SearchOptions) -> list[Hits]:
        """The hits of queries that are encoded."""
        asked = copy.copy(self)
        asked.store = self.store.asked()
        return Searcher.hits(asked, queries, options)


def _seed(about: AboutTable) -> Store:
    """An index without rows that has the spec of a table and what belongs to it; its files are gone, and stay open."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, temporary_room(Path(folder)):
        with StoreWriter(
            Path(folder) / "index",
            spec=about.spec,
            fingerprint=about.fingerprint,
            dim=about.dim,
            index=IndexOptions(),
            blobs=about.files,
        ) as writer:
            writer.commit(dict(about.notes), 0, changed=True)
        return Store.open(Path(folder) / "index")


def _manifest(seed: Manifest, about: AboutTable) -> Manifest:
    """What an index would say of the rows of a table."""
    own = {_plain(field): about.fields[field] for field in about.own_columns() if field != _SOURCE}
    return dataclasses.replace(
        seed,
        generation=about.generation,
        created=about.created,
        schema=own,
        lexical=LexicalSpec.of(about.stemmer) if about.stemmer else None,
        n_chunks=about.n_rows,
        n_documents=about.n_documents,
    )


def _plain(field: str) -> str:
    """The name of a field in the metadata: conditions have to tell it from what every chunk has."""
    return field.removeprefix("metadata.") if field in ("metadata.doc_id", "metadata.heading") else field
