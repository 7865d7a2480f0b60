"""Queries and options that users get wrong: one clear block on standard error, exit status 2, and no traceback."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ragidx.pipelines.cli import console

from ..conftest import Done
from .bad_input_kit import QUESTION

Run = Callable[..., Done]


# queries


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("where", "n_hits", "message"),
    [
        ((), 6, "6 hits, 100 were requested: the index has no other chunk.\n"),
        (("--where", "year < 1800"), 2, "2 hits, 100 were requested: no other chunk matches --where.\n"),
        (("--where", "year < 1500"), 1, "1 hit, 100 were requested: no other chunk matches --where.\n"),
        (
            ("--where", "year < 0"),
            0,
            "No chunk matches --where.\n"
            "The nearest chunk without that: lease.txt, cosine 1.000.\n"
            "Try another condition (`ragidx info` lists the fields).\n",
        ),
    ],
)
def test_more_hits_than_there_are_gives_all_of_them_and_says_so(
    run: Run, where: tuple[str, ...], n_hits: int, message: str
) -> None:
    done = run("query", QUESTION, "-k", "100", *where)

    assert (done.status, done.err) == (0, message)
    assert len(re.findall(r"^ \d  -?\d\.\d{3}  ", done.out, re.MULTILINE)) == n_hits
    assert (done.out == "") == (n_hits == 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "train questions --index md",
            "'--index' is no option here: the index is an argument, `ragidx train questions FOLDER`",
        ),
        ("evaluate --index md", "'--index' is no option here: the index is an argument, `ragidx evaluate FOLDER`"),
        ("build x --headings", "'--headings' is gone: the title is in front of chunks that lack it: see --titles"),
        ("query x -k 1_0", "Invalid value for '-k': '1_0' is not a valid integer range."),
        ("query x --min-z 1_0", "Invalid value for '--min-z': '1_0' is not a valid float."),
        ("build x --workers 1_0", "--workers: '1_0' is no number of workers"),
        ("sweep x --dim 8 --dim 1_6", "Invalid value for '--dim': '1_6' is not a valid integer."),
        (
            "build x --chunk-size 1_0",
            "Invalid value for '--chunk-size': '1_0' is neither a number of tokens nor 'none'",
        ),
    ],
)
def test_an_index_that_is_an_argument_and_a_number_with_underscores_are_named(
    run: Run, arguments: str, message: str
) -> None:
    done = run(*arguments.split())

    assert (done.status, done.out) == (2, "")
    assert f"Error: {message}" in done.err.splitlines()


def test_each_json_that_a_command_prints_goes_through_one_function_that_writes_no_nan() -> None:
    modules = Path(console.__file__).parent.glob("*.py")

    assert [path.name for path in modules if "json.dump" in path.read_text()] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("query what is this", "unexpected argument 'is': put the question in quotes"),
        ("info other-index", "unexpected argument 'other-index': name the index with --index FOLDER"),
        ("verify other-index", "unexpected argument 'other-index': name the index with --index FOLDER"),
        ("sources other-index", "unexpected argument 'other-index': name the index with --index FOLDER"),
        ("delete a.txt", "unexpected argument 'a.txt': name it with --id"),
    ],
)
def test_an_argument_without_a_place_is_an_error_that_says_what_to_type(run: Run, arguments: str, message: str) -> None:
    done = run(*arguments.split())

    assert (done.status, done.out) == (2, "")
    assert done.err.splitlines()[-1] == f"Error: {message}"


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_an_index_is_no_corpus(run: Run) -> None:
    message = "Error: ragidx-index: is an index, not a corpus\n  hint: name a folder of documents\n"

    assert run("build", "ragidx-index", "--index", "other") == (2, "", message)
    assert not Path("other").exists()


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (
            "yeer > 3",
            "condition, character 1: unknown field 'yeer'; did you mean 'year'?\n  yeer > 3\n  ^\n"
            "  hint: fields: doc_id, file.ext, file.folder, file.modified, "
            "file.name, file.path, file.size, file.source, heading, subject, title, year\n",
        ),
    ],
)
def test_a_wrong_condition_is_shown_with_the_place_of_the_fault(run: Run, condition: str, message: str) -> None:
    assert run("query", QUESTION, "--where", condition) == (2, "", f"Error: {message}")


@pytest.mark.usefixtures("index")
def test_a_file_that_holds_no_queries_is_an_error(run: Run, folder: Path) -> None:
    message = "q.jsonl: no such file\n  hint: check the path\n"

    assert run("query", "--queries", "q.jsonl", "--run", "run.trec") == (2, "", f"Error: {message}")
    assert not (folder / "run.trec").exists()


# options

ENDING = {
    "query": "Usage: ragidx query [OPTIONS] [TEXT]\nTry 'ragidx query --help' for help.\n\n",
    "build": "Usage: ragidx build [OPTIONS] [CORPUS]...\nTry 'ragidx build --help' for help.\n\n",
}

UNKNOWN_ATTN = (
    "unknown attention implementation '{}'{}\n"
    "  hint: known: auto, eager, flash_attention_2, flash_attention_3, flex_attention, sdpa"
)


@pytest.mark.slow
@pytest.mark.usefixtures("small_corpus")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--attn edger", UNKNOWN_ATTN.format("edger", "; did you mean 'eager'?")),
        (
            "--chunk-overlap 300",
            "--chunk-overlap: an overlap of 300 tokens does not fit chunks of 256\n"
            "  hint: give 0 or more, and less than --chunk-size",
        ),
        (
            "--filter none --tau 2",
            "--filter: filter 'none' keeps all raw coordinates\n  hint: remove --tau, --dim and --filter-offset",
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
        (["query"], "give a question, or --vector FILE, or --queries FILE"),
        (["query", "x", "--rerank-top", "5"], "--rerank-top is for a reranker: add --rerank, or remove --rerank-top"),
        (
            ["query", "--queries", "q", "--run", "-", "--json"],
            "--run - and --json both write to standard output: remove one",
        ),
        (["query", "x", "-k", "0"], "Invalid value for '-k': 0 is not in the range x>=1."),
        (["query", "--run", "run.trec"], "--run needs --queries: it holds the answers to a file of queries"),
        (["build"], "give CORPUS or --vectors FILE"),
        (
            ["build", "corpus", "--chunk-size", "some"],
            "Invalid value for '--chunk-size': 'some' is neither a number of tokens nor 'none'",
        ),
        (
            ["build", "corpus", "--layer", "auto"],
            "Invalid value for '--layer': no build chooses a layer: name one that `ragidx tune CORPUS` proposes",
        ),
    ],
)
def test_a_wrong_usage_is_told_with_the_usage(run: Run, args: list[str], message: str) -> None:
    assert run(*args) == (2, "", f"{ENDING[args[0]]}Error: {message}\n")


@pytest.mark.parametrize(
    ("path", "why"),
    [("loop", "a link to itself"), ("a\0b", "embedded null byte"), ("a/" * 2_500, "file name too long")],
)
def test_what_the_system_takes_for_no_path_is_an_error(run: Run, path: str, why: str) -> None:
    Path("loop").symlink_to("loop")

    status, out, err = run("build", path)

    assert (status, out) == (2, "")
    assert err.endswith(f": cannot be opened: {why}\n  hint: name a folder or a file\n")
    assert len(err) < 400


def test_a_limit_of_memory_that_no_machine_has_is_refused(run: Run) -> None:
    assert run("build", ".", "--max-memory", "99999999999999999999GB") == (
        2,
        "",
        "Error: --max-memory: '99999999999999999999GB' is less than a byte or more than 8 PiB\n  hint: write 2GB\n",
    )
