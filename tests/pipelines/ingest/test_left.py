"""What readers leave out of documents is counted: in the report, the terminal, the manifest; `strict` ends at it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

import ragidx
from ragidx.corpora.errors import CorpusError, SpecError, install
from ragidx.corpora.left_out import KINDS, LOST, check_kind, class_of
from ragidx.corpora.readers import registry as readers
from ragidx.corpora.readers.fields import check_text
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document
from ragidx.pipelines import distribute
from ragidx.pipelines.cli.help import as_options
from ragidx.pipelines.cli.main import cli
from ragidx.pipelines.ingest import file_cache
from ragidx.pipelines.ingest.build import add
from ragidx.pipelines.ingest.report import StrictError
from ragidx.pipelines.maintain.delete import remove_source

SMALL = {"filter": ragidx.FilterSpec(dim=16)}
LEFT = {
    "scanned pages": {"class": "lost", "count": 5, "files": 2, "places": ["a.txt#page=2", "b.txt#page=2"]},
    "hidden sheets": {"class": "guess", "count": 2, "files": 2, "places": ["a.txt", "b.txt"]},
    "deleted words": {"class": "by rule", "count": 24, "files": 2, "places": ["a.txt#page=3", "b.txt#page=3"]},
}


def read(file: SourceFile) -> Iterator[Document]:
    """A reader that leaves out as much as the first letter of its file says."""
    yield Document(file.doc_id(), file.data(1000).decode())
    file.leave("deleted words", 8, "#page=3")
    file.leave("deleted words", 4, "#page=7")
    file.leave("hidden sheets")
    file.leave("scanned pages", 2 if file.source.name[0] == "a" else 3, "#page=2")
    file.leave("pages without Unicode", 0)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two texts, read by that reader, and settled."""
    monkeypatch.setattr(readers, "_reader", lambda file: read)
    monkeypatch.setattr(file_cache, "_SETTLED_NS", 0)
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(f"The owl of {name} hunts at night.")
    time.sleep(0.05)
    return folder


def test_the_report_has_it_by_class_and_kind_also_of_files_that_are_not_opened(corpus: Path, tmp_path: Path) -> None:
    first = ragidx.build(corpus, tmp_path / "i", **SMALL).report
    again = ragidx.build(corpus, tmp_path / "i").report

    assert (first.left, list(first.left)) == (LEFT, list(LEFT))
    assert (again.left, again.n_files_unopened) == (LEFT, 2)


def test_the_terminal_has_a_line_for_what_is_lost_or_guessed_and_one_for_the_rest(corpus: Path, tmp_path: Path) -> None:
    built = CliRunner().invoke(cli, ["build", str(corpus), "--index", str(tmp_path / "i"), "--dim", "16"])
    info = CliRunner().invoke(cli, ["info", "--index", str(tmp_path / "i")])

    after = "" if find_spec("faster_paddle") else f", after {install('ocr')}"
    assert built.exit_code == 0, built.stderr
    assert "\n".join(built.stderr.splitlines()[-4:]) == (
        "Lost: 5 x scanned pages in 2 files (a.txt#page=2, b.txt#page=2)\n"
        f"    --ocr auto reads Latin and Chinese{after}\n"
        "Read by a guess: 2 x hidden sheets in 2 files (a.txt, b.txt)\n"
        "Left out by rule: 24 x deleted words."
    )
    assert [line.split(maxsplit=1) for line in info.stdout.splitlines() if line.startswith(("lost", "guess"))] == [
        ["lost", "5 x scanned pages"],
        ["guess", "2 x hidden sheets"],
    ]


def test_strict_ends_at_what_is_lost_unless_the_kind_is_accepted(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(StrictError) as refused:
        ragidx.build(corpus, tmp_path / "i", strict=True, **SMALL)

    report = ragidx.build(corpus, tmp_path / "i", strict=True, accept=["scanned pages"], **SMALL).report

    assert str(refused.value) == (
        "a.txt#page=2: lost: 2 x scanned pages\n"
        "  hint: exclude the file, `accept='scanned pages'`, or build without `strict=True`"
    )
    assert (report.committed, report.left) == (True, LEFT)
    assert "--accept 'scanned pages'" in as_options(refused.value.hint)
    typed = ["build", str(corpus), "--index", str(tmp_path / "i"), "--strict"]
    assert CliRunner().invoke(cli, typed).exit_code == 1  # files that are not opened, too
    assert CliRunner().invoke(cli, [*typed, "--accept", "scanned pages"]).exit_code == 0


def test_a_file_without_text_of_which_something_is_lost_is_counted_as_such_and_not_skipped(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_scan(file: SourceFile) -> Iterator[Document]:
        if file.source.name != "scan.txt":
            yield from read(file)
            return
        file.leave("scanned pages", 7)
        check_text("")

    monkeypatch.setattr(readers, "_reader", lambda file: read_scan)
    (corpus / "scan.txt").write_text("x")

    reports = [
        ragidx.build(corpus, tmp_path / "i", strict=True, accept=["scanned pages"], **SMALL).report for _ in range(2)
    ]

    assert [(report.n_documents, report.skipped, report.left["scanned pages"]["count"]) for report in reports] == [
        (2, {}, 12),
        (2, {}, 12),
    ]
    with pytest.raises(CorpusError) as refused:
        ragidx.build(corpus / "scan.txt", tmp_path / "j", **SMALL)
    assert refused.value.message == "the corpus has no readable document (scanned pages; first: scan.txt)"
    division = distribute.divide(corpus / "scan.txt", 1, tmp_path / "stage", tmp_path / "j", **SMALL)
    distribute.build_shard(division, 0)
    with pytest.raises(CorpusError) as refused_too:
        distribute.commit(division)
    assert refused_too.value.message == refused.value.message


def test_a_kind_that_is_not_lost_cannot_be_accepted() -> None:
    with pytest.raises(SpecError) as refused:
        check_kind("scanned page")

    lost = sorted(kind for kind, of in KINDS.items() if of == LOST)
    assert str(refused.value) == (
        f"unknown kind of what is lost 'scanned page'; did you mean 'scanned pages'?\n  hint: known: {', '.join(lost)}"
    )
    with pytest.raises(SpecError) as refused:
        check_kind("deleted words")
    assert str(refused.value) == (
        "'deleted words' are no loss (by rule): `strict` does not end at them\n  hint: accept nothing for them"
    )
    assert class_of("words that another package made up") == LOST


def test_sources_that_are_not_read_keep_theirs_in_the_manifest(corpus: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (more / "c.txt").write_text("Cats hunt.")
    ragidx.build(corpus, tmp_path / "i", **SMALL)

    report = add(more, tmp_path / "i")

    assert report.left["scanned pages"] == {"class": "lost", "count": 3, "files": 1, "places": ["more/c.txt#page=2"]}
    info = CliRunner().invoke(cli, ["info", "--json", "--index", str(tmp_path / "i")])
    noted = json.loads(info.stdout)["notes"]["left"]
    assert [counts["scanned pages"]["count"] for counts in noted.values()] == [5, 3]

    remove_source("more", tmp_path / "i")

    info = CliRunner().invoke(cli, ["info", "--json", "--index", str(tmp_path / "i")])
    assert [*json.loads(info.stdout)["notes"]["left"].values()] == [LEFT]
