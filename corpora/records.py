"""What `corpora` yields: Documents and Chunks, and what was skipped.

    file -> Document(id, text, metadata) -> Chunk(doc_id, start, end, text)

`document.text[chunk.start:chunk.end] == chunk.text` for every chunk; offsets are characters, end excluded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

Scalar: TypeAlias = bool | int | float | str | list[str] | datetime | None
"""A metadata value. A time without a zone is in UTC; dates without a time are ISO strings, other lists JSON text."""


def as_text(values: list[str]) -> str:
    """A list of strings as JSON text.

    >>> as_text(["a", "é"])
    '["a","é"]'
    """
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def plain(metadata: Mapping[str, Scalar]) -> dict[str, bool | int | float | str | None]:
    """Metadata without lists and times, which are text instead: as older versions had them, and hashed them."""
    return {
        name: as_text(value) if isinstance(value, list) else value.isoformat() if isinstance(value, datetime) else value
        for name, value in metadata.items()
    }


@dataclass(frozen=True, slots=True)
class Document:
    """A text with an id that stays the same while its place in the corpus does.

    Args:
        id: path below the corpus root, `/` between folders, and `#record id` for one record of many.
        text: the whole text; its characters are what offsets count.
        metadata: typed values by name.
        markdown: whether `text` is Markdown, so that chunking finds its headings.
        line: on which `text` begins in its file, from 1; None where its lines are not those of a file.
        heading: of the whole text, such as the title of a record; shown, and searched by words, with every chunk.
    """

    id: str
    text: str
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    markdown: bool = False
    line: int | None = None
    heading: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A span of a document that is encoded as one vector."""

    doc_id: str
    start: int
    end: int
    text: str
    heading: str = ""  # heading path, " > " between levels; empty if there is none

    @property
    def id(self) -> str:
        """`doc_id:start-end`, unique within a corpus."""
        return f"{self.doc_id}:{self.start}-{self.end}"


@dataclass(frozen=True, slots=True)
class Skip:
    """A part of the corpus that was skipped, and why."""

    where: str  # path below the corpus root, with :line or #record where there is one
    reason: str  # short; equal reasons have equal words, so that they can be counted


OnSkip: TypeAlias = Callable[[Skip], None]
