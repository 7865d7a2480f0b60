"""Cutting documents into what is encoded, ahead of the model, in order.

Document -> Items (row and text to encode). One thread cuts the next documents while the model encodes; more of them
would wait for the interpreter's lock. How many documents wait is bounded, by number and by characters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.language import LANGUAGE
from ragidx.corpora.records import Document
from ragidx.indexer.digests import digest
from ragidx.indexer.store.rows import Row

_WAITING = 64
_WAITING_CHARS = 8 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """A chunk on its way: its row, and the text that is encoded."""

    row: Row
    text: str


class Cutter:
    """A thread over one chunker; a context manager.

    Args:
        chunker: of the build.
        language: names the language of a text, for the metadata of documents that name none; None: nobody asks.

    `submit` takes a document and yields the items of documents that are done, one list a document, in the order of
    submission; `drain` yields the rest.
    """

    def __init__(self, chunker: Chunker, language: Callable[[str], str | None] | None = None) -> None:
        self._chunker, self._language = chunker, language
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ragidx-cut")
        self._waiting: deque[tuple[int, Future[list[Item]]]] = deque()
        self._n_chars = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, document: Document, doc_hash: bytes) -> Iterator[list[Item]]:
        """Begin a document."""
        self._waiting.append((len(document.text), self._pool.submit(self._cut, document, doc_hash)))
        self._n_chars += len(document.text)
        while len(self._waiting) > _WAITING or self._n_chars > _WAITING_CHARS:
            yield self._next()

    def drain(self) -> Iterator[list[Item]]:
        """Finish what was begun."""
        while self._waiting:
            yield self._next()

    def _next(self) -> list[Item]:
        n_chars, done = self._waiting.popleft()
        self._n_chars -= n_chars
        return done.result()

    def _cut(self, document: Document, doc_hash: bytes) -> list[Item]:
        items = []
        chunks = list(self._chunker.chunks(document))
        metadata = {**document.metadata, **document.file}
        if self._language is not None:
            metadata.setdefault(LANGUAGE, self._language(document.text))
        positions = document.positions(chunk.start for chunk in chunks)
        for chunk, (line, page) in zip(chunks, positions, strict=True):
            text = self._chunker.encoded_text(chunk)
            row = Row(
                chunk_id=chunk.id,
                doc_id=chunk.doc_id,
                start=chunk.start,
                end=chunk.end,
                text=chunk.text,
                heading=chunk.heading or document.heading,
                text_hash=digest(text),
                doc_hash=doc_hash,
                metadata=metadata,
                line=line,
                page=page,
            )
            items.append(Item(row, text))
        return items
