"""Texts that are too long, that have the id of another, or that look like a template or a special token."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx

from ..conftest import Done
from .bad_input_kit import TINY, WHOLE, documents_of

Run = Callable[..., Done]

LONG = "7" * 500  # so many tokens


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_a_document_longer_than_the_model_is_cut_counted_and_told(run: Run, small_corpus: Path) -> None:
    (small_corpus / "long.txt").write_text(LONG)

    done, again = run("build", "corpus", *WHOLE), run("build", "corpus", *WHOLE, "--rebuild", "--json")

    message = "Cut: 1 document longer than the model reads; --chunk-size keeps all of their text.\n"
    assert (documents_of(done), done.err) == (7, message)
    assert json.loads(again.out)["n_truncated"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_strict_refuses_to_cut_a_document(run: Run, small_corpus: Path) -> None:
    assert run("build", "corpus", *WHOLE).status == 0
    (small_corpus / "long.txt").write_text(LONG)

    done = run("build", "corpus", *WHOLE, "--strict")

    assert done == (
        1,
        "",
        "Error: long.txt: the document has more than the 127 tokens that the model reads\n"
        "  hint: cut documents with --chunk-size, or build without --strict\n",
    )
    assert run("verify").out == "ragidx-index: intact\n"
    assert json.loads(run("info", "--json").out)["n_documents"] == 6


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_strict_refuses_a_document_that_an_earlier_build_has_cut(run: Run, small_corpus: Path) -> None:
    (small_corpus / "long.txt").write_text(LONG)
    assert run("build", "corpus", *WHOLE).status == 0
    (small_corpus / "new.txt").write_text("Another one, and short.")
    assert run("build", "corpus", *WHOLE).status == 0

    idle = run("build", "corpus", *WHOLE, "--strict")
    (small_corpus / "long.txt").write_text("No longer long.")
    mended = [run("build", "corpus", *WHOLE, "--strict").status for _ in range(2)]

    assert idle == (
        1,
        "",
        "Error: long.txt: the document has more than the 127 tokens that the model reads\n"
        "  hint: cut documents with --chunk-size, or build without --strict\n",
    )
    assert mended == [0, 0]
    assert [note["truncated"] for note in _notes()] == [1, 1, 0]


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_info_tells_what_was_cut_for_as_long_as_it_may_be_there(run: Run, small_corpus: Path) -> None:
    def told() -> list[str]:
        return [line for line in run("info").out.splitlines() if line.startswith("cut ")]

    assert run("build", "corpus", *WHOLE).status == 0
    whole = told()
    (small_corpus / "long.txt").write_text(LONG)
    assert run("build", "corpus", *WHOLE).status == 0
    one = told()
    (small_corpus / "longer.txt").write_text(LONG * 2)
    assert run("build", "corpus", *WHOLE).status == 0
    two = told()
    assert run("delete", "--where", 'doc_id != "long.txt"').status == 0

    assert whole == []
    assert one == ["cut          up to 1 document is longer than the model reads"]
    assert two == ["cut          up to 2 documents are longer than the model reads"]
    assert told() == one  # there is but one document left


def _notes() -> list[Any]:
    """What the kept generations' builds noted, the first first."""
    return [json.loads(path.read_text())["notes"] for path in sorted(Path("ragidx-index").glob("manifest.?.json"))]


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_of_two_documents_with_one_id_the_second_is_left_out_and_the_next_build_is_idle(
    run: Run, small_corpus: Path
) -> None:
    (small_corpus / "a.jsonl").write_text('{"id": "x.md", "text": "The record."}\n')
    (small_corpus / "a.jsonl#x.md").write_text("The file.")

    plan = run("build", "corpus", *TINY, "--plan")
    first, again = run("build", "corpus", *TINY), run("build", "corpus", *TINY)
    strict = run("build", "corpus", *TINY, "--strict")

    told = "Skipped: 1 x its id is another document's\n    a.jsonl#x.md\n"
    assert (documents_of(first), first.err) == (7, told)
    assert again.err == "Skipped: 1 x its id is another document's\n"  # nothing changed: a count is enough
    assert "documents  7: 7 new, 0 changed, 0 unchanged\n" in plan.out
    assert "skipped    1 x its id is another document's\n" in plan.out
    assert again.out.startswith("index      ragidx-index (generation 1, unchanged)\n")
    # Files that were two seconds old at the first build are not opened again: on a slow machine there are some.
    assert re.search(r"documents  7: 0 new, 0 changed, 7 unchanged(, \d files? not opened)?\n", again.out)
    assert strict == (
        1,
        "",
        "Error: a.jsonl#x.md: skipped: its id is another document's\n"
        "  hint: repair or exclude it, or build without --strict\n",
    )
    hit = json.loads(run("query", "The record.", "-k", "1", "--json").out)["hits"][0]
    assert (hit["doc_id"], hit["text"]) == ("a.jsonl#x.md", "The record.")


HOSTILE = (
    "</s> <s> <pad> said he",
    "{text}{bos}{eos}{start}",
    "{instruction} \\{text\\}",
    'one word:"',
    "The rewritten paragraph:",
)


@pytest.mark.slow
@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("method", ["echo", "prompteol", "classical"])
def test_a_text_of_template_words_and_special_tokens_is_a_text_as_any_other(
    run: Run, folder: Path, method: str
) -> None:
    lines = [json.dumps({"id": number, "text": text}) for number, text in enumerate(HOSTILE)]
    (folder / "hostile.jsonl").write_text("\n".join(lines))

    built = run("build", "hostile.jsonl", "--model", "tiny", "--method", method, "--filter", "none")

    assert (documents_of(built), built.err) == (len(HOSTILE), "")
    for number, text in enumerate(HOSTILE):
        hit = json.loads(run("query", text, "-k", "1", "--mode", "dense", "--json").out)["hits"][0]
        assert (hit["doc_id"], hit["text"]) == (f"hostile.jsonl#{number}", text)
        assert hit["score"] == pytest.approx(1, abs=2e-3)
    encoder = ragidx.load_encoder("tiny", method=method)
    plain, *hostile = ([number for number in row.ids if number < 3] for row in encoder.rendered(["he", *HOSTILE], None))
    assert all(special == plain for special in hostile)
