"""Anisotropy: the mean cosine of all pairs, by hand and as the pairs give it; the same in batches, before and after."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.indexer.arrays import Floats
from ragidx.indexer.encoders import Embedder
from ragidx.indexer.filters.anisotropy import Anisotropy, MeanCosines, mean_cosine, unit_sum
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.normalize import l2_normalize

from ...conftest import SENTENCES


def _of_pairs(vectors: Floats) -> float:
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return float(np.mean([a @ b for a, b in combinations(units.astype("f8"), 2)]))


def test_it_is_one_for_one_direction_and_less_the_wider_the_cone() -> None:
    same, opposite = np.array([[1.0, 2.0], [2.0, 4.0], [0.5, 1.0]]), np.array([[3.0, 0.0], [-1.0, 0.0]])
    right_angles = np.eye(4, dtype=np.float32) * 7

    assert mean_cosine(unit_sum(same), 3) == pytest.approx(1, abs=1e-6)
    assert mean_cosine(unit_sum(opposite), 2) == -1
    assert mean_cosine(unit_sum(right_angles), 4) == 0


def test_it_is_the_mean_over_the_pairs_and_random_pairs_estimate_it() -> None:
    drawn = np.random.default_rng(0)
    vectors = (drawn.standard_normal((300, 16)) + 1).astype(np.float32)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = drawn.integers(0, 300, (10_000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]

    found = mean_cosine(unit_sum(vectors), 300)

    assert found == pytest.approx(_of_pairs(vectors), abs=1e-6)
    assert found == pytest.approx(float((units[pairs[:, 0]] * units[pairs[:, 1]]).sum(axis=1).mean()), abs=0.01)


def test_batches_count_as_one_and_vectors_that_are_zero_do_not_count() -> None:
    raw = (np.random.default_rng(1).standard_normal((9, 6)) + 2).astype(np.float32)
    raw[4] = 0
    kept = l2_normalize(raw[:, 2:]).vectors
    seen = Anisotropy()

    assert seen.means() is None
    for rows in (slice(0, 1), slice(1, 5), slice(5, 9)):
        seen.add(kept[rows], unit_sum(raw[rows]))

    others = [0, 1, 2, 3, 5, 6, 7, 8]
    found = seen.means()
    assert found is not None
    assert found.n_vectors == 8
    assert found.before == pytest.approx(_of_pairs(raw[others]), abs=1e-6)
    assert found.after == pytest.approx(_of_pairs(raw[others, 2:]), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mini-decoder", "llama"])
def test_an_embedder_sums_up_what_it_makes_of_documents(tiny_model: Callable[..., Path], model: str) -> None:
    name = str(tiny_model("llama")) if model == "llama" else model
    encoder = ragidx.load_encoder(name, method="classical", device="cpu")
    raw, kept = encoder.encode_document(SENTENCES), Filter(np.eye(encoder.hidden, dtype=np.float32)[:, 3:])
    embedder, unfiltered = Embedder(encoder, kept), Embedder(encoder)

    for texts in (SENTENCES[:2], SENTENCES[2:]):
        embedder.embed_document(texts)
        unfiltered.embed_document(texts)
    embedder.embed_query(SENTENCES)

    found, same = embedder.anisotropy.means(), unfiltered.anisotropy.means()
    assert found is not None
    assert same is not None
    assert (found.n_vectors, same) == (len(SENTENCES), MeanCosines(same.before, same.before, len(SENTENCES)))
    assert found.before == pytest.approx(_of_pairs(raw), abs=1e-5)
    assert same.before == pytest.approx(_of_pairs(raw), abs=1e-5)
    assert found.after == pytest.approx(_of_pairs(raw[:, 3:]), abs=1e-5)


@pytest.mark.slow
def test_a_build_tells_it_of_what_it_encodes_and_a_fitted_filter_too(tmp_path: Path) -> None:
    for number, text in enumerate(SENTENCES):
        (tmp_path / f"{number}.txt").write_text(text)
    vectors = ragidx.load_embedder("mini-decoder", filter="none").embed_document(SENTENCES)

    filtered = ragidx.build(tmp_path, tmp_path / "one", model="mini-decoder").report
    again = ragidx.build(tmp_path, tmp_path / "one").report
    fitted = ragidx.build(
        tmp_path, tmp_path / "two", model="mini-decoder", filter=ragidx.FilterSpec("pca", dim=2)
    ).report

    assert filtered.mean_cosines is not None
    assert filtered.mean_cosines.before == pytest.approx(_of_pairs(vectors), abs=1e-5)
    assert filtered.mean_cosines.after < 0.5 < 0.9 < filtered.mean_cosines.before
    assert again.mean_cosines is None
    assert "mean_cosines" not in again.to_json()
    assert fitted.mean_cosines is not None
    assert (fitted.mean_cosines.before, fitted.mean_cosines.n_vectors) == (
        pytest.approx(filtered.mean_cosines.before, abs=1e-5),
        len(SENTENCES),
    )
