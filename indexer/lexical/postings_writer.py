"""Writing postings: texts and names of consecutive rows in, one file out, in bounded memory.

texts -> tokens -> blocks of some 100,000 -> runs: the postings of a block by term -> merged by term -> the file

A block ends when it has many tokens or many different ones, so that memory depends neither on the number of rows nor on
the number of different words. Runs are in a temporary file beside the segment's, and 32 of them are merged into a
longer one; a segment of one block needs none.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragidx.indexer import atomic
from ragidx.indexer.arrays import Ints, numbers_of
from ragidx.indexer.atomic import FileEntry, NewFile
from ragidx.indexer.lexical.analyzer import Analyzer, tokens
from ragidx.indexer.lexical.postings import LENGTHS, NAME, SCHEMA, TEXTS, Uints

_BATCH_POSTINGS = 1 << 14  # a question reads a batch for each of its terms
_BLOCK_TOKENS = 1 << 18  # held until they are sorted
_BLOCK_CHARS = 1 << 20  # of different tokens
_BATCH_TERMS = 1 << 12
_RUN_TERMS = 1 << 10  # of each run that are merged at once, at most
_RUN_CHARS = 1 << 14  # of those terms
_RUNS = 32  # that are merged into one
_CACHED = 1 << 16  # tokens whose terms are kept from block to block
_CACHED_CHARS = 40  # of such a token


@dataclass
class _Piece:
    """Some terms, rising, and their postings: `sizes[i]` rows and counts of `terms[i]`, one term after the other."""

    terms: list[str]
    sizes: Ints
    rows: Uints
    counts: Uints

    def split(self, last: str) -> tuple[_Piece, _Piece]:
        """The terms up to `last`, and the others."""
        at = bisect.bisect_right(self.terms, last)
        end = int(self.sizes[:at].sum())
        parts = (slice(None, at), slice(None, end)), (slice(at, None), slice(end, None))
        before, behind = (
            _Piece(self.terms[names], self.sizes[names], self.rows[places], self.counts[places])
            for names, places in parts
        )
        return before, behind


class _Cache(dict[str, tuple[str, ...]]):
    """Token -> terms, of short tokens; emptied when it is full."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._terms_of = analyzer.terms

    def __missing__(self, token: str) -> tuple[str, ...]:
        found = self._terms_of(token)
        if len(token) <= _CACHED_CHARS:
            if len(self) >= _CACHED:
                self.clear()
            self[token] = found
        return found


class _Vocabulary(dict[str, int]):
    """Token -> number of its term in a block; of several terms, -1 minus the place of their numbers in `several`."""

    def __init__(self, cache: _Cache) -> None:
        self._cache = cache
        self.terms: dict[str, int] = {}
        self.several: list[list[int]] = []
        self.n_chars = 0

    def __missing__(self, token: str) -> int:
        mark = NAME if token.startswith(NAME) else ""
        numbers = [
            self.terms.setdefault(mark + term, len(self.terms)) for term in self._cache[token.removeprefix(NAME)]
        ]
        if len(numbers) == 1:
            found = numbers[0]
        else:
            self.several.append(numbers)
            found = -len(self.several)
        self[token] = found
        self.n_chars += len(token)
        return found


class PostingsWriter:
    """Texts of consecutive rows in, a file out. A context manager: its temporary file goes at the end of the block.

    Args:
        path: of the file.
        analyzer: texts to terms.
        texts: what the segment's texts are known by; the reader asks for the same.
    """

    def __init__(self, path: Path, analyzer: Analyzer, texts: str) -> None:
        self._path, self._texts = path, texts
        self._cache = _Cache(analyzer)
        self._begin_block()
        self._n_rows = 0
        self._temporary = path.with_name(f".{path.name}.{atomic.unique()}{atomic.TEMPORARY}")
        self._spilled: NewFile | None = None
        self._levels: list[list[tuple[int, int]]] = []  # the runs in it; 32 of a level make one of the next

    def __enter__(self) -> PostingsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spilled is not None:
            self._spilled.close()
            atomic.remove(self._temporary)

    def add(self, texts: Iterable[str], names: Iterable[str] = ()) -> None:
        """The texts of the next rows, and the names of as many of them; a row without words has no name."""
        for text, name in itertools.zip_longest(texts, names, fillvalue=""):
            if words := tokens(text):
                self._numbers += map(self._vocabulary.__getitem__, words)
                self._numbers += (self._vocabulary[NAME + token] for token in tokens(name))
            self._ends.append(len(self._numbers))
            if len(self._numbers) >= _BLOCK_TOKENS or self._vocabulary.n_chars >= _BLOCK_CHARS:
                self._spill(iter([self._block()]), 0)

    def write(self) -> FileEntry:
        """Write the file with the postings of all rows.

        Raises:
            RagidxError: the disk is full or failed.
        """
        last = self._block()
        with atomic.create(self._path) as file:
            schema = SCHEMA.with_metadata({TEXTS: self._texts})
            with pa.ipc.new_file(file, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as target:
                runs = [self._read(run) for level in reversed(self._levels) for run in level]  # the first rows first
                for batch in _batches(_merged([*runs, iter([last])]), schema):
                    target.write_batch(batch)
        return file.entry

    def _begin_block(self) -> None:
        self._vocabulary = _Vocabulary(self._cache)
        self._numbers: list[int] = []  # of the terms of the rows of this block
        self._ends: list[int] = []

    def _block(self) -> _Piece:
        """The postings of the rows since the last block, which ends here."""
        lengths = np.diff(np.array([0, *self._ends]))
        rows = np.repeat(np.arange(self._n_rows, self._n_rows + len(lengths)), lengths)
        numbers = np.array(self._numbers, np.int64)
        several = np.flatnonzero(numbers < 0)
        if several.size:
            parts = [self._vocabulary.several[-1 - number] for number in numbers[several].tolist()]
            plain = numbers >= 0
            rows = np.concatenate([rows[plain], np.repeat(rows[several], [len(part) for part in parts])])
            numbers = np.concatenate([numbers[plain], np.array(list(itertools.chain(*parts)), np.int64)])
        known = self._vocabulary.terms
        terms = sorted(known)  # by code points, which is the order of their UTF-8 bytes
        rank = np.empty(len(terms), np.int64)
        rank[[known[term] for term in terms]] = np.arange(1, len(terms) + 1)
        pairs, counts = np.unique((rank[numbers] << 32) | rows, return_counts=True)
        found, places = pairs & 0xFFFFFFFF, pairs >> 32
        of_text = np.array([not term.startswith(NAME) for term in ("", *terms)])[places]
        filled = np.bincount(found - self._n_rows, counts * of_text, minlength=len(lengths)).astype(np.int64)
        of_rows = np.flatnonzero(filled)
        self._n_rows += len(lengths)
        piece = _Piece(
            [LENGTHS, *terms],
            np.bincount(places, minlength=len(terms) + 1),
            np.concatenate([of_rows + self._n_rows - len(lengths), found]).astype(np.uint32),
            np.concatenate([filled[of_rows], counts]).astype(np.uint32),
        )
        piece.sizes[0] = len(of_rows)
        self._begin_block()
        return piece if len(of_rows) else _Piece([], piece.sizes[:0], piece.rows, piece.counts)

    def _spill(self, pieces: Iterator[_Piece], level: int) -> None:
        """Write a run to the temporary file, a stream of record batches; merge runs where there are many."""
        if self._spilled is None:
            self._spilled = NewFile(self._temporary)
        first = self._spilled.tell()
        with pa.ipc.new_stream(self._spilled, SCHEMA) as target:
            for piece in pieces:
                for part in _cut(piece):
                    target.write_batch(_record_batch(part.terms, part.sizes, part.rows, part.counts, SCHEMA))
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append((first, self._spilled.tell()))
        if len(self._levels[level]) == _RUNS:
            runs, self._levels[level] = self._levels[level], []
            self._spill(_merged([self._read(run) for run in runs]), level + 1)

    def _read(self, place: tuple[int, int]) -> Iterator[_Piece]:
        """A run, batch by batch."""
        with atomic.writing(self._temporary), pa.memory_map(str(self._temporary)) as file:
            data = file.read_buffer().slice(place[0], place[1] - place[0])
        for batch in pa.ipc.open_stream(pa.BufferReader(data)):
            rows, counts = batch.column(1), batch.column(2)
            sizes = np.diff(numbers_of(rows, "<i8", length=len(rows) + 1))
            yield _Piece(
                batch.column(0).to_pylist(), sizes, numbers_of(rows.values, "<u4"), numbers_of(counts.values, "<u4")
            )


def write_postings(path: Path, texts: Iterable[Iterable[str]], analyzer: Analyzer, known_by: str = "") -> FileEntry:
    """Write the file of a segment.

    Args:
        path: of the file; its folder exists.
        texts: of the rows in order, in parts.
        analyzer: texts to terms.
        known_by: what the texts are known by; `Postings` asks for the same.

    Raises:
        RagidxError: the disk is full or failed.
    """
    with PostingsWriter(path, analyzer, known_by) as writer:
        for part in texts:
            writer.add(part)
        return writer.write()


def _cut(piece: _Piece) -> Iterator[_Piece]:
    """A piece in parts that are small enough to have one of each run in memory."""
    ends = np.cumsum(piece.sizes)
    chars = np.cumsum([len(term) for term in piece.terms])
    start = 0
    while start < len(piece.terms):
        before, letters = (int(ends[start - 1]), int(chars[start - 1])) if start else (0, 0)
        after = min(
            start + _RUN_TERMS,
            int(np.searchsorted(ends, before + _BATCH_POSTINGS, "right")),
            int(np.searchsorted(chars, letters + _RUN_CHARS, "right")),
        )
        after = max(start + 1, after)
        part = slice(before, int(ends[after - 1]))
        yield _Piece(piece.terms[start:after], piece.sizes[start:after], piece.rows[part], piece.counts[part])
        start = after


def _merged(runs: Sequence[Iterator[_Piece]]) -> Iterator[_Piece]:
    """The terms of all runs, each once, with the rows of earlier runs first."""
    waiting = [(next(run, None), run) for run in runs]
    heads = [(piece, run) for piece, run in waiting if piece is not None and piece.terms]
    while len(heads) > 1:
        last = min(piece.terms[-1] for piece, _ in heads)  # what is not beyond it is complete
        parts, left = [], []
        for piece, run in heads:
            part, rest = piece.split(last)
            parts.append(part)
            follows = rest if rest.terms else next(run, None)
            if follows is not None:
                left.append((follows, run))
        yield _joined(parts)
        heads = left
    for piece, run in heads:
        yield piece
        yield from run


def _joined(parts: Sequence[_Piece]) -> _Piece:
    terms = sorted(set(itertools.chain.from_iterable(part.terms for part in parts)))
    rank = {term: number for number, term in enumerate(terms)}
    ranks = [np.array([rank[term] for term in part.terms], np.int64) for part in parts]
    every = np.concatenate([np.repeat(one, part.sizes) for one, part in zip(ranks, parts, strict=True)])
    order = np.argsort(every, kind="stable")
    return _Piece(
        terms,
        np.bincount(every, minlength=len(terms)),
        np.concatenate([part.rows for part in parts])[order],
        np.concatenate([part.counts for part in parts])[order],
    )


def _batches(pieces: Iterable[_Piece], schema: Any) -> Iterator[Any]:
    """Record batches of whole terms: at least one, more as long as they fit."""
    waiting: list[_Piece] = []
    size = n_terms = 0
    for piece in pieces:
        ends, start = np.cumsum(piece.sizes), 0
        while start < len(piece.terms):
            before = int(ends[start - 1]) if start else 0
            after = int(np.searchsorted(ends, before + _BATCH_POSTINGS - size, "right"))
            after = min(after, start + _BATCH_TERMS - n_terms)
            if after <= start and size:
                yield _batch(waiting, schema)
                waiting, size, n_terms = [], 0, 0
                continue
            after = max(start + 1, after)
            part = slice(before, int(ends[after - 1]))
            waiting.append(
                _Piece(piece.terms[start:after], piece.sizes[start:after], piece.rows[part], piece.counts[part])
            )
            size, n_terms = size + part.stop - part.start, n_terms + after - start
            start = after
    if waiting:
        yield _batch(waiting, schema)


def _batch(pieces: Sequence[_Piece], schema: Any) -> Any:
    sizes = np.concatenate([piece.sizes for piece in pieces])
    rows = np.concatenate([piece.rows for piece in pieces]).astype(np.int64) + 1
    first = np.cumsum(sizes) - sizes
    gaps = np.diff(rows, prepend=0)
    gaps[first] = rows[first]
    terms = list(itertools.chain.from_iterable(piece.terms for piece in pieces))
    return _record_batch(terms, sizes, gaps, np.concatenate([piece.counts for piece in pieces]), schema)


def _record_batch(terms: Sequence[str], sizes: Ints, rows: NDArray[Any], counts: NDArray[Any], schema: Any) -> Any:
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    columns = [_strings(terms), _lists(offsets, rows), _lists(offsets, counts)]
    return pa.record_batch(columns, schema=schema)


def _strings(terms: Sequence[str]) -> Any:
    """A string array; `pyarrow.array` would import pandas, where that is installed."""
    encoded = [term.encode() for term in terms]
    places = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(terms), pa.py_buffer(places), pa.py_buffer(b"".join(encoded)))


def _lists(offsets: Ints, values: NDArray[Any]) -> Any:
    """A list array, for the same reason by its buffers."""
    numbers = pa.Array.from_buffers(
        pa.uint32(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.uint32))]
    )
    places = pa.py_buffer(np.ascontiguousarray(offsets, np.int64))
    return pa.LargeListArray.from_buffers(
        SCHEMA.field("gaps").type, len(offsets) - 1, [None, places], children=[numbers]
    )
