"""A hit: one chunk found for a query."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ragidx.corpora.records import Scalar


@dataclass(frozen=True, slots=True)
class Hit:
    """One chunk with its score.

    Attributes:
        rank: 1 for the best.
        score: cosine of query and chunk, higher is better.
        text: of the chunk; `document[start:end]`.
        doc_id: the document's id.
        chunk_id: the chunk's id.
        start, end: characters of the document, end excluded.
        heading: heading path of the chunk, empty where there is none.
        metadata: the document's.
    """

    rank: int
    score: float
    text: str
    doc_id: str
    chunk_id: str
    start: int
    end: int
    heading: str = ""
    metadata: Mapping[str, Scalar] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """All fields; stable, documented in docs/query.md."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | {"metadata": dict(self.metadata)}
