"""Chunking: a Document becomes spans that fit the encoder, counted in its own tokens.

Document(text) -> Chunk(start, end, text, heading): offsets are characters, end excluded, and
`document.text[chunk.start:chunk.end] == chunk.text`. Every character that is not white space is in at least one chunk.
A chunk ends at the best place in its second half: a heading, a paragraph, a line, a sentence, a word. Tokens are summed
over pieces of the text (`pieces`), which takes a fifth of the time of tokenising it; where the sum may be wrong, the
chunk is counted whole. So a chunk tokenised alone, its heading prefix included, has at most `capacity` tokens.
Models, templates and special tokens are not known here: the caller subtracts what they need from `limit`.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import tokenizers

from ragidx.corpora.chunking.levels import Levels
from ragidx.corpora.chunking.packing import CHARS_A_TOKEN, TextSpan, Window, pack
from ragidx.corpora.chunking.pieces import Counter
from ragidx.corpora.chunking.places import halves, next_seen, stripped
from ragidx.corpora.errors import SpecError, panics_of
from ragidx.corpora.headings import SEPARATOR, Section, sections
from ragidx.corpora.records import Chunk, Document
from ragidx.corpora.spec import ChunkSpec

_WINDOW_CHARS = 1 << 18  # tokenising 1 MiB at once takes 150 MB
_MOST_WINDOW_CHARS = 1 << 23


class Chunker:
    """Cuts documents by a `ChunkSpec`. Threads may share it.

    Args:
        spec: size and overlap in tokens, and whether the heading path goes in front of what is encoded.
        tokenizer: the encoder's own; it is copied, without truncation and padding, and reads special tokens as text. Or
            what makes a `Counter`, which then knows the words of the chunks; it is called when the first text is cut.
        limit: the most tokens of text that fit the encoder beside special tokens, prompt and copies.
        takes_ids: whether the encoder reads ids that were worked out elsewhere.

    Attributes:
        takes_ids: the argument of this name; False for whole documents, which may be longer than what is read of them.
        capacity: the most tokens of `encoded_text(chunk)`, special tokens excluded: `min(spec.size, limit)`. Two
            exceptions: one character that alone is longer (it cannot be cut), and whole documents (`spec.size` None),
            which the encoder truncates.

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
        self._spec = spec
        self._tokenizer = _plain_copy(tokenizer) if isinstance(tokenizer, tokenizers.Tokenizer) else tokenizer
        self._prefix = functools.lru_cache(maxsize=1024)(self._make_prefix)

    def chunks(self, document: Document) -> Iterator[Chunk]:
        """The chunks of a document, in order; their ends rise, so no two are the same. A blank document has none.

        Raises:
            DefectError: the tokenizer gave up on it.
        """
        all_sections = sections(document.text) if document.markdown else []
        starts = [section.start for section in all_sections]
        reached = 0

        def chunk_of(start: int, end: int) -> Chunk:
            heading = all_sections[bisect.bisect_right(starts, start) - 1].path if all_sections else ""
            return Chunk(document.id, start, end, document.text[start:end], heading)

        with panics_of("tokenizers", document.id, bare=True):
            for spans in self._batches(document, all_sections):
                for chunk in self._fitting(chunk_of, document.text, spans):
                    # Halves of a chunk that was too long may repeat its neighbour's overlap: that adds nothing.
                    if chunk.end > reached:
                        reached = chunk.end
                        yield chunk

    def encoded_text(self, chunk: Chunk) -> str:
        """The encoder's input: the text, with `spec.headings` after the heading path and an empty line.

        A path longer than half of `capacity` loses outer levels first, then the end of the last title. A whole
        document holds its headings already, and gets no prefix.
        """
        if not self._spec.headings or self._spec.size is None or chunk.bare:
            return chunk.text
        return self._prefix(chunk.heading)[0] + chunk.text

    def ids(self, texts: Sequence[str]) -> list[bytes]:
        """The token ids of encoded texts, as the encoder's tokenizer gives them, as bytes of `ID_DTYPE`."""
        return self._counter.ids(texts)

    def parts(self) -> tuple[ChunkSpec, int, str | None]:
        """What makes an equal one elsewhere: spec, limit, and the tokenizer as JSON; None: it has none."""
        try:
            tokenizer = self._counter.tokenizer.to_str()
        except Exception:  # noqa: BLE001  # the library raises this class for parts written in Python
            tokenizer = None
        return self._spec, self.capacity, tokenizer

    @functools.cached_property
    def _counter(self) -> Counter:
        made = self._tokenizer
        return Counter(made) if isinstance(made, tokenizers.Tokenizer) else made()

    def _batches(self, document: Document, found: Sequence[Section]) -> Iterator[list[TextSpan]]:
        """Spans, a window at a time; with `spec.headings` none crosses a heading."""
        text = document.text
        if self._spec.size is None:
            yield [TextSpan(0, len(text), False)]
            return
        levels = Levels(text, found)
        if not self._spec.headings or not found:
            yield from self._windows(levels, text, 0, len(text), self.capacity)
            return
        for group, end in _groups(text, found):
            prefixes = [self._prefix(section.path) for section in group]
            budget = max(1, self.capacity - max(tokens for _, tokens, _ in prefixes))
            doubtful = any(doubt for *_, doubt in prefixes)
            for spans in self._windows(levels, text, group[0].start, end, budget):
                yield [TextSpan(one.start, one.end, True) for one in spans] if doubtful else spans

    def _windows(self, levels: Levels, text: str, start: int, end: int, budget: int) -> Iterator[list[TextSpan]]:
        """The spans of `text[start:end]`; what depends on the text behind a window is cut with the next."""
        # The spec's overlap is a share of its size: a model that leaves less room keeps the share.
        overlap = self._spec.overlap * budget // (self._spec.size or budget)
        width = min(max(_WINDOW_CHARS, 2 * CHARS_A_TOKEN * budget), _MOST_WINDOW_CHARS)
        behind = start
        while (start := next_seen(text, start)) < end:
            stop = min(end, start + width)
            window = Window(text, start, stop, self._counter.pieces(text[start:stop], start), last=stop == end)
            spans, following = pack(window, levels, self._counter, budget, overlap, behind)
            if not spans and stop < end:  # nothing but a word, and a blank that is longer than the window
                window = dataclasses.replace(window, last=True)
                spans, following = pack(window, levels, self._counter, budget, overlap, behind)
            yield spans
            start, behind = following, spans[-1].end

    def _fitting(self, chunk_of: Callable[[int, int], Chunk], text: str, spans: Sequence[TextSpan]) -> Iterator[Chunk]:
        """The spans' text in chunks of at most `capacity` tokens: one that is too long is halved until it fits."""
        inner = [stripped(text, span.start, span.end) for span in spans]
        chunks = [chunk_of(start, end) for start, end in inner]
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
        return self._counter.counts([self.encoded_text(chunk) for chunk in chunks]) if chunks else []

    def _make_prefix(self, path: str) -> tuple[str, int, bool]:
        """What goes in front of a text below a heading, its tokens there, and whether they may be others."""
        room = self.capacity // 2
        while path and self._count(f"{path}\n\n") > room:
            _, separator, inner = path.partition(SEPARATOR)
            path = inner if separator else path[: len(path) * 7 // 8].rstrip()
        if not path:
            return "", 0, False
        prefix = f"{path}\n\n"
        return prefix, self._count(f"{prefix}a") - self._count("a"), not path.isprintable()

    def _count(self, text: str) -> int:
        return self._counter.counts([text])[0]


def _plain_copy(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    copy = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True
    return copy


def _groups(text: str, found: Sequence[Section]) -> Iterator[tuple[list[Section], int]]:
    """Sections that are cut together, and where they end: a heading without text of its own joins what follows."""
    group: list[Section] = []
    ends = [following.start for _, following in pairwise(found)] + [len(text)]
    for section, end in zip(found, ends, strict=True):
        group.append(section)
        if end == len(text) or next_seen(text, section.body) < end:
            yield group, end
            group = []
