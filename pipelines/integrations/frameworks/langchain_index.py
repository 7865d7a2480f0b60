"""The index behind a LangChain store: opened or made, asked, changed. Extra `langchain`.

question or vector, filter -> Documents with their hits            checked documents -> one commit, or none
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

import ragidx
from ragidx.pipelines.integrations.frameworks.conditions import (
    check_refresh,
    check_widths,
    opened,
    placed,
    vectors_of,
    with_vector,
)
from ragidx.pipelines.integrations.frameworks.langchain_filters import where_of
from ragidx.pipelines.integrations.frameworks.langchain_rows import (
    BARE,
    chunk_document,
    diverse,
    documents_of,
    hit_document,
    packed,
    program_document,
    row_document,
)

Filter: TypeAlias = Mapping[str, Any] | str | ragidx.Condition | None
Answer: TypeAlias = tuple[Document, ragidx.Hit]

_READ_WHOLE = 10**9  # tokens of a chunk: as many as the model reads, so that of a longer text nothing is cut off
_CHUNK_ID = re.compile(r"(.+):\d+-\d+", re.DOTALL)
_MAKING = Lock()  # of an index: of two threads of a store one makes it


class Opened:
    """An index that may not be there yet.

    Args:
        index: an open index, or its folder; None: one in memory.
        embedding: the caller's embedding; None: the index encodes.
        refresh: "auto" asks each question of the newest committed state; None: of the state that is open.
        timeout: seconds that a change waits for another writer.

    Raises:
        SpecError: the index encodes texts, and there is an embedding; or `refresh` is unknown.
        IndexFormatError: the folder holds something else, or the index is damaged.
    """

    def __init__(
        self, index: ragidx.Index | str | Path | None, embedding: Embeddings | None, refresh: str | None, timeout: float
    ) -> None:
        check_refresh(refresh)
        self.embedding, self.timeout = embedding, timeout
        self._refresh = refresh
        self._index = self._checked(index) if isinstance(index, ragidx.Index) else None
        self._path = Path(index) if isinstance(index, str | Path) else None
        self.found()

    def answers(
        self,
        query: str | None,
        vector: list[float] | None,
        k: int,
        filter: Filter,
        options: Mapping[str, Any],
    ) -> list[Answer]:
        """The k best documents with their best hits; a chunk of a file is one, too."""
        index = self.shown()
        if "where" in options:
            raise TypeError("a store has no option 'where': give the condition as `filter`")
        if index is None:
            return []
        where, wide = where_of(filter, index), k
        asked: dict[str, Any] = {"mode": "dense", "fold": False, **options}
        by_words = asked["mode"] == "lexical" and query is not None
        asked["where"] = where if by_words else with_vector(where, BARE, index)
        asked |= {"query": query, "vector": None if by_words else vector}
        while True:
            hits = index.search(k=wide, **asked)
            found = _documents(index, hits)
            if len(found) >= k or len(hits) < wide:
                return found[:k]
            wide *= 2  # several hits were of one document

    def diverse(self, answers: Sequence[Answer], k: int, weight: float) -> list[Document]:
        """Documents of k of the answers, chosen as `diverse` says."""
        index = self._index
        if not answers or index is None:
            return []
        relevance = [2 * score - 1 for _, score in relevant(answers)]
        vectors = vectors_of(index, ragidx.field("doc_id").is_in(hit.doc_id for _, hit in answers))
        here = [row for row, (_, hit) in enumerate(answers) if hit.chunk_id in vectors]
        chosen = diverse(
            [relevance[row] for row in here], [vectors[answers[row][1].chunk_id] for row in here], k, weight
        )
        return [answers[here[place]][0] for place in chosen]

    def by_ids(self, ids: Sequence[str]) -> list[Document]:
        """Documents by their ids, or chunks of files by theirs."""
        index = self.shown()
        if index is None:
            return []
        is_row = index.spec.precomputed is not None
        found = {
            one.id: row_document(one.id, one.text, one.metadata) if is_row else program_document(one)
            for one in index.get(ids, missing="skip")
        }
        if not is_row and index.sources():
            found = {**_chunks(index, [name for name in ids if name not in found]), **found}
        return [found[name] for name in ids if name in found]

    def found(self) -> ragidx.Index | None:
        """The index, opened if it was not yet; None: there is none."""
        if self._index is None and self._path is not None:
            with _MAKING:
                if self._index is None and (found := opened(self._path)) is not None:
                    self._index = self._checked(found)
        return self._index

    def shown(self) -> ragidx.Index | None:
        """The index, in the state that is asked; None: there is none."""
        index = self.found()
        if index is not None and self._refresh == "auto":
            index.refresh()
        return index

    def made(self, dim: int | None) -> ragidx.Index:
        """The index, made if there is none: for vectors of `dim` dimensions; None: for texts."""
        with _MAKING:
            if self._index is None:
                create: Any = {"chunks": ragidx.ChunkSpec(size=_READ_WHOLE)} if dim is None else {"dim": dim}
                self._index = self._checked(ragidx.Index(self._path, create=create))
            return self._index

    def _checked(self, index: ragidx.Index) -> ragidx.Index:
        if self.embedding is not None and index.spec.precomputed is None:
            raise ragidx.SpecError(
                "the index encodes its texts itself, and vectors of another embedding are not comparable",
                "remove `embedding`, or name another folder",
                where=str(index.path),
            )
        return index


class StoreBatch(contextlib.AbstractContextManager["StoreBatch"]):
    """Changes of a store that become visible together at the end of the block, as `RagidxVectorStore.batch` says."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._stack = contextlib.ExitStack()
        self._inner: Any = None  # the batch of the index, from the first change on
        self._has_ended = False

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_ended = True
        self._stack.__exit__(kind, fault, trace)

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
    ) -> list[str]:
        """Add texts, as `RagidxVectorStore.add_texts`; of two texts of one id the later one counts."""
        documents = documents_of(texts, metadatas, ids)
        at_once = slices([document.text for document in documents], batch_size)
        embedding, vectors = self._opened.embedding, None
        if embedding is not None:
            vectors = [vector for some in at_once for vector in embedding.embed_documents(some)]
        return self.put(documents, vectors)

    def add_documents(
        self, documents: Sequence[Document], *, ids: Sequence[str | None] | None = None, batch_size: int | None = None
    ) -> list[str]:
        """Add documents, as `RagidxVectorStore.add_documents`."""
        texts, metadatas, names = parts(documents, ids)
        return self.add_texts(texts, metadatas, ids=names, batch_size=batch_size)

    def delete(self, ids: Sequence[str] | None = None, *, filter: Filter = None) -> None:
        """Delete, as `RagidxVectorStore.delete`; a filter is asked of what the index held before the batch."""
        if ids is None and (filter is None or filter in ("", {})):
            raise ragidx.QueryError(
                "nothing says what to delete",
                "give ids or a filter; all documents at once are not deleted",
                where="`ids`",
            )
        index = self._opened.found()
        if index is not None and (ids is None or len(ids)):
            inner = self._begun(index)
            inner.delete(ids, where=where_of(filter, index), missing="skip")

    def put(self, documents: Sequence[ragidx.Document], vectors: Sequence[Sequence[float]] | None) -> list[str]:
        """Write documents that are checked, and embedded if the caller does that."""
        if not documents:
            return []
        if vectors is not None and len(vectors) != len(documents):
            raise ragidx.ModelError(
                f"the embedding makes {len(vectors)} vectors for {len(documents)} texts",
                "give one that makes a vector of each text",
            )
        if vectors is None:
            index = self._opened.made(None)
            if index.spec.precomputed is not None:
                raise ragidx.SpecError(
                    "the index holds precomputed vectors, and the store has nothing that makes them",
                    "give the store the `embedding` that made them",
                    where=str(index.path),
                )
            self._begun(index).add(documents)
            return [document.id for document in documents]
        rows = {one.id: (one, *placed(vector)) for one, vector in zip(documents, vectors, strict=True)}
        check_widths(self._opened.found(), [(name, vector) for name, (_, vector, _) in rows.items()])
        kept, matrix, are_bare = zip(*rows.values(), strict=True)
        metadata = [packed(one, is_bare=is_bare) for one, is_bare in zip(kept, are_bare, strict=True)]
        index = self._opened.made(len(vectors[0]))
        inner = self._begun(index)
        for one in kept:
            inner.types.note({name: value for name, value in one.metadata.items() if value != []}, one.id)
        inner.add_vectors(list(rows), np.asarray(matrix), [one.text for one in kept], metadata)
        return [document.id for document in documents]

    def _begun(self, index: ragidx.Index) -> Any:
        if self._has_ended:
            raise ValueError("the batch has ended; begin another one")
        if self._inner is None:
            self._inner = self._stack.enter_context(index.batch(timeout=self._opened.timeout))
            index.refresh()  # what other writers have committed: no one writes any more
        return self._inner


def parts(
    documents: Sequence[Document], ids: Sequence[str | None] | None
) -> tuple[list[str], list[dict[str, Any]], list[Any]]:
    """Texts, metadatas and ids: those that are named before the documents' own."""
    own = [document.id for document in documents]
    names = own if ids is None else list(ids)
    if len(names) == len(own):
        names = [name or other for name, other in zip(names, own, strict=True)]
    return [document.page_content for document in documents], [document.metadata for document in documents], names


def slices(texts: list[str], size: int | None) -> Iterator[list[str]]:
    """Texts that an embedding gets at once; all of them where there is no size."""
    if size is not None and size < 1:
        raise ValueError(f"batch_size={size} is less than 1")
    step = size or len(texts) or 1
    return (texts[start : start + step] for start in range(0, len(texts), step))


def relevance(cosine: float) -> float:
    """The relevance of a cosine, 0 to 1."""
    return min(1.0, max(0.0, (1 + cosine) / 2))  # half precision may pass 1


def relevant(answers: Iterable[Answer]) -> list[tuple[Document, float]]:
    """Documents with their relevance, from 0 to 1."""
    found = []
    for document, hit in answers:
        if hit.dense is None:
            raise ragidx.QueryError(
                "relevance is of cosines, and lexical search has none", "take `mode=dense` or `hybrid`", where="`mode`"
            )
        found.append((document, relevance(hit.dense)))
    return found


def _documents(index: ragidx.Index, hits: Sequence[ragidx.Hit]) -> list[Answer]:
    """The documents of hits: a program's once, whole and as it was added; of files, each chunk."""
    if index.spec.precomputed is not None:
        return [(row_document(hit.chunk_id, hit.text, hit.metadata), hit) for hit in hits]
    names = {hit.doc_id for hit in hits}
    if index.sources():
        named = ragidx.field("doc_id").is_in(names) & ragidx.field("file.source").is_null()
        names = {name for batch in index.to_batches(["doc_id"], where=named) for name in batch.column(0).to_pylist()}
    own = {one.id: program_document(one) for one in index.get(list(names), missing="skip")}
    found, seen = list[Answer](), set[str]()
    for hit in hits:
        if hit.doc_id not in names:
            found.append((hit_document(hit), hit))
        elif hit.doc_id in own and hit.doc_id not in seen:  # else it was deleted meanwhile
            seen.add(hit.doc_id)
            found.append((own[hit.doc_id], hit))
    return found


def _chunks(index: ragidx.Index, ids: Sequence[str]) -> dict[str, Document]:
    """Chunks of files, by their ids."""
    names = [match[1] for name in ids if (match := _CHUNK_ID.fullmatch(name))]
    fields, wanted = index.info().schema, set(ids)
    named = ragidx.field("doc_id").is_in(names) & ~ragidx.field("file.source").is_null()
    return {
        row["chunk_id"]: chunk_document(row, fields)
        for batch in index.to_batches(where=named)
        for row in batch.to_pylist()
        if row["chunk_id"] in wanted
    }
