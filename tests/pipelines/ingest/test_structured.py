"""Structured files in an index: how they are read is kept, reported, and changed file by file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx import Index
from ragidx.corpora.errors import SpecError
from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import read_manifest
from ragidx.indexer.writing import field_bounds
from ragidx.pipelines.ingest import file_cache
from ragidx.pipelines.plan.plan import plan

from ..conftest import Done

Run = Callable[..., Done]

pytestmark = pytest.mark.slow  # half a second a build

WORDS = "rivers rise in hills and flow past old mills before they reach the open sea".split()  # noqa: SIM905  # prose


def sentence(seed: int) -> str:
    return " ".join(WORDS[(seed * step) % len(WORDS)] for step in range(1, 9))


def rows(count: int) -> str:
    return "key,city,note\n" + "".join(f"K-{n},Oslo,{sentence(n)}\n" for n in range(count))


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table, events with nested objects, and a text; all have settled."""
    monkeypatch.setattr(file_cache, "_SETTLED_NS", -(10**12))
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.csv").write_text(rows(8))
    events = [{"title": f"E{n}", "meta": {"team": "core"}, "tags": ["tls"], "summary": sentence(n)} for n in range(8)]
    (folder / "b.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    (folder / "c.md").write_text("Cats sleep.")
    return folder


def texts(index: Path) -> dict[str, str]:
    store = Store.open(index)
    return {row.doc_id: row.text for row in store.rows(range(store.n_rows))}


A = {"text": ["note"], "title": None, "id": "key", "times": [], "n_records": 8}
B = {"text": ["summary"], "title": "title", "id": None, "times": [], "n_records": 8}


def test_how_files_are_read_is_in_the_report_and_the_manifest(corpus: Path, tmp_path: Path) -> None:
    assert plan(corpus, tmp_path / "index").n_documents == 17

    report = ragidx.build(corpus, tmp_path / "index").report

    assert report.fields == {"a.csv": A | {"new": True}, "b.jsonl": B | {"new": True}}
    assert report.to_json()["fields"] == report.fields
    notes = read_manifest(tmp_path / "index").notes
    assert notes["fields"] == {"a.csv": A, "b.jsonl": B}
    assert report.n_documents == 17


def test_an_idle_build_keeps_it_and_a_new_row_is_read_as_those_before(corpus: Path, tmp_path: Path) -> None:
    ragidx.build(corpus, tmp_path / "index")

    idle = ragidx.build(corpus, tmp_path / "index").report
    assert (idle.n_files_unopened, idle.committed) == (3, False)
    assert idle.fields == {"a.csv": A | {"new": False}, "b.jsonl": B | {"new": False}}

    short = "".join(f"K-{n},Oslo,{'x' if n else sentence(0)}\n" for n in range(9))
    (corpus / "a.csv").write_text(f"key,city,note\n{short}")
    report = ragidx.build(corpus, tmp_path / "index").report

    assert report.fields["a.csv"] == A | {"n_records": 9, "new": False}  # by their values they would be lines now
    assert texts(tmp_path / "index")["a.csv#K-8"] == "x"
    assert read_manifest(tmp_path / "index").notes["fields"] == {"a.csv": A | {"n_records": 9}, "b.jsonl": B}


def test_another_setting_reads_the_files_again_that_it_is_about(corpus: Path, tmp_path: Path) -> None:
    ragidx.build(corpus, tmp_path / "index")

    report = ragidx.build(corpus, tmp_path / "index", text_field=["*.csv=city+note"], id_field="*.csv=key").report

    # The ids stay: they are of the column that is taken without being asked, too.
    assert (report.n_files_unopened, report.n_unchanged, report.n_changed, report.n_removed) == (2, 9, 8, 0)
    assert texts(tmp_path / "index")["a.csv#K-1"] == f"city: Oslo\n\nnote: {sentence(1)}"
    same = ragidx.build(corpus, tmp_path / "index", text_field="*.csv=city+note", id_field="*.csv=key")
    assert same.report.n_files_unopened == 3
    other = ragidx.build(corpus, tmp_path / "index", text_field="summary", id_field="*.csv=key")
    assert other.report.n_files_unopened == 1


def test_another_setting_of_fields_reads_the_files_again_that_it_is_about(corpus: Path, tmp_path: Path) -> None:
    ragidx.build(corpus, tmp_path / "index")
    fields = {"context": "*.csv=city", "title": "*.csv=key"}

    report = ragidx.build(corpus, tmp_path / "index", fields=fields).report

    assert (report.n_files_unopened, report.n_changed, report.n_unchanged) == (2, 8, 9)
    assert report.fields == {"a.csv": A | {"title": "key", "new": False}, "b.jsonl": B | {"new": False}}
    assert texts(tmp_path / "index")["a.csv#K-1"] == f"city: Oslo\n{sentence(1)}"
    assert ragidx.build(corpus, tmp_path / "index", fields=fields).report.n_files_unopened == 3
    other = ragidx.build(corpus, tmp_path / "index", fields=fields | {"metadata": "*.jsonl=tags"}).report
    assert (other.n_files_unopened, other.n_changed, other.n_encoded) == (2, 8, 0)
    without = ragidx.build(corpus, tmp_path / "index").report
    assert (without.n_files_unopened, without.n_changed) == (1, 16)
    assert without.fields == {"a.csv": A | {"new": False}, "b.jsonl": B | {"new": False}}


def test_dates_of_mails_and_records_compare_as_times_whatever_their_zones(tmp_path: Path) -> None:
    folder = tmp_path / "mails"
    folder.mkdir()
    dates = {"west.eml": "Sun, 5 May 2024 23:30:00 -0500", "east.eml": "Sun, 5 May 2024 23:40:00 +0900"}
    for name, date in dates.items():
        (folder / name).write_text(f"Subject: Lease\nDate: {date}\n\nThe lease is signed.\n")
    (folder / "bad.eml").write_text("Subject: Lease\nDate: soon\n\nThe lease is signed.\n")
    times = ["2024-05-05T23:30:00-05:00", "2024-05-05T23:40:00+09:00"]
    (folder / "log.jsonl").write_text("".join(json.dumps({"text": "Lease.", "date": one}) + "\n" for one in times))

    report = ragidx.build(folder, tmp_path / "index").report

    assert report.skipped_places == {"the field 'date'": ["bad.eml: not a date"]}
    hits = Index(tmp_path / "index").search("lease", where='date >= "2024-05-06"')
    assert sorted(hit.doc_id for hit in hits) == ["log.jsonl#1", "west.eml"]


def test_mixed_and_shared_fields_are_reported(corpus: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_bounds, "MAX_FIELDS", 4)
    monkeypatch.chdir(corpus.parent)
    mixed: list[dict[str, Any]] = [{"text": "One.", "a": 1, "b": 2}, {"text": "Two.", "a": "x", "z1": 1, "z2": 2}]
    (corpus / "d.jsonl").write_text("".join(json.dumps(one) + "\n" for one in mixed))
    (corpus / "b.jsonl").unlink()

    code, _, err = run("build", "corpus", "--include", "a.csv", "--include", "d.jsonl")

    assert (code, err) == (
        0,
        "a.csv: text = note; id = key; change it with --text-field and --id-field\n"
        "Mixed: the field 'a' has values of int, and of string in d.jsonl#2: it is text.\n"
        "Fields: an index has at most 4; 2 more share 'more_fields', as JSON.\n"
        "Skipped: 1 x not matched by --include\n",
    )
    code, out, _ = run("build", "corpus", "--include", "d.jsonl", "--allow-removal", "--rebuild", "--json")
    report = json.loads(out)
    assert (report["mixed_fields"], "n_shared_fields" in report) == (
        {"a": {"int": ["d.jsonl#1"], "string": ["d.jsonl#2"]}},
        False,
    )


def test_a_field_is_numbers_again_when_the_file_that_made_it_text_is_mended(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for number in range(4):
        year = "unknown" if number == 2 else 1990 + number
        (tmp_path / "docs" / f"{number}.md").write_text(f"---\nyear: {year}\n---\nThe mill {number}.\n")
    index = ragidx.build(tmp_path / "docs", tmp_path / "index")
    mixed = {"year": {"int": ["0.md", "1.md", "3.md"], "string": ["2.md"]}}
    assert (index.schema["year"], index.report and index.report.mixed_fields) == ("string", mixed)
    assert index.build().mixed_fields == mixed  # as long as it is so

    (tmp_path / "docs" / "2.md").write_text("---\nyear: 1992\n---\nThe mill 2.\n")
    report = index.build()

    assert (report.n_changed, report.n_encoded, report.mixed_fields) == (1, 0, {})
    assert (index.schema["year"], index.count("year >= 1992")) == ("int", 2)


def test_many_files_are_counted(corpus: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus.parent)
    for number in range(6):
        (corpus / f"conf{number}.json").write_text('{"name": "x", "size": 3}')

    code, _, err = run("build", "corpus")

    assert (code, err.splitlines()[1:3]) == (
        0,
        [
            "b.jsonl: text = summary; title = title; change it with --text-field",
            "conf0.json: text = every field, as lines; change it with --text-field",
        ],
    )
    assert err.splitlines()[-1] == "and 3 more files by the values of their fields: --json lists all of them."


def test_a_wrong_setting_is_refused_before_anything_is_read(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="'policies' is not GLOB=PATH"):
        ragidx.build(corpus, tmp_path / "index", records="policies")
