"""Footprint: what an index would take on the disk and in memory.

    counts and a sample of rows -> bytes

Texts are measured: the sample is written as a segment, in a temporary folder. Vectors and indexes are computed segment
by segment (`index_types.footprint_of`). Memory is the most that this process has used, with the model loaded and texts
encoded, and what a build holds beyond that. What fits into `--max-memory` is the build's own choice (`tuning.fitting`).
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragidx.indexer.ann.index_types import IndexOptions, Recipe, footprint_of, padded
from ragidx.indexer.ann.moments import Moments, wants_moments
from ragidx.indexer.ann.tuning import fitting
from ragidx.indexer.arrays import slices
from ragidx.indexer.atomic import temporary_room
from ragidx.indexer.lexical.spec import decided
from ragidx.indexer.store.files import ANN, CHUNKS
from ragidx.indexer.store.manifest import files_of
from ragidx.indexer.store.rows import Row
from ragidx.indexer.store.segment import BATCH_ROWS, Segment
from ragidx.indexer.writing.lexical_files import lexical_entry, sample_texts
from ragidx.indexer.writing.merging import memory_bytes, shares
from ragidx.indexer.writing.segment_writer import MAX_TEXT_BYTES, MAX_VECTOR_BYTES, SegmentWriter
from ragidx.pipelines.base.resources import allowed_bytes
from ragidx.pipelines.ingest.encode import WINDOW_CHUNKS
from ragidx.pipelines.ingest.resolve import Resolved
from ragidx.retriever.models import FILTER_FILE

SAMPLE_ROWS = 32 * BATCH_ROWS  # that are compressed, to learn what rows take
_CHUNK_BYTES = 2048  # what Python holds of a chunk besides its text and vector
_RECORD_BYTES = 20  # of the journal, beside the vector
_SETTLED_BYTES = 16 << 20  # of columns, that a segment's writer holds at most


@dataclass(frozen=True)
class IndexFootprint:
    """What the index would take.

    Attributes:
        n_chunks: number of chunks in the index after the build, dead ones included.
        index_bytes: bytes of its files: the parts that follow, and some headers.
        vector_bytes: bytes of the stored vectors.
        ann_bytes: bytes of approximate indexes of them.
        text_bytes: bytes of the texts with their ids and metadata.
        lexical_bytes: bytes of the lexical part: which chunks have which words.
        filter_bytes: bytes of the filter.
        journal_bytes: bytes that are needed beside these until the build is committed.
        free_bytes: free bytes on the disk of the index.
        search_bytes: bytes of vectors and indexes that a search keeps reading.
        build_bytes: peak memory of the build, on the host.
        limit_bytes: memory that this process may use; None where nothing limits it.
        max_memory: memory that all vectors and indexes may take, as asked for; None: no limit.
    """

    n_chunks: int
    index_bytes: int
    vector_bytes: int
    ann_bytes: int
    text_bytes: int
    lexical_bytes: int
    filter_bytes: int
    journal_bytes: int
    free_bytes: int
    search_bytes: int
    build_bytes: int
    limit_bytes: int | None
    max_memory: int | None


@dataclass(frozen=True)
class Packed:
    """What a segment makes of a sample of rows.

    Attributes:
        ratio: bytes on the disk for each byte of text, in UTF-8; ids and metadata count as text.
        header_bytes: bytes of a segment's vectors, beside the vectors.
        seconds: seconds to pack a row.
        lexical_bytes: bytes of postings for each row.
        lexical_seconds: seconds to make them, for each row.
    """

    ratio: float
    header_bytes: int
    seconds: float
    lexical_bytes: float = 0.0
    lexical_seconds: float = 0.0


def pack(rows: Sequence[Row], dim: int, lexical: str) -> Packed:
    """Write the rows of a sample as a segment in a temporary folder, with vectors that are as wide as theirs.

    Raises:
        RagidxError: the temporary folder cannot be written.
    """
    if not rows:
        return Packed(0.0, 0, 0.0)
    started = time.perf_counter()
    vectors = np.zeros((BATCH_ROWS, dim), np.float32)
    vectors[:, 0] = 1
    with tempfile.TemporaryDirectory(prefix="ragidx-plan-") as place, temporary_room(Path(place)):
        writer = SegmentWriter(Path(place) / "segment", dim)
        for part in slices(rows, BATCH_ROWS):
            writer.add(part, vectors[: len(part)])
        entry = writer.finish()
        files, seconds = entry.files, time.perf_counter() - started
        segment = Segment(writer.folder, entry, dim, writer.schema)
        spec = decided(lexical, None, lambda: sample_texts([segment]))
        started = time.perf_counter()
        with_words = lexical_entry(segment, spec, 1, lambda *_: None, keep=True)
        postings = 0 if with_words.lexical is None else with_words.files[with_words.lexical].bytes
        header = sum(entry.bytes for name, entry in files.items() if name != CHUNKS) - 2 * padded(dim) * len(rows)
        return Packed(
            files[CHUNKS].bytes / max(1, sum(len(row.text.encode("utf-8", "surrogatepass")) for row in rows)),
            header,
            seconds / len(rows),
            postings / len(rows),
            (time.perf_counter() - started) / len(rows) if postings else 0.0,
        )


def first_recipes(resolved: Resolved, dim: int, *, n_new: int, text_bytes: int) -> list[tuple[int, Recipe | None]]:
    """Rows of each segment that a build adds, and what is made of its vectors first; None: they are compared whole.

    That a commit merges small segments is not counted.

    Raises:
        SpecError: nothing fits into `--max-memory`, in the words of the build.
    """
    parts = segments(n_new, dim, text_bytes // max(1, n_new))
    taken = 0 if resolved.stored is None else sum(map(memory_bytes, resolved.stored.manifest.segments))
    return list(zip(parts, recipes(resolved.index_options(), parts, dim, taken), strict=True))


def recipes(options: IndexOptions, parts: Sequence[int], dim: int, taken: int = 0) -> list[Recipe | None]:
    """What a build tries first for new segments of so many rows; `taken` bytes are of segments that stay.

    Raises:
        SpecError: nothing fits into `options.max_memory`.
    """
    limits = shares(parts, options.max_memory, taken)
    return [fitting(options, rows, padded(dim), limit)[0] for rows, limit in zip(parts, limits, strict=True)]


def footprint(
    resolved: Resolved,
    index: Path,
    dim: int,
    packed: Packed,
    new: Sequence[tuple[int, Recipe | None]],
    text_bytes: int,
) -> IndexFootprint:
    """What the index would take after the build that adds the segments `new`, with so many bytes of texts in them."""
    manifest = None if resolved.stored is None else resolved.stored.manifest
    old = () if manifest is None else manifest.segments
    n_new = sum(part for part, _ in new)
    n_rows = n_new + sum(segment.rows for segment in old)
    mean_text = text_bytes // max(1, n_new)
    new_text, new_words = round(packed.ratio * text_bytes), round(packed.lexical_bytes * n_new)
    prints = [footprint_of(recipe, part, padded(dim)) for part, recipe in new]
    filter_bytes = _filter_bytes(resolved, dim)
    return IndexFootprint(
        n_chunks=n_rows,
        index_bytes=(
            (filter_bytes if manifest is None else sum(entry.bytes for entry in files_of(manifest).values()))
            + sum(item.disk_bytes + packed.header_bytes for item in prints)
            + new_text
            + new_words
            + sum(Moments.n_bytes(dim) for part, _ in new if wants_moments(part, dim) and new_words)
        ),
        vector_bytes=2 * padded(dim) * n_rows,
        ann_bytes=(
            sum(item.disk_bytes for item in prints)
            - 2 * padded(dim) * n_new
            + sum(segment.files[ANN].bytes for segment in old if segment.ann is not None)
        ),
        text_bytes=new_text + sum(segment.files[CHUNKS].bytes for segment in old),
        lexical_bytes=new_words + sum(segment.files[segment.lexical].bytes for segment in old if segment.lexical),
        filter_bytes=filter_bytes,
        journal_bytes=(2 * dim + _RECORD_BYTES) * n_new,
        free_bytes=shutil.disk_usage(next(p for p in (index.absolute(), *index.absolute().parents) if p.exists())).free,
        search_bytes=sum(item.memory_bytes for item in prints) + sum(map(memory_bytes, old)),
        build_bytes=(
            peak_bytes()
            + _held(n_rows, n_new, dim, resolved.hidden, mean_text)
            + max((item.build_bytes for item in prints), default=0)
        ),
        limit_bytes=allowed_bytes(),
        max_memory=resolved.index_options().max_memory,
    )


def segments(rows: int, dim: int, mean_text: int) -> list[int]:
    """Rows of each segment, as the writer fills them.

    >>> segments(3_000_000, 512, 800)
    [2097152, 902848]
    """
    most = max(1, min(-(-MAX_VECTOR_BYTES // (2 * padded(dim))), -(-MAX_TEXT_BYTES // max(1, mean_text))))
    return [min(most, rows - start) for start in range(0, rows, most)]


def peak_bytes() -> int:
    """The most memory that this process has used so far."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _filter_bytes(resolved: Resolved, dim: int) -> int:
    """What the filter takes in the index; of one that is still to be fitted, its matrix."""
    if resolved.stored is not None:
        entry = resolved.stored.manifest.files.get(FILTER_FILE)
        return 0 if entry is None else entry.bytes
    return 4 * dim * resolved.hidden if resolved.wants_a_sample else len(resolved.blobs().get(FILTER_FILE, b""))


def _held(rows: int, n_new: int, dim: int, hidden: int, mean_text: int) -> int:
    """What a build holds besides model and batches: a window, columns not written yet, and the hashes of rows."""
    # Texts, their tokens, and float32 vectors before and after the filter
    window = min(WINDOW_CHUNKS, n_new) * (2 * mean_text + _CHUNK_BYTES + 4 * (hidden + 2 * dim))
    columns = min(_SETTLED_BYTES, (mean_text + 2 * dim) * n_new)
    return window + columns + 94 * rows  # 24 bytes a text hash and 70 a document, at most one for each row
