"""Narrower widths of stored vectors: what a build at that width would have stored, kept beside them if it can be."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np
import pytest
from fault_reader import flip
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import QueryError, RagidxError
from ragidx.indexer import atomic
from ragidx.indexer.ann import prefixes
from ragidx.indexer.ann.faiss_files import HEADER_BYTES, map_vectors
from ragidx.indexer.ann.prefixes import Prefixes, is_whole, open_prefixes, shortened
from ragidx.indexer.normalize import check_widths
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import VECTORS
from ragidx.indexer.store.verify import verify, verify_committed, verify_kept

from ...raising import message_of

SEGMENT = "segments/00000001-0000"
DOCUMENTS = {f"d{n:02d}": [f"t{n} {part}" for part in range(5)] for n in range(40)}


@pytest.fixture
def index(tmp_path, kit) -> Path:
    kit.build(tmp_path / "index", DOCUMENTS)
    return tmp_path / "index"


def cached(index: Path) -> list[Path]:
    return sorted(index.glob("segments/*/prefix-*"))


def opened(folder: Path, vectors, width: int):
    """The narrower copy of the vectors in the folder, bound to their checksum."""
    return opened_with_moments(folder, vectors, width).index


def opened_with_moments(folder: Path, vectors, width: int) -> Prefixes:
    return open_prefixes(folder, vectors, width, hashlib.sha256((folder / VECTORS).read_bytes()).hexdigest())


def narrow(vectors: np.ndarray, width: int) -> np.ndarray:
    """By numpy, in float64: the first dimensions, of unit length."""
    first = vectors[:, :width].astype("f8")
    return first / np.linalg.norm(first, axis=1, keepdims=True)


@pytest.mark.parametrize("width", [1, 5, 8])
def test_a_prefix_is_what_numpy_makes_of_the_stored_vectors(tmp_path, ann_kit, width):
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(300, 8))

    made = opened(tmp_path, vectors, width)

    expected = narrow(ann_kit.clustered(300, 8).astype("f2"), width)
    assert (made.d, made.ntotal) == (8, 300)  # zeros fill a vector up to a multiple of 8 dimensions
    stored = made.reconstruct_n(0, 300)
    assert not stored[:, width:].any()
    np.testing.assert_allclose(stored[:, :width], expected, atol=2**-11)
    np.testing.assert_array_equal(  # the same roundings, bit for bit
        stored[:, :width].astype("f2"), shortened(vectors.reconstruct_n(0, 300), width).astype("f2")
    )


def test_a_prefix_is_near_a_build_at_that_width(tmp_path, ann_kit):
    """Rounded to float16 twice, not once."""
    wide, queries = ann_kit.clustered(500, 64), narrow(ann_kit.clustered(50, 64, seed=1), 24).astype("f4")
    built = ann_kit.write(tmp_path, narrow(wide, 24).astype("f4"))
    other = tmp_path / "wide"
    other.mkdir()

    made = opened(other, ann_kit.write(other, wide), 24)

    scores = [queries @ one.reconstruct_n(0, 500).T for one in (made, built)]
    np.testing.assert_allclose(scores[0], scores[1], atol=2**-11)


@pytest.mark.slow
@given(rows=st.integers(1, 5), dim=st.integers(1, 12), width=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
def test_what_is_shortened_has_unit_length_and_zeros_stay_zero(rows, dim, width, seed):
    vectors = np.random.default_rng(seed).standard_normal((rows, max(dim, width))).astype("f4")
    vectors[0, :width] = 0

    short = shortened(vectors, width)

    assert short.shape == (rows, width)
    assert short.dtype == np.float32
    assert not short[0].any()
    np.testing.assert_allclose(np.linalg.norm(short[1:], axis=1), 1, atol=1e-6)


def test_the_copy_is_a_file_of_faiss_named_by_its_checksum_and_used_again(tmp_path, ann_kit):
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(300))
    opened(tmp_path, vectors, 7)
    (path,) = tmp_path.glob("prefix-7-*.faiss")
    before = path.stat().st_mtime_ns, path.stat().st_ino

    again = opened(tmp_path, vectors, 7)

    assert is_whole(path)
    assert path.stat().st_size == HEADER_BYTES + 2 * 8 * 300
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert [one.name for one in tmp_path.iterdir() if one.name != VECTORS] == [path.name]
    np.testing.assert_array_equal(faiss.read_index(str(path)).reconstruct_n(0, 300), again.reconstruct_n(0, 300))


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "link", "other width"])
def test_a_damaged_copy_is_made_again(tmp_path, ann_kit, damage):
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(300))
    expected = opened(tmp_path, vectors, 7).reconstruct_n(0, 300)
    (path,) = tmp_path.glob("prefix-7-*.faiss")
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "flipped":
        data[-3] ^= 1
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-4])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "link":
        (tmp_path / "away").write_bytes(data)
        path.symlink_to(tmp_path / "away")
    else:
        opened(tmp_path, vectors, 9)
        (other,) = tmp_path.glob("prefix-9-*.faiss")
        other.rename(tmp_path / other.name.replace("prefix-9", "prefix-7"))  # its checksum fits, its shape does not

    made = opened(tmp_path, vectors, 7)

    np.testing.assert_array_equal(made.reconstruct_n(0, 300), expected)
    assert any(is_whole(one) for one in tmp_path.glob("prefix-7-*.faiss"))


@pytest.mark.parametrize("failing", ["create", "replace"])
def test_a_full_disk_leaves_nothing_behind_and_the_same_answers(index, kit, monkeypatch, failing):
    queries = kit.queries(5)
    expected = Store.open(index).search(queries, 7, dim=3)
    for path in cached(index):
        path.unlink()

    def full(*_: object) -> None:
        raise RagidxError(f"cannot write: {os.strerror(errno.ENOSPC)}")

    monkeypatch.setattr(atomic, failing, full)
    found = Store.open(index).search(queries, 7, dim=3)

    np.testing.assert_array_equal(found.scores, expected.scores)
    assert found.rows == expected.rows
    assert not [path for path in cached(index) if not path.name.endswith(atomic.TEMPORARY)]


@pytest.fixture
def writable(index, kit):
    """Questions, and what the same index answers where it can be written."""
    queries = kit.queries(5)
    return queries, Store.open(index).search(queries, 7, dim=3)


def test_a_folder_that_is_read_only_gives_the_same_answers(writable, closed):
    queries, expected = writable
    index = closed(DOCUMENTS)

    found = Store.open(index).search(queries, 7, dim=3)

    assert cached(index) == []
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_two_threads_that_make_the_same_copy_at_once_both_have_it(tmp_path, ann_kit):
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(20_000, 16))
    expected = shortened(vectors.reconstruct_n(0, 20_000), 5).astype("f2")
    start = threading.Barrier(4)

    def work(_: int) -> np.ndarray:
        start.wait()
        return opened(tmp_path, vectors, 5).reconstruct_n(0, 20_000)[:, :5]

    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(work, range(4)))

    for one in made:
        np.testing.assert_array_equal(one.astype("f2"), expected)
    assert len(list(tmp_path.glob("prefix-5-*.faiss"))) == 1
    assert not list(tmp_path.glob(f".*{atomic.TEMPORARY}"))


@pytest.mark.slow
def test_copies_go_with_their_segment_and_what_is_half_written_before(index, kit):
    Store.open(index).search(kit.queries(1), 3, dim=4)
    half = index / SEGMENT / f".prefix-3.1-00000000{atomic.TEMPORARY}"
    half.write_bytes(b"half")

    kit.build(index, {"new": ["one"]})
    assert len(cached(index)) == 1  # of a kept generation
    assert not half.exists()
    for number in range(3):
        kit.build(index, {"new": [f"{number}"]})

    assert not (index / SEGMENT).exists()
    assert cached(index) == []


def test_a_copy_is_made_of_an_open_index_whose_files_are_gone(index, kit):
    expected = Store.open(index).search(kit.queries(3), 5, dim=4)
    store = Store.open(index)
    shutil.rmtree(index)

    found = store.search(kit.queries(3), 5, dim=4)

    np.testing.assert_array_equal(found.scores, expected.scores)


def test_verify_names_a_damaged_copy_as_one_that_can_be_made_again(index, kit):
    Store.open(index).search(kit.queries(1), 3, dim=4)
    assert verify(index) == []
    (path,) = cached(index)
    flip(path, -1)

    told = [
        f"{path}: the file is damaged: its checksum differs from the one in its name; it can be made again: delete it"
    ]
    assert verify(index) == verify_kept(index) == told
    assert verify_committed(index) == []
    assert Store.open(index).search(kit.queries(1), 3, dim=4).scores.shape == (1, 3)


def test_a_search_at_a_prefix_equals_numpy_over_the_live_and_allowed_rows(index, kit):
    kit.build(index, {name: texts for name, texts in DOCUMENTS.items() if name not in ("d00", "d07")})
    store, queries = Store.open(index), kit.queries(10)
    vectors = store.segments[0].vectors(store.stored)
    allowed = np.arange(store.n_rows) % 3 != 0
    for live in (np.ones(store.n_rows, np.bool_), allowed):
        found = store.search(queries, 10, live, dim=3)

        scores = narrow(queries, 3) @ narrow(vectors, 3).T
        scores[:, ~live] = -2
        np.testing.assert_allclose(found.scores, -np.sort(-scores, axis=1)[:, :10], atol=1e-3)
        assert all(live[row] for rows in found.rows for row in rows)
        assert {len(places) for places in found.rows} == {10}


def test_the_whole_width_as_a_prefix_is_the_search_without_one(index, kit):
    store, queries = Store.open(index), kit.queries(10)

    found, plain = store.search(queries, 6, dim=kit.dim), store.search(queries, 6)

    assert found.rows == plain.rows
    np.testing.assert_allclose(found.scores, plain.scores, atol=1e-6)
    assert cached(index) == []


@pytest.mark.slow
@pytest.mark.parametrize("share", [1, 2, 10])
def test_reranking_at_full_width_gives_the_order_of_the_full_search_among_the_candidates(index, kit, share):
    store, queries = Store.open(index), kit.queries(10)
    allowed = np.arange(200) % share == 0
    wide = 100

    found = store.search(queries, 5, allowed, dim=2, rerank_dim=kit.dim)

    candidates = store.search(queries, wide, allowed, dim=2).rows
    full = store.search(queries, 200, allowed)
    for row in range(10):
        ranked = [place for place in full.rows[row] if place in set(candidates[row])]
        assert found.rows[row] == ranked[:5]
        scores = dict(zip(full.rows[row], full.scores[row], strict=False))
        expected = [scores[place] for place in found.rows[row]]
        np.testing.assert_allclose(found.scores[row, : len(expected)], expected, atol=1e-3)


def test_reranking_at_a_width_between_is_by_that_width(index, kit):
    store, queries = Store.open(index), kit.queries(10)
    vectors = store.segments[0].vectors(np.arange(200))

    found = store.search(queries, 200, dim=2, rerank_dim=5)

    scores = narrow(queries, 5) @ narrow(vectors, 5).T
    np.testing.assert_allclose(found.scores, -np.sort(-scores, axis=1), atol=1e-3)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(dim=st.integers(1, 8), k=st.integers(1, 250), seed=st.integers(0, 99))
def test_at_every_width_there_are_k_hits_and_their_scores_fall(kit, dim, k, seed):
    with tempfile.TemporaryDirectory() as folder:
        kit.build(Path(folder) / "index", {"a": [f"t{n}" for n in range(30)]})
        found = Store.open(Path(folder) / "index").search(kit.queries(2, seed=seed), k, dim=dim)

        assert [len(places) for places in found.rows] == [min(k, 30)] * 2
        assert (np.diff(found.scores, axis=1) <= 0).all()


@pytest.mark.parametrize(
    ("dim", "rerank_dim", "message"),
    [
        (0, None, "`dim`: dim 0 is not from 1 to 8, the dimensions stored in the index"),
        (-3, 4, "`dim`: dim -3 is not from 1 to 8, the dimensions stored in the index"),
        (2, 1024, "`rerank_dim`: rerank dim 1,024 is not from 1 to 8, the dimensions stored in the index"),
    ],
)
def test_a_width_that_is_not_stored_is_refused_by_its_field(dim, rerank_dim, message):
    hint = "give at most 8; for more, build again with a larger `dim` and `rebuild=True`"
    assert message_of(QueryError, lambda: check_widths(8, dim, rerank_dim)) == f"{message}\n  hint: {hint}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"dim": 4, "rerank_dim": 4},
            "`rerank_dim`: rerank dim 4 adds nothing to the 4 dimensions that are searched\n"
            "  hint: give more than 4, or remove it",
        ),
        (
            {"rerank_dim": 4},
            "`rerank_dim`: this compares again what `dim` has found\n  hint: give `dim`, too",
        ),
    ],
)
def test_widths_that_do_not_go_together_are_refused(index, kit, options, message):
    assert message_of(QueryError, lambda: Store.open(index).search(kit.queries(1), 3, **options)) == message
    assert cached(index) == []


def test_a_query_of_the_narrow_width_is_refused_because_stored_ones_are_wide(index, kit):
    with pytest.raises(QueryError, match="the query's vector has 4 dimensions, those of the index have 8"):
        Store.open(index).search(kit.queries(1, dim=4), 3, dim=4)


def test_blocks_of_rows_join_without_a_seam(tmp_path, ann_kit, monkeypatch):
    monkeypatch.setattr(prefixes, "_BLOCK_ROWS", 7)
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(50))

    made = opened(tmp_path, vectors, 6)

    np.testing.assert_array_equal(
        made.reconstruct_n(0, 50)[:, :6].astype("f2"), shortened(vectors.reconstruct_n(0, 50), 6).astype("f2")
    )
    (path,) = tmp_path.glob("prefix-6-*.faiss")
    assert map_vectors(path, 8, 50).ntotal == 50
