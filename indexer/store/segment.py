"""Reading a segment: an immutable folder with the vectors and columns of some chunks.

    segments/<id>/vectors.faiss    (rows, dim) float16, unit length      segments/<id>/chunks.arrow    the columns
    segments/<id>/ann.faiss        a faster index of the vectors, in large segments
    segments/<id>/lexical-*.arrow  the postings                            moments-*.bin    of the vectors

Row r of one is row r of the others. `chunks.arrow` is an Arrow IPC file, zstd, 256 rows in each record batch but the
last, so that one hit decodes one batch. The files are mapped, and the mappings kept, not the file handles: an open
segment stays readable when its files are removed. Dead rows and commits are the store's.
"""

from __future__ import annotations

import copy
import functools
import mmap
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.decoded import DecodedVectors
from ragidx.indexer.ann.faiss_files import HEADER_BYTES, Halves, check_ann, codes_of, map_ann, map_vectors
from ragidx.indexer.ann.index_types import padded
from ragidx.indexer.ann.moments import Moments, ScoreSpread, left_out_of
from ragidx.indexer.ann.prefixes import Prefixes, open_prefixes
from ragidx.indexer.ann.repeats import Repeats
from ragidx.indexer.arrays import Bools, Floats, Ints
from ragidx.indexer.byte_cache import ByteCache
from ragidx.indexer.damage import damaged, reading
from ragidx.indexer.lexical.postings import Postings
from ragidx.indexer.store import rows as columns_of
from ragidx.indexer.store.entries import SegmentEntry
from ragidx.indexer.store.files import ANN, CHUNKS, VECTORS
from ragidx.indexer.store.rows import COLUMNS, FIXED, KINDS, META, FieldKind, Row, RowBatch, Schema, StoredRow

if TYPE_CHECKING:
    from ragidx.indexer.ann.gpu import DeviceVectors

BATCH_ROWS = 256
CACHE_BYTES = 128 << 20  # of decoded batches, of rows, and of columns that conditions read: 100,000 chunks fit
T = TypeVar("T")

_FEW_ROWS = 200  # cells of so many rows, which some questions find, are kept: who reads all does not ask again
_LEFT_OUT = "it leaves out rows that are alive"
_NAMES = frozenset(COLUMNS.names)


class Segment:
    """A segment to read. The files are mapped by `map`, or when they are first needed.

    Args:
        folder: folder of the segment.
        entry: entry of the segment in the manifest.
        dim: width of the vectors.
        schema: the kinds of metadata in the whole index, at least as wide as those of live rows here; columns are read
            in these. What does not fit is of dead rows, and null.
        cache: cache of decoded batches, shared by the segments of an index; None: one of its own.
    """

    def __init__(
        self, folder: Path, entry: SegmentEntry, dim: int, schema: Schema, cache: ByteCache[Any] | None = None
    ) -> None:
        self.folder = folder
        self.entry = entry
        self._cache, self._token = cache or ByteCache(CACHE_BYTES), object()
        self.dim = dim
        self._width = padded(dim)
        self.schema = schema
        self._moved: DeviceVectors | None = None
        self._narrow: dict[int, Prefixes] = {}
        self._kept: dict[Callable[[Segment], Any], Any] = {}

    def map(self) -> None:
        """Map all files now and check their shape.

        Raises:
            IndexFormatError: a file is not what the manifest says.
        """
        _ = self.codes, self._index, self._chunks, self.postings, self._moments

    def read_as(self, schema: Schema) -> Segment:
        """The same open files, whose metadata are read in these kinds, at least as wide as those of live rows."""
        found = copy.copy(self)
        found.schema, found._token = schema, object()  # decoded batches are kept by the token
        return found

    def search(
        self, queries: Floats, k: int, allowed: Bools | None, exact: ann.Exact | None = None
    ) -> tuple[Floats, Ints]:
        """Scores and rows (q, k) of the k best for each query, -inf and -1 where there are no more.

        Args:
            queries: (q, dim) of unit length.
            k: 1 or more.
            allowed: (rows,), the rows that may be found; None: all.
            exact: an exact search of these that takes less time, where a faster index turns to one.
        """
        queries = ann.filled(queries, self.dim)
        if self._moved is not None:
            return self._moved.search(queries, k, allowed)
        if self.entry.ann is None:
            return ann.search_exact(self.exact_index, queries, k, allowed)
        made = self.entry.ann
        return ann.search(
            self.ann_index, made.recipe, made.effort, self.exact_index, queries, k, allowed, self.repeats, exact
        )

    def scan(self, queries: Floats, k: int, allowed: Bools | None) -> Floats:
        """The k best scores (q, k) as of an exact search; with k = rows those of all rows, in no useful order."""
        return ann.search_exact(self.exact_index, ann.filled(queries, self.dim), k, allowed)[0]

    @property
    def n_rows(self) -> int:
        """How many rows it stores."""
        return self.entry.rows

    def spread(self, queries: Floats) -> ScoreSpread | None:
        """How the cosines of queries (q, dim) with all rows spread, where the segment keeps their moments."""
        if len(self.left_out):
            raise damaged(self.folder / str(self.entry.moments), _LEFT_OUT)
        return None if self.moments is None else self.moments.spread(queries)

    def moments_of_live(self, dead: Bools) -> tuple[Moments, Ints] | None:
        """The moments, where the segment keeps them, and which of the dead rows (rows,) they count."""
        if self.moments is None:
            return None
        if not dead[self.left_out].all():
            raise damaged(self.folder / str(self.entry.moments), _LEFT_OUT)
        return self.moments, np.setdiff1d(np.flatnonzero(dead), self.left_out, assume_unique=True)

    def kept(self, read: Callable[[Segment], T]) -> T:
        """What `read` makes of the segment; read once, since its files never change."""
        found: T = self._kept[read] if read in self._kept else self._kept.setdefault(read, read(self))
        return found

    def is_exact(self) -> bool:
        """Whether a search compares every row, and gives a row the same score for every k."""
        return self.entry.ann is None and self._moved is None  # a GPU adds in an order that depends on the batch

    def narrowed(self, width: int) -> Segment | Prefixes:
        """A view of the same rows with the first dimensions of their vectors, for a search; itself at full width."""
        if width == self.dim:
            return self
        if width not in self._narrow:
            checksum = self.entry.files[VECTORS].sha256
            self._narrow[width] = open_prefixes(self.folder, self.exact_index, width, checksum)
        return self._narrow[width]

    def move(self, devices: Sequence[str], room: float) -> bool:
        """Search on these devices from now on, where the vectors take at most `room` bytes; whether it does."""
        from ragidx.indexer.ann.gpu import DeviceVectors  # a search on a CPU needs none

        if self._moved is None and self.entry.has_vectors and self._mapped.nbytes <= room:
            self._moved = DeviceVectors(self._mapped, devices)
        return self._moved is not None

    def halves(self, numbers: Ints) -> Halves:
        """Some rows as a search reads them, filled up with zeros."""
        found: Halves = self.codes[numbers]
        return found

    def release_pages(self, first: int, count: int) -> None:
        """Give back the memory of rows that were read through `halves` and are not needed again soon."""
        if self.entry.has_vectors:
            row = self._mapped.strides[0]
            start, end = HEADER_BYTES + first * row, HEADER_BYTES + (first + count) * row
            start -= start % mmap.PAGESIZE
            self._mapped.base.madvise(mmap.MADV_DONTNEED, start, end - start)

    def vectors(self, numbers: Sequence[int] | Ints) -> Floats:
        """The stored vectors of some rows, (n, dim); decoded, where codes are all that is stored."""
        return self.halves(np.asarray(numbers, np.int64))[:, : self.dim].astype(np.float32)

    def rows(self, numbers: Sequence[int] | Ints) -> list[Row]:
        """Some rows, in the order of `numbers`; decodes only the batches that hold them."""

        def decoded(number: int) -> RowBatch:
            return RowBatch(next(self.batches(COLUMNS.names, [number], self._fields)), self._fields)

        def read(number: int) -> StoredRow:
            batch = number // BATCH_ROWS
            found: RowBatch = self._cache.get((self._token, "rows", batch), functools.partial(decoded, batch))
            return found.row(number % BATCH_ROWS)

        def kept(number: int) -> StoredRow:
            return self._cache.get((self._token, number), functools.partial(read, number))  # type: ignore[no-any-return]

        stored = map(kept if len(numbers) <= _FEW_ROWS else read, np.asarray(numbers, np.int64).tolist())
        with reading(self.folder / CHUNKS):
            return [one.row() for one in stored]

    def strings(self, name: str, numbers: Sequence[int] | Ints) -> list[str]:
        """One of the fixed columns of text, of some rows, in the order of `numbers`."""
        wanted = np.asarray(numbers, np.int64)
        columns = {of: self._cached(of, name) for of in np.unique(wanted // BATCH_ROWS).tolist()}
        return [columns[number // BATCH_ROWS][number % BATCH_ROWS].as_py() for number in wanted.tolist()]

    def columns(self, names: Sequence[str]) -> Any:
        """A pyarrow.Table of whole columns, in the index's kinds; a field that this segment lacks is all null.

        Args:
            names: names of columns as in the file: `doc_id`, `meta.year`.

        Raises:
            ValueError: neither a fixed column nor a field of the index's schema.
        """
        schema = self.arrow_schema(names)
        return self.cached((self._token, *names), lambda: pa.Table.from_batches(self.batches(names), schema=schema))

    def arrow_schema(self, names: Sequence[str]) -> Any:
        """The types of columns as they are read."""
        return pa.schema([(name, self._type(name)) for name in names])

    def cached(self, key: Hashable, read: Callable[[], Any]) -> Any:
        """What `read` gives, from the cache of the index."""
        return self._cache.get(("columns", key), read)

    def batches(
        self, names: Sequence[str], chosen: Sequence[int] | None = None, kinds: Sequence[FieldKind] = ()
    ) -> Iterator[Any]:
        """The record batches of `columns`, one at a time; all, or those of some numbers.

        Args:
            names: as of `columns`.
            chosen: numbers of batches; None: all.
            kinds: columns as they are stored, which follow; all null where there is none here.
        """
        reader = self._reader([*names, *(META + name for name, _ in kinds)])
        for number in range(self.n_batches) if chosen is None else chosen:
            yield self._batch(reader, number, names, kinds)

    @functools.cached_property
    def postings(self) -> Postings | None:
        """The words of the rows; None: the index has no lexical part."""
        name = self.entry.lexical
        return None if name is None else Postings(self.folder / name, self.entry.rows, self.entry.texts)

    @functools.cached_property
    def moments(self) -> Moments | None:
        """The moments of the vectors, where the segment keeps them."""
        if self._moments is None or self.entry.moments is None:
            return None
        with reading(self.folder / self.entry.moments):
            rows = self.entry.rows - len(self.left_out)
            return Moments.from_bytes(self._moments[: Moments.n_bytes(self.dim)].tobytes(), rows, self.dim)

    @functools.cached_property
    def left_out(self) -> Ints:
        """The rows that the moments are without, in ascending order: they were dead when these were written."""
        tail = b"" if self._moments is None else self._moments[Moments.n_bytes(self.dim) :].tobytes()
        with reading(self.folder / str(self.entry.moments)):
            return left_out_of(tail, self.entry.rows)

    @functools.cached_property
    def _moments(self) -> NDArray[np.uint8] | None:
        """The bytes of the moments, mapped."""
        if self.entry.moments is None:
            return None
        path = self.folder / self.entry.moments
        with reading(path, "it cannot be mapped: "):
            return np.memmap(path, np.uint8, "r")

    @functools.cached_property
    def exact_index(self) -> Any:
        """FAISS's index of all vectors, mapped; `DecodedVectors`, where codes are all that is stored."""
        made = self.entry.ann
        if self.entry.has_vectors or made is None:
            return map_vectors(self.folder / VECTORS, self._width, self.entry.rows)
        path, index, numbers = self.folder / ANN, self.ann_index, (self.dim, self.entry.rows)
        with reading(path, "it cannot be mapped: "):
            return DecodedVectors(path, made.recipe, index, *numbers, self.repeats, self.entry.zero)

    @functools.cached_property
    def _mapped(self) -> Any:
        """The vectors as an array with its own mapping of the file (`base`)."""
        _ = self.exact_index  # checks the file
        path = self.folder / VECTORS
        with reading(path, "it cannot be mapped: "):  # a commit just removed it, or it was truncated
            return codes_of(path, self._width, self.entry.rows)

    @functools.cached_property
    def _index(self) -> Any | None:
        if self.entry.ann is None:
            return None
        vectors = self.exact_index if self.entry.has_vectors else (self._width, self.entry.rows)
        return map_ann(self.folder / ANN, self.entry.ann.recipe, vectors, self.entry.ann.repeats)

    @functools.cached_property
    def codes(self) -> Any:
        """The vectors, (rows, width) float16: mapped, or what decodes those of some rows."""
        return np.asarray(self._mapped) if self.entry.has_vectors else self.exact_index  # rows of a memmap take longer

    @functools.cached_property
    def repeats(self) -> Repeats | None:
        """The rows that the faster index lacks, since an earlier one has their vector; None: it lacks none.

        Raises:
            IndexFormatError: its file lists others than it can lack.
        """
        if self.entry.ann is None or not self.entry.ann.repeats:
            return None
        _ = self._index  # checks the length of the file
        path = self.folder / ANN
        with reading(path, "it cannot be mapped: "):
            found = Repeats.mapped(path, self.entry.ann.repeats, self.entry.rows)
        if not found.hold():
            raise damaged(path, "the rows that it lists as repeats cannot be such")
        return found

    @functools.cached_property
    def ann_index(self) -> Any:
        """The faster index, with every link and row number checked once: a quarter of a second for a million rows."""
        assert self.entry.ann is not None
        kept = np.ones(self.entry.rows, np.bool_) if self.repeats is None else self.repeats.kept
        check_ann(self.folder / ANN, self.entry.ann.recipe, self._index, kept)
        return self._index

    @functools.cached_property
    def _chunks(self) -> Any:
        """The bytes of `chunks.arrow`, mapped, with a schema and a number of batches that fit."""
        with reading(self.folder / CHUNKS, "Arrow cannot read it: "):
            with pa.memory_map(os.fspath(self.folder / CHUNKS)) as file:
                data = file.read_buffer()
            reader = pa.ipc.open_file(pa.BufferReader(data))
            names = reader.schema.names  # one that is not UTF-8 is a ValueError
        if reader.num_record_batches != self.n_batches:
            raise self._damaged(f"it holds {reader.num_record_batches:,} record batches, not {self.n_batches:,}")
        columns = {(column.name, str(column.type)) for column in reader.schema}
        if len(columns) != len(names) or not all(map(columns_of.fits, reader.schema)):
            raise self._damaged("its columns are not those of the manifest")
        if not set(names) >= set(FIXED.names):
            raise self._damaged(f"it has no column {min(set(FIXED.names) - set(names))!r}")
        return data

    @functools.cached_property
    def kinds(self) -> frozenset[FieldKind]:
        """The columns of metadata: of each field the kinds that its values have here, dead rows included."""
        return frozenset(kind for column in self._stored if (kind := columns_of.field_kind(column)) is not None)

    @functools.cached_property
    def _fields(self) -> list[FieldKind]:
        return sorted(self.kinds)

    @functools.cached_property
    def _stored(self) -> Any:
        """The schema of `chunks.arrow`."""
        return pa.ipc.open_file(pa.BufferReader(self._chunks)).schema

    @property
    def n_batches(self) -> int:
        """How many record batches there are."""
        return -(-self.entry.rows // BATCH_ROWS)

    def _reader(self, names: Sequence[str]) -> Any:
        """A reader of some columns; made for each call (microseconds), so that threads share only the bytes."""
        wanted = frozenset(names)
        fields = [at for at, name in enumerate(self._stored.names) if name in wanted] or [
            0
        ]  # an empty list would be all
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)  # of 256 rows: half the time of two
        return pa.ipc.open_file(pa.BufferReader(self._chunks), options=options)

    def _batch(self, reader: Any, number: int, names: Sequence[str], kinds: Sequence[FieldKind]) -> Any:
        """One record batch, checked, with these columns in this order."""
        expected = min(BATCH_ROWS, self.entry.rows - number * BATCH_ROWS)
        with reading(self.folder / CHUNKS, f"record batch {number} cannot be read: "):
            batch = reader.get_batch(number)
            batch.validate(full=True)
        if batch.num_rows != expected:
            raise self._damaged(f"record batch {number} holds {batch.num_rows:,} rows, not {expected:,}")
        with reading(self.folder / CHUNKS, f"record batch {number}: "):
            found = columns_of.by_name_and_kind(batch)
        arrays = [columns_of.read_as(found.get(name, {}), self._type(name), expected) for name in names]
        for name, kind in kinds:
            own = found.get(META + name, {})
            arrays.append(own[kind] if kind in own else pa.nulls(expected, KINDS[kind]))
        return pa.record_batch(arrays, names=[*names, *(META + name for name, _ in kinds)])

    def _type(self, name: str) -> Any:
        """The type of a column as it is read."""
        field = name.removeprefix(META)
        if name not in _NAMES and (not name.startswith(META) or field not in self.schema):
            raise ValueError(f"the index has no column {name!r}")
        return COLUMNS.field(name).type if name in _NAMES else KINDS[self.schema[field]]

    def _cached(self, number: int, name: str) -> Any:
        """One column of a record batch."""
        return self._cache.get((self._token, name, number), lambda: next(self.batches([name], [number])).column(0))

    def _damaged(self, reason: str) -> IndexFormatError:
        return damaged(self.folder / CHUNKS, reason)
