"""A segment of codes alone: its codes are made, and their recall measured, while its vectors are there.

The effort is the least that finds what an exact search of the decoded vectors finds, to the target recall. The recall
that is noted counts what the codes lose, too: of the exact ten by the float16 vectors, how many a search finds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragidx.indexer.ann import making, tuning
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.decoded import DecodedVectors
from ragidx.indexer.ann.faiss_files import are_zero, codes_of, map_ann, map_vectors, vectors_header, write
from ragidx.indexer.ann.index_types import TUNED_K, IndexOptions, TunedIndex, padded, with_lists
from ragidx.indexer.ann.repeats import find_repeats
from ragidx.indexer.ann.tuning import OnStage, Truth
from ragidx.indexer.arrays import slices
from ragidx.indexer.atomic import TEMPORARY, FileEntry, create, remove, unique

_BLOCK_ROWS = 16_384


class Coded(NamedTuple):
    """What was made of a segment's vectors: the file, how it is searched, the first row whose vector is zero."""

    file: FileEntry
    tuned: TunedIndex
    zero: int | None


def write_codes(
    path: Path,
    vectors: Path,
    dim: int,
    rows: int,
    options: IndexOptions,
    max_memory: int | None,
    on_stage: OnStage,
) -> Coded | None:
    """Make the ann.faiss of a segment that is to keep no vectors; None: it has few rows, and keeps them.

    Args:
        path: where it is written.
        vectors: the segment's vectors.faiss.
        dim: width of the vectors.
        rows: number of rows of the segment.
        options: the user's options of the index.
        max_memory: the part of `options.max_memory` that this segment may take.
        on_stage: called with the progress.

    Raises:
        SpecError: no codes fit into the memory, or these do not reach the recall; the message says what would.
        RagidxError: the disk is full or failed.
    """
    recipe, width = tuning.fitting(options, rows, padded(dim), max_memory)[0], padded(dim)
    if recipe is None:
        return None
    repeats = find_repeats(vectors, width, rows)
    n_repeats = 0 if repeats is None else len(repeats)
    recipe = with_lists(recipe, rows - n_repeats)
    truth = tuning.exact_answers(vectors, width, rows, in_lists=recipe.lists is not None, repeats=repeats)
    tuning.release_memory()
    made = making.make(recipe, vectors, width, rows, functools.partial(on_stage, str(recipe), rows), repeats)
    with create(path) as file:
        write(made, file.write)
        if repeats is not None:
            file.write(repeats.to_bytes())
    del made
    zero, index = _first_zero(vectors, width, rows), map_ann(path, recipe, (width, rows), n_repeats)
    decoded = DecodedVectors(path, recipe, index, dim, rows, repeats, zero)
    with _written(decoded, path.with_name(f".{path.name}.{unique()}{TEMPORARY}")) as same:
        tenth, _ = ann.search_exact(same, truth.queries, min(TUNED_K, rows), None)
        itself = Truth(truth.queries, tenth[:, -1])
        found = tuning.tune(index, recipe, itself, same, options.target_recall, repeats, decoded)
        if found.recall < options.target_recall:
            raise tuning.too_rough(found, rows, width, options)
        _, best = ann.search(index, recipe, found.effort, same, truth.queries, TUNED_K, None, repeats)
    stored = codes_of(vectors, width, rows)[best.clip(0)].astype(np.float32)
    scores = np.einsum("qkd,qd->qk", stored, truth.queries)
    hits = (best >= 0) & (scores >= truth.tenth[:, None] - tuning.TIE)
    return Coded(file.entry, dataclasses.replace(found, recall=float(hits.mean())), zero)


@contextlib.contextmanager
def _written(decoded: DecodedVectors, path: Path) -> Iterator[Any]:
    """The exact index of decoded vectors, mapped: to decode the same rows for each question would take minutes."""
    try:
        with create(path) as file:
            file.write(vectors_header(decoded.d, decoded.ntotal))
            for block in slices(np.arange(decoded.ntotal), _BLOCK_ROWS):
                file.write(decoded[block])
        yield map_vectors(path, decoded.d, decoded.ntotal)
    finally:
        remove(path)


def _first_zero(vectors: Path, width: int, rows: int) -> int | None:
    """The first row of a vectors.faiss that is zero; None: there is none."""
    codes = codes_of(vectors, width, rows)
    for block in slices(np.arange(rows), _BLOCK_ROWS):
        found = np.flatnonzero(are_zero(np.asarray(codes[block[0] : block[-1] + 1])))
        if len(found):
            return int(block[found[0]])
    return None
