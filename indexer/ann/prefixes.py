"""The first numbers of a segment's vectors as an index of their own: any narrower width from one build.

(rows, dim) float16 -> the first `width` columns, brought to unit length, float16: what a build at that width would
have stored, to one float16 step a number. Made when such a width is first asked for, in one pass, and kept beside the
vectors, since to read a few columns of a wide file is many times slower than to read a narrow one:

    segments/<id>/prefix-<width>-<sha256[:16]>.faiss    as vectors.faiss; no manifest names it, it can be made again

Where the folder cannot be written, it is kept in memory. Readers may make the same file at once: each writes its own
and renames it into place.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import IndexFormatError, MachineError, QueryError, RagidxError, check_machine
from ragidx.indexer import atomic
from ragidx.indexer.ann.faiss_files import HEADER_BYTES, Halves, exact_index, map_vectors, vectors_header
from ragidx.indexer.ann.index_types import padded

_BLOCK_ROWS = 16_384

PREFIX = re.compile(r"prefix-([0-9]{1,5})-([0-9a-f]{16})\.faiss")


def shortened(vectors: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """The first `width` numbers of each row (n, width), of unit length; what is zero there stays zero."""
    narrow = vectors[:, :width]
    lengths = np.linalg.norm(narrow, axis=1, keepdims=True)
    unit: NDArray[np.float32] = (narrow / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return unit


def check_width(width: int, dim: int, where: str) -> None:
    """Whether an index of `dim` has this width.

    Raises:
        QueryError: it has not.
    """
    if not 1 <= width <= dim:
        raise QueryError(
            f"{where[2:].replace('-', ' ')} {width:,} is not from 1 to {dim:,}, the dimensions stored in the index",
            f"give at most {dim:,}; for more, build again with a larger --dim",
            where=where,
        )


def open_prefixes(folder: Path, vectors: Any, width: int) -> Any:
    """The exact index of the first `width` numbers of a segment's vectors, made if it is not there yet.

    Args:
        folder: of the segment; its files may be gone already.
        vectors: the segment's exact index, mapped.
        width: from 1 to its dimension.
    """
    rows = int(vectors.ntotal)
    for path in sorted(folder.glob(f"prefix-{width}-*.faiss")):
        with contextlib.suppress(IndexFormatError, MachineError):
            if is_whole(path):
                return map_vectors(path, padded(width), rows)
    temporary = folder / f".prefix-{width}.{atomic.unique()}{atomic.TEMPORARY}"
    try:
        with atomic.create(temporary) as file:
            file.write(vectors_header(padded(width), rows))
            for block in _blocks(vectors, width):
                file.write(block)
        path = folder / f"prefix-{width}-{file.entry.sha256[:16]}.faiss"
        atomic.replace(temporary, path)
        return map_vectors(path, padded(width), rows)
    except RagidxError:  # read-only, full, or swept away meanwhile
        return exact_index(padded(width), _blocks(vectors, width))


def _blocks(vectors: Any, width: int) -> Iterator[Halves]:
    for start in range(0, vectors.ntotal, _BLOCK_ROWS):
        block = vectors.reconstruct_n(start, min(_BLOCK_ROWS, vectors.ntotal - start))
        yield np.pad(shortened(block, width).astype("<f2"), ((0, 0), (0, padded(width) - width)))


def is_whole(path: Path) -> bool:
    """Whether the file is a plain one that has the checksum in its name."""
    found = PREFIX.fullmatch(path.name)
    try:
        if found is None or path.is_symlink() or path.stat().st_size < HEADER_BYTES:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16] == found[2]
    except OSError as fault:
        check_machine(fault, path)
        return False
