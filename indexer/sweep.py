"""Sweeping: removing what no kept generation names, as a crash, an interrupted build or an old commit left it.

Kept are the committed state and the two generations before it. What counts is read from the disk each time, so that a
sweep is right whatever happened before it; while the committed state cannot be read, nothing is removed. Only names
that ragidx itself gives are looked at. Journals are not swept: they are what an interrupted build goes on from.
"""

from __future__ import annotations

import re
from pathlib import Path

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer import atomic
from ragidx.indexer.lock import LOCK
from ragidx.indexer.manifest import (
    DELETIONS,
    FILES,
    JOURNAL,
    KEPT,
    MANIFEST,
    SEGMENTS,
    Manifest,
    files_of,
    is_segment_id,
    numbered_path,
    read_manifest,
)

_NUMBERED = re.compile(r"manifest\.([0-9]{1,16})\.json")
_BLOB = re.compile(r"[0-9a-f]{16}-[A-Za-z0-9][A-Za-z0-9._-]*")
_DELETIONS = re.compile(r"[0-9]{8,16}\.arrow")


def sweep(folder: Path) -> None:
    """Remove what no kept generation of the index names. The caller holds the lock."""
    try:
        current = read_manifest(folder)
    except FileNotFoundError:
        kept: list[Manifest] = []
    except IndexFormatError:
        return
    else:
        kept = [current, *earlier(folder, current.generation)]
    named = {path for manifest in kept for path in files_of(manifest)}
    segments = {path.split("/")[1] for path in named if path.startswith(f"{SEGMENTS}/")}
    numbered = {numbered_path(manifest.generation) for manifest in kept}
    for path in _entries(folder):
        if path.name.endswith(atomic.TEMPORARY) or (_NUMBERED.fullmatch(path.name) and path.name not in numbered):
            atomic.remove(path)
    for path in _entries(folder / SEGMENTS):
        if is_segment_id(path.name) and path.name not in segments:
            atomic.remove(path)
        for part in _entries(path) if path.name in segments else ():
            if part.name.endswith(atomic.TEMPORARY):  # of a reader that ended while it wrote a narrower copy
                atomic.remove(part)
    for name, ours in ((DELETIONS, _DELETIONS), (FILES, _BLOB)):
        for path in _entries(folder / name):
            if path.name.endswith(atomic.TEMPORARY) or (
                ours.fullmatch(path.name) and f"{name}/{path.name}" not in named
            ):
                atomic.remove(path)


def highest_generation(folder: Path) -> int:
    """The highest generation that any name in the folder shows; 0 where there is none."""
    numbers = [int(found[1]) for path in _entries(folder) if (found := _NUMBERED.fullmatch(path.name))]
    numbers += [int(path.name.split("-")[0]) for path in _entries(folder / SEGMENTS) if is_segment_id(path.name)]
    return max(numbers, default=0)


def check_folder(path: Path) -> None:
    """Refuse a folder that is something else: a writer sweeps, and must not sweep there.

    Raises:
        IndexFormatError: it is a file, holds other things than an index, or a part of it is a link.
    """
    hint = "choose another folder with --index"
    if path.exists() and not path.is_dir():
        raise IndexFormatError("it is a file, not a folder", hint, where=str(path))
    parts = (SEGMENTS, DELETIONS, FILES, JOURNAL)
    if path.is_dir():
        names = {entry.name for entry in path.iterdir()}
        ours = {name for name in names if name in (*parts, LOCK) or _is_ours(name)}
        if MANIFEST not in names and (names - ours or (names and LOCK not in names)):
            raise IndexFormatError("it is not an index, and not empty", hint, where=str(path))
    for name in parts:
        if (path / name).is_symlink():
            raise IndexFormatError(f"{name!r} in it is a link, and is not followed", hint, where=str(path))


def _is_ours(name: str) -> bool:
    """Whether a file directly in an index folder is a manifest's numbered copy or a temporary file."""
    return _NUMBERED.fullmatch(name) is not None or (name.startswith(".") and name.endswith(atomic.TEMPORARY))


def earlier(folder: Path, generation: int) -> list[Manifest]:
    """The kept generations before one, oldest first; those whose manifest cannot be read are left out."""
    found = []
    for number in range(max(1, generation - KEPT + 1), generation):
        try:
            manifest = read_manifest(folder, numbered_path(number))
        except (FileNotFoundError, IndexFormatError):
            continue  # nobody can open it any more
        if manifest.generation == number:
            found.append(manifest)
    return found


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
