"""The state that a writer continues from: the committed one, checked against the present options.

The fingerprint, the width and the index type must be those of the index. Recall and memory may differ: the existing
segments keep their indexes, and their search effort is measured again. Indexes that cannot reach the options are
refused before anything is encoded, and the message says how to make others.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.indexer.ann.alone import check_has_vectors
from ragidx.indexer.ann.index_types import AUTO, MIN_ROWS, IndexOptions, padded
from ragidx.indexer.ann.tuning import exact_answers, tune
from ragidx.indexer.store import Store
from ragidx.indexer.store.entries import SegmentEntry
from ragidx.indexer.store.files import VECTORS
from ragidx.indexer.store.manifest import Manifest, NewerFormatError, read_manifest
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.writing.merging import memory_bytes
from ragidx.indexer.writing.vacuum import highest_generation


def read_base(
    folder: Path, required: Mapping[str, str | int], index: IndexOptions, *, replace: bool, opened: Store | None = None
) -> tuple[Manifest | None, Store | None, int]:
    """The committed state and the generation that a writer makes.

    Args:
        folder: folder of the index, its lock held.
        required: `fingerprint` of the vectors to be added, and their `dim`.
        index: the present options; type, and whether codes are all that is kept, have to be those of the index.
        replace: whether the writer replaces the state instead of adding to it.
        opened: a state of this index that is open.

    Returns:
        Its manifest, None if there is none to read; the open state, None where it is replaced; the generation.

    Raises:
        SpecError: the state has another fingerprint, width or index type.
        IndexFormatError: it is damaged and not replaced, or of a newer format.
    """
    try:
        base = read_manifest(folder)
    except FileNotFoundError:
        return None, None, 1
    except NewerFormatError:
        raise
    except IndexFormatError:
        if not replace:
            raise
        return None, None, highest_generation(folder) + 1
    if replace:
        return base, None, base.generation + 1
    _check_same(base, folder, {**required, "index_type": index.index_type, "codes_only": index.codes_only})
    return base, Store.open(folder, opened), base.generation + 1


def retuned(store: Store, options: IndexOptions) -> Sequence[SegmentEntry]:
    """The segments of a state with the search effort for another target recall; their files do not change.

    Args:
        store: the committed state.
        options: the present ones, of the same index type.

    Raises:
        SpecError: they take more memory than is allowed, or cannot reach the recall.
        IndexFormatError: an index to be measured is damaged.
    """
    base = store.manifest
    if options.max_memory != base.index.max_memory:
        _check_memory(store.path, base, options)
    if options.target_recall == base.index.target_recall:
        return base.segments
    check_has_vectors(base.index, "target_recall", "`target_recall`")
    return [_tuned(store.path, segment, options) for segment in store.segments]


def _check_same(base: Manifest, folder: Path, asked: Mapping[str, str | int]) -> None:
    has = {"fingerprint": base.fingerprint, "dim": base.dim, **dataclasses.asdict(base.index)}
    for name, value in asked.items():
        if has[name] != value:
            raise SpecError(
                f"the index was made with another {name}: {has[name]}, not {value}",
                "build with the same options as before, or replace the index with `rebuild=True`",
                where=str(folder),
            )


def _check_memory(folder: Path, base: Manifest, options: IndexOptions) -> None:
    """Segments with few rows are not limited, as in a new index."""
    taken, limit = sum(memory_bytes(segment) for segment in base.segments), options.max_memory
    if limit is not None and taken > limit and any(segment.rows >= MIN_ROWS for segment in base.segments):
        raise SpecError(
            f"the index takes {-(-taken // 1_000_000):,} MB as it was made, more than `max_memory` allows",
            _remake(folder, options, f"--max-memory {limit}", "allow that much"),
            where="`max_memory`",
        )


def _tuned(folder: Path, segment: Segment, options: IndexOptions) -> SegmentEntry:
    """A segment with the search effort for the target; without an index the search is exact already."""
    entry = segment.entry
    if entry.ann is None:
        return entry
    recipe, target = entry.ann.recipe, options.target_recall
    if target == 1 and options.index_type == AUTO:  # as in a new index: a sample cannot show that nothing is missed
        raise _too_rough(f"a recall of 1 compares every vector, and {recipe} was made of them", folder, options)
    in_lists = recipe.lists is not None
    path, repeats = segment.folder / VECTORS, segment.repeats
    truth = exact_answers(path, padded(segment.dim), entry.rows, in_lists=in_lists, repeats=repeats)
    found = tune(segment.ann_index, recipe, truth, segment.exact_index, target, repeats)
    if found.recall < target:
        reached = f"the index {recipe} reaches a recall of {found.recall:.3f}, not the {target:g} asked for"
        raise _too_rough(reached, folder, options)
    return dataclasses.replace(entry, ann=found)


def _too_rough(message: str, folder: Path, options: IndexOptions) -> SpecError:
    hint = _remake(folder, options, f"--target-recall {options.target_recall:g}", "ask for less")
    return SpecError(message, hint, where="`target_recall`")


def _remake(folder: Path, options: IndexOptions, asked: str, alternative: str) -> str:
    """The hint: the command that makes another index of the same vectors."""
    free = "" if options.index_type == AUTO else f" --index-type {AUTO}"
    command = f"ragidx reindex DIR --index {shlex.quote(str(folder))}{free} {asked}"
    return f"'{command}' makes another beside it, and encodes nothing; or {alternative}"
