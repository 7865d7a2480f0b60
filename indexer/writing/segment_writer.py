"""Writing a segment: rows and their vectors in, a synced folder out. `store/segment` has the format.

vectors (n, dim) float32 of unit length, or zero where a text has none; they are rounded to float16. Both files grow on
the disk while rows come, so a segment may be larger than memory. Nothing is visible to readers until a manifest names
the folder. `writer` decides when a segment is full, and gives its id.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragidx.corpora.errors import ModelError, RagidxError
from ragidx.indexer import atomic
from ragidx.indexer.ann.faiss_files import HEADER_BYTES, Halves, are_zero, vectors_header
from ragidx.indexer.ann.index_types import padded
from ragidx.indexer.atomic import FileEntry, NewFile
from ragidx.indexer.store import rows
from ragidx.indexer.store.entries import SegmentEntry
from ragidx.indexer.store.files import CHUNKS, SEGMENTS, VECTORS, segment_id
from ragidx.indexer.store.rows import COLUMNS, KINDS, META, NORM_TOLERANCE, FieldKind, Row
from ragidx.indexer.store.segment import BATCH_ROWS

log = logging.getLogger("ragidx.indexer")

MAX_VECTOR_BYTES = 2 << 30  # of one segment: a graph is built in memory
MAX_TEXT_BYTES = 16 << 30

SETTLED_BYTES = 16 << 20  # of columns, held before the kinds of metadata are settled

_CODE_BYTES = 1 << 20  # of vectors, written at once
_ROW_BYTES = 64  # of what a row has besides its strings

Block = tuple[list[Any], dict[FieldKind, Any]]  # COLUMNS, and of metadata, of up to 256 rows


class SegmentWriter:
    """Rows in, a synced folder out. Call `finish` or `abort`.

    Memory: the columns of the first rows (16 MiB), until the kinds of metadata are settled. After that, rows with other
    fields, or values of other kinds, need another segment: `takes` says so.

    Args:
        folder: folder of the segment, which does not exist yet; its name becomes the id.
        dim: width of the vectors.
    """

    def __init__(self, folder: Path, dim: int) -> None:
        self.folder = folder
        self.kinds: set[FieldKind] = set()  # of the values in this segment
        self.n_rows = self.n_zeros = 0
        self.text_bytes = 0
        self._dim, self._width = dim, padded(dim)
        self._codes = bytearray()
        self._waiting: list[Row] = []
        self._part: Any = None  # a table of fewer than 256 rows, of those that came as columns
        self._blocks: list[Block] = []
        self._held_bytes = 0
        self._file: NewFile | None = None  # of the columns, from when the kinds are known
        self._columns: Any = None
        atomic.make_folder(folder.parent)
        with atomic.writing(folder):
            folder.mkdir()
        self._vectors = NewFile(folder / VECTORS, head=HEADER_BYTES)

    @property
    def schema(self) -> dict[str, str]:
        """The fields that occur in this segment."""
        return rows.schema_of(self.kinds)

    @property
    def vector_bytes(self) -> int:
        """Bytes of the vectors so far, as stored."""
        return 2 * self._width * self.n_rows

    def takes(self, new: Sequence[Row]) -> bool:
        """Whether rows fit the columns of the segment, once these are settled."""
        return self._file is None or rows.kinds_of(new) <= self.kinds

    def add(self, new: Sequence[Row], vectors: NDArray[np.float32]) -> None:
        """Append rows with their vectors (n, dim), of unit length or zero.

        Raises:
            ModelError: a vector is not finite or has another length; the message names the chunk.
            CorpusError: a string cannot be written as UTF-8.
            RagidxError: the disk is full or failed.
        """
        if vectors.shape != (len(new), self._dim):
            raise ValueError(f"vectors have the shape {vectors.shape}, not ({len(new)}, {self._dim})")
        _check_unit(new, vectors)
        self._add_codes(vectors.astype("<f2"))
        for row in new:
            text_bytes = len(row.text.encode("utf-8", "surrogatepass"))
            self.text_bytes += text_bytes
            self._held_bytes += _ROW_BYTES + text_bytes + len(row.chunk_id) + len(row.doc_id) + len(row.heading)
            self._waiting.append(row)
            if len(self._waiting) == BATCH_ROWS:
                self._pack()

    def add_table(self, table: Any, kinds: Sequence[FieldKind], codes: Halves) -> None:
        """Append rows of other segments as they are stored: COLUMNS, those of `kinds`, and vectors (n, dim).

        The kinds of the first call are settled; do not mix this with `add`.
        """
        self.kinds |= set(kinds)
        self._add_codes(codes)
        self.text_bytes += table.column("text").nbytes
        self._part = table if self._part is None else pa.concat_tables([self._part, table])
        whole = len(self._part) - len(self._part) % BATCH_ROWS
        self._take(self._part.slice(0, whole))
        self._part = self._part.slice(whole)

    def finish(self) -> SegmentEntry:
        """Write and sync the files; nothing is visible to readers until a manifest names it.

        `merging.derived` syncs their names, with those of the files that it adds.
        """
        if self._waiting:
            self._pack()
        if self._part is not None:
            self._take(self._part)
        if self._columns is None:
            self._settle()
        assert self._file is not None
        self._columns.close()
        self._write_codes()
        self._vectors.put_head(vectors_header(self._width, self.n_rows))
        files = {CHUNKS: _closed(self._file), VECTORS: _closed(self._vectors)}
        log.debug("%s: a segment of %d rows is written", self.folder, self.n_rows)
        return SegmentEntry(self.folder.name, self.n_rows, files, zeros=self.n_zeros)

    def abort(self) -> None:
        """Remove what was written."""
        for file in (self._file, self._vectors):
            if file is not None:
                with contextlib.suppress(RagidxError):
                    file.close()
        atomic.remove(self.folder)

    def _add_codes(self, codes: Halves) -> None:
        filled = np.pad(codes, ((0, 0), (0, self._width - self._dim))) if self._width > self._dim else codes
        filled = np.ascontiguousarray(filled)
        self._codes += filled.tobytes()
        self.n_rows += len(codes)
        self.n_zeros += int(np.count_nonzero(are_zero(filled)))
        if len(self._codes) >= _CODE_BYTES:
            self._write_codes()

    def _write_codes(self) -> None:
        self._vectors.write(self._codes)
        self._codes = bytearray()

    def _pack(self) -> None:
        """Turn the waiting rows into columns, and write them once the kinds are known."""
        waiting, self._waiting = self._waiting, []
        self._hold(rows.arrays_of(waiting))

    def _take(self, table: Any) -> None:
        """Whole batches of columns."""
        n_fixed = len(COLUMNS.names)
        for batch in table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
            self._held_bytes += batch.nbytes
            own = zip(batch.schema.names[n_fixed:], batch.columns[n_fixed:], strict=True)
            fields = {(name.removeprefix(META), rows.kind_of_type(column.type) or ""): column for name, column in own}
            self._hold((batch.columns[:n_fixed], fields))

    def _hold(self, block: Block) -> None:
        self.kinds |= block[1].keys()
        if self._columns is not None:
            self._write(block)
            return
        self._blocks.append(block)
        if self._held_bytes >= SETTLED_BYTES:
            self._settle()

    def _settle(self) -> None:
        """Settle the kinds of metadata as those found so far; later columns are written as they come."""
        fields = [*COLUMNS, *(pa.field(META + name, KINDS[kind]) for name, kind in sorted(self.kinds))]
        self._arrow_schema = pa.schema(fields)
        self._file = NewFile(self.folder / CHUNKS)
        options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
        self._columns = pa.ipc.new_file(self._file, self._arrow_schema, options=options)
        blocks, self._blocks = self._blocks, []
        for block in blocks:
            self._write(block)

    def _write(self, block: Block) -> None:
        fixed, metadata = block
        extra = [
            metadata[name, kind] if (name, kind) in metadata else pa.nulls(len(fixed[0]), KINDS[kind])
            for name, kind in sorted(self.kinds)
        ]
        self._columns.write_batch(pa.record_batch([*fixed, *extra], schema=self._arrow_schema))


class NewSegments:
    """The new segments of a generation, one after the other: a full one is finished, and another one begun.

    Args:
        index: the index folder.
        generation: number of the generation that is being made.
        dim: width of the vectors.

    Attributes:
        made: entries of the finished segments.
    """

    def __init__(self, index: Path, generation: int, dim: int) -> None:
        self.made: list[SegmentEntry] = []
        self.current: SegmentWriter | None = None
        self._index, self._generation, self._dim = index, generation, dim

    def writer(self, new: Sequence[Row] = ()) -> SegmentWriter:
        """The segment being written, or another one where that is full or its columns cannot hold some rows."""
        current = self.current
        if current is not None and (
            current.vector_bytes >= MAX_VECTOR_BYTES or current.text_bytes >= MAX_TEXT_BYTES or not current.takes(new)
        ):
            self.finish()
        if self.current is None:
            folder = self._index / SEGMENTS / segment_id(self._generation, len(self.made))
            atomic.remove(folder)  # left by a writer before the index was damaged
            self.current = SegmentWriter(folder, self._dim)
        return self.current

    def finish(self) -> None:
        """Finish the segment being written, if there is one."""
        if self.current is not None:
            self.made.append(self.current.finish())
            self.current = None

    def abort(self) -> None:
        """Remove the segment being written."""
        if self.current is not None:
            self.current.abort()
            self.current = None


def _closed(file: NewFile) -> FileEntry:
    file.sync()
    file.close()
    return file.entry


def _check_unit(new: Sequence[Row], vectors: NDArray[np.float32]) -> None:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    bad = np.flatnonzero(~((np.abs(lengths - 1) <= NORM_TOLERANCE) | (lengths == 0)))  # NaN is never <=
    if not len(bad):
        return
    row, length = new[int(bad[0])], lengths[int(bad[0])]
    if np.isfinite(length):
        message, hint = f"the vector has the length {length:.4g}, not 1", "normalise the vectors before they are added"
    else:
        message, hint = "the vector holds a number that is not finite", "encode with `dtype=float32`"
    raise ModelError(message, hint, where=f"chunk {row.chunk_id}")
