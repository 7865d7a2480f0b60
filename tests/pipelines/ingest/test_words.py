"""The lines of chunks, and the lexical part of a build: which stemmer, or none, and what is said of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store import Store
from ragidx.retriever import contents

from ..conftest import Done

Run = Callable[..., Done]

GERMAN = "Die alte Mühle steht am Fluss, und der Müller mahlt dort mit seinen Söhnen das Korn für die Stadt. "
ENGLISH = "The old mill stands by the river, and the miller grinds the corn of the town there with his sons. "


@pytest.fixture
def corpus(folder: Path) -> Path:
    (folder / "corpus").mkdir()
    return folder / "corpus"


def lines_of(index: Path = Path("index")) -> dict[str, list[int | None]]:
    """The lines of the chunks of each document, in their order."""
    store = Store.open(index)
    found: dict[str, list[tuple[int, int | None]]] = {}
    for row in store.rows(range(store.n_rows)):
        found.setdefault(row.doc_id, []).append((row.start, row.line))
    return {name: [line for _, line in sorted(rows)] for name, rows in found.items()}


# lines


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.txt", b"The mill.\n", 1),
        ("a.txt", b"\n\n  The mill.\n", 3),
        ("a.txt", b"\r\n\r\nThe mill.\r\n", 3),
        ("a.txt", b"\r\rThe mill.\r", 3),
        ("a.txt", b"\xef\xbb\xbf\nThe mill.\n", 2),
        ("a.md", b"The mill.\n", 1),
        ("a.md", b"---\nyear: 1790\nsubject: x\n---\nThe mill.\n", 5),
        ("a.md", b"---\nyear: 1790\n---\n\n\nThe mill.\n", 6),
        ("a.md", b"---\nyear: 1790\n---\n\n# Top\n\nThe mill.\n", 5),
        ("a.rst", b"The mill\n========\n\nIt stands.\n", 1),
        ("a.rst", b":author: Ada\n:year: 1790\n\nThe mill stands.\n", 4),
        ("a.py", b"#!/usr/bin/python\n\ndef mill():\n    return 1\n", 1),
        ("a.html", b"<html><body>\n\n<p>The mill.</p></body></html>", None),
        ("a.jsonl", b'\n{"id": "x", "text": "The mill."}\n', 2),
        ("a.csv", b"text\nThe mill.\n", 2),
    ],
    ids=repr,
)
@pytest.mark.slow
def test_a_chunk_has_the_line_of_the_file_where_it_begins(
    name: str, data: bytes, expected: int | None, corpus: Path
) -> None:
    (corpus / name).write_bytes(data)

    ragidx.build(corpus, "index")

    ((line,),) = lines_of().values()
    assert line == expected


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [0, 12, 20])
@pytest.mark.parametrize("head", ["", "---\nyear: 1790\n---\n\n"])
def test_every_chunk_has_its_own_line_though_chunks_overlap(overlap: int, head: str, corpus: Path) -> None:
    body = "".join(f"Line {n} tells of {n * n} mills\n" for n in range(60))
    (corpus / "a.md").write_text(head + body)

    ragidx.build(corpus, "index", chunks=ragidx.ChunkSpec(size=32, overlap=overlap))

    rows = contents.rows(ragidx.Index("index").searcher.store, document="a.md")
    whole = (head + body).split("\n")
    assert len(rows) > 10
    assert any(after.start < before.end for before, after in itertools.pairwise(rows)) == (overlap > 0)
    for row in rows:
        assert row.line is not None
        assert whole[row.line - 1].endswith(row.text.split("\n")[0])
    assert [row.line for row in rows] == sorted(row.line or 0 for row in rows)


@pytest.mark.slow
def test_a_line_moves_with_its_text(corpus: Path) -> None:
    (corpus / "a.md").write_text("---\nyear: 1790\n---\nThe mill.\n")
    (corpus / "b.txt").write_text("The lake.\n")
    ragidx.build(corpus, "index")
    (corpus / "a.md").write_text("---\n# a note that is no field\nyear: 1790\n---\nThe mill.\n")
    (corpus / "b.txt").write_text("\n\nThe lake.\n")

    ragidx.build(corpus, "index")

    assert lines_of() == {"a.md": [5], "b.txt": [3]}


# the stemmer


@pytest.mark.parametrize(
    ("text", "options", "stemmer"),
    [
        (ENGLISH, {}, "english"),
        (GERMAN, {}, "german"),
        ("x = y + 1\n" * 20, {}, "none"),
        (ENGLISH, {"stemmer": "german"}, "german"),
        (ENGLISH, {"stemmer": "none"}, "none"),
        (GERMAN, {"stemmer": "auto"}, "german"),
    ],
)
@pytest.mark.slow
def test_the_language_of_the_texts_or_the_one_that_is_named_is_stemmed(
    text: str, options: dict[str, str], stemmer: str, corpus: Path
) -> None:
    (corpus / "a.txt").write_text(text)

    report = ragidx.build(corpus, "index", **options).report  # type: ignore[arg-type]

    assert report.lexical == LexicalSpec.of(stemmer)
    assert report.lexical_setting == options.get("stemmer", "auto")
    assert Store.open("index").manifest.lexical == report.lexical


@pytest.mark.slow
def test_a_word_is_found_by_its_stem(corpus: Path) -> None:
    (corpus / "a.txt").write_text(ENGLISH)
    (corpus / "b.txt").write_text("The tower of the town is white, and the lake is by the house of the man.")

    def found(**options: str) -> list[str]:
        ragidx.build(corpus, "index", **options)  # type: ignore[arg-type]
        return [hit.doc_id for hit in ragidx.Index("index").search("grinding mills", mode="lexical")]

    assert found() == ["a.txt"]
    assert found(stemmer="none") == []
    assert found(stemmer="english") == ["a.txt"]


@pytest.mark.slow
def test_the_words_of_a_files_path_are_found_and_those_of_files_of_records_are_not(corpus: Path) -> None:
    for name in ("health/dentist_visit.eml.txt", "health/knee.md", "v1.2 notes/list.md"):
        (corpus / name).parent.mkdir(exist_ok=True)
        (corpus / name).write_text("Tuesday at nine, second floor.")
    (corpus / "health" / "dentist.jsonl").write_text('{"text": "Tuesday."}\n{"text": "Nine."}\n')
    ragidx.build(corpus, "index")

    def found(question: str) -> list[str]:
        return sorted(hit.doc_id for hit in ragidx.Index("index").search(question, mode="lexical", fold=False))

    assert found("dentist") == ["health/dentist_visit.eml.txt"]
    assert found("health") == ["health/dentist_visit.eml.txt", "health/knee.md"]
    assert (found("notes"), found("list"), found("md")) == (["v1.2 notes/list.md"], ["v1.2 notes/list.md"], [])
    (corpus / "health" / "dentist_visit.eml.txt").rename(corpus / "health" / "later.txt")
    ragidx.build(corpus, "index")
    assert (found("dentist"), found("later")) == ([], ["health/later.txt"])


@pytest.mark.slow
def test_the_guess_is_made_once_and_another_stemmer_encodes_nothing_and_stays(corpus: Path) -> None:
    (corpus / "a.txt").write_text(ENGLISH)
    ragidx.build(corpus, "index")
    (corpus / "c.txt").write_text(GERMAN * 20)

    guessed = ragidx.build(corpus, "index").report
    other = ragidx.build(corpus, "index", stemmer="german").report
    later = ragidx.build(corpus, "index", lexical=True).report
    (corpus / "b.txt").write_text(ENGLISH * 2)
    more = ragidx.build(corpus, "index").report

    assert (guessed.committed, guessed.lexical) == (True, LexicalSpec.of("english"))
    assert later.lexical_setting == "german"
    assert (other.committed, other.n_encoded, other.lexical) == (True, 0, LexicalSpec.of("german"))
    assert (later.committed, more.committed, more.lexical) == (False, True, LexicalSpec.of("german"))


@pytest.mark.slow
@pytest.mark.parametrize("stemmer", ["auto", "none", "english", "german"])
def test_words_of_every_language_are_found_whatever_is_stemmed(stemmer: str, corpus: Path) -> None:
    texts = {"en": ENGLISH, "de": GERMAN, "ja": "東京タワーは赤い。", "ru": "Старая мельница стоит у реки."}
    for name, text in texts.items():
        (corpus / f"{name}.txt").write_text(text, encoding="utf-8")
    ragidx.build(corpus, "index", stemmer=stemmer)
    retriever = ragidx.Index("index")

    questions = {"en": "the miller's corn", "de": "MÜHLE am Fluss", "ja": "タワー", "ru": "мельница"}
    found = {name: retriever.search(asked, 1, mode="lexical")[0].doc_id for name, asked in questions.items()}

    assert found == {name: f"{name}.txt" for name in texts}


# no lexical part


@pytest.mark.slow
def test_the_lexical_part_goes_and_comes_without_encoding(corpus: Path) -> None:
    (corpus / "a.txt").write_text(ENGLISH)

    built, off, still, on = (
        ragidx.build(corpus, "index", **options).report  # type: ignore[arg-type]
        for options in ({}, {"lexical": False}, {}, {"lexical": True})
    )

    assert [(one.lexical is None, one.lexical_setting, one.committed) for one in (built, off, still, on)] == [
        (False, "auto", True),
        (True, "off", True),
        (True, "off", False),
        (False, "auto", True),
    ]
    assert (off.n_encoded, on.n_encoded) == (0, 0)
    assert ragidx.Index("index").search("mill")[0].bm25 is not None


def test_a_stemmer_without_a_lexical_part_is_refused(run: Run, corpus: Path) -> None:
    (corpus / "a.txt").write_text(ENGLISH)

    done = run("build", "corpus", "--stemmer", "english", "--no-lexical")

    assert done == (2, "", "Error: --stemmer: a stemmer is for the lexical part\n  hint: remove it, or --no-lexical\n")
    assert not Path("ragidx-index").exists()


def test_a_language_that_there_is_not_is_refused_before_anything_is_read(run: Run, corpus: Path) -> None:
    (corpus / "a.txt").write_text(ENGLISH)

    done = run("build", "corpus", "--stemmer", "germn")

    assert (done.status, done.out) == (2, "")
    first, hint = done.err.splitlines()
    assert first.endswith("unknown stemmer 'germn'; did you mean 'german'?")
    assert hint.startswith("  hint: known: arabic, ") or hint.startswith("  hint: known: auto, ")
    assert not Path("ragidx-index").exists()


# what is said


@pytest.mark.parametrize(
    ("text", "options", "words", "asked"),
    [
        (ENGLISH, (), "BM25, stemmed (english)", "auto"),
        (ENGLISH, ("--stemmer", "none"), "BM25, not stemmed", "none"),
        ("x = y", (), "BM25, not stemmed: no language is clear; --stemmer names one", "auto"),
        (ENGLISH, ("--no-lexical",), "none (--lexical adds them)", "off"),
    ],
)
@pytest.mark.slow
def test_the_row_of_words_says_how_they_are_searched(
    text: str, options: tuple[str, ...], words: str, asked: str, run: Run, corpus: Path
) -> None:
    (corpus / "a.txt").write_text(text)

    built = run("build", "corpus", *options)
    report = json.loads(run("build", "corpus", "--json").out)
    info = run("info")

    assert f"words      {words}\n" in built.out
    assert f"words        {words}\n" in info.out
    assert report["lexical_setting"] == asked
    assert (report["lexical"] is None) == (asked == "off")


def test_the_row_of_words_says_that_there_is_no_text(run: Run, folder: Path) -> None:
    np.save(folder / "v.npy", np.eye(2))

    built = run("build", "--vectors", "v.npy")

    assert "words      none: there is no text\n" in built.out
    assert "words        none: there is no text\n" in run("info").out
