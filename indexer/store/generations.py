"""The generations of an index: the committed one and the kept ones before it, each with its own copy of its manifest.

A damaged manifest and one that cannot be read now are different faults: a damaged one is lost, the other may be whole.
The files that a manifest names are not checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ragidx.corpora.errors import IndexFormatError, MachineError
from ragidx.indexer.damage import check_name
from ragidx.indexer.store.lock import LOCK
from ragidx.indexer.store.manifest import (
    KEPT,
    MANIFEST,
    Manifest,
    NewerFormatError,
    UnavailableError,
    numbered_path,
    read_manifest,
)

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
    if folder.is_file():
        raise IndexFormatError("it is a file, not a folder", "name another folder with `index`", where=str(folder))
    try:
        return read_manifest(folder)
    except FileNotFoundError as fault:
        if not folder.exists():
            message, hint = "there is no such folder", "build the index first, or name another folder with `index`"
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
    try:
        found = read_manifest(folder, path.name)
    except NewerFormatError:
        raise
    except MachineError as fault:  # its file may be whole
        raise UnavailableError(fault.message, f"{fault.hint}; until then {lost}", where=str(path)) from fault
    except UnavailableError as fault:
        raise UnavailableError(fault.message, f"look at the disk; until then {lost}", where=str(path)) from fault
    except IndexFormatError as fault:
        hint = f"put it back from a copy; without it {lost}"
        raise IndexFormatError(fault.message, hint, where=str(path)) from fault
    if found.generation != generation:
        message = f"the manifest is damaged: it belongs to generation {found.generation}"
        raise IndexFormatError(message, f"put it back from a copy; without it {lost}", where=str(path))
    return found
