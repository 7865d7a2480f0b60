"""Dead rows change no answer, and cost a question nothing: a state answers as its compacted copy does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.ann import index_types, moments
from ragidx.indexer.ann import search as ann
from ragidx.indexer.lexical.postings import Postings
from ragidx.indexer.store import Store
from ragidx.indexer.store.live import LiveRows
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import merging
from ragidx.indexer.writing.rewrite import compact

from ...raising import message_of
from ..fault_reader import plant

N = 300
WORDS = ("mill", "river", "heron", "ash", "oak")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of few rows keep moments, as large ones do."""
    monkeypatch.setattr(index_types, "MIN_ROWS", 20)
    monkeypatch.setattr(moments, "_ROWS_A_NUMBER", 1)


def documents(n: int = N) -> dict[str, list[str]]:
    return {f"d{number}": [f"{WORDS[number % 5]} {number % 7} word{number}"] for number in range(n)}


def with_dead(kit: Any, index: Path, share: float, seed: int = 0, **options: Any) -> Store:
    """An index of which so many rows are dead, drawn at random."""
    kit.build(index, documents(), **options)
    gone = set(np.random.default_rng(seed).permutation(N)[: int(share * N)].tolist())
    left = {name: texts for number, (name, texts) in enumerate(documents().items()) if number not in gone}
    kit.build(index, left, compact=False, **options)
    return Store.open(index)


def compacted(store: Store, target: Path) -> Store:
    """The same rows, and no others."""
    shutil.copytree(store.path, target)
    compact(target, everything=True)
    other = Store.open(target)
    assert (other.dead, other.n_rows) == (None, store.n_rows)
    return other


def ids(store: Store) -> list[str]:
    return [row.chunk_id for row in store.rows(range(store.n_rows))]


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("share", [0.01, 0.14, 0.5, 0.82])
def test_a_state_with_dead_rows_answers_as_its_compacted_copy(share: float, tmp_path: Path, kit: Any) -> None:
    one = with_dead(kit, tmp_path / "index", share)
    other, queries = compacted(one, tmp_path / "compacted"), kit.queries(6)

    assert one.dead is not None
    assert [isinstance(view, LiveRows) for view in one.views] == [True]
    assert ids(one) == ids(other)
    assert np.array_equal(one.vectors(range(one.n_rows)), other.vectors(range(one.n_rows)))
    allowed = np.arange(one.n_rows) % 3 == 0
    for mask in (None, allowed, np.zeros(one.n_rows, np.bool_)):
        for dim in (None, 3):
            found, expected = (store.search(queries, 10, mask, dim=dim) for store in (one, other))
            assert found.rows == expected.rows
            assert np.array_equal(found.scores, expected.scores)
    for word in (*WORDS, "word1", "3", "word17", "nothing"):
        assert one.lexical is not None
        assert other.lexical is not None
        found, expected = one.lexical.scores(word), other.lexical.scores(word)
        assert (found is None and expected is None) or np.array_equal(found, expected)
    for dim in (None, 3):
        asked = queries if dim is None else kit.queries(6, 3)
        found, expected = (store.nearest_and_spread(asked, 1, None, dim)[2] for store in (one, other))
        assert found.n == expected.n
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-7)
        np.testing.assert_allclose(found.deviation, expected.deviation, rtol=1e-6)
    for store in (one, other):
        [table] = store.tables(["doc_id"])
        assert table.column(0).to_pylist() == [name.split(":")[0] for name in ids(store)]
    texts = ["".join(batch.column(0).to_pylist()) for _, batch in one.batches(["text"], allowed)]
    assert "".join(texts) == "".join(
        "".join(batch.column(0).to_pylist()) for _, batch in other.batches(["text"], allowed)
    )
    assert verify(tmp_path / "index") == []


def rows_read(store: Store, monkeypatch: pytest.MonkeyPatch, query: Any) -> dict[str, int]:
    """How many rows a question, asked once before, compares, decodes and finds in postings."""
    counts = dict.fromkeys(("compared", "vectors", "postings", "batches"), 0)
    exact, vectors, find, batch = ann.search_exact, Segment.vectors, Postings.find, Segment._batch

    def counting(name: str, real: Any, size: Any) -> Any:
        def counted(*arguments: Any, **more: Any) -> Any:
            counts[name] += size(*arguments)
            return real(*arguments, **more)

        return counted

    def ask() -> None:
        store.nearest_and_spread(query, 10)
        assert store.lexical is not None
        store.lexical.scores("mill")
        next(store.tables(["doc_id"]))

    ask()
    with monkeypatch.context() as patch:
        patch.setattr(ann, "search_exact", counting("compared", exact, lambda index, *_: index.ntotal))
        patch.setattr(Segment, "vectors", counting("vectors", vectors, lambda _, numbers: len(numbers)))
        patch.setattr(Postings, "find", counting("postings", find, lambda *_: 1))
        patch.setattr(Segment, "_batch", counting("batches", batch, lambda *_: 1))
        ask()
    return counts


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("share", [0.14, 0.5, 0.82])
def test_a_question_reads_no_dead_row(share: float, tmp_path: Path, kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = with_dead(kit, tmp_path / "index", share)
    other = compacted(store, tmp_path / "compacted")

    found = rows_read(store, monkeypatch, kit.queries(1))

    assert found == rows_read(other, monkeypatch, kit.queries(1))
    assert found["compared"] >= store.n_rows


@pytest.mark.usefixtures("small")
def test_few_dead_rows_are_skipped_where_they_lie(tmp_path: Path, kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = with_dead(kit, tmp_path / "index", 0.02)

    assert rows_read(store, monkeypatch, kit.queries(1))["compared"] == N


def test_what_was_made_for_a_state_stays_for_the_next_where_its_dead_rows_are_the_same(
    tmp_path: Path, kit: Any
) -> None:
    store = with_dead(kit, tmp_path / "index", 0.5)
    left = {row.doc_id: [row.text] for row in store.rows(range(store.n_rows))}
    kit.build(tmp_path / "index", {**left, "new": ["new"]}, compact=False)

    after = Store.open(tmp_path / "index", store)

    assert after.views[0] is store.views[0]
    assert isinstance(after.views[1], Segment)
    del left["d1" if "d1" in left else next(iter(left))]
    kit.build(tmp_path / "index", left, compact=False)
    again = Store.open(tmp_path / "index", after)
    assert again.views[0] is not after.views[0]
    assert ids(again) == ids(Store.open(tmp_path / "index"))


# moments at the commit


@pytest.mark.usefixtures("small")
def test_a_commit_takes_dead_rows_out_of_the_moments_when_they_are_many(tmp_path: Path, kit: Any) -> None:
    kit.build(tmp_path / "index", documents())
    few = dict(list(documents().items())[5:])
    kit.build(tmp_path / "index", few, compact=False)
    [segment] = Store.open(tmp_path / "index").segments
    assert (segment.entry.moments, len(segment.left_out)) == ("moments-00000001.bin", 0)

    kit.build(tmp_path / "index", dict(list(documents().items())[17:]), compact=False)

    store = Store.open(tmp_path / "index")
    [segment] = store.segments
    assert (segment.entry.moments, segment.left_out.tolist()) == ("moments-00000003.bin", list(range(17)))
    assert segment.moments is not None
    vectors = store.vectors(range(store.n_rows)).astype("f8")
    assert segment.moments.n == N - 17
    np.testing.assert_allclose(segment.moments.mean, vectors.mean(axis=0), atol=1e-12)
    spread = store.nearest_and_spread(kit.queries(4), 1)[2]
    np.testing.assert_allclose(spread.deviation, (vectors @ kit.queries(4).T).std(axis=0), atol=1e-6)
    assert verify(tmp_path / "index") == []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([5, 4], "it leaves out rows that are not there"),
        ([N], "it leaves out rows that are not there"),
        ([299], "it leaves out rows that are alive"),
    ],
)
def test_moments_that_leave_out_other_rows_are_damaged(rows: list[int], fault: str, tmp_path: Path, kit: Any) -> None:
    index = tmp_path / "index"
    kit.build(index, documents())
    kit.build(index, dict(list(documents().items())[30:]), compact=False)
    [segment] = Store.open(index).segments
    name = f"segments/{segment.entry.id}/{segment.entry.moments}"
    data = (index / name).read_bytes()[: moments.Moments.n_bytes(kit.dim)]
    plant(index, name, data + np.array(rows, "<i4").tobytes())

    message = message_of(IndexFormatError, lambda: Store.open(index).nearest_and_spread(kit.queries(1), 1))

    assert message.startswith(f"{index / name}: the file is damaged: {fault}")


# a commit that folds


def bytes_of(folder: Path) -> dict[int, int]:
    """The size of each file by its inode."""
    return {path.stat().st_ino: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def test_a_commit_drops_dead_rows_when_more_than_a_third_is_dead(tmp_path: Path, kit: Any) -> None:
    kit.build(tmp_path / "index", documents())

    kit.build(tmp_path / "index", dict(list(documents().items())[100:]))
    third = Store.open(tmp_path / "index").manifest
    kit.build(tmp_path / "index", dict(list(documents().items())[101:]))
    more = Store.open(tmp_path / "index").manifest

    assert (third.n_dead, third.n_chunks) == (100, 200)
    assert (more.n_dead, more.n_chunks, more.deletions) == (0, 199, None)


def test_a_commit_that_may_not_compact_leaves_dead_rows(tmp_path: Path, kit: Any) -> None:
    kit.build(tmp_path / "index", documents())
    kit.build(tmp_path / "index", dict(list(documents().items())[250:]), compact=False)

    assert Store.open(tmp_path / "index").manifest.n_dead == 250


def test_a_segment_that_is_larger_than_what_a_commit_may_copy_stays(
    tmp_path: Path, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "FOLDED_BYTES", 2 * kit.dim * 50)
    kit.build(tmp_path / "index", documents())
    for gone in (80, 101):
        kit.build(tmp_path / "index", dict(list(documents().items())[gone:]))
    assert Store.open(tmp_path / "index").manifest.n_dead == 101  # 199 live rows; 50, and four for each of 21

    kit.build(tmp_path / "index", dict(list(documents().items())[139:]))

    assert Store.open(tmp_path / "index").manifest.n_dead == 0  # 161 live rows; 50, and four for each of 38


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_commits_write_and_questions_read_within_bounds_after_any_changes(
    data: st.DataObject, tmp_path_factory: Any, kit: Any
) -> None:
    index, held = tmp_path_factory.mktemp("folds") / "index", dict[str, list[str]]()
    row = 1_500  # bytes of a row of this index at most, with its words and its part of a batch
    fixed = 30_000  # of a commit: manifests, and the heads of files
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "FOLDED_BYTES", 2 * kit.dim * 20)
        for number in range(data.draw(st.integers(2, 12))):
            before = dict(held)
            gone = data.draw(st.sets(st.sampled_from(sorted(held)))) if held else set()
            for name in gone:
                del held[name]
            held |= {f"{number}-{one}": [f"text {number} {one}"] for one in range(data.draw(st.integers(0, 40)))}
            changed = len(before.keys() ^ held.keys())
            files = bytes_of(index) if index.exists() else {}
            kit.build(index, held)
            written = sum(size for inode, size in bytes_of(index).items() if inode not in files)
            store = Store.open(index)
            assert written <= fixed + row * (20 + merging.FOLDED_ROWS * changed + changed)
            assert sorted(ids(store)) == sorted(f"{name}:0-1" for name in held)
            if (
                store.n_rows
            ):  # of a segment with at most a sixteenth dead, a question skips the dead rows where they lie
                assert rows_read(store, patch, kit.queries(1))["compared"] <= 2 * store.n_rows * 16 / 15
            heavy = [view for view in store.views if isinstance(view, LiveRows) and view.n_rows <= 20]
            assert all(view.dead.mean() <= merging.FOLDED_SHARE for view in heavy)  # what fits is folded at once
