"""The history of an index: the kept generations, and the rollback to one of them.

A rollback is a commit like any other: a new generation with the content of an earlier one. Readers see the state before
or after it, and a rollback can itself be undone. Of the committed state only the manifest is needed, so that a rollback
works when other files of it are damaged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.indexer.store.deletions import by_segment, read_deletions
from ragidx.indexer.store.generations import check_files, committed, earlier
from ragidx.indexer.store.lock import Lock, now
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.writing.commit import commit, write_deletions
from ragidx.indexer.writing.vacuum import vacuum

ROLLED_BACK = "rolled_back_to"  # a note of the manifest


def history(folder: Path, on_fault: Callable[[IndexFormatError], None] = lambda fault: None) -> list[Manifest]:
    """The kept generations of an index, the committed one first. Only manifests are read.

    Args:
        folder: folder of the index.
        on_fault: called for each kept generation that is skipped because its manifest is damaged or cannot be read.

    Raises:
        IndexFormatError: there is no index, or its manifest is damaged.
    """
    current = committed(folder)
    before = earlier(folder, current.generation)
    for fault in before.faults.values():
        on_fault(fault)
    return [current, *reversed(before.manifests)]


def rollback(folder: Path, generation: int) -> Manifest:
    """Commit the content of a kept generation as a new one. Its segments are reused, not written again.

    If it is the committed state already, nothing is written.

    Returns:
        The committed state.

    Raises:
        SpecError: the generation is not kept; the message names the kept ones.
        IndexFormatError: there is no index, or the manifest or a file of that generation is missing or damaged.
        BusyError: a writer holds the index.
        RagidxError: the folder cannot be written; the committed state is what it was.
    """
    committed(folder)  # reports what is there if it is not an index
    with Lock(folder):
        current = committed(folder)
        if generation == current.generation:
            check_files(folder, current)
            return current
        target = _kept_generation(folder, generation, current.generation)
        check_files(folder, target)
        number = current.generation + 1
        dead = by_segment(read_deletions(folder, target), target.segments)
        manifest = dataclasses.replace(
            target,
            generation=number,
            created=now(),
            deletions=write_deletions(folder, number, target.segments, dead),
            notes={**target.notes, ROLLED_BACK: target.generation},
        )
        commit(folder, manifest)
        vacuum(folder)
        return manifest


def _kept_generation(folder: Path, generation: int, current: int) -> Manifest:
    before = earlier(folder, current)
    for manifest in before.manifests:
        if manifest.generation == generation:
            return manifest
    if generation in before.faults:
        raise before.faults[generation]
    kept = ", ".join(str(manifest.generation) for manifest in reversed(before.manifests))
    raise SpecError(
        f"generation {generation} of the index is not kept",
        f"kept: {kept or 'none but the committed one'}; build again from the corpus as it was",
        where=str(folder),
    )
