"""Postings: which rows of a segment hold a term, and how often. One file, written once.

    lexical-<generation>.arrow    Arrow IPC, zstd; a row a term, sorted by its UTF-8 bytes; 16 K postings a batch
        term    large_string, unique
        gaps    large_list<uint32>: the first row plus 1, then the distance to the row before; at least 1
        counts  large_list<uint32>: how often the term occurs in that row; at least 1

The empty term, which no text has, comes first: its rows are those with any term, its counts are their lengths in terms.
So the file needs no second table. A term of a row's name begins with a slash, which no word has; it does not count in
the lengths. Row r is row r of the segment's vectors; the metadata of the schema name the texts
that the file was made of. Every batch is checked when it is read, and in a small file the order of all of them: a
damaged file is an error. A large one is read whole by `read_all` alone.
"""

from __future__ import annotations

import bisect
import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragidx.indexer.arrays import Ints, compute, numbers_of
from ragidx.indexer.damage import damaged, reading

LENGTHS = ""  # the term whose counts are the lengths of the rows
NAME = "/"  # before a term of a row's name
TEXTS = b"texts"  # what the texts are known by, in the metadata of the schema

SCHEMA = pa.schema(
    [
        pa.field("term", pa.large_string(), nullable=False),
        pa.field("gaps", pa.large_list(pa.field("item", pa.uint32(), nullable=False)), nullable=False),
        pa.field("counts", pa.large_list(pa.field("item", pa.uint32(), nullable=False)), nullable=False),
    ]
)

Uints = NDArray[np.uint32]

_ORDERED_BATCHES = 1024  # of files with so many at most, the order of all is checked
_KEPT_BATCHES = 256  # in memory


class TermPostings(NamedTuple):
    """The postings of a term: rows (n,), ascending, and counts (n,)."""

    rows: Ints
    counts: Uints


class Postings:
    """A file of postings, mapped. Batches are read, and checked, when they are needed.

    Args:
        path: place of the file.
        n_rows: number of rows of the segment.
        known_by: what the texts of the segment are known by.

    Raises:
        IndexFormatError: the file is missing or damaged; so for each method.
    """

    def __init__(self, path: Path, n_rows: int, known_by: str = "") -> None:
        self._path, self._n_rows = path, n_rows
        with reading(self._path):
            with pa.memory_map(str(path)) as file:
                self._data = file.read_buffer()
            reader = self._reader()
            if reader.schema != SCHEMA:
                raise ValueError("its columns are not term, gaps and counts")
            if (reader.schema.metadata or {}).get(TEXTS, b"") != known_by.encode():
                raise ValueError("it was made of the texts of another segment")
            self.n_batches: int = reader.num_record_batches
        self._firsts: dict[int, str] = {}
        self._batches: dict[int, _Batch] = {}

    @functools.cached_property
    def lengths(self) -> Uints:
        """(rows,) how many terms each row has."""
        found = np.zeros(self._n_rows, np.uint32)
        if self.n_batches:
            postings = self.find(LENGTHS)
            if postings is None:
                raise damaged(self._path, "it has no lengths of rows")
            found[postings.rows] = postings.counts
        return found

    def find(self, term: str) -> TermPostings | None:
        """The rows of a term, None if no row has it."""
        with reading(self._path):
            _ = self._in_order
            batch = bisect.bisect_right(range(self.n_batches), term, key=self._first) - 1
            return self._batch(batch).get(term) if batch >= 0 else None

    def read_all(self) -> None:
        """Read and check everything, also across batches."""
        with reading(self._path):
            self._check_batches()

    @functools.cached_property
    def _in_order(self) -> bool:
        """Checked where there are few batches: whether a term can only be in the batch that is looked into."""
        if self.n_batches <= _ORDERED_BATCHES:
            for number in range(1, self.n_batches):
                if self._first(number) <= self._first(number - 1):
                    raise ValueError(f"the terms of batch {number} do not follow those before")
        return True

    def _check_batches(self) -> None:
        lengths = np.zeros(self._n_rows, np.int64)
        before: str | None = None
        for number in range(self.n_batches):
            batch = self._batch(number)
            if before is not None and batch.terms[0].as_py() <= before:
                raise ValueError(f"the terms of batch {number} do not follow those before")
            before = batch.terms[-1].as_py()
            for place in range(len(batch.terms)):
                if not batch.terms[place].as_py().startswith(NAME) and (number or place):
                    found = batch.postings(place)
                    lengths[found.rows] += found.counts
        if not np.array_equal(lengths, self.lengths):
            raise ValueError("its counts do not add up to the lengths of the rows")

    def _reader(self, fields: list[int] | None = None) -> Any:
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        return pa.ipc.open_file(pa.BufferReader(self._data), options=options)

    def _first(self, number: int) -> str:
        """The first term of a batch."""
        if number not in self._firsts:
            terms = _checked(self._reader([0]), number).column(0)
            if not len(terms) or terms.null_count:
                raise ValueError(f"batch {number} is empty, or has empty cells")
            self._firsts[number] = terms[0].as_py()
        return self._firsts[number]

    def _batch(self, number: int) -> _Batch:
        found = self._batches.get(number)
        if found is None:
            found = _Batch(_checked(self._reader(), number), self._n_rows)
            if len(self._batches) >= _KEPT_BATCHES:
                self._batches = {}
            self._batches[number] = found
        return found


class _Batch:
    """Some terms with their postings, checked."""

    def __init__(self, batch: Any, n_rows: int) -> None:
        self.terms = batch.column(0)
        gaps, counts = batch.column(1), batch.column(2)
        self._offsets = numbers_of(gaps, "<i8", length=len(gaps) + 1)
        if not len(self.terms):
            raise ValueError("a batch is empty")
        if any(column.null_count for column in (self.terms, gaps, counts, gaps.values, counts.values)):
            raise ValueError("a batch has empty cells")
        if not np.array_equal(self._offsets, numbers_of(counts, "<i8", length=len(gaps) + 1)):
            raise ValueError("a term has more rows than counts, or fewer")
        if not (np.diff(self._offsets) > 0).all():
            raise ValueError("a term has no row")
        if compute("less", self.terms.slice(0, len(gaps) - 1), self.terms.slice(1)).false_count:
            raise ValueError("its terms are not sorted")
        self._gaps = numbers_of(gaps.values, "<u4")
        self._counts = numbers_of(counts.values, "<u4")
        self._n_rows = n_rows

    def get(self, term: str) -> TermPostings | None:
        place = bisect.bisect_left(range(len(self.terms)), term, key=lambda at: self.terms[at].as_py())
        return self.postings(place) if place < len(self.terms) and self.terms[place].as_py() == term else None

    def postings(self, place: int) -> TermPostings:
        part = slice(int(self._offsets[place]), int(self._offsets[place + 1]))
        gaps, counts = self._gaps[part], self._counts[part]
        rows = np.cumsum(gaps, dtype=np.int64) - 1
        if not gaps.all() or not counts.all() or rows[-1] >= self._n_rows:
            raise ValueError(f"the term {self.terms[place].as_py()!a} has rows or counts that cannot be")
        return TermPostings(rows, counts)


def _checked(reader: Any, number: int) -> Any:
    batch = reader.get_batch(number)
    batch.validate(full=True)
    return batch
