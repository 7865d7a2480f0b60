"""A hit: one chunk found for a query."""

from __future__ import annotations

import bisect
import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ragidx.corpora.records import Place


NO_KNOWN_WORD = "No word of the question is in the index: only the vectors count."
WORDS_ALONE = "The model does not know most of the question: only its words count."
NO_VECTOR = "The model does not know most of the question, so nothing can be compared: search hybrid or lexical."
NOTHING_KNOWN = "No word of the question is in the index, and the model does not know most of it."
_NOTEBOOK = re.compile(r"\.ipynb(?:\.[a-z0-9]{2,3})?\Z", re.IGNORECASE)


def place_in(doc_id: str, line: int | None, page: int | None) -> str:
    """What follows a document's id for a place in it: its page, or the cell of a notebook, else the line.

    >>> place_in("a.pdf", None, 4), place_in("a.ipynb", None, 4), place_in("a.md", 7, None), place_in("a", None, None)
    ('#page=4', '#cell=4', ':7', '')
    """
    if page is not None:
        return f"#{'cell' if _NOTEBOOK.search(doc_id) else 'page'}={page}"
    return "" if line is None else f":{line}"


class RerankWarning(UserWarning):
    """What a reranker found may not be worth anything; the text says why."""


class DocumentSpan(NamedTuple):
    """A place in a document: characters, end excluded."""

    doc_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Hit:
    """One chunk with its score.

    Attributes:
        rank: 1 for the best.
        score: what hits are ordered by, higher is better: a cosine, BM25, or the fusion of both.
        text: text of the chunk: `document[start:end]`.
        doc_id: the document's id.
        chunk_id: the chunk's id.
        start, end: characters of the document, end excluded.
        heading: heading path of the chunk, empty where there is none.
        metadata: the document's, as they were given, and of a file those of the file; its times are in UTC.
        dense: cosine of query and chunk; None in lexical search.
        bm25: BM25 of the chunk, or what an engine ranks words by (PostgreSQL: `ts_rank`); None in dense search, where
            no word of the question is in the index, and where an engine does not say.
        line: line of `start` in the file, from 1; None where the text is not that of a file. `position` has those of
            others.
        page: page of `start` in the file, from 1; None where it has no pages.
        context: the text with the chunks of the document around it; None unless it was asked for.
        also: where else the same passage is, or nearly the same: hits that were folded into this one.
        index: the folder of the index that it is from, where several were asked; None: one was.
    """

    rank: int
    score: float
    text: str
    doc_id: str
    chunk_id: str
    start: int
    end: int
    heading: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    dense: float | None = None
    bm25: float | None = None
    line: int | None = None
    page: int | None = None
    context: str | None = None
    also: tuple[DocumentSpan, ...] = ()
    index: str | None = None
    turns: Sequence[Place] | None = field(default=None, repr=False)

    def position(self, offset: int) -> tuple[int | None, int | None]:
        """Line and page of a character of `text` in the file, from 1; None as for `line` and `page`."""
        if self.turns is None:
            return None if self.line is None else self.line + self.text.count("\n", 0, offset), self.page
        passed = bisect.bisect_right([turn.offset for turn in self.turns], offset)
        return (self.turns[passed - 1].line, self.turns[passed - 1].page) if passed else (self.line, self.page)

    def to_json(self) -> dict[str, Any]:
        """All fields, `index` where it has a value; stable, documented in docs/query.md. Times are text in ISO form."""
        found = {name: getattr(self, name) for name in (_SHOWN if self.index is None else _SHOWN_OF_SEVERAL)}
        found["metadata"], found["also"] = json_values(self.metadata), [span._asdict() for span in self.also]
        return found


_SHOWN_OF_SEVERAL = tuple(one.name for one in dataclasses.fields(Hit) if one.name != "turns")
_SHOWN = tuple(name for name in _SHOWN_OF_SEVERAL if name != "index")


class Hits(list[Hit]):
    """The hits for a question, best first.

    Attributes:
        notes: remarks on the whole answer.
        by_places: reason for which several indexes answered each by itself, and the hits are fused by places; empty:
            they are ranked as one.
    """

    def __init__(self, hits: Iterable[Hit] = (), *, notes: Sequence[str] = ()) -> None:
        super().__init__(hits)
        self.notes, self.by_places = list(notes), ""


def json_values(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON: times are text in ISO form, NaN and infinity, which JSON has not, null."""
    return {name: _json_value(value) for name, value in metadata.items()}


def _json_value(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is int:  # most
        return value
    if isinstance(value, dict):
        return json_values(value)
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return None if isinstance(value, float) and not math.isfinite(value) else value
