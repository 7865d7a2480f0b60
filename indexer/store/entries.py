"""Entries of a manifest: a segment, its files, and how it is searched; from JSON and to JSON.

Postings and moments can be made again of the other files, with another stemmer for example. An entry is untrusted: each
name, type and number is checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann.alone import check_decodable
from ragidx.indexer.ann.faiss_files import HEADER_BYTES
from ragidx.indexer.ann.index_types import Effort, Recipe, TunedIndex, padded
from ragidx.indexer.atomic import FileEntry
from ragidx.indexer.json_checks import integer, mapping, optional, record, refuse, share, string, table
from ragidx.indexer.store.files import ANN, CHUNKS, LEXICAL, MOMENTS, SEGMENTS, VECTORS, generation_of

MAX_ROWS = 2**31 - 1
MAX_BYTES = 2**53  # what JSON numbers hold exactly

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment in the manifest; without `ann` a search compares all of its vectors."""

    id: str
    rows: int
    files: Mapping[str, FileEntry]
    ann: TunedIndex | None = None
    zeros: int = 0  # rows whose vector is zero: their texts have none
    zero: int | None = None  # the first of them, where the segment keeps no vectors

    def to_json(self) -> dict[str, Any]:
        """All fields; of `ann` the recipe as its factory string."""
        files = {name: entry.to_json() for name, entry in self.files.items()}
        data: dict[str, Any] = {"id": self.id, "rows": self.rows, "files": files, "ann": None}
        if self.ann is not None:
            rest = {"recall": self.ann.recall, "sample": self.ann.sample}
            rest |= {"repeats": self.ann.repeats} if self.ann.repeats else {}
            data["ann"] = {"factory": str(self.ann.recipe), **asdict(self.ann.effort), **rest}
        data |= {"zeros": self.zeros} if self.zeros else {}
        return data | ({"zero": self.zero} if self.zero is not None else {})

    @property
    def has_vectors(self) -> bool:
        """Whether it keeps its vectors; else they are decoded from its codes."""
        return VECTORS in self.files

    @property
    def texts(self) -> str:
        """What the texts are known by: the checksum of the file that holds them."""
        return self.files[CHUNKS].sha256

    @property
    def lexical(self) -> str | None:
        """The name of the file of postings; None: there is none."""
        return next((name for name in self.files if generation_of(LEXICAL, name)), None)

    @property
    def moments(self) -> str | None:
        """The name of the file of moments; None: there is none, and the vectors are scanned."""
        return next((name for name in self.files if generation_of(MOMENTS, name)), None)


def _measured(factory: str, beam: int, lists: int, factor: int, recall: float, sample: int, repeats: int) -> TunedIndex:
    return TunedIndex(Recipe.parse(factory), Effort(beam, lists, factor), recall, sample, repeats)


_NUMBER = integer(0, MAX_ROWS)
_parse_ann = record(
    _measured,
    factory=string(lambda text: len(text) < 100),
    beam=_NUMBER,
    lists=_NUMBER,
    factor=_NUMBER,
    recall=share,
    sample=_NUMBER,
    repeats=_NUMBER,
)
parse_file = record(FileEntry, bytes=integer(0, MAX_BYTES), sha256=string(_SHA256.fullmatch))
_parse_segment = record(
    SegmentEntry,
    id=string(lambda name: generation_of(SEGMENTS, name)),
    rows=integer(1, MAX_ROWS),
    files=table(string(bool), parse_file),
    ann=optional(lambda data, where: _parse_ann({"repeats": 0, **mapping(data, where)}, where)),
    zeros=_NUMBER,
    zero=optional(_NUMBER),
)


def parse_segment(data: object, where: str) -> SegmentEntry:
    """An entry from JSON.

    Raises:
        ValueError: it is none.
    """
    return _parse_segment({"zeros": 0, "zero": None, **mapping(data, where)}, where)


def check_segment(segment: SegmentEntry, dim: int, *, lexical: bool, codes_only: bool) -> None:
    """Check that a segment has the files of one with vectors of this width, or codes alone, and words or none.

    Raises:
        ValueError: it has not.
    """
    where = f"segment {segment.id}"
    made = [name for name in (segment.lexical, segment.moments) if name is not None]
    coded = codes_only and segment.ann is not None
    expected = {CHUNKS, *made} | ({ANN} if segment.ann is not None else set()) | (set() if coded else {VECTORS})
    if missing := sorted(expected - segment.files.keys()):
        refuse(where, f"{missing[0]!a} is missing")
    if unknown := sorted(segment.files.keys() - expected):
        refuse(where, f"{unknown[0]!a} is unknown")
    if (segment.lexical is not None) != lexical:
        refuse(where, "it has postings, or none, against the field 'lexical'")
    if segment.has_vectors and segment.files[VECTORS].bytes != HEADER_BYTES + 2 * padded(dim) * segment.rows:
        refuse(where, f"{VECTORS} cannot hold {segment.rows:,} rows of {dim:,} dimensions")
    if segment.zeros > segment.rows:
        refuse(where, f"{segment.zeros:,} of {segment.rows:,} rows cannot lack a vector")
    if (segment.zero is not None) != (coded and segment.zeros > 0) or (segment.zero or 0) >= segment.rows:
        refuse(where, "the first row without a vector is not one of its rows")
    if segment.ann is not None:
        try:
            segment.ann.recipe.check(padded(dim))
            if coded:
                check_decodable(str(segment.ann.recipe))
        except SpecError as fault:
            refuse(where, fault.message)
        if segment.ann.repeats >= segment.rows:
            refuse(where, f"{segment.ann.repeats:,} of {segment.rows:,} rows cannot repeat others")
