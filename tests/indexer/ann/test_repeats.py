"""Equal vectors: an index has each once, and a search gives every row that has it, as an exact search does."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann import tuning
from ragidx.indexer.ann.faiss_files import inner, vectors_header
from ragidx.indexer.ann.index_types import Effort, IndexOptions, Recipe
from ragidx.indexer.ann.repeats import Repeats, find_repeats
from ragidx.indexer.store.files import VECTORS

DIM = 32
EVERY = (
    *("PQ16x4fs", "RaBitQfs", "RR,PQ16x4fs", "IVF8,PQ16x4fs", "IVF8,RaBitQfs", "RR,IVF8,RaBitQfs"),
    *("HNSW16", "SQ8", "SQ6", "SQ4", "RaBitQ", "RaBitQ4", "RR,SQ8", "RR,RaBitQ"),
    *("IVF8,SQfp16", "IVF8,SQ8", "IVF8,SQ6", "IVF8,SQ4", "IVF8,PQ8", "IVF8,RaBitQ", "IVF8,RaBitQ4"),
    *("RR,IVF8,SQfp16", "RR,IVF8,SQ8", "RR,IVF8,PQ8", "RR,IVF8,RaBitQ", "RR,IVF8,RaBitQ4"),
)
QUICK = ("HNSW16", "SQ8", "IVF8,PQ8", "RR,IVF8,RaBitQ", "PQ16x4fs", "IVF8,PQ16x4fs")  # of each kind of file one
EACH = [*QUICK, *(pytest.param(factory, marks=pytest.mark.slow) for factory in EVERY if factory not in QUICK)]
ALL = Effort(beam=2000, lists=8, factor=1000)  # finds everything, where there are so few rows
FEW = 400


def with_groups(vectors: np.ndarray, sizes: list[int], seed: int) -> np.ndarray:
    """The vectors, some of which are repeated so many times, in any order."""
    again = np.repeat(vectors[: len(sizes)], sizes, axis=0)
    return np.random.default_rng(seed).permutation(np.concatenate([vectors, again]))


@pytest.fixture(scope="module")
def stored(ann_kit, tmp_path_factory):
    """Mapped vectors, 400 different ones and 350 that repeat five of them; the repeats; `made(factory)`, mapped."""
    folder = tmp_path_factory.mktemp("repeats")
    vectors = ann_kit.write(folder, with_groups(ann_kit.clustered(FEW), [200, 100, 40, 9, 1], 0))
    repeats = find_repeats(folder / VECTORS, DIM, vectors.ntotal)

    @functools.cache
    def made(factory: str):
        path = ann_kit.make(folder, factory, vectors, repeats).rename(folder / factory)
        return ann_kit.open(path, factory, vectors, Repeats.mapped(path, len(repeats), vectors.ntotal))

    return vectors, repeats, made


@given(groups=st.lists(st.integers(0, 9), min_size=1, max_size=40), seed=st.integers(0, 2**32 - 1))
def test_repeats_are_those_of_comparing_every_row_with_every_other(tmp_path_factory, groups, seed):
    rng = np.random.default_rng(seed)
    codes = rng.choice([-1, -0.0, 0.0, 1], (10, 8)).astype("<f2")[groups]  # in which 0 and -0 are equal
    path = tmp_path_factory.mktemp("found") / VECTORS
    path.write_bytes(vectors_header(8, len(codes)) + codes.tobytes())

    found = find_repeats(path, 8, len(codes))

    first_of = [next(n for n in range(row + 1) if (codes[n] == codes[row]).all()) for row in range(len(codes))]
    expected = sorted((first, row) for row, first in enumerate(first_of) if first != row)
    assert ([] if found is None else list(zip(found.firsts.tolist(), found.rows.tolist(), strict=True))) == expected
    assert found is None or found.hold()


def test_two_vectors_with_one_hash_are_both_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("ragidx.indexer.ann.repeats.hash", lambda _: 7, raising=False)
    codes = np.repeat(np.eye(8, dtype="<f2"), 3, axis=0)
    (tmp_path / VECTORS).write_bytes(vectors_header(8, len(codes)) + codes.tobytes())

    found = find_repeats(tmp_path / VECTORS, 8, len(codes))

    assert found.rows.tolist() == [1, 2]
    assert found.kept.sum() == 22


@pytest.mark.parametrize("factory", EACH)
def test_an_index_has_each_vector_once(stored, factory):
    _, repeats, made = stored
    index, recipe = made(factory), Recipe.parse(factory)

    if recipe.lists is not None:
        lists = inner(index).invlists
        assert sum(lists.list_size(number) for number in range(lists.nlist)) == FEW
    _, rows = ann._approximate(index, recipe, ALL, stored[0], np.ones((1, DIM), np.float32), FEW, FEW, None, repeats)
    assert sorted(rows[0]) == np.flatnonzero(repeats.kept).tolist()


@pytest.mark.parametrize("factory", EACH)
def test_what_is_found_is_what_an_exact_search_finds_whatever_is_allowed(stored, ann_kit, monkeypatch, factory):
    """Even where the row of the index is not allowed, and others that repeat it are."""
    monkeypatch.setattr(ann, "cost_of", lambda *_: 0)
    vectors, repeats, made = stored
    rng, n = np.random.default_rng(0), vectors.ntotal
    near = vectors.reconstruct_batch(repeats.firsts[::60].astype(np.int64))
    queries = np.concatenate([near, ann_kit.clustered(4, seed=4)])
    every = queries @ vectors.reconstruct_n(0, n).T
    first, some, one = np.ones(n, np.bool_), rng.random(n) < 0.3, np.zeros(n, np.bool_)
    first[np.unique(repeats.firsts)] = False
    one[repeats.rows[-1]] = True

    for allowed in (None, first, some, one, ~repeats.kept, repeats.kept):
        for k in (1, 10, 300, n):
            scores, rows = ann.search(made(factory), Recipe.parse(factory), ALL, vectors, queries, k, allowed, repeats)

            exact = ann.search_exact(vectors, queries, k, allowed)
            np.testing.assert_allclose(scores, exact[0], atol=1e-6)
            np.testing.assert_array_equal(rows < 0, exact[1] < 0)
            for query, found in enumerate(rows):
                shown = found[found >= 0]
                assert len(set(shown.tolist())) == len(shown)
                assert allowed is None or allowed[shown].all()
                np.testing.assert_allclose(scores[query, : len(shown)], every[query, shown], atol=1e-6)


@pytest.mark.parametrize("factory", EACH)
def test_rows_that_are_all_equal_are_all_found(tmp_path, ann_kit, monkeypatch, factory):
    monkeypatch.setattr("ragidx.indexer.ann.index_types.MIN_ROWS", 1)
    mapped = ann_kit.write(tmp_path, np.repeat(ann_kit.clustered(1), 500, axis=0))
    options = IndexOptions(factory, target_recall=0.5)

    index, repeats, made = tuning.choose(tmp_path / VECTORS, DIM, 500, options, None, lambda *_: None)
    _, rows = ann.search(index, made.recipe, made.effort, mapped, ann_kit.clustered(3), 20, None, repeats)

    assert made.repeats == len(repeats) == 499
    assert rows.tolist() == [list(range(20))] * 3


def test_every_other_question_to_a_graph_of_repeats_lies_where_the_rows_vary(tmp_path, ann_kit):
    """And none is made of a repeat: a group that is larger than the sample would be all that it asks for."""
    different = ann_kit.clustered(1000)
    ann_kit.write(tmp_path, np.concatenate([different, np.repeat(different[:1], 500, axis=0)]))
    (tmp_path / "once").mkdir()
    ann_kit.write(tmp_path / "once", different)
    repeats = find_repeats(tmp_path / VECTORS, DIM, 1500)
    plain, towards = (
        tuning.exact_answers(tmp_path / "once" / VECTORS, DIM, 1000, in_lists=in_lists).queries
        for in_lists in (False, True)
    )

    both = tuning.exact_answers(tmp_path / VECTORS, DIM, 1500, repeats=repeats).queries

    np.testing.assert_array_equal(both[1::2], plain[1::2])
    np.testing.assert_array_equal(both[::2], towards[::2])


@pytest.mark.parametrize(
    ("firsts", "rows"),
    [
        ([0, 0], [1, 8]),  # no row of the segment
        ([-1, 0], [1, 2]),
        ([3], [3]),  # of itself
        ([3], [2]),  # of a later one
        ([0, 1], [1, 2]),  # of a repeat
        ([0, 2], [5, 5]),  # of two
        ([2, 0], [3, 4]),  # out of order
        ([0, 0], [4, 3]),
    ],
)
def test_rows_that_cannot_repeat_others_do_not_hold(firsts, rows):
    assert not Repeats(np.array(firsts, "<i4"), np.array(rows, "<i4"), 8).hold()
    assert Repeats(np.array([0, 0, 2], "<i4"), np.array([1, 7, 3], "<i4"), 8).hold()


def test_a_group_that_no_link_leads_to_is_found(tmp_path, ann_kit):
    """Far from rows that are all alike: it is linked to them, and none of them to it, as others are nearer."""
    rng = np.random.default_rng(0)
    rows = np.eye(1, DIM) + 0.05 * rng.standard_normal((2000, DIM))
    far = np.repeat(-np.eye(1, DIM, 1) + 0.3 * np.eye(1, DIM), 500, axis=0)
    vectors = rng.permutation(np.concatenate([rows, far]))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    mapped = ann_kit.write(tmp_path, vectors)
    repeats = find_repeats(tmp_path / VECTORS, DIM, 2500)
    first = int(repeats.firsts[0])
    path = ann_kit.make(tmp_path, "HNSW16", mapped, repeats)
    graph = ann_kit.open(path, "HNSW16", mapped, repeats)

    scores, found = ann.search(
        graph, Recipe(links=16), Effort(beam=10), mapped, vectors[first : first + 1], 10, None, repeats
    )

    assert found[0].tolist() == [first, *repeats.rows[:9].tolist()]
    np.testing.assert_allclose(scores, 1, atol=1e-3)
