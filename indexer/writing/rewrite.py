"""Rewriting segments from what is stored: merged, without dead rows, at a narrower width, under another index type.

    compact(folder)              small segments and those with many dead rows become large ones without any
    replace(folder, change)      the whole index by another form of itself, in one commit
    copy(folder, target, change) the same into another folder

Columns are copied in batches, vectors in blocks: what is held is the columns of the first rows (16 MiB), one block, and
what making an index of the new segment takes. Rows keep their order. Readers keep the segments that they have open; a
process that is killed leaves the old state, and the next writer removes what it had written.
What a width or a spec means is not known here.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import ragidx
from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.ann.tuning import OnStage
from ragidx.indexer.atomic import FileEntry
from ragidx.indexer.store.deletions import write_deletions
from ragidx.indexer.store.generations import commit, write_blobs
from ragidx.indexer.store.lock import LOCK, Lock, now
from ragidx.indexer.store.manifest import (
    DELETIONS,
    FILES,
    MANIFEST,
    SEGMENTS,
    Manifest,
    files_of,
    read_manifest,
)
from ragidx.indexer.store.store import Store
from ragidx.indexer.writing.history import ROLLED_BACK
from ragidx.indexer.writing.merging import Copier, Part, derived, is_full, is_small
from ragidx.indexer.writing.vacuum import check_folder, sweep

_PARTS = (SEGMENTS, DELETIONS, FILES)  # folders of an index
DEAD_SHARE = 0.1  # a segment with more dead rows than this is rewritten without them


@dataclass(frozen=True)
class Change:
    """What the rewritten index is made as.

    Attributes:
        spec: to be kept in its manifest.
        fingerprint: of the spec.
        dim: width of its vectors, at most that of the old ones; they are cut and brought to unit length.
        index: which index its large segments get.
        blobs: small files that belong to the spec, by name.
    """

    spec: Mapping[str, Json]
    fingerprint: str
    dim: int
    index: IndexOptions
    blobs: Mapping[str, bytes]


Decision: TypeAlias = Callable[[Store], Change | None]
"""What the state that is rewritten is to become; None: it is that already. Called once that state is held."""


@dataclass(frozen=True)
class Rewritten:
    """What was done.

    Attributes:
        manifest: of the committed state.
        committed: whether this made it; False where there was nothing to do.
        n_segments: rewritten.
        n_dropped: dead rows that are gone.
        n_before: segments before.
        bytes_before: of all files that the manifest named before.
    """

    manifest: Manifest
    committed: bool
    n_segments: int
    n_dropped: int
    n_before: int
    bytes_before: int


def compact(folder: Path, *, everything: bool = False, on_stage: OnStage = lambda stage, rows, done: None) -> Rewritten:
    """Merge small segments, and rewrite those of which a tenth is dead, in one commit.

    Args:
        folder: of the index.
        everything: rewrite all segments, where there is anything to gain.
        on_stage: told what is done and how far.

    Raises:
        IndexFormatError: there is no index, or it is damaged.
        BusyError: a writer holds the index.
        RagidxError: the folder cannot be written; the committed state is what it was.
    """
    Store.open(folder)  # says what is there instead of an index
    lock = Lock(folder)
    try:
        store = Store.open(folder)
        chosen = _worth_rewriting(store, everything=everything)
        if not chosen:
            sweep(folder)  # what a rewriting that was killed had written
            return unchanged(store)
        base = store.manifest
        as_before = Change(base.spec, base.fingerprint, base.dim, base.index, {})
        return _rewrite(store, folder, chosen, as_before, base.files, on_stage)
    finally:
        lock.release()


def replace(folder: Path, decide: Decision, *, on_stage: OnStage = lambda stage, rows, done: None) -> Rewritten:
    """Put another form of an index in its place, in one commit; the generation before stays for `rollback`.

    Args:
        folder: of the index.
        decide: what it becomes; told the state that the lock holds, which another writer may just have committed.
        on_stage: told what is done and how far.

    Raises:
        IndexFormatError: there is no index, or it is damaged.
        SpecError: a vector has nothing in the part of it that would be kept.
        BusyError: a writer holds the index.
        RagidxError: the folder cannot be written; the committed state is what it was.
    """
    Store.open(folder)
    lock = Lock(folder)
    try:
        store = Store.open(folder)
        change = decide(store)
        if change is None:
            sweep(folder)  # what a rewriting that was killed had written
            return unchanged(store)
        return _rewrite(store, folder, range(len(store.segments)), change, {}, on_stage)
    finally:
        lock.release()


def copy(
    folder: Path, target: Path, decide: Callable[[Store], Change], *, on_stage: OnStage = lambda stage, rows, done: None
) -> Rewritten:
    """As `replace`, into a folder that is empty or not there yet; the old index is only read, at one state of it.

    Where it fails, folders that it made are gone again, and one that was empty is empty. Where it is killed, the folder
    keeps what it wrote, and the next copy into it starts over.

    Raises:
        SpecError: there is an index in `target`, or one of the folders lies in the other, or as in `replace`.
        IndexFormatError: there is no index in `folder`, or `target` is something else.
    """
    store = Store.open(folder)
    change = decide(store)
    _check_apart(folder, target)
    _check_vacant(target)
    missing = [path for path in (target, *target.parents) if not path.exists()]
    try:
        atomic.make_folder(target)
        with _locked(target):
            _check_vacant(target)  # another writer may just have committed there
            return _rewrite(store, target, range(len(store.segments)), change, {}, on_stage)
    except BaseException:
        atomic.remove_empty(missing)
        raise


def unchanged(store: Store) -> Rewritten:
    """What is told where there was nothing to do."""
    return _done(store, store.manifest, [], committed=False)


def _worth_rewriting(store: Store, *, everything: bool) -> Sequence[int]:
    entries, dead = store.manifest.segments, store.dead
    shares = [0.0 if mask is None else float(mask.mean()) for mask in dead]
    dim = store.manifest.dim
    if everything:
        gains = any(shares) or sum(not is_full(entry, dim) for entry in entries) > 1
        return range(len(entries)) if gains else []
    small = [number for number, entry in enumerate(entries) if is_small(entry, dim)]
    holed = [number for number, share in enumerate(shares) if share > DEAD_SHARE]
    return sorted({*holed, *(small if len({*small, *holed}) > 1 else [])})


@contextlib.contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Hold the lock of a folder that is to become an index; where nothing is committed, it is empty again.

    So is one that holds no more than a copying left that was killed; what a build left, which goes on from it, stays.
    """
    lock = Lock(target)
    try:
        sweep(target)
        holds = {path.name for path in target.iterdir()}
        try:
            yield
        except BaseException:
            # Who comes now is told that it is busy; `_rewrite` has swept what was in the folders.
            if holds <= {LOCK, *_PARTS} and not (target / MANIFEST).exists():
                atomic.remove_empty(target / name for name in _PARTS)
                atomic.remove(target / LOCK)
            raise
    finally:
        lock.release()


def _check_apart(folder: Path, target: Path) -> None:
    """Refuse a target in the index that is read, where a sweep may remove it, and the other way round."""
    old, new = folder.resolve(), target.resolve()
    if old == new:
        raise SpecError(
            "this is the source index, which stays as it is",
            "name a folder for the new index; the source is `index`",
            where=str(target),
        )
    if old in new.parents:
        raise SpecError(f"the folder lies in the index {folder}", "name a folder outside of it", where=str(target))
    if new in old.parents:
        raise SpecError(f"the index {folder} lies in this folder", "name another folder", where=str(target))


def _check_vacant(target: Path) -> None:
    if _is_index(target):
        raise SpecError(
            "there is an index already", "name a folder for the new index; the source is `index`", where=str(target)
        )
    try:
        check_folder(target)
    except IndexFormatError as fault:  # its hint speaks of --index, which is the other folder here
        raise IndexFormatError(fault.message, "name another folder", where=str(target)) from fault


def _is_index(target: Path) -> bool:
    """Whether anything was committed there, be it damaged or without its manifest now."""
    try:
        return target.is_dir() and bool(read_manifest(target))
    except FileNotFoundError:
        return False
    except IndexFormatError:
        return True


def _rewrite(
    store: Store, target: Path, chosen: Sequence[int], change: Change, kept: Mapping[str, FileEntry], on_stage: OnStage
) -> Rewritten:
    """Write the chosen segments anew below `target`, and commit them together with the others.

    Args:
        store: what is read.
        target: where it is written, its lock held.
        chosen: numbers of segments; all of them where the change is one.
        change: what it becomes.
        kept: the files of the spec that stay as they are, where nothing changes.
        on_stage: told how far it is.
    """
    base, same = store.manifest, target == store.path
    generation = base.generation + 1 if same else 1
    sweep(target)
    try:
        others = [number for number in range(len(store.segments)) if number not in set(chosen)]
        copier = Copier(target, generation, 0, base.schema, change.dim, on_stage)
        made = copier.run([(store.segments[number], store.dead[number]) for number in chosen])
        parts = [Part(base.segments[number], store.dead[number]) for number in others]
        parts += [Part(entry, None, fresh=True) for entry in made]
        parts = derived(target, parts, change.dim, change.index, on_stage)
        manifest = _manifest(base, target, generation, change, parts, kept)
        commit(target, manifest)
    finally:
        sweep(target)  # of an old state, what it had and nobody can open; of a failed rewriting, what it wrote
    return _done(store, manifest, chosen, committed=True)


def _manifest(
    base: Manifest,
    target: Path,
    generation: int,
    change: Change,
    parts: Sequence[Part],
    kept: Mapping[str, FileEntry],
) -> Manifest:
    """The new state."""
    segments = tuple(part.entry for part in parts)
    return dataclasses.replace(
        base,
        generation=generation,
        created=now(),
        spec=change.spec,
        fingerprint=change.fingerprint,
        dim=change.dim,
        index=change.index,
        segments=segments,
        files={**kept, **write_blobs(target, change.blobs)},
        deletions=write_deletions(target, generation, segments, [part.dead for part in parts]),
        notes={name: note for name, note in base.notes.items() if name != ROLLED_BACK},  # this is no going back
        ragidx=ragidx.__version__,
    )


def _done(store: Store, manifest: Manifest, chosen: Sequence[int], *, committed: bool) -> Rewritten:
    dropped = sum(0 if (mask := store.dead[number]) is None else int(mask.sum()) for number in chosen)
    before = sum(entry.bytes for entry in files_of(store.manifest).values())
    return Rewritten(manifest, committed, len(chosen), dropped, len(store.segments), before)
