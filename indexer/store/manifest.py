"""The manifest: the file that defines the committed state of an index. Canonical JSON with its own checksum.

    manifest.json                the committed state
    manifest.<generation>.json   the same bytes, for the last three generations

Canonical: keys sorted, no white space, ASCII, one line feed at the end; `checksum` is the sha256 of the canonical JSON
of all other fields. A manifest is untrusted: each name, type and number is checked. Specs are not interpreted here.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import ragidx
from ragidx.corpora.errors import IndexFormatError, SpecError, check_machine
from ragidx.corpora.spec import Json
from ragidx.indexer.ann.faiss_files import ANN, HEADER_BYTES, VECTORS
from ragidx.indexer.ann.index_types import Effort, IndexOptions, Recipe, padded
from ragidx.indexer.atomic import FileEntry
from ragidx.indexer.store.json_checks import fields_of, integer, list_of, mapping, refuse, share, string

__all__ = ["FORMAT", "FileEntry", "Manifest", "NewerFormatError", "SegmentEntry", "manifest_bytes", "read_manifest"]

FORMAT = 2
KEPT = 3  # generations whose files are kept

MANIFEST = "manifest.json"
CHUNKS = "chunks.arrow"
SEGMENTS = "segments"
DELETIONS = "deletions"
FILES = "files"
JOURNAL = "journal"
PARTS = (SEGMENTS, DELETIONS, FILES, JOURNAL)  # the folders of an index
FILE_CACHE = "sources.cache"  # a build's notes on its files; not part of any committed state

MAX_DIM = 65_536
MAX_ROWS = 2**31 - 1
_MAX_BYTES = 2**53  # what JSON numbers hold exactly
_MAX_MANIFEST_BYTES = 256 << 20

_SEGMENT_ID = re.compile(r"[0-9]{8,16}-[0-9]{4,9}")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FINGERPRINT = re.compile(r"[A-Za-z0-9]{16,128}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CREATED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_NUMBERED = re.compile(r"manifest\.([1-9][0-9]{0,15})\.json")
_KINDS = ("bool", "int", "float", "string")
_GO_BACK = f"copy the newest manifest.<number>.json beside it over {MANIFEST}, or build again with `rebuild=True`"


class UnavailableError(IndexFormatError):
    """A file exists but cannot be read; it may be whole."""


class NewerFormatError(IndexFormatError):
    """Upgrade ragidx: the index was written by a later version."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A committed state."""

    generation: int
    created: str  # UTC, 2025-01-31T12:00:00Z
    spec: Mapping[str, Json]  # how the vectors were made; opaque here
    fingerprint: str  # of the spec and the model's weights
    dim: int
    index: IndexOptions
    schema: Mapping[str, str]  # metadata field -> bool, int, float or string
    segments: tuple[SegmentEntry, ...]
    files: Mapping[str, FileEntry]  # what belongs to the spec, such as the matrix of a filter
    deletions: FileEntry | None  # None: no row is dead
    n_chunks: int  # rows that are not dead
    n_documents: int
    notes: Mapping[str, Json] = field(default_factory=dict)  # what the build reports; opaque here
    format: int = FORMAT
    ragidx: str = ragidx.__version__

    def to_json(self) -> dict[str, Any]:
        """All fields but the checksum."""
        data = {column.name: getattr(self, column.name) for column in fields(self)}
        data["segments"] = [segment.to_json() for segment in self.segments]
        data["index"] = asdict(self.index)
        data["files"] = {name: asdict(entry) for name, entry in self.files.items()}
        data["deletions"] = asdict(self.deletions) if self.deletions else None
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in data.items()}

    @classmethod
    def from_json(cls, data: object) -> Manifest:
        """The inverse of `to_json`.

        Raises:
            ValueError: a field is wrong; the text says which.
        """
        found = fields_of(_upgraded(data), "manifest", {column.name for column in fields(cls)})
        segments = tuple(_segment(item) for item in list_of(found["segments"], "segments"))
        if len({segment.id for segment in segments}) != len(segments):
            refuse("segments", "two have the same id")
        total = sum(segment.rows for segment in segments)
        dim = integer(found["dim"], "dim", 1, MAX_DIM)
        for segment in segments:
            _check_width(segment, dim)
        return cls(
            generation=integer(found["generation"], "generation", 1, 10**15),
            created=string(found["created"], "created", _CREATED.fullmatch),
            spec=mapping(found["spec"], "spec"),
            fingerprint=string(found["fingerprint"], "fingerprint", _FINGERPRINT.fullmatch),
            dim=dim,
            index=_options(found["index"]),
            schema={
                name: string(kind, f"schema.{name}", lambda text: text in _KINDS)
                for name, kind in mapping(found["schema"], "schema").items()
            },
            segments=segments,
            files={
                string(name, "files", is_file_name): _file(entry, f"files.{name}")
                for name, entry in mapping(found["files"], "files").items()
            },
            deletions=None if found["deletions"] is None else _file(found["deletions"], "deletions"),
            n_chunks=integer(found["n_chunks"], "n_chunks", 0, total),
            n_documents=integer(found["n_documents"], "n_documents", 0, _MAX_BYTES),
            notes=mapping(found["notes"], "notes"),
            format=integer(found["format"], "format", FORMAT, FORMAT),
            ragidx=string(found["ragidx"], "ragidx", lambda text: len(text) < 100),
        )


def stored_width(segment: SegmentEntry, dim: int) -> int:
    """Numbers of a vector in a segment's file: `dim` and padding zeros, in format 1 `dim` alone.

    Raises:
        ValueError: the file has another size.
    """
    for width in (padded(dim), dim):
        if segment.files[VECTORS].bytes == HEADER_BYTES + 2 * width * segment.rows:
            return width
    raise ValueError(f"{VECTORS} cannot hold {segment.rows:,} rows of {dim:,} dimensions")


def segment_id(generation: int, number: int) -> str:
    """The id of the `number`-th new segment of a generation."""
    return f"{generation:08d}-{number:04d}"


def is_segment_id(name: str) -> bool:
    """Whether a folder of this name below `segments` is a segment of ragidx."""
    return _SEGMENT_ID.fullmatch(name) is not None


def is_file_name(name: str) -> bool:
    """Whether this may be the name of a blob: a plain base name."""
    return _FILE_NAME.fullmatch(name) is not None


def is_fingerprint(text: str) -> bool:
    """Whether this may be a fingerprint: letters and digits, 16 at least, since it is part of file names."""
    return _FINGERPRINT.fullmatch(text) is not None


def blob_path(name: str, entry: FileEntry) -> str:
    """The path of a blob in the index."""
    return f"{FILES}/{entry.sha256[:16]}-{name}"


def deletions_path(generation: int) -> str:
    """The path of the dead rows of a generation in the index."""
    return f"{DELETIONS}/{generation:08d}.arrow"


def numbered_path(generation: int) -> str:
    """The name of a generation's own copy of its manifest."""
    return f"manifest.{generation}.json"


def numbered(name: str) -> int | None:
    """The generation in the name of a numbered manifest; None for any other name."""
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[1])


def files_of(manifest: Manifest) -> dict[str, FileEntry]:
    """Every file a manifest names, by its path in the index; small ones, which are read at open, first."""
    found = {blob_path(name, entry): entry for name, entry in manifest.files.items()}
    if manifest.deletions is not None:
        found[deletions_path(manifest.generation)] = manifest.deletions
    for segment in manifest.segments:
        found |= {f"{SEGMENTS}/{segment.id}/{name}": entry for name, entry in segment.files.items()}
    return found


def file_entry(data: bytes) -> FileEntry:
    """The entry of a file that holds `data`."""
    return FileEntry(len(data), hashlib.sha256(data).hexdigest())


def manifest_bytes(manifest: Manifest) -> bytes:
    """The file as it is written."""
    return _with_checksum(manifest.to_json())


def read_manifest(folder: Path, name: str = MANIFEST) -> Manifest:
    """The manifest in an index folder.

    Raises:
        FileNotFoundError: there is none, and nothing was ever committed.
        NewerFormatError: it was written by a later version.
        UnavailableError: the operating system cannot read it.
        IndexFormatError: it is damaged (the message says how), or lost while copies of earlier commits exist.
    """
    path = folder / name
    try:
        return parse_manifest(read_regular(path, _MAX_MANIFEST_BYTES))
    except FileNotFoundError as fault:
        if name == MANIFEST and (newest := _newest_copy(folder)) > 1:
            reason = f"the manifest is missing, but {numbered_path(newest)} is there"
            raise IndexFormatError(reason, _GO_BACK, where=str(path)) from fault
        raise
    except NewerFormatError as fault:
        raise NewerFormatError(fault.message, fault.hint, where=str(path)) from fault
    except OSError as fault:
        check_machine(fault, path)
        reason = f"the manifest cannot be read: {fault.strerror}"
        raise UnavailableError(reason, "look at the disk, and try again", where=str(path)) from fault
    except (ValueError, RecursionError) as fault:
        raise IndexFormatError(f"the manifest is damaged: {fault}", _GO_BACK, where=str(path)) from fault


def read_regular(path: Path, limit: int) -> bytes:
    """The bytes of a plain file of at most `limit` bytes; links, pipes and devices are refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        if fault.errno == errno.ELOOP:
            raise ValueError("it is a link, and is not followed") from fault
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)  # `fdopen` refuses a folder with its own message
        raise ValueError("it is not a plain file")
    with os.fdopen(handle, "rb") as file:
        if status.st_size > limit:
            raise ValueError(f"it has {status.st_size:,} bytes, more than {limit:,}")
        return file.read(status.st_size + 1)


def parse_manifest(data: bytes) -> Manifest:
    """The manifest in these bytes.

    Raises:
        ValueError: they are not a manifest; the text says why.
        NewerFormatError: they were written by a later version.
    """
    found = json.loads(data, parse_constant=lambda name: refuse("manifest", f"{name} is not JSON"))
    if not isinstance(found, dict):
        refuse("manifest", "it is not an object")
    version = integer(found.get("format"), "format", 1, _MAX_BYTES)
    if version > FORMAT:
        writer = found.get("ragidx")
        by = f" (written by ragidx {writer[:20]!a})" if isinstance(writer, str) else ""
        raise NewerFormatError(
            f"the index has the format {version}{by}; ragidx {ragidx.__version__} reads up to format {FORMAT}",
            "upgrade: pip install --upgrade ragidx",
        )
    rest = {name: value for name, value in found.items() if name != "checksum"}
    if _with_checksum(rest) != data:
        refuse("checksum", "it does not fit the rest")
    return Manifest.from_json(rest)


def _newest_copy(folder: Path) -> int:
    """The highest generation with a copy of its manifest; a first build that is killed in its commit leaves 1 alone."""
    try:
        return max((numbered(path.name) or 0 for path in folder.iterdir()), default=0)
    except OSError:
        return 0


def _with_checksum(data: Mapping[str, Any]) -> bytes:
    return _canonical({**data, "checksum": hashlib.sha256(_canonical(data)).hexdigest()}) + b"\n"


def _canonical(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _upgraded(data: object) -> object:
    """A manifest of format 1 in the present format; other faults are found when it is parsed."""
    if not isinstance(data, dict) or data.get("format") != 1:
        return data
    graph = {"factory": "HNSW32", "beam": 64, "lists": 0, "factor": 1, "recall": None, "sample": 0}
    found = {name: value for name, value in data.items() if name != "index_type"}
    found["format"] = FORMAT
    found["index"] = {**asdict(IndexOptions()), "index_type": data.get("index_type")}
    made = graph if data.get("index_type") == "hnsw" else None
    if isinstance(segments := data.get("segments"), list):
        found["segments"] = [{**one, "ann": made} if isinstance(one, dict) else one for one in segments]
    return found


def _options(data: object) -> IndexOptions:
    found = fields_of(data, "index", {column.name for column in fields(IndexOptions)})
    memory = found["max_memory"]
    try:
        return IndexOptions(
            string(found["index_type"], "index.index_type", lambda text: len(text) < 100),
            share(found["target_recall"], "index.target_recall"),
            None if memory is None else integer(memory, "index.max_memory", 1, _MAX_BYTES),
        )
    except SpecError as fault:
        refuse("index", fault.message)


def _segment(data: object) -> SegmentEntry:
    found = fields_of(data, "segment", {"id", "rows", "files", "ann"})
    name = string(found["id"], "segment.id", _SEGMENT_ID.fullmatch)
    made = None if found["ann"] is None else _ann(found["ann"], f"segment {name}: ann")
    files = fields_of(found["files"], f"segment {name}: files", {CHUNKS, VECTORS} | ({ANN} if made else set()))
    return SegmentEntry(
        name,
        integer(found["rows"], f"segment {name}: rows", 1, MAX_ROWS),
        {file: _file(entry, f"segment {name}: {file}") for file, entry in files.items()},
        made,
    )


def _ann(data: object, where: str) -> AnnEntry:
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


def _check_width(segment: SegmentEntry, dim: int) -> None:
    try:
        width = stored_width(segment, dim)
        if segment.ann is not None:
            segment.ann.recipe.check(width)
    except (SpecError, ValueError) as fault:
        refuse(f"segment {segment.id}", getattr(fault, "message", str(fault)))


def _file(data: object, where: str) -> FileEntry:
    found = fields_of(data, where, {"bytes", "sha256"})
    return FileEntry(
        integer(found["bytes"], f"{where}: bytes", 0, _MAX_BYTES),
        string(found["sha256"], f"{where}: sha256", _SHA256.fullmatch),
    )
