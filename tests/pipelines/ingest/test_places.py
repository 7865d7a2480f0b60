"""Where a chunk is in its file: pages and lines of hits, and what follows when they move."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import ragidx
from ragidx.corpora.chunking import Chunker
from ragidx.corpora.records import Document, Place
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.store import Store
from ragidx.indexer.store.rows import COLUMNS, RowBatch, arrays_of
from ragidx.pipelines.ingest import file_cache
from ragidx.pipelines.ingest.workers.chunks import Cutter, Draft
from ragidx.pipelines.ingest.workers.files import document_hash
from ragidx.retriever.hit import Hit

from ...corpora.fuzz.office_files import pdf
from ..conftest import Done

Run = Callable[..., Done]


def pages_of(index: Path) -> list[tuple[str, int | None]]:
    store = Store.open(index)
    rows = store.rows(range(store.n_rows))
    return [(row.text, row.page) for row in sorted(rows, key=lambda row: row.start)]


@pytest.mark.slow
def test_a_hit_knows_the_page_on_which_it_begins(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2", reason="needs the extra 'docs'")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    pages = [[f"The {name} is a lake.", "It is deep, and it is cold."] for name in ("Baikal", "Vostok", "Tahoe")]
    (corpus / "a.pdf").write_bytes(pdf(pages))

    ragidx.build(corpus, tmp_path / "index", chunks=ragidx.ChunkSpec(size=8))

    found = pages_of(tmp_path / "index")
    assert {page for text, page in found if "lake" in text} == {1, 2, 3}
    assert [page for _, page in found] == sorted(page or 0 for _, page in found)
    (hit,) = ragidx.Index(tmp_path / "index").search("Vostok lake", 1, mode="lexical")
    assert (hit.page, hit.line) == (2, None)

    ragidx.build(corpus, tmp_path / "index", chunks=ragidx.ChunkSpec(size=200), rebuild=True)

    (hit,) = ragidx.Index(tmp_path / "index").search("Vostok lake", 1)
    assert (hit.page, hit.position(hit.text.index("Vostok"))) == (1, (None, 2))
    assert hit.position(hit.text.index("Tahoe")) == (None, 3)


def test_the_place_of_a_chunk_is_that_of_its_first_character() -> None:
    document = Document("a", "one\ntwo\nthree\nfour", line=5, places=(Place(4, page=2), Place(8, line=40)))

    assert list(document.positions([0, 3, 4, 8, 14])) == [(5, None), (5, None), (6, 2), (40, 2), (41, 2)]


PLACED = (
    Document("a", "one\ntwo\nthree\nfour", line=5, places=(Place(4, page=2), Place(8, line=40))),
    Document("a", "one\ntwo\nthree\nfour", line=5),
    Document("a", "one\ntwo\nthree\nfour", places=(Place(0, page=1), Place(8, page=2), Place(14, page=4))),
    Document("a", "one\ntwo\nthree\nfour", parts=(Place(0, line=5), Place(8, line=9, page=2))),
    Document("a", "one\ntwo\nthree\nfour"),
)


@pytest.mark.parametrize("document", PLACED)
@pytest.mark.parametrize("size", [1, 2, 3, 200])
def test_a_hit_knows_the_place_of_each_of_its_characters(document: Document, size: int) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    cutter = Cutter(lambda: Chunker(ChunkSpec(size=size), tokenizer, limit=200))

    for item in cutter.cut(Draft(document.id, b"h" * 16, len(document.text), document=document)):
        row = RowBatch(pa.record_batch(arrays_of([item.row])[0], COLUMNS), ()).row(0).row()
        hit = Hit(1, 1.0, row.text, "a", "a:0", row.start, row.end, line=row.line, page=row.page, turns=row.turns)
        offsets = range(len(row.text))
        assert [hit.position(at) for at in offsets] == list(document.positions(row.start + at for at in offsets))
        assert "turns" not in hit.to_json()


def test_the_place_that_is_shown_is_that_of_the_passage(tmp_path: Path, run: Run) -> None:
    quiet = [f"10:0{n}:00 INFO nothing to report from the worker of part {n}" for n in range(10)]
    (tmp_path / "app.log").write_text("\n".join([*quiet, "11:00:00 ERROR PAY_DECLINED_0x3F", *quiet]))
    ragidx.build(tmp_path / "app.log", tmp_path / "index")

    shown = run("query", "PAY_DECLINED_0x3F", "--index", tmp_path / "index").out
    hit = json.loads(run("query", "PAY_DECLINED_0x3F", "--index", tmp_path / "index", "--json").out)["hits"][0]

    line = hit["passage"]["line"]
    assert hit["line"] == 1
    assert f"  app.log:{line}\n" in shown
    assert hit["passage"]["text"].startswith(f"… {[*quiet, '11:00:00 ERROR PAY_DECLINED_0x3F'][line - 1]}")
    assert hit["passage"]["page"] is None


def test_a_document_is_another_one_when_its_pages_move() -> None:
    plain = Document("a", "one two")
    places = [(), (Place(0, page=1),), (Place(0, page=2),), (Place(4, page=1),), (Place(0, line=1),)]

    hashes = {document_hash(dataclasses.replace(plain, places=each)) for each in places}

    assert len(hashes) == len(places)


def test_all_of_a_record_has_the_line_on_which_it_begins() -> None:
    document = Document("a", "one\ntwo\nthree", parts=(Place(0, line=5), Place(8, line=9, page=2)))

    assert list(document.positions([0, 4, 8, 12])) == [(5, None), (5, None), (9, 2), (9, 2)]
    assert document == dataclasses.replace(document, parts=())
    assert document_hash(document) == document_hash(dataclasses.replace(document, parts=()))


CSV = b'id,note\r\n1,"The mill\r\nstands."\r\n\r\n2,Bees dance.\r\n'
LINES = b'{"id": 1, "text": "The mill.\\n\\nIt stands."}\n\nbroken\n{"id": 2, "text": "Bees dance."}'


@pytest.mark.slow
def test_the_hits_of_records_have_their_lines_and_those_of_beir_none(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.csv").write_bytes(CSV)
    (corpus / "b.jsonl").write_bytes(LINES)
    (corpus / "c.json").write_text('[{"id": 1, "text": "Ants walk."}]')
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    (beir / "corpus.jsonl").write_text('{"_id": "7", "title": "", "text": "Ants walk."}\n')

    ragidx.build(corpus, "index", chunks=ragidx.ChunkSpec(size=3), text_field="*.csv=note")
    ragidx.build(beir, "other")

    store = Store.open("index")
    found = [(row.doc_id, row.line) for row in store.rows(range(store.n_rows))]
    assert dict(found) == {"a.csv#1": 2, "a.csv#2": 5, "b.jsonl#1": 1, "b.jsonl#2": 4, "c.json#1": None}
    assert len(found) > 5  # a record of two lines is cut, and all of it has the line on which it begins
    assert len(set(found)) == 5
    (hit,) = ragidx.Index("other").search("ants", 1)
    assert (hit.doc_id, hit.line) == ("7", None)
    assert "  a.csv#2:5\n" in run("query", "bees", "--index", "index").out


# the file of a document


def metadata_of(index: Path) -> dict[str, dict[str, object]]:
    """Metadata of each document."""
    store = Store.open(index)
    rows = store.rows(range(store.n_rows))
    return {row.doc_id: dict(row.metadata) for row in rows}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus" / "docs"
    folder.mkdir(parents=True)
    (folder / "Mill.TXT").write_text("The mill stands by the river.")
    (folder / "rows.jsonl").write_text('{"id": "a", "text": "A tower.", "file.ext": "own", "year": 1790}\n')
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        archive.writestr("b/lease.md", "A lease of ten years.")
    for path in folder.iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return folder.parent


@pytest.mark.slow
def test_every_document_has_the_fields_of_its_file(corpus: Path, tmp_path: Path) -> None:
    ragidx.build(corpus, tmp_path / "index")

    modified = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert metadata_of(tmp_path / "index") == {
        "docs/Mill.TXT": {
            "file.path": "docs/Mill.TXT",
            "file.name": "Mill.TXT",
            "file.ext": ".txt",
            "file.folder": "docs",
            "file.size": 29,
            "file.modified": modified,
        },
        "docs/rows.jsonl#a": {
            "year": 1790,
            "metadata.file.ext": "own",
            "file.path": "docs/rows.jsonl",
            "file.name": "rows.jsonl",
            "file.ext": ".jsonl",
            "file.folder": "docs",
            "file.size": 65,
            "file.modified": modified,
        },
        "docs/x.zip/b/lease.md": {
            "file.path": "docs/x.zip/b/lease.md",
            "file.name": "lease.md",
            "file.ext": ".md",
            "file.folder": "docs/x.zip/b",
            "file.size": 21,
            "file.modified": modified,
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ('file.ext == ".txt"', ["docs/Mill.TXT"]),
        ('file.folder starts with "docs/x.zip"', ["docs/x.zip/b/lease.md"]),
        ('metadata.file.ext == "own"', ["docs/rows.jsonl#a"]),
        ('file.size < 25 and file.modified >= "2023-11-14"', ["docs/x.zip/b/lease.md"]),
    ],
)
def test_conditions_ask_for_the_file(corpus: Path, tmp_path: Path, where: str, expected: list[str]) -> None:
    ragidx.build(corpus, tmp_path / "index")

    hits = ragidx.Index(tmp_path / "index").search("mill tower lease", where=where)

    assert [hit.doc_id for hit in hits] == expected


@pytest.mark.slow
def test_an_archive_with_hidden_members_is_not_opened_again(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(corpus / "docs" / "x.zip", "a") as archive:
        archive.writestr("__MACOSX/b/._lease.md", "x")
    for path in (corpus / "docs").iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    monkeypatch.setattr(file_cache, "_SETTLED_NS", 0)
    time.sleep(0.05)

    first = ragidx.build(corpus, tmp_path / "index").report
    second = ragidx.build(corpus, tmp_path / "index").report

    assert first.skipped == {"hidden": 1}
    assert (second.n_files_unopened, second.n_unchanged) == (3, 3)


@pytest.mark.slow
def test_the_time_of_a_file_follows_its_content(corpus: Path, tmp_path: Path) -> None:
    ragidx.build(corpus, tmp_path / "index")
    path = corpus / "docs" / "Mill.TXT"
    path.write_text("The mill stands by the sea.")
    os.utime(path, (1_800_000_000, 1_800_000_000))

    ragidx.build(corpus, tmp_path / "index")

    found = metadata_of(tmp_path / "index")
    assert found["docs/Mill.TXT"]["file.modified"] == datetime(2027, 1, 15, 8, tzinfo=UTC)
    assert found["docs/Mill.TXT"]["file.size"] == 27
    assert found["docs/rows.jsonl#a"]["file.modified"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
