"""FAISS, all of it: make, add, write, map and search. No other module imports faiss.

vectors (n, dim) float32 of unit length; scores are inner products, so cosines; rows are numbered from 0 as added.

Two files a segment: `vectors.faiss`, an IndexScalarQuantizer of float16 codes that is both the only copy of the vectors
and the exact index; and for `hnsw` also `ann.faiss`, the graph alone (FAISS's IndexHNSWSQ written without its storage,
Malkov and Yashunin 2018), which is searched over the codes of the first. Both are mapped, never copied, and a mapped
index is never added to (FAISS ends the process). Files are untrusted: what FAISS would believe is checked first.
What lies in a manifest, and which rows are dead, is not known here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import IndexFormatError, QueryError, RagidxError

Floats: TypeAlias = NDArray[np.float32]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]

VECTORS = "vectors.faiss"
GRAPH = "ann.faiss"


@dataclass(frozen=True, slots=True)
class IndexType:
    """A way to search: the files it needs in each segment, and what it is in one line."""

    files: tuple[str, ...]
    about: str


INDEX_TYPES = {
    "flat": IndexType((VECTORS,), "exact: every vector is compared"),
    "hnsw": IndexType((VECTORS, GRAPH), "a graph of neighbours: approximate, faster on large segments"),
}

PACKAGES = ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12")

HNSW_LINKS = 32  # M: links of a node on the upper levels; twice that on the lowest
HNSW_BUILD_BEAM = 200  # efConstruction
HNSW_SEARCH_BEAM = 64  # efSearch, at least; also at least 2k

EXACT_ROWS = 50_000  # so many allowed rows or fewer are compared one by one: the graph loses recall there
EXACT_SHARE = 0.1

_HEADER = struct.Struct("<4siqqqBi")  # fourcc, dim, rows, two unused, is_trained, metric
_QUANTIZER = struct.Struct("<iifQQQQ")  # type, two unused, dim, bytes a row, trained floats, bytes of all rows
_GRAPH_LISTS = (8, 4, 4, 8, 4)  # bytes an item of the lists behind the header, each led by its length (u64)


def load_faiss() -> Any:
    """The module `faiss`.

    Raises:
        RagidxError: it is not installed, cannot be loaded, or two packages have installed it over each other.
    """
    two = [name for name in PACKAGES if _installed(name)]
    if len(two) > 1:
        raise RagidxError(
            f"{' and '.join(two)} are both installed, and overwrite each other's files",
            f"pip uninstall -y {' '.join(two)}, then install one of them again",
        )
    try:
        return importlib.import_module("faiss")
    except ModuleNotFoundError as fault:
        if fault.name != "faiss":
            raise RagidxError(f"faiss cannot be loaded: {fault}", "install it again") from fault
        hint = "pip install 'ragidx[cpu]' (or 'ragidx[gpu]' on a machine with an NVIDIA GPU)"
        raise RagidxError("faiss is not installed", hint) from fault
    except ImportError as fault:
        raise RagidxError(f"faiss cannot be loaded: {fault}", "install it again") from fault


def new_vectors(dim: int) -> Any:
    """An empty exact index of float16 codes, in memory."""
    faiss = _faiss()
    return faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)


def add(index: Any, vectors: Floats) -> None:
    """Append (n, dim) rows, rounded to float16 by numpy: FAISS rounds halfway cases otherwise, the journal does not."""
    index.add(np.ascontiguousarray(vectors.astype(np.float16).astype(np.float32)))


def new_graph(vectors: Any) -> Any:
    """The HNSW graph over all rows of an exact index, built in one call: many small ones take twice as long."""
    faiss = _faiss()
    graph = faiss.IndexHNSWSQ(vectors.d, faiss.ScalarQuantizer.QT_fp16, HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = HNSW_BUILD_BEAM
    graph.add(vectors.reconstruct_n(0, vectors.ntotal))
    return graph


def write(index: Any, sink: Callable[[bytes], int]) -> None:
    """Write an index through `sink`; of a graph only the links, for its vectors are in the other file."""
    faiss = _faiss()
    flags = faiss.IO_FLAG_SKIP_STORAGE if isinstance(index, faiss.IndexHNSW) else 0
    faiss.write_index(index, faiss.PyCallbackIOWriter(sink), flags)


def map_vectors(path: Path, dim: int, rows: int) -> Any:
    """The exact index in `path`, mapped.

    Raises:
        IndexFormatError: it is no such index, or not of (rows, dim).
    """
    faiss = _faiss()
    with _opened(path) as file:
        _check_header(path, file, b"IxSQ", dim, rows)
        kind, _, _, *sizes = _unpack(path, file, _QUANTIZER)
        if kind != faiss.ScalarQuantizer.QT_fp16 or sizes != [dim, 2 * dim, 0, 2 * dim * rows]:
            raise _damaged(path, f"it is no float16 index of {rows:,} rows and {dim:,} dimensions")
    index = _read(path, faiss.IO_FLAG_MMAP_IFC)
    fitting = (
        type(index) is faiss.IndexScalarQuantizer
        and (index.d, index.ntotal, index.metric_type) == (dim, rows, faiss.METRIC_INNER_PRODUCT)
        and (index.sq.qtype, index.sq.d) == (faiss.ScalarQuantizer.QT_fp16, dim)
        and (index.sq.code_size, index.code_size, index.codes.size()) == (2 * dim, 2 * dim, 2 * dim * rows)
    )
    if not fitting:
        raise _damaged(path, f"it is no float16 index of {rows:,} rows and {dim:,} dimensions")
    return index


def map_graph(path: Path, vectors: Any) -> Any:
    """The graph in `path`, mapped, over mapped vectors, which the caller keeps as long as the graph.

    Raises:
        IndexFormatError: it is no graph over these vectors; every link is checked.
    """
    faiss = _faiss()
    with _opened(path) as file:
        _check_header(path, file, b"IHNs", vectors.d, vectors.ntotal)
        _check_lists(path, file)
    graph = _read(path, faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_SKIP_STORAGE)
    fitting = (
        type(graph) is faiss.IndexHNSWSQ
        and (graph.d, graph.ntotal, graph.metric_type) == (vectors.d, vectors.ntotal, faiss.METRIC_INNER_PRODUCT)
        and graph.storage is None
        and _links_hold(graph.hnsw, vectors.ntotal)
    )
    if not fitting:
        raise _damaged(path, "it is no graph over the vectors beside it")
    graph.storage = vectors
    graph.own_fields = False
    return graph


def search(vectors: Any, graph: Any | None, queries: Floats, k: int, allowed: Bools | None) -> tuple[Floats, Ints]:
    """The k best rows for each query, best first, equal scores by row.

    Exact without a graph, and with one wherever few rows are allowed or the graph finds fewer rows than there are.

    Args:
        vectors: what `map_vectors` or `new_vectors` gave.
        graph: what `map_graph` gave, or None.
        queries: (q, dim).
        k: 1 or more.
        allowed: (rows,), the rows that may be found; None: all.

    Returns:
        Scores (q, k) and rows (q, k); -inf and -1 where there are no more rows.

    Raises:
        QueryError: the queries have another dimension than the vectors, or are not finite.
    """
    queries = _checked(queries, vectors.d)
    scores = np.full((len(queries), k), -np.inf, np.float32)
    rows = np.full((len(queries), k), -1, np.int64)
    count = vectors.ntotal if allowed is None else int(np.count_nonzero(allowed))
    width = min(k, count)
    if not width or not len(queries):
        return scores, rows
    share = count / vectors.ntotal
    todo: Bools = np.ones(len(queries), np.bool_)
    if graph is not None and (allowed is None or (count > EXACT_ROWS and share >= EXACT_SHARE)):
        beam = min(vectors.ntotal, int(max(HNSW_SEARCH_BEAM, 2 * width) / share))
        scores[:, :width], rows[:, :width] = _search(graph, queries, width, allowed, beam)
        todo = np.asarray((rows[:, :width] < 0).any(axis=1))
    if todo.any():
        scores[todo, :width], rows[todo, :width] = _search(vectors, queries[todo], width, allowed, None)
    order = np.lexsort((rows, -scores), axis=1)
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)


@functools.cache
def _faiss() -> Any:
    return load_faiss()


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _search(index: Any, queries: Floats, k: int, allowed: Bools | None, beam: int | None) -> tuple[Floats, Ints]:
    faiss = _faiss()
    chosen = {} if allowed is None else {"sel": faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))}
    on_graph = {} if beam is None else {"efSearch": beam}
    kind = faiss.SearchParameters if beam is None else faiss.SearchParametersHNSW
    scores, rows = index.search(queries, k, params=kind(**chosen, **on_graph))
    return np.where(rows < 0, np.float32(-np.inf), scores), rows


def _checked(queries: Floats, dim: int) -> Floats:
    if queries.ndim != 2:
        raise ValueError(f"queries have the shape {queries.shape}, not (q, {dim})")
    if queries.shape[1] != dim:
        raise QueryError(
            f"the query vector has {queries.shape[1]:,} dimensions, the index has {dim:,}",
            "encode the query as the index was encoded: same model, method and filter",
        )
    if not np.isfinite(queries).all():
        raise QueryError("the query vector holds a number that is not finite", "encode the query in float32")
    return np.ascontiguousarray(queries, np.float32)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file, to look at what FAISS would believe of it: its type, its shape, what it would allocate."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as fault:
        raise _damaged(path, fault.strerror or str(fault)) from fault


def _unpack(path: Path, file: BinaryIO, layout: struct.Struct) -> tuple[Any, ...]:
    data = file.read(layout.size)
    if len(data) < layout.size:
        raise _damaged(path, f"it ends after {file.tell():,} bytes")
    return layout.unpack(data)


def _check_header(path: Path, file: BinaryIO, fourcc: bytes, dim: int, rows: int) -> None:
    found, found_dim, found_rows, _, _, trained, metric = _unpack(path, file, _HEADER)
    if found != fourcc:
        raise _damaged(path, f"its FAISS type is {found!r}, not {fourcc!r}")
    if (found_dim, found_rows) != (dim, rows):
        raise _damaged(path, f"it holds {found_rows:,} rows of {found_dim:,} dimensions, not {rows:,} of {dim:,}")
    if not trained or metric != _faiss().METRIC_INNER_PRODUCT:
        raise _damaged(path, "it is no inner-product index that is ready to search")


def _check_lists(path: Path, file: BinaryIO) -> None:
    """FAISS allocates what a list's length says before it reads the list: none may be longer than the file."""
    size = path.stat().st_size
    for width in _GRAPH_LISTS:
        (length,) = _unpack(path, file, struct.Struct("<Q"))
        if file.tell() + width * length > size:
            raise _damaged(path, f"it ends before the {length:,} items of a list in it")
        file.seek(width * length, os.SEEK_CUR)


def _read(path: Path, flags: int) -> Any:
    try:
        return _faiss().read_index(str(path), flags)
    except (RuntimeError, MemoryError) as fault:
        reason = str(fault).strip().splitlines()[-1]
        raise _damaged(path, f"FAISS cannot read it: {reason}") from fault


def _links_hold(hnsw: Any, rows: int) -> bool:
    """Whether every link of the graph leads to a row that exists on its level: FAISS follows them unchecked."""
    to_array = _faiss().vector_to_array
    levels, starts = to_array(hnsw.levels).astype(np.int64), to_array(hnsw.offsets).astype(np.int64)
    links, widths = to_array(hnsw.neighbors), to_array(hnsw.cum_nneighbor_per_level).astype(np.int64)
    if len(levels) != rows or levels.min() < 1 or levels.max() >= len(widths) or widths[0] != 0:
        return False
    if (np.diff(widths) < 0).any() or not np.array_equal(starts, np.concatenate([[0], np.cumsum(widths[levels])])):
        return False
    if starts[-1] != len(links) or links.min(initial=-1) < -1 or links.max(initial=-1) >= rows:
        return False
    if not 0 <= hnsw.entry_point < rows or hnsw.max_level != levels[hnsw.entry_point] - 1:
        return False
    return all(_level_holds(level, levels, starts, links, widths) for level in range(1, int(levels.max())))


def _level_holds(level: int, levels: Ints, starts: Ints, links: NDArray[np.int32], widths: Ints) -> bool:
    nodes = np.flatnonzero(levels > level)
    places = starts[nodes][:, None] + np.arange(widths[level], widths[level + 1])
    targets = links[places]
    return bool((levels[targets[targets >= 0]] > level).all())


def _damaged(path: Path, reason: str) -> IndexFormatError:
    return IndexFormatError(
        f"the file is damaged: {reason}", "put it back from a copy, or build again with --rebuild", where=str(path)
    )
