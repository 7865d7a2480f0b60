"""FAISS's files: written, mapped, and checked before FAISS believes them.

    vectors.faiss   IndexScalarQuantizer of float16 codes, inner product: the only copy of the vectors, exact to search
    ann.faiss       the index that a `Recipe` describes: a graph without its vectors, or codes with or without lists

Files are mapped, never copied, and a mapped index is never added to (FAISS ends the process). Files are untrusted. The
layout is checked before FAISS reads a file (`faiss_layout`). Links and row numbers, which a search follows unchecked,
are checked once before the first search (`check_ann`).
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import RagidxError, check_machine, install
from ragidx.indexer.ann.faiss_layout import HEADER, INNER_PRODUCT, check_layout, walking
from ragidx.indexer.ann.index_types import Recipe
from ragidx.indexer.arrays import Bools, Ints
from ragidx.indexer.damage import damaged, reading

Halves: TypeAlias = NDArray[np.float16]

PACKAGES = ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12")

_QUANTIZER = struct.Struct("<iifQQQQ")  # type, two unused, dim, bytes a row, trained floats, bytes of all rows
_UNUSED = 1 << 20  # what FAISS writes into the two unused fields

HEADER_BYTES = HEADER.size + _QUANTIZER.size

_NO_SIGN = 0x7FFF  # of float16, whose first bit is the sign: there are two zeros


def load_faiss() -> Any:
    """The module `faiss`.

    Raises:
        RagidxError: it is not installed, cannot be loaded, or two packages have installed it over each other.
    """
    two = [name for name in PACKAGES if any(importlib.metadata.distributions(name=name))]
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
        raise RagidxError("faiss is not installed", install("cpu")) from fault
    except ImportError as fault:
        check_machine(fault)
        raise RagidxError(f"faiss cannot be loaded: {fault}", "install it again") from fault


@functools.cache
def faiss() -> Any:
    """The module, loaded once.

    A forked child searches on one thread: it does not have OpenMP's other threads, and would wait for them for ever.
    Threads that the child starts have their own.
    """
    module = load_faiss()
    os.register_at_fork(after_in_child=functools.partial(module.omp_set_num_threads, 1))
    return module


def vectors_header(dim: int, rows: int) -> bytes:
    """The first `HEADER_BYTES` of vectors.faiss; the float16 rows follow."""
    module = faiss()
    head = HEADER.pack(b"IxSQ", dim, rows, _UNUSED, _UNUSED, 1, INNER_PRODUCT)
    kind = module.ScalarQuantizer.QT_fp16
    return head + _QUANTIZER.pack(kind, module.ScalarQuantizer.RS_minmax, 0.0, dim, 2 * dim, 0, 2 * dim * rows)


def exact_index(dim: int, blocks: Iterable[Halves | NDArray[np.float32]]) -> Any:
    """An exact index in memory of float16 rows, from blocks (n, dim)."""
    module = faiss()
    index = module.IndexScalarQuantizer(dim, module.ScalarQuantizer.QT_fp16, module.METRIC_INNER_PRODUCT)
    for block in blocks:
        index.add(block.astype(np.float32, copy=False))
    return index


def codes_of(path: Path, dim: int, rows: int) -> Halves:
    """The float16 rows of a vectors.faiss that was checked by `map_vectors`, mapped: (rows, dim)."""
    return np.memmap(path, "<f2", mode="r", offset=HEADER_BYTES, shape=(rows, dim))


def are_zero(codes: Halves) -> Bools:
    """Which rows (n, dim) are zero: of texts that have no vector."""
    return ~np.asarray((codes.view(np.uint16) & _NO_SIGN).any(axis=1))


def write(index: Any, sink: Callable[[bytes], int]) -> None:
    """Write an index through `sink`; of a graph only the links, since its vectors are in the other file."""
    module = faiss()
    flags = module.IO_FLAG_SKIP_STORAGE if isinstance(index, module.IndexHNSW) else 0
    module.write_index(index, module.PyCallbackIOWriter(sink), flags)


def map_vectors(path: Path, dim: int, rows: int, tail: int = 0) -> Any:
    """The exact index in `path`, mapped.

    Args:
        path: place of the vectors.faiss.
        dim: width of the vectors.
        rows: number of rows that the file must have.
        tail: bytes after the rows, which FAISS does not read.

    Raises:
        IndexFormatError: it is another kind of index, not of (rows, dim), or longer or shorter.
    """
    module = faiss()
    with walking(path) as walk:
        walk.header(b"IxSQ", dim, rows)
        kind, _, _, *sizes = walk.fields(_QUANTIZER)
        if kind != module.ScalarQuantizer.QT_fp16 or sizes != [dim, 2 * dim, 0, 2 * dim * rows]:
            raise damaged(path, f"it is not a float16 index of {rows:,} rows and {dim:,} dimensions")
        walk.end(2 * dim * rows + tail)
    return _read(path, module.IO_FLAG_MMAP_IFC, module.IndexScalarQuantizer, (dim, rows))


def map_ann(path: Path, recipe: Recipe, vectors: Any, repeats: int = 0) -> Any:
    """The index of mapped vectors, mapped; the caller keeps the vectors as long as it.

    `repeats` rows are not in it, and listed at the end of the file. Shapes are checked here;
    `check_ann` must run before the first search. Of codes, width and number of the vectors are enough, `(dim, rows)`.

    Raises:
        IndexFormatError: the file is something else, or belongs to other vectors.
    """
    module = faiss()
    dim, rows = vectors if isinstance(vectors, tuple) else (vectors.d, vectors.ntotal)
    check_layout(path, recipe, dim, rows, repeats)
    shape = dim, rows if recipe.takes_selector else rows - repeats
    if recipe.links is None:
        flags = module.IO_FLAG_MMAP_IFC | module.IO_FLAG_SKIP_PRECOMPUTE_TABLE
        tables = 4 * recipe.entries * (recipe.n_codes or 0) * (recipe.lists or 0)  # counted by FAISS, but not made
        return _read(path, flags, type(empty(recipe, dim)), shape, tables)
    graph = _read(path, module.IO_FLAG_MMAP_IFC | module.IO_FLAG_SKIP_STORAGE, module.IndexHNSWSQ, shape)
    graph.storage = vectors
    graph.own_fields = False
    return graph


def check_ann(path: Path, recipe: Recipe, index: Any, kept: Bools) -> None:
    """Check that every link and row number in a mapped index leads to a row of it: FAISS follows them unchecked.

    Args:
        path: place of the file, for messages.
        recipe: recipe of the index.
        index: the mapped index, from `map_ann`.
        kept: (rows,), the rows that it has.

    Raises:
        IndexFormatError: one does not.
    """
    if recipe.links is not None:
        if not _links_hold(index.hnsw, kept):
            raise damaged(path, "it is not a graph over the vectors beside it")
    elif recipe.lists is not None and not _lists_hold(inner(index).invlists, kept):
        raise damaged(path, "its lists do not hold each row once")


def selector(rows: Bools) -> Any:
    """What makes a search skip all rows but these, (rows,)."""
    return faiss().IDSelectorBitmap(np.packbits(rows, bitorder="little"))


def empty(recipe: Recipe, dim: int) -> Any:
    """An index of codes by its recipe, neither trained nor filled."""
    text = str(recipe).replace("RR,", f"RR{dim},")
    return faiss().index_factory(dim, text, faiss().METRIC_INNER_PRODUCT)


def inner(index: Any) -> Any:
    """An index without the rotation in front of it."""
    module = faiss()
    return module.downcast_index(index.index) if isinstance(index, module.IndexPreTransform) else index


def _read(path: Path, flags: int, kind: Any, shape: tuple[int, int], beside: int = 0) -> Any:
    """FAISS's own reading of a file whose layout was checked, as the kind and (dim, rows) that it has to be.

    No vector in the file may be longer than the file itself, and bytes `beside` it.
    """
    module = faiss()
    with reading(path, "it cannot be read: "):  # a commit just removed it
        size = path.stat().st_size
    limit = module.get_deserialization_vector_byte_limit()
    module.set_deserialization_vector_byte_limit(size + beside)
    try:
        index = module.read_index(str(path), flags)
    except (RuntimeError, MemoryError) as fault:
        check_machine(fault, path)
        reason = (str(fault).strip().splitlines() or [type(fault).__name__])[-1]
        raise damaged(path, f"FAISS cannot read it: {reason}") from fault
    finally:
        module.set_deserialization_vector_byte_limit(limit)
    if type(index) is not kind or (index.d, index.ntotal) != shape:
        raise damaged(path, "FAISS reads another index in it")
    return index


def _lists_hold(lists: Any, kept: Bools) -> bool:
    """Whether the lists hold every row that is kept once, since they hold as many as these are."""
    module, rows = faiss(), len(kept)
    seen = np.zeros(rows, np.bool_)
    for number in range(lists.nlist):
        size = lists.list_size(number)
        if not size:
            continue
        held = module.rev_swig_ptr(lists.get_ids(number), size)
        if held.min() < 0 or held.max() >= rows:
            return False
        seen[held] = True
    return np.array_equal(seen, kept)


def _links_hold(hnsw: Any, kept: Bools) -> bool:
    """Whether every link of the graph leads to a row that is kept, and exists on its level."""
    to_array, rows = faiss().vector_to_array, len(kept)
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
    if not kept.all() and (~kept[links] & (links >= 0)).any():
        return False
    return all(_level_holds(level, levels, starts, links, widths) for level in range(1, int(levels.max())))


def _level_holds(level: int, levels: Ints, starts: Ints, links: NDArray[np.int32], widths: Ints) -> bool:
    nodes = np.flatnonzero(levels > level)
    places = starts[nodes][:, None] + np.arange(widths[level], widths[level + 1])
    targets = links[places]
    return bool((levels[targets[targets >= 0]] > level).all())
