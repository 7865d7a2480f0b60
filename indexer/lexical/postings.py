"""Postings: which rows of a segment hold a term, and how often. One file, written once.

    lexical-<generation>.arrow    Arrow IPC, zstd; a row a term, sorted by its UTF-8 bytes; 16 K postings a batch
        term    large_string, unique
        gaps    large_list<uint32>: the first row plus 1, then the distance to the row before; at least 1
        counts  large_list<uint32>: how often the term occurs in that row; at least 1

The empty term, which no text has, comes first: its rows are those with any term, its counts are their lengths in terms.
So the file needs no second table. The file belongs to one segment: row r is row r of its vectors. Every batch is
checked when it is read: a damaged file is an error, never a wrong answer.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragidx.corpora.errors import check_machine, first_line
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Ints, numbers_of
from ragidx.indexer.atomic import FileEntry, NewFile
from ragidx.indexer.damage import damaged
from ragidx.indexer.lexical.analyzer import Analyzer, tokens

LENGTHS = ""  # the term whose counts are the lengths of the rows

SCHEMA = pa.schema(
    [
        pa.field("term", pa.large_string(), nullable=False),
        pa.field("gaps", pa.large_list(pa.field("item", pa.uint32(), nullable=False)), nullable=False),
        pa.field("counts", pa.large_list(pa.field("item", pa.uint32(), nullable=False)), nullable=False),
    ]
)

_BATCH_POSTINGS = 1 << 14  # a question reads a batch for each of its terms
_BLOCK_TOKENS = 1 << 20  # held while a file is written: they are sorted in memory
_GATHERED = 1 << 22  # postings that are merged at once
_RECORD = np.dtype([("term", "<u4"), ("row", "<u4"), ("count", "<u4")])

Uints = NDArray[np.uint32]


class _Vocabulary(dict[str, int]):
    """Token -> number of its term; of several terms, -1 minus the place of their numbers in `several`."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._terms_of = analyzer.terms
        self.terms: dict[str, int] = {}
        self.several: list[list[int]] = []

    def __missing__(self, token: str) -> int:
        numbers = [self.terms.setdefault(term, len(self.terms)) for term in self._terms_of(token)]
        if len(numbers) == 1:
            found = numbers[0]
        else:
            self.several.append(numbers)
            found = -len(self.several)
        self[token] = found
        return found


class PostingsWriter:
    """Texts of consecutive rows in, a file out. A context manager: its temporary file goes at the end of the block.

    Memory: the segment's vocabulary, a million tokens, and four million postings while they are merged.

    Args:
        folder: where the temporary file may be.
        analyzer: texts to terms.
    """

    def __init__(self, folder: Path, analyzer: Analyzer) -> None:
        self._vocabulary = _Vocabulary(analyzer)
        self._numbers: list[int] = []  # of the terms of the rows since the last block
        self._ends: list[int] = []
        self._n_rows = 0
        self._sizes: list[int] = []  # postings of each block
        self._folder = folder
        with atomic.writing(folder):
            self._spilled = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> PostingsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._spilled.close()

    def add(self, texts: Iterable[str]) -> None:
        """The texts of the next rows."""
        for text in texts:
            self._numbers += map(self._vocabulary.__getitem__, tokens(text))
            self._ends.append(len(self._numbers))
            if len(self._numbers) >= _BLOCK_TOKENS:
                self._spill()

    def write(self, file: NewFile) -> None:
        """Write the postings of all rows."""
        self._spill()
        terms = sorted(self._vocabulary.terms, key=str.encode)
        rank = np.empty(len(terms) + 1, np.uint32)  # the empty term has the number 0 here and there
        rank[0] = 0
        rank[[self._vocabulary.terms[term] + 1 for term in terms]] = np.arange(1, len(terms) + 1)
        with pa.ipc.new_file(file, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as target:
            for batch in _batches([LENGTHS, *terms], self._ranked(rank)):
                target.write_batch(batch)

    def _spill(self) -> None:
        """Count the terms of the waiting rows, and write the postings to the temporary file, row by row."""
        lengths = np.diff(np.array([0, *self._ends]))
        rows = np.repeat(np.arange(self._n_rows, self._n_rows + len(lengths)), lengths)
        numbers = np.array(self._numbers, np.int64)
        several = np.flatnonzero(numbers < 0)
        if several.size:
            parts = [self._vocabulary.several[-1 - number] for number in numbers[several].tolist()]
            plain = numbers >= 0
            sizes = [len(part) for part in parts]
            rows = np.concatenate([rows[plain], np.repeat(rows[several], sizes)])
            numbers = np.concatenate([numbers[plain], np.array([one for part in parts for one in part], np.int64)])
        pairs, counts = np.unique((rows << 32) | (numbers + 1), return_counts=True)
        found = np.empty(len(pairs), _RECORD)
        found["row"], found["term"], found["count"] = pairs >> 32, pairs & 0xFFFFFFFF, counts
        filled, first = np.unique(found["row"], return_index=True)
        of_rows = np.empty(len(filled), _RECORD)  # the postings of the empty term
        of_rows["row"], of_rows["term"] = filled, 0
        of_rows["count"] = np.add.reduceat(counts, first) if len(first) else 0
        block = np.concatenate([of_rows, found])
        with atomic.writing(self._folder, block.nbytes):
            self._spilled.write(block.tobytes())
        self._sizes.append(len(block))
        self._n_rows += len(lengths)
        self._numbers, self._ends = [], []

    def _ranked(self, rank: Uints) -> Iterator[NDArray[Any]]:
        """The postings of all blocks by the ranks of their terms and by row, some millions at a time."""
        self._spilled.flush()
        total = sum(self._sizes)
        if not total:
            return
        stored = np.memmap(self._spilled, _RECORD, "r+", shape=(total,))
        sizes = np.zeros(len(rank), np.int64)
        starts = np.cumsum([0, *self._sizes])
        blocks = [stored[start:end] for start, end in itertools.pairwise(starts)]
        for block in blocks:
            ranks = rank[block["term"]]
            order = np.argsort(ranks, kind="stable")
            block[:] = block[order]
            block["term"] = ranks[order]
            sizes += np.bincount(block["term"], minlength=len(rank))
        ends = np.cumsum(sizes)
        places, first = [0] * len(blocks), 0
        while first < len(rank):
            before = int(ends[first - 1]) if first else 0
            after = max(first + 1, int(np.searchsorted(ends, before + _GATHERED, "right")))
            parts = []
            for number, block in enumerate(blocks):
                end = int(np.searchsorted(block["term"], after))
                parts.append(block[places[number] : end])
                places[number] = end
            gathered = np.concatenate(parts)
            yield gathered[np.argsort(gathered["term"], kind="stable")]
            first = after


def _batches(terms: Sequence[str], found: Iterable[NDArray[Any]]) -> Iterator[Any]:
    """Record batches of whole terms, from their postings in order."""
    for part in found:
        ranks, first, sizes = np.unique(part["term"], return_index=True, return_counts=True)
        rows = part["row"].astype(np.int64) + 1
        gaps = np.diff(rows, prepend=0)
        gaps[first] = rows[first]
        ends = np.append(first[1:], len(part))
        start = 0
        while start < len(ranks):
            # At least one term; more as long as they fit.
            after = max(start + 1, int(np.searchsorted(ends, first[start] + _BATCH_POSTINGS, "right")))
            chosen = slice(int(first[start]), int(ends[after - 1]))
            offsets = np.concatenate([[0], np.cumsum(sizes[start:after])])
            yield pa.record_batch(
                [
                    pa.array([terms[rank] for rank in ranks[start:after].tolist()], pa.large_string()),
                    _lists(offsets, gaps[chosen]),
                    _lists(offsets, part["count"][chosen]),
                ],
                schema=SCHEMA,
            )
            start = after


def _lists(offsets: Ints, values: NDArray[Any]) -> Any:
    """A list array; `pyarrow.array` of numpy arrays would import pandas, where that is installed."""
    numbers = pa.Array.from_buffers(
        pa.uint32(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.uint32))]
    )
    places = pa.py_buffer(np.ascontiguousarray(offsets, np.int64))
    return pa.LargeListArray.from_buffers(
        SCHEMA.field("gaps").type, len(offsets) - 1, [None, places], children=[numbers]
    )


class Found(NamedTuple):
    """The postings of a term: rows (n,), ascending, and counts (n,)."""

    rows: Ints
    counts: Uints


class Postings:
    """A file of postings, mapped. Batches are read, and checked, when they are needed.

    Args:
        path: of the file.
        n_rows: of the segment.

    Raises:
        IndexFormatError: the file is missing or damaged; so for each method.
    """

    def __init__(self, path: Path, n_rows: int) -> None:
        self._path, self._n_rows = path, n_rows
        with self._reading():
            with pa.memory_map(str(path)) as file:
                self._data = file.read_buffer()
            reader = self._reader()
            if reader.schema != SCHEMA:
                raise ValueError("its columns are not term, gaps and counts")
            self.n_batches: int = reader.num_record_batches

    @functools.cached_property
    def lengths(self) -> Uints:
        """(rows,) how many terms each row has."""
        found = np.zeros(self._n_rows, np.uint32)
        if (postings := self.find(LENGTHS)) is not None:
            found[postings.rows] = postings.counts
        return found

    def find(self, term: str) -> Found | None:
        """The rows of a term, None if no row has it."""
        low, high = 0, self.n_batches  # the batch is in [low, high)
        with self._reading():
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self._first(middle) <= term else (low, middle)
            return self._batch(low).get(term) if high else None

    def read_all(self) -> None:
        """Read and check everything, also across batches."""
        with self._reading():
            self._check_batches()

    def _check_batches(self) -> None:
        lengths = np.zeros(self._n_rows, np.int64)
        before: str | None = None
        for number in range(self.n_batches):
            batch = self._batch(number)
            if before is not None and batch.terms[0].as_py() <= before:
                raise ValueError(f"the terms of batch {number} do not follow those before")
            before = batch.terms[-1].as_py()
            for place in range(len(batch.terms)):
                if number or place:
                    found = batch.postings(place)
                    lengths[found.rows] += found.counts
        if not np.array_equal(lengths, self.lengths):
            raise ValueError("its counts do not add up to the lengths of the rows")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Name the file, where the block finds that it is damaged."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, MemoryError) as fault:  # MemoryError: a forged length
            check_machine(fault, self._path)
            raise damaged(self._path, first_line(fault)) from fault

    def _reader(self, fields: list[int] | None = None) -> Any:
        options = None if fields is None else pa.ipc.IpcReadOptions(included_fields=fields)
        return pa.ipc.open_file(pa.BufferReader(self._data), options=options)

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - as long as the file is open
    def _first(self, number: int) -> str:
        terms = _checked(self._reader([0]), number).column(0)
        if not len(terms):
            raise ValueError(f"batch {number} is empty")
        first: str = terms[0].as_py()
        return first

    @functools.lru_cache(maxsize=256)  # noqa: B019
    def _batch(self, number: int) -> _Batch:
        return _Batch(_checked(self._reader(), number), self._n_rows)


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
        if not pc.all(pc.less(self.terms.slice(0, len(gaps) - 1), self.terms.slice(1)), min_count=0).as_py():
            raise ValueError("its terms are not sorted")
        self._gaps = numbers_of(gaps.values, "<u4")
        self._counts = numbers_of(counts.values, "<u4")
        self._n_rows = n_rows

    def get(self, term: str) -> Found | None:
        place = bisect.bisect_left(range(len(self.terms)), term, key=lambda at: self.terms[at].as_py())
        return self.postings(place) if place < len(self.terms) and self.terms[place].as_py() == term else None

    def postings(self, place: int) -> Found:
        part = slice(int(self._offsets[place]), int(self._offsets[place + 1]))
        gaps, counts = self._gaps[part], self._counts[part]
        rows = np.cumsum(gaps, dtype=np.int64) - 1
        if not gaps.all() or not counts.all() or rows[-1] >= self._n_rows:
            raise ValueError(f"the term {self.terms[place].as_py()!a} has rows or counts that cannot be")
        return Found(rows, counts)


def _checked(reader: Any, number: int) -> Any:
    batch = reader.get_batch(number)
    batch.validate(full=True)
    return batch


def write_postings(path: Path, texts: Iterable[Iterable[str]], analyzer: Analyzer) -> FileEntry:
    """Write the file of a segment.

    Args:
        path: of the file; its folder exists.
        texts: of the rows in order, in parts.
        analyzer: texts to terms.

    Raises:
        RagidxError: the disk is full or failed.
    """
    with PostingsWriter(path.parent, analyzer) as writer:
        for part in texts:
            writer.add(part)
        with atomic.create(path) as file:
            writer.write(file)
    return file.entry
