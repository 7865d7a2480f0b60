"""How the command line shows a filter: in reports, progress, an interrupted build, and the help."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.indexer.specs import FILTERS, FilterSpec
from ragidx.pipelines.cli import describe
from ragidx.pipelines.cli.progress import ProgressLine
from ragidx.pipelines.ingest.report import Progress

Run = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("small_corpus", "model")
@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--filter truncation", "truncation, 16 dimensions, tau 2, the first coordinates"),
        (
            "--filter random-directions --dim 7 --filter-seed 3",
            "random-directions, 7 dimensions, random directions of the spectrum (seed 3)",
        ),
        ("--filter dominant", "dominant, 16 dimensions, tau 2, the end of the spectrum, its smallest singular values"),
        (
            "--filter optimal --filter-topk 20 --tau 4",
            "optimal, 8 dimensions, tau 4, the directions that raise frequent tokens least (seed 0), fitted on 6 chunks"
            " of the corpus",
        ),
        (
            "--filter whitening --dim 4 --filter-sample 5",
            "whitening, 4 dimensions, principal components of the corpus, each scaled to variance 1 (seed 0), fitted on"
            " 5 chunks of the corpus",
        ),
        (
            "--filter pca --dim 4 --filter-power 0.5",
            "pca, 4 dimensions, principal components of the corpus, each divided by its deviation to the power 0.5"
            " (seed 0), fitted on 6 chunks of the corpus",
        ),
        ("--dim 1", "EmbedFilter, 1 dimension, the middle of the spectrum"),
        ("--filter none", "none: 32 raw coordinates"),
    ],
)
def test_a_build_tells_its_filter(options: str, line: str, run: Run) -> None:
    status, out, err = run("build", "corpus", "--model", "tiny", "--method", "classical", *options.split())

    assert (status, err) == (0, "")
    assert out.splitlines()[2] == f"filter     {line}"


@pytest.mark.usefixtures("small_corpus", "model")
def test_an_index_tells_its_filter(run: Run) -> None:
    run("build", "corpus", "--model", "tiny", "--filter", "pca", "--dim", "4")

    _, out, _ = run("info")

    assert "filter       pca, 4 dimensions, principal components of the corpus (seed 0)" in out.splitlines()


@pytest.mark.usefixtures("small_corpus", "model")
def test_progress_names_the_fit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragidx.pipelines.ingest.report._TELL_EVERY_S", 0.0)

    status, out, err = run(
        "build", "corpus", "--model", "tiny", "--method", "classical", "--filter", "pca", "--dim", "4", "--json"
    )

    steps = [json.loads(line)["progress"] for line in err.splitlines()]
    stages = [step["stage"] for step in steps]
    assert status == 0
    assert json.loads(out)["n_fitted"] == 6
    assert sorted(set(stages)) == ["fitting filter pca", "indexing", "making the index of words"]
    assert stages == sorted(stages)
    for name in ("n_bytes", "n_documents", "n_cut", "n_chunks", "n_encoded", "n_tokens", "seconds"):
        numbers = [step[name] for step in steps]
        assert numbers == sorted(numbers)
    assert (steps[-1]["n_cut"], steps[-1]["n_chunks"], steps[-1]["n_encoded"]) == (6, 6, 6)
    assert [step["n_sample"] for step in (steps[0], steps[-1])] == [0, 6]


def test_the_share_of_a_fit_is_that_of_the_sample(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    shares: dict[bool, list[float | None]] = {True: [], False: []}

    ragidx.build(
        corpus,
        tmp_path / "index",
        **tiny,
        filter=FilterSpec("pca", dim=4, sample=20),
        on_progress=lambda progress: shares[progress.fitting].append(progress.share),
    )

    known = [share for share in shares[True] if share is not None]
    assert shares[True][0] is None  # the sample is not drawn yet
    assert known[0] == 0
    assert known == sorted(known)
    assert shares[False][0] == 0  # of the corpus nothing is stored when the fit ends
    assert shares[False][-1] == 1


def test_the_line_of_a_fit_counts_the_sample(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ragidx.pipelines.cli.console.PLAIN_EVERY_S", 0.0)
    progress = Progress(stage="fitting filter pca", total_bytes=100)
    with ProgressLine(as_json=False) as line:
        line.callback(progress)
        progress.n_sample = 4000
        line.callback(progress)
        progress.n_encoded, progress.n_tokens, progress.seconds = 1000, 50_000, 20.0
        line.callback(progress)
        fitting = line.fitting
        progress.stage = "indexing"

    assert (fitting, line.fitting) == (True, False)
    assert capsys.readouterr().err.splitlines() == [
        "fitting filter pca: drawing a sample, ETA -",
        "fitting filter pca: 0 %, 0 of 4,000 chunks, ETA -",
        "fitting filter pca: 25 %, 1,000 of 4,000 chunks, 50 chunks/s, 2,500 tokens/s, ETA -",
    ]


@pytest.mark.usefixtures("small_corpus", "model")
@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("fit_filter.fit_filter", "the filter was not fitted, and the same command starts again"),
        ("encode.NewVectors.add", "encoded chunks are kept, and the same command continues"),
    ],
)
def test_an_interrupted_build_says_what_is_kept(
    where: str, told: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    options = ("--model", "tiny", "--method", "classical", "--filter", "pca", "--dim", "4")
    with monkeypatch.context() as patch:
        patch.setattr(f"ragidx.pipelines.ingest.{where}", interrupted)
        done = run("build", "corpus", *options)

    assert done == (130, "", f"Interrupted: nothing was committed; {told}.\n")
    assert run("build", "corpus", *options).status == 0


def test_the_help_names_every_filter(run: Run) -> None:
    _, out, _ = run("build", "--help-all")

    told = "".join(out.split())
    assert all(name in told for name in FILTERS)


def test_every_filter_has_words() -> None:
    for name in FILTERS:
        assert describe.filter_(FilterSpec(name=name), 5).lower().startswith(name)
