"""What a writer goes on from: the committed state, checked, and in line with what is asked for now.

The fingerprint, the width and the index type must be those of the index. Recall and memory may be others: the segments
that are there keep their indexes, and how hard these are searched is measured again. What cannot do it is refused
before anything is encoded, and the message says how the indexes are made anew.
"""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.indexer.ann.faiss_files import ANN, VECTORS, check_ann, map_ann, map_vectors
from ragidx.indexer.ann.index_types import AUTO, MIN_ROWS, IndexOptions
from ragidx.indexer.ann.tuning import exact_answers, tune
from ragidx.indexer.store.manifest import (
    SEGMENTS,
    AnnEntry,
    Manifest,
    NewerFormatError,
    SegmentEntry,
    read_manifest,
    stored_width,
)
from ragidx.indexer.store.verify import check_files, with_way_back
from ragidx.indexer.writing.merging import memory_bytes
from ragidx.indexer.writing.vacuum import highest_generation


def read_base(
    folder: Path, *, fingerprint: str, dim: int, index_type: str, replace: bool
) -> tuple[Manifest | None, int]:
    """The committed state, if there is one that can be read, and the generation that a writer makes.

    Args:
        folder: of the index, its lock held.
        fingerprint: of the vectors that are to be added.
        dim: their width.
        index_type: that is asked for.
        replace: whether nothing of the state is gone on with.

    Raises:
        SpecError: the state is of another kind.
        IndexFormatError: it is damaged, which does not matter where it is replaced; or newer, which does.
    """
    try:
        base = read_manifest(folder)
    except FileNotFoundError:
        return None, 1
    except NewerFormatError:
        raise
    except IndexFormatError:
        if not replace:
            raise
        return None, highest_generation(folder) + 1
    if not replace:
        _check_same(base, folder, {"fingerprint": fingerprint, "dim": dim, "index_type": index_type})
        with with_way_back(folder, base):
            check_files(folder, base)
    return base, base.generation + 1


def retuned(folder: Path, base: Manifest, options: IndexOptions) -> tuple[SegmentEntry, ...]:
    """The segments of a state, searched as hard as another target recall asks for; their files stay as they are.

    Args:
        folder: of the index.
        base: the state.
        options: what is asked for now, of the type that the index has.

    Raises:
        SpecError: they take more memory, or reach a lower recall, than is asked for.
        IndexFormatError: an index that is to be measured is damaged.
    """
    if options.max_memory != base.index.max_memory:
        _check_memory(folder, base, options)
    if options.target_recall == base.index.target_recall:
        return base.segments
    return tuple(_tuned(folder, entry, base.dim, options) for entry in base.segments)


def _check_same(base: Manifest, folder: Path, asked: dict[str, str | int]) -> None:
    has = {"fingerprint": base.fingerprint, "dim": base.dim, "index_type": base.index.index_type}
    for name, value in asked.items():
        if has[name] != value:
            raise SpecError(
                f"the index was made with another {name}: {has[name]}, not {value}",
                "build with the same options as before, or replace the index with `rebuild=True`",
                where=str(folder),
            )


def _check_memory(folder: Path, base: Manifest, options: IndexOptions) -> None:
    """Segments of few rows are compared whole whatever they take, as they are in a new index."""
    taken, limit = sum(memory_bytes(segment) for segment in base.segments), options.max_memory
    if limit is not None and taken > limit and any(segment.rows >= MIN_ROWS for segment in base.segments):
        raise SpecError(
            f"the index takes {-(-taken // 1_000_000):,} MB as it was made, more than `max_memory` allows",
            _anew(folder, options, f"--max-memory {limit}", "allow that much"),
            where="`max_memory`",
        )


def _tuned(folder: Path, entry: SegmentEntry, dim: int, options: IndexOptions) -> SegmentEntry:
    """A segment with the effort that the target takes; without an index every vector is compared, which is exact."""
    if entry.ann is None:
        return entry
    recipe, target = entry.ann.recipe, options.target_recall
    if target == 1 and options.index_type == AUTO:  # as in a new index: a sample cannot show that nothing is missed
        raise _too_rough(f"a recall of 1 compares every vector, and {recipe} was made of them", folder, options)
    files, width = folder / SEGMENTS / entry.id, stored_width(entry, dim)
    vectors = map_vectors(files / VECTORS, width, entry.rows)
    index = map_ann(files / ANN, recipe, vectors)
    check_ann(files / ANN, recipe, index, entry.rows)
    truth = exact_answers(files / VECTORS, width, entry.rows, in_lists=recipe.lists is not None)
    found = tune(index, recipe, truth, vectors, target)
    if found.recall < target:
        reached = f"the index {recipe} reaches a recall of {found.recall:.3f}, not the {target:g} asked for"
        raise _too_rough(reached, folder, options)
    return dataclasses.replace(entry, ann=AnnEntry(recipe, found.effort, found.recall, found.sample))


def _too_rough(message: str, folder: Path, options: IndexOptions) -> SpecError:
    hint = _anew(folder, options, f"--target-recall {options.target_recall:g}", "ask for less")
    return SpecError(message, hint, where="`target_recall`")


def _anew(folder: Path, options: IndexOptions, asked: str, otherwise: str) -> str:
    """The hint: what makes another index of the same vectors, of whichever type can do what is asked for."""
    free = "" if options.index_type == AUTO else f" --index-type {AUTO}"
    command = f"ragidx reindex DIR --index {shlex.quote(str(folder))}{free} {asked}"
    return f"'{command}' makes another beside it, and encodes nothing; or {otherwise}"
