"""The segments of a commit: those that stay, those that are new, and small ones of similar size merged into one.

A part is a segment with its dead rows. `merged` copies the live rows of many small parts, and of those with many dead
rows, into new segments: columns in batches, vectors in blocks. `derived` makes the indexes of new segments, and their
postings where these are missing. The caller chooses the parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ragidx.corpora.errors import SpecError
from ragidx.indexer import atomic
from ragidx.indexer.ann.coding import write_codes
from ragidx.indexer.ann.faiss_files import Halves, are_zero, write
from ragidx.indexer.ann.index_types import padded
from ragidx.indexer.ann.prefixes import shortened
from ragidx.indexer.ann.tuning import OnStage, choose
from ragidx.indexer.arrays import Bools, Floats, bundles
from ragidx.indexer.lexical.spec import LexicalSpec, decided
from ragidx.indexer.store.entries import SegmentEntry
from ragidx.indexer.store.files import ANN, SEGMENTS, VECTORS
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.store.rows import COLUMNS, FieldKind, Schema, places_of
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.writing.lexical_files import MakePieces, lexical_entry, sample_texts
from ragidx.indexer.writing.live_kinds import live_kinds
from ragidx.indexer.writing.segment_writer import MAX_VECTOR_BYTES, NewSegments

SMALL_BYTES = 64 << 20  # of vectors: a segment below this is merged with others
MAX_SMALL = 16  # small segments in a commit, at most

FOLDED_SHARE = 1 / 3  # of the rows, dead: a segment with more is copied without them by a commit that may do so much
FOLDED_BYTES = 16 << 20  # of vectors that a commit copies for it in any case: a few seconds, with the index of these
FOLDED_ROWS = 4  # for each row that the commit adds or deletes

COPYING = "copying rows"

_GROUP_BATCHES = 16  # record batches that are copied at once, at most
_GROUP_BYTES = 16 << 20  # of their columns: no batch is added to so many


Convert: TypeAlias = Callable[[Floats], Floats]
"""Stored vectors (n, d) float32 -> new ones (n, k) of unit length."""


class SegmentState(NamedTuple):
    """A segment with its dead rows, (rows,) or None; `fresh`: the present commit wrote it.

    `recall` is the least of segments of codes alone whose decoded rows it has; 1 where there are none.
    """

    entry: SegmentEntry
    dead: Bools | None
    fresh: bool = False
    recall: float = 1.0

    @property
    def n_live(self) -> int:
        """How many rows are alive."""
        return self.entry.rows - (0 if self.dead is None else int(self.dead.sum()))


def memory_bytes(segment: SegmentEntry) -> int:
    """Bytes that a search in a segment reads: its vectors, or only the codes made of them."""
    codes = segment.ann is not None and segment.ann.recipe.links is None
    return sum(entry.bytes for name, entry in segment.files.items() if name == ANN or (name == VECTORS and not codes))


def is_small(entry: SegmentEntry, dim: int) -> bool:
    """Whether a segment is small enough to be merged."""
    return 2 * dim * entry.rows < SMALL_BYTES


def is_full(entry: SegmentEntry, dim: int) -> bool:
    """Whether a segment holds as many vectors as one may."""
    return 2 * dim * entry.rows >= MAX_VECTOR_BYTES


def merged(
    folder: Path,
    parts: Sequence[SegmentState],
    new: NewSegments,
    dim: int,
    schema: Schema,
    on_stage: OnStage,
    folded: Collection[str] = (),
) -> list[SegmentState]:
    """The parts; if more than `MAX_SMALL` of them are small, the smallest of these are merged, and those `folded`.

    So a row of 100,000 that came one by one is copied some six times, and a commit of one row does not copy a segment
    of many: that waits until those below it have as many rows.
    """
    chosen = set(folded)
    for has_vectors in (True, False):  # what is decoded and coded again loses a little: by few rows never
        alike = (one for one in parts if is_small(one.entry, dim) and one.entry.has_vectors == has_vectors)
        small = sorted(alike, key=lambda part: part.n_live)
        if len(small) > MAX_SMALL:
            chosen |= {part.entry.id for part in small[: similar([part.n_live for part in small])]}
    if not chosen:
        return list(parts)
    sources = [part for part in parts if part.entry.id in chosen]
    opened = [(Segment(folder / SEGMENTS / part.entry.id, part.entry, dim, schema), part.dead) for part in sources]
    made = copied(opened, new, dim, on_stage)
    for part in sources:
        if part.fresh:
            atomic.remove(folder / SEGMENTS / part.entry.id)
    recall = recall_of(part.entry for part in sources)
    copies = [SegmentState(entry, None, True, recall) for entry in made]
    return [part for part in parts if part.entry.id not in chosen] + copies


def recall_of(entries: Iterable[SegmentEntry]) -> float:
    """The least recall of those that keep codes alone; 1 where none does."""
    return min((one.ann.recall for one in entries if one.ann is not None and not one.has_vectors), default=1.0)


def foldable(parts: Sequence[SegmentState], dim: int, n_changed: int) -> list[str]:
    """The ids of segments with many dead rows that a commit copies without them, those with the most dead first.

    What it copies is bounded by what it changes. A segment that is too large for one commit stays: questions cost no
    more there, and `compact` rewrites it.

    Args:
        parts: the segments of the commit.
        dim: width of the vectors.
        n_changed: rows that the commit adds or deletes.
    """
    left = FOLDED_BYTES // (2 * dim) + FOLDED_ROWS * n_changed
    found = []
    for part in sorted(parts, key=lambda part: part.n_live / part.entry.rows):
        if not part.entry.has_vectors:
            continue  # its rows would be decoded and coded again
        if part.entry.rows - part.n_live > FOLDED_SHARE * part.entry.rows and part.n_live <= left:
            left -= part.n_live
            found.append(part.entry.id)
    return found


def similar(rows: Sequence[int]) -> int:
    """How many of some segments, by their rows in ascending order, are merged: two, and each no larger than all before.

    >>> similar([1, 1, 2, 5, 90]), similar([1, 1, 1, 1, 4, 8, 90])
    (3, 6)
    """
    count, total = 2, sum(rows[:2])
    while count < len(rows) and rows[count] <= total:
        count, total = count + 1, total + rows[count]
    return count


def derived(
    folder: Path,
    parts: Sequence[SegmentState],
    draft: Manifest,
    on_stage: OnStage,
    make_pieces: MakePieces | None,
    opened: Sequence[Segment] = (),
) -> tuple[list[SegmentState], LexicalSpec | None]:
    """The parts, with the indexes of the new ones made, and the lexical spec, with postings by it in every part.

    The new ones share the memory that the others leave, by their rows. The names of all files last then. Arguments and
    errors are those of `commit.publish`.
    """
    options, dim = draft.index, draft.dim
    taken = sum(memory_bytes(part.entry) for part in parts if not part.fresh)
    limits = iter(shares([part.entry.rows for part in parts if part.fresh], options.max_memory, taken))
    known, segments = {segment.entry.id: segment for segment in opened}, []
    for part in parts:
        entry = part.entry
        if part.fresh:
            entry = _indexed(folder / SEGMENTS / entry.id, part, draft, next(limits), on_stage)
        same = known.get(entry.id)
        if same is None or (same.entry, same.schema) != (entry, draft.schema):
            same = Segment(folder / SEGMENTS / entry.id, entry, dim, draft.schema)
        segments.append(same)
    spec = decided(options.lexical, draft.lexical, lambda: sample_texts(segments))
    keep = spec == draft.lexical
    made = []
    for part, segment in zip(parts, segments, strict=True):
        entry = lexical_entry(
            segment, spec, draft.generation, on_stage, keep=keep, dead=part.dead, make_pieces=make_pieces
        )
        made.append(part._replace(entry=entry))
    changed = [part for part, before in zip(made, parts, strict=True) if before.fresh or part.entry != before.entry]
    for part in changed:
        atomic.sync_folder(folder / SEGMENTS / part.entry.id)
    if changed:
        atomic.sync_folder(folder / SEGMENTS)
    return made, spec


def _indexed(
    folder: Path, part: SegmentState, draft: Manifest, max_memory: int | None, on_stage: OnStage
) -> SegmentEntry:
    """A new segment with its index, made and written beside the vectors; `max_memory` is what this one may take."""
    entry = part.entry
    if draft.index.codes_only:
        return _coded(folder, part, draft, max_memory, on_stage)
    made = choose(folder / VECTORS, padded(draft.dim), entry.rows, draft.index, max_memory, on_stage)
    if made is None:
        return entry
    index, repeats, measured = made
    with atomic.create(folder / ANN) as file:
        write(index, file.write)
        if repeats is not None:
            file.write(repeats.to_bytes())
    return dataclasses.replace(entry, files={**entry.files, ANN: file.entry}, ann=measured)


def _coded(
    folder: Path, part: SegmentState, draft: Manifest, max_memory: int | None, on_stage: OnStage
) -> SegmentEntry:
    """A new segment with its codes in place of its vectors, where it has rows enough.

    Of rows that were decoded, the recall that they had counts, too: measured is only what coding them again loses.
    """
    entry, vectors = part.entry, folder / VECTORS
    made = write_codes(folder / ANN, vectors, draft.dim, entry.rows, draft.index, max_memory, on_stage)
    if made is None:
        return entry
    atomic.remove(vectors)
    files = {name: file for name, file in entry.files.items() if name != VECTORS}
    zero = made.zero if entry.zeros else None
    tuned = dataclasses.replace(made.tuned, recall=made.tuned.recall * part.recall)
    return dataclasses.replace(entry, files={**files, ANN: made.file}, ann=tuned, zero=zero)


def shares(parts: Sequence[int], max_memory: int | None, taken: int = 0) -> list[int | None]:
    """The memory that each new segment may take: what the others leave, shared by rows.

    Args:
        parts: rows of each new segment.
        max_memory: bytes that all segments may take together; None: no limit.
        taken: bytes that the others take.

    >>> shares([300, 100], 1000, taken=200)
    [600, 200]
    """
    total = sum(parts)
    return [None if max_memory is None else max(0, (max_memory - taken) * rows // total) for rows in parts]


def copied(
    sources: Sequence[tuple[Segment, Bools | None]],
    new: NewSegments,
    dim: int,
    on_stage: OnStage,
    convert: Convert | None = None,
) -> list[SegmentEntry]:
    """Copy the live rows of some segments into new ones, in their order.

    Args:
        sources: segments, each with its dead rows.
        new: the segments that are written; finished at the end.
        dim: width of the new vectors; wider ones are cut and normalised to unit length.
        on_stage: called with the number of rows, and how many are copied.
        convert: function that makes the new vectors of some rows; None: they are cut.

    Raises:
        SpecError: the part of a vector that would be kept is zero.
        RagidxError: the disk is full or failed.
    """
    before, total, done = len(new.made), sum(segment.entry.rows for segment, _ in sources), 0
    try:
        kinds = sorted(live_kinds(sources))
        for segment, dead in sources:
            for rows in _copy(segment, dead, new, kinds, dim, convert):
                done += rows
                on_stage(COPYING, total, done)
        new.finish()
    except BaseException:
        new.abort()
        raise
    return new.made[before:]


def _copy(
    segment: Segment,
    dead: Bools | None,
    new: NewSegments,
    kinds: Sequence[FieldKind],
    dim: int,
    convert: Convert | None,
) -> Iterator[int]:
    """Copy the live rows of one segment; gives the number of rows that were read, block by block."""
    first = 0
    for group in _groups(segment.batches(COLUMNS.names, kinds=kinds)):
        table = pa.Table.from_batches(group)
        block = len(table)
        alive = np.arange(block) if dead is None else np.flatnonzero(~dead[first : first + block])
        if len(alive) < block:
            table = table.take(places_of(alive))
        if len(alive):
            codes = segment.halves(first + alive)[:, : segment.dim]
            made = _cut(codes, dim, table) if convert is None else convert(codes.astype(np.float32)).astype("<f2")
            new.writer().add_table(table, kinds, made)
            segment.release_pages(first, block)
        first += block
        yield block


def _cut(codes: Halves, dim: int, table: Any) -> Halves:
    """The vectors of some rows at the new width."""
    stored = codes.shape[1]
    if dim == stored:
        return codes
    narrow = shortened(codes.astype(np.float32), dim)
    empty = np.flatnonzero(~narrow.any(axis=1) & ~are_zero(codes))
    if len(empty):
        raise SpecError(
            f"the first {dim} of {stored} dimensions of a vector are all zero",
            "keep more dimensions",
            where=f"chunk {table.column('chunk_id')[int(empty[0])].as_py()}",
        )
    return narrow.astype("<f2")


def _groups(batches: Iterable[Any]) -> Iterator[list[Any]]:
    """Record batches that are copied at once: few where the texts are long."""
    return bundles(batches, lambda batch: int(batch.nbytes), _GROUP_BYTES, _GROUP_BATCHES)
