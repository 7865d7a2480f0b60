"""A corpus or a document that cannot be read: an error, or left out and counted, and `--strict` ends with status 1."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Done
from .bad_input_kit import TINY, WHOLE, check_still_answers, documents_of

Run = Callable[..., Done]

MIB = 1 << 20


# the corpus as a whole


@pytest.mark.slow
def test_an_empty_folder_is_an_error(run: Run, folder: Path) -> None:
    (folder / "empty").mkdir()

    assert run("build", "empty") == (
        2,
        "",
        "Error: empty: the corpus is empty: there is no file in it\n  hint: name a folder with documents\n",
    )


@pytest.mark.slow
def test_a_corpus_without_a_readable_document_is_an_error_that_counts_the_reasons(run: Run, folder: Path) -> None:
    (folder / "nothing").mkdir()
    (folder / "nothing" / "a.txt").write_bytes(b"\0" * 5000)
    (folder / "nothing" / "b.txt").write_text(" \n")
    (folder / "nothing" / "c.txt").write_bytes(b"\0" * 100)

    assert run("build", "nothing") == (
        2,
        "",
        "Error: nothing: the corpus has no readable document (2 x binary file; 1 x empty text; first: a.txt)\n"
        "  hint: see `ragidx build --help` for the formats; --include and --exclude choose files\n",
    )


@pytest.mark.slow
def test_a_broken_file_as_the_corpus_is_an_error_with_its_cause(run: Run, folder: Path) -> None:
    (folder / "a.json").write_text('{"text": ')

    done = run("build", "a.json")

    assert (done.status, done.out) == (2, "")
    assert done.err == (
        "Error: a.json: the corpus has no readable document (1 x not valid JSON; first: a.json: "
        "Expecting value, column 10)\n"
        "  hint: see `ragidx build --help` for the formats; --include and --exclude choose files\n"
    )


@pytest.mark.slow
def test_a_corpus_that_is_not_there_is_an_error(run: Run) -> None:
    assert run("build", "nowhere") == (
        2,
        "",
        "Error: nowhere: cannot be opened: No such file or directory\n"
        "  hint: give a folder, a file, or - for standard input\n",
    )


@pytest.mark.slow
def test_an_empty_standard_input_is_an_error(run: Run) -> None:
    assert run("build", "-", stdin=b"") == (
        2,
        "",
        "Error: -: the corpus has no readable document (1 x empty text; first: -)\n"
        "  hint: see `ragidx build --help` for the formats; --include and --exclude choose files\n",
    )


@pytest.mark.slow
def test_a_corpus_that_has_become_empty_leaves_the_index_as_it_was(run: Run, index: Path) -> None:
    shutil.rmtree("corpus")
    Path("corpus").mkdir()

    assert run("build", "corpus") == (
        2,
        "",
        "Error: corpus: the corpus is empty: there is no file in it\n"
        "  hint: name a folder with documents; the index is unchanged, to empty it use `ragidx delete`\n",
    )
    check_still_answers(run)


# one document of many

CAFE = "café "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "n_read", "told"),
    [
        ("a.xyz", bytes(range(256)), 0, "1 x binary file of unknown format '.xyz'\n    a.xyz"),
        ("a.txt", CAFE.encode() * 5 + b"\xff", 0, "1 x broken UTF-8\n    a.txt: byte 30"),
        ("a.txt", b"\0" * 5000, 0, "1 x binary file\n    a.txt"),
        ("a.txt", "words".encode("utf-16-le"), 0, "1 x binary file\n    a.txt"),
        ("a.txt", b"", 0, "1 x empty file"),
        (
            "a.jsonl",
            '{"text": "words"}\n'.encode("utf-16"),
            0,
            "1 x JSON Lines in UTF-16\n    a.jsonl: convert the file to UTF-8",
        ),
        (
            "a.jsonl",
            b'{"text": "one"}\n{"text": \n{"text": "three"}\n',
            2,
            "1 x not valid JSON\n    a.jsonl:2: Expecting value, column 10",
        ),
        (
            "a.jsonl",
            b'{"text": "one"}\n[1]\n{"text": "\xff"}\n',
            1,
            "1 x not a JSON object\n    a.jsonl:2\nSkipped: 1 x broken UTF-8\n    a.jsonl:3: byte 10",
        ),
        (
            "a.jsonl",
            b'{"text": ""}\n{"text": 5}\n',
            0,
            "1 x empty text\n    a.jsonl:1\nSkipped: 1 x the field 'text' is not text but a number\n    a.jsonl:2",
        ),
        (
            "a.jsonl",
            b'{"id": "a:b", "text": "one"}\n{"id": "a:b", "text": "two"}\n{"id": 3, "text": "three"}\n'
            b'{"id": "3", "text": "four"}\n',
            2,
            "2 x its id was seen before in this file\n    a.jsonl:2: 'a:b'\n    a.jsonl:4: '3'",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 10 else "",
)
@pytest.mark.usefixtures("model")
def test_what_cannot_be_read_is_left_out_and_told(
    run: Run, small_corpus: Path, name: str, data: bytes, n_read: int, told: str
) -> None:
    (small_corpus / name).write_bytes(data)

    done = run("build", "corpus", *TINY)

    assert documents_of(done) == 6 + n_read
    assert done.err == f"Skipped: {told}\n"


@pytest.mark.usefixtures("model")
def test_a_text_field_that_is_not_there_is_left_out_and_told(run: Run, small_corpus: Path) -> None:
    (small_corpus / "a.jsonl").write_text('{"id": 1, "words": "one"}\n{"id": 2, "words": "two"}\n')

    done = run("build", "corpus", *TINY, "--text-field", "*.jsonl=text")

    assert documents_of(done) == 6
    assert done.err == (
        "Skipped: 2 x the field 'text' is missing (found: 'id', 'words'); say which one to read with --text-field\n"
        "    a.jsonl:1\n    a.jsonl:2\n"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_a_broken_pdf_is_left_out_and_told(run: Run, small_corpus: Path) -> None:
    (small_corpus / "a.pdf").write_bytes(b"%PDF-1.7\n garbage \xff\xfe")

    done = run("build", "corpus", *TINY)

    assert documents_of(done) == 6
    assert re.fullmatch(r"Skipped: 1 x cannot be converted\n    a\.pdf: \w+: \S.*\n", done.err)


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_a_line_of_json_of_100_mb_is_left_out_and_its_neighbours_are_read(run: Run, small_corpus: Path) -> None:
    with (small_corpus / "a.jsonl").open("wb") as file:
        file.write(b'{"text": "one"}\n{"text": "' + b"word " * (20 * MIB) + b'"}\n{"text": "three"}\n')

    done = run("build", "corpus", *TINY)

    assert documents_of(done) == 8
    assert done.err == "Skipped: 1 x a line of more than 64 MiB\n    a.jsonl:2\n"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="address space is limited as on Linux")
@pytest.mark.usefixtures("model")
def test_a_text_of_one_line_of_100_mb_is_read_in_bounded_memory(run_process: Run, small_corpus: Path) -> None:
    with (small_corpus / "a.txt").open("wb") as file:
        file.write(b"word " * (20 * MIB))
    code = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({8 << 30}, {8 << 30}))\n"
        "from ragidx.pipelines.cli.main import main\n"
        "main(sys.argv[1:])"
    )

    done = run_process("build", "corpus", *WHOLE, "--json", code=code)

    assert (done.status, json.loads(done.err.splitlines()[-1])["progress"]["last"]) == (0, True)
    report = json.loads(done.out)
    assert (report["n_documents"], report["n_truncated"]) == (7, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_a_text_in_utf_16_with_its_mark_is_read(run: Run, small_corpus: Path) -> None:
    text = "Zebras graze where the grass is high."
    (small_corpus / "a.txt").write_bytes(text.encode("utf-16"))

    assert run("build", "corpus", *TINY).err == ""

    hit = json.loads(run("query", text, "-k", "1", "--json").out)["hits"][0]
    assert (hit["doc_id"], hit["text"]) == ("a.txt", text)


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_a_line_separator_inside_a_line_of_json_is_text(run: Run, small_corpus: Path) -> None:
    text = "Zebras graze\u2028where the grass is high."
    (small_corpus / "a.jsonl").write_text(json.dumps({"id": "z", "text": text}, ensure_ascii=False), encoding="utf-8")

    built = run("build", "corpus", *TINY)

    assert (documents_of(built), built.err) == (7, "")
    hit = json.loads(run("query", text, "-k", "1", "--json").out)["hits"][0]
    assert (hit["doc_id"], hit["text"]) == ("a.jsonl#z", text)
    shown = run("query", text, "-k", "1").out.splitlines()[2:]
    assert [line.strip() for line in shown] == ["Zebras graze", "where the grass is high."]


def test_strict_ends_at_the_first_thing_left_out(run: Run, index: Path) -> None:
    Path("corpus/a.xyz").write_bytes(bytes(range(256)))

    done = run("build", "corpus", "--strict")

    assert done == (
        1,
        "",
        "Error: a.xyz: skipped: binary file of unknown format '.xyz'\n"
        "  hint: repair or exclude it, or build without --strict\n",
    )
    check_still_answers(run)


@pytest.mark.usefixtures("model")
def test_strict_does_not_mind_what_the_user_wants_left_out(run: Run, small_corpus: Path) -> None:
    (small_corpus / "a.xyz").write_bytes(bytes(range(256)))
    (small_corpus / ".hidden").write_text("A note.")
    (small_corpus / ".gitignore").write_text("*.log\n")
    (small_corpus / "a.log").write_text("A line.")

    done = run("build", "corpus", *TINY, "--strict", "--exclude", "*.xyz")  # what the hint above says

    assert documents_of(done) == 6


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--plan",)])
def test_a_reason_names_options_in_every_form_of_output_and_leaves_quotations_alone(
    run: Run, folder: Path, more: tuple[str, ...]
) -> None:
    reason = "the field 'text_field' is missing (found: '`dim`'); say which one to read with --text-field"
    (folder / "corpus").mkdir()
    (folder / "corpus/a.jsonl").write_text('{"`dim`": "bees"}\n')
    (folder / "corpus/b.txt").write_text("bees")

    done = run("build", "corpus", "--text-field", "text_field", *more, "--json")

    assert json.loads(done.out)["skipped"] == {reason: 1}
    done = run("build", "corpus", "--text-field", "text_field", *more)
    assert f"1 x {reason}" in done.out + done.err
