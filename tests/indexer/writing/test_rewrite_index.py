"""Compaction: the same answers before and after, and the way back, in little memory."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_reader import flip
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from states import content_of, files_of, texts_of

from ragidx.corpora.errors import BusyError, IndexFormatError
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import deletions_path
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import segment_writer
from ragidx.indexer.writing.history import ROLLED_BACK, history, rollback
from ragidx.indexer.writing.rewrite import compact

STATES: list[dict[str, list[str]]] = [
    {"ant": ["an ant", "two ants"], "bee": ["a bee"], "cow": ["a cow", "two cows", "three cows"]},
    {"ant": ["an ant", "two ants"], "bee": ["a bee"], "cow": ["a cow", "no cow"]},
    {"ant": ["an ant", "two ants"], "bee": ["one bee", "a hive"], "cow": ["a cow", "no cow"], "elk": ["an elk"]},
]


@pytest.fixture
def index(tmp_path: Path, kit: Any) -> Path:
    for state in STATES:
        kit.build(tmp_path / "index", state, compact=False)
    return tmp_path / "index"


# what becomes of an index


@pytest.mark.slow
def test_segments_become_one_without_dead_rows_and_every_answer_is_as_before(index: Path) -> None:
    before, old = content_of(index), Store.open(index)
    assert (np.count_nonzero(old.dead), np.flatnonzero(old.dead).max() < old.stored_starts[1]) == (4, True)

    done = compact(index)

    store = Store.open(index)
    assert content_of(index) == before
    assert (done.committed, done.n_segments, done.n_dropped) == (True, 3, 4)
    assert [entry.id for entry in done.manifest.segments] == ["00000004-0000"]
    assert [entry.rows for entry in done.manifest.segments] == [done.manifest.n_chunks] == [7]
    assert done.manifest.deletions is None
    assert not (index / deletions_path(4)).exists()
    assert store.manifest == done.manifest
    assert verify(store.path) == []


@pytest.mark.slow
def test_what_a_manifest_says_besides_its_segments_stays(index: Path, kit: Any) -> None:
    with kit.writer(index, blobs={"filter.bin": b"the matrix"}) as writer:
        kit.add(writer, kit.rows("fox", ["a fox"], year=1900))
        base = writer.commit({"seconds": 1.5}, 9)

    made = compact(index).manifest

    for name in ("spec", "fingerprint", "dim", "index", "schema", "files", "n_chunks", "n_documents", "notes"):
        assert getattr(made, name) == getattr(base, name), name
    assert made.generation == base.generation + 1
    assert Store.open(index).blob("filter.bin") == b"the matrix"


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    history=st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from(["x", "y", "z", "w"]), max_size=4)),
        min_size=1,
        max_size=5,
    ),
    everything=st.booleans(),
)
def test_whatever_was_built_before_it_is_all_there_and_known(
    history: list[dict[str, list[str]]], everything: bool, kit: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    index = tmp_path_factory.mktemp("any") / "index"
    for documents in history:
        kit.build(index, documents)
    before = content_of(index)

    done = compact(index, everything=everything)

    assert content_of(index) == before
    assert len(done.manifest.segments) <= 1
    assert not compact(index, everything=everything).committed
    manifest, encoded = kit.build(index, history[-1])
    assert (encoded, manifest.generation) == (0, done.manifest.generation)
    assert verify(index) == []


def test_an_index_whose_rows_are_all_dead_has_no_segment_left(tmp_path: Path, kit: Any) -> None:
    index = tmp_path / "index"
    kit.build(index, STATES[0])
    kit.build(index, {})

    done = compact(index, everything=True)

    assert (done.committed, done.manifest.segments, done.manifest.n_chunks) == (False, (), 0)


def test_documents_in_several_runs_stay_known(tmp_path: Path, kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    index = tmp_path / "index"
    documents = {"long": ["one", "two", "three"], "short": ["four"]}
    with monkeypatch.context() as patch, kit.writer(index) as writer:
        patch.setattr(segment_writer, "MAX_VECTOR_BYTES", 2 * kit.dim)
        for row in kit.rows("long", documents["long"]):
            writer.add([row], kit.vectors([row]))
        kit.add(writer, kit.rows("short", documents["short"]))
        assert len(writer.commit({}, 2).segments) == 4

    done = compact(index)

    before = files_of(index)
    manifest, encoded = kit.build(index, documents)
    assert (len(done.manifest.segments), encoded, manifest.generation) == (1, 0, 2)
    assert files_of(index) == before
    with kit.writer(index) as writer:  # all runs of the document go, and nothing else
        assert writer.delete_document("long")
        assert writer.commit({}, 1).n_chunks == 1


# before and after


@pytest.mark.slow
def test_a_reader_goes_on_when_its_files_are_gone(index: Path, kit: Any) -> None:
    copy = shutil.copytree(index, index.parent / "copy")
    reader, queries = Store.open(index), kit.queries(4)
    expected = [Store.open(copy).search(queries, 5, dim=dim) for dim in (None, 4)]

    compact(index)
    for number in range(3):
        kit.build(index, {"new": [f"text {number}"]})

    names = [segment.folder for segment in reader.segments]
    assert not any(folder.exists() for folder in names)
    for dim, (scores, places) in zip((None, 4), expected, strict=True):
        found = reader.search(queries, 5, dim=dim)
        np.testing.assert_array_equal(found.scores, scores)
        assert found.rows == places
    assert [row.text for row in reader.rows(places[0])] == [row.text for row in Store.open(copy).rows(places[0])]


@pytest.mark.slow
def test_going_back_to_before_brings_the_old_segments_and_their_dead_rows(index: Path) -> None:
    before, old = content_of(index), Store.open(index).manifest
    compact(index)

    made = rollback(index, 3)

    assert [manifest.generation for manifest in history(index)] == [5, 4, 3]
    assert made.segments == old.segments
    assert content_of(index) == before
    again = compact(index)
    assert ROLLED_BACK not in again.manifest.notes  # the history would call it what it is not
    assert content_of(index) == before


@pytest.mark.slow
def test_vectors_of_an_interrupted_build_are_still_there(index: Path, kit: Any) -> None:
    new = {**STATES[2], "fox": ["a fox", "two foxes"]}
    with kit.writer(index) as writer:
        assert kit.add(writer, kit.rows("fox", new["fox"])) == 2

    compact(index)

    _, encoded = kit.build(index, new)
    assert encoded == 0
    assert texts_of(index) == sorted(text for texts in new.values() for text in texts)


def test_one_writer_at_a_time(index: Path, kit: Any) -> None:
    with kit.writer(index), pytest.raises(BusyError) as fault:
        compact(index)

    assert re.match(rf"{re.escape(str(index))}: the index is being written by process \d+, since ", str(fault.value))
    assert compact(index).committed


def test_a_folder_that_is_no_index_is_told(tmp_path: Path) -> None:
    with pytest.raises(IndexFormatError, match="there is no such folder"):
        compact(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_damaged_segment_is_told_and_the_state_stays(index: Path) -> None:
    flip(index / "segments" / Store.open(index).manifest.segments[1].id / "chunks.arrow")
    before = files_of(index)

    with pytest.raises(IndexFormatError, match="damaged"):
        compact(index)

    assert files_of(index) == before


# memory


MEASURED = """
    import sys, tracemalloc
    from pathlib import Path
    import pyarrow as pa
    from ragidx.indexer.writing.rewrite import compact

    peaks = [0]

    def on_stage(stage, rows, done):
        if not tracemalloc.is_tracing():
            tracemalloc.start()
        peaks.append(tracemalloc.get_traced_memory()[1])

    done = compact(Path(sys.argv[1]), on_stage=on_stage)
    print(len(done.manifest.segments), done.manifest.n_chunks, done.n_dropped)
    print(max(peaks), pa.default_memory_pool().max_memory())
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_index(tmp_path: Path, kit: Any) -> None:
    """40,000 rows of 640 dimensions, 51 MB of vectors and 10 MB of texts, are copied in less than 40 MiB."""
    index, rng = tmp_path / "index", np.random.default_rng(0)
    noise = rng.bytes(1 << 20).hex()
    for part in range(5):
        vectors = rng.standard_normal((8_000, 640), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        with kit.writer(index, dim=640, journal=False) as writer:
            for first in range(0, 8_000, 1000):
                name = f"{part}-{first}"
                texts = [f"{name} {n} {noise[(n * 997 + first) % 2_000_000 :][:250]}" for n in range(1000)]
                writer.add(kit.rows(name, texts), vectors[first : first + 1000])
            if part == 4:
                assert writer.delete_document("1-0")
            writer.commit({}, 40)

    child = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(MEASURED), str(index)]
    done = subprocess.run(child, capture_output=True, text=True, check=True)

    made, held = (tuple(int(word) for word in line.split()) for line in done.stdout.splitlines())
    assert made == (1, 39_000, 1000)
    assert sum(held) < 40 << 20
    assert sum(held) > 1 << 20  # something was measured
