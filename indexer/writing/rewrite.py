"""Rewriting stored segments: merged, without dead rows, at a narrower width, or with another index type.

    compact(folder)              small segments and those with many dead rows become large ones without any
    replace(folder, change)      the whole index in another form, in one commit
    copy(folder, target, change) the same into another folder

Columns are copied in batches, vectors in blocks. Memory holds 16 MiB of columns, one block, and what making the new
index takes. Rows keep their order. Readers keep the segments that they have open. A killed process leaves the old
state, and the next writer removes its files. Specs are passed on as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.ann.tuning import OnStage
from ragidx.indexer.specs import requirements
from ragidx.indexer.store import Store
from ragidx.indexer.store.deletions import by_segment
from ragidx.indexer.store.generations import committed
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.manifest import Manifest, files_of, read_manifest
from ragidx.indexer.store.rows import schema_of
from ragidx.indexer.writing.commit import publish
from ragidx.indexer.writing.history import ROLLED_BACK
from ragidx.indexer.writing.live_kinds import live_kinds
from ragidx.indexer.writing.merging import Convert, SegmentState, copied, is_full, is_small, recall_of
from ragidx.indexer.writing.segment_writer import NewSegments
from ragidx.indexer.writing.vacuum import check_folder, cleaned_if_refused, vacuum

DEAD_SHARE = 0.1  # a segment with more dead rows than this is rewritten without them


@dataclass(frozen=True)
class NewForm:
    """The form of the rewritten index.

    Attributes:
        spec: spec for the manifest of the new form.
        fingerprint: fingerprint of the spec.
        dim: width of its vectors, at most the old one; without `convert` they are cut and normalised to unit length.
        index: options of the index that its large segments get.
        blobs: small files that belong to the spec, by name.
        chosen: numbers of the segments that are rewritten, where the form stays; None: all.
        convert: (n, old width) float32 -> (n, dim) of unit length; None: as `dim` says.
        notes: notes for the manifest, beside those that are there.
    """

    spec: Mapping[str, Json]
    fingerprint: str
    dim: int
    index: IndexOptions
    blobs: Mapping[str, bytes]
    chosen: Sequence[int] | None = None
    convert: Convert | None = None
    notes: Mapping[str, Json] = field(default_factory=dict)


Decision: TypeAlias = Callable[[Store], NewForm | None]
"""The new form of a state; None if there is nothing to do. Called once, with the lock held."""


@dataclass(frozen=True)
class Rewritten:
    """What a rewrite did.

    Attributes:
        manifest: manifest of the committed state.
        committed: False if there was nothing to do.
        n_segments: number of segments that were rewritten.
        n_dropped: dead rows removed.
        bytes_before: bytes of all files that the manifest named before.
    """

    manifest: Manifest
    committed: bool
    n_segments: int
    n_dropped: int
    bytes_before: int


def compact(folder: Path, *, everything: bool = False, on_stage: OnStage = lambda stage, rows, done: None) -> Rewritten:
    """Merge small segments, and rewrite those of which a tenth is dead, in one commit.

    Args:
        folder: folder of the index.
        everything: rewrite all segments, if that gains anything.
        on_stage: called with the stage and its progress.

    Raises:
        IndexFormatError: there is no index, or it is damaged.
        BusyError: a writer holds the index.
        RagidxError: the folder cannot be written; the committed state is what it was.
    """

    def decide(store: Store) -> NewForm | None:
        base, chosen = store.manifest, _worth_rewriting(store, everything=everything)
        if not chosen:
            return None
        blobs = {name: store.blob(name) for name in base.files}
        return NewForm(base.spec, base.fingerprint, base.dim, base.index, blobs, chosen)

    return replace(folder, decide, on_stage=on_stage)


def replace(
    folder: Path,
    decide: Decision,
    *,
    timeout: float = 0.0,
    on_stage: OnStage = lambda stage, rows, done: None,
) -> Rewritten:
    """Replace an index by another form of it, in one commit; the generation before stays for `rollback`.

    Args:
        folder: folder of the index.
        decide: function that gives the new form; called with the state read under the lock, which may be newer than the
            call.
        timeout: seconds to wait while another writer holds it.
        on_stage: called with the stage and its progress.

    Raises:
        IndexFormatError: there is no index, or it is damaged.
        SpecError: the part of a vector that would be kept is zero.
        BusyError: a writer holds the index.
        RagidxError: the folder cannot be written; the committed state is what it was.
    """
    committed(folder)  # reports what is there if it is not an index
    with Lock(folder, timeout):
        store = Store.open(folder)
        change = decide(store)
        if change is None:
            vacuum(folder)  # what a killed rewrite left
            return _done(store, store.manifest, [])
        return rewritten(store, folder, change, on_stage)


def copy(
    store: Store,
    target: Path,
    decide: Callable[[Store], NewForm],
    *,
    on_stage: OnStage = lambda stage, rows, done: None,
) -> Rewritten:
    """As `replace`, of a state that is open into a folder that is empty or missing. The old index is only read.

    If it fails, the folders that it made are removed. If it is killed, its files stay, and the next copy into
    the folder starts again.

    Raises:
        SpecError: there is an index in `target`, one of the folders is inside the other, or as in `replace`.
        IndexFormatError: `target` holds something else.
    """
    change = decide(store)
    _check_apart(store.path, target)
    _check_vacant(target)
    with cleaned_if_refused(target):
        atomic.make_folder(target)
        with Lock(target):
            _check_vacant(target)  # another writer may just have committed there
            return rewritten(store, target, change, on_stage)


def _worth_rewriting(store: Store, *, everything: bool) -> Sequence[int]:
    entries, dim = store.manifest.segments, store.manifest.dim
    shares = [0.0 if mask is None else float(mask.mean()) for mask in by_segment(store.dead, entries)]
    if everything:
        gains = any(shares) or sum(not is_full(entry, dim) for entry in entries) > 1
        return range(len(entries)) if gains else []
    kept = [number for number, entry in enumerate(entries) if entry.has_vectors]  # the others would be coded again
    small = [number for number in kept if is_small(entries[number], dim)]
    holed = [number for number in kept if shares[number] > DEAD_SHARE]
    return sorted({*holed, *(small if len({*small, *holed}) > 1 else [])})


def _check_apart(folder: Path, target: Path) -> None:
    """Refuse a target inside the index that is read, where vacuum may remove it, and the reverse."""
    old, new = folder.resolve(), target.resolve()
    if old == new:
        raise SpecError(
            "this is the source index, which stays as it is",
            "name a folder for the new index; the source is `index`",
            where=str(target),
        )
    if old in new.parents:
        raise SpecError(f"the folder is inside the index {folder}", "name a folder outside of it", where=str(target))
    if new in old.parents:
        raise SpecError(f"the index {folder} is inside this folder", "name another folder", where=str(target))


def _check_vacant(target: Path) -> None:
    if _is_index(target):
        raise SpecError(
            "there is an index already", "name a folder for the new index; the source is `index`", where=str(target)
        )
    try:
        check_folder(target)
    except IndexFormatError as fault:  # its hint names `index`, which is the other folder here
        raise IndexFormatError(fault.message, "name another folder", where=str(target)) from fault


def _is_index(target: Path) -> bool:
    """Whether anything was committed there, even if it is damaged now."""
    try:
        return target.is_dir() and bool(read_manifest(target))
    except FileNotFoundError:
        return False
    except IndexFormatError:
        return True


def rewritten(
    store: Store, target: Path, change: NewForm, on_stage: OnStage = lambda stage, rows, done: None
) -> Rewritten:
    """Rewrite segments of `store` below `target`, whose lock is held, and commit them together with the others."""
    base, same = store.manifest, target == store.path
    numbers = range(len(store.segments))
    chosen = numbers if change.chosen is None else change.chosen
    dead = by_segment(store.dead, base.segments)
    kinds = live_kinds(list(zip(store.segments, dead, strict=True)))
    draft = dataclasses.replace(
        base,
        schema=schema_of(kinds),
        generation=base.generation + 1 if same else 1,
        spec=change.spec,
        fingerprint=change.fingerprint,
        dim=change.dim,
        requires=requirements(change.spec),
        index=change.index,
        files=base.files if same else {},
        # This is not a rollback.
        notes={**{name: note for name, note in base.notes.items() if name != ROLLED_BACK}, **change.notes},
    )
    vacuum(target)
    try:
        sources = [(store.segments[number], dead[number]) for number in chosen]
        new = NewSegments(target, draft.generation, change.dim)
        made = copied(sources, new, change.dim, on_stage, change.convert)
        parts = [SegmentState(base.segments[number], dead[number]) for number in sorted({*numbers} - {*chosen})]
        recall = recall_of(base.segments[number] for number in chosen)
        parts += [SegmentState(entry, None, fresh=True, recall=recall) for entry in made]
        manifest = publish(target, draft, parts, change.blobs, on_stage)
    finally:
        vacuum(target)  # files of generations no longer kept; after a failure, the files written here
    return _done(store, manifest, chosen)


def _done(store: Store, manifest: Manifest, chosen: Sequence[int]) -> Rewritten:
    dead = by_segment(store.dead, store.manifest.segments)
    dropped = sum(0 if (mask := dead[number]) is None else int(mask.sum()) for number in chosen)
    before = sum(entry.bytes for entry in files_of(store.manifest).values())
    return Rewritten(manifest, manifest is not store.manifest, len(chosen), dropped, before)
