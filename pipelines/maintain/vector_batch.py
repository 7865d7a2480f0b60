"""A program's vectors into an index of precomputed vectors: rows added, replaced and deleted, in one commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import NoReturn

import numpy as np

from ragidx.corpora.errors import SpecError
from ragidx.corpora.records import Document
from ragidx.indexer.digests import digest
from ragidx.indexer.store.generations import committed
from ragidx.indexer.store.store import Store
from ragidx.pipelines.maintain.delete import Missing, chosen
from ragidx.pipelines.vectors.rows import names_of
from ragidx.pipelines.vectors.spec import check_given
from ragidx.pipelines.vectors.writer import RowWriter


class VectorBatch(RowWriter):
    """Changes of an index of precomputed vectors, made visible together by the end of the block. A context manager.

        with index.batch() as batch:
            batch.add_vectors(["a", "b"], vectors)
            batch.delete(["old"])

    Args:
        store: a state of the index that is open.
        timeout: seconds to wait for another writer.

    Raises:
        BusyError: another writer held the index for so long.
        IndexFormatError: there is no index, or it is damaged.
        SpecError: the index holds encoded texts.
    """

    def __init__(self, store: Store, timeout: float) -> None:
        manifest = committed(store.path)
        dim = check_given(manifest, str(store.path))[1].input_dim or manifest.dim
        super().__init__(store.path, dim, timeout=timeout, opened=store)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.closing(self):
            if kind is None:
                self.commit()

    def add(self, documents: Iterable[Document]) -> NoReturn:
        """Of an index that encodes texts.

        Raises:
            SpecError: always.
        """
        raise SpecError("the index holds precomputed vectors", "give it vectors: `add_vectors`", where=str(self.path))

    def delete(
        self, ids: Iterable[str | int] | None = None, *, where: str | None = None, missing: Missing = "error"
    ) -> None:
        """Delete rows, and all of a document; builds from a file skip them.

        Args:
            ids: of documents or rows, those of this batch too.
            where: a condition, asked of what the index held before the batch. With ids, only what is theirs.
            missing: whether an id that the index does not have is an error or skipped.

        Raises:
            QueryError: the index has no such id, or the condition is wrong.
        """
        names = [] if ids is None else names_of(ids, "ids")
        added, named = np.zeros(0, np.int64), set[str]()
        if where is None:
            added, is_added = self._known.added_of([digest(name) for name in names])
            named = {name for name, here in zip(names, is_added.tolist(), strict=True) if here}
        store, others = self._writer.store, [name for name in names if name not in named]
        assert store is not None  # a batch never replaces
        gone = chosen(store, sorted(named), None, "skip")[1].every if named else ()
        if others or not named:
            gone += chosen(store, others, where, missing)[1].every
        rows = self._known.find([digest(name) for name in gone])
        # what this batch has replaced goes where it is named alone: a condition does not see it
        is_gone = (rows >= 0) & ((rows < self._known.n_committed) | np.isin(rows, added))
        self._deleted |= {name for name, goes in zip(gone, is_gone.tolist(), strict=True) if goes}
        self.remove(np.union1d(added, rows[is_gone]))
