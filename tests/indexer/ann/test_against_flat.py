"""Every approximate type against `flat`: what is found, its scores and order, under conditions and deletions.

13,000 rows, 10,000 of which are equal and lie in the middle of all, on the way to everything: a graph that links each
of them fails at two questions in three.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.index_types import Effort, Recipe
from ragidx.indexer.ann.repeats import Repeats, find_repeats
from ragidx.indexer.store.files import VECTORS

pytestmark = pytest.mark.slow

DIM, TOPICS, DIFFERENT, EQUAL = 32, 20, 3000, 10_000
ROWS = DIFFERENT + EQUAL
ASKED = TOPICS // 2  # topics that are asked about
TARGET = 0.95

EFFORTS = {  # the least that reach the target here without a condition, as `tuning` finds them
    "HNSW16": Effort(beam=16),
    **dict.fromkeys(("SQ8", "RR,SQ8"), Effort()),
    **dict.fromkeys(("SQ6", "RaBitQ4"), Effort(factor=2)),
    "SQ4": Effort(factor=4),
    **dict.fromkeys(("PQ16x4fs", "RR,PQ16x4fs"), Effort(factor=8)),
    **dict.fromkeys(("RaBitQ", "RR,RaBitQ", "RaBitQfs", "PQ8x4fs"), Effort(factor=16)),
    **dict.fromkeys(("IVF64,SQfp16", "RR,IVF64,SQfp16", "IVF64,SQ8", "RR,IVF64,SQ8"), Effort(lists=4)),
    **dict.fromkeys(("IVF64,SQ6", "IVF64,SQ4", "IVF64,RaBitQ4", "RR,IVF64,RaBitQ4"), Effort(lists=4, factor=2)),
    **dict.fromkeys(("IVF64,PQ8", "RR,IVF64,PQ8"), Effort(lists=4, factor=4)),
    **dict.fromkeys(("IVF64,RaBitQ", "RR,IVF64,RaBitQ"), Effort(lists=4, factor=8)),
    **dict.fromkeys(("IVF64,RaBitQfs", "RR,IVF64,RaBitQfs"), Effort(lists=4, factor=8)),
    "IVF64,PQ16x4fs": Effort(lists=4, factor=16),
}


def unit(raw: np.ndarray) -> np.ndarray:
    return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)


def about(topics: np.ndarray, spread: float, rng: np.random.Generator) -> np.ndarray:
    """Unit vectors, each around the centre of its topic."""
    centres = np.random.default_rng(99).standard_normal((TOPICS, DIM))
    return unit(centres[topics] + spread * rng.standard_normal((len(topics), DIM)))


@pytest.fixture(scope="module")
def stored(ann_kit, tmp_path_factory):
    """Mapped vectors, the topic of each row (-1: of the equal ones), and `made(factory)`: index and repeats."""
    folder, rng = tmp_path_factory.mktemp("flat"), np.random.default_rng(0)
    topics = rng.permutation(np.append(rng.integers(TOPICS, size=DIFFERENT), np.full(EQUAL, -1)))
    rows = about(topics, 0.5, rng)
    rows[topics < 0] = unit(rows[topics >= 0].mean(axis=0, keepdims=True))
    vectors = ann_kit.write(folder, rows)
    repeats = find_repeats(folder / VECTORS, DIM, ROWS)

    @functools.cache
    def made(factory: str):
        path = ann_kit.make(folder, factory, vectors, repeats).rename(folder / factory)
        mapped = Repeats.mapped(path, len(repeats), ROWS)
        return ann_kit.open(path, factory, vectors, mapped), mapped

    return vectors, topics, made


@pytest.fixture(scope="module")
def asked(stored):
    """Queries about the first half of the topics, each fourth near the equal rows; the score of every row for each."""
    vectors, _, _ = stored
    rng = np.random.default_rng(7)
    queries = about(rng.integers(ASKED, size=16), 0.8, rng)
    every = vectors.reconstruct_n(0, ROWS)
    queries[::4] = unit(queries[::4] + 0.45 * every.mean(axis=0) / np.linalg.norm(every.mean(axis=0)))
    return queries, queries @ every.T


@pytest.fixture(scope="module")
def conditions(stored, asked):
    """Condition -> the rows that it leaves, and the exact scores of the best 1, 10 and 40 of them.

    It follows what is asked, opposes it, or has nothing to do with it; the rows that are left are from all to none.
    """
    (_, topics, _), (_, scores) = stored, asked
    rng, place, kept = np.random.default_rng(2), np.arange(ROWS), np.ones((2, ROWS), np.bool_)
    kept[0, np.argsort(-np.where(topics < 0, -9, scores), axis=1)[:, :30]] = False
    kept[1, np.flatnonzero(topics < 0)[0]] = False
    shares = {f"a share of {share:g}": rng.random(ROWS) < share for share in (0.5, 0.1, 0.01, 0.001)}
    masks = shares | {
        "all": None,
        "a share of 0.0001": place == int(0.7 * ROWS),
        "all rows of a document": (place >= 5000) & (place < 5037),
        "follows": (topics >= 0) & (topics < ASKED),
        "opposes": topics >= ASKED,
        "opposes, a tenth": topics >= TOPICS - 2,
        "the nearest are deleted": kept[0],
        "the first of the equal ones is deleted": kept[1],
        "only equal ones": topics < 0,
        "none": np.zeros(ROWS, np.bool_),
    }
    return {name: (mask, ann.search_exact(stored[0], asked[0], 40, mask)[0]) for name, mask in masks.items()}


@pytest.mark.parametrize("forced", [False, True], ids=["by what costs less", "by the index"])
@pytest.mark.parametrize("factory", EFFORTS)
def test_what_is_found_is_what_flat_finds(stored, asked, conditions, monkeypatch, factory, forced):
    if forced:
        monkeypatch.setattr(ann, "cost_of", lambda *_: 0)
    (vectors, _, made), (queries, every) = stored, asked
    (index, repeats), recipe, effort = made(factory), Recipe.parse(factory), EFFORTS[factory]

    for name, (allowed, exact) in conditions.items():
        there = ROWS if allowed is None else int(allowed.sum())
        for k in (10,) if forced else (1, 10, 40):
            if forced and there < 100:
                continue  # the index would find all of its rows, which takes long

            scores, rows = ann.search(index, recipe, effort, vectors, queries, k, allowed, repeats)

            width = min(k, there)
            assert (rows[:, width:] == -1).all(), name
            assert np.isneginf(scores[:, width:]).all(), name
            scores, rows = scores[:, :width], rows[:, :width]
            assert (rows >= 0).all(), (name, k)
            assert allowed is None or allowed[rows].all(), name
            np.testing.assert_allclose(scores, np.take_along_axis(every, rows, axis=1), atol=1e-6)
            falls = np.diff(scores, axis=1)
            assert ((falls < 0) | ((falls == 0) & (np.diff(rows, axis=1) > 0))).all(), name  # so each row once
            if width:
                assert (scores >= exact[:, width - 1 : width] - 1e-6).mean() >= TARGET, (name, k)
