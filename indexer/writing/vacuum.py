"""Vacuum: remove the files that no kept generation names. Crashes, interrupted builds and old commits leave them.

The committed state and the two generations before it are kept. Their manifests are read from the disk each time. While
the committed manifest is lost or cannot be read, nothing is removed. While an earlier one cannot be read, nothing that
it may name is removed. Only files with names that ragidx gives are removed, and journals never: an interrupted build
continues from its journal.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ragidx.corpora.errors import IndexFormatError, MachineError, RagidxError
from ragidx.indexer import atomic
from ragidx.indexer.ann.prefixes import is_foreign
from ragidx.indexer.store.files import (
    DELETIONS,
    FILE_CACHE,
    FILES,
    JOURNAL,
    LEXICAL,
    LOCK,
    MANIFEST,
    MOMENTS,
    PARTS,
    SEGMENTS,
    VECTORS,
    generation_of,
    is_blob,
)
from ragidx.indexer.store.generations import earlier
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.manifest import Manifest, files_of, read_manifest

_WORTH_TELLING = 1 << 20  # bytes of a journal on a full disk


def vacuum(folder: Path) -> None:
    """Remove what no kept generation of the index names. The caller holds the lock."""
    try:
        manifests, unknown = _kept_manifests(folder)
    except (IndexFormatError, MachineError):
        return
    named = {path for manifest in manifests for path in files_of(manifest)}
    segments = {
        segment.id: segment.files[VECTORS].sha256 if segment.has_vectors else ""  # no copy is of no vectors
        for manifest in manifests
        for segment in manifest.segments
    }
    copies = {None, *(manifest.generation for manifest in manifests), *unknown}
    newest = max(unknown, default=0)  # a generation names only what was written up to its own time

    def is_left(kind: str, place: str, name: str) -> bool:
        if f"{place}{name}" in named:
            return False
        written = generation_of(kind, name)
        return written is not None and written > newest

    def is_old(place: str, checksum: str, name: str) -> bool:
        if f"{place}{name}" in named:
            return False
        return is_foreign(name, checksum) or is_left(LEXICAL, place, name) or is_left(MOMENTS, place, name)

    _remove(folder, lambda name: generation_of(MANIFEST, name) not in copies)
    _remove(folder / SEGMENTS, lambda name: name not in segments and is_left(SEGMENTS, "", name))
    for segment, checksum in segments.items():  # copies that a reader left half written, or made of other vectors
        _remove(folder / SEGMENTS / segment, functools.partial(is_old, f"{SEGMENTS}/{segment}/", checksum))
    _remove(folder / DELETIONS, lambda name: is_left(DELETIONS, f"{DELETIONS}/", name))
    _remove(folder / FILES, lambda name: is_blob(name) and f"{FILES}/{name}" not in named and not unknown)


def _kept_manifests(folder: Path) -> tuple[list[Manifest], tuple[int, ...]]:
    """The manifests of the kept generations, and the generations whose manifest cannot be read now.

    Raises:
        IndexFormatError: the committed state cannot be read, or its manifest is lost.
    """
    try:
        current = read_manifest(folder)
    except FileNotFoundError:
        return [], ()
    before = earlier(folder, current.generation)
    return [current, *before.manifests], before.unknown


def _remove(folder: Path, is_left: Callable[[str], bool]) -> None:
    """Remove temporary files, and the files whose names `is_left` accepts."""
    names: list[str] = []
    with contextlib.suppress(RagidxError):  # nothing depends on it: a commit before it has succeeded
        names = _names(folder)
    for name in names:
        if name.endswith(atomic.TEMPORARY) or is_left(name):
            atomic.remove(folder / name)


def highest_generation(folder: Path) -> int:
    """The highest generation that any name in the folder shows; 0 where there is none."""
    numbers = [generation_of(MANIFEST, name) or 0 for name in _names(folder)]
    numbers += [generation_of(SEGMENTS, name) or 0 for name in _names(folder / SEGMENTS)]
    return max(numbers, default=0)


def check_folder(path: Path) -> None:
    """Refuse a folder that is not an index: a writer removes files, and must not do so there.

    Raises:
        IndexFormatError: it is a file, holds other things than an index, or a part of it is a link.
        RagidxError: it cannot be listed.
    """
    hint = "choose another folder with `index`"
    if path.exists() and not path.is_dir():
        raise IndexFormatError("it is a file, not a folder", hint, where=str(path))
    if path.is_dir():
        with atomic.writing(path):
            names = {entry.name for entry in path.iterdir()}
        ours = {name for name in names if name in (*PARTS, LOCK, FILE_CACHE) or _is_ours(name)}
        is_begun = LOCK in names or any((generation_of(MANIFEST, name) or 0) > 1 for name in names)
        if MANIFEST not in names and (names - ours or (names and not is_begun)):
            raise IndexFormatError("it is not an index, and not empty", hint, where=str(path))
    for name in PARTS:
        if (path / name).is_symlink():
            raise IndexFormatError(f"{name!r} in it is a link, and is not followed", hint, where=str(path))


def _is_ours(name: str) -> bool:
    """Whether a file directly in an index folder is a manifest's numbered copy or a temporary file."""
    return generation_of(MANIFEST, name) is not None or (name.startswith(".") and name.endswith(atomic.TEMPORARY))


def _names(folder: Path) -> list[str]:
    """What lies in a folder; nothing in one that is missing or a link."""
    place = str(folder)  # a commit looks into every segment, twice
    with atomic.writing(folder):
        try:
            return [] if os.path.islink(place) else os.listdir(place)  # noqa: PTH114, PTH208
        except (FileNotFoundError, NotADirectoryError):
            return []


@contextlib.contextmanager
def cleaned_if_refused(index: Path) -> Iterator[None]:
    """Remove the empty folders and the lock that a first build or a copy leaves when it is refused.

    Where the disk is full, the hint says what the journal keeps of it.

    Args:
        index: the index folder. If it holds anything else before the block, or a journal, nothing is removed.
    """
    missing, is_vacant = [], False
    with contextlib.suppress(OSError):  # a folder that cannot be read: the writer reports it
        missing = [path for path in (index, *index.parents) if not path.exists()]
        is_vacant = bool(missing) or {path.name for path in index.iterdir()} <= {LOCK, *PARTS} - {JOURNAL}
    try:
        yield
    except BaseException as fault:
        if is_vacant:
            _clean(index)
            atomic.remove_empty(missing)
        cause = fault.__cause__
        if isinstance(fault, RagidxError) and isinstance(cause, OSError) and cause.errno in atomic.FULL:
            fault.hint += _kept(index / JOURNAL)
        raise


def _kept(journal: Path) -> str:
    """What of a full disk is a journal's, and what to do with it; nothing of a small one."""
    n_bytes = sum(path.stat().st_size for path in journal.glob("*"))
    if n_bytes < _WORTH_TELLING:
        return ""
    return f"; {journal} keeps {n_bytes:,} bytes that are encoded: build this index again to use them, or remove it"


def _clean(index: Path) -> None:
    """Remove the lock and the empty folders of an index. If the folder holds other files, the lock stays."""
    if not (index / LOCK).is_file():
        return
    # If another writer has started, the folder is in use; and the build's own failure is the one to report.
    with contextlib.suppress(RagidxError, OSError), Lock(index):
        atomic.remove_empty(index / name for name in PARTS)
        if [path.name for path in index.iterdir()] == [LOCK]:
            atomic.remove(index / LOCK)
