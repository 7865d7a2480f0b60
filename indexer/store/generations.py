"""The generations of an index: the committed one and the kept ones before it, each with its own copy of its manifest.

A damaged manifest and one that cannot be read now are different faults: a damaged one is lost, the other may be whole.
When an index is opened, the sizes of the files that its manifest names are compared. Checksums are compared too if the
files together have at most 64 MiB: a flipped byte is found in a small index, and a large one is not read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import IndexFormatError, MachineError, check_machine
from ragidx.indexer.atomic import FileEntry
from ragidx.indexer.byte_cache import ByteCache
from ragidx.indexer.damage import PUT_BACK, check_name, damaged, reading
from ragidx.indexer.store.files import LOCK, MANIFEST, SEGMENTS, blob_path, numbered_path
from ragidx.indexer.store.manifest import KEPT, Manifest, NewerFormatError, UnavailableError, files_of, read_manifest
from ragidx.indexer.store.segment import CACHE_BYTES, Segment

HASHED_AT_OPEN = 64 << 20
UNTOUCHED = "the committed state is not touched"  # the end of each message about an earlier generation


@dataclass(frozen=True, slots=True)
class Earlier:
    """The generations kept before the committed state. Numbers may be skipped: one without a file is in neither field.

    Attributes:
        manifests: the readable ones, oldest first.
        faults: the errors of the others, by generation, oldest first.
    """

    manifests: tuple[Manifest, ...]
    faults: dict[int, IndexFormatError]

    @property
    def unknown(self) -> tuple[int, ...]:
        """The generations whose manifest cannot be read now, but may be whole."""
        return tuple(
            number for number, fault in self.faults.items() if isinstance(fault, (UnavailableError, NewerFormatError))
        )


def committed(folder: Path) -> Manifest:
    """The manifest of the committed state.

    Raises:
        IndexFormatError: there is none (the message says what is there), it is damaged or newer, or its name is not
            UTF-8.
    """
    check_name(folder)
    if (scheme := re.match(r"\w+:(?=/|.*[@=])", str(folder), re.DOTALL)) and not folder.exists():
        # The rest may hold a password.
        message, hint = "an index is a folder, not a URL", "an engine is asked by `ragidx query --at TARGET`"
        raise IndexFormatError(message, hint, where=f"{scheme[0]}/...")
    if folder.is_file():
        raise IndexFormatError("it is a file, not a folder", "name another folder with `index`", where=str(folder))
    try:
        return read_manifest(folder)
    except FileNotFoundError as fault:
        if not folder.exists():
            message = "there is no such folder"
            hint = "build the index first, or name another folder with `index`"
        elif (folder / LOCK).exists():
            message, hint = (
                "the index is not built yet: nothing was committed",
                "run the same 'ragidx build' or 'ragidx reindex' again",
            )
        else:
            message, hint = f"it is not an index: {MANIFEST} is missing", "name another folder with `index`"
        raise IndexFormatError(message, hint, where=str(folder)) from fault


def committed_or_none(index: Path) -> Manifest | None:
    """The committed state of an index, None where nothing is committed yet.

    Raises:
        IndexFormatError: it is damaged or newer.
    """
    check_name(index)
    try:
        return read_manifest(index) if index.is_dir() else None  # the writer reports a file at this path
    except FileNotFoundError:
        return None


def earlier(folder: Path, generation: int) -> Earlier:
    """The kept generations before one."""
    manifests, faults = [], {}
    for number in range(max(1, generation - KEPT + 1), generation):
        try:
            manifests.append(read_numbered(folder, number))
        except FileNotFoundError:
            continue
        except IndexFormatError as fault:
            faults[number] = fault
    return Earlier(tuple(manifests), faults)


def read_numbered(folder: Path, generation: int) -> Manifest:
    """The manifest of a kept generation, from its own copy.

    Raises:
        FileNotFoundError: there is none.
        NewerFormatError: it was written by a later version.
        UnavailableError: the operating system cannot read it.
        IndexFormatError: it is damaged; the message says how.
    """
    path = folder / numbered_path(generation)
    lost = f"there is no rollback to generation {generation}; {UNTOUCHED}"
    put_back = f"put it back from a copy; without it {lost}"
    try:
        manifest = read_manifest(folder, path.name)
    except NewerFormatError:
        raise
    except (MachineError, UnavailableError) as fault:  # its file may be whole
        raise UnavailableError(fault.message, f"{fault.hint}; until then {lost}", where=str(path)) from fault
    except IndexFormatError as fault:
        raise IndexFormatError(fault.message, put_back, where=str(path)) from fault
    if manifest.generation != generation:
        message = f"the manifest is damaged: it belongs to generation {manifest.generation}"
        raise IndexFormatError(message, put_back, where=str(path))
    return manifest


def check_files(folder: Path, manifest: Manifest, before: Manifest | None = None) -> None:
    """Compare all sizes, and all checksums if the files together have at most `HASHED_AT_OPEN` bytes.

    The files of a state that was opened before are not read again.

    Raises:
        IndexFormatError: a file is missing or differs from the committed one.
    """
    files, known = files_of(manifest), {} if before is None else files_of(before)
    small = sum(entry.bytes for entry in files.values()) <= HASHED_AT_OPEN
    for path, entry in files.items():
        check_file(f"{folder}/{path}", entry, read=small and known.get(path) != entry)


def check_file(path: str, entry: FileEntry, *, read: bool) -> None:
    """Compare one file's size and, where `read`, its checksum.

    Raises:
        IndexFormatError: it is missing, not a plain file, or differs.
    """
    try:
        status = os.stat(path, follow_symlinks=False)  # noqa: PTH116 -- a commit looks at some hundred files
        if not stat.S_ISREG(status.st_mode):
            raise IndexFormatError("it is not a plain file", PUT_BACK, where=path)
        if status.st_size != entry.bytes:
            raise damaged(Path(path), f"it has {status.st_size:,} bytes, not {entry.bytes:,}")
        if read and _sha256(Path(path)) != entry.sha256:
            raise damaged(Path(path), "its checksum differs from the manifest's")
    except FileNotFoundError as fault:
        raise IndexFormatError("the file is missing", PUT_BACK, where=path) from fault
    except OSError as fault:
        check_machine(fault, Path(path))
        raise IndexFormatError(f"the file cannot be read: {fault.strerror}", PUT_BACK, where=path) from fault


def segments_of(folder: Path, manifest: Manifest, before: Sequence[Segment] = ()) -> list[Segment]:
    """The segments a manifest names, in its order; no file is opened yet.

    Those of a state before, which are open, are taken over if all of their files have the same checksums: an id is no
    identity, since an index may be removed and another made in its place.
    """
    dim, schema, found = manifest.dim, manifest.schema, []
    cache: ByteCache[Any] = ByteCache(CACHE_BYTES)
    known = {segment.entry.id: segment for segment in before if (segment.dim, segment.schema) == (dim, schema)}
    for entry in manifest.segments:
        segment = known.get(entry.id)
        if segment is None or segment.entry != entry:
            segment = Segment(folder / SEGMENTS / entry.id, entry, dim, schema, cache)
        found.append(segment)
    return found


class Blob:
    """A file that belongs to the spec, open, so that it can be read when the state it is of was cleaned up."""

    def __init__(self, folder: Path, name: str, entry: FileEntry) -> None:
        self.entry, self._path = entry, folder / blob_path(name, entry)
        with reading(self._path, "it cannot be mapped: "), self._path.open("rb") as file:  # just removed, or empty
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @functools.cached_property
    def data(self) -> bytes:
        """Its bytes, compared with their checksum when they are read, and kept: each commit needs them.

        Raises:
            IndexFormatError: it is damaged.
        """
        data = self._mapped[: self.entry.bytes]
        if hashlib.sha256(data).hexdigest() != self.entry.sha256:
            raise damaged(self._path, "its checksum differs from the manifest's")
        return data


def blobs_of(folder: Path, manifest: Manifest, before: Mapping[str, Blob]) -> dict[str, Blob]:
    """The files that belong to the spec, open; those of a state before stay, where they have the same checksum."""
    found = {}
    for name, entry in manifest.files.items():
        known = before.get(name)
        found[name] = known if known is not None and known.entry == entry else Blob(folder, name, entry)
    return found


@contextlib.contextmanager
def with_way_back(folder: Path, manifest: Manifest) -> Iterator[None]:
    """In the hint about a damaged file of the committed state, name a kept generation that is whole without it.

    Its files are compared as at open: by size, and in a small index by checksum.
    """
    try:
        yield
    except IndexFormatError as fault:
        whole = _whole_without(fault.where, folder, manifest)
        if whole is None:
            raise
        hint = f"put it back from a copy, go back with 'ragidx rollback {whole}', or build again with `rebuild=True`"
        raise IndexFormatError(fault.message, hint, where=fault.where) from fault


def _whole_without(lost: str, folder: Path, manifest: Manifest) -> int | None:
    """The newest kept generation that does not name the damaged file and is whole.

    None if there is none, or if the file is not one of the committed state.
    """
    if lost not in _paths(folder, manifest):
        return None
    for past in reversed(earlier(folder, manifest.generation).manifests):
        if lost not in _paths(folder, past):
            with contextlib.suppress(IndexFormatError):
                check_files(folder, past)
                return past.generation
    return None


def _paths(folder: Path, manifest: Manifest) -> set[str]:
    return {str(folder / path) for path in files_of(manifest)}


def _sha256(path: Path) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
