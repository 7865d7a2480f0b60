"""A corpus or a document that cannot be read: an error, or left out and counted, and `--strict` ends with status 1."""

from __future__ import annotations

import json
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


# one document of many


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "n_read", "told"),
    [
        ("a.xyz", bytes(range(256)), 0, "1 x binary file of unknown format '.xyz'\n    a.xyz"),
        ("a.txt", b"", 0, "1 x empty file"),
        (
            "a.jsonl",
            b'{"text": "one"}\n[1]\n{"text": "\xc3\xa9\xff"}\n',
            1,
            "1 x not a JSON object\n    a.jsonl:2\nSkipped: 1 x broken UTF-8\n    a.jsonl:3: byte 12",
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
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="address space is limited as on Linux")
@pytest.mark.usefixtures("model")
def test_a_text_of_one_line_of_30_mb_is_read_in_bounded_memory(run_process: Run, small_corpus: Path) -> None:
    with (small_corpus / "a.txt").open("wb") as file:
        file.write(b"word " * (6 * MIB))
    code = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({5 << 30}, {5 << 30}))\n"
        "from ragidx.pipelines.cli.main import main\n"
        "main(sys.argv[1:])"
    )

    done = run_process("build", "corpus", *WHOLE, "--json", code=code)

    assert (done.status, json.loads(done.err.splitlines()[-1])["progress"]["last"]) == (0, True)
    report = json.loads(done.out)
    assert (report["n_documents"], report["n_truncated"]) == (7, 1)


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
