"""The files of a segment that lexical and hybrid search read: postings, and the moments of the vectors.

Both are made of files that the segment has: a build, a merge and a compaction get them the same way, from the stored
texts and vectors, and no model is loaded for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ragidx.indexer import atomic
from ragidx.indexer.ann.index_types import padded
from ragidx.indexer.ann.making import read_blocks
from ragidx.indexer.ann.moments import moments_of, most_beside, wants_moments
from ragidx.indexer.ann.tuning import OnStage
from ragidx.indexer.arrays import Bools, Ints, slices
from ragidx.indexer.lexical.analyzer import Analyzer
from ragidx.indexer.lexical.blocks import PostingsPiece, blocks
from ragidx.indexer.lexical.postings_writer import write_postings
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store.entries import SegmentEntry
from ragidx.indexer.store.files import VECTORS, lexical_name, moments_name
from ragidx.indexer.store.rows import META
from ragidx.indexer.store.segment import BATCH_ROWS, Segment

OnRows: TypeAlias = Callable[[int], None]
MakePieces: TypeAlias = Callable[[Segment, LexicalSpec, OnRows], Generator[PostingsPiece]]
"""Gives the postings of a segment's rows by a spec, in their order; the last argument is that of `pieces_of`."""

WORDS = "of words"

_PATH = f"{META}file.path"
_ENDING = re.compile(r"\.\w{1,8}$")
_BLOCK_ROWS = 16_384  # of vectors
_SAMPLE_BATCHES, _SAMPLE_ROWS, _SAMPLE_CHARS = 64, 16, 2_000


def sample_texts(segments: Sequence[Segment]) -> Iterator[str]:
    """Texts from all over some segments, to guess their language: a thousand at most, the beginning of each."""
    batches = [(segment, first) for segment in segments for first in range(0, segment.entry.rows, BATCH_ROWS)]
    for place in np.unique(np.linspace(0, len(batches) - 1, _SAMPLE_BATCHES).astype(np.int64)) if batches else ():
        segment, first = batches[place]
        rows = range(first, min(first + _SAMPLE_ROWS, segment.entry.rows))
        yield from (text[:_SAMPLE_CHARS] for text in segment.strings("text", rows))


def lexical_entry(
    segment: Segment,
    spec: LexicalSpec | None,
    generation: int,
    on_stage: OnStage,
    *,
    keep: bool,
    dead: Bools | None = None,
    make_pieces: MakePieces | None = None,
) -> SegmentEntry:
    """The entry of a segment with the files that a spec asks for, written and synced where they were missing.

    Args:
        segment: whole on the disk.
        spec: lexical spec of the index from now on; None: the segment has no such files.
        generation: number of the generation that is being made.
        on_stage: called with the number of rows, and how many are done.
        keep: whether postings that are there were made by this spec.
        dead: (rows,) which of its rows are dead; None: none.
        make_pieces: function that makes the postings; None: they are made in this process.

    Raises:
        RagidxError: the disk is full or failed.
    """
    entry, folder = segment.entry, segment.folder
    files = dict(entry.files)
    if entry.lexical is not None and (spec is None or not keep):
        del files[entry.lexical]  # on the disk it stays as long as an earlier generation names it
    if entry.moments is not None and spec is None:
        del files[entry.moments]
    if spec is None:
        return dataclasses.replace(entry, files=files)
    if entry.lexical not in files:
        path = folder / lexical_name(generation)
        files[path.name] = _write_words(segment, path, spec, on_stage, make_pieces)
    if (gone := _uncounted(segment, dead)) is not None:
        files.pop(str(entry.moments), None)
        files[moments_name(generation)] = _write_moments_without(segment, gone, generation)
    if entry.moments is None and wants_moments(entry.rows, segment.dim):
        files[moments_name(generation)] = _write_moments(segment, generation)
    return entry if files == entry.files else dataclasses.replace(entry, files=files)


def pieces_of(
    segment: Segment, analyzer: Analyzer, on_rows: OnRows, batches: range | None = None
) -> Generator[PostingsPiece]:
    """The postings of a segment's rows, from its stored texts.

    Args:
        segment: whole on the disk.
        analyzer: texts to terms.
        on_rows: called with the number of rows that were read since its last call.
        batches: batches of the file that are read; None: all.

    Raises:
        IndexFormatError: the texts are damaged.
    """
    paths = [_PATH] if _PATH.removeprefix(META) in segment.schema else []

    def texts() -> Iterator[tuple[str, str]]:
        for batch in segment.batches(["heading", "text", "doc_id", *paths], batches):
            columns = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
            whole = (f"{heading}\n{text}" if heading else text for heading, text in columns)
            yield from itertools.zip_longest(whole, _names(batch), fillvalue="")
            on_rows(len(batch))

    yield from blocks(texts(), analyzer, batches.start * BATCH_ROWS if batches else 0)


def _write_words(
    segment: Segment, path: Path, spec: LexicalSpec, on_stage: OnStage, make_pieces: MakePieces | None
) -> atomic.FileEntry:
    done = 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        on_stage(WORDS, segment.entry.rows, done)

    atomic.remove(path)  # of a commit that was killed
    made = make_pieces(segment, spec, report) if make_pieces else pieces_of(segment, spec.make_analyzer(), report)
    with contextlib.closing(made) as pieces:
        return write_postings(path, pieces, segment.entry.texts)


def _names(batch: Any) -> list[str]:
    """The path of each row whose document is a whole file, without its ending; empty for records."""
    if _PATH not in batch.schema.names:
        return []
    pairs = zip(batch.column("doc_id").to_pylist(), batch.column(_PATH).to_pylist(), strict=True)
    return [_ENDING.sub("", path) if path == doc_id else "" for doc_id, path in pairs]


def _write_moments(segment: Segment, generation: int) -> atomic.FileEntry:
    if segment.entry.has_vectors:
        read = read_blocks(segment.folder / VECTORS, padded(segment.dim), segment.entry.rows)
        blocks = (block[:, : segment.dim] for block in read)
    else:
        blocks = (segment.vectors(part) for part in slices(np.arange(segment.entry.rows), _BLOCK_ROWS))
    made = moments_of(blocks, segment.dim)
    return _write(segment.folder / moments_name(generation), made.to_bytes())


def _uncounted(segment: Segment, dead: Bools | None) -> Ints | None:
    """The dead rows that the moments of a segment count, if they are so many that questions would wait for them."""
    found = None if dead is None else segment.moments_of_live(dead)
    if found is None:
        return None
    _, beside = found
    return beside if len(beside) > most_beside(segment.dim) else None


def _write_moments_without(segment: Segment, gone: Ints, generation: int) -> atomic.FileEntry:
    """The moments of a segment without those of more rows."""
    assert segment.moments is not None
    blocks = (segment.vectors(part) for part in np.array_split(gone, -(-len(gone) // _BLOCK_ROWS)))
    made = segment.moments - moments_of(blocks, segment.dim)
    left_out = np.union1d(segment.left_out, gone).astype("<i4")
    return _write(segment.folder / moments_name(generation), made.to_bytes() + left_out.tobytes())


def _write(path: Path, data: bytes) -> atomic.FileEntry:
    atomic.remove(path)  # of a commit that was killed
    with atomic.create(path) as file:
        file.write(data)
    return file.entry
