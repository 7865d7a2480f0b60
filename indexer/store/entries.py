"""Entries of a manifest: a segment, its files, and how it is searched; from JSON and to JSON.

    vectors.faiss, chunks.arrow        in every segment
    ann.faiss                          in a segment with an `ann`
    lexical-<generation>.arrow         where the index has a lexical part
    moments-<generation>.bin           there too, in a segment of many rows

The last two can be made again of the first two, with another stemmer for example. A file that a manifest names never
changes, so their names have the generation that wrote them. An entry is untrusted: each name, type and number is
checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ragidx.corpora.errors import SpecError
from ragidx.corpora.spec import Json
from ragidx.indexer.ann.faiss_files import ANN, HEADER_BYTES, VECTORS
from ragidx.indexer.ann.index_types import Effort, Recipe, padded
from ragidx.indexer.atomic import FileEntry
from ragidx.indexer.store.json_checks import fields_of, integer, mapping, refuse, share, string

CHUNKS = "chunks.arrow"
LEXICAL, MOMENTS = "lexical", "moments"
MAX_ROWS = 2**31 - 1
MAX_BYTES = 2**53  # what JSON numbers hold exactly

_SEGMENT_ID = re.compile(r"[0-9]{8,16}-[0-9]{4,9}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REMADE = re.compile(r"(lexical)-([0-9]{8,16})\.arrow|(moments)-([0-9]{8,16})\.bin")


@dataclass(frozen=True, slots=True)
class AnnEntry:
    """The index of a segment's vectors, and its measured recall.

    Attributes:
        recipe: how the index was made.
        effort: how hard it is searched.
        recall: ann_recall@10 at this effort; None: not measured.
        sample: rows used for the measurement.
    """

    recipe: Recipe
    effort: Effort
    recall: float | None = None
    sample: int = 0

    def to_json(self) -> dict[str, Json]:
        """The recipe as its factory string."""
        return {"factory": str(self.recipe), **asdict(self.effort), "recall": self.recall, "sample": self.sample}


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment in the manifest; without `ann` a search compares all of its vectors."""

    id: str
    rows: int
    files: Mapping[str, FileEntry]
    ann: AnnEntry | None = None

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        files = {name: asdict(entry) for name, entry in self.files.items()}
        return {"id": self.id, "rows": self.rows, "files": files, "ann": self.ann.to_json() if self.ann else None}

    @property
    def texts(self) -> str:
        """What the texts are known by: the checksum of the file that holds them."""
        return self.files[CHUNKS].sha256

    @property
    def lexical(self) -> str | None:
        """The name of the file of postings; None: there is none."""
        return next((name for name in self.files if kind_of_file(name) == LEXICAL), None)

    @property
    def moments(self) -> str | None:
        """The name of the file of moments; None: there is none, and a scan gives what is asked of it."""
        return next((name for name in self.files if kind_of_file(name) == MOMENTS), None)


def lexical_name(generation: int) -> str:
    """The name of the postings that a generation writes."""
    return f"{LEXICAL}-{generation:08d}.arrow"


def moments_name(generation: int) -> str:
    """The name of the moments that a generation writes."""
    return f"{MOMENTS}-{generation:08d}.bin"


def kind_of_file(name: str) -> str | None:
    """`lexical` or `moments`, where this is the name of such a file."""
    found = _REMADE.fullmatch(name)
    return None if found is None else found[1] or found[3]


def generation_of_file(name: str) -> int | None:
    """The generation that wrote a file of postings or moments; None for any other name."""
    found = _REMADE.fullmatch(name)
    return None if found is None else int(found[2] or found[4])


def is_segment_id(name: str) -> bool:
    """Whether a folder of this name below `segments` is a segment of ragidx."""
    return _SEGMENT_ID.fullmatch(name) is not None


def stored_width(segment: SegmentEntry, dim: int) -> int:
    """Numbers of a vector in a segment's file: `dim` and padding zeros, in format 1 `dim` alone.

    Raises:
        ValueError: the file has another size.
    """
    for width in (padded(dim), dim):
        if segment.files[VECTORS].bytes == HEADER_BYTES + 2 * width * segment.rows:
            return width
    raise ValueError(f"{VECTORS} cannot hold {segment.rows:,} rows of {dim:,} dimensions")


def parse_segment(data: object) -> SegmentEntry:
    """The inverse of `SegmentEntry.to_json`.

    Raises:
        ValueError: a field is wrong; the text says which.
    """
    found = fields_of(data, "segment", {"id", "rows", "files", "ann"})
    name = string(found["id"], "segment.id", _SEGMENT_ID.fullmatch)
    made = None if found["ann"] is None else _parse_ann(found["ann"], f"segment {name}: ann")
    named = mapping(found["files"], f"segment {name}: files")
    remade = {file: kind for file in named if (kind := kind_of_file(file)) is not None}
    if len(set(remade.values())) < len(remade):
        refuse(f"segment {name}: files", "two are of one kind")
    files = fields_of(named, f"segment {name}: files", {CHUNKS, VECTORS, *remade} | ({ANN} if made else set()))
    return SegmentEntry(
        name,
        integer(found["rows"], f"segment {name}: rows", 1, MAX_ROWS),
        {file: parse_file(entry, f"segment {name}: {file}") for file, entry in files.items()},
        made,
    )


def parse_file(data: object, where: str) -> FileEntry:
    """A file's length and checksum.

    Raises:
        ValueError: a field is wrong; the text says which.
    """
    found = fields_of(data, where, {"bytes", "sha256"})
    return FileEntry(
        integer(found["bytes"], f"{where}: bytes", 0, MAX_BYTES),
        string(found["sha256"], f"{where}: sha256", _SHA256.fullmatch),
    )


def _parse_ann(data: object, where: str) -> AnnEntry:
    efforts = {column.name for column in fields(Effort)}
    found = fields_of(data, where, {"factory", "recall", "sample", *efforts})
    try:
        recipe = Recipe.parse(string(found["factory"], f"{where}.factory", lambda text: len(text) < 100))
    except SpecError as fault:
        refuse(where, fault.message)
    return AnnEntry(
        recipe,
        Effort(**{effort: integer(found[effort], f"{where}.{effort}", 0, MAX_ROWS) for effort in efforts}),
        None if found["recall"] is None else share(found["recall"], f"{where}.recall"),
        integer(found["sample"], f"{where}.sample", 0, MAX_ROWS),
    )


def check_width(segment: SegmentEntry, dim: int) -> None:
    """Whether the files of a segment can hold vectors of this width.

    Raises:
        ValueError: they cannot.
    """
    try:
        width = stored_width(segment, dim)
        if segment.ann is not None:
            segment.ann.recipe.check(width)
    except (SpecError, ValueError) as fault:
        refuse(f"segment {segment.id}", getattr(fault, "message", str(fault)))
