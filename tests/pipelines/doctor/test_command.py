"""`ragidx doctor` as a user runs it: what is shown, and how it ends."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from ragidx.pipelines.cli.help import as_options

from ..conftest import Done

Run = Callable[..., Done]

pytestmark = pytest.mark.slow


def test_the_command_shows_the_machine_on_one_screen(run: Run) -> None:
    people, machines = run("doctor"), run("doctor", "--json")

    report = json.loads(machines.out)
    lines = people.out.splitlines()
    assert (people.status, people.err, machines.status, machines.err) == (0, "", 0, "")
    assert re.split(r"  +", lines[0]) == ["status", "what", "found"]
    assert len(lines) <= 20
    for finding in report["findings"]:
        line = rf"^{finding['status']} +{re.escape(finding['name'])} +{re.escape(finding['value'])}$"
        assert re.search(line, people.out, re.MULTILINE), finding["name"]
        assert finding["status"] == "ok" or f"-> {finding['hint']}" in people.out
    assert list(report) == ["ragidx", "findings", "model", "encoder", "device", "dtype", "checks", "n_failed"]
    assert (report["model"], report["checks"], report["n_failed"]) == (None, [], 0)


@pytest.mark.usefixtures("model")
def test_at_a_terminal_it_says_what_it_waits_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragidx.pipelines.cli.console.is_terminal", lambda: True)
    monkeypatch.setattr("ragidx.pipelines.cli.console.PATIENCE_S", 0)

    assert run("doctor", "--model", "tiny").err.startswith("loading tiny and checking it ...")


@pytest.mark.usefixtures("model")
def test_the_command_shows_the_checks_of_a_model_and_ends_well(run: Run) -> None:
    args = ("doctor", "--model", "tiny", "--method", "llm2vec", "--device", "cpu", "--dtype", "float32")

    people, machines = run(*args), run(*args, "--json")

    report = json.loads(machines.out)
    blocks = people.out.split("\n\n")
    assert (people.status, people.err, machines.status, machines.err) == (0, "", 0, "")
    assert blocks[1].splitlines() == [
        "model         tiny",
        "encoder       llm2vec, mean pooling, bidirectional attention, last layer",
        "a build here  cpu, float32",
    ]
    head, *table = blocks[2].splitlines()
    assert re.split(r"  +", head) == ["status", "check", "in", "worst", "limit", "what to do"]
    for line, check in zip(table, report["checks"], strict=True):
        measured = check["difference"] is not None
        numbers = [f"{check['difference']:.1e}", f"<= {check['limit']:.0e}"] if measured else ["-", "-"]
        hint = [as_options(check["hint"])] if check["hint"] else []
        assert re.split(r"  +", line) == ["ok", check["name"], check["dtype"], *numbers, *hint]
    assert blocks[3] == "5 checks passed.\n"
    assert (report["model"], report["n_failed"]) == ("tiny", 0)


def test_the_command_ends_with_status_1_where_a_check_fails(
    run: Run, folder: Path, tiny_sentence_transformer: Path
) -> None:
    shutil.copytree(tiny_sentence_transformer, folder / "bert")

    done = run("doctor", "--model", "bert", "--method", "echo", "--device", "cpu")
    for_machines = run("doctor", "--model", "bert", "--method", "echo", "--device", "cpu", "--json")

    row = next(line for line in done.out.splitlines() if line.startswith("failed"))
    assert (done.status, done.err, for_machines.status) == (1, "", 1)
    assert re.split(r"  +", row)[:5] == ["failed", "loading", "float32", "-", "-"]
    assert done.out.endswith("\n\n2 of 2 checks failed.\n")
    assert json.loads(for_machines.out)["n_failed"] == 2


def test_the_command_has_every_option_of_an_encoder_and_hands_it_on(run: Run) -> None:
    from ragidx.indexer.encoders.methods import ENCODER_OPTIONS
    from ragidx.pipelines.cli.doctor import command

    options = {option.name: option for option in command.params if isinstance(option, click.Option)}

    others = {"model", "device", "dtype", "attn", "endpoint", "index", "offline", "as_json"}
    assert set(options) == {*ENCODER_OPTIONS, *others}
    assert (options["model"].help or "").startswith("Check this model too: mini, mini-decoder, a folder, a GGUF file, ")
    for name in ENCODER_OPTIONS:
        typed = options[name].opts[0]
        value = [] if options[name].is_flag else ["1"]
        done = run("doctor", typed, *value)
        assert (done.status, done.out) == (2, "")
        assert done.err == (
            f"Error: {typed}: it says how a model is run, and no model is named\n"
            "  hint: add --model mini, a folder or a hub id\n"
        )
