"""A program's vectors into an index of given vectors: rows added, replaced and deleted by id, many in one commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from ragidx.corpora.errors import SpecError
from ragidx.corpora.records import Document
from ragidx.indexer.store.generations import committed
from ragidx.indexer.store.store import Store
from ragidx.pipelines.maintain.delete import Missing, chosen
from ragidx.pipelines.vectors.rows import names_of
from ragidx.pipelines.vectors.spec import check_given
from ragidx.pipelines.vectors.writer import RowWriter


class VectorBatch(RowWriter):
    """Changes of an index of given vectors, made visible together by the end of the block. A context manager.

        with index.batch() as batch:
            batch.add_vectors(["a", "b"], vectors)
            batch.delete(["old"])

    Args:
        path: the index folder.
        timeout: seconds to wait for another writer.

    Attributes:
        n_added, n_changed, n_unchanged, n_removed: rows so far.

    Raises:
        BusyError: another writer held the index for so long.
        IndexFormatError: there is no index, or it is damaged.
        SpecError: the index holds encoded texts.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        manifest = committed(path)
        dim = check_given(manifest, str(path))[1].input_dim or manifest.dim
        super().__init__(path, dim, timeout=timeout)

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
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
    ) -> int:
        """Delete rows, and all of a document, of what the index held before the batch; how many.

        Builds from a file leave them out.

        Args:
            ids: of documents or rows.
            where: a condition. With ids, only what is theirs and fulfils it.
            missing: whether an id that the index does not have is an error or left out.

        Raises:
            QueryError: the index has no such id, or the condition is wrong.
        """
        names = () if ids is None else names_of(ids, "ids")
        gone = chosen(Store.open(self.path), names, where, missing)[1].every
        self._deleted |= set(gone)
        return super().delete(gone)
