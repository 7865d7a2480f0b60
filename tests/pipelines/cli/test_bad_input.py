"""What users get wrong: one clear block on standard error, exit status 2, nothing lost, and no traceback.

One document of many that cannot be read is left out and counted instead; `--strict` then ends the build with status 1.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.indexer.store.lock import Lock

from ..conftest import Done

Run = Callable[..., Done]

QUESTION = "The lease of the house by the lake was signed by Ada Lovelace in 1840."  # lease.txt itself
TINY = ("--model", "tiny", "--method", "classical")
MIB = 1 << 20


def _documents(done: Done) -> int:
    """How many documents a build that went well has read."""
    assert done.status == 0
    found = re.search(r"^documents  ([\d,]+):", done.out, re.MULTILINE)
    assert found
    return int(found[1].replace(",", ""))


def _check_still_answers(run: Run, index: str = "ragidx-index") -> None:
    """The index is what it was: whole, of the first generation, and good for a question."""
    assert run("verify", "--index", index) == (0, f"{index}: whole\n", "")
    assert json.loads(run("info", "--index", index, "--json").out)["generation"] == 1
    answer = json.loads(run("query", QUESTION, "-k", "1", "--index", index, "--json").out)
    assert answer["hits"][0]["doc_id"] == "lease.txt"


# the corpus as a whole


def test_an_empty_folder_is_an_error(run: Run, folder: Path) -> None:
    (folder / "empty").mkdir()

    assert run("build", "empty") == (
        2,
        "",
        "Error: empty: the corpus is empty: there is no file in it\n  hint: name a folder with documents\n",
    )


def test_a_corpus_without_a_readable_document_is_an_error_that_counts_the_reasons(run: Run, folder: Path) -> None:
    (folder / "nothing").mkdir()
    (folder / "nothing" / "a.txt").write_bytes(b"\0" * 5000)
    (folder / "nothing" / "b.txt").write_text(" \n")
    (folder / "nothing" / "c.txt").write_bytes(b"\0" * 100)

    assert run("build", "nothing") == (
        2,
        "",
        "Error: nothing: the corpus has no readable document (2 x binary file; 1 x empty text)\n"
        "  hint: see `ragidx build --help` for the formats; --include and --exclude choose files\n",
    )


def test_a_corpus_that_is_not_there_is_an_error(run: Run) -> None:
    assert run("build", "nowhere") == (
        2,
        "",
        "Error: nowhere: cannot be opened: No such file or directory\n"
        "  hint: give a folder, a file, or - for standard input\n",
    )


def test_an_empty_standard_input_is_an_error(run: Run) -> None:
    assert run("build", "-", stdin=b"") == (
        2,
        "",
        "Error: -: the corpus has no readable document (1 x empty text)\n"
        "  hint: see `ragidx build --help` for the formats; --include and --exclude choose files\n",
    )


def test_a_corpus_that_has_become_empty_leaves_the_index_as_it_was(run: Run, index: Path) -> None:
    shutil.rmtree("corpus")
    Path("corpus").mkdir()

    assert run("build", "corpus").status == 2

    _check_still_answers(run)


# one document of many

CAFE = "café "


@pytest.mark.parametrize(
    ("name", "data", "n_read", "told"),
    [
        ("a.xyz", bytes(range(256)), 0, "1 x binary file of unknown format '.xyz'\n    a.xyz"),
        ("a.txt", CAFE.encode() * 5 + b"\xff", 0, "1 x broken UTF-8\n    a.txt: byte 30"),
        ("a.txt", b"\0" * 5000, 0, "1 x binary file\n    a.txt"),
        ("a.txt", "words".encode("utf-16-le"), 0, "1 x binary file\n    a.txt"),
        ("a.txt", b"", 0, "1 x empty text\n    a.txt"),
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
            "1 x no JSON object\n    a.jsonl:2\nLeft out: 1 x broken UTF-8\n    a.jsonl:3: byte 10",
        ),
        (
            "a.jsonl",
            b'{"text": ""}\n{"text": 5}\n',
            0,
            "1 x empty text\n    a.jsonl:1\nLeft out: 1 x the field 'text' is no text but a number\n    a.jsonl:2",
        ),
        (
            "a.jsonl",
            b'{"id": 1, "words": "one"}\n{"id": 2, "words": "two"}\n',
            0,
            "2 x the field 'text' is missing (found: 'id', 'words'); say which one to read with --text-field\n"
            "    a.jsonl:1\n    a.jsonl:2",
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

    assert _documents(done) == 6 + n_read
    assert done.err == f"Left out: {told}\n"


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_a_broken_pdf_is_left_out_and_told(run: Run, small_corpus: Path) -> None:
    (small_corpus / "a.pdf").write_bytes(b"%PDF-1.7\n garbage \xff\xfe")

    done = run("build", "corpus", *TINY)

    assert _documents(done) == 6
    assert re.fullmatch(r"Left out: 1 x cannot be converted\n    a\.pdf: \w+: \S.*\n", done.err)


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_a_line_of_json_of_100_mb_is_left_out_and_its_neighbours_are_read(run: Run, small_corpus: Path) -> None:
    with (small_corpus / "a.jsonl").open("wb") as file:
        file.write(b'{"text": "one"}\n{"text": "' + b"word " * (20 * MIB) + b'"}\n{"text": "three"}\n')

    done = run("build", "corpus", *TINY)

    assert _documents(done) == 8
    assert done.err == "Left out: 1 x a line of more than 64 MiB\n    a.jsonl:2\n"


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


@pytest.mark.usefixtures("model")
def test_a_text_in_utf_16_with_its_mark_is_read(run: Run, small_corpus: Path) -> None:
    text = "Zebras graze where the grass is high."
    (small_corpus / "a.txt").write_bytes(text.encode("utf-16"))

    assert run("build", "corpus", *TINY).err == ""

    hit = json.loads(run("query", text, "-k", "1", "--json").out)["hits"][0]
    assert (hit["doc_id"], hit["text"]) == ("a.txt", text)


@pytest.mark.usefixtures("model")
def test_a_line_separator_inside_a_line_of_json_is_text(run: Run, small_corpus: Path) -> None:
    text = "Zebras graze\u2028where the grass is high."
    (small_corpus / "a.jsonl").write_text(json.dumps({"id": "z", "text": text}, ensure_ascii=False), encoding="utf-8")

    built = run("build", "corpus", *TINY)

    assert (_documents(built), built.err) == (7, "")
    hit = json.loads(run("query", text, "-k", "1", "--json").out)["hits"][0]
    assert (hit["doc_id"], hit["text"]) == ("a.jsonl#z", text)
    assert run("query", text, "-k", "1").out.splitlines()[2].strip() == "Zebras graze where the grass is high."


def test_strict_ends_at_the_first_thing_left_out(run: Run, index: Path) -> None:
    Path("corpus/a.xyz").write_bytes(bytes(range(256)))

    done = run("build", "corpus", "--strict")

    assert done == (
        1,
        "",
        "Error: a.xyz: left out: binary file of unknown format '.xyz'\n"
        "  hint: mend or exclude it, or build without --strict\n",
    )
    _check_still_answers(run)


@pytest.mark.usefixtures("model")
def test_strict_does_not_mind_what_the_user_wants_left_out(run: Run, small_corpus: Path) -> None:
    (small_corpus / "a.xyz").write_bytes(bytes(range(256)))
    (small_corpus / ".hidden").write_text("A note.")
    (small_corpus / ".gitignore").write_text("*.log\n")
    (small_corpus / "a.log").write_text("A line.")

    done = run("build", "corpus", *TINY, "--strict", "--exclude", "*.xyz")  # what the hint above says

    assert _documents(done) == 6


# texts

LONG = "7" * 500  # so many tokens
WHOLE = (*TINY, "--chunk-size", "none")  # reads 128, one of them its own


@pytest.mark.usefixtures("model")
def test_a_document_longer_than_the_model_is_cut_counted_and_told(run: Run, small_corpus: Path) -> None:
    (small_corpus / "long.txt").write_text(LONG)

    done, again = run("build", "corpus", *WHOLE), run("build", "corpus", *WHOLE, "--rebuild", "--json")

    message = "Cut: 1 document longer than the model reads; --chunk-size keeps all of their text.\n"
    assert (_documents(done), done.err) == (7, message)
    assert json.loads(again.out)["n_truncated"] == 1


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
    assert run("verify").out == "ragidx-index: whole\n"
    assert json.loads(run("info", "--json").out)["n_documents"] == 6


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


@pytest.mark.usefixtures("model")
def test_of_two_documents_with_one_id_the_second_is_left_out_and_the_next_build_is_idle(
    run: Run, small_corpus: Path
) -> None:
    (small_corpus / "a.jsonl").write_text('{"id": "x.md", "text": "The record."}\n')
    (small_corpus / "a.jsonl#x.md").write_text("The file.")

    plan = run("build", "corpus", *TINY, "--plan")
    first, again = run("build", "corpus", *TINY), run("build", "corpus", *TINY)
    strict = run("build", "corpus", *TINY, "--strict")

    told = "Left out: 1 x its id is another document's\n    a.jsonl#x.md\n"
    assert (_documents(first), first.err, again.err) == (7, told, told)
    assert "documents  7: 7 new, 0 changed, 0 as before\n" in plan.out
    assert "left out   1 x its id is another document's\n" in plan.out
    assert again.out.startswith("index      ragidx-index (generation 1, unchanged)\n")
    assert "documents  7: 0 new, 0 changed, 7 as before\n" in again.out
    assert strict == (
        1,
        "",
        "Error: a.jsonl#x.md: left out: its id is another document's\n"
        "  hint: mend or exclude it, or build without --strict\n",
    )
    hit = json.loads(run("query", "The record.", "-k", "1", "--json").out)["hits"][0]
    assert (hit["doc_id"], hit["text"]) == ("a.jsonl#x.md", "The record.")


@pytest.mark.parametrize("text", ["", " \n\t"])
@pytest.mark.usefixtures("index")
def test_an_empty_query_is_an_error(run: Run, text: str) -> None:
    assert run("query", text) == (2, "", "Error: the query is empty\n  hint: write a question\n")


HOSTILE = (
    "</s> <s> <pad> said he",
    "{text}{bos}{eos}{start}",
    "{instruction} \\{text\\}",
    'one word:"',
    "The rewritten paragraph:",
)


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("method", ["echo", "prompteol", "classical"])
def test_a_text_of_template_words_and_special_tokens_is_a_text_as_any_other(
    run: Run, folder: Path, method: str
) -> None:
    lines = [json.dumps({"id": number, "text": text}) for number, text in enumerate(HOSTILE)]
    (folder / "hostile.jsonl").write_text("\n".join(lines))

    built = run("build", "hostile.jsonl", "--model", "tiny", "--method", method, "--filter", "none")

    assert (_documents(built), built.err) == (len(HOSTILE), "")
    for number, text in enumerate(HOSTILE):
        hit = json.loads(run("query", text, "-k", "1", "--json").out)["hits"][0]
        assert (hit["doc_id"], hit["text"]) == (f"hostile.jsonl#{number}", text)
        assert hit["score"] == pytest.approx(1, abs=2e-3)
    encoder = ragidx.load_encoder("tiny", method=method)
    plain, *hostile = ([number for number in row.ids if number < 3] for row in encoder.rendered(["he", *HOSTILE], None))
    assert all(special == plain for special in hostile)


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("where", "n_hits", "message"),
    [
        ((), 6, "There are 6 chunks in the index; 100 hits were asked for.\n"),
        (("--where", "year < 1800"), 2, "There are 2 chunks that match --where; 100 hits were asked for.\n"),
        (("--where", "year < 1500"), 1, "There is 1 chunk that matches --where; 100 hits were asked for.\n"),
        (("--where", "year < 0"), 0, "There are 0 chunks that match --where; 100 hits were asked for.\n"),
    ],
)
def test_more_hits_than_there_are_gives_all_of_them_and_says_so(
    run: Run, where: tuple[str, ...], n_hits: int, message: str
) -> None:
    done = run("query", QUESTION, "-k", "100", *where)

    assert (done.status, done.err) == (0, message)
    assert len(re.findall(r"^ \d  -?\d\.\d{3}  ", done.out, re.MULTILINE)) == n_hits


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (
            "yeer > 3",
            "condition, character 1: unknown field 'yeer'; did you mean 'year'?\n  yeer > 3\n  ^\n"
            "  hint: fields: doc_id, heading, subject, title, year\n",
        ),
        (
            "year > 'a'",
            "condition, character 8: 'year' is a number, and 'a' is text\n  year > 'a'\n         ^\n"
            "  hint: compare it with a number, without quotes\n",
        ),
        ("", "condition: the condition is empty\n  hint: write one such as year >= 1900, or leave it out\n"),
    ],
)
def test_a_wrong_condition_is_shown_with_the_place_of_the_fault(run: Run, condition: str, message: str) -> None:
    assert run("query", QUESTION, "--where", condition) == (2, "", f"Error: {message}")


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b'{"_id": "1", "text": ""}\n{"id": 2}\n',
            "q.jsonl: 2 lines have faults\n  line 1: the text of query '1' is ''\n"
            "  line 2: the field 'text' is missing (found: 'id')\n  hint: give every query a text\n",
        ),
        (b"", "q.jsonl: the file holds no query\n  hint: check that it is the right one\n"),
        (None, "q.jsonl: no such file\n  hint: check the path\n"),
    ],
)
def test_a_file_that_holds_no_queries_is_an_error(run: Run, folder: Path, data: bytes | None, message: str) -> None:
    if data is not None:
        (folder / "q.jsonl").write_bytes(data)

    assert run("query", "--queries", "q.jsonl", "--run", "run.trec") == (2, "", f"Error: {message}")
    assert not (folder / "run.trec").exists()


# options

ENDING = {
    "query": "Usage: ragidx query [OPTIONS] [TEXT]\nTry 'ragidx query --help' for help.\n\n",
    "build": "Usage: ragidx build [OPTIONS] [CORPUS]\nTry 'ragidx build --help' for help.\n\n",
}


UNKNOWN_ATTN = (
    "unknown attention implementation '{}'{}\n"
    "  hint: known: auto, eager, flash_attention_2, flash_attention_3, flex_attention, sdpa"
)


@pytest.mark.usefixtures("small_corpus")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--method ecco",
            "unknown method 'ecco'; did you mean 'echo'?\n"
            "  hint: known: classical, echo, llm2vec, metaeol, prompteol, reba, sentence-transformers",
        ),
        (
            "--model minni",
            "--model: no model 'minni': neither a bundled one, nor a folder, nor an id of the form owner/name; "
            "did you mean 'mini'?\n  hint: `ragidx models` lists what is bundled and shows what else can be named",
        ),
        (
            "--pooling meen",
            "unknown pooling 'meen'; did you mean 'mean'?\n"
            "  hint: known: bos, eos, last, mean, trainable, weighted_mean",
        ),
        (
            "--filter embedfilte",
            "unknown filter 'embedfilte'; did you mean 'embedfilter'?\n"
            "  hint: known: bulk, dominant, embedfilter, none, optimal, optimal-abs, pca, random, random-directions, "
            "secondary, truncation, whitening",
        ),
        (
            "--index-type hnws",
            "--index-type: unknown index type 'hnws'; did you mean 'hnsw'?\n"
            "  hint: known: auto, flat, hnsw, ivf, ivfpq, rabitq, sq8, or a factory string such as IVF1024,SQ8",
        ),
        (
            "--template ekho",
            "unknown template 'ekho'; did you mean 'echo'?\n"
            "  hint: known: classical, echo, echo-copies, echo-trained, llm2vec, llm2vec-gemma, llm2vec-inst, "
            "llm2vec-llama3, llm2vec-qwen2, metaeol, pooling-and-attention, prompteol, prompteol-original, reba",
        ),
        (
            "--template {texd}",
            "--template: the template has an unknown placeholder '{texd}'\n"
            "  hint: known: {text}, {instruction}, {bos}, {eos}",
        ),
        ("--attention sideways", "unknown attention 'sideways'\n  hint: known: causal, bidirectional"),
        ("--device cude", "unknown device 'cude'; did you mean 'cuda'?\n  hint: known: auto, cpu, cuda, mps"),
        (
            "--dtype float23",
            "unknown dtype 'float23'; did you mean 'float32'?\n  hint: known: auto, bfloat16, float16, float32, mixed",
        ),
        ("--attn edger", UNKNOWN_ATTN.format("edger", "; did you mean 'eager'?")),
        (
            "--layer 9",
            "--layer: the model has 4 layers, there is no layer 9\n"
            "  hint: give 0 (input embeddings) to 4, or -1 for the last",
        ),
        ("--chunk-size 0", "--chunk-size: a chunk of 0 tokens holds nothing\n  hint: give at least 1"),
        (
            "--chunk-overlap 300",
            "--chunk-overlap: an overlap of 300 tokens does not fit chunks of 256\n"
            "  hint: give 0 or more, and less than --chunk-size",
        ),
        ("--tau 0.5", "--tau: tau=0.5 would widen the vectors\n  hint: give 1 or more: hidden width / kept width"),
        ("--tau nan", "--tau: tau=nan is no number\n  hint: give 1 or more: hidden width / kept width"),
        ("--tau 999", "--tau: tau=999 leaves nothing of 256 dimensions\n  hint: give at most 256"),
        ("--tau 2 --dim 4", "filter: tau=2 and dim=4 are both set\n  hint: give one of --tau and --dim"),
        ("--dim 999", "--dim: dim=999 is wider than the model, which has 256\n  hint: give at most 256"),
        (
            "--filter none --tau 2",
            "--filter: filter 'none' keeps all raw coordinates\n  hint: leave out --tau, --dim and --filter-offset",
        ),
        (
            "--method sentence-transformers",
            "--method: 'mini' has no modules.json, so it is no sentence-transformers model\n"
            "  hint: choose a method for decoders, such as --method echo",
        ),
    ],
)
def test_a_wrong_option_is_named_with_what_it_can_be(run: Run, options: str, message: str) -> None:
    assert run("build", "corpus", *options.split()) == (2, "", f"Error: {message}\n")


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--device tpu", "unknown device 'tpu'; did you mean 'cpu'?\n  hint: known: auto, cpu, cuda, mps"),
        ("--dtype fp8", "unknown dtype 'fp8'\n  hint: known: auto, bfloat16, float16, float32, mixed"),
        ("--attn nothing", UNKNOWN_ATTN.format("nothing", "")),
    ],
)
def test_a_name_that_nothing_new_would_use_is_refused_all_the_same(run: Run, option: str, message: str) -> None:
    assert run("build", "corpus").status == 0

    assert run("build", "corpus", *option.split()) == (2, "", f"Error: {message}\n")


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("option", ["--device cuda:1", "--dtype mixed", "--attn flash_attention_9", "--attn kernels/a"])
def test_a_name_that_may_be_right_elsewhere_is_no_matter_where_nothing_is_encoded(run: Run, option: str) -> None:
    assert run("build", "corpus", *option.split()).status == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["query"], "give a question, or --vector FILE, or --queries FILE with --run FILE"),
        (["query", "x", "-k", "0"], "Invalid value for '-k': 0 is not in the range x>=1."),
        (["query", "--queries", "q.jsonl"], "--queries and --run go together"),
        (["build"], "give CORPUS or --vectors FILE"),
        (
            ["build", "corpus", "--chunk-size", "some"],
            "Invalid value for '--chunk-size': 'some' is neither a number of tokens nor 'none'",
        ),
    ],
)
def test_a_wrong_usage_is_told_with_the_usage(run: Run, args: list[str], message: str) -> None:
    assert run(*args) == (2, "", f"{ENDING[args[0]]}Error: {message}\n")


# the index


def _damage(path: Path, at: int = -20) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_where_there_is_no_index_the_message_says_what_is_there(run: Run, small_corpus: Path, folder: Path) -> None:
    (folder / "begun").mkdir()
    (folder / "begun" / "LOCK").touch()
    name_another = "  hint: name another folder with --index\n"
    wanted = {
        "nowhere": "there is no such folder\n  hint: build the index first, or name another folder with --index\n",
        "corpus": f"it is no index: manifest.json is missing\n{name_another}",
        "corpus/lease.txt": f"it is a file, not a folder\n{name_another}",
        "begun": "the index is not built yet: nothing was committed\n"
        "  hint: run the same 'ragidx build' or 'ragidx reindex' again\n",
    }

    for command in (["query", "x"], ["info"], ["verify"]):
        for place, message in wanted.items():
            assert run(*command, "--index", place) == (2, "", f"Error: {place}: {message}")


@pytest.mark.usefixtures("model")
def test_a_build_touches_no_folder_that_is_something_else(run: Run, small_corpus: Path) -> None:
    before = sorted(small_corpus.iterdir())

    folder, file = (run("build", "corpus", *TINY, "--index", place) for place in ("corpus", "corpus/lease.txt"))

    hint = "  hint: choose another folder with --index\n"
    assert folder == (2, "", f"Error: corpus: it is not an index, and not empty\n{hint}")
    assert file == (2, "", f"Error: corpus/lease.txt: it is a file, not a folder\n{hint}")
    assert sorted(small_corpus.iterdir()) == before


@pytest.mark.parametrize(
    "args", [["query", "x"], ["info"], ["build", "corpus"], ["build", "corpus", *TINY, "--rebuild"]]
)
def test_an_index_of_a_newer_format_is_left_alone(run: Run, index: Path, args: list[str]) -> None:
    manifest = json.loads((index / "manifest.json").read_text()) | {"format": 3, "ragidx": "9.9.9"}
    (index / "manifest.json").write_text(json.dumps(manifest))
    before = {path: path.read_bytes() for path in index.rglob("*") if path.is_file() and path.name != "LOCK"}

    done = run(*args)

    assert done == (
        2,
        "",
        "Error: ragidx-index/manifest.json: the index has the format 3 (written by ragidx '9.9.9'); "
        f"ragidx {ragidx.__version__} reads up to format 2\n  hint: upgrade: pip install --upgrade ragidx\n",
    )
    assert {path: path.read_bytes() for path in before} == before


def test_a_damaged_manifest_is_told_and_its_copy_mends_it(run: Run, index: Path) -> None:
    _damage(index / "manifest.json")

    for args in (["query", "x"], ["info"], ["build", "corpus"]):
        assert run(*args) == (
            2,
            "",
            "Error: ragidx-index/manifest.json: the manifest is damaged: checksum: it does not fit the rest\n"
            "  hint: copy the newest manifest.<number>.json beside it over manifest.json, "
            "or build again with --rebuild\n",
        )

    shutil.copy(index / "manifest.1.json", index / "manifest.json")
    _check_still_answers(run)


HEAL = "  hint: put it back from a copy, or build again with --rebuild\n"


@pytest.mark.parametrize("name", ["vectors.faiss", "chunks.arrow"])
def test_a_flipped_byte_is_told_and_a_rebuild_mends_it(run: Run, index: Path, name: str) -> None:
    _damage(index / "segments" / "00000001-0000" / name)

    for args in (["query", "x"], ["info"], ["build", "corpus"]):
        assert run(*args) == (
            2,
            "",
            f"Error: ragidx-index/segments/00000001-0000/{name}: "
            f"the file is damaged: its checksum differs from the manifest's\n{HEAL}",
        )

    assert _documents(run("build", "corpus", *TINY, "--rebuild")) == 6
    status, out, err = run("verify")
    assert (status, out) == (0, "ragidx-index: whole\n")
    assert "there is no rollback to generation 1; the committed state is not touched" in err


def test_a_missing_segment_is_told_and_a_rebuild_mends_it(run: Run, index: Path) -> None:
    shutil.rmtree(index / "segments" / "00000001-0000")

    for args in (["query", "x"], ["info"], ["build", "corpus"]):
        assert run(*args) == (
            2,
            "",
            f"Error: ragidx-index/segments/00000001-0000/chunks.arrow: the file is missing\n{HEAL}",
        )

    assert _documents(run("build", "corpus", *TINY, "--rebuild")) == 6
    status, out, err = run("verify")
    assert (status, out) == (0, "ragidx-index: whole\n")
    assert "there is no rollback to generation 1; the committed state is not touched" in err


@pytest.mark.usefixtures("small_corpus", "model")
@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ("--model mini", "encoder.model is 'tiny' in the index, 'mini' now"),
        ("--dim 4", "filter.tau is 2 in the index, None now; filter.dim is None in the index, 4 now"),
        ("--tau 4", "filter.tau is 2 in the index, 4 now"),
        (
            "--filter none",
            "filter.name is 'embedfilter' in the index, 'none' now; filter.tau is 2 in the index, None now",
        ),
        ("--chunk-size 32", "chunk.size is 256 in the index, 32 now"),
        ("--chunk-size none", "chunk.size is 256 in the index, None now"),
        ("--pooling last", "encoder.pooling is 'mean' in the index, 'last' now"),
    ],
)
def test_another_spec_for_an_index_is_an_error_that_says_what_differs(run: Run, options: str, difference: str) -> None:
    assert run("build", "corpus", "--model", "tiny", "--method", "echo", "--tau", "2").status == 0

    done = run("build", "corpus", *options.split())

    assert done == (
        2,
        "",
        f"Error: ragidx-index: the index was made otherwise: {difference}\n"
        "  hint: leave the option out to go on with the index, or replace it with --rebuild\n",
    )
    assert json.loads(run("info", "--json").out)["generation"] == 1


@pytest.mark.usefixtures("index")
def test_another_index_type_is_an_error_that_names_the_way_without_encoding(run: Run) -> None:
    done = run("build", "corpus", "--index-type", "hnsw")

    assert done == (
        2,
        "",
        "Error: ragidx-index: the index was made otherwise: index_type is 'auto' in the index, 'hnsw' now\n"
        "  hint: leave the option out to go on with the index, or replace it with --rebuild; 'ragidx reindex DIR "
        "--index ragidx-index --index-type hnsw' makes one of that type beside it, and encodes nothing\n",
    )
    assert run("reindex", "DIR", "--index", "ragidx-index", "--index-type", "hnsw").status == 0


def test_two_builds_at_once_are_one_build_and_an_error(run: Run, index: Path) -> None:
    lock = Lock(index)
    try:
        done = run("build", "corpus")
        _check_still_answers(run)
    finally:
        lock.release()

    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(
        rf"Error: ragidx-index: the index is being written by process {os.getpid()}, "
        r"since \d{4}-\d\d-\d\d [\d:]{8} UTC"
        r"\n  hint: wait until that ends, then run again\n",
        done.err,
    )
    assert run("build", "corpus").status == 0


# the model


def _remove(*names: str) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        for name in names:
            (model / name).unlink()

    return change


class _Trap:
    """What a hostile pickle does: it runs a call when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("trapped",)


def _pickled(model: Path) -> None:
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(_Trap()))


def _own_code(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (model / "config.json").write_text(json.dumps(config | own))
    (model / "own.py").write_text("import os\nos.mkdir('trapped')\n")


@pytest.mark.usefixtures("small_corpus")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            _remove("config.json"),
            "the folder of 'tiny' has no config.json, so it holds no model\n"
            "  hint: name the folder that `save_pretrained` wrote",
        ),
        (
            _remove("model.safetensors"),
            "the folder of 'tiny' has no weights (*.safetensors)\n  hint: download or copy them again",
        ),
        (
            _pickled,
            "'tiny' has its weights in pickle files only (pytorch_model.bin), which can run code when they are read\n"
            "  hint: convert them to safetensors, once, where you trust them: "
            "AutoModelForCausalLM.from_pretrained(...).save_pretrained(folder)",
        ),
    ],
    ids=["no config", "no weights", "pickled weights"],
)
def test_a_folder_without_a_model_is_an_error(
    run: Run, model: Path, change: Callable[[Path], None], message: str
) -> None:
    change(model)

    done = run("build", "corpus", "--model", "tiny")

    assert done == (2, "", f"Error: {model}: {message}\n")
    assert not Path("trapped").exists()


@pytest.mark.usefixtures("small_corpus")
@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        (
            _remove("tokenizer.json", "tokenizer_config.json"),
            r"the tokenizer of 'tiny' cannot be loaded: .+",
            "copy its tokenizer.json and tokenizer_config.json into the model's folder",
        ),
        (
            lambda model: (model / "model.safetensors").write_bytes(b"short"),
            r"the weights cannot be read: .+",
            "download or copy the model again",
        ),
        (
            _own_code,
            r"'tiny' cannot be loaded: .+|the tokenizer of 'tiny' cannot be loaded: .+",
            "ragidx loads what transformers' AutoModel loads, from safetensors, without code from the model's folder",
        ),
    ],
    ids=["no tokenizer", "damaged weights", "own code"],
)
def test_a_model_that_cannot_be_loaded_is_an_error(
    run: Run, model: Path, change: Callable[[Path], None], message: str, hint: str
) -> None:
    change(model)

    done = run("build", "corpus", "--model", "tiny", "--filter", "none", "--method", "echo")

    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(rf"Error: {re.escape(str(model))}[^\n]*: (?:{message})\n  hint: {re.escape(hint)}\n", done.err)
    assert not Path("trapped").exists()


@pytest.mark.usefixtures("small_corpus")
def test_a_model_that_has_changed_since_the_build_is_refused(run: Run, model: Path) -> None:
    run("build", "corpus", "--model", "tiny", "--method", "echo")
    _damage(model / "model.safetensors")

    assert run("query", "x") == (
        2,
        "",
        "Error: ragidx-index: 'tiny' is not the model this index was made with: its files have changed\n"
        "  hint: name the right folder with --model, or build the index again with --rebuild\n",
    )


@pytest.mark.slow
def test_a_model_of_the_hub_is_not_asked_for_offline(run_process: Run, small_corpus: Path, folder: Path) -> None:
    done = run_process("build", "corpus", "--model", "none/such", "--offline", env={"HF_HOME": str(folder / "hub")})

    assert done == (
        2,
        "",
        "Error: --model: 'none/such' is not on this machine, and the hub cannot be reached\n"
        "  hint: name its folder with --model, or run once with a network; "
        "the bundled model needs none: --model mini\n",
    )


# the machine

NO_FAISS = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == "faiss":
            raise ModuleNotFoundError("No module named 'faiss'", name="faiss")

sys.meta_path.insert(0, Blocker())
from ragidx.pipelines.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    "args",
    [
        ("info",),
        ("build", "corpus"),
        pytest.param(("build", "corpus", *TINY, "--index", "new"), marks=pytest.mark.slow),
    ],
)
def test_without_faiss_the_message_names_what_to_install_before_anything_is_encoded(
    run_process: Run, folder: Path, args: tuple[str, ...]
) -> None:
    done = run_process(*args, code=NO_FAISS)

    assert done == (
        2,
        "",
        "Error: faiss is not installed\n"
        "  hint: pip install 'ragidx[cpu]' (or 'ragidx[gpu]' on a machine with an NVIDIA GPU)\n",
    )
    assert not (folder / "new" / "journal").exists()


@pytest.mark.usefixtures("index")
def test_two_faiss_packages_are_an_error_that_says_how_to_get_out_of_it(run_process: Run, folder: Path) -> None:
    for name in ("cpu", "gpu"):
        info = folder / "two" / f"faiss_{name}-1.15.1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: faiss-{name}\nVersion: 1.15.1\n")

    done = run_process("info", env={"PYTHONPATH": str(folder / "two")})

    assert done == (
        2,
        "",
        "Error: faiss-cpu and faiss-gpu are both installed, and overwrite each other's files\n"
        "  hint: pip uninstall -y faiss-cpu faiss-gpu, then install one of them again\n",
    )


@contextmanager
def _file_size_limit(limit: int) -> Iterator[None]:
    """No file of this process grows beyond `limit` bytes, as if the disk were full; Python ignores the signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


FULL = (
    r"Error: ragidx-index/\S+: cannot write: {}\n"
    r"  hint: free some space \([\d,]+ bytes were to be written\), or choose another folder with --index\n"
)


@pytest.mark.parametrize("more", [(), ("--rebuild",)])
def test_a_disk_that_fills_up_leaves_the_index_as_it_was(run: Run, index: Path, more: tuple[str, ...]) -> None:
    Path("corpus/new.txt").write_text("Zebras graze where the grass is high.")
    with _file_size_limit(600):
        done = run("build", "corpus", *TINY, *more)

    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(FULL.format("File too large"), done.err)
    _check_still_answers(run)
    assert _documents(run("build", "corpus", *TINY, *more)) == 7


@pytest.fixture(scope="session")
def own_mounts() -> Callable[[str], list[str]]:
    """A command in whose process a mount of its own holds, gone with it: `script` gets the folder as $1."""
    if (
        not shutil.which("unshare")
        or subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no mounts of our own here: unshare -rm is not allowed")
    return lambda script: ["unshare", "-rm", "sh", "-c", f'set -e; {script}; exec "$@"', "sh"]


@pytest.mark.slow
def test_a_full_disk_leaves_the_index_as_it_was(run_process: Run, index: Path, own_mounts: Any) -> None:
    size = sum(path.stat().st_size for path in index.rglob("*"))
    script = (
        f"mkdir full; mount -t tmpfs -o size={size + 65536} none full; cp -r ragidx-index full/index; "
        '"$@" || echo "status $?" >&2; set -- "$1" -m ragidx verify --index full/index'
    )
    rows = ({"id": n, "text": f"Document {n}."} for n in range(500))
    Path("corpus/many.jsonl").write_text("\n".join(map(json.dumps, rows)))

    done = run_process("build", "corpus", "--index", "full/index", through=own_mounts(script))

    assert (done.status, done.out) == (0, "full/index: whole\n")
    message = FULL.format("No space left on device").replace("ragidx-index", "full/index")
    assert re.fullmatch(rf"{message}status 2\n", done.err)


@pytest.mark.usefixtures("index")
def test_a_read_only_index_answers_and_cannot_be_built(run_process: Run, own_mounts: Any) -> None:
    through = own_mounts("mount --bind ragidx-index ragidx-index; mount -o remount,bind,ro ragidx-index")

    built, told = run_process("build", "corpus", through=through), run_process("info", through=through)

    assert built == (
        2,
        "",
        "Error: ragidx-index/LOCK: cannot write: Read-only file system\n"
        "  hint: make the folder writable, or choose another one with --index\n",
    )
    assert (told.status, told.err) == (0, "")


@pytest.mark.usefixtures("index")
def test_output_that_cannot_be_written_is_an_error() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ragidx", "info"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    message = "Error: standard output: cannot write: No space left on device\n  hint: send it to a place with room\n"
    assert (done.returncode, done.stderr) == (2, message)


@pytest.mark.usefixtures("index")
def test_a_run_that_cannot_be_written_is_an_error(run: Run, folder: Path) -> None:
    (folder / "q.jsonl").write_text('{"_id": "1", "text": "bees"}\n')

    assert run("query", "--queries", "q.jsonl", "--run", "nowhere/run.trec") == (
        2,
        "",
        "Error: nowhere/run.trec: the run cannot be written: No such file or directory\n"
        "  hint: choose another place, or make room\n",
    )
