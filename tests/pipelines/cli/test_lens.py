"""`ragidx lens` of a text, a query and a hit, as a user runs it: tables, JSON, errors, and the page about it."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from ragidx.pipelines.index import Index

from ..conftest import Done
from .conftest import json_of

Run = Callable[..., Done]

pytestmark = pytest.mark.slow

TEXT = "The lease of the house by the lake was signed by Ada Lovelace in 1840."
QUERY = "who signed the lease of the house?"
ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "lens.md").read_text("utf-8")
USAGE = "Usage: ragidx lens [OPTIONS] TEXT\nTry 'ragidx lens --help' for help.\n\nError: {}\n"
TOKEN = r"\S+ +-?\d+\.\d{3}"


# a text


def test_a_text_is_shown_in_three_columns_of_tokens_and_logits(run: Run) -> None:
    done = run("lens", TEXT, "-k", "3", "--dtype", "float32", "--device", "cpu")

    model, kept, empty, head, *rows, last = done.out.splitlines()
    assert (done.status, done.err, empty) == (0, "", "")
    assert model == "model   mini-decoder: classical, mean pooling, token embeddings (layer 0)"
    assert kept == "filter  EmbedFilter, 255 dimensions, from direction 1 on"
    assert head.split() == ["before", "logit", "after", "logit", "removed", "logit"]
    assert len(rows) == 3
    assert all(re.fullmatch(rf"{TOKEN}  {TOKEN}  {TOKEN}", row) for row in rows)
    assert {"lake", "lease"} <= {row.split()[2] for row in rows}
    assert re.fullmatch(r"removed: 9\d\.\d % of the vector's squared length", last)


def test_options_of_a_build_say_how_the_vector_is_made(run: Run, model: Path) -> None:
    tiny = ("--model", str(model), "--method", "classical", "--device", "cpu", "--dtype", "float32", "--json")

    default, wide, other = (
        json_of(run("lens", TEXT, *tiny, *more))
        for more in ((), ("--dim", "3", "--filter-offset", "2"), ("--filter", "random", "--filter-seed", "4"))
    )

    assert (default["hidden"], default["dim"], default["filter"]) == (32, 16, "FilterSpec(tau=2)")
    assert (wide["dim"], wide["filter"]) == (3, "FilterSpec(dim=3, offset=2)")
    assert other["filter"] == 'FilterSpec(name="random", tau=2, seed=4)'
    assert default["lens"]["before"] == wide["lens"]["before"] == other["lens"]["before"]
    assert wide["lens"]["removed_share"] > default["lens"]["removed_share"]
    assert len(default["lens"]["after"]) == 10


def test_without_a_filter_there_is_one_column(run: Run) -> None:
    done = run("lens", TEXT, "-k", "2", "--filter", "none")

    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[1] == "filter  none: 256 raw coordinates"
    assert lines[3].split() == ["before", "logit"]
    assert len(lines) == 6


@pytest.mark.usefixtures("folder")
def test_no_control_character_of_a_text_reaches_the_terminal(run: Run) -> None:
    done = run("lens", "red\x1b[31m\u202e lease", "-k", "20", "--method", "classical")

    assert done.status == 0
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out


# a query and a hit


@pytest.mark.usefixtures("decoder_index")
def test_a_query_and_its_hit_are_shown_with_what_both_write(run: Run) -> None:
    done = run("lens", QUERY, "--index", "ragidx-index", "-k", "2")

    assert (done.status, done.err) == (0, "")
    shape = [
        r"index   ragidx-index",
        r"model   mini-decoder: classical, mean pooling, token embeddings \(layer 0\)",
        r"filter  EmbedFilter, 255 dimensions, from direction 1 on",
        "",
        "query",
        f"    {re.escape(QUERY)}",
        r"before +logit +after +logit +removed +logit",
        rf"{TOKEN}  {TOKEN}  {TOKEN}",
        rf"{TOKEN}  {TOKEN}  {TOKEN}",
        r"removed: \d+\.\d % of the vector's squared length",
        "",
        r"hit 1  0\.\d{3}  lease\.txt",
        f"    {re.escape(TEXT)}",
        r"before +logit +after +logit +removed +logit",
        rf"{TOKEN}  {TOKEN}  {TOKEN}",
        rf"{TOKEN}  {TOKEN}  {TOKEN}",
        r"removed: \d+\.\d % of the vector's squared length",
        "",
        r"both write +part of the score +query +hit",
        r"\S+ +0\.\d{4} +0\.\d{3} +0\.\d{3}",
        r"\S+ +0\.\d{4} +0\.\d{3} +0\.\d{3}",
        r"0\.\d{3} of the score of 0\.\d{3}; the rest is spread over the whole vocabulary",
    ]
    lines = done.out.splitlines()
    assert len(lines) == len(shape)
    assert all(re.fullmatch(wanted, line) for wanted, line in zip(shape, lines, strict=True))


@pytest.mark.usefixtures("decoder_index")
def test_the_hit_is_that_of_a_query_by_its_number_and_its_condition(run: Run) -> None:
    searched = json_of(run("query", QUERY, "-k", "3", "--mode", "dense", "--json"))["hits"]

    third = json_of(run("lens", QUERY, "--index", "ragidx-index", "--hit", "3", "--json"))
    only = json_of(run("lens", QUERY, "--index", "ragidx-index", "--where", "year == 1946", "--json"))

    passage = searched[2].pop("passage")  # which words of the question the hit has: of the query alone
    assert third["hit"] == searched[2]
    assert passage["text"] in third["hit"]["text"]
    assert only["hit"]["doc_id"] == "facts.jsonl#bees"
    assert third["written"]["text"] == searched[2]["text"]


def test_a_model_that_has_moved_is_named(run: Run, index: Path, model: Path) -> None:
    loaded_before = Index(index)
    loaded_before.search(QUERY)
    model.rename("elsewhere")

    done = run("lens", QUERY, "--index", str(index), "--model", "elsewhere", "--json")

    assert json_of(done)["model"] == "elsewhere"


# the page about it


@pytest.fixture
def sample_index(folder: Path) -> Path:
    """The sample corpus, indexed as its page says."""
    from ragidx.pipelines.cli.demo import sample_corpus
    from ragidx.pipelines.ingest.build import build

    build(sample_corpus(), folder / "sample", model="mini-decoder", dtype="float32")
    return folder / "sample"


@pytest.mark.slow
@pytest.mark.usefixtures("sample_index")
def test_the_output_on_its_page_is_what_it_prints(run: Run) -> None:
    shown = re.findall(r"```text\n\$ ragidx (lens [^\n]*)\n(.*?)```", PAGE, re.DOTALL)

    assert len(shown) == 5
    for line, output in shown:
        done = run(*shlex.split(line))
        assert done.status == 0
        assert _without_ties(done.out + done.err) == _without_ties(output)


def _without_ties(output: str) -> str:
    """Less white space, and less the tokens before the filter and those removed: their logits agree to the last digits,
    and their order is a matter of rounding.
    """
    lines = re.sub(" +", " ", output)
    return re.sub(rf"^\S+( \S+ {TOKEN} )\S+ (\S+)$", r"\1\2", lines, flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_the_example_on_its_page_runs(small_corpus: Path) -> None:
    small_corpus.rename("docs")
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

    Path("example.py").write_text(example)
    runpy.run_path("example.py")


@pytest.mark.parametrize("picture", re.findall(r"\]\((\S+\.svg)\)", PAGE))
def test_the_pictures_on_its_page_are_small(picture: str) -> None:
    assert 10_000 < (ROOT / "docs" / picture).stat().st_size < 150_000


# what goes wrong


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give a text, or --spectrum with --corpus or --index"),
        (("--spectrum",), "--spectrum counts tokens: give one of --corpus and --index"),
        (
            ("--spectrum", "--corpus", "corpus", "--index", "i"),
            "--spectrum counts tokens: give one of --corpus and --index",
        ),
        ((TEXT, "--spectrum", "--corpus", "corpus"), "--spectrum reads no TEXT: remove it"),
        ((TEXT, "--corpus", "corpus", "--out", "s.svg"), "without --spectrum: remove --corpus, --out"),
        ((TEXT, "--tokens", "9", "--centred"), "without --spectrum: remove --centred, --tokens"),
        ((TEXT, "--hit", "2"), "without --index: remove --hit"),
        ((TEXT, "--where", "year == 1"), "without --index: remove --where"),
        (
            (TEXT, "--index", "i", "--method", "echo", "--tau", "2"),
            "the index decides how its vectors are made: remove --method, --tau",
        ),
        (
            ("--spectrum", "--index", "i", "--filter", "none"),
            "the index decides how its vectors are made: remove --filter",
        ),
        (
            ("--spectrum", "--corpus", "corpus", "-k", "3", "--hit", "1", "--layer", "2"),
            "with --spectrum: remove --hit, --layer, -k",
        ),
    ],
)
def test_options_that_mean_nothing_together_are_refused(run: Run, args: tuple[str, ...], message: str) -> None:
    assert run("lens", *args) == (2, "", USAGE.format(message))
