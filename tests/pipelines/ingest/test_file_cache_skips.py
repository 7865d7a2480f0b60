"""A file of which a part was skipped is not read again either, and what was skipped is reported at every build."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers import registry as readers
from ragidx.corpora.readers import source_file
from ragidx.pipelines.ingest import file_cache
from ragidx.pipelines.ingest.build import add
from ragidx.pipelines.ingest.report import BuildReport, StrictError
from ragidx.pipelines.maintain.delete import delete

pytestmark = pytest.mark.slow  # half a second a build

SMALL = {"filter": ragidx.FilterSpec(dim=16)}


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive with a member of unknown bytes, and a file with a broken line; both have settled."""
    monkeypatch.setattr(file_cache, "_SETTLED_NS", 0)
    folder = tmp_path / "corpus"
    folder.mkdir()
    _archive(folder / "a.zip", {"good.txt": b"Ants build.", "bad.txt": b"\0\1\2" * 99})
    (folder / "b.jsonl").write_text('{"id": "1", "text": "Bees dance."}\nno JSON\n')
    time.sleep(0.05)
    return folder


@pytest.fixture
def index(corpus: Path, tmp_path: Path) -> Path:
    """Of the corpus, built once."""
    assert ragidx.build(corpus, tmp_path / "index", **SMALL).report.n_added == 2
    return tmp_path / "index"


def _archive(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)


def _told(report: BuildReport) -> dict[str, list[str]]:
    return report.skipped_places


@pytest.mark.usefixtures("closed")
def test_neither_is_opened_and_each_skip_is_reported_with_its_place(corpus: Path, index: Path) -> None:
    for _ in range(2):
        report = ragidx.build(corpus, index).report

        assert (report.n_files_unopened, report.n_unchanged, report.committed) == (2, 2, False)
        assert report.skipped == {"binary file": 1, "not valid JSON": 1}
        assert _told(report)["binary file"] == ["a.zip/bad.txt"]
        assert _told(report)["not valid JSON"][0].startswith("b.jsonl:2: ")


@pytest.mark.usefixtures("closed")
def test_a_strict_build_ends_at_the_first_of_them(corpus: Path, index: Path) -> None:
    with pytest.raises(StrictError, match="skipped: binary file") as fault:
        ragidx.build(corpus, index, strict=True)

    assert fault.value.where == "a.zip/bad.txt"


def test_the_documents_of_a_member_that_cannot_be_read_now_stay(corpus: Path, index: Path) -> None:
    _archive(corpus / "a.zip", {"good.txt": b"\0\1\2" * 99, "other.txt": b"Owls hunt."})
    time.sleep(0.05)

    for unopened, added in ((1, 1), (2, 0)):
        report = ragidx.build(corpus, index).report
        assert (report.n_files_unopened, report.n_added) == (unopened, added)
        assert (report.n_removed, report.n_unreadable) == (0, 1)
    assert "a.zip/good.txt" in {one.id for one in ragidx.Index(index).documents()}


def test_what_is_skipped_in_the_walk_beside_a_file_is_not_noted_with_it(corpus: Path, index: Path) -> None:
    (corpus / "b.jsonl#x").symlink_to("nowhere")

    for _ in range(3):
        assert sum(ragidx.build(corpus, index).report.skipped.values()) == 3


def test_a_source_that_is_not_built_keeps_what_was_skipped_of_it(corpus: Path, index: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "c.txt").write_text("Cats sleep.")
    time.sleep(0.05)
    add(tmp_path / "more", index)
    (tmp_path / "more" / "c.txt").write_text("Cats hunt.")
    time.sleep(0.05)
    assert ragidx.build(tmp_path / "more", index).report.skipped == {}

    report = ragidx.build(index=index).report

    assert (report.n_files_unopened, report.skipped) == (3, {"binary file": 1, "not valid JSON": 1})


def test_a_file_of_which_the_next_reading_may_take_more_is_read_again(
    corpus: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(file: source_file.SourceFile) -> Any:
        file.skip("cannot be read: No such device", "#2")
        yield readers.Document("b.jsonl#1", "Ants march.")

    with monkeypatch.context() as other:
        other.setattr(readers, "_reader", lambda file: read)
        (corpus / "b.jsonl").touch()
        time.sleep(0.05)
        assert ragidx.build(corpus, index).report.n_files_unopened == 1

    report = ragidx.build(corpus, index).report
    assert (report.n_files_unopened, report.n_changed) == (1, 1)


@pytest.mark.parametrize("reason", ["the reader takes more than 120 s", "the reader ended by SIGABRT"])
def test_a_file_that_took_too_much_is_tried_again_where_that_is_asked_for(
    corpus: Path, index: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def read(file: source_file.SourceFile) -> Any:
        raise UnreadableError(reason)
        yield

    with monkeypatch.context() as other:
        other.setattr(readers, "_reader", lambda file: read)
        (corpus / "b.jsonl").write_text('{"id": "1", "text": "Ants march."}')
        time.sleep(0.05)
        ragidx.build(corpus, index)

    again = ragidx.build(corpus, index).report  # though its reader would be quick now
    assert (again.n_files_unopened, again.skipped) == (2, {"binary file": 1, reason: 1})
    assert again.unreadable == ["b.jsonl#1"]  # kept as it was before

    report = ragidx.build(corpus, index, retry=True).report
    assert (report.n_changed, report.skipped) == (1, {"binary file": 1})


def test_more_skips_than_are_noted_are_reported_by_reading(
    corpus: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_cache, "_MOST_SKIPS", 5)
    lines = [json.dumps({"id": "1", "text": "Owls hunt."}), *("no JSON" for _ in range(9))]
    (corpus / "b.jsonl").write_text("\n".join(lines))
    time.sleep(0.05)

    for _ in range(2):
        report = ragidx.build(corpus, index).report
        assert (report.n_files_unopened, report.skipped) == (1, {"binary file": 1, "not valid JSON": 9})


def test_a_member_that_was_deleted_by_hand_is_counted_at_every_build(corpus: Path, index: Path) -> None:
    delete(index, ids=["b.jsonl#1"])

    for _ in range(2):
        report = ragidx.build(corpus, index).report
        assert (report.n_files_unopened, report.n_deleted_before, sum(report.skipped.values())) == (1, 1, 2)
