"""The past of an index: the generations whose files are kept, and going back to one of them.

Going back is a commit like any other: a new generation that holds what an earlier one held, so that readers see the
state before or after it, and going back can itself be undone. What a spec means is not known here.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ragidx.corpora.errors import SpecError
from ragidx.indexer.commit import commit
from ragidx.indexer.deletions import read_deletions, write_deletions
from ragidx.indexer.lock import Lock, now
from ragidx.indexer.manifest import Manifest
from ragidx.indexer.store import Store
from ragidx.indexer.sweep import earlier, sweep
from ragidx.indexer.verify import check_files

ROLLED_BACK = "rolled_back_to"  # a note of the manifest


def history(folder: Path) -> list[Manifest]:
    """The kept generations of an index, the committed one first.

    Raises:
        IndexFormatError: there is no index, or its manifest is damaged.
    """
    current = Store.open(folder).manifest
    return [current, *reversed(earlier(folder, current.generation))]


def rollback(folder: Path, generation: int) -> Manifest:
    """Commit anew what a kept generation held; its segments are named again, none is written.

    Where it is the committed state already, nothing is written.

    Returns:
        The committed state.

    Raises:
        SpecError: the generation is not kept; the message names those that are.
        IndexFormatError: there is no index, or a file of that generation is missing or damaged.
        BusyError: a writer holds the index.
        RagidxError: the folder cannot be written; the committed state is what it was.
    """
    Store.open(folder)  # says what is there instead of an index
    lock = Lock(folder)
    try:
        current, *before = history(folder)
        if generation == current.generation:
            return current
        target = next((manifest for manifest in before if manifest.generation == generation), None)
        if target is None:
            kept = ", ".join(str(manifest.generation) for manifest in before) or "none but the committed one"
            raise SpecError(
                f"generation {generation} of the index is not kept",
                f"kept: {kept}; build again from the corpus as it was",
                where=str(folder),
            )
        check_files(folder, target)
        manifest = _again(folder, target, current.generation + 1)
        commit(folder, manifest)
        sweep(folder)
        return manifest
    finally:
        lock.release()


def _again(folder: Path, target: Manifest, generation: int) -> Manifest:
    """The manifest of a new generation that holds what `target` held; its dead rows are written under the new one."""
    dead = read_deletions(folder, target)
    return dataclasses.replace(
        target,
        generation=generation,
        created=now(),
        deletions=write_deletions(folder, generation, target.segments, dead),
        notes={**target.notes, ROLLED_BACK: target.generation},
    )
