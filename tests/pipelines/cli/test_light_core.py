"""The core without the extra `models`: the bundled model runs, and all else says what to install before work begins."""

from __future__ import annotations

import json
import shutil
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ragidx.indexer.devices import missing_models
from ragidx.pipelines.cli.main import every_command
from ragidx.retriever import models

from ..conftest import Done

Run = Callable[..., Done]

NETWORKS = ("torch", "transformers", "sentence_transformers")
MISSING = "needs torch and transformers, which are not installed"
INSTALL = "pip install '.[models]' in a checkout of ragidx"
# Each line of standard input is the arguments of a command; the status of each stands in what is printed last.
SEVERAL = f"""
import json, sys
from ragidx.pipelines.cli.main import main

statuses = []
for line in sys.stdin.read().splitlines():
    try:
        main(json.loads(line))
    except SystemExit as left:
        statuses.append(left.code)
print(json.dumps([statuses, sorted(set(sys.modules) & set({NETWORKS}))]))
"""


def _run_all(run_process: Run, env: dict[str, str], commands: list[list[str]]) -> Done:
    """The commands in one process; that all of them end with status 0 and that no network is loaded is asserted."""
    lines = "\n".join(map(json.dumps, commands)).encode()
    done = run_process(code=SEVERAL, env=env, stdin=lines)
    assert json.loads(done.out.splitlines()[-1]) == [[0] * len(commands), []], done.err
    return done


@pytest.mark.wheel
@pytest.mark.slow
def test_the_bundled_model_needs_no_network(
    run_process: Run, folder: Path, small_corpus: Path, without: Callable[..., dict[str, str]]
) -> None:
    corpus = str(small_corpus)
    commands = [
        ["build", corpus, "--plan"],
        ["build", corpus],
        ["build", corpus],
        ["query", "who signed the lease?", "-k", "1"],
        ["info"],
        ["verify"],
        ["history"],
        ["lens", "a river"],
        ["build", corpus, "--model", "mini-decoder", "--index", "decoder"],
        ["lens", "a river", "--index", "decoder"],
        ["lens", "--spectrum", "--corpus", corpus, "--tokens", "5"],
        ["sweep", corpus, "--dim", "32"],
        ["reindex", "narrow", "--dim", "64"],
        ["delete", "--where", 'doc_id != ""', "--dry-run"],
        ["compact"],
        ["shrink", "--dim", "32"],
        ["doctor"],
        ["doctor", "--model", "mini"],
        ["models"],
    ]

    done = _run_all(run_process, without(*NETWORKS), commands)

    assert "generation 1" in done.out
    assert f"All but mini need the extra `models`, which is not installed: {INSTALL}." in done.out


@pytest.mark.wheel
@pytest.mark.slow
def test_vectors_and_every_help_text_need_no_network(
    run_process: Run, folder: Path, without: Callable[..., dict[str, str]]
) -> None:
    vectors = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    np.save(folder / "v.npy", vectors)
    np.save(folder / "q.npy", vectors[2])
    commands = [
        ["build", "--vectors", "v.npy"],
        ["query", "--vector", "q.npy", "-k", "1"],
        ["shrink", "--dim", "3"],
        *([*command.split(), "--help"] for command in every_command()),
    ]

    done = _run_all(run_process, without(*NETWORKS), commands)

    assert " 1  1.000  2\n" in done.out


@pytest.mark.slow
def test_the_demo_needs_no_more(run_process: Run, without: Callable[..., dict[str, str]]) -> None:
    done = run_process("demo", env=without(*NETWORKS))

    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(
        "Indexed 124 documents in 276 chunks with the bundled model: 255 dimensions, and their words.\n\n"
        "Why did two radio engineers chase pigeons out of their antenna?\n\n"
        "  #  score  by vectors  by words  source\n"
        "  1   6.61          1.        1.  astronomy/cosmic-microwave-background.md\n"
    )


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as it is where the extra is not installed: what an import finds where there is no package."""
    monkeypatch.setattr(models, "_shared", weakref.WeakValueDictionary())  # those that another test loaded
    for name in NETWORKS:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--method", "echo"), "--method echo"),
        (("--layer", "2"), "--layer 2"),
        (("--layer-norm",), "--layer-norm"),
        (("--pooling", "last", "--layer", "-1"), "--pooling last"),
        (("--dtype", "mixed"), "--dtype mixed"),
        (("--device", "cuda:1"), "--device cuda:1"),
        (("--attn", "eager"), "--attn eager"),
        (("--model", "owner/name"), "the model 'owner/name'"),
        (("--adapter", "owner/name"), "--adapter owner/name"),
    ],
)
def test_a_build_says_what_needs_the_extra_before_it_reads_the_corpus(
    run: Run, small_corpus: Path, folder: Path, options: tuple[str, ...], what: str
) -> None:
    done = run("build", str(small_corpus), *(() if "--model" in options else ("--model", "mini-decoder")), *options)

    assert done == (2, "", f"Error: {what} {MISSING}\n  hint: {INSTALL}\n")
    assert not (folder / "ragidx-index").exists()


@pytest.mark.slow
def test_a_model_of_another_family_is_what_needs_the_extra(
    run: Run, small_corpus: Path, tiny_model: Callable[..., Path], request: pytest.FixtureRequest
) -> None:
    folder = tiny_model("gpt2")
    request.getfixturevalue("light")

    done = run("build", str(small_corpus), "--model", str(folder))

    assert done.err == (f"Error: the model '{folder}' {MISSING}\n  hint: {INSTALL}\n")


def test_sentence_transformers_are_asked_for_where_they_alone_are_missing(
    run: Run, small_corpus: Path, folder: Path, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = shutil.copytree(tiny_model("llama"), folder / "own")
    (own / "modules.json").write_text("[]")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)

    done = run("build", str(small_corpus), "--model", "own")

    assert done == (
        2,
        "",
        f"Error: the model 'own' needs sentence-transformers, which is not installed\n  hint: {INSTALL}\n",
    )


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("--dtype", "bfloat16"), "--dtype bfloat16"),
        (("--device", "cuda"), "--device cuda"),
    ],
)
def test_a_query_says_what_needs_the_extra(run: Run, small_corpus: Path, args: tuple[str, ...], what: str) -> None:
    run("build", str(small_corpus), "--model", "mini-decoder")

    assert run("query", "a river", *args) == (2, "", f"Error: {what} {MISSING}\n  hint: {INSTALL}\n")


@pytest.mark.parametrize("args", [("query", "a river"), ("build", "corpus")])
def test_an_index_of_a_network_is_refused_where_none_can_run(
    run: Run, index: Path, request: pytest.FixtureRequest, args: tuple[str, ...]
) -> None:
    request.getfixturevalue("light")

    assert run(*args) == (2, "", f"Error: --layer -1 {MISSING}\n  hint: {INSTALL}\n")
    assert run("verify").status == 0


@pytest.mark.usefixtures("light")
def test_the_doctor_reports_what_cannot_run_here(run: Run) -> None:
    done = run("doctor", "--model", "mini-decoder", "--method", "echo", "--json")

    report = json.loads(done.out)
    assert (done.status, report["n_failed"], report["device"]) == (1, 1, "")
    assert (
        report["checks"][0]["hint"] == f"--method echo needs torch and transformers, which are not installed: {INSTALL}"
    )


@pytest.mark.usefixtures("light")
def test_the_doctor_examines_a_model_that_needs_no_network(run: Run) -> None:
    done = run("doctor", "--model", "mini-decoder", "--json")

    report = json.loads(done.out)
    assert (done.status, report["device"], report["dtype"]) == (0, "cpu", "float32")
    assert [(check["name"], check["status"]) for check in report["checks"]] == [
        ("alone and in a batch", "ok"),
        ("head for the default filter, embedfilter", "ok"),
    ]


def test_what_is_missing_is_named_by_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_models("sentence-transformers") == []
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setitem(sys.modules, "torch", None)

    assert missing_models("sentence-transformers") == ["torch", "sentence-transformers"]
