"""The live rows of a segment that has dead ones, numbered from 0: a question costs what it costs where none is dead.

    LiveRows(view, dead)    of a `Segment`, or of the first dimensions of its vectors; dead (stored rows,), some of them

It is asked as the view is, by numbers of live rows, and reads the others only where they lie among them in a file. What
a state needs again and again is made at its first use and kept: the vectors for exact search, columns of conditions,
where each row's words are. A state that is opened later and has the same dead rows takes it over.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.faiss_files import Halves, are_zero, exact_index
from ragidx.indexer.ann.index_types import padded
from ragidx.indexer.ann.moments import Moments, ScoreSpread, moments_of, most_beside, spread_of
from ragidx.indexer.ann.prefixes import Prefixes
from ragidx.indexer.ann.repeats import Repeats
from ragidx.indexer.arrays import Bools, Floats, Ints, slices
from ragidx.indexer.lexical.postings import Postings, TermPostings, Uints
from ragidx.indexer.store.rows import Row, Schema, places_of
from ragidx.indexer.store.segment import Segment

# Of the rows, dead: from there on FAISS reads a copy of the others. Rows that it has to skip one by one cost more than
# those it reads in their order: 1.1 times the search at this share, twice at 14 %, nine times at 82 %.
_COPIED_SHARE = 1 / 16
_BLOCK_ROWS = 16_384


class LiveRows:
    """The live rows of a view. Safe to use from several threads.

    Args:
        segment: the segment that has the rows.
        dead: (stored rows,) which are dead: some, but not all.
        view: the segment, or a narrower form of it; None: the segment.
    """

    def __init__(self, segment: Segment, dead: Bools, view: Prefixes | None = None) -> None:
        self.segment, self.dead = segment, dead
        self.view: Segment | Prefixes = view or segment
        self._stored, self._token = np.flatnonzero(~dead), object()
        self._narrow: dict[int, LiveRows] = {}

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return len(self._stored)

    @functools.cached_property
    def n_zeros(self) -> int:
        """Rows whose vector is zero."""
        if not self.segment.entry.zeros:
            return 0
        dead = (are_zero(self.segment.halves(block)) for block in slices(np.flatnonzero(self.dead), _BLOCK_ROWS))
        return self.segment.entry.zeros - sum(map(int, map(np.count_nonzero, dead)))

    @property
    def dim(self) -> int:
        """Width of the vectors."""
        return self.view.dim

    def is_exact(self) -> bool:
        """As of the view."""
        return self.view.is_exact()

    def narrowed(self, width: int) -> LiveRows:
        """The same rows with the first dimensions of their vectors; itself at full width."""
        if width == self.dim:
            return self
        if width not in self._narrow:
            view = self.segment.narrowed(width)
            self._narrow[width] = LiveRows(self.segment, self.dead, None if isinstance(view, Segment) else view)
        return self._narrow[width]

    def read_as(self, schema: Schema) -> LiveRows:
        """The same rows, whose metadata are read in these kinds."""
        found = copy.copy(self)
        found.segment = found.view = self.segment.read_as(schema)
        found._token = object()
        return found

    def search(self, queries: Floats, k: int, allowed: Bools | None) -> tuple[Floats, Ints]:
        """As of the view; `allowed` (n_rows,)."""
        if self.is_exact() and self._is_copied:
            return ann.search_exact(self._copy, ann.filled(queries, self.dim), k, allowed)

        def exact(asked: Floats, wide: int) -> tuple[Floats, Ints]:
            scores, rows = ann.search_exact(self._copy, asked, wide, allowed)
            return scores, np.where(rows < 0, -1, self._stored[rows])

        scores, rows = self.view.search(queries, k, self._allowed(allowed), exact if self._is_copied else None)
        found = rows >= 0
        rows[found] = np.searchsorted(self._stored, rows[found])
        return scores, rows

    def scan(self, queries: Floats, k: int, allowed: Bools | None) -> Floats:
        """As of the view; `allowed` (n_rows,)."""
        if self._is_copied:
            return ann.search_exact(self._copy, ann.filled(queries, self.dim), k, allowed)[0]
        return self.view.scan(queries, k, self._allowed(allowed))

    def spread(self, queries: Floats) -> ScoreSpread | None:
        """How the cosines of queries (q, dim) with the rows spread; None: the rows have to be scanned."""
        if self._moments is None:
            return None
        moments, beside = self._moments
        found = moments.spread(queries)
        return found.without(spread_of(queries @ beside.T)) if len(beside) else found

    @functools.cached_property
    def repeats(self) -> LiveRepeats | None:
        """Which rows have the vector of another, where the faster index of the view lacks such."""
        return None if self.view.repeats is None else LiveRepeats(self.view.repeats, self._stored)

    def vectors(self, numbers: Sequence[int] | Ints) -> Floats:
        """The stored vectors of some rows, (n, dim)."""
        return self.view.vectors(self._stored[np.asarray(numbers, np.int64)])

    def rows(self, numbers: Sequence[int] | Ints) -> list[Row]:
        """Some rows, in the order of `numbers`."""
        return self.segment.rows(self._stored[np.asarray(numbers, np.int64)])

    def strings(self, name: str, numbers: Sequence[int] | Ints) -> list[str]:
        """One of the fixed columns of text, of some rows, in the order of `numbers`."""
        return self.segment.strings(name, self._stored[np.asarray(numbers, np.int64)])

    def columns(self, names: Sequence[str]) -> Any:
        """A pyarrow.Table of whole columns, as of the segment."""
        schema, key = self.segment.arrow_schema(names), (self._token, *names)
        return self.segment.cached(key, lambda: pa.Table.from_batches(self.batches(names), schema=schema))

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Columns, as of the segment; a batch has one row at least."""
        first = 0
        for batch in self.segment.batches(names):
            alive = np.flatnonzero(~self.dead[first : first + len(batch)])
            first += len(batch)
            if len(alive):
                yield batch if len(alive) == len(batch) else batch.take(places_of(alive))

    @functools.cached_property
    def postings(self) -> LivePostings | None:
        """The words of the rows; None: the index has no lexical part."""
        found = self.segment.postings
        return None if found is None else LivePostings(found, self.dead)

    @property
    def _is_copied(self) -> bool:
        is_dear = len(self.dead) - self.n_rows > _COPIED_SHARE * len(self.dead)
        return is_dear and self.segment.entry.has_vectors  # what has codes alone is to stay small

    @functools.cached_property
    def _copy(self) -> Any:
        """The exact index of these rows alone, in memory; made once, in the time of a few searches."""
        return exact_index(padded(self.dim), self._halves())

    def _halves(self) -> Iterator[Halves]:
        return map(self.view.halves, slices(self._stored, _BLOCK_ROWS))

    @functools.cached_property
    def _moments(self) -> tuple[Moments, Floats] | None:
        """Moments of these rows and some dead ones, and the vectors of those."""
        found = self.view.moments_of_live(self.dead)
        if found is None:
            return None
        moments, beside = found
        if len(beside) <= most_beside(self.dim):
            return moments, self.view.vectors(beside)
        blocks = (self.view.vectors(part) for part in np.array_split(beside, -(-len(beside) // _BLOCK_ROWS)))
        return moments - moments_of(blocks, self.dim), np.zeros((0, self.dim), np.float32)

    @functools.cached_property
    def _alive(self) -> Bools:
        return ~self.dead

    def _allowed(self, allowed: Bools | None) -> Bools:
        """(stored rows,) which of them may be found."""
        if allowed is None:
            return self._alive
        mask = np.zeros(len(self.dead), np.bool_)
        mask[self._stored[allowed]] = True
        return mask


class LivePostings:
    """Postings by the numbers of live rows; the members are those of `Postings`."""

    def __init__(self, postings: Postings, dead: Bools) -> None:
        self._postings = postings
        self._alive = ~dead
        self._place = (np.cumsum(self._alive) - 1).astype(np.int32)  # of a row that is alive

    @functools.cached_property
    def lengths(self) -> Uints:
        """(n_rows,) how many terms each row has."""
        return self._postings.lengths[self._alive]

    def find(self, term: str) -> TermPostings | None:
        """The rows of a term, None if no row has it."""
        found = self._postings.find(term)
        if found is None:
            return None
        alive = self._alive[found.rows]
        rows = self._place[found.rows[alive]].astype(np.int64)
        return TermPostings(rows, found.counts[alive]) if len(rows) else None


class LiveRepeats:
    """Repeats by the numbers of live rows; the members are those of `Repeats`.

    Args:
        repeats: repeats by the numbers of stored rows.
        stored: (n_rows,) the live ones.
    """

    def __init__(self, repeats: Repeats, stored: Ints) -> None:
        self._repeats, self._stored = repeats, stored

    def are_repeated(self, rows: Ints) -> Bools:
        """Whether other stored rows, dead ones included, have the vectors of these; never of what is no row."""
        there = (rows >= 0) & (rows < len(self._stored))
        return self._repeats.are_repeated(np.where(there, self._stored[rows.clip(0, len(self._stored) - 1)], -1))

    def equals(self, rows: Ints, allowed: Bools | None) -> Ints:
        """The allowed rows with the vectors of some rows that are repeated; -1 is none."""
        found = self._repeats.equals(np.where(rows < 0, -1, self._stored[rows]), None)
        places = np.searchsorted(self._stored, found).clip(max=len(self._stored) - 1)
        places = places[self._stored[places] == found]
        chosen: Ints = places if allowed is None else places[allowed[places]]
        return chosen
