"""A build in shards gives the index that one machine gives: rows, vectors, words and scores, first and again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import ragidx
from ragidx.indexer.store import Store
from ragidx.pipelines import distribute
from ragidx.pipelines.distribute import parts

from .conftest import WORDS, answers, build_divided, content, lines, same, write

pytestmark = pytest.mark.slow

NOTES = "# Mills\n\nThe old mill ground wheat by the river.\n\n## Wheels\n\nIts wheel turned in spring.\n"
FILES = {
    "notes/mill.md": NOTES,
    "bees.txt": "Bees dance to tell where flowers are.",
    "empty.txt": "",
    "blank.txt": "  \n",
    "thai.txt": "ผู้ดูแลประภาคารจุดตะเกียงทุกคืน",
    "records.jsonl": lines({"text": f"record {n} of a tower", "year": 1900 + n, "place": f"p{n}"} for n in range(40)),
}


@pytest.fixture(autouse=True)
def _small_files_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_SPLIT_BYTES", 200)
    monkeypatch.setattr(parts, "_FILE_BYTES", 16)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_it_is_the_index_of_one_machine(tmp_path: Path, n: int) -> None:
    corpus = write(tmp_path / "corpus", FILES)
    expected = ragidx.build(corpus, tmp_path / "one")
    report = build_divided(corpus, n, tmp_path / "stage", tmp_path / "index")
    same(tmp_path / "one", tmp_path / "index")
    assert ragidx.Index(tmp_path / "index").search("tower", where="year >= 1930")
    one, other = Store.open(tmp_path / "one").manifest, Store.open(tmp_path / "index").manifest
    assert (one.spec, one.fingerprint, one.schema, one.lexical) == (
        *(other.spec, other.fingerprint, other.schema),
        other.lexical,
    )
    for name in ("corpus", "skipped", "language", "fields", "truncated"):
        assert one.notes[name] == other.notes[name], name
    assert (report.n_documents, report.n_chunks) == (one.n_documents, one.n_chunks)
    assert report.unknown == expected.report.unknown == {"Thai": 1}
    assert expected.path == tmp_path / "one"
    assert sorted(path.name for path in (tmp_path / "stage").iterdir()) == ["LOCK", "committed.json"]


def test_a_file_is_split_and_its_lines_have_their_numbers(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus", {"records.jsonl": FILES["records.jsonl"]})
    division = distribute.divide(corpus, 4, tmp_path / "stage", tmp_path / "index")
    spans = [source.span for number in range(4) for source in division.files(number)]
    assert [span.n_lines for span in spans if span is not None] == [0, 11, 21, 31]
    for number in range(4):
        distribute.build_shard(division, number)
    distribute.commit(division)
    ids = sorted({row[1] for row in content(tmp_path / "index")}, key=lambda name: int(name.partition("#")[2]))
    assert ids == [f"records.jsonl#{n}" for n in range(1, 41)]


def test_of_documents_with_one_id_the_first_stays(tmp_path: Path) -> None:
    """As on one machine; there the reader of the file says it, here the commit."""
    records = [{"id": n % 15, "text": f"text {n} about a mill", "n": n} for n in range(40)]
    corpus = write(tmp_path / "corpus", {"records.jsonl": lines(records)})
    ragidx.build(corpus, tmp_path / "one")
    report = build_divided(corpus, 4, tmp_path / "stage", tmp_path / "index")
    same(tmp_path / "one", tmp_path / "index")
    assert sum(report.skipped.values()) == 25
    assert report.skipped["its id is another document's"] == 25
    assert (report.n_documents, report.n_added) == (15, 15)
    # and the next build of one machine finds nothing to do
    again = ragidx.build(corpus, tmp_path / "index").report
    assert (again.n_added, again.n_changed, again.n_removed, again.committed) == (0, 0, 0, False)


def test_fields_of_several_types_are_widened(tmp_path: Path) -> None:
    records = [{"text": f"record {n}", "value": n if n < 20 else n / 2 if n < 30 else f"v{n}"} for n in range(40)]
    corpus = write(tmp_path / "corpus", {"records.jsonl": lines(records)})
    ragidx.build(corpus, tmp_path / "one")
    build_divided(corpus, 4, tmp_path / "stage", tmp_path / "index")
    assert Store.open(tmp_path / "index").manifest.schema == Store.open(tmp_path / "one").manifest.schema
    same(tmp_path / "one", tmp_path / "index")


def test_an_index_is_continued(tmp_path: Path) -> None:
    """Files that did not change are in no shard, what is gone leaves, and what was deleted by hand stays out."""
    corpus = write(tmp_path / "corpus", FILES)
    for path in corpus.rglob("*.*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    for name in ("one", "index"):
        ragidx.build(corpus, tmp_path / name)
        with ragidx.Index(tmp_path / name) as index:
            index.delete(["records.jsonl#7"])
            index.add([ragidx.Document("own", "A program's document about bees.")])
    write(corpus, {"new.txt": "A lease of the mill.", "bees.txt": "Bees dance in spring."})
    (corpus / "notes/mill.md").unlink()
    expected = ragidx.build(corpus, tmp_path / "one").report
    division = distribute.divide(corpus, 3, tmp_path / "stage", tmp_path / "index")
    for number in range(3):
        distribute.build_shard(division, number)
    report = distribute.commit(division)
    same(tmp_path / "one", tmp_path / "index")
    for name in ("n_documents", "n_chunks", "n_added", "n_changed", "n_unchanged", "n_removed", "removed"):
        assert getattr(report, name) == getattr(expected, name), name
    assert report.generation == expected.generation
    assert len(ragidx.Index(tmp_path / "index").get(["own"])) == 1


def test_a_rebuild_keeps_what_a_program_added(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus", FILES)
    for name in ("one", "index"):
        ragidx.build(corpus, tmp_path / name)
        with ragidx.Index(tmp_path / name) as index:
            index.add([ragidx.Document("own", "A program's document about bees.")])
        options: dict[str, Any] = {"chunks": ragidx.ChunkSpec(size=20), "rebuild": True}
        if name == "one":
            ragidx.build(corpus, tmp_path / name, **options)
        else:
            build_divided(corpus, 2, tmp_path / "stage", tmp_path / name, **options)
    same(tmp_path / "one", tmp_path / "index")


def test_a_filter_is_fitted_once(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus", FILES)
    spec = ragidx.FilterSpec("whitening", dim=8)
    ragidx.build(corpus, tmp_path / "one", filter=spec)
    report = build_divided(corpus, 3, tmp_path / "stage", tmp_path / "index", filter=spec)
    same(tmp_path / "one", tmp_path / "index")
    assert report.n_fitted == ragidx.build(corpus, tmp_path / "two", filter=spec).report.n_fitted


def test_a_network_gives_the_same_vectors(tmp_path: Path, tiny_model: Any) -> None:
    corpus = write(tmp_path / "corpus", {f"{n}.txt": f"The {WORDS[n]} and the {WORDS[-n]}." for n in range(10)})
    options: dict[str, Any] = {"model": str(tiny_model()), "method": "prompteol", "dtype": "float32"}
    ragidx.build(corpus, tmp_path / "one", **options)
    build_divided(corpus, 3, tmp_path / "stage", tmp_path / "index", **options)
    one, other = Store.open(tmp_path / "one"), Store.open(tmp_path / "index")
    rows = np.arange(10)
    assert [row.chunk_id for row in one.rows(rows)] == [row.chunk_id for row in other.rows(rows)]
    differs = one.vectors(rows) != other.vectors(rows)  # as they are stored, in float16
    assert differs.mean() <= 0.01
    # Other batches may round a number in another way; it is then the next one of float16.
    tolerance = 1e-3 if differs.any() else 1e-5
    for (name, score, *_), (other_name, other_score, *_) in zip(
        answers(tmp_path / "one", mode="dense"), answers(tmp_path / "index", mode="dense"), strict=True
    ):
        assert name == other_name
        assert score == pytest.approx(other_score, abs=tolerance)


def test_several_sources_and_fields_that_are_named(tmp_path: Path) -> None:
    rows = "".join(f"b{n},{n},the {WORDS[n]} of a mill,title {n}\n" for n in range(10))
    first = write(tmp_path / "first", {"a.csv": "key,n,body,title\n" + rows, "note.txt": "A note about bees."})
    second = write(tmp_path / "second", {"note.txt": "Another note.", "r.jsonl": FILES["records.jsonl"]})
    options: dict[str, Any] = {
        "text_field": ["*.csv=title+body", "place"],
        "id_field": "*.csv=key",
        "fields": {"context": "*.csv=n"},
        "exclude": ["*.md"],
    }
    ragidx.build([first, second], tmp_path / "one", **options)
    build_divided([first, second], 3, tmp_path / "stage", tmp_path / "index", **options)
    same(tmp_path / "one", tmp_path / "index")
    names = [(entry.name, entry.n_documents) for entry in ragidx.Index(tmp_path / "index").sources()]
    assert names == [(entry.name, entry.n_documents) for entry in ragidx.Index(tmp_path / "one").sources()]


def test_more_shards_than_files(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus", {"bees.txt": "Bees dance.", "mill.txt": "An old mill."})
    ragidx.build(corpus, tmp_path / "one")
    build_divided(corpus, 5, tmp_path / "stage", tmp_path / "index")
    same(tmp_path / "one", tmp_path / "index")


def test_the_field_of_the_text_changes(tmp_path: Path) -> None:
    """Of each file the layout counts that the shard found which read it; later builds use it again."""
    corpus = tmp_path / "corpus"
    for field in ("story", "remark"):
        records = [{field: f"a long {field} of record {n} about an old mill by the river"} for n in range(30)]
        write(corpus, {"a.jsonl": lines(records), "z.jsonl": lines(records)})
        ragidx.build(corpus, tmp_path / "one", allow_removal=True)
        build_divided(corpus, 2, tmp_path / "stage", tmp_path / "index", allow_removal=True)
    one, other = Store.open(tmp_path / "one").manifest, Store.open(tmp_path / "index").manifest
    assert one.notes["fields"] == other.notes["fields"]
    assert one.notes["fields"]["z.jsonl"]["text"] == ["remark"]  # type: ignore[index,call-overload]
    same(tmp_path / "one", tmp_path / "index")


def test_an_id_of_a_file_that_did_not_change_stays(tmp_path: Path) -> None:
    first = write(tmp_path / "a", {"papers/x.txt": "The first text of this id."})
    second = write(tmp_path / "papers", {"x.txt": "The second text.", "y.txt": "Another."})
    for path in (*first.rglob("*.txt"), *second.rglob("*.txt")):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    for name in ("one", "index"):
        ragidx.build([first, second], tmp_path / name)
    write(second, {"x.txt": "The second text has changed."})
    ragidx.build([first, second], tmp_path / "one")
    report = build_divided([first, second], 2, tmp_path / "stage", tmp_path / "index")
    assert report.skipped == {"its id is another document's": 1}
    same(tmp_path / "one", tmp_path / "index")
    assert Store.open(tmp_path / "one").manifest.n_documents == Store.open(tmp_path / "index").manifest.n_documents


@pytest.mark.parametrize("options", [{"stemmer": "german"}, {"lexical": False}])
def test_other_words(tmp_path: Path, options: dict[str, Any]) -> None:
    """The words of segments that were there are written again."""
    corpus = write(tmp_path / "corpus", FILES)
    for name in ("one", "index"):
        ragidx.build(corpus, tmp_path / name)
    write(corpus, {"new.txt": "Another text about mills."})
    ragidx.build(corpus, tmp_path / "one", **options)
    build_divided(corpus, 2, tmp_path / "stage", tmp_path / "index", **options)
    one, other = Store.open(tmp_path / "one").manifest, Store.open(tmp_path / "index").manifest
    assert (one.lexical, one.index) == (other.lexical, other.index)
    assert content(tmp_path / "one") == content(tmp_path / "index")
    if one.lexical is not None:
        assert answers(tmp_path / "one", mode="lexical") == answers(tmp_path / "index", mode="lexical")


def test_the_stemmer_does_not_depend_on_how_it_is_divided(tmp_path: Path) -> None:
    german = "Der alte Bauer ging mit seinem Hund über die Wiese und sah nach den Bienen."
    english = "The old farmer walked with his dog over the meadow and looked after the bees."
    files = {"a.jsonl": lines({"text": f"{german} {n}"} for n in range(60))}
    files |= {f"b{m}.jsonl": lines({"text": f"{english} {n}"} for n in range(100)) for m in range(3)}
    corpus = write(tmp_path / "corpus", files)
    ragidx.build(corpus, tmp_path / "one")
    for n in (1, 17):
        build_divided(corpus, n, tmp_path / "stage", tmp_path / f"index-{n}")
        same(tmp_path / "one", tmp_path / f"index-{n}")


def test_a_field_that_a_part_of_a_file_lacks(tmp_path: Path) -> None:
    records = [{"text": f"record {n}"} | ({"headline": f"title {n}"} if n < 10 else {}) for n in range(40)]
    corpus = write(tmp_path / "corpus", {"a.jsonl": lines(records)})
    for name in ("one", "index"):
        ragidx.build(corpus, tmp_path / name, fields={"title": "headline"})
    write(corpus, {"a.jsonl": lines(records[:30])})
    ragidx.build(corpus, tmp_path / "one", fields={"title": "headline"})
    report = build_divided(corpus, 3, tmp_path / "stage", tmp_path / "index", fields={"title": "headline"})
    assert (report.n_removed, report.n_unreadable) == (10, 0)
    same(tmp_path / "one", tmp_path / "index")


def test_vectors_of_the_index_are_taken(tmp_path: Path) -> None:
    write(tmp_path / "corpus", {f"old/{n}.txt": f"The {WORDS[n]} of {n}." for n in range(8)})
    ragidx.build(tmp_path / "corpus", tmp_path / "index")
    (tmp_path / "corpus" / "old").rename(tmp_path / "corpus" / "new")
    report = build_divided(tmp_path / "corpus", 2, tmp_path / "stage", tmp_path / "index", allow_removal=True)
    assert (report.n_added, report.n_removed, report.n_encoded) == (8, 8, 0)


def test_shards_of_a_corpus_that_moved_lend_their_vectors(tmp_path: Path) -> None:
    """Files that come first move all others to the last shards."""
    old = {f"{n}.txt": f"The {WORDS[n]} number {n}." for n in range(8)}
    corpus = write(tmp_path / "corpus", old)
    division = distribute.divide(corpus, 8, tmp_path / "stage", tmp_path / "index")
    for number in range(8):
        distribute.build_shard(division, number)
    write(corpus, {f"0 new {n}.txt": f"Something new, number {n}." for n in range(40)})
    report = build_divided(corpus, 8, tmp_path / "stage", tmp_path / "index")
    assert report.n_chunks - report.n_encoded == len(old)


def test_memory_is_shared_by_what_shards_read(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus", {"a.csv": "text\n" + "a mill\n" * 90, "b.txt": "A tower.", "c.txt": "Bees."})
    division = distribute.divide(corpus, 3, tmp_path / "stage", tmp_path / "index", max_memory=9_000_000)
    shares = [division.memory(number) or 0 for number in range(3)]
    assert sum(shares) <= 9_000_000
    assert max(shares) > 8_000_000


_TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
_VALUE = st.one_of(st.integers(-5, 5), st.sampled_from(["a", "b"]), st.booleans())
_FIELDS = {"id": st.integers(0, 12), "text": _TEXT}
# A record that is skipped, as its id is another's, leaves its type to the field where it is in a shard of its own
# (docs/shards.md): so where ids come twice, values are of one type.
_RECORDS = st.one_of(
    st.lists(st.fixed_dictionaries(_FIELDS, optional={"value": st.integers(-5, 5)}), max_size=12),
    st.lists(
        st.fixed_dictionaries(_FIELDS, optional={"value": _VALUE}), max_size=12, unique_by=lambda one: str(one["id"])
    ),
)
_CORPUS = st.fixed_dictionaries(
    {}, optional={"a.txt": _TEXT, "b/c.md": _TEXT, "d.jsonl": _RECORDS.map(lines), "e.jsonl": _RECORDS.map(lines)}
)


@settings(max_examples=4, phases=[Phase.explicit, Phase.generate])  # to shrink takes minutes
@given(states=st.lists(_CORPUS, min_size=1, max_size=3), n=st.integers(1, 4), deleted=st.integers(0, 12))
def test_any_corpus_and_its_changes(
    tmp_path_factory: pytest.TempPathFactory, states: list[dict[str, str]], n: int, deleted: int
) -> None:
    """Random files and records, some with one id, changed, deleted by hand, and gone."""
    folder = tmp_path_factory.mktemp("any")
    for number, files in enumerate(states):
        shutil.rmtree(folder / "corpus", ignore_errors=True)
        corpus = write(folder / "corpus", {"always.txt": f"state {number}", **files})
        ragidx.build(corpus, folder / "one", allow_removal=True)
        build_divided(corpus, n, folder / "stage", folder / "index", allow_removal=True)
        same(folder / "one", folder / "index")
        for name in ("one", "index"):
            with ragidx.Index(folder / name) as index:
                index.delete([f"d.jsonl#{deleted}"], missing="skip")
