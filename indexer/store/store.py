"""The store: an index folder, opened to be searched. `docs/store.md` lists every byte of it.

    store = Store.open("index/");  found = store.search(queries, k=10);  rows = store.rows(found.places[0])

queries (q, dim) float32 of unit length; scores are cosines with the stored vectors, which are float16. A store is one
committed state: later commits, and even the removal of its files, do not change it. It does not encode queries.
Writing is in `ragidx.indexer.writing`.
"""

from __future__ import annotations

import functools
import hashlib
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import IndexFormatError, QueryError, check_machine
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.prefixes import check_width, shortened
from ragidx.indexer.atomic import FileEntry
from ragidx.indexer.damage import damaged
from ragidx.indexer.store.deletions import Masks, read_deletions
from ragidx.indexer.store.generations import check_files, committed, segments_of, with_way_back
from ragidx.indexer.store.manifest import Manifest, blob_path
from ragidx.indexer.store.rows import Row
from ragidx.indexer.store.scores import LexicalPart
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.store.topk import RERANKED, Place, TopRows, rescore, search_segments

__all__ = ["Place", "Row", "Store", "TopRows"]

ROOM_SHARE = 0.8  # of a GPU's free memory that vectors may take; the rest is for scores, and for the encoder

_ATTEMPTS = 5  # writers may commit while the index is opened


class Store:
    """A committed state of an index. Use `Store.open`."""

    def __init__(
        self, path: Path, manifest: Manifest, segments: list[Segment], dead: Masks, blobs: Mapping[str, mmap.mmap]
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.segments = segments
        self.dead = dead  # one mask a segment; None: no row of it is dead
        self._blobs = blobs

    @classmethod
    def open(cls, path: str | Path, before: Store | None = None) -> Store:
        """The committed state in the folder `path`. Needs no write access.

        Args:
            path: of the index.
            before: a state of this index that is open: the segments that both have are opened and checked no more.

        Raises:
            IndexFormatError: there is no index, it is of a newer format, or a file is missing or damaged.
        """
        folder = Path(path)
        for _ in range(_ATTEMPTS):
            manifest = committed(folder)
            try:
                with with_way_back(folder, manifest):
                    check_files(folder, manifest, None if before is None else before.manifest)
                    segments = segments_of(folder, manifest, () if before is None else before.segments)
                    for segment in segments:
                        segment.map()
                    blobs = {name: _mapped(folder, name, entry) for name, entry in manifest.files.items()}
                    return cls(folder, manifest, segments, read_deletions(folder, manifest), blobs)
            except IndexFormatError:
                if committed(folder).generation == manifest.generation:
                    raise
        raise IndexFormatError("the index changes faster than it can be opened", "try again", where=str(folder))

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        allowed: Sequence[NDArray[np.bool_]] | None = None,
        *,
        dim: int | None = None,
        rerank_dim: int | None = None,
    ) -> TopRows:
        """The k best chunks for each query; always k if so many are alive and allowed.

        Equal scores are ordered by chunk id.

        Args:
            queries: (q, dim), as wide as the stored vectors, even if fewer dimensions are searched.
            k: 1 or more.
            allowed: for each segment a mask (rows,) of the rows that may be found; None: all.
            dim: compare only the first `dim` numbers, normalised to unit length; exact. None: all.
            rerank_dim: compare the best max(100, 4k) hits again by so many numbers.

        Raises:
            QueryError: the queries have another dimension than the index, or a width is out of range.
        """
        check_widths(self.manifest.dim, dim, rerank_dim)
        return self.search_live(queries, k, self.masks(allowed), dim=dim, rerank_dim=rerank_dim)

    def search_live(
        self, queries: NDArray[np.float32], k: int, masks: Masks, *, dim: int | None, rerank_dim: int | None
    ) -> TopRows:
        """As `search`, of widths that were checked and the rows of `masks`."""
        stored = self.manifest.dim
        if dim is None:
            return search_segments(self.segments, masks, queries, k)
        checked = ann.checked_queries(queries, stored)
        wide = k if rerank_dim is None else max(RERANKED, 4 * k)
        narrow = [segment.narrowed(dim) for segment in self.segments]
        found = search_segments(narrow, masks, shortened(checked, dim), wide)
        return found if rerank_dim is None else rescore(self.segments, found, checked, k, rerank_dim)

    @functools.cached_property
    def lexical(self) -> LexicalPart | None:
        """The lexical part; None: the index has none, or no text."""
        spec = self.manifest.lexical
        if spec is None or not self.segments:
            return None
        found = LexicalPart(spec, self.segments, self.dead)
        return found if found.statistics.n_terms else None

    def move(self, device: str) -> int:
        """Search on a GPU from now on, with as many segments as fit into its memory, the first ones first.

        Args:
            device: `cuda`, all GPUs together; `cuda:1`, one of them; anything else changes nothing.

        Returns:
            How many segments are searched there.

        Raises:
            SpecError: the named GPU is not on this machine.
        """
        if not device.startswith("cuda"):
            return 0
        from ragidx.indexer.ann.gpu import gpus, room_on

        devices, moved = gpus(device), 0
        for segment in self.segments if devices else ():
            room = ROOM_SHARE * room_on(devices)
            if segment.is_moved or 2 * self.manifest.dim * segment.entry.rows <= room:
                segment.move(devices)
                moved += 1
        return moved

    def rows(self, places: Sequence[Place]) -> list[Row]:
        """The rows at some places, in their order; decodes only the batches that hold them."""
        found: dict[Place, Row] = {}
        for number, segment in enumerate(self.segments):
            wanted = sorted({row for where, row in places if where == number})
            found |= zip(((number, row) for row in wanted), segment.rows(wanted), strict=True) if wanted else ()
        return [found[place] for place in places]

    def blob(self, name: str) -> bytes:
        """A file that belongs to the spec, checked against its checksum.

        Raises:
            IndexFormatError: the manifest does not name it, or the file is damaged.
        """
        entry = self.manifest.files.get(name)
        if entry is None:
            raise IndexFormatError(
                f"the index holds no file {name!r}", "build again with `rebuild=True`", where=str(self.path)
            )
        data = self._blobs[name][: entry.bytes]
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise damaged(self.path / blob_path(name, entry), "its checksum differs from the manifest's")
        return data

    def verify(self) -> list[str]:
        """Read the whole index; one line for each fault."""
        from ragidx.indexer.store.verify import verify

        return verify(self.path)

    def masks(self, allowed: Sequence[NDArray[np.bool_]] | None) -> Masks:
        """The rows of each segment that are alive and allowed; None: all of them."""
        masks: Masks = []
        for number, segment in enumerate(self.segments):
            mask, dead = None if allowed is None else allowed[number], self.dead[number]
            if mask is not None and mask.shape != (segment.entry.rows,):
                raise ValueError(f"mask {number} has the shape {mask.shape}, not ({segment.entry.rows},)")
            masks.append(mask if dead is None else ~dead if mask is None else mask & ~dead)
        return masks


def _mapped(folder: Path, name: str, entry: FileEntry) -> mmap.mmap:
    """A file that belongs to the spec, open, so that it can be read when the state it is of was cleaned up."""
    path = folder / blob_path(name, entry)
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as fault:  # a commit just removed it, or it is empty
        check_machine(fault, path)
        raise damaged(path, f"it cannot be mapped: {fault}") from fault


def check_widths(stored: int, dim: int | None, rerank_dim: int | None) -> None:
    """Check the widths of a search in an index of `stored` dimensions.

    Raises:
        QueryError: a width is out of range, or the two do not fit together.
    """
    if dim is None:
        if rerank_dim is not None:
            raise QueryError("this compares again what `dim` has found", "give `dim`, too", where="`rerank_dim`")
        return
    check_width(dim, stored, "dim")
    if rerank_dim is None:
        return
    check_width(rerank_dim, stored, "rerank_dim")
    if rerank_dim <= dim:
        raise QueryError(
            f"rerank dim {rerank_dim:,} adds nothing to the {dim:,} dimensions that are searched",
            f"give more than {dim:,}, or remove it",
            where="`rerank_dim`",
        )
