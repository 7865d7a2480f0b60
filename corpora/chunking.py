"""Chunking: a Document becomes spans that fit the encoder, counted in its own tokens.

Document(text) -> Chunk(start, end, text, heading): offsets are characters, end excluded, and
`document.text[chunk.start:chunk.end] == chunk.text`. Every character that is not white space is in at least one chunk.
Boundaries come from semantic-text-splitter (paragraph, sentence, word; in Markdown headings, lists and blocks too).
What it counts is checked here: a chunk tokenised alone, its heading prefix included, has at most `capacity` tokens.
Models, templates and special tokens are not known here: the caller subtracts what they need from `limit`.
"""

from __future__ import annotations

import bisect
import functools
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import tokenizers
from semantic_text_splitter import MarkdownSplitter, TextSplitter

from ragidx.corpora.errors import CorpusError, SpecError, lone_surrogate, panics_of
from ragidx.corpora.headings import SEPARATOR, TITLE_CHARS, Section, sections
from ragidx.corpora.records import Chunk, Document
from ragidx.corpora.spec import ChunkSpec

# The splitter's time grows with the square of what it is given where a text has no boundaries (200,000 Chinese
# characters without a full stop: 9 s; 200,000 `>` in Markdown: 57 s), so it sees a window at a time.
_WINDOW_CHARS_A_TOKEN = 16  # 64 takes as long for prose, and twice as long for text without boundaries
_WIDEST_CHARS_A_TOKEN = 256  # for tokenizers with few tokens in long text: runs of spaces, unknown words
# Deep nesting is as slow in a large window; lists of this depth are cut as plain text.
_DEEPLY_NESTED = re.compile(r"^[ \t>*+\-0-9.)]{200}", re.MULTILINE)
# One splitter is made for each budget (it copies the tokenizer: 30 ms for 30,000 words), so budgets are rounded down.
_BUDGET_STEPS = 8


class Chunker:
    """Cuts documents by a `ChunkSpec`.

    Args:
        spec: size and overlap in tokens, and whether the heading path goes in front of what is encoded.
        tokenizer: the encoder's own; it is copied, without truncation and padding, and reads special tokens as text.
        limit: the most tokens of text that fit the encoder beside special tokens, prompt and copies.

    Attributes:
        capacity: the most tokens of `encoded_text(chunk)`, special tokens excluded: `min(spec.size, limit)`. Two
            exceptions: one character that alone is longer (it cannot be cut), and whole documents (`spec.size` None),
            which the encoder truncates.

    Raises:
        SpecError: `limit` leaves no room for a token of text.
    """

    def __init__(self, spec: ChunkSpec, tokenizer: tokenizers.Tokenizer, *, limit: int) -> None:
        if limit < 1:
            raise SpecError(
                f"the model leaves room for {limit} tokens of text after its prompt and special tokens",
                "use a shorter template or instruction, or a model with a longer context",
                where="`max_length`",
            )
        self.capacity = limit if spec.size is None else min(spec.size, limit)
        self._spec = spec
        self._tokenizer = _plain_copy(tokenizer)
        self._splitter = functools.lru_cache(maxsize=2 * _BUDGET_STEPS)(self._make_splitter)
        self._prefix = functools.lru_cache(maxsize=1024)(self._make_prefix)

    def chunks(self, document: Document) -> Iterator[Chunk]:
        """The chunks of a document, in order; their ends rise, so no two are the same. A blank document has none.

        Raises:
            CorpusError: the text has a lone surrogate.
            DefectError: the splitter or the tokenizer panicked on it.
        """
        _refuse_surrogates(document)
        found = sections(document.text) if document.markdown else [Section(0, 0, "")]
        starts = [section.start for section in found]
        reached = 0

        def chunk_of(start: int, end: int) -> Chunk:
            return Chunk(document.id, start, end, document.text[start:end], _at(found, starts, start).path)

        with panics_of("semantic-text-splitter or tokenizers", document.id):
            for spans in _with_their_text(self._batches(document, found), found, starts):
                for chunk in self._fitting(chunk_of, spans):
                    # Halves of a chunk that was too long may repeat its neighbour's overlap: that adds nothing.
                    if chunk.end > reached:
                        reached = chunk.end
                        yield chunk

    def encoded_text(self, chunk: Chunk) -> str:
        """The encoder's input: the text, with `spec.headings` after the heading path and an empty line.

        A path longer than half of `capacity` loses outer levels first, then the end of the last title. A whole
        document holds its headings already, and gets no prefix.
        """
        if not self._spec.headings or self._spec.size is None:
            return chunk.text
        return self._prefix(chunk.heading) + chunk.text

    def _batches(self, document: Document, found: Sequence[Section]) -> Iterator[list[tuple[int, int]]]:
        """The splitter's spans without blank ones; with `spec.headings` none crosses a heading."""
        if self._spec.size is None:
            yield _not_blank(document.text, [_stripped(document.text, 0, len(document.text))])
        elif not self._spec.headings:
            yield from self._windows(document, 0, len(document.text), self.capacity)
        else:
            for group, end in _groups(document.text, found):
                prefix = max(self._count([self._prefix(section.path) for section in group]))
                yield from self._windows(document, group[0].start, end, self._budget(prefix))

    def _windows(self, document: Document, start: int, end: int, budget: int) -> Iterator[list[tuple[int, int]]]:
        """`text[start:end]` a window at a time; the last chunk of one was cut by its end, so the next begins there."""
        text = document.text
        width = _WINDOW_CHARS_A_TOKEN * budget
        while start < end:
            stop = end if start + width >= end else _boundary(text, start + width * 3 // 4, start + width)
            window = text[start:stop]
            markdown = document.markdown and not _DEEPLY_NESTED.search(window)
            spans = [(start + at, start + at + len(piece)) for at, piece in self._splitter(markdown, budget)(window)]
            if stop < end and len(spans) < 2 and width < _WIDEST_CHARS_A_TOKEN * budget:
                width *= 2
                continue
            if stop < end and len(spans) > 1 and spans[-1][0] > start:
                stop = spans.pop()[0]
            yield _not_blank(text, spans)
            start, width = stop, _WINDOW_CHARS_A_TOKEN * budget

    def _fitting(self, chunk_of: Callable[[int, int], Chunk], spans: list[tuple[int, int]]) -> Iterator[Chunk]:
        """The spans' text in chunks of at most `capacity` tokens: what is too long is halved until it fits.

        The splitter's count differs where it takes `</s>` for a special token, where a word of its own begins with a
        mark (SentencePiece), and where a prefix and the text merge.
        """
        chunks = [chunk_of(start, end) for start, end in spans]
        if self._spec.size is None:
            yield from chunks
            return
        counts = self._count([self.encoded_text(chunk) for chunk in chunks])
        for chunk, count in zip(chunks, counts, strict=True):
            if count <= self.capacity or len(chunk.text) == 1:
                yield chunk
            else:
                yield from self._fitting(chunk_of, _halves(chunk))

    def _count(self, texts: list[str]) -> list[int]:
        return [len(encoding) for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _budget(self, prefix: int) -> int:
        """Tokens left for text beside a prefix, in steps; two are kept for the seam between them."""
        step = max(1, self.capacity // _BUDGET_STEPS)
        left = self.capacity - prefix - 2 if prefix else self.capacity
        return max(1, left if left < step or not prefix else left // step * step)

    def _make_splitter(self, markdown: bool, budget: int) -> Callable[[str], list[tuple[int, str]]]:
        kind = MarkdownSplitter if markdown else TextSplitter
        # The spec's overlap is a share of its size: a model that leaves less room keeps the share.
        overlap = self._spec.overlap * budget // (self._spec.size or budget)
        splitter = kind.from_huggingface_tokenizer(self._tokenizer, budget, overlap=overlap, trim=True)
        return splitter.chunk_indices

    def _make_prefix(self, path: str) -> str:
        room = self.capacity // 2
        while path and self._count([f"{path}\n\n"])[0] > room:
            _, separator, inner = path.partition(SEPARATOR)
            path = inner if separator else path[: len(path) * 7 // 8].rstrip()
        return f"{path}\n\n" if path else ""


def _plain_copy(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    copy = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    # With truncation on, every text counts as short enough: the splitter would return it whole.
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True
    return copy


def _refuse_surrogates(document: Document) -> None:
    at = lone_surrogate(document.text)
    if at is not None:
        raise CorpusError(
            f"character {at} is U+{ord(document.text[at]):04X}, half of a surrogate pair, which no tokenizer reads",
            "write the text as UTF-8, or escape the whole pair",
            where=document.id,
        )


def _at(found: Sequence[Section], starts: list[int], at: int) -> Section:
    return found[bisect.bisect_right(starts, at) - 1]


def _with_their_text(
    batches: Iterator[list[tuple[int, int]]], found: Sequence[Section], starts: list[int]
) -> Iterator[list[tuple[int, int]]]:
    """The spans; one that holds nothing but a heading is joined to the next, and halved later if that is too long.

    The splitter cuts after the heading of a section that is longer than a chunk; such a chunk would be found for its
    title and have nothing to say.
    """
    heading: tuple[int, int] | None = None
    for batch in batches:
        joined: list[tuple[int, int]] = []
        for start, end in batch:
            first = heading[0] if heading else start
            section = _at(found, starts, start)
            if end <= section.body and end - first <= 2 * TITLE_CHARS:
                heading = first, end
            else:
                joined.append((first, end))
                heading = None
        yield joined
    if heading:
        yield [heading]


def _groups(text: str, found: Sequence[Section]) -> Iterator[tuple[list[Section], int]]:
    """Sections that are cut together, and where they end: a heading without text of its own joins what follows."""
    group: list[Section] = []
    ends = [following.start for _, following in pairwise(found)] + [len(text)]
    for section, end in zip(found, ends, strict=True):
        group.append(section)
        if end == len(text) or _stripped(text, section.body, end)[0] < end:
            yield group, end
            group = []


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without white space around it; (end, end) where there is nothing else."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else (end, end)


def _not_blank(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(start, end) for start, end in spans if start < end and not text[start:end].isspace()]


def _halves(chunk: Chunk) -> list[tuple[int, int]]:
    """Two spans, cut between lines, sentences or words where there is such a place near the middle."""
    text = chunk.text
    at = _boundary(text, len(text) // 4, len(text) * 3 // 4, len(text) // 2)
    spans = [_stripped(text, 0, at), _stripped(text, at, len(text))]
    return [(chunk.start + start, chunk.start + end) for start, end in _not_blank(text, spans)]


def _boundary(text: str, low: int, high: int, otherwise: int | None = None) -> int:
    """The last end of a paragraph, line, sentence or word in `text[low:high]`; else about `otherwise`, or `high`."""
    for mark in ("\n\n", "\n", ". ", " "):
        found = text.rfind(mark, low, high)
        if found >= 0:
            return found + len(mark)
    return _whole_cluster(text, high if otherwise is None else otherwise, low)


def _whole_cluster(text: str, at: int, least: int) -> int:
    """The last place up to `at` that is not inside what a reader sees as one character; `at` if none is near.

    Not the whole of UAX 29: marks, joined and tinted emoji, flags, Hangul letters and CR LF, 32 characters back.
    """
    for place in range(at, max(at - 32, least), -1):
        if not _joined(text[place - 1], text[place]):
            return place
    return at


def _joined(before: str, after: str) -> bool:
    return (
        unicodedata.category(after) in ("Mn", "Mc", "Me")
        or "\u200d" in (before, after)
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or ("\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff")
        or ("\u1160" <= after <= "\u11ff")
        or (before, after) == ("\r", "\n")
    )
