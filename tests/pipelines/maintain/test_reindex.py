"""An index copied, at another type or width: where it may be written, and what a failure leaves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import BusyError, RagidxError, SpecError
from ragidx.indexer.ann import index_types, tuning
from ragidx.indexer.store import Store
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import merging as assembly
from ragidx.pipelines.maintain.rewrite import compact, reindex
from ragidx.pipelines.vectors import RowWriter

from ...indexer.states import live_vectors
from ...raising import message_of
from .conftest import INDEX, files, spec_of

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("mini_index")
def test_a_target_that_holds_something_is_refused_and_left_as_it_is() -> None:
    Path("file").write_text("a letter")
    Path("full").mkdir()
    Path("full/letter.txt").write_text("a letter")
    messages = {
        "file": "file: it is a file, not a folder\n  hint: name another folder",
        "full": "full: it is not an index, and not empty\n  hint: name another folder",
        "ragidx-index": "ragidx-index: this is the source index, which stays as it is\n"
        "  hint: name a folder for the new index; the source is `index`",
    }
    before = files(INDEX)

    for target, message in messages.items():
        assert message_of(RagidxError, lambda target=target: reindex(INDEX, target, dim=8)) == message

    assert Path("file").read_text() == "a letter"
    assert [path.name for path in Path("full").iterdir()] == ["letter.txt"]
    assert files(INDEX) == before
    Path("empty").mkdir()
    assert reindex(INDEX, "empty", dim=8).dim == 8


def test_another_index_type_is_made_of_the_same_vectors(given: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(INDEX)
    monkeypatch.setattr(index_types, "MIN_ROWS", 200)
    told: list[tuple[str, int, int]] = []

    report = reindex(
        INDEX, "graph", index_type="hnsw", target_recall=0.9, on_stage=lambda *stage: told.append(stage)
    )  # fmt: skip

    store = Store.open("graph")
    assert (report.index, report.generation) == ("graph", 1)
    assert (report.index_type, report.segment_types) == ("hnsw", ["HNSW16"])
    assert (report.n_segments, report.n_rewritten, report.n_chunks, report.dim) == (1, 2, 400, 16)
    assert store.manifest.index.target_recall == 0.9
    assert store.manifest.segments[0].ann is not None
    assert (store.manifest.segments[0].ann.recall or 0) >= 0.9
    assert report.recall == store.manifest.segments[0].ann.recall
    assert {stage for stage, _, _ in told} == {"copying rows", "HNSW16"}
    assert spec_of(Path("graph")).index_type == "hnsw"
    found = ragidx.Index("graph").search_vectors(given[:5], k=1)
    assert [of[0].chunk_id for of in found] == [f"v{n}" for n in range(5)]
    assert files(INDEX) == before
    assert verify(store.path) == []
    with RowWriter("graph", dim=16) as writer:  # the target goes on under its own type
        writer.add_vectors([f"v{n}" for n in range(400)], given)
        writer.commit()
        assert writer.n_unchanged == 400


def test_narrower_and_of_another_type_at_once(given: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_types, "MIN_ROWS", 200)

    report = reindex(INDEX, "small", dim=8, index_type="SQ8", max_memory=10_000)

    assert (report.dim, report.segment_types) == (8, ["SQ8"])
    assert Store.open("small").manifest.index.max_memory == 10_000
    assert report.bytes_after < report.bytes_before


def test_what_the_memory_does_not_hold_is_refused(given: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (index_types, tuning):
        monkeypatch.setattr(module, "MIN_ROWS", 200)

    with pytest.raises(SpecError, match="400 vectors of 16 dimensions take 1 MB as flat"):
        reindex(INDEX, "tiny-index", index_type="flat", max_memory=1000)
    assert not Path("tiny-index").exists()


@pytest.mark.usefixtures("given")
def test_what_fails_after_rows_were_copied_leaves_the_target_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (index_types, tuning):
        monkeypatch.setattr(module, "MIN_ROWS", 200)
    for name in ("begun/LOCK", "begun/journal/vectors"):  # of an interrupted build, which goes on from it
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("")
    for folder in ("there", "empty"):
        Path(folder).mkdir()

    for target in ("there/new/deep", "empty", "begun"):
        with pytest.raises(SpecError, match="more than `max_memory` leaves"):
            reindex(INDEX, target, index_type="flat", max_memory=1000)

    assert list(Path("there").iterdir()) == list(Path("empty").iterdir()) == []
    assert {"LOCK", "journal"} <= {path.name for path in Path("begun").iterdir()}
    assert Path("begun/journal/vectors").exists()
    assert reindex(INDEX, "there/new/deep").n_chunks == 400


@pytest.mark.usefixtures("given")
def test_what_another_writer_made_meanwhile_is_left_alone() -> None:
    """Two fill one folder at once: the second is refused, and removes nothing of the first."""
    Path("busy").mkdir()
    lock = Lock(Path("busy"))
    try:
        with pytest.raises(BusyError):
            reindex(INDEX, "busy")
    finally:
        lock.release()

    assert [path.name for path in Path("busy").iterdir()] == ["LOCK"]


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize("target", ["ragidx-index/sub", "ragidx-index/segments/x", "ragidx-index/../ragidx-index/a/b"])
def test_an_index_is_not_written_into_the_one_it_is_made_of_nor_around_it(target: str, folder: Path) -> None:
    before = files(INDEX)
    Path("link").symlink_to(INDEX, target_is_directory=True)

    assert message_of(SpecError, lambda: reindex(INDEX, target)) == (
        f"{Path(target)}: the folder is inside the index ragidx-index\n  hint: name a folder outside of it"
    )
    with pytest.raises(SpecError, match=re.escape("link/sub: the folder is inside the index ragidx-index")):
        reindex(INDEX, "link/sub")
    assert message_of(SpecError, lambda: reindex(INDEX, folder)) == (
        f"{folder}: the index ragidx-index is inside this folder\n  hint: name another folder"
    )
    assert files(INDEX) == before
    assert not Path(target).exists()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"target_recall": 1.5},
            "`target_recall`: a recall of 1.5 is out of range\n  hint: give more than 0, at most 1",
        ),
        ({"max_memory": 0}, "`max_memory`: 0 bytes of memory hold nothing\n  hint: give a size such as 2GB"),
        (
            {"index_type": "IVF4,PQ3", "dim": 12},
            "`index_type`: index type IVF4,PQ3: 3 codes do not divide 16 dimensions\n"
            "  hint: take one of PQ1, PQ2, PQ4, PQ8, PQ16, or another type",
        ),
    ],
)
def test_an_option_that_is_out_of_range_is_told_before_anything_is_written(
    asked: dict[str, Any], message: str, given: np.ndarray
) -> None:
    assert message_of(SpecError, lambda: reindex(INDEX, "other", **asked)) == message
    assert not Path("other").exists()


def test_an_index_is_copied_while_commits_remove_its_files(given: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two blocks the index is compacted, and three more commits sweep what the copy is made of."""
    reader = Store.open(INDEX)
    monkeypatch.setattr(assembly, "_GROUP_BATCHES", 1)
    seen: list[int] = []

    def on_stage(stage: str, rows: int, done: int) -> None:
        if not seen:
            compact(INDEX)
            for number in range(3):
                with RowWriter(INDEX, dim=16) as writer:
                    writer.add_vectors([f"new {number}"], given[:1])
                    writer.commit()
        seen.append(done)

    report = reindex(INDEX, "copy", dim=8, on_stage=on_stage)

    assert not any(segment.folder.exists() for segment in reader.segments)
    assert (report.n_chunks, report.dim, seen) == (400, 8, [256, 300, 400])
    assert verify(Path("copy")) == []
    assert {f"v{n}" for n in range(400)} == live_vectors(Path("copy")).keys()
