"""Structured files in an index: how they are read is kept, reported, and changed file by file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.indexer.store.manifest import read_manifest
from ragidx.indexer.store.store import Store
from ragidx.indexer.writing import field_bounds
from ragidx.pipelines.ingest import file_cache
from ragidx.pipelines.plan.plan import forecast

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
    (folder / "c.txt").write_text("Cats sleep.")
    return folder


def texts(index: Path) -> dict[str, str]:
    store = Store.open(index)
    found = {}
    for segment, dead in zip(store.segments, store.dead, strict=True):
        alive = [row for row in range(segment.entry.rows) if dead is None or not dead[row]]
        found |= {row.doc_id: row.text for row in segment.rows(alive)}
    return found


A, B = {"text": ["note"], "title": None}, {"text": ["summary"], "title": "title"}


def test_how_files_are_read_is_in_the_report_and_the_manifest(corpus: Path, tmp_path: Path) -> None:
    report = ragidx.build(corpus, tmp_path / "index")

    assert report.fields == {"a.csv": A | {"new": True}, "b.jsonl": B | {"new": True}}
    assert report.to_json()["fields"] == report.fields
    notes = read_manifest(tmp_path / "index").notes
    assert notes["fields"] == {"rule": 2, "files": {"a.csv": A, "b.jsonl": B}}
    assert report.n_documents == 17


def test_an_idle_build_keeps_it_and_a_new_row_is_read_as_those_before(corpus: Path, tmp_path: Path) -> None:
    ragidx.build(corpus, tmp_path / "index")

    idle = ragidx.build(corpus, tmp_path / "index")
    assert (idle.n_unopened, idle.committed) == (3, False)
    assert idle.fields == {"a.csv": A | {"new": False}, "b.jsonl": B | {"new": False}}

    short = "".join(f"K-{n},Oslo,{'x' if n else sentence(0)}\n" for n in range(9))
    (corpus / "a.csv").write_text(f"key,city,note\n{short}")
    report = ragidx.build(corpus, tmp_path / "index")

    assert report.fields["a.csv"] == A | {"new": False}  # by their values they would be lines now
    assert texts(tmp_path / "index")["a.csv#9"] == "x"
    assert read_manifest(tmp_path / "index").notes["fields"]["files"] == {"a.csv": A, "b.jsonl": B}  # type: ignore[index]  # JSON


def test_another_setting_reads_the_files_again_that_it_is_about(corpus: Path, tmp_path: Path) -> None:
    ragidx.build(corpus, tmp_path / "index")

    report = ragidx.build(corpus, tmp_path / "index", text_field=["*.csv=city+note"], id_field="*.csv=key")

    assert (report.n_unopened, report.n_unchanged, report.n_added, report.n_removed) == (2, 9, 8, 8)
    assert texts(tmp_path / "index")["a.csv#K-1"] == f"city: Oslo\n\nnote: {sentence(1)}"
    assert ragidx.build(corpus, tmp_path / "index", text_field="*.csv=city+note", id_field="*.csv=key").n_unopened == 3
    assert ragidx.build(corpus, tmp_path / "index", text_field="summary", id_field="*.csv=key").n_unopened == 1


def test_another_setting_of_fields_reads_the_files_again_that_it_is_about(corpus: Path, tmp_path: Path) -> None:
    ragidx.build(corpus, tmp_path / "index")
    fields = {"context": "*.csv=city", "title": "*.csv=key"}

    report = ragidx.build(corpus, tmp_path / "index", fields=fields)

    assert (report.n_unopened, report.n_changed, report.n_unchanged) == (2, 8, 9)
    assert report.fields == {"a.csv": A | {"title": "key", "new": False}, "b.jsonl": B | {"new": False}}
    assert texts(tmp_path / "index")["a.csv#2"] == f"city: Oslo\n{sentence(1)}"
    assert ragidx.build(corpus, tmp_path / "index", fields=fields).n_unopened == 3
    other = ragidx.build(corpus, tmp_path / "index", fields=fields | {"metadata": "*.jsonl=tags"})
    assert (other.n_unopened, other.n_changed, other.n_encoded) == (2, 8, 0)
    without = ragidx.build(corpus, tmp_path / "index")
    assert (without.n_unopened, without.n_changed) == (1, 16)
    assert without.fields == {"a.csv": A | {"new": False}, "b.jsonl": B | {"new": False}}


def older(index: Path) -> None:
    """Make an index one of format 3, which knows no layouts."""
    for path in index.glob("manifest*.json"):
        data = json.loads(path.read_bytes())
        del data["checksum"]
        data["notes"].pop("fields", None)
        data["format"] = 3
        text = json.dumps(data, sort_keys=True, separators=(",", ":"))
        data["checksum"] = hashlib.sha256(text.encode()).hexdigest()
        path.write_text(json.dumps(data, sort_keys=True, separators=(",", ":")) + "\n")


def test_an_older_index_keeps_its_documents_and_gains_those_that_had_no_text(corpus: Path, tmp_path: Path) -> None:
    record = {"id": 1, "text": sentence(3), "of": {"a": 1}, "tags": ["a", "b"]}
    (corpus / "d.jsonl").write_text(json.dumps(record))
    for name in ("a.csv", "b.jsonl"):
        (corpus / name).rename(tmp_path / name)
    ragidx.build(corpus, tmp_path / "index")
    older(tmp_path / "index")

    assert ragidx.build(corpus, tmp_path / "index", reread=True).n_changed == 1  # "of" was not JSON text there
    older(tmp_path / "index")
    assert ragidx.build(corpus, tmp_path / "index", reread=True).n_unchanged == 2
    for name in ("a.csv", "b.jsonl"):
        (tmp_path / name).rename(corpus / name)
    report = ragidx.build(corpus, tmp_path / "index")

    assert (report.n_unchanged, report.n_added, report.n_changed) == (2, 16, 0)
    store = Store.open(tmp_path / "index")
    assert {row.metadata.get("of") for row in store.segments[-2].rows([0])} == {'{"a":1}'}
    assert ragidx.build(corpus, tmp_path / "index", rebuild=True).n_added == 18
    assert dict(read_manifest(tmp_path / "index").schema)["of.a"] == "int"


def test_mixed_and_shared_fields_are_reported(corpus: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_bounds, "MAX_FIELDS", 4)
    monkeypatch.chdir(corpus.parent)
    mixed: list[dict[str, Any]] = [{"text": "One.", "a": 1, "b": 2}, {"text": "Two.", "a": "x", "z1": 1, "z2": 2}]
    (corpus / "d.jsonl").write_text("".join(json.dumps(one) + "\n" for one in mixed))
    (corpus / "b.jsonl").unlink()

    code, _, err = run("build", "corpus", "--include", "a.csv", "--include", "d.jsonl")

    assert (code, err) == (
        0,
        "a.csv: text = note; change it with --text-field\n"
        "Mixed: the field 'a' has values of int, string, and is text.\n"
        "Fields: an index has at most 4; 2 more share 'more_fields', as JSON.\n"
        "Skipped: 1 x not matched by --include\n",
    )
    code, out, _ = run("build", "corpus", "--include", "d.jsonl", "--allow-removal", "--rebuild", "--json")
    report = json.loads(out)
    assert (report["mixed_fields"], "n_shared_fields" in report) == ({"a": ["int", "string"]}, False)


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


def test_a_plan_reads_as_a_build_does(corpus: Path, tmp_path: Path) -> None:
    assert forecast(corpus, tmp_path / "index").documents.value == 17
