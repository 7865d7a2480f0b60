"""Commits of small builds: their segments are merged before there are many, and nobody can tell but by the files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from states import content_of, files_of, texts_of

from ragidx.indexer.store import Store
from ragidx.indexer.store.files import SEGMENTS
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import merging as assembly
from ragidx.indexer.writing.history import history, rollback
from ragidx.indexer.writing.merging import MAX_SMALL


def documents(count: int) -> dict[str, list[str]]:
    """Of two chunks each; one says the same as the one before it."""
    return {f"d{n:02}": [f"text {n}", f"shared {n // 2}"] for n in range(count)}


def segments_of(index: Path) -> list[tuple[str, int]]:
    return [(entry.id, entry.rows) for entry in Store.open(index).manifest.segments]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory, kit: Any) -> tuple[Path, list[int]]:
    """An index that forty builds have made, each of one document more, and how many segments each left."""
    index, counts = tmp_path_factory.mktemp("grown") / "index", []
    for number in range(1, 41):
        manifest, encoded = kit.build(index, documents(number))
        counts.append(len(manifest.segments))
        assert encoded == (2 if number % 2 else 1)
        assert manifest.n_chunks == 2 * number
    return index, counts


@pytest.mark.slow
def test_forty_small_builds_leave_few_segments_and_answer_as_one(
    grown: tuple[Path, list[int]], tmp_path: Path, kit: Any
) -> None:
    index, counts = grown
    kit.build(tmp_path / "at once", documents(40))

    assert counts[:18] == [*range(1, MAX_SMALL + 1), 1, 2]  # the seventeenth merges all of them
    assert max(counts) == MAX_SMALL
    assert content_of(index) == content_of(tmp_path / "at once")
    assert verify(index) == []


@pytest.mark.slow
def test_what_was_merged_is_known_to_the_next_build(grown: tuple[Path, list[int]], kit: Any) -> None:
    index, _ = grown
    before = files_of(index)

    manifest, encoded = kit.build(index, documents(40))

    assert (manifest.generation, encoded) == (40, 0)
    assert files_of(index) == before


@pytest.mark.slow
def test_only_folders_that_a_kept_generation_names_are_left(grown: tuple[Path, list[int]]) -> None:
    index, _ = grown
    kept = {entry.id for manifest in history(index) for entry in manifest.segments}

    assert {path.name for path in (index / SEGMENTS).iterdir()} == kept


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory: pytest.TempPathFactory, kit: Any) -> Path:
    """As many small segments as there may be."""
    index = tmp_path_factory.mktemp("sixteen") / "index"
    for number in range(1, MAX_SMALL + 1):
        kit.build(index, documents(number))
    return index


@pytest.fixture
def full(sixteen: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(sixteen, tmp_path / "index")


@pytest.mark.slow
def test_a_merging_commit_leaves_out_dead_rows_its_own_too(full: Path, kit: Any) -> None:
    changed = documents(MAX_SMALL) | {"d03": ["another"], "new": ["a new one"]}
    with kit.writer(full) as writer:  # added twice: the first of them is dead before it is committed
        kit.add(writer, kit.rows("new", ["forgotten"]))
        writer.delete_document("new")
        kit.add(writer, kit.rows("new", changed["new"]))
        writer.commit({}, MAX_SMALL + 1)
    assert segments_of(full) == [("00000017-0001", 2 * MAX_SMALL + 1)]  # the commit's own number 0 is in it

    kit.build(full, changed)

    assert texts_of(full) == sorted(text for texts in changed.values() for text in texts)
    assert kit.build(full, changed)[1] == 0


@pytest.mark.slow
def test_going_back_to_before_a_merging_commit(full: Path, kit: Any) -> None:
    before, many = content_of(full), segments_of(full)
    kit.build(full, documents(MAX_SMALL + 1))
    assert len(segments_of(full)) == 1

    rollback(full, MAX_SMALL)

    assert [manifest.generation for manifest in history(full)] == [18, 17, 16]
    assert (content_of(full), segments_of(full)) == (before, many)
    kit.build(full, documents(MAX_SMALL + 1))
    assert (len(segments_of(full)), content_of(full).chunks.keys() > before.chunks.keys()) == (1, True)


@pytest.mark.slow
def test_a_reader_from_before_a_merging_commit_goes_on(full: Path, kit: Any) -> None:
    reader, queries = Store.open(full), kit.queries(3)
    expected = reader.search(queries, 5)

    for number in range(MAX_SMALL + 1, MAX_SMALL + 5):
        kit.build(full, documents(number))

    assert not any(segment.folder.exists() for segment in reader.segments)
    found = reader.search(queries, 5)
    assert found.scores.tolist() == expected.scores.tolist()
    assert found.rows == expected.rows
    assert reader.search(queries, 5, dim=3).scores.shape == (3, 5)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "small_bytes"), [(10, 2 * 8 * 10), (20, assembly.SMALL_BYTES)])
def test_large_segments_and_those_larger_than_all_new_ones_are_left_as_they_are(
    rows: int, small_bytes: int, tmp_path: Path, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    monkeypatch.setattr(assembly, "SMALL_BYTES", small_bytes)
    large = {f"large {n}": [f"large text {n}"] for n in range(rows)}
    kit.build(index, large)
    content = {name: data for name, data in files_of(index).items() if name.startswith("segments/00000001-0000/")}

    for number in range(1, MAX_SMALL + 2):
        kit.build(index, large | {f"d{n}": [f"text {n}"] for n in range(number)})

    assert segments_of(index)[0] == ("00000001-0000", rows)
    assert sum(count for _, count in segments_of(index)) == rows + MAX_SMALL + 1
    assert len(segments_of(index)) < 4
    assert files_of(index).items() >= content.items()


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    states=st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("xyzw"), max_size=3), max_size=6),
        min_size=1,
        max_size=8,
    )
)
def test_however_often_is_merged_the_index_is_that_of_its_last_build(
    states: list[dict[str, list[str]]], kit: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("merged")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "MAX_SMALL", 2)
        for state in states:
            kit.build(folder / "index", state)
            assert len(segments_of(folder / "index")) <= 2
    kit.build(folder / "at once", states[-1])

    assert content_of(folder / "index") == content_of(folder / "at once")
    assert verify(folder / "index") == []
