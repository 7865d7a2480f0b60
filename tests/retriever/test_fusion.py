"""Fusion of cosines and BM25: values by hand, and the same hits as plain numpy finds over all rows."""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ragidx.indexer.ann import index_types, tuning
from ragidx.indexer.store import Store
from ragidx.retriever.fusion import Scored

from .fusion_kit import WORDS, Corpus, Plain, any_corpus, cosines, hybrid, is_stored_as_here, lexical, named, unit

QUERY = unit([1, 0, 0])


def by_hand() -> Corpus:
    """Cosines with `QUERY` of 0.8, 0.6, 0 and 0.6; `b` and `d` have the word mill once, `d` beside another word."""
    vectors = np.array([[0.8, 0.6, 0], [0.6, 0.8, 0], [0, 0, 1], [0.6, 0, 0.8]])
    return Corpus(["a", "b", "c", "d"], vectors, ["lake", "mill", "lake", "mill river"])


def check(found: list[tuple[str, Scored]], expected: dict[str, float], k: int) -> None:
    """The k best of the expected scores; which of nearly equal ones does not matter."""
    best = sorted(expected.values(), reverse=True)[:k]
    assert [one.score for _, one in found] == pytest.approx(best, abs=2e-4)
    assert [one.score for _, one in found] == pytest.approx([expected[name] for name, _ in found], abs=2e-4)
    assert len({name for name, _ in found}) == len(found)


# by hand


def test_a_score_is_the_weighted_sum_of_two_z_scores(tmp_path: Path) -> None:
    store = by_hand().commit(tmp_path / "index")
    mean, deviation = 0.5, math.sqrt(0.09)  # of 0.8, 0.6, 0, 0.6
    idf = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    words = [0, idf / (1 + 1.2 * (0.25 + 0.75 * 1 / 1.25)), 0, idf / (1 + 1.2 * (0.25 + 0.75 * 2 / 1.25))]

    found = hybrid(store, QUERY, "the mill", weight=0.3)

    expected = {
        name: 0.3 * (cosine - mean) / deviation + 0.7 * (bm25 - np.mean(words)) / np.std(words)
        for name, cosine, bm25 in zip("abcd", (0.8, 0.6, 0, 0.6), words, strict=True)
    }
    assert [name for name, _ in found] == ["b", "d", "a", "c"]
    assert [one.score for _, one in found] == pytest.approx([expected[name] for name, _ in found], abs=2e-3)
    assert [one.dense for _, one in found] == pytest.approx([0.6, 0.6, 0.8, 0], abs=1e-3)
    assert [one.bm25 for _, one in found] == pytest.approx([words[1], words[3], 0, 0], rel=1e-5)


def test_rrf_adds_the_weighted_reciprocals_of_two_places(tmp_path: Path) -> None:
    store = by_hand().commit(tmp_path / "index")

    found = hybrid(store, QUERY, "mill", fusion="rrf", weight=0.25)

    # By cosine a, b and d equal, c; by BM25 b, d; a and c have no word of the question.
    expected = [0.25 / 62 + 0.75 / 61, 0.25 / 63 + 0.75 / 62, 0.25 / 61, 0.25 / 64]
    assert [name for name, _ in found] == ["b", "d", "a", "c"]
    assert [one.score for _, one in found] == pytest.approx(expected, rel=1e-6)
    assert [one.dense for _, one in found] == pytest.approx([0.6, 0.6, 0.8, 0], abs=1e-3)
    assert [(one.bm25 or 0) > 0 for _, one in found] == [True, True, False, False]


def test_rrf_gives_a_chunk_that_one_list_alone_has_its_real_other_score(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    near = np.c_[np.ones(150), 0.1 * chance.standard_normal((150, 2))]
    vectors = np.vstack([near, [[0.1, 1, 0]]])  # the last is the least by cosine, and has the only word
    corpus = Corpus([f"c{n:03}" for n in range(151)], vectors, ["lake"] * 150 + ["mill"])

    found = dict(hybrid(corpus.commit(tmp_path / "index"), QUERY, "mill", 5, fusion="rrf"))

    assert found["c150"].score == pytest.approx(0.5 / 61, rel=1e-6)
    assert found["c150"].dense == pytest.approx(cosines(vectors[-1:], QUERY)[0], abs=1e-6)


def test_lexical_search_finds_the_chunks_with_a_word_alone(tmp_path: Path) -> None:
    store = by_hand().commit(tmp_path / "index")

    found = lexical(store, "a mill")

    assert [name for name, _ in found] == ["b", "d"]
    assert all((one.score, one.dense) == (one.bm25, None) for _, one in found)
    assert lexical(store, "zebra") == []
    assert [name for name, _ in lexical(store, "lake mill", 1)] == ["a"]  # a, b and c are equal


# a part that knows nothing counts nothing


@pytest.mark.parametrize(("texts", "question"), [(None, "zebra"), (["mill"] * 4, "mill")], ids=["unknown", "in all"])
def test_words_that_no_chunk_or_each_one_has_alike_leave_the_order_of_cosines(
    texts: list[str] | None, question: str, tmp_path: Path
) -> None:
    corpus = by_hand()
    corpus.texts = texts or corpus.texts

    found = hybrid(corpus.commit(tmp_path / "index"), QUERY, question)

    assert [name for name, _ in found] == ["a", "b", "d", "c"]
    assert [one.score for _, one in found] == pytest.approx([0.5, 1 / 6, 1 / 6, -5 / 6], abs=2e-3)
    [words] = {one.bm25 for _, one in found}
    assert (words is None) == (texts is None)


def test_equal_cosines_leave_the_order_of_words(tmp_path: Path) -> None:
    corpus = by_hand()
    corpus.vectors = np.tile([0.6, 0.8, 0], (4, 1))
    store = corpus.commit(tmp_path / "index", [1, 3])

    found, unknown = hybrid(store, QUERY, "mill"), hybrid(store, QUERY, "zebra")

    assert [name for name, _ in found] == ["b", "d", "a", "c"]
    assert [one.score for _, one in found[2:]] == [found[3][1].score] * 2
    assert [(name, one.score) for name, one in unknown] == [("a", 0), ("b", 0), ("c", 0), ("d", 0)]


@pytest.mark.parametrize(("weight", "order"), [(1.0, ["a", "b", "d", "c"]), (0.0, ["b", "d", "a", "c"])])
def test_a_weight_of_one_or_nothing_leaves_one_part(weight: float, order: list[str], tmp_path: Path) -> None:
    found = hybrid(by_hand().commit(tmp_path / "index"), QUERY, "mill", weight=weight)

    assert [name for name, _ in found] == order


def test_an_empty_index_has_no_hit(tmp_path: Path) -> None:
    corpus = Corpus([], np.zeros((0, 3)), [])

    assert hybrid(corpus.commit(tmp_path / "index"), QUERY, "mill") == []


# against all rows


@pytest.mark.slow
@settings(max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    cuts=st.sets(st.integers(1, 59), max_size=4),
    dead=st.sets(st.integers(0, 59), max_size=20),
    allowed=st.none() | st.sets(st.integers(0, 59), max_size=40),
    words=st.lists(st.sampled_from([*WORDS, "zebra"]), min_size=1, max_size=4),
    weight=st.floats(0, 1),
    k=st.integers(1, 70),
    width=st.none() | st.integers(2, 7),
)
def test_the_best_of_all_rows_are_found(
    seed: int,
    cuts: set[int],
    dead: set[int],
    allowed: set[int] | None,
    words: list[str],
    weight: float,
    k: int,
    width: int | None,
) -> None:
    corpus = any_corpus(seed)
    assume(is_stored_as_here(corpus.vectors, width))
    corpus.dead = {corpus.ids[row] for row in dead}
    names = None if allowed is None else {corpus.ids[row] for row in allowed}
    query, question = unit(np.random.default_rng(seed + 1).standard_normal(8)), " ".join(words)
    with tempfile.TemporaryDirectory() as folder:
        store = corpus.commit(Path(folder) / "index", sorted(cuts))

        found = hybrid(store, query, question, k, allowed=names, weight=weight, dim=width)

    plain = Plain.of(corpus, query, question, width)
    expected = {name: score for name, score in plain.fused(weight).items() if names is None or name in names}
    check(found, expected, k)
    dense, bm25 = (dict(zip(plain.ids, part, strict=True)) for part in (plain.dense, plain.bm25))
    for name, one in found:
        assert one.dense == pytest.approx(dense[name], abs=1e-6)
        assert (one.bm25 is None) == (not plain.bm25.any())
        assert (one.bm25 or 0) == pytest.approx(bm25[name], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("weak", ["mill lake", "mill lake tower river bees"])
def test_a_word_lifts_a_chunk_however_far_its_vector_is(weak: str, tmp_path: Path) -> None:
    """A thousand chunks have the word; the BM25 of all is equal, or that of later ones is greater."""
    chance = np.random.default_rng(0)
    vectors = chance.standard_normal((3_000, 4))
    texts = [("lake tower" if n % 3 else "mill lake" if n > 1_500 else weak) for n in range(3_000)]
    corpus = Corpus([f"c{n:04}" for n in range(3_000)], vectors, texts)
    store, query = corpus.commit(tmp_path / "index", [500]), unit(chance.standard_normal(4))
    plain = Plain.of(corpus, query, "mill")

    for weight, k in itertools.product((0.05, 0.5, 0.9), (3, 60, 400)):
        check(hybrid(store, query, "mill", k, weight=weight), plain.fused(weight), k)


@pytest.mark.parametrize("k", [5, 40])
def test_the_best_at_a_width_are_compared_again_at_another(k: int, tmp_path: Path) -> None:
    corpus, query = any_corpus(3, 500), unit(np.random.default_rng(4).standard_normal(8))
    store = corpus.commit(tmp_path / "index", [200, 201])
    stored = unit(corpus.vectors).astype(np.float16)
    narrow, wide = Plain.of(corpus, query, "mill", 4), unit(stored[:, :6]).astype(np.float64) @ unit(query[:6])

    found = hybrid(store, query, "mill", k, dim=4, rerank_dim=6)

    before = narrow.fused()
    chosen = sorted(before, key=lambda name: -before[name])[: max(100, 4 * k)]
    after = narrow.fused(dense=wide)
    check(found, {name: after[name] for name in chosen}, k)
    exact = dict(zip(corpus.ids, wide.tolist(), strict=True))
    assert [one.dense for _, one in found] == pytest.approx([exact[name] for name, _ in found], abs=1e-6)


@pytest.mark.slow
@settings(max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    cuts=st.sets(st.integers(1, 59), max_size=6),
    dead=st.sets(st.integers(0, 59), max_size=30),
    kind=st.sampled_from(["z", "rrf"]),
    k=st.sampled_from([1, 7, 60]),
)
def test_the_history_of_an_index_changes_no_hit(seed: int, cuts: set[int], dead: set[int], kind: str, k: int) -> None:
    corpus = any_corpus(seed)
    corpus.vectors[10:20] = corpus.vectors[9]  # equal ones, in the order of their ids
    corpus.texts[10:15] = [corpus.texts[9]] * 5
    corpus.dead = {corpus.ids[row] for row in dead}
    query = unit(np.random.default_rng(seed + 1).standard_normal(8))
    with tempfile.TemporaryDirectory() as folder:
        before = corpus.commit(Path(folder) / "before", sorted(cuts))
        fresh = corpus.alive().commit(Path(folder) / "fresh")

        found = [
            [(name, one.score, one.dense, one.bm25) for name, one in hybrid(store, query, "mill lake", k, fusion=kind)]
            for store in (before, fresh)
        ]

    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [[100, 200], [1]])
@pytest.mark.parametrize(("question", "weight"), [("zebra", 0.5), ("mill", 0.5), ("mill", 0.0)])
def test_many_equal_scores_are_in_the_order_of_ids_in_any_number_of_segments(
    cuts: list[int], question: str, weight: float, tmp_path: Path
) -> None:
    chance = np.random.default_rng(0)
    ids = [f"c{number:03}" for number in chance.permutation(300)]
    vectors = chance.standard_normal((300, 3)) if weight == 0 else np.tile([0.6, 0.8, 0], (300, 1))
    corpus = Corpus(ids, vectors, ["mill"] + ["lake"] * 299)
    first = [ids[0]] if question == "mill" else []

    found = hybrid(corpus.commit(tmp_path / "index", cuts), QUERY, question, 6, weight=weight)

    assert [name for name, _ in found] == (first + sorted(set(ids) - set(first)))[:6]


# the mean and spread of many rows are kept, not computed


@pytest.mark.parametrize("dead", [0, 150, 260])
def test_moments_give_the_scores_of_a_scan(dead: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, query = any_corpus(5, 400), unit(np.random.default_rng(6).standard_normal(8))
    corpus.dead = set(corpus.ids[:dead])
    monkeypatch.setattr(index_types, "MIN_ROWS", 50)
    store = corpus.commit(tmp_path / "index", [300])
    assert [segment.moments is None for segment in store.segments] == [False, False]
    assert (store.dead is None) == (dead == 0)

    found = hybrid(store, query, "mill river", 12)
    narrow = hybrid(store, query, "mill river", 12, dim=3)

    check(found, Plain.of(corpus, query, "mill river").fused(), 12)
    check(narrow, Plain.of(corpus, query, "mill river", 3).fused(), 12)


@pytest.mark.slow
@pytest.mark.parametrize("index_type", ["hnsw", "ivf", "sq8"])
def test_an_approximate_index_gives_real_scores_and_as_many_hits(
    index_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (index_types, tuning):
        monkeypatch.setattr(module, "MIN_ROWS", 200)
    corpus, query = any_corpus(7, 1_000), unit(np.random.default_rng(8).standard_normal(8))
    store = corpus.commit(tmp_path / "index", index_type=index_type)
    assert not store.segments[0].is_exact()
    expected = Plain.of(corpus, query, "mill").fused()
    allowed = set(corpus.ids[:37])

    found = hybrid(store, query, "mill", 20)
    masked = hybrid(store, query, "mill", 50, allowed=allowed)

    assert len(found) == 20
    assert [one.score for _, one in found] == pytest.approx([expected[name] for name, _ in found], abs=1e-3)
    best = sorted(expected, key=lambda name: -expected[name])[:20]
    assert len(set(best) & {name for name, _ in found}) >= 18
    assert {name for name, _ in masked} == allowed


# more of one part never lowers a rank


@pytest.mark.slow
@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), weight=st.floats(0.05, 0.95), kind=st.sampled_from(["z", "rrf"]))
def test_who_is_better_in_both_parts_is_ranked_higher(seed: int, weight: float, kind: str) -> None:
    corpus, query = any_corpus(seed, 40), unit(np.random.default_rng(seed + 1).standard_normal(8))
    with tempfile.TemporaryDirectory() as folder:
        found = hybrid(corpus.commit(Path(folder) / "index"), query, "mill lake", 40, fusion=kind, weight=weight)

    assert len(found) == 40
    for (_, above), (_, below) in itertools.combinations(found, 2):
        assert above.bm25 is not None
        assert below.bm25 is not None
        words = below.bm25 > above.bm25 or (below.bm25 == above.bm25 and (kind == "z" or below.bm25 == 0))
        assert not (words and (below.dense or 0) > (above.dense or 0))


@pytest.mark.parametrize("kind", ["z", "rrf"])
@pytest.mark.parametrize("seed", range(3))
def test_a_condition_changes_no_score_of_z_fusion_and_no_order(kind: str, seed: int, tmp_path: Path) -> None:
    corpus, query = any_corpus(seed), unit(np.random.default_rng(seed + 9).standard_normal(8))
    store = corpus.commit(tmp_path / "index", [20])
    allowed = set(corpus.ids[::3])

    every = hybrid(store, query, "mill", 60, fusion=kind)
    some = hybrid(store, query, "mill", 60, fusion=kind, allowed=allowed)

    assert len(some) == 20
    if kind == "z":
        assert [(name, one.score) for name, one in some] == [
            (name, one.score) for name, one in every if name in allowed
        ]


def test_a_store_without_postings_is_ranked_by_cosines_alone(tmp_path: Path) -> None:
    store = Corpus(["a", "b"], np.eye(2, 3), ["", ""]).commit(tmp_path / "index")

    assert store.lexical is None
    assert [name for name, _ in hybrid(store, unit([1, 2, 0]), "mill")] == ["b", "a"]
    assert named(Store.open(tmp_path / "index"), []) == []
