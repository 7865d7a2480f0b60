"""The files of a segment that lexical and hybrid search read: postings, and the moments of the vectors.

Both are made of files that the segment has: a build, a merge, a compaction and an index of an older format get them
the same way, from the stored texts, and no model is loaded for it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.indexer import atomic
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.faiss_files import VECTORS
from ragidx.indexer.ann.moments import moments_of, wants_moments
from ragidx.indexer.ann.tuning import OnStage
from ragidx.indexer.lexical.postings_writer import PostingsWriter
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store.entries import (
    LEXICAL,
    MOMENTS,
    SegmentEntry,
    kind_of_file,
    lexical_name,
    moments_name,
    stored_width,
)
from ragidx.indexer.store.rows import META
from ragidx.indexer.store.segment import BATCH_ROWS, Segment

WORDS = "of words"

_PATH = f"{META}file.path"
_ENDING = re.compile(r"\.\w{1,8}$")
_SAMPLE_BATCHES, _SAMPLE_ROWS, _SAMPLE_CHARS = 64, 16, 2_000


def sample_texts(segments: Sequence[Segment]) -> Iterator[str]:
    """Texts from all over some segments, to guess their language: a thousand at most, the beginning of each."""
    batches = [(segment, first) for segment in segments for first in range(0, segment.entry.rows, BATCH_ROWS)]
    for place in np.unique(np.linspace(0, len(batches) - 1, _SAMPLE_BATCHES).astype(np.int64)) if batches else ():
        segment, first = batches[place]
        rows = range(first, min(first + _SAMPLE_ROWS, segment.entry.rows))
        yield from (text[:_SAMPLE_CHARS] for text in segment.strings("text", rows))


def lexical_entry(
    segment: Segment, spec: LexicalSpec | None, generation: int, on_stage: OnStage, *, keep: bool
) -> SegmentEntry:
    """The entry of a segment with the files that a spec asks for, written and synced where they were missing.

    Args:
        segment: whole on the disk.
        spec: of the index from now on; None: the segment has no such files.
        generation: that is being made.
        on_stage: called with the number of rows, and how many are done.
        keep: whether postings that are there were made by this spec.

    Raises:
        RagidxError: the disk is full or failed.
    """
    entry, folder = segment.entry, segment.folder
    files = dict(entry.files)
    stale = {LEXICAL} if spec is not None and not keep else set() if spec is not None else {LEXICAL, MOMENTS}
    for name in [name for name in files if kind_of_file(name) in stale]:
        del files[name]  # on the disk it stays as long as an earlier generation names it
    if spec is None:
        return dataclasses.replace(entry, files=files)
    before = set(files)
    if entry.lexical not in files:
        files[lexical_name(generation)] = _write_postings(segment, folder / lexical_name(generation), spec, on_stage)
    if entry.moments not in files and wants_moments(entry.rows, segment.dim):
        files[moments_name(generation)] = _write_moments(segment, folder / moments_name(generation))
    if set(files) != before:
        atomic.sync_folder(folder)
    return dataclasses.replace(entry, files=files)


def _write_postings(segment: Segment, path: Path, spec: LexicalSpec, on_stage: OnStage) -> atomic.FileEntry:
    rows, done = segment.entry.rows, 0
    atomic.remove(path)  # of a commit that was killed
    with PostingsWriter(path, spec.make_analyzer(), segment.entry.texts) as writer:
        paths = [_PATH] if _PATH.removeprefix(META) in segment.schema else []
        for batch in segment.batches(["heading", "text", "doc_id", *paths]):
            headings, texts = batch.column(0).to_pylist(), batch.column(1).to_pylist()
            searched = (
                f"{heading}\n{text}" if heading else text for heading, text in zip(headings, texts, strict=True)
            )
            writer.add(searched, _names(batch))
            done += len(texts)
            on_stage(WORDS, rows, done)
        return writer.write()


def _names(batch: Any) -> list[str]:
    """The path of each row whose document is a whole file, without its ending; empty for records."""
    if _PATH not in batch.schema.names:
        return []
    pairs = zip(batch.column("doc_id").to_pylist(), batch.column(_PATH).to_pylist(), strict=True)
    return [_ENDING.sub("", path) if path == doc_id else "" for doc_id, path in pairs]


def _write_moments(segment: Segment, path: Path) -> atomic.FileEntry:
    entry = segment.entry
    width = stored_width(entry, segment.dim)
    blocks = ann.read_blocks(segment.folder / VECTORS, width, entry.rows)
    made = moments_of((block[:, : segment.dim] for block in blocks), segment.dim)
    atomic.remove(path)
    with atomic.create(path) as file:
        file.write(made.to_bytes())
    return file.entry
