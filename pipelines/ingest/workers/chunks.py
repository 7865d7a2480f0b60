"""Cutting documents into what is encoded, ahead of the model, in order.

Document -> Items (row and text to encode); Drafts -> their Items, one list a document. One thread cuts the next
documents while the model encodes; more of them would wait for the interpreter's lock. How many documents wait is
bounded, by number and by characters.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.errors import DefectError
from ragidx.corpora.language import LANGUAGE, language_finder
from ragidx.corpora.readers.records.paths import fields_of
from ragidx.corpora.records import Chunk, Document, Place
from ragidx.corpora.whole_documents import gaps_of, in_utc, whole_of
from ragidx.indexer.digests import digest
from ragidx.indexer.store.rows import Row

_WAITING = 64
_WAITING_CHARS = 8 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """A chunk on its way: its row, the text that is encoded, and its token ids, if the encoder takes them."""

    row: Row
    text: str
    ids: bytes | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A document as it was read, before anything is decided about it.

    Args:
        id: id of the document.
        hash: hash of everything that its rows hold.
        n_chars: number of characters of its text; 0: it is blank.
        owner: the number of its source; 0 for a program.
        document: None where a worker has cut it, or saw that the index has it as it is.
        items: chunks of the document, where a worker has cut it.
        whole: what the first row of a program's document keeps of it.
    """

    id: str
    hash: bytes
    n_chars: int
    owner: int = 0
    document: Document | None = None
    items: Sequence[Item] | None = None
    whole: str | None = None


def program_draft(document: Document) -> Draft:
    """A program's document; its rows keep it whole."""
    whole = whole_of(document)
    return Draft(document.id, digest(whole), len(document.text), document=document, whole=whole)


class Cutter:
    """Cuts documents. Threads may share it.

    Args:
        make_chunker: called when the first text is cut: a build with nothing to cut loads no model.
        language: whether documents that name no language get one in their metadata.
    """

    def __init__(self, make_chunker: Callable[[], Chunker], *, language: bool = False) -> None:
        self._make_chunker, self.language = make_chunker, language

    @functools.cached_property
    def chunker(self) -> Chunker:
        """The chunker, made now if it is not yet."""
        return self._make_chunker()

    @functools.cached_property
    def _find_language(self) -> Callable[[str], str | None] | None:
        return language_finder() if self.language else None

    def cut(self, draft: Draft) -> Sequence[Item]:
        """The chunks of a document with what their rows hold: those of the worker that cut it, else made now."""
        if draft.items is not None:
            return draft.items
        if draft.document is None:
            raise DefectError("a document that the index has is wanted as a new one", "report it", where=draft.id)
        items: list[Item] = []
        document = draft.document
        chunks = list(self.chunker.chunks(document))
        given = document.metadata if draft.whole is not None else in_utc(document.metadata)
        ours = dict(document.file)
        if self._find_language is not None and LANGUAGE not in given:
            ours[LANGUAGE] = self._find_language(document.text)
        metadata, seen = {**given, **ours}, fields_of(given)
        fields = None if seen is given else {**seen, **ours}
        positions = document.positions(chunk.start for chunk in chunks)
        turns = _turns(document, chunks)
        gaps = gaps_of(document.text, ((chunk.start, chunk.end) for chunk in chunks)) if draft.whole is None else None
        texts = [self.chunker.encoded_text(chunk) for chunk in chunks]
        ids = self.chunker.encoded_ids(chunks, texts) if self.chunker.takes_ids else [None] * len(chunks)
        encoded = zip(texts, ids, strict=True)
        for chunk, (text, its_ids), (line, page), turned in zip(chunks, encoded, positions, turns, strict=True):
            row = Row(
                chunk_id=chunk.id,
                doc_id=chunk.doc_id,
                start=chunk.start,
                end=chunk.end,
                text=chunk.text,
                heading=chunk.heading,
                text_hash=digest(text),
                doc_hash=draft.hash,
                metadata=metadata,
                line=line,
                page=page,
                turns=turned,
                owner=draft.owner,
                whole=draft.whole if draft.whole is None or not items else "",
                gaps=None if items else gaps,
                fields=fields,
            )
            items.append(Item(row, text, its_ids))
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


def cut_ahead(drafts: Iterable[Draft], cutter: Cutter) -> Iterator[Sequence[Item]]:
    """The chunks of each document, in order, cut in a thread of its own while the caller uses those before.

    What a worker has cut needs no thread; nor do chunks for an encoder that only sums rows, which holds the
    interpreter's lock as cutting does: to wait for each other would take a tenth of the time.
    """
    waiting: deque[tuple[int, Future[Sequence[Item]]]] = deque()
    n_chars = 0
    pool = ThreadPoolExecutor(1, thread_name_prefix="ragidx-cut")
    try:
        for draft in drafts:
            chunker = cutter.chunker  # made here, and not in the thread
            if not waiting and (draft.items is not None or chunker.takes_ids):
                yield cutter.cut(draft)
                continue
            waiting.append((draft.n_chars, pool.submit(cutter.cut, draft)))
            n_chars += draft.n_chars
            while len(waiting) > _WAITING or n_chars > _WAITING_CHARS:
                length, done = waiting.popleft()
                n_chars -= length
                yield done.result()
        while waiting:
            yield waiting.popleft()[1].result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
