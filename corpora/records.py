"""What `corpora` yields: Documents and Chunks, and what was skipped.

    file -> Document(id, text, metadata) -> Chunk(doc_id, start, end, text)

`document.text[chunk.start:chunk.end] == chunk.text` for every chunk; offsets are characters, end excluded.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from ragidx.corpora.left_out import Left

Scalar: TypeAlias = bool | int | float | str | list[str] | datetime | None
"""A metadata value that conditions see. A time without a zone is in UTC; dates without a time are ISO strings, other
lists JSON text."""


def as_text(values: list[str]) -> str:
    """A list of strings as JSON text.

    >>> as_text(["a", "é"])
    '["a","é"]'
    """
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def json_text(data: object, indent: int | None = None, *, ascii_only: bool = True) -> str:
    """JSON as it is given to others: a number that is not finite, which JSON does not have, is null.

    >>> json_text({"mean": float("nan"), "n": [1, 0.5]})
    '{"mean": null, "n": [1, 0.5]}'
    """
    try:
        return json.dumps(data, indent=indent, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(data), indent=indent, ensure_ascii=ascii_only, allow_nan=False)


def _finite(data: object) -> object:
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def plain(metadata: Mapping[str, Scalar]) -> dict[str, bool | int | float | str | None]:
    """Metadata without lists and times, which are text instead."""
    return {
        name: as_text(value) if isinstance(value, list) else value.isoformat() if isinstance(value, datetime) else value
        for name, value in metadata.items()
    }


FILE_FIELDS = ("file.path", "file.name", "file.ext", "file.folder", "file.size", "file.modified")
"""What conditions can ask of every document's file. A field of a document that has such a name is `metadata.<name>`."""

OCR_FIELDS = ("file.ocr", "file.ocr_confidence")
"""The number of pages that were read by text recognition, and its mean confidence; of other files neither."""

OF_FILE = (*FILE_FIELDS, *OCR_FIELDS)
"""All names of fields of a file."""


class Place(NamedTuple):
    """Where in its file the text of a document is, from `offset` on; None: as before it.

    Args:
        offset: characters of the text.
        page: number of the page of a PDF, slide, sheet or cell of a notebook, from 1.
        line: line number, from 1; a newline of the text is a newline of the file, up to the next place with a line.
    """

    offset: int
    page: int | None = None
    line: int | None = None


def paged(pages: Iterable[tuple[int, str]]) -> tuple[str, tuple[Place, ...]]:
    r"""The texts of numbered pages as one, those that are empty left out, and where each begins.

    >>> paged([(1, "a"), (2, ""), (3, "b")])
    ('a\n\nb', (Place(offset=0, page=1, line=None), Place(offset=3, page=3, line=None)))
    """
    texts: list[str] = []
    places: list[Place] = []
    offset = 0
    for number, text in pages:
        if text:
            texts.append(text)
            places.append(Place(offset, page=number))
            offset += len(text) + 2
    return "\n\n".join(texts), tuple(places)


@dataclass(frozen=True, slots=True)
class Document:
    """A text with an id that stays the same while its place in the corpus does.

    Args:
        id: path below the corpus root, `/` between folders, and `#record id` for one record of many.
        text: the whole text; its characters are what offsets count.
        metadata: values by name, whatever JSON holds, nested too, or times; a reader gives them flat, of the type
            `Scalar`.
        markdown: whether `text` is Markdown, so that chunking finds its headings.
        line: line on which `text` begins in its file, from 1; None where its lines are not those of a file.
        places: where in the file the text goes on elsewhere, by rising offsets.
        file: `FILE_FIELDS` of its file as it was when the document last changed: no part of what it is.
        heading: heading of the whole text, such as the title of a record; shown, and searched by words, with every
            chunk.
        parts: the record that the text is, in place of `line` and `places`: all of it has its line. As it was when the
            document last changed: no part of what it is.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    markdown: bool = False
    line: int | None = None
    heading: str = ""
    places: tuple[Place, ...] = ()
    file: Mapping[str, Scalar] = field(default_factory=dict, compare=False)
    parts: tuple[Place, ...] = field(default=(), compare=False)

    def positions(self, offsets: Iterable[int]) -> Iterator[tuple[int | None, int | None]]:
        r"""Line and page of characters of the text, by rising offsets.

        >>> list(Document("a", "x\ny\nz", line=7, places=(Place(4, page=2),)).positions([0, 2, 4]))
        [(7, None), (8, None), (9, 2)]
        """
        line, page, at = self.line, None, 0
        left = iter(self.places or self.parts)
        place = next(left, None)
        for offset in offsets:
            while place is not None and place.offset <= offset:
                page = page if place.page is None else place.page
                if place.line is not None:
                    line, at = place.line, place.offset
                place = next(left, None)
            if line is not None and not self.parts:
                line, at = line + self.text.count("\n", at, offset), offset
            yield line, page

    def turns(self) -> list[Place]:
        """Where line or page change, if not by the newlines of the text alone, by rising offsets."""
        begins = {place.offset for place in self.places or self.parts}
        if self.line is not None or any(place.line is not None for place in self.places):
            begins |= {newline.end() for newline in re.finditer("\n", self.text)}
        offsets = sorted(begins)
        return [Place(at, page, line) for at, (line, page) in zip(offsets, self.positions(offsets), strict=True)]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A span of a document that is encoded as one vector."""

    doc_id: str
    start: int
    end: int
    text: str
    heading: str = ""  # heading path, " > " between levels; empty if there is none
    bare: bool = field(default=False, repr=False, compare=False)  # the text alone is encoded: it has the title, say
    ids: bytes | None = field(default=None, repr=False, compare=False)  # tokens of the text, where its chunker knows

    @property
    def id(self) -> str:
        """`doc_id:start-end`, unique within a corpus."""
        return f"{self.doc_id}:{self.start}-{self.end}"


def with_nfc(names: Iterable[str]) -> list[str]:
    """Names, and their Unicode form NFC where it is another: files have their ids in it, whatever a system gives."""
    return list(dict.fromkeys(form for name in names for form in (name, unicodedata.normalize("NFC", name))))


def known_form(name: str, is_known: Callable[[str], bool]) -> str:
    """A name as it is known: as it is, else in NFC; as it is where neither is."""
    return next(filter(is_known, with_nfc([name])), name)


@dataclass(frozen=True, slots=True)
class Skip:
    """A part of the corpus that was skipped, and why."""

    where: str  # path below the corpus root, with :line or #record where there is one
    reason: str  # short; equal reasons have equal words, so that they can be counted


OnSkip: TypeAlias = Callable[[Skip | Left], None]
"""Called with what is skipped, and with what is left out of documents."""
