"""Writing a segment: rows and their vectors in, a synced folder out. `segment` says what lies in it.

vectors (n, dim) float32 of unit length; they are rounded to float16. Nothing is visible to readers until a manifest
names the folder. When a segment is full, and what its id is, is decided by `writer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragidx.corpora.errors import ModelError
from ragidx.indexer import ann, atomic, rows
from ragidx.indexer.atomic import FileEntry
from ragidx.indexer.manifest import CHUNKS, SegmentEntry
from ragidx.indexer.rows import FIXED, KINDS, META, Row, Schema
from ragidx.indexer.segment import BATCH_ROWS

NORM_TOLERANCE = 1e-3


class SegmentWriter:
    """Rows in, a synced folder out. Call `finish` or `abort`.

    Memory: the float16 vectors and the Arrow columns of the whole segment (a field's type is known only at its end);
    for hnsw, while it finishes, the vectors again as float32 and as float16, and the graph. The caller bounds them by
    looking at `vector_bytes` and `text_bytes`.

    Args:
        folder: does not exist yet; its name becomes the id.
        dim: width of the vectors.
        index_type: a name in `ann.INDEX_TYPES`.
        schema: kinds of metadata that are known already; a field is stored in this kind or a wider one.
    """

    def __init__(self, folder: Path, dim: int, index_type: str, schema: Schema) -> None:
        self.folder = folder
        self.schema: dict[str, str] = {}  # of the fields that occur in this segment
        self.n_rows = 0
        self.text_bytes = 0
        self._dim = dim
        self._index_type = index_type
        self._known = dict(schema)
        self._vectors = ann.new_vectors(dim)
        self._waiting: list[Row] = []
        self._blocks: list[tuple[list[Any], dict[str, Any]]] = []
        atomic.make_folder(folder.parent)
        with atomic.writing(folder):
            folder.mkdir()

    @property
    def vector_bytes(self) -> int:
        """Bytes of the vectors so far, as they will lie on the disk."""
        return 2 * self._dim * self.n_rows

    def add(self, new: Sequence[Row], vectors: NDArray[np.float32]) -> None:
        """Append rows with their vectors (n, dim), of unit length.

        Raises:
            ModelError: a vector is not finite or not of unit length; the message names the chunk.
            CorpusError: a string cannot be written as UTF-8.
        """
        if vectors.shape != (len(new), self._dim):
            raise ValueError(f"vectors have the shape {vectors.shape}, not ({len(new)}, {self._dim})")
        _check_unit(new, vectors)
        ann.add(self._vectors, vectors)
        self.n_rows += len(new)
        for row in new:
            self.text_bytes += len(row.text.encode("utf-8", "surrogatepass"))
            self._waiting.append(row)
            if len(self._waiting) == BATCH_ROWS:
                self._pack()

    def finish(self) -> SegmentEntry:
        """Write and sync everything; nothing is visible to readers until a manifest names it."""
        if self._waiting:
            self._pack()
        files = {CHUNKS: self._write_chunks(), ann.VECTORS: self._write_index(ann.VECTORS, self._vectors)}
        if ann.GRAPH in ann.INDEX_TYPES[self._index_type].files:
            files[ann.GRAPH] = self._write_index(ann.GRAPH, ann.new_graph(self._vectors))
        atomic.sync_folder(self.folder)
        atomic.sync_folder(self.folder.parent)
        return SegmentEntry(self.folder.name, self.n_rows, files)

    def abort(self) -> None:
        """Remove what was written."""
        atomic.remove(self.folder)

    def _pack(self) -> None:
        """Turn the waiting rows into compact rows."""
        metadata = rows.metadata_arrays(self._waiting)
        found = {name: rows.kind_of_type(array.type) or "string" for name, array in metadata.items()}
        self._blocks.append((rows.fixed_arrays(self._waiting), metadata))
        self.schema = rows.union(self.schema, found, {name: self._known[name] for name in found if name in self._known})
        self._waiting = []

    def _write_chunks(self) -> FileEntry:
        fields = [*FIXED, *(pa.field(META + name, KINDS[kind]) for name, kind in sorted(self.schema.items()))]
        schema = pa.schema(fields)
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with atomic.create(self.folder / CHUNKS) as file:
            with pa.ipc.new_file(file, schema, options=options) as writer:
                for fixed, metadata in self._blocks:
                    writer.write_batch(
                        pa.record_batch([*fixed, *self._metadata(metadata, len(fixed[0]))], schema=schema)
                    )
            return file.entry

    def _metadata(self, arrays: dict[str, Any], n_rows: int) -> Iterator[Any]:
        for name, kind in sorted(self.schema.items()):
            yield rows.convert(arrays[name], kind) if name in arrays else pa.nulls(n_rows, KINDS[kind])

    def _write_index(self, name: str, index: Any) -> FileEntry:
        with atomic.create(self.folder / name) as file:
            ann.write(index, file.write)
            return file.entry


def _check_unit(new: Sequence[Row], vectors: NDArray[np.float32]) -> None:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    bad = np.flatnonzero(~(np.abs(lengths - 1) <= NORM_TOLERANCE))  # not finite: NaN is never <=
    if not len(bad):
        return
    row, length = new[int(bad[0])], lengths[int(bad[0])]
    if np.isfinite(length):
        message, hint = f"the vector has the length {length:.4g}, not 1", "normalise the vectors before they are added"
    else:
        message, hint = "the vector holds a number that is not finite", "encode with --dtype float32"
    raise ModelError(message, hint, where=f"chunk {row.chunk_id}")
