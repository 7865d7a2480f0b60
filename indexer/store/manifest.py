"""The manifest: the file that defines the committed state of an index. Canonical JSON with its own checksum.

    manifest.json                the committed state
    manifest.<generation>.json   the same bytes, for the last three generations

Canonical: keys sorted, no white space, ASCII, one line feed at the end; `checksum` is the sha256 of the canonical JSON
of all other fields. A manifest is untrusted: each name, type and number is checked. Specs are not interpreted here.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

import ragidx
from ragidx.corpora.errors import IndexFormatError, check_machine
from ragidx.corpora.spec import Json
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.atomic import FileEntry
from ragidx.indexer.json_checks import flag, integer, list_of, mapping, optional, record, refuse, share, string, table
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.specs import ADAPTED_FILTER, CENTRED_FILTER, QUESTION_TABLE, TRAINED_HEAD
from ragidx.indexer.store.entries import MAX_BYTES, SegmentEntry, check_segment, parse_file, parse_segment
from ragidx.indexer.store.files import (
    MANIFEST,
    SEGMENTS,
    blob_path,
    deletions_path,
    generation_of,
    is_file_name,
    numbered_path,
)

FORMAT = 7
FIELD_KINDS = (
    "types of fields"  # a segment has several columns for a field, or of types that no live row has a value of
)
REPEATS = "repeated vectors"  # the index of a segment lacks rows that repeat others
ZEROS = "chunks without a vector"  # a row's vector may be zero
CODES_ALONE = "codes alone"  # segments with codes keep no vectors
KNOWN: tuple[str, ...] = (
    *(TRAINED_HEAD, CENTRED_FILTER, ADAPTED_FILTER, QUESTION_TABLE, FIELD_KINDS, REPEATS, ZEROS, CODES_ALONE),
)
"""What this version can read that an index may require; later versions add to it."""

KEPT = 3  # generations whose files are kept
MAX_DIM = 65_536

_MAX_MANIFEST_BYTES = 256 << 20
_FINGERPRINT = re.compile(r"[A-Za-z0-9]{16,128}")
_CREATED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_LANGUAGE = re.compile(r"[a-z][a-z_]{0,39}")
_KINDS = ("bool", "int", "float", "string", "list", "timestamp")
_UPGRADE = "install a newer version of ragidx"
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

    @property
    def n_dead(self) -> int:
        """Rows of deleted chunks that the segments still store."""
        return sum(segment.rows for segment in self.segments) - self.n_chunks

    @property
    def has_zeros(self) -> bool:
        """Whether the vector of a stored row is zero."""
        return any(segment.zeros for segment in self.segments)

    def __repr__(self) -> str:
        """In a line: lists of files, and notes, are long."""
        holds = f"{self.n_documents:,} documents, {self.n_chunks:,} chunks of {self.dim} dimensions"
        return f"<Manifest of generation {self.generation}, {self.created}: {holds}>"

    def to_json(self) -> dict[str, Any]:
        """All fields but the checksum."""
        data = {column.name: getattr(self, column.name) for column in fields(self)}
        # A copy by JSON: they are untrusted, and may be too deep for `asdict`.
        data |= json.loads(json.dumps({"spec": dict(self.spec), "notes": dict(self.notes)}))
        index = {name: value for name, value in asdict(self.index).items() if name != "codes_only" or value}
        data |= {"index": index, "segments": [segment.to_json() for segment in self.segments]}
        data["files"] = {name: entry.to_json() for name, entry in self.files.items()}
        data["deletions"] = self.deletions.to_json() if self.deletions else None
        data["lexical"] = asdict(self.lexical) if self.lexical else None
        return data


class State(Protocol):
    """A committed state: where it is, for messages; what its manifest says, or would say; what belongs to its spec."""

    path: Path
    manifest: Manifest

    def blob(self, name: str) -> bytes:
        """A file that belongs to the spec."""


def _is_short(text: str) -> bool:
    return len(text) < 100


_INDEX = record(
    IndexOptions,
    index_type=string(_is_short),
    target_recall=share,
    max_memory=optional(integer(1, MAX_BYTES)),
    lexical=string(_LANGUAGE.fullmatch),
    codes_only=flag,
)
_MANIFEST = record(
    Manifest,
    generation=integer(1, 10**15),
    created=string(_CREATED.fullmatch),
    spec=mapping,
    fingerprint=string(_FINGERPRINT.fullmatch),
    dim=integer(1, MAX_DIM),
    index=lambda data, where: _INDEX({"codes_only": False, **mapping(data, where)}, where),
    schema=table(string(bool), string(_KINDS.__contains__)),
    segments=list_of(parse_segment),
    lexical=optional(
        record(
            LexicalSpec,
            stemmer=string(_LANGUAGE.fullmatch),
            stemmer_version=string(_is_short),
            analyzer=integer(1, MAX_BYTES),
        )
    ),
    files=table(string(is_file_name), parse_file),
    deletions=optional(parse_file),
    n_chunks=integer(0, MAX_BYTES),
    n_documents=integer(0, MAX_BYTES),
    notes=mapping,
    requires=list_of(string(KNOWN.__contains__)),
    format=integer(FORMAT, FORMAT),
    ragidx=string(_is_short),
)


def files_of(manifest: Manifest) -> dict[str, FileEntry]:
    """Every file a manifest names, by its path in the index; small ones, which are read at open, first."""
    found = {blob_path(name, entry): entry for name, entry in manifest.files.items()}
    if manifest.deletions is not None:
        found[deletions_path(manifest.generation)] = manifest.deletions
    for segment in manifest.segments:
        found |= {f"{SEGMENTS}/{segment.id}/{name}": entry for name, entry in segment.files.items()}
    return found


@functools.lru_cache(maxsize=4)  # the filter of an index that stays open is the same object in every commit
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


@functools.lru_cache(maxsize=8)  # one commit reads the manifests of the kept generations ten times
def parse_manifest(data: bytes) -> Manifest:
    """The manifest in these bytes.

    Raises:
        ValueError: they are not a manifest; the text says why.
        NewerFormatError: they were written by a later version.
        IndexFormatError: they were written by an older one.
    """
    content = mapping(json.loads(data, parse_constant=lambda name: refuse("", f"{name} is not JSON")), "")
    version = integer(1, MAX_BYTES)(content.get("format"), "format")
    writer = content.get("ragidx")
    by = f" (written by ragidx {writer[:20]!a})" if isinstance(writer, str) else ""
    reads = f"ragidx {ragidx.__version__} reads format {FORMAT}"
    if version > FORMAT:
        raise NewerFormatError(f"the index has the format {version}{by}; {reads}", _UPGRADE)
    if version < FORMAT:
        raise OlderFormatError(f"the index has the format {version}{by}; {reads}", "build it again with `rebuild=True`")
    required = content.get("requires")
    if isinstance(required, list) and (unknown := [name for name in required if name not in KNOWN]):
        raise NewerFormatError(f"the index needs a reader that knows {str(unknown[0])[:40]!a}{by}", _UPGRADE)
    rest = {name: value for name, value in content.items() if name != "checksum"}
    if _with_checksum(rest) != data:
        refuse("checksum", "it does not fit the rest")
    manifest = _MANIFEST(rest, "")
    if len({segment.id for segment in manifest.segments}) < len(manifest.segments):
        refuse("segments", "two have the same id")
    for segment in manifest.segments:
        check_segment(segment, manifest.dim, lexical=manifest.lexical is not None, codes_only=manifest.index.codes_only)
    if manifest.n_chunks > (total := sum(segment.rows for segment in manifest.segments)):
        refuse("n_chunks", f"{manifest.n_chunks} is more than the {total} rows of the segments")
    return manifest


def _newest_copy(folder: Path) -> int:
    """The highest generation with a copy of its manifest; a first build that is killed in its commit leaves 1 alone."""
    try:
        return max((generation_of(MANIFEST, path.name) or 0 for path in folder.iterdir()), default=0)
    except OSError:
        return 0


def _with_checksum(data: Mapping[str, Any]) -> bytes:
    rest = _canonical(data)
    checksum = hashlib.sha256(rest).hexdigest()
    if min(data) > "checksum":  # so it is of every manifest: the field comes first, and the others as they were
        return b'{"checksum":"%s",' % checksum.encode() + rest[1:] + b"\n"
    return _canonical({**data, "checksum": checksum}) + b"\n"


def _canonical(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
