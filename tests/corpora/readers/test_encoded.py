"""Runs of encoded data are left out of texts and counted, code that no person wrote is not read, and prose stays."""

from __future__ import annotations

import base64
import hashlib
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.readers.encoded import without_runs
from ragidx.corpora.records import Document, Place

from ..conftest import ReadBytes, plant, reading, walk

DATA = random.Random(5).randbytes(600)
BASE64 = base64.b64encode(DATA).decode()
LINES = base64.encodebytes(DATA).decode().rstrip("\n")


@pytest.mark.parametrize(
    "run", [BASE64, LINES, DATA.hex(), DATA.hex().upper()], ids=["one line", "lines", "hex", "HEX"]
)
def test_a_run_is_left_out_and_counted_and_lines_keep_their_numbers(read_bytes: ReadBytes, run: str) -> None:
    found = read_bytes("a.txt", f"The key:\n{run}\nis on the pier.\n")

    newlines = "\n" * (run.count("\n") + 2)
    assert found.texts == [f"The key:{newlines}is on the pier.\n"]
    assert found.kinds == {"runs of encoded data": 1}
    assert found.skips == []


@pytest.mark.parametrize("name", ["a.md", "a.html", "a.jsonl", "a.csv", "a.unknown", "a.srt"])
def test_runs_are_left_out_of_any_format(read_bytes: ReadBytes, name: str) -> None:
    frames = {
        "a.jsonl": '{"text": "Pier RUN mill"}',
        "a.csv": "text\nPier RUN mill\n",
        "a.srt": "1\n00:00:01,000 --> 00:00:02,000\nPier RUN mill\n",
    }

    found = read_bytes(name, frames.get(name, "Pier RUN mill").replace("RUN", BASE64))

    assert found.texts[0].split() == ["Pier", "mill"]
    assert found.kinds == {"runs of encoded data": 1}


def test_a_picture_within_a_page_of_markdown_is_left_out(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.md", f"![map](data:image/png;base64,{BASE64[:80]}) of the pier")

    assert found.texts == ["![map](data:image/png;base64,) of the pier"]


def test_a_file_of_encoded_data_alone_is_skipped_by_rule(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.txt", f"{LINES}\n")

    assert (found.documents, found.reasons) == ([], [("a.txt", "encoded data alone")])


WORDS = ["pier", "Heron", "über", "lock", "mill", "7", "1842", "NET-17", "東京", "e.g.", "a/b", "x_y"]
HASHES = "\n".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(9))


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/" + "/".join(["archive2024", "Reports", "Harbour"] * 12),
        f"https://example.org/view?state={BASE64}",
        "see https://example.org/a/" + BASE64.replace("+", "x"),
        "東京都の港" * 100,
        "ท่าเรือเก่า" * 60,
        "ACGTTGCA" * 60,
        "MKTAYIAKQRQISFVKSHFSRQ" * 20,
        HASHES,
        "\n".join(f"{line}  file{number}.bin" for number, line in enumerate(HASHES.split())),
        hashlib.sha512(b"x").hexdigest(),
        "3.14159" + "2653589793238462643383279502884197" * 9,
        "(2S,5R,6R)-3,3-dimethyl-7-oxo-6-[(phenylacetyl)amino]-4-thia-1-azabicyclo[3.2.0]heptane-2-carboxylic" * 3,
        "CC(=O)OC1=CC=CC=C1C(=O)O" * 12,
        "=" * 300 + "\n" + "-" * 300 + "\n" + "A" * 300,
        "Donaudampfschifffahrtselektrizitaetenhauptbetriebswerkbauunterbeamtengesellschaft" * 4,
        "ThisIsTheNameOfAVeryLongClassInTheHarbourModule" * 6,
        "/usr/lib/python3/Site/Packages/Harbour2/Mill/Lock" * 8,
        "\n".join(["x" * 70] * 9),
        BASE64[:150],
    ],
)
def test_what_looks_a_little_like_encoded_data_stays(text: str) -> None:
    document = Document("a", f"Before {text} after")

    assert without_runs(document) == (document, 0)
    assert without_runs(Document("a", text)) == (Document("a", text), 0)


@given(st.lists(st.sampled_from([*WORDS, "RUN"]), max_size=12), st.integers(0, 99))
def test_places_move_with_the_text(words: list[str], seed: int) -> None:
    run = base64.b64encode(random.Random(seed).randbytes(300)).decode()
    text, places = "", []
    for number, word in enumerate(words):
        places.append(Place(len(text), page=number))
        text += (run if word == "RUN" else word) + "\n"

    found, n_runs = without_runs(Document("a", text, places=tuple(places)))

    lines = ["" if word == "RUN" else word for word in words]
    assert found.text == "".join(f"{line}\n" for line in lines)
    assert n_runs == words.count("RUN")
    assert [found.text[place.offset :].partition("\n")[0] for place in found.places] == lines


def test_places_within_a_run_or_behind_the_text_stay_inside() -> None:
    text = f"One\n{LINES}"
    places = tuple(Place(at, page=at) for at in (0, 4, 100, len(text) - 1))

    found, n_runs = without_runs(Document("a", text, places=places))
    behind, _ = without_runs(Document("a", f"{text} two", places=(*places, Place(len(text) + 1, page=7))))

    assert (n_runs, found.text) == (1, "One\n" + "\n" * LINES.count("\n"))
    assert all(0 <= place.offset < len(found.text) for place in found.places)
    assert behind.text[behind.places[-1].offset :] == "two" or not behind.places


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.go", "// Code generated by protoc-gen-go. DO NOT EDIT.\npackage a\n", "generated code"),
        ("a_pb2.py", "# coding: utf-8\n# Generated by the protocol buffer compiler.  DO NOT EDIT!\n", "generated code"),
        ("a.ts", "/**\n * @generated SignedSource<<1>>\n */\n", "generated code"),
        ("a.js", "var a=function(){return 1};" * 400, "minified code"),
        ("a.css", "a{color:red}" * 600, "minified code"),
    ],
)  # fmt: skip
def test_code_that_no_person_wrote_is_skipped_by_rule(read_bytes: ReadBytes, name: str, text: str, reason: str) -> None:
    assert read_bytes(name, text).reasons == [(name, reason)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "# Generated by the office. Do not edit this list.\n"),
        ("a.md", "// Code generated by x. DO NOT EDIT.\n"),
        ("a.py", "x = 'generated, do not edit'\n"),
        ("a.py", "# The parser is generated from the grammar.\n# Do not edit it by hand.\n"),
        ("a.js", "const lines = 1;\n" * 900),
        ("a.txt", "words and words " * 900),
    ],
)
def test_what_a_person_wrote_is_read(read_bytes: ReadBytes, name: str, text: str) -> None:
    assert len(read_bytes(name, text).documents) == 1


def test_lock_files_and_minified_files_are_left_out_by_name_unless_included(tmp_path: Path) -> None:
    plant(tmp_path, "a.md", "package-lock.json", "sub/Cargo.lock", "go.sum", "a.min.js", "a.js.map", "my.lock", "b.md")

    names, reasons = walk(tmp_path)
    included, _ = walk(tmp_path, include=["*.lock", "*.md"])

    assert names == ["a.md", "b.md", "my.lock"]
    assert reasons == {
        **dict.fromkeys(("package-lock.json", "sub/Cargo.lock", "go.sum"), "lock file of a package manager"),
        **dict.fromkeys(("a.min.js", "a.js.map"), "minified code"),
    }
    assert included == ["a.md", "b.md", "my.lock", "sub/Cargo.lock"]


def test_texts_of_a_judged_collection_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "x"}\n')
    (tmp_path / "corpus.jsonl").write_text(f'{{"_id": "1", "text": "{BASE64}"}}\n')

    assert reading(tmp_path).texts == [BASE64]
