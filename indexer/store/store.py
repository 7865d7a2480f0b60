"""The store: an index folder, opened to be searched and read. `docs/store.md` lists every byte of it.

    store = Store.open("index/");  found = store.search(queries, k=10);  rows = store.rows(found.rows[0])

A row is a number, from 0 to `n_rows`, through all live rows of the index. A mask is (n_rows,) bool. Writers number the
stored rows, dead ones included (`stored`). Segments are known here and to `ragidx.indexer.writing` alone. queries
(q, dim) float32 of unit length; scores are cosines with the stored vectors, which are float16. A store is one committed
state: later commits, and even the removal of its files, do not change it. It does not encode queries.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from ragidx.corpora.errors import IndexFormatError
from ragidx.corpora.records import Chunk
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.alone import check_widths
from ragidx.indexer.ann.moments import ScoreSpread
from ragidx.indexer.ann.prefixes import shortened
from ragidx.indexer.arrays import Bools, Floats, Ints, grouped
from ragidx.indexer.store.deletions import by_segment, read_deletions
from ragidx.indexer.store.generations import Blob, blobs_of, check_files, committed, segments_of, with_way_back
from ragidx.indexer.store.live import LiveRows
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.store.rows import Row, Schema, chunk_of, places_of, union
from ragidx.indexer.store.scores import LexicalPart, nearest_and_spread
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.store.topk import (
    RERANKED,
    SegmentRows,
    TopRows,
    by_chunk_id,
    limited,
    nearest,
    search_parts,
    search_vectors,
)

__all__ = ["Row", "Store", "TopRows"]

ROOM_SHARE = 0.8  # of a GPU's free memory that vectors may take; the rest is for scores, and for the encoder

T = TypeVar("T")
_ATTEMPTS = 5  # writers may commit while the index is opened


class Store:
    """A committed state of an index. Use `Store.open`."""

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        views: Sequence[Segment | LiveRows],
        dead: Bools | None,
        blobs: Mapping[str, Blob],
    ) -> None:
        self.path, self.manifest = path, manifest
        self.views = views  # of the segments: of those with dead rows, the others alone
        self.segments = [view.segment if isinstance(view, LiveRows) else view for view in views]
        self.dead = dead  # (stored rows,) which of them are dead; None: none
        self.starts = np.cumsum([0, *(view.n_rows for view in views)], dtype=np.int64)
        self._blobs = blobs
        self._joined: Sequence[Self] = ()

    @classmethod
    def open(cls, path: str | Path, before: Store | None = None) -> Self:
        """The committed state in the folder `path`. Needs no write access.

        Args:
            path: folder of the index.
            before: a state of this index that is open: the segments that both have are opened and checked no more.

        Raises:
            IndexFormatError: there is no index, it is of a newer format, or a file is missing or damaged.
        """
        folder = Path(path)
        for _ in range(_ATTEMPTS):
            manifest = committed(folder)
            try:
                with with_way_back(folder, manifest):
                    check_files(folder, manifest, None if before is None else before.manifest)
                    segments = segments_of(folder, manifest, () if before is None else before.segments)
                    for segment in segments:
                        segment.map()
                    blobs = blobs_of(folder, manifest, {} if before is None else before._blobs)
                    dead = read_deletions(folder, manifest)
                    views = _views(segments, by_segment(dead, manifest.segments), before)
                    return cls(folder, manifest, views, dead, blobs)
            except IndexFormatError:
                if committed(folder).generation == manifest.generation:
                    raise
        raise IndexFormatError("the index changes faster than it can be opened", "try again", where=str(folder))

    @classmethod
    def joined(cls, stores: Sequence[Self]) -> Self:
        """The rows of several indexes, in their order, as those of one; what belongs to the spec is that of the first.

        Nothing is copied. It has a lexical part where the texts of all become terms alike;
        vectors can be compared if all have the same width and are made in the same way.
        """
        manifests = [store.manifest for store in stores]
        one = manifests[0]
        manifest = dataclasses.replace(
            one,
            index=next((each.index for each in manifests if each.index.codes_only), one.index),
            schema=union(*(each.schema for each in manifests)),
            segments=tuple(entry for each in manifests for entry in each.segments),
            lexical=one.lexical if all(each.lexical == one.lexical for each in manifests) else None,
            n_chunks=sum(each.n_chunks for each in manifests),
            n_documents=sum(each.n_documents for each in manifests),
        )
        views = [view for store in stores for view in store.views]
        found = cls(stores[0].path, manifest, views, None, stores[0]._blobs)
        found._joined = tuple(stores)
        return found

    @property
    def parts(self) -> Sequence[Self]:
        """The indexes whose rows it has, in their order: itself, unless it is of `joined`."""
        return self._joined or (self,)

    def part_of(self, row: int) -> tuple[Self, int]:
        """The index that has a row, of `parts`, and the number of the row in it."""
        first = 0
        for part in self.parts:
            if row < first + part.n_rows:
                return part, row - first
            first += part.n_rows
        raise IndexError(f"row {row:,} of {first:,}")

    def widened(self, schema: Schema) -> Self:
        """The same state, whose metadata are read in these kinds, at least as wide as its own."""
        if schema == self.manifest.schema:
            return self
        manifest = dataclasses.replace(self.manifest, schema=schema)
        return type(self)(self.path, manifest, [view.read_as(schema) for view in self.views], self.dead, self._blobs)

    @property
    def n_rows(self) -> int:
        """How many rows there are: the live ones."""
        return int(self.starts[-1])

    @functools.cached_property
    def n_zeros(self) -> int:
        """How many rows have no vector: it is zero."""
        return sum(view.n_zeros if isinstance(view, LiveRows) else view.entry.zeros for view in self.views)

    @functools.cached_property
    def stored_starts(self) -> Ints:
        """The first row of each segment among all that are stored, dead ones included, and how many these are."""
        return np.cumsum([0, *(segment.n_rows for segment in self.segments)], dtype=np.int64)

    @functools.cached_property
    def stored(self) -> Ints:
        """(n_rows,) the number of each row among all that are stored: by it, a writer deletes."""
        return np.arange(self.n_rows) if self.dead is None else np.flatnonzero(~self.dead)

    @property
    def mixed(self) -> set[str]:
        """The fields of metadata that have values of several kinds: columns are read in the one that holds all."""
        names = [name for name, _ in {kind for segment in self.segments for kind in segment.kinds}]
        return {name for name in names if names.count(name) > 1}

    # -- search ---------------------------------------------------------------------------------------------------

    def search(
        self,
        queries: Floats,
        k: int,
        allowed: Bools | None = None,
        *,
        dim: int | None = None,
        rerank_dim: int | None = None,
    ) -> TopRows:
        """The k best chunks for each query; always k if so many are allowed that have a vector.

        Equal scores are ordered by chunk id.

        Args:
            queries: (q, dim), as wide as the stored vectors, even if fewer dimensions are searched.
            k: 1 or more.
            allowed: (n_rows,) which rows may be found; None: all.
            dim: compare only the first `dim` dimensions, normalised to unit length; exact. None: all.
            rerank_dim: compare the best max(100, 4k) hits again by so many dimensions.

        Raises:
            QueryError: the queries have another dimension than the index, or a width is out of range.
        """
        check_widths(self.manifest.index, self.manifest.dim, dim, rerank_dim)
        search = functools.partial(self._search, allowed=allowed, dim=dim, rerank_dim=rerank_dim)
        return search_vectors(search, self.have_vectors, queries, k) if self.manifest.has_zeros else search(queries, k)

    def nearest(
        self, queries: Floats, k: int, allowed: Bools | None = None, dim: int | None = None
    ) -> tuple[Floats, Ints]:
        """Scores and rows (q, n) as of `search`, but equal scores are in any order; -inf and -1 where there is none.

        Queries are (q, `dim`), already cut where fewer dimensions are compared; k, allowed and dim are as for `search`.
        n is smaller than k where the index has fewer rows.
        """
        return nearest(self._parts(allowed, dim), queries, k)

    def nearest_and_spread(
        self, queries: Floats, k: int, allowed: Bools | None = None, dim: int | None = None
    ) -> tuple[Floats, Ints, ScoreSpread]:
        """As `nearest`, and how the cosines of the queries with all rows that have a vector spread; there is a row."""
        return nearest_and_spread(self._parts(allowed, dim), queries, k, self.n_zeros)

    def by_chunk_id(self, scores: Floats, rows: Ints) -> list[int]:
        """The positions of rows, best score first, equal ones by chunk id."""
        return by_chunk_id(self._ids, scores, rows)

    @functools.cached_property
    def lexical(self) -> LexicalPart | None:
        """The lexical part; None: the index has none, or no text."""
        spec = self.manifest.lexical
        if spec is None or not self.segments:
            return None
        found = LexicalPart(spec, [view.postings for view in self.views if view.postings is not None])
        return found if found.bm25.n_terms else None

    def knows_a_word(self, text: str) -> bool:
        """Whether a row has a word of a text."""
        return self.lexical is not None and self.lexical.scores(text) is not None

    def move(self, device: str) -> int:
        """Search on a GPU from now on, with as many segments as fit into its memory, the first ones first.

        Args:
            device: `cuda`, all GPUs together; `cuda:1`, one of them; anything else changes nothing.

        Returns:
            How many segments are searched there.

        Raises:
            SpecError: the named GPU is not on this machine.
        """
        if not device.startswith("cuda"):
            return 0
        from ragidx.indexer.ann.gpu import gpus, room_on

        devices = gpus(device)
        return sum(segment.move(devices, ROOM_SHARE * room_on(devices)) for segment in self.segments if devices)

    # -- content --------------------------------------------------------------------------------------------------

    def rows(self, numbers: Sequence[int] | Ints) -> list[Row]:
        """Some rows, in the order of `numbers`; decodes only the batches that hold them."""
        return self._gathered(np.asarray(numbers, np.int64), lambda view, mine: view.rows(mine))

    def vectors(self, rows: Sequence[int] | Ints, dim: int | None = None) -> Floats:
        """The stored vectors of some rows, (n, dim), in their order; of another width, as a search compares them."""
        found = np.empty((len(rows), dim or self.manifest.dim), np.float32)
        for view, places, mine in self._grouped(np.asarray(rows, np.int64)):
            found[places] = (view if dim is None else view.narrowed(dim)).vectors(mine)
        return found

    def have_vectors(self, rows: Sequence[int] | Ints) -> Bools:
        """Which of some rows have a vector; that of the others is zero."""
        return np.asarray(self.vectors(rows).any(axis=1))

    def stored_vectors(self, numbers: Ints) -> Floats:
        """As `vectors`, of rows by their numbers among all that are stored, dead ones included."""
        found = np.empty((len(numbers), self.manifest.dim), np.float32)
        for number, places, mine in grouped(self.stored_starts, numbers):
            found[places] = self.segments[number].vectors(mine)
        return found

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """Whole columns, as a pyarrow.Table for each block of rows, in the order of the index.

        A field that no row of a block has is all null.

        Args:
            columns: names of columns as in the file: `doc_id`, `meta.year`.

        Raises:
            ValueError: neither a fixed column nor a field of the index's schema.
        """
        return (view.columns(columns) for view in self.views)

    def batches(self, columns: Sequence[str], allowed: Bools | None = None) -> Iterator[tuple[Ints, Any]]:
        """Columns of the rows that are allowed: their numbers and a pyarrow.RecordBatch, batch by batch."""
        for view, part in zip(self.views, self._parts(allowed), strict=True):
            last = part.first
            for batch in view.batches(columns):
                first, last = last, last + len(batch)
                if part.allowed is None:
                    yield np.arange(first, last), batch
                elif len(kept := np.flatnonzero(part.allowed[first - part.first : last - part.first])):
                    yield first + kept, batch if len(kept) == len(batch) else batch.take(places_of(kept))

    def chunks(self) -> Iterator[tuple[int, Chunk]]:
        """All rows, and their chunks, in order."""
        for rows, batch in self.batches(["doc_id", "start", "end", "text", "heading", "text_hash"]):
            yield from zip(rows.tolist(), map(chunk_of, *(one.to_pylist() for one in batch.columns)), strict=True)

    def blob(self, name: str) -> bytes:
        """A file that belongs to the spec, checked against its checksum.

        Raises:
            IndexFormatError: the manifest does not name it, or the file is damaged.
        """
        if name not in self.manifest.files:
            raise IndexFormatError(
                f"the index holds no file {name!r}", "build again with `rebuild=True`", where=str(self.path)
            )
        return self._blobs[name].data

    def _search(
        self, queries: Floats, k: int, allowed: Bools | None, dim: int | None, rerank_dim: int | None
    ) -> TopRows:
        """As `search`, of all rows, those without a vector too."""
        parts = self._parts(allowed, dim)
        if dim is None:
            return search_parts(parts, self._ids, queries, k)
        checked = ann.checked_queries(queries, self.manifest.dim)
        wide = k if rerank_dim is None else max(RERANKED, 4 * k)
        top = search_parts(parts, self._ids, shortened(checked, dim), wide)
        return top if rerank_dim is None else self._rescored(top, checked, k, rerank_dim)

    def _parts(self, allowed: Bools | None, dim: int | None = None) -> list[SegmentRows]:
        """The segments for a search, each with the rows that are allowed; None: all, which is searched faster."""
        if allowed is not None and allowed.shape != (self.n_rows,):
            raise ValueError(f"the mask has the shape {allowed.shape}, not ({self.n_rows},)")
        parts = []
        for view, first in zip(self.views, self.starts.tolist(), strict=False):
            mask = None if allowed is None else allowed[first : first + view.n_rows]
            mask = None if mask is None or mask.all() else mask
            parts.append(SegmentRows(view if dim is None else view.narrowed(dim), first, mask))
        return parts

    def _grouped(self, rows: Ints) -> Iterator[tuple[Segment | LiveRows, Ints, Ints]]:
        """Rows by their segment: which places they have in `rows`, and their numbers in the segment."""
        return ((self.views[number], places, mine) for number, places, mine in grouped(self.starts, rows))

    def _gathered(self, rows: Ints, read: Callable[[Segment | LiveRows, Ints], list[T]]) -> list[T]:
        """What `read` gives for some rows of a segment, for rows of all segments, in their order."""
        if len(self.views) == 1:
            return read(self.views[0], rows)
        gathered = np.empty(len(rows), object)
        for view, places, mine in self._grouped(rows):
            gathered[places] = read(view, mine)
        return gathered.tolist()

    def _ids(self, rows: Ints) -> list[str]:
        """The chunk ids of some rows, in their order."""
        return self._gathered(rows, lambda view, mine: view.strings("chunk_id", mine))

    def _rescored(self, found: TopRows, queries: Floats, k: int, width: int) -> TopRows:
        """The k best of what a search found, by the first `width` dimensions of their vectors."""
        asked = shortened(queries, width)
        wide = min(k, found.scores.shape[1])
        scores, rows = np.full((len(queries), wide), -np.inf, np.float32), []
        for query, before in enumerate(found.rows):
            these = np.array(before, np.int64)
            # not BLAS, which rounds a row by its place: equal vectors have equal scores
            products = limited(np.einsum("ij,j->i", shortened(self.vectors(these), width), asked[query]))
            best = self.by_chunk_id(products, these)[:wide]
            scores[query, : len(best)] = products[best]
            rows.append(these[best].tolist())
        return TopRows(scores, rows)


def _views(segments: Sequence[Segment], dead: Sequence[Bools | None], before: Store | None) -> list[Segment | LiveRows]:
    """The segments, of those with dead rows (stored rows,) the others; what a state before has made of these stays."""
    known = {} if before is None else {id(view.segment): view for view in before.views if isinstance(view, LiveRows)}
    views: list[Segment | LiveRows] = []
    for segment, mask in zip(segments, dead, strict=True):
        same = known.get(id(segment))
        if mask is None:
            views.append(segment)
        else:
            kept = same is not None and np.array_equal(same.dead, mask)
            views.append(same if same is not None and kept else LiveRows(segment, mask))
    return views
