"""Writing postings: the pieces of consecutive blocks in, one file out, in bounded memory.

blocks of rows -> runs: the postings of a block by term -> merged by term -> the file

Runs are in a temporary file beside the segment's, and 32 of them are merged into a longer one; a segment of one block
needs none. The file is the same however the rows were divided.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ragidx.indexer import atomic
from ragidx.indexer.atomic import FileEntry, NewFile
from ragidx.indexer.lexical.blocks import PostingsPiece, piece_of, record_batch
from ragidx.indexer.lexical.postings import SCHEMA, TEXTS

_BATCH_POSTINGS = 1 << 14  # a question reads a batch for each of its terms
_BATCH_TERMS = 1 << 12
_RUN_TERMS = 1 << 10  # of each run that are merged at once, at most
_RUN_CHARS = 1 << 14  # of those terms
_RUNS = 32  # that are merged into one


def write_postings(path: Path, pieces: Iterable[PostingsPiece], known_by: str = "") -> FileEntry:
    """Write the file of a segment.

    Args:
        path: place of the file; its folder exists.
        pieces: postings of all its rows, in their order.
        known_by: what the texts are known by; `Postings` asks for the same.

    Raises:
        RagidxError: the disk is full or failed.
    """
    with _Runs(path) as runs:
        for piece in pieces:
            runs.add(piece)
        with atomic.create(path) as file:
            schema = SCHEMA.with_metadata({TEXTS: known_by})
            options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
            with pa.ipc.new_file(file, schema, options=options) as target:
                for batch in _batches(_merged(runs.in_order()), schema):
                    target.write_batch(batch)
        return file.entry


class _Runs:
    """Pieces, the last one in memory and the others in a temporary file, which goes at the end of the `with` block."""

    def __init__(self, path: Path) -> None:
        self._temporary = path.with_name(f".{path.name}.{atomic.unique()}{atomic.TEMPORARY}")
        self._last: PostingsPiece | None = None
        self._spilled: NewFile | None = None
        self._levels: list[list[tuple[int, int]]] = []  # the runs in it; 32 of a level make one of the next

    def __enter__(self) -> _Runs:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spilled is not None:
            self._spilled.close()
            atomic.remove(self._temporary)

    def add(self, piece: PostingsPiece) -> None:
        """Take the postings of the next rows."""
        if self._last is not None:
            self._spill(iter([self._last]), 0)
        self._last = piece

    def in_order(self) -> list[Iterator[PostingsPiece]]:
        """The runs, the first rows first."""
        runs = [self._read(run) for level in reversed(self._levels) for run in level]
        return [*runs, iter([] if self._last is None else [self._last])]

    def _spill(self, pieces: Iterator[PostingsPiece], level: int) -> None:
        """Write a run to the temporary file, a stream of record batches; merge runs where there are many."""
        if self._spilled is None:
            self._spilled = NewFile(self._temporary)
        first = self._spilled.tell()
        with pa.ipc.new_stream(self._spilled, SCHEMA) as target:
            for piece in pieces:
                for part in _cut(piece):
                    target.write_batch(record_batch(part.terms, part.sizes, part.rows, part.counts, SCHEMA))
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append((first, self._spilled.tell()))
        if len(self._levels[level]) == _RUNS:
            runs, self._levels[level] = self._levels[level], []
            self._spill(_merged([self._read(run) for run in runs]), level + 1)

    def _read(self, place: tuple[int, int]) -> Iterator[PostingsPiece]:
        """A run, batch by batch."""
        with atomic.writing(self._temporary), pa.memory_map(str(self._temporary)) as file:
            data = file.read_buffer().slice(place[0], place[1] - place[0])
        yield from map(piece_of, pa.ipc.open_stream(pa.BufferReader(data)))


def _cut(piece: PostingsPiece) -> Iterator[PostingsPiece]:
    """A piece in parts that are small enough to have one of each run in memory."""
    chars = np.cumsum([0, *map(len, piece.terms)])
    start = 0
    while start < len(piece.terms):
        stop = min(
            start + _RUN_TERMS,
            int(np.searchsorted(piece.ends, piece.ends[start] + _BATCH_POSTINGS, "right")) - 1,
            int(np.searchsorted(chars, chars[start] + _RUN_CHARS, "right")) - 1,
        )
        stop = max(start + 1, stop)
        yield piece.part(start, min(stop, len(piece.terms)))
        start = stop


def _merged(runs: Sequence[Iterator[PostingsPiece]]) -> Iterator[PostingsPiece]:
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


def _joined(parts: Sequence[PostingsPiece]) -> PostingsPiece:
    terms = sorted(set(itertools.chain.from_iterable(part.terms for part in parts)))
    rank = {term: number for number, term in enumerate(terms)}
    ranks = [np.array([rank[term] for term in part.terms], np.int64) for part in parts]
    every = np.concatenate([np.repeat(one, part.sizes) for one, part in zip(ranks, parts, strict=True)])
    order = np.argsort(every, kind="stable")
    return PostingsPiece(
        terms,
        np.bincount(every, minlength=len(terms)),
        np.concatenate([part.rows for part in parts])[order],
        np.concatenate([part.counts for part in parts])[order],
    )


def _batches(pieces: Iterable[PostingsPiece], schema: Any) -> Iterator[Any]:
    """Record batches of whole terms: at least one, more as long as they fit."""
    waiting: list[PostingsPiece] = []
    size = n_terms = 0
    for piece in pieces:
        start = 0
        while start < len(piece.terms):
            stop = int(np.searchsorted(piece.ends, piece.ends[start] + _BATCH_POSTINGS - size, "right")) - 1
            stop = min(stop, start + _BATCH_TERMS - n_terms)
            if stop <= start and size:
                yield _batch(waiting, schema)
                waiting, size, n_terms = [], 0, 0
                continue
            part = piece.part(start, max(start + 1, stop))
            waiting.append(part)
            size, n_terms, start = size + len(part.rows), n_terms + len(part.terms), start + len(part.terms)
    if waiting:
        yield _batch(waiting, schema)


def _batch(pieces: Sequence[PostingsPiece], schema: Any) -> Any:
    sizes = np.concatenate([piece.sizes for piece in pieces])
    rows = np.concatenate([piece.rows for piece in pieces]).astype(np.int64) + 1
    first = np.cumsum(sizes) - sizes
    gaps = np.diff(rows, prepend=0)
    gaps[first] = rows[first]
    terms = list(itertools.chain.from_iterable(piece.terms for piece in pieces))
    return record_batch(terms, sizes, gaps, np.concatenate([piece.counts for piece in pieces]), schema)
