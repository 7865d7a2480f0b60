"""Cutting documents into what is encoded, ahead of the model, in order.

Document -> Items (row and text to encode); Drafts -> their Items, one list a document. One thread cuts the next
documents while the model encodes; more of them would wait for the interpreter's lock. How many documents wait is
bounded, by number and by characters.
"""

from __future__ import annotations

import dataclasses
import functools
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.language import LANGUAGE, language_finder
from ragidx.corpora.records import Chunk, Document, Place
from ragidx.corpora.whole import whole_of
from ragidx.indexer.digests import digest
from ragidx.indexer.store.rows import Row

_WAITING = 64
_WAITING_CHARS = 8 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """A chunk on its way: its row, the text that is encoded, and its token ids, if a worker gave them."""

    row: Row
    text: str
    ids: bytes | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A document as it was read, before anything is decided about it.

    Args:
        id: of the document.
        hash: of everything its rows hold.
        n_chars: of its text; 0: it is blank.
        cut: gives its chunks. Called where they are wanted, and not before.
        owner: the number of its source; 0 for a program.
    """

    id: str
    hash: bytes
    n_chars: int
    cut: Callable[[], list[Item]]
    owner: int = 0


def program_draft(document: Document, cutter: Cutter) -> Draft:
    """A program's document; its rows keep it whole."""
    whole = whole_of(document)
    doc_hash = digest(whole)

    def cut() -> list[Item]:
        return [
            dataclasses.replace(item, row=dataclasses.replace(item.row, whole="" if number else whole))
            for number, item in enumerate(cutter.cut(document, doc_hash))
        ]

    return Draft(document.id, doc_hash, len(document.text), cut)


class Cutter:
    """Cuts documents. Threads may share it.

    Args:
        make_chunker: called when the first text is cut: a build with nothing to cut loads no model.
        language: whether documents that name no language get one in their metadata.
        ahead: whether workers cut all documents; False: few are wanted, and they are cut here.
    """

    def __init__(self, make_chunker: Callable[[], Chunker], *, language: bool = False, ahead: bool = True) -> None:
        self._make_chunker, self.language, self.ahead = make_chunker, language, ahead

    @functools.cached_property
    def chunker(self) -> Chunker:
        """The chunker, made now if it is not yet."""
        return self._make_chunker()

    @functools.cached_property
    def _find_language(self) -> Callable[[str], str | None] | None:
        return language_finder() if self.language else None

    def cut(self, document: Document, doc_hash: bytes, owner: int = 0) -> list[Item]:
        """The chunks of a document of a source, by its number, with what their rows hold."""
        items = []
        chunks = list(self.chunker.chunks(document))
        metadata = {**document.metadata, **document.file}
        if self._find_language is not None:
            metadata.setdefault(LANGUAGE, self._find_language(document.text))
        positions = document.positions(chunk.start for chunk in chunks)
        turns = _turns(document, chunks)
        for chunk, (line, page), turned in zip(chunks, positions, turns, strict=True):
            text = self.chunker.encoded_text(chunk)
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
                turns=turned,
                owner=owner,
            )
            items.append(Item(row, text))
        return items


def _turns(document: Document, chunks: Sequence[Chunk]) -> list[tuple[Place, ...] | None]:
    """Where in each chunk line and page change; None where its newlines say so, and the page stays."""
    offsets = [place.offset for place in document.places]
    counted = [
        not document.parts and bisect_right(offsets, chunk.start) == bisect_left(offsets, chunk.end) for chunk in chunks
    ]
    turns = [] if all(counted) else document.turns()
    begins = [turn.offset for turn in turns]
    spans = [slice(bisect_right(begins, chunk.start), bisect_left(begins, chunk.end)) for chunk in chunks]
    return [
        None if by_newlines else tuple(turn._replace(offset=turn.offset - chunk.start) for turn in turns[span])
        for chunk, span, by_newlines in zip(chunks, spans, counted, strict=True)
    ]


def cut_ahead(drafts: Iterable[Draft]) -> Iterator[list[Item]]:
    """The chunks of each document, in order, cut in a thread of its own while the caller uses those before."""
    waiting: deque[tuple[int, Future[list[Item]]]] = deque()
    n_chars = 0
    pool = ThreadPoolExecutor(1, thread_name_prefix="ragidx-cut")
    try:
        for draft in drafts:
            waiting.append((draft.n_chars, pool.submit(draft.cut)))
            n_chars += draft.n_chars
            while len(waiting) > _WAITING or n_chars > _WAITING_CHARS:
                length, done = waiting.popleft()
                n_chars -= length
                yield done.result()
        while waiting:
            yield waiting.popleft()[1].result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
