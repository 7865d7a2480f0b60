"""Moments of narrower vectors: at the end of their file where there are many rows, and made again with it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_operations import small_indexes

from ragidx.corpora.errors import RagidxError
from ragidx.indexer import atomic
from ragidx.indexer.ann.faiss_files import HEADER_BYTES
from ragidx.indexer.ann.moments import Moments
from ragidx.indexer.ann.prefixes import Prefixes, is_whole, open_prefixes
from ragidx.indexer.arrays import Floats
from ragidx.indexer.store.files import VECTORS

ROWS, WIDTH = 300, 5
BYTES = HEADER_BYTES + 2 * 8 * ROWS


def opened(folder: Path, vectors: Any, width: int = WIDTH) -> Prefixes:
    return open_prefixes(folder, vectors, width, hashlib.sha256((folder / VECTORS).read_bytes()).hexdigest())


@pytest.fixture
def vectors(tmp_path: Path, ann_kit: Any) -> Any:
    return ann_kit.write(tmp_path, ann_kit.clustered(ROWS, 8))


def assert_of(made: Prefixes, queries: Floats) -> None:
    """The moments are those of the stored rows."""
    assert made.moments is not None
    scores = queries.astype(np.float64) @ made.index.reconstruct_n(0, ROWS)[:, :WIDTH].T.astype(np.float64)
    spread = made.moments.spread(queries)
    assert spread.n == ROWS
    np.testing.assert_allclose(spread.mean, scores.mean(axis=1), atol=1e-9)
    np.testing.assert_allclose(spread.deviation, scores.std(axis=1), rtol=1e-6)


def queries(ann_kit: Any) -> Floats:
    found: Floats = ann_kit.clustered(10, WIDTH, seed=1)
    return found


def test_many_rows_have_moments_at_the_end_of_the_file_and_few_rows_none(
    tmp_path: Path, ann_kit: Any, vectors: Any
) -> None:
    few = opened(tmp_path, vectors)
    assert few.moments is None
    assert [path.stat().st_size for path in tmp_path.glob("prefix-5-*")] == [BYTES]
    for path in tmp_path.glob("prefix-5-*"):
        path.unlink()

    with small_indexes():
        made = opened(tmp_path, vectors)
        again = opened(tmp_path, vectors)

    (path,) = tmp_path.glob("prefix-5-*")
    assert path.stat().st_size == BYTES + 8 * (5 + 15)
    for one in (made, again):
        assert_of(one, queries(ann_kit))
    np.testing.assert_array_equal(made.index.reconstruct_n(0, ROWS), few.index.reconstruct_n(0, ROWS))


@pytest.mark.parametrize("damage", ["flipped", "cut", "not finite"])
def test_damaged_moments_are_made_again(tmp_path: Path, ann_kit: Any, vectors: Any, damage: str) -> None:
    with small_indexes():
        opened(tmp_path, vectors)
        (path,) = tmp_path.glob("prefix-5-*")
        data = bytearray(path.read_bytes())
        if damage == "flipped":
            data[-1] ^= 1
        elif damage == "cut":
            del data[-8:]
        else:
            data[-8:] = np.float64(np.nan).tobytes()
        name = path.name[:-22] + hashlib.sha256(data).hexdigest()[:16] + ".faiss"  # a name that fits the damage
        path.unlink()
        (tmp_path / (path.name if damage == "flipped" else name)).write_bytes(data)

        made = opened(tmp_path, vectors)

    assert_of(made, queries(ann_kit))
    assert is_whole(path)


def test_where_nothing_can_be_written_the_moments_are_there_too(
    tmp_path: Path, ann_kit: Any, vectors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise RagidxError("cannot write: No space left on device")

    monkeypatch.setattr(atomic, "create", full)
    with small_indexes():
        made = opened(tmp_path, vectors)

    assert_of(made, queries(ann_kit))
    assert not list(tmp_path.glob("prefix-*"))


def test_the_bytes_come_back_as_they_were() -> None:
    mean, scatter = np.array([0.5, -0.25]), np.array([[2.0, 0.5], [9.0, 1.0]])  # below the diagonal it is not read

    data = Moments(3, mean, scatter).to_bytes()

    assert np.frombuffer(data, "<f8").tolist() == [0.5, -0.25, 2.0, 0.5, 1.0]
    back = Moments.from_bytes(data, 3, 2)
    assert (back.n, back.mean.tolist(), back.scatter.tolist()) == (3, [0.5, -0.25], [[2.0, 0.5], [0.0, 1.0]])
    with pytest.raises(ValueError, match="it does not hold the moments of 3 dimensions"):
        Moments.from_bytes(data, 3, 3)
