"""Vacuum: remove the files that no kept generation names. Crashes, interrupted builds and old commits leave them.

The committed state and the two generations before it are kept. Their manifests are read from the disk each time. While
the committed manifest is lost or cannot be read, nothing is removed. While an earlier one cannot be read, nothing that
it may name is removed. Only files with names that ragidx gives are removed, and journals never: an interrupted build
continues from its journal.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from ragidx.corpora.errors import IndexFormatError, MachineError, RagidxError
from ragidx.indexer import atomic
from ragidx.indexer.ann.faiss_files import VECTORS
from ragidx.indexer.ann.prefixes import is_foreign
from ragidx.indexer.store.entries import generation_of_file, is_segment_id
from ragidx.indexer.store.generations import earlier
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.manifest import (
    DELETIONS,
    FILE_CACHE,
    FILES,
    LOCK,
    MANIFEST,
    PARTS,
    SEGMENTS,
    Manifest,
    files_of,
    numbered,
    read_manifest,
)

_BLOB = re.compile(r"[0-9a-f]{16}-[A-Za-z0-9][A-Za-z0-9._-]*")
_DELETIONS = re.compile(r"[0-9]{8,16}\.arrow")


def vacuum(folder: Path) -> None:
    """Remove what no kept generation of the index names. The caller holds the lock."""
    try:
        kept, unknown = _kept_manifests(folder)
    except (IndexFormatError, MachineError):
        return
    named = {path for manifest in kept for path in files_of(manifest)}
    segments = {segment.id: segment.files[VECTORS].sha256 for manifest in kept for segment in manifest.segments}
    copies = {None, *(manifest.generation for manifest in kept), *unknown}
    newest = max(unknown, default=0)  # a generation names only what was written up to its own time

    _remove(folder, lambda name: numbered(name) not in copies)
    _remove(
        folder / SEGMENTS,
        lambda name: is_segment_id(name) and name not in segments and _written(name) > newest,
    )
    for segment, checksum in segments.items():  # copies that a reader left half written, or made of other vectors
        _remove(
            folder / SEGMENTS / segment, functools.partial(_is_old, f"{SEGMENTS}/{segment}", checksum, named, newest)
        )
    _remove(
        folder / DELETIONS,
        lambda name: (
            bool(_DELETIONS.fullmatch(name)) and f"{DELETIONS}/{name}" not in named and _written(name) > newest
        ),
    )
    _remove(
        folder / FILES,
        lambda name: bool(_BLOB.fullmatch(name)) and f"{FILES}/{name}" not in named and not unknown,
    )


def _is_old(folder: str, checksum: str, named: Collection[str], newest: int, name: str) -> bool:
    """Whether a file in a segment is of other vectors, was made again since, or by a writer that was killed."""
    generation = generation_of_file(name)
    made_again = generation is not None and f"{folder}/{name}" not in named and generation > newest
    return made_again or is_foreign(name, checksum)


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
    entries: list[Path] = []
    with contextlib.suppress(RagidxError):  # nothing depends on it: a commit before it has succeeded
        entries = _entries(folder)
    for path in entries:
        if path.name.endswith(atomic.TEMPORARY) or is_left(path.name):
            atomic.remove(path)


def highest_generation(folder: Path) -> int:
    """The highest generation that any name in the folder shows; 0 where there is none."""
    numbers = [numbered(path.name) or 0 for path in _entries(folder)]
    numbers += [_written(path.name) for path in _entries(folder / SEGMENTS) if is_segment_id(path.name)]
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
        is_begun = LOCK in names or any((numbered(name) or 0) > 1 for name in names)
        if MANIFEST not in names and (names - ours or (names and not is_begun)):
            raise IndexFormatError("it is not an index, and not empty", hint, where=str(path))
    for name in PARTS:
        if (path / name).is_symlink():
            raise IndexFormatError(f"{name!r} in it is a link, and is not followed", hint, where=str(path))


def _is_ours(name: str) -> bool:
    """Whether a file directly in an index folder is a manifest's numbered copy or a temporary file."""
    return numbered(name) is not None or (name.startswith(".") and name.endswith(atomic.TEMPORARY))


def _written(name: str) -> int:
    """The generation that wrote a segment or a file of deletions."""
    return int(re.split("[-.]", name)[0])


def _entries(folder: Path) -> list[Path]:
    with atomic.writing(folder):
        return list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []


@contextlib.contextmanager
def cleaned_if_refused(index: Path) -> Iterator[None]:
    """Remove the empty folders and the lock that a first build leaves when it is refused.

    Args:
        index: the index folder. If it holds anything before the block, nothing is removed.
    """
    missing, is_vacant = [], False
    with contextlib.suppress(OSError):  # a folder that cannot be read: the writer reports it
        missing = [path for path in (index, *index.parents) if not path.exists()]
        is_vacant = bool(missing) or (index.is_dir() and not any(index.iterdir()))
    try:
        yield
    except BaseException:
        if is_vacant:
            _clean(index)
            atomic.remove_empty(missing)
        raise


def _clean(index: Path) -> None:
    """Remove the lock and the empty folders of an index. If the folder holds other files, the lock stays."""
    if not (index / LOCK).is_file():
        return
    try:
        lock = Lock(index)  # if another writer has started, the folder is in use
    except RagidxError:
        return
    try:
        atomic.remove_empty(index / name for name in PARTS)
        with contextlib.suppress(OSError):  # the build's own failure is the one to report
            if [path.name for path in index.iterdir()] == [LOCK]:
                atomic.remove(index / LOCK)
    finally:
        lock.release()
