"""Rows without a vector, which is zero: no search finds them, and all else answers as if they were not there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_reader import sign
from numpy.typing import NDArray

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.ann import index_types, moments
from ragidx.indexer.specs import requirements
from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import ZEROS
from ragidx.indexer.store.rows import Row
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import rewrite
from ragidx.indexer.writing.rewrite import NewForm, compact

from ...raising import message_of

N = 40
EVERY = {f"d{n:02}": [f"{'none' if n % 3 else 'some'} mill{n % 5}"] for n in range(N)}
SOME = {name: texts for name, texts in EVERY.items() if texts[0].startswith("some")}


@pytest.fixture
def zeros(kit: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kit, with which texts that begin with `none` have no vector."""
    of_all = kit.vectors

    def vectors(rows: Sequence[Row], dim: int = kit.dim) -> NDArray[np.float32]:
        found: NDArray[np.float32] = of_all(rows, dim)
        found[[row.text.startswith("none") for row in rows]] = 0
        return found

    monkeypatch.setattr(kit, "vectors", vectors)
    return kit


def answers(store: Store, queries: NDArray[np.float32], k: int, **options: Any) -> list[list[tuple[str, float]]]:
    top = store.search(queries, k, **options)
    ids = [[row.chunk_id for row in store.rows(rows)] for rows in top.rows]
    return [list(zip(names, scores.tolist(), strict=False)) for names, scores in zip(ids, top.scores, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(("index_type", "least"), [("flat", 10_000), ("hnsw", 2)])
def test_an_index_answers_as_one_without_such_rows(
    zeros: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index_type: str, least: int
) -> None:
    monkeypatch.setattr(index_types, "MIN_ROWS", least)
    monkeypatch.setattr(moments, "_ROWS_A_NUMBER", 1)
    zeros.build(tmp_path / "some", SOME, index_type=index_type)
    zeros.build(tmp_path / "every", {name: EVERY[name] for name in list(EVERY)[:9]}, index_type=index_type)
    zeros.build(tmp_path / "every", EVERY, index_type=index_type)
    gone = {name: texts for name, texts in EVERY.items() if int(name[1:]) > 5}
    zeros.build(tmp_path / "fewer", EVERY, index_type=index_type)
    zeros.build(tmp_path / "fewer", gone, index_type=index_type, compact=False)
    zeros.build(tmp_path / "left", {name: gone[name] for name in SOME if name in gone}, index_type=index_type)
    queries = zeros.queries(4)

    for one, other in (("every", "some"), ("fewer", "left")):
        made, plain = Store.open(tmp_path / one), Store.open(tmp_path / other)
        assert (made.n_zeros, plain.n_zeros) == (made.n_rows - plain.n_rows, 0)
        for k in (1, 5, N):
            assert answers(made, queries, k) == answers(plain, queries, k)
            for options in ({"dim": 4}, {"dim": 2, "rerank_dim": 8}):
                assert answers(made, queries, k, **options) == answers(plain, queries, k, **options)
        for dim in (None, 4):
            asked = queries if dim is None else queries[:, :dim]
            found, expected = (one.nearest_and_spread(asked, 1, None, dim)[2] for one in (made, plain))
            assert found.n == expected.n
            np.testing.assert_allclose(found.mean, expected.mean, atol=1e-6)
            np.testing.assert_allclose(found.deviation, expected.deviation, atol=1e-6)
        allowed = np.array(["mill2" in row.text for row in made.rows(range(made.n_rows))])
        few = np.array(["mill2" in row.text for row in plain.rows(range(plain.n_rows))])
        assert answers(made, queries, 7, allowed=allowed) == answers(plain, queries, 7, allowed=few)
        assert verify(made.path) == []


@pytest.mark.slow
def test_what_an_index_needs_says_so_and_copies_keep_count(zeros: Any, tmp_path: Path) -> None:
    index = tmp_path / "index"
    zeros.build(index, SOME)
    assert ZEROS not in Store.open(index).manifest.requires

    zeros.build(index, EVERY)
    zeros.build(index, {name: texts for name, texts in EVERY.items() if name > "d05"}, compact=False)
    before = Store.open(index)
    assert ZEROS in before.manifest.requires
    assert sum(entry.zeros for entry in before.manifest.segments) == before.n_zeros + 4  # of them dead
    assert zeros.build(index, EVERY)[1] == 0  # their vectors are known

    compact(index, everything=True)
    made = Store.open(index).manifest
    assert ([entry.zeros for entry in made.segments], verify(index)) == ([N - len(SOME)], [])
    rewrite.replace(index, lambda store: NewForm({}, store.manifest.fingerprint, 4, store.manifest.index, {}))
    narrow = Store.open(index)
    assert (narrow.n_zeros, narrow.manifest.dim, verify(index)) == (N - len(SOME), 4, [])
    assert requirements(narrow.manifest.spec) == ()


def test_a_count_that_is_wrong_is_found(zeros: Any, tmp_path: Path) -> None:
    index = tmp_path / "index"
    zeros.build(index, EVERY)
    data = json.loads((index / "manifest.json").read_bytes())
    segment = data["segments"][0]
    assert segment["zeros"] == N - len(SOME)

    segment["zeros"] = 3
    sign(index, data)
    wrong = "26 rows have no vector, and the manifest says 3"
    assert [line.split(": ")[2].split(";")[0] for line in verify(index)] == [wrong]
    del segment["zeros"]
    sign(index, data)
    assert "is not of unit length" in verify(index)[0]
    segment["zeros"] = N + 1
    sign(index, data)
    assert "41 of 40 rows cannot lack a vector" in message_of(IndexFormatError, lambda: Store.open(index))
