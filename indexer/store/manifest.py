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
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.atomic import FileEntry
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store.entries import MAX_BYTES, SegmentEntry, check_width, parse_file, parse_segment
from ragidx.indexer.store.json_checks import fields_of, integer, list_of, mapping, refuse, share, string

FORMAT = 5
KNOWN: frozenset[str] = frozenset()
"""What this version can read that an index may require; later versions add to it."""

_UPGRADE = "upgrade: pip install --upgrade ragidx"
KEPT = 3  # generations whose files are kept

MANIFEST = "manifest.json"
LOCK = "LOCK"  # see `ragidx.indexer.store.lock`
SEGMENTS = "segments"
DELETIONS = "deletions"
FILES = "files"
JOURNAL = "journal"
PARTS = (SEGMENTS, DELETIONS, FILES, JOURNAL)  # the folders of an index
FILE_CACHE = "sources.cache"  # a build's notes on its files; not part of any committed state

MAX_DIM = 65_536
_MAX_MANIFEST_BYTES = 256 << 20

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FINGERPRINT = re.compile(r"[A-Za-z0-9]{16,128}")
_CREATED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_NUMBERED = re.compile(r"manifest\.([1-9][0-9]{0,15})\.json")
_LANGUAGE = re.compile(r"[a-z][a-z_]{0,39}")
_KINDS = ("bool", "int", "float", "string", "list", "timestamp")
_GO_BACK = f"copy the newest manifest.<number>.json beside it over {MANIFEST}, or build again with `rebuild=True`"


class UnavailableError(IndexFormatError):
    """A file exists but cannot be read; it may be whole."""


class OlderFormatError(IndexFormatError):
    """Build again: the index was written by an earlier version."""


class NewerFormatError(IndexFormatError):
    """Upgrade ragidx: the index was written by a later version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A committed state."""

    generation: int
    created: str  # UTC, 2025-01-31T12:00:00Z
    spec: Mapping[str, Json]  # how the vectors were made; opaque here
    fingerprint: str  # of the spec and the model's weights
    dim: int
    index: IndexOptions
    schema: Mapping[str, str]  # metadata field -> bool, int, float, string, list or timestamp
    segments: tuple[SegmentEntry, ...]
    lexical: LexicalSpec | None = None  # how texts become terms; None: no segment has postings
    files: Mapping[str, FileEntry]  # what belongs to the spec, such as the matrix of a filter
    deletions: FileEntry | None  # None: no row is dead
    n_chunks: int  # rows that are not dead
    n_documents: int
    notes: Mapping[str, Json] = field(default_factory=dict)  # what the build reports; opaque here
    requires: tuple[str, ...] = ()  # what a reader must know to read it, beyond this format
    format: int = FORMAT
    ragidx: str = ragidx.__version__

    def to_json(self) -> dict[str, Any]:
        """All fields but the checksum."""
        data = {column.name: getattr(self, column.name) for column in fields(self)}
        data["segments"] = [segment.to_json() for segment in self.segments]
        data["index"] = asdict(self.index)
        data["files"] = {name: asdict(entry) for name, entry in self.files.items()}
        data["deletions"] = asdict(self.deletions) if self.deletions else None
        data["lexical"] = asdict(self.lexical) if self.lexical else None
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in data.items()}

    @classmethod
    def from_json(cls, data: object) -> Manifest:
        """The inverse of `to_json`.

        Raises:
            ValueError: a field is wrong; the text says which.
        """
        values = fields_of(data, "manifest", {column.name for column in fields(cls)})
        segments = tuple(parse_segment(item) for item in list_of(values["segments"], "segments"))
        if len({segment.id for segment in segments}) != len(segments):
            refuse("segments", "two have the same id")
        total = sum(segment.rows for segment in segments)
        dim = integer(values["dim"], "dim", 1, MAX_DIM)
        lexical = None if values["lexical"] is None else _lexical(values["lexical"])
        for segment in segments:
            check_width(segment, dim)
            if (segment.lexical is None) != (lexical is None):
                refuse(f"segment {segment.id}: files", "it has postings, or none, against the field 'lexical'")
        return cls(
            generation=integer(values["generation"], "generation", 1, 10**15),
            created=string(values["created"], "created", _CREATED.fullmatch),
            spec=mapping(values["spec"], "spec"),
            fingerprint=string(values["fingerprint"], "fingerprint", _FINGERPRINT.fullmatch),
            dim=dim,
            index=_options(values["index"]),
            schema={
                name: string(kind, f"schema.{name}", lambda text: text in _KINDS)
                for name, kind in mapping(values["schema"], "schema").items()
            },
            segments=segments,
            lexical=lexical,
            files={
                string(name, "files", is_file_name): parse_file(entry, f"files.{name}")
                for name, entry in mapping(values["files"], "files").items()
            },
            deletions=None if values["deletions"] is None else parse_file(values["deletions"], "deletions"),
            n_chunks=integer(values["n_chunks"], "n_chunks", 0, total),
            n_documents=integer(values["n_documents"], "n_documents", 0, MAX_BYTES),
            notes=mapping(values["notes"], "notes"),
            requires=tuple(
                string(name, "requires", KNOWN.__contains__) for name in list_of(values["requires"], "requires")
            ),
            format=integer(values["format"], "format", FORMAT, FORMAT),
            ragidx=string(values["ragidx"], "ragidx", lambda text: len(text) < 100),
        )


def segment_id(generation: int, number: int) -> str:
    """The id of the `number`-th new segment of a generation."""
    return f"{generation:08d}-{number:04d}"


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
    except IndexFormatError as fault:
        raise type(fault)(fault.message, fault.hint, where=str(path)) from fault
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
        IndexFormatError: they were written by an older one.
    """
    found = json.loads(data, parse_constant=lambda name: refuse("manifest", f"{name} is not JSON"))
    if not isinstance(found, dict):
        refuse("manifest", "it is not an object")
    version = integer(found.get("format"), "format", 1, MAX_BYTES)
    writer = found.get("ragidx")
    by = f" (written by ragidx {writer[:20]!a})" if isinstance(writer, str) else ""
    reads = f"ragidx {ragidx.__version__} reads format {FORMAT}"
    if version > FORMAT:
        raise NewerFormatError(f"the index has the format {version}{by}; {reads}", _UPGRADE)
    if version < FORMAT:
        raise OlderFormatError(f"the index has the format {version}{by}; {reads}", "build it again with `rebuild=True`")
    wanted = [name for name in list_of(found.get("requires"), "requires") if name not in KNOWN]
    if wanted:
        raise NewerFormatError(f"the index needs a reader that knows {str(wanted[0])[:40]!a}{by}", _UPGRADE)
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


def _options(data: object) -> IndexOptions:
    found = fields_of(data, "index", {column.name for column in fields(IndexOptions)})
    memory = found["max_memory"]
    try:
        return IndexOptions(
            string(found["index_type"], "index.index_type", lambda text: len(text) < 100),
            share(found["target_recall"], "index.target_recall"),
            None if memory is None else integer(memory, "index.max_memory", 1, MAX_BYTES),
            string(found["lexical"], "index.lexical", _LANGUAGE.fullmatch),
        )
    except SpecError as fault:
        refuse("index", fault.message)


def _lexical(data: object) -> LexicalSpec:
    found = fields_of(data, "lexical", {column.name for column in fields(LexicalSpec)})
    return LexicalSpec(
        string(found["stemmer"], "lexical.stemmer", _LANGUAGE.fullmatch),
        string(found["stemmer_version"], "lexical.stemmer_version", lambda text: len(text) < 100),
        integer(found["analyzer"], "lexical.analyzer", 1, MAX_BYTES),
    )
