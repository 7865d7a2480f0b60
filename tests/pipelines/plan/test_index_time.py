"""Index time: none where nothing is made, more for more rows, near what making takes; what fits as a build has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import RagidxError, SpecError
from ragidx.indexer.ann import index_types, tuning
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.index_types import IndexOptions, Recipe, candidates, footprint_of
from ragidx.indexer.writing.merging import shares
from ragidx.pipelines.plan.index_time import IndexTimer, fits, recipes, spread

DIM = 32
NAMED = ["hnsw", "ivf", "sq8", "ivfpq", "rabitq"]
FACTORIES = ["HNSW8", "SQ4", "RaBitQ4", "IVF64,SQ8", "RR,IVF64,RaBitQ4", "IVF16,PQ4"]


def _vectors(rows: int, dim: int = DIM, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, dim)) * np.arange(1, dim + 1) ** -0.5).astype(np.float32)


# what is made first


@pytest.mark.parametrize("name", index_types.INDEX_TYPES)
@pytest.mark.parametrize("rows", [9_999, 10_000, 60_000, 3_000_000])
def test_without_a_limit_the_first_candidate_is_made(name: str, rows: int) -> None:
    assert recipes(IndexOptions(name), [rows], 384) == candidates(name, rows, 384)[:1]


def test_auto_takes_the_first_that_fits_and_whole_vectors_where_all_must_be_found() -> None:
    every = candidates("auto", 100_000, 384)
    assert [str(one) for one in every] == ["HNSW16", "IVF1024,SQ8", "IVF1024,RaBitQ4", "RR,IVF1024,RaBitQ"]

    for one in every:
        memory = footprint_of(one, 100_000, 384).memory_bytes
        assert recipes(IndexOptions("auto", max_memory=memory), [100_000], 384) == [one]
    assert recipes(IndexOptions("auto", target_recall=1.0), [100_000], 384) == [None]


@pytest.mark.parametrize("name", ["auto", "flat", "hnsw", "IVF256,SQ8"])
def test_what_fits_nowhere_is_refused_in_the_words_of_the_build(name: str, tmp_path: Path) -> None:
    options = IndexOptions(name, max_memory=5_000)

    with pytest.raises(SpecError) as expected:
        tuning.choose(tmp_path / "vectors.faiss", 384, 20_000, options, 5_000, lambda *_: None)
    with pytest.raises(SpecError) as fault:
        recipes(options, [20_000], 384)

    assert str(fault.value) == str(expected.value)
    assert "more than --max-memory leaves" in str(fault.value)
    assert not fits(options, [20_000], 384)


def test_a_small_segment_is_compared_whole_whatever_memory_it_may_take() -> None:
    assert recipes(IndexOptions("hnsw", max_memory=1), [9_000], 384) == [None]


@given(
    parts=st.lists(st.integers(1, 10**7), min_size=1, max_size=5),
    memory=st.integers(1, 10**12),
    taken=st.integers(0, 10**9),
)
def test_segments_share_the_memory_by_their_rows(parts: list[int], memory: int, taken: int) -> None:
    found = [share for share in shares(parts, memory, taken) if share is not None]

    assert len(found) == len(parts)
    assert 0 <= sum(found) <= max(0, memory - taken)
    assert shares(parts, None, taken) == [None] * len(parts)


# vectors that stand for those of the index


def test_given_vectors_are_kept_and_others_lie_beside_them() -> None:
    given_vectors = _vectors(100)

    made = spread(given_vectors, 300, DIM)

    unit = given_vectors / np.linalg.norm(given_vectors, axis=1, keepdims=True)
    assert np.allclose(made[:100], unit, atol=1e-6)
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)
    assert (made[100:] @ unit.T).max(axis=1) == pytest.approx(0.9, abs=0.1)
    assert len(np.unique(made, axis=0)) > 290  # a pair that is drawn twice gives the same vector


@pytest.mark.parametrize("few", [None, np.zeros((500, 20), np.float32), np.full((500, 20), np.nan, np.float32)])
def test_where_there_are_none_they_are_made(few: np.ndarray | None) -> None:
    made = spread(few, 200, 24)

    assert made.shape == (200, 24)
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)


def test_narrow_vectors_are_filled_with_zeros() -> None:
    assert not spread(_vectors(100, 20), 150, 24)[:, 20:].any()


# seconds


def test_what_is_compared_whole_takes_no_time_and_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(ann, "make", refuse)
    monkeypatch.setattr("ragidx.pipelines.plan.index_time.spread", refuse)

    for name, rows in (("hnsw", 9_999), ("auto", 40_000), ("flat", 10**7)):
        (recipe,) = recipes(IndexOptions(name), [rows], 384)
        assert IndexTimer(384).seconds(recipe, rows) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMED, *FACTORIES])
def test_more_rows_take_longer_and_each_recipe_is_measured_once(name: str) -> None:
    timer = IndexTimer(DIM, _vectors(500))
    recipe = candidates(name, 50_000, DIM)[0]

    times = [timer.seconds(recipe, rows) for rows in (50_000, 100_000, 1_000_000)]
    again = timer.seconds(recipe, 50_000)

    assert 0 < times[0] < times[1] < times[2]
    assert again == times[0]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "dim"), [(Recipe(links=16), 5), (Recipe(lists=4, code="SQfp16"), 2048)])
def test_narrow_and_wide_vectors_are_timed(recipe: Recipe, dim: int) -> None:
    assert IndexTimer(dim).seconds(recipe, 20_000) > 0


@pytest.mark.slow
def test_a_temporary_folder_that_is_full_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RagidxError) as fault:
        IndexTimer(DIM).seconds(Recipe(links=16), 20_000)

    assert str(fault.value) == (
        "the temporary folder cannot be written: No space left on device\n"
        "  hint: set TMPDIR to a folder with room for it"
    )
