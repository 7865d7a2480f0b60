"""Chunking: a Document becomes spans that fit the encoder, counted in its own tokens.

Document(text) -> Chunk(start, end, text, heading): offsets are characters, end excluded, and
`document.text[chunk.start:chunk.end] == chunk.text`. Every character that is not white space is in at least one chunk.
A chunk ends at the best place in its second half: a heading, a paragraph, a line, a sentence, a word. Tokens are summed
over pieces of the text (`pieces`), which takes a fifth of the time of tokenising it; where the sum may be wrong, the
chunk is counted whole. So a chunk tokenised alone has at most `capacity` tokens.
What is encoded of a chunk may have the document's title in front, where its text does not begin with that. Titles
change no cut: their tokens come on top, as many as `limit` leaves.
Models, templates and special tokens are not known here: the caller subtracts what they need from `limit`.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import tokenizers

from ragidx.corpora.chunking.levels import Levels
from ragidx.corpora.chunking.packing import CHARS_A_TOKEN, TextSpan, Window, pack
from ragidx.corpora.chunking.pieces import Counter
from ragidx.corpora.chunking.places import halves, next_seen, stripped
from ragidx.corpora.errors import SpecError, panics_of
from ragidx.corpora.headings import SEPARATOR, begins_with, one_line_title, sections
from ragidx.corpora.records import Chunk, Document
from ragidx.corpora.spec import ChunkSpec

TITLE_TOKENS = 32
"""The most tokens of a title in front of a chunk."""

ChunkOf: TypeAlias = Callable[[int, int, bytes | None], Chunk]

_BETWEEN = 8  # tokens, with some to spare, of the empty line behind a title
_WINDOW_CHARS = 1 << 18  # tokenising 1 MiB at once takes 150 MB
_MOST_WINDOW_CHARS = 1 << 23


class Chunker:
    """Cuts documents by a `ChunkSpec`. Threads may share it.

    Args:
        spec: size and overlap in tokens, and whether the title goes in front of what is encoded.
        tokenizer: the encoder's own; it is copied, without truncation and padding, and reads special tokens as text. Or
            what makes a `Counter`, which then knows the words of the chunks; it is called when the first text is cut.
        limit: the most tokens of text that fit the encoder beside special tokens, prompt and copies.
        takes_ids: whether the encoder reads ids that were worked out elsewhere.

    Attributes:
        takes_ids: the argument of this name; False for whole documents, which may be longer than what is read of them.
        capacity: the most tokens of a chunk's text, special tokens excluded: `min(spec.size, limit)`. Two exceptions:
            one character that alone is longer (it cannot be cut), and whole documents (`spec.size` None), which the
            encoder truncates.

    Raises:
        SpecError: `limit` leaves no room for a token of text.
    """

    def __init__(
        self,
        spec: ChunkSpec,
        tokenizer: tokenizers.Tokenizer | Callable[[], Counter],
        *,
        limit: int,
        takes_ids: bool = False,
    ) -> None:
        if limit < 1:
            raise SpecError(
                f"the model leaves room for {limit} tokens of text after its prompt and special tokens",
                "use a shorter template or instruction, or a model with a longer context",
                where="`max_length`",
            )
        self.capacity = limit if spec.size is None else min(spec.size, limit)
        self.takes_ids = takes_ids and spec.size is not None
        self._spec, self._limit = spec, limit
        self._tokenizer = _plain_copy(tokenizer) if isinstance(tokenizer, tokenizers.Tokenizer) else tokenizer
        self._bounded = functools.lru_cache(maxsize=1024)(self._make_bounded)
        self._title_ids = functools.lru_cache(maxsize=1024)(lambda title: self.ids([title])[0])

    def chunks(self, document: Document) -> Iterator[Chunk]:
        """The chunks of a document, in order; their ends rise, so no two are the same. A blank document has none.

        Raises:
            DefectError: the tokenizer gave up on it.
        """
        all_sections = sections(document.text) if document.markdown else []
        starts = [section.start for section in all_sections]
        title = _title_of(document) if self._spec.titles else ""
        first = next((section.path for section in all_sections if section.path), "")
        if first and title.startswith(first) and not title[len(first) :].lstrip()[:1].isalnum():
            title = ""  # paths begin with it, or with another heading of its level; a page's may name the site, too
        reached = 0

        def chunk_of(start: int, end: int, ids: bytes | None) -> Chunk:
            text = document.text[start:end]
            path = all_sections[bisect.bisect_right(starts, start) - 1].path if all_sections else ""
            if not self._spec.titles:
                return Chunk(document.id, start, end, text, path or document.heading, not path, ids)
            if begins_with(text, title):
                return Chunk(document.id, start, end, text, path, True, ids)
            heading = f"{title}{SEPARATOR}{path}" if title and path else title or path
            return Chunk(document.id, start, end, text, heading, begins_with(text, _outermost(heading)), ids)

        with panics_of("tokenizers", document.id, bare=True):
            for spans in self._batches(document, Levels(document.text, all_sections)):
                for chunk in self._fitting(chunk_of, document.text, spans):
                    # Halves of a chunk that was too long may repeat its neighbour's overlap: that adds nothing.
                    if chunk.end > reached:
                        reached = chunk.end
                        yield chunk

    def encoded_text(self, chunk: Chunk) -> str:
        """The encoder's input: the text, with `spec.titles` after the title and an empty line, if it lacks the title.

        A title has at most `TITLE_TOKENS`, and no more than `limit` leaves beside the text: its end goes, never that
        of the text. Whole documents may be longer than `limit` in any case.
        """
        title = ""
        if not chunk.bare and (self._spec.titles or self._spec.headings):
            title = self._bounded(chunk.heading if self._spec.headings else _outermost(chunk.heading))
        has_room = self._spec.size is None or self.capacity + TITLE_TOKENS + _BETWEEN <= self._limit
        while title:
            text = f"{title}\n\n{chunk.text}"
            if has_room or self._count(text) <= self._limit:
                return text
            title = _shorter(title)
        return chunk.text

    def encoded_ids(self, chunks: Sequence[Chunk], texts: Sequence[str]) -> list[bytes]:
        """The token ids of chunks' encoded texts, as `ids` gives them."""
        found = []
        for chunk, text in zip(chunks, texts, strict=True):
            title = text[: len(text) - len(chunk.text)]
            found.append(None if chunk.ids is None else self._title_ids(title) + chunk.ids if title else chunk.ids)
        left = iter(self.ids([text for text, ids in zip(texts, found, strict=True) if ids is None]))
        return [next(left) if ids is None else ids for ids in found]

    def ids(self, texts: Sequence[str]) -> list[bytes]:
        """The token ids of encoded texts, as the encoder's tokenizer gives them, as bytes of `ID_DTYPE`."""
        return self._counter.ids(texts)

    def parts(self) -> tuple[ChunkSpec, int, str | None]:
        """What makes an equal one elsewhere: spec, limit, and the tokenizer as JSON; None: it has none."""
        try:
            tokenizer = self._counter.tokenizer.to_str()
        except Exception:  # noqa: BLE001  # the library raises this class for parts written in Python
            tokenizer = None
        return self._spec, self._limit, tokenizer

    @functools.cached_property
    def _counter(self) -> Counter:
        made = self._tokenizer
        return Counter(made) if isinstance(made, tokenizers.Tokenizer) else made()

    def _batches(self, document: Document, levels: Levels) -> Iterator[list[TextSpan]]:
        """Spans, a window at a time; what depends on the text behind a window is cut with the next."""
        text, end, budget = document.text, len(document.text), self.capacity
        if self._spec.size is None:
            yield [TextSpan(0, end, False)]
            return
        # The spec's overlap is a share of its size: a model that leaves less room keeps the share.
        overlap = self._spec.overlap * budget // self._spec.size
        width = min(max(_WINDOW_CHARS, 2 * CHARS_A_TOKEN * budget), _MOST_WINDOW_CHARS)
        start = behind = 0
        while (start := next_seen(text, start)) < end:
            stop = min(end, start + width)
            pieces = self._counter.pieces(text[start:stop], start, ids=self.takes_ids)
            window = Window(text, start, stop, pieces, last=stop == end)
            spans, following = pack(window, levels, self._counter, budget, overlap, behind)
            if not spans and stop < end:  # nothing but a word, and a blank that is longer than the window
                window = dataclasses.replace(window, last=True)
                spans, following = pack(window, levels, self._counter, budget, overlap, behind)
            yield spans
            start, behind = following, spans[-1].end

    def _fitting(self, chunk_of: ChunkOf, text: str, spans: Sequence[TextSpan]) -> Iterator[Chunk]:
        """The spans' text in chunks of at most `capacity` tokens: one that is too long is halved until it fits."""
        chunks = [chunk_of(*stripped(text, span.start, span.end), span.ids) for span in spans]
        doubtful = [number for number, span in enumerate(spans) if span.doubtful]
        counts = dict(zip(doubtful, self._counts([chunks[number] for number in doubtful]), strict=True))
        for number, chunk in enumerate(chunks):
            if counts.get(number, 0) <= self.capacity or len(chunk.text) == 1:
                if chunk.text:
                    yield chunk
            else:
                parts = [TextSpan(chunk.start + start, chunk.start + end, True) for start, end in halves(chunk.text)]
                yield from self._fitting(chunk_of, text, parts)

    def _counts(self, chunks: Sequence[Chunk]) -> list[int]:
        return self._counter.counts([chunk.text for chunk in chunks]) if chunks else []

    def _make_bounded(self, title: str) -> str:
        """As much of a title as has at most `TITLE_TOKENS`."""
        while title and self._count(title) > TITLE_TOKENS:
            title = _shorter(title)
        return title

    def _count(self, text: str) -> int:
        return self._counter.counts([text])[0]


def _plain_copy(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    copy = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True
    return copy


def _title_of(document: Document) -> str:
    """The title of a document beside its text: its heading, else what its metadata have under `title`, on one line."""
    found = document.heading or document.metadata.get("title")
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        return ""
    return one_line_title(str(found)).replace(SEPARATOR, " › ")


def _outermost(path: str) -> str:
    return path.partition(SEPARATOR)[0]


def _shorter(title: str) -> str:
    return title[: len(title) * 7 // 8].rstrip()
