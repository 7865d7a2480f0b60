"""Equal vectors in a store: whatever the index type, hits and their order are those of an exact search."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fault_reader import plant, sign

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.ann import index_types
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.index_types import Effort, IndexOptions
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import merging

from ...raising import message_of
from .hostile_kit import PUT_BACK, SEGMENT

TYPES = ("hnsw", "PQ8x4fs", "IVF4,PQ8x4fs", "sq8", "ivfpq", "rabitq", "RR,IVF4,RaBitQfs")
QUICK = [*TYPES[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in TYPES[2:])]
SAME = 90  # documents of one text, among as many others
DOCUMENTS = {f"d{n:03}": [f"t{n}" if n % 2 else "same", f"t{n} more"] for n in range(2 * SAME)}


@pytest.fixture
def everything(monkeypatch) -> None:
    """However few rows there are they get an index, which is asked, and finds all of them."""
    monkeypatch.setattr(index_types, "MIN_ROWS", 2)
    monkeypatch.setattr(ann, "cost_of", lambda *_: 0)
    monkeypatch.setattr(Effort, "at", lambda self, *_: Effort(beam=10_000, lists=1000, factor=1000))


def build(kit, path, documents=DOCUMENTS, index_type="hnsw"):
    kit.build(path, documents, index=IndexOptions(index_type, target_recall=0.01))
    return Store.open(path)


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("index_type", QUICK)
def test_hits_and_their_order_are_those_of_an_exact_search(tmp_path, kit, monkeypatch, index_type):
    """In one segment and several, with dead rows, after a merge, under conditions that some of the equal rows pass."""
    fewer = {name: texts for n, (name, texts) in enumerate(DOCUMENTS.items()) if n > 3 and n % 5}
    states = [DOCUMENTS, fewer, fewer | {f"e{n:03}": ["same"] for n in range(40)}]
    near = kit.vectors(kit.rows("any", ["same"]))
    queries = np.concatenate([near, -near, kit.queries(6)])

    counts = []

    for documents in [*states, DOCUMENTS | states[2]]:
        monkeypatch.setattr(merging, "MAX_SMALL", 1 if len(counts) == 3 else 16)
        made = build(kit, tmp_path / "ann", documents, index_type)
        flat = build(kit, tmp_path / "flat", documents, "flat")
        assert all(segment.entry.ann is not None for segment in made.segments)
        some = np.random.default_rng(0).random(flat.n_rows) < 0.4
        for allowed in (None, some):
            for k in (1, 7, 200):
                found, exact = made.search(queries, k, allowed), flat.search(queries, k, allowed)

                assert found.rows == exact.rows
                np.testing.assert_allclose(found.scores, exact.scores, atol=1e-6)
        counts.append([segment.entry.ann.repeats for segment in made.segments])
    assert counts == [[89], [89], [89, 39], [89, 58]]
    assert verify(tmp_path / "ann") == []


@pytest.mark.usefixtures("everything")
def test_the_manifest_says_how_many_rows_repeat_others_and_asks_for_a_reader_that_knows(tmp_path, kit):
    with_repeats, without = build(kit, tmp_path / "a"), build(kit, tmp_path / "b", {"d": ["x", "y", "z"]})

    assert (with_repeats.manifest.segments[0].ann.repeats, with_repeats.manifest.requires) == (
        SAME - 1,
        ("repeated vectors",),
    )
    assert without.manifest.requires == ()
    assert "repeats" not in json.loads((tmp_path / "b" / "manifest.json").read_bytes())["segments"][0]["ann"]


@pytest.mark.usefixtures("everything")
def test_another_recall_is_measured_with_the_rows_that_repeat_others(tmp_path, kit):
    build(kit, tmp_path)

    kit.build(tmp_path, DOCUMENTS, index=IndexOptions("hnsw", target_recall=0.9))

    made = Store.open(tmp_path).manifest.segments[0].ann
    assert (made.repeats, made.recall) == (SAME - 1, 1.0)


def forged(store, rows) -> bytes:
    """The file of an index with other repeats."""
    data = (store.path / SEGMENT / "ann.faiss").read_bytes()
    made = np.frombuffer(data[-8 * (SAME - 1) :], "<i4").reshape(2, -1).copy()
    rows(made)
    return data[: -made.nbytes] + made.tobytes()


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("index_type", ["hnsw", "IVF4,SQ8", "SQ8"])
def test_repeats_that_cannot_be_are_one_error_before_the_first_search(tmp_path, kit, index_type):
    store, path = build(kit, tmp_path, index_type=index_type), tmp_path / SEGMENT / "ann.faiss"
    plant(tmp_path, f"{SEGMENT}/ann.faiss", forged(store, lambda made: made[1].__setitem__(-1, 2**31 - 1)))

    said = message_of(IndexFormatError, lambda: Store.open(tmp_path).search(kit.queries(1), 3))

    reason = "the rows that it lists as repeats cannot be such"
    assert said == f"{path}: the file is damaged: {reason}\n{PUT_BACK}"


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize(
    ("index_type", "reason"),
    [
        ("hnsw", "it is not a graph over the vectors beside it"),
        ("IVF4,SQ8", "its lists do not hold each row once"),
        ("SQ8", None),  # a row's code is there, and is not looked at
    ],
)
def test_a_row_that_is_listed_as_a_repeat_and_is_none_is_found(tmp_path, kit, index_type, reason):
    """By the first search where the index has that row, and by `verify` where it has none of the two."""
    store, path = build(kit, tmp_path, index_type=index_type), tmp_path / SEGMENT / "ann.faiss"
    plant(tmp_path, f"{SEGMENT}/ann.faiss", forged(store, lambda made: made[1].__setitem__(-1, made[1, -1] + 3)))

    [line] = verify(tmp_path)

    reason = reason or "a row that it lists as a repeat has another vector"
    assert line.startswith(f"{path}: the file is damaged: {reason};")


@pytest.mark.usefixtures("everything")
def test_another_number_of_repeats_than_the_file_has_is_an_error_at_the_opening(tmp_path, kit):
    build(kit, tmp_path)
    data = json.loads((tmp_path / "manifest.json").read_bytes())
    for count in (0, SAME, 2 * SAME * 2):
        data["segments"][0]["ann"]["repeats"] = count
        sign(tmp_path, data)

        assert "damaged" in message_of(IndexFormatError, lambda: Store.open(tmp_path))
