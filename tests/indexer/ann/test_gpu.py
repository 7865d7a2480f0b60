"""Searching in the memory of a device: the answers of the CPU, whatever the device and however many there are.

torch's CPU stands for the devices where there is no GPU: the same code runs on it. What needs a GPU says so.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann import index_types
from ragidx.indexer.ann.gpu import DeviceVectors, gpus
from ragidx.indexer.store import Store

from ...raising import message_of

NO_GPU = "`device`: there is no cuda device on this machine\n  hint: use `device=auto` or `device=cpu`"
needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")


def codes(rows: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    raw = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float16)


@pytest.mark.slow
@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 4), st.integers(0, 3), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_the_best_rows_of_all_devices_are_those_of_numpy(rows, k, devices, queries, seed):
    stored, asked = codes(rows, seed=seed), codes(queries, seed=seed + 10).astype(np.float32)
    allowed = np.random.default_rng(seed).random(rows) < 0.6 if seed % 2 else None

    scores, found = DeviceVectors(stored, ["cpu"] * devices).search(asked, k, allowed)

    products = asked @ stored.astype(np.float32).T
    if allowed is not None:
        products[:, ~allowed] = -np.inf
    expected = -np.sort(-products, axis=1)[:, :k]
    assert scores.shape == found.shape == (queries, k)
    np.testing.assert_allclose(scores[:, :rows], expected, atol=1e-6)
    assert (scores[:, rows:] == -np.inf).all()
    assert ((found >= 0) == np.isfinite(scores)).all()
    chosen = np.take_along_axis(products, np.maximum(found, 0), axis=1)
    np.testing.assert_allclose(chosen[found >= 0], scores[found >= 0], atol=1e-6)


def test_blocks_are_merged(monkeypatch):
    stored, asked = codes(500), codes(3, seed=1).astype(np.float32)
    whole = DeviceVectors(stored, ["cpu"]).search(asked, 20, None)

    monkeypatch.setattr("ragidx.indexer.ann.gpu._BLOCK_BYTES", 1000)
    parts = DeviceVectors(stored, ["cpu"]).search(asked, 20, None)

    np.testing.assert_array_equal(whole[1], parts[1])


@pytest.mark.slow
def test_a_moved_segment_answers_as_before_also_under_deletions_and_conditions(tmp_path, kit):
    kit.build(tmp_path / "index", {f"d{n}": [f"t{n}"] for n in range(300)})
    kit.build(tmp_path / "index", {f"d{n}": [f"t{n}"] for n in range(20, 300)})
    here, there = Store.open(tmp_path / "index"), Store.open(tmp_path / "index")
    for segment in there.segments:
        segment.move(["cpu", "cpu"], np.inf)
    allowed = np.arange(here.n_rows) % 3 == 0

    for mask in (None, allowed):
        expected, found = here.search(kit.queries(5), 12, mask), there.search(kit.queries(5), 12, mask)
        assert found.rows == expected.rows
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("index_type", ["flat", "hnsw", "IVF4,SQ8"])
@pytest.mark.parametrize("dim", [16, 6])
def test_a_moved_index_of_any_type_is_answered_exactly(dim, index_type, tmp_path, kit, monkeypatch):
    """FAISS pads vectors of 6 dimensions to 8."""
    monkeypatch.setattr(index_types, "MIN_ROWS", 1)
    kit.build(tmp_path / "index", {f"d{n}": [f"t{n}"] for n in range(400)}, index_type=index_type, dim=dim)
    store = Store.open(tmp_path / "index")

    store.segments[0].move(["cpu"], np.inf)

    asked = kit.queries(4, dim=dim)
    expected = -np.sort(-(asked @ store.segments[0].vectors(range(400)).T), axis=1)[:, :10]
    np.testing.assert_allclose(store.search(asked, 10).scores, expected, atol=1e-6)


def test_only_cuda_names_gpus_and_only_those_that_are_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    assert gpus("cpu") == gpus("auto") == gpus("mps") == []
    assert gpus("cuda") == ["cuda:0", "cuda:1"]
    assert gpus("cuda:1") == ["cuda:1"]
    for missing in ("cuda:2", "cuda:01", "cuda:"):
        with pytest.raises(SpecError) as fault:
            gpus(missing)
        assert str(fault.value) == (
            f"`device`: there is no {missing} device on this machine\n"
            "  hint: known: cuda:0, cuda:1; or use `device=auto` or `device=cpu`"
        )


def test_a_segment_that_does_not_fit_stays_and_one_that_is_there_takes_no_room_again(tmp_path, kit):
    kit.build(tmp_path / "index", {"a": ["one", "two"]})
    (segment,) = Store.open(tmp_path / "index").segments  # two vectors of eight numbers

    assert [segment.move(["cpu"], room) for room in (31, 32, 0)] == [False, True, True]


def test_nothing_moves_where_no_gpu_is_asked_for(tmp_path, kit):
    kit.build(tmp_path / "index", {"a": ["a"]})

    assert [Store.open(tmp_path / "index").move(device) for device in ("cpu", "auto", "mps")] == [0, 0, 0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_store_does_not_move_to_a_gpu_that_is_not_there(tmp_path, kit, device):
    kit.build(tmp_path / "index", {"a": ["a"]})

    assert message_of(SpecError, lambda: Store.open(tmp_path / "index").move(device)) == NO_GPU


@needs_a_gpu
def test_on_a_gpu_the_answers_are_those_of_the_cpu(tmp_path, kit):
    kit.build(tmp_path / "index", {f"d{n}": [f"t{n}"] for n in range(2000)})
    here, there = Store.open(tmp_path / "index"), Store.open(tmp_path / "index")

    assert there.move("cuda") == len(there.segments)

    expected, found = here.search(kit.queries(64), 10), there.search(kit.queries(64), 10)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
