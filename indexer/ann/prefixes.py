"""Prefixes: the first dimensions of a segment's vectors as a separate index, so that one build serves narrower widths.

(rows, dim) float16 -> the first `width` columns, normalised to unit length, float16: what a build at that width stores,
to one float16 step in each number. The file is made in one pass at the first search of that width, and kept beside the
vectors: reading a few columns of a wide file is many times slower than reading a narrow file.

    segments/<id>/prefix-<width>-<sha256[:16] of vectors.faiss>-<its own sha256[:16]>.faiss

It is a file as vectors.faiss; where there are many rows, their moments follow its end.

No manifest names it, and it can be made again. A copy of other vectors has another name and is never opened. If the
folder cannot be written, the copy is kept in memory. Readers may make the same file at once: each writes its own and
renames it into place.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import IndexFormatError, MachineError, RagidxError, check_machine
from ragidx.indexer import atomic
from ragidx.indexer.ann.faiss_files import HEADER_BYTES, Halves, codes_of, exact_index, map_vectors, vectors_header
from ragidx.indexer.ann.index_types import padded
from ragidx.indexer.ann.moments import Moments, ScoreSpread, moments_of, wants_moments
from ragidx.indexer.ann.search import Exact, filled, search_exact
from ragidx.indexer.arrays import Bools, Floats, Ints
from ragidx.indexer.normalize import l2_normalize

_BLOCK_ROWS = 16_384

_STEP = 2**-10  # of float16 below 1, relative: processors may add in another order and round differently

_PREFIX = re.compile(r"prefix-([0-9]{1,5})-([0-9a-f]{16})-([0-9a-f]{16})\.faiss")


def shortened(vectors: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """The first `width` dimensions of each row (n, width), of unit length; zero rows stay zero."""
    return l2_normalize(vectors[:, :width]).vectors


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The rows of a segment by the first dimensions of their vectors, of unit length; always searched exactly.

    Args:
        dim: number of dimensions.
        index: FAISS's exact index of them.
        moments: None where there are few rows.
    """

    dim: int
    index: Any
    moments: Moments | None

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return int(self.index.ntotal)

    def search(self, queries: Floats, k: int, allowed: Bools | None, exact: Exact | None = None) -> tuple[Floats, Ints]:
        """As of a segment, for queries (q, dim)."""
        return search_exact(self.index, filled(queries, self.dim), k, allowed)

    def scan(self, queries: Floats, k: int, allowed: Bools | None) -> Floats:
        """As of a segment."""
        return self.search(queries, k, allowed)[0]

    def is_exact(self) -> bool:
        """Every row is compared."""
        return True

    @property
    def repeats(self) -> None:
        """As of a segment without a faster index."""

    def spread(self, queries: Floats) -> ScoreSpread | None:
        """As of a segment."""
        return None if self.moments is None else self.moments.spread(queries)

    def moments_of_live(self, dead: Bools) -> tuple[Moments, Ints] | None:
        """As of a segment."""
        return None if self.moments is None else (self.moments, np.flatnonzero(dead))

    def halves(self, numbers: Ints) -> Halves:
        """As of a segment."""
        found: Halves = self.index.reconstruct_batch(numbers).astype("<f2")
        return found

    def vectors(self, numbers: Sequence[int] | Ints) -> Floats:
        """As of a segment, (n, dim)."""
        found: Floats = self.index.reconstruct_batch(np.asarray(numbers, np.int64))
        return found[:, : self.dim]


def open_prefixes(folder: Path, vectors: Any, width: int, checksum: str) -> Prefixes:
    """The first `width` dimensions of a segment's vectors, as an index, made if it is not there yet.

    Args:
        folder: folder of the segment; its files may be gone already.
        vectors: the segment's exact index, mapped.
        width: number of dimensions that are kept, from 1 to the segment's.
        checksum: sha256 of the file of the vectors, as the manifest has it.
    """
    rows = int(vectors.ntotal)
    for path in sorted(folder.glob(f"prefix-{width}-{checksum[:16]}-*.faiss")):
        with contextlib.suppress(IndexFormatError, MachineError, ValueError):
            if is_whole(path):
                return _opened(path, width, rows)
    temporary = folder / f".prefix-{width}.{atomic.unique()}{atomic.TEMPORARY}"
    try:
        with atomic.create(temporary) as file:
            file.write(vectors_header(padded(width), rows))
            for block in _blocks(vectors, width):
                file.write(block)
            if wants_moments(rows, width):
                file.write(_moments(vectors, width).to_bytes())
        path = folder / f"prefix-{width}-{checksum[:16]}-{file.entry.sha256[:16]}.faiss"
        atomic.replace(temporary, path)
        return _opened(path, width, rows)
    except RagidxError:  # read-only, full, or removed by a writer
        made = _moments(vectors, width) if wants_moments(rows, width) else None
        return Prefixes(width, exact_index(padded(width), _blocks(vectors, width)), made)


def _opened(path: Path, width: int, rows: int) -> Prefixes:
    """A file, with the moments at its end where it has many rows.

    Raises:
        IndexFormatError: it is another file.
    """
    tail = Moments.n_bytes(width) if wants_moments(rows, width) else 0
    index = map_vectors(path, padded(width), rows, tail)
    if not tail:
        return Prefixes(width, index, None)
    with path.open("rb") as file:
        file.seek(-tail, os.SEEK_END)
        return Prefixes(width, index, Moments.from_bytes(file.read(), rows, width))


def _moments(vectors: Any, width: int) -> Moments:
    """Of the rows as they are stored."""
    return moments_of((block[:, :width].astype(np.float32) for block in _blocks(vectors, width)), width)


def _blocks(vectors: Any, width: int) -> Iterator[Halves]:
    for start in range(0, vectors.ntotal, _BLOCK_ROWS):
        block = vectors.reconstruct_n(start, min(_BLOCK_ROWS, vectors.ntotal - start))
        yield np.pad(shortened(block, width).astype("<f2"), ((0, 0), (0, padded(width) - width)))


def is_whole(path: Path) -> bool:
    """Whether the file is a plain one that has the checksum in its name."""
    found = _PREFIX.fullmatch(path.name)
    try:
        if found is None or path.is_symlink() or path.stat().st_size < HEADER_BYTES:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16] == found[3]
    except OSError as fault:
        check_machine(fault, path)
        return False


def is_prefix_of(path: Path, vectors: Any) -> bool:
    """Whether a file holds the first dimensions of these vectors, to one float16 step in each."""
    width, rows = int(path.name.split("-")[1]), int(vectors.ntotal)
    if not 1 <= width <= vectors.d:
        return False
    try:
        _opened(path, width, rows)
    except (IndexFormatError, ValueError):
        return False
    codes, start = codes_of(path, padded(width), rows), 0
    for block in _blocks(vectors, width):
        held = codes[start : start + len(block)].astype(np.float32)
        if not np.allclose(held, block.astype(np.float32), rtol=_STEP, atol=_STEP**2):
            return False
        start += len(block)
    return True


def prefix_files(folder: Path, checksum: str) -> list[Path]:
    """The narrower copies in a segment's folder whose names have the checksum of its vectors."""
    found = ((path, _PREFIX.fullmatch(path.name)) for path in sorted(folder.glob("prefix-*.faiss")))
    return [path for path, name in found if name is not None and name[2] == checksum[:16]]


def is_foreign(name: str, checksum: str) -> bool:
    """Whether a file name is that of a narrower copy, but not of the vectors with this checksum."""
    found = _PREFIX.fullmatch(name)
    return found is not None and found[2] != checksum[:16]
