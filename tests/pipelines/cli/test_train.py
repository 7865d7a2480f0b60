"""`ragidx train` as a user runs it: the table, the command that follows, JSON, and what goes wrong."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Done

Run = Callable[..., Done]
WORDS = ("river", "mill", "lease", "tower", "bees")


@pytest.fixture
def pairs(folder: Path) -> Path:
    """`pairs.jsonl`: 200 pairs."""
    lines = [{"query": f"{WORDS[n % 5]} {n}", "positive": f"The {WORDS[n % 5]} has number {n}."} for n in range(200)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "pairs.jsonl"


@pytest.mark.slow
@pytest.mark.usefixtures("pairs")
def test_a_head_is_trained_and_the_command_that_is_printed_builds_with_it(run: Run, folder: Path) -> None:
    done = run("train", "head", "mini-decoder", "--pairs", "pairs.jsonl", "--layer", "1", "--cache", "none",
               "--epochs", "1", "--force")  # fmt: skip

    lines = done.out.splitlines()
    assert lines[0].startswith("mini-decoder: 180 of 200 pairs, 20 held out; encoding ")
    assert [line.split()[0] for line in lines[2:6]] == ["vectors", "none", "whitening", "linear"]
    assert lines[-1] == "ragidx build CORPUS --model mini-decoder --layer 1 --filter head:head.safetensors"
    assert done.err == "With fewer than 2,000 pairs whitening may be as good: --kind whitening.\n"
    (folder / "docs").mkdir()
    (folder / "docs" / "mill.md").write_text("The mill stands by the river.\n")
    command = lines[-1].replace("CORPUS", "docs").split()[1:]
    assert run(*command).status == 0
    assert "head:" in run("info").out
    assert run("query", "where is the mill?").status == 0
    assert run("train", "head", "ragidx-index", "--pairs", "pairs.jsonl", "--cache", "none", "--epochs", "1",
               "--force").out.splitlines()[-1] == (
        "ragidx upgrade --index ragidx-index --filter head:head.safetensors"
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("pairs")
def test_json_has_every_figure(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    done = run("train", "head", "mini", "--pairs", "pairs.jsonl", "--kind", "whitening", "--cache", "none", "--force",
               "--json", "--out", "white.head")  # fmt: skip

    report = json.loads(done.out)
    assert not (folder / "cache" / "ragidx" / "vectors").exists()
    assert (done.status, report["file"], report["n_pairs"], report["of_pairs"]) == (0, "white.head", 180, 200)
    assert [(score["name"], score["dim"]) for score in report["scores"]] == [("none", 384), ("whitening", 96)]


@pytest.mark.slow
@pytest.mark.usefixtures("pairs")
def test_a_pooling_is_trained_and_the_command_that_is_printed_builds_with_it(run: Run, folder: Path) -> None:
    done = run("train", "pooling", "mini-decoder", "--pairs", "pairs.jsonl", "--method", "llm2vec", "--cache", "none",
               "--epochs", "1", "--latents", "2", "--heads", "2", "--head-width", "8", "--force")  # fmt: skip

    lines = done.out.splitlines()
    assert lines[0].startswith("mini-decoder: 180 of 200 pairs, 20 held out; encoding ")
    assert [line.split("  ")[0] for line in lines[2:5]] == ["vectors", "last layer", "trained"]
    assert lines[-1] == (
        "ragidx build CORPUS --model mini-decoder --method llm2vec --pooling trainable --pooler pooling.safetensors "
        "--layer -1 --filter none"
    )
    (folder / "docs").mkdir()
    (folder / "docs" / "mill.md").write_text("The mill stands by the river.\n")
    assert run(*lines[-1].replace("CORPUS", "docs").split()[1:]).status == 0
    assert "trainable pooling by pooling.safetensors" in run("info").out
    assert run("query", "where is the mill?").status == 0
    again = run("train", "pooling", "ragidx-index", "--pairs", "pairs.jsonl", "--cache", "none", "--epochs", "1",
                "--limit", "50", "--force")  # fmt: skip
    assert again.out.splitlines()[-1] == (  # of an index with a pooling, whose states these are
        "ragidx upgrade --index ragidx-index --pooling trainable --pooler pooling.safetensors --layer -1 --filter none"
    )
    quiet = run("train", "pooling", "mini-decoder", "--pairs", "pairs.jsonl", "--cache", "none", "--rows", "tokens",
                "--epochs", "1", "--limit", "50", "--force", "--quiet")  # fmt: skip
    assert (quiet.status, quiet.out, quiet.err) == (0, "", "")
    refused = run("train", "pooling", "mini-decoder", "--pairs", "pairs.jsonl", "--layer", "1")
    assert (refused.status, refused.err) == (
        2,
        "Error: --layer: rows of layers are of all layers\n  hint: remove --layer, or take --rows tokens\n",
    )


@pytest.mark.usefixtures("pairs")
def test_what_is_wrong_is_said_in_the_words_of_the_command_line(run: Run) -> None:
    for arguments, message in (
        (("--kind", "deep"), "Error: unknown kind 'deep'"),
        (("--dim", "999"), "Error: --dim: dim=999 is not from 1 to 384\n  hint: give the width of the map\n"),
        (("--limit", "9"), "Error: --pairs: 9 pairs teach nothing\n  hint: give 40 or more\n"),
        (("--out", "pairs.jsonl"), "Error: pairs.jsonl: the file is no head\n"),
        (("--pairs", "none.jsonl"), "Error: none.jsonl: no such file or folder\n  hint: check the path\n"),
    ):
        done = run("train", "head", "mini", "--pairs", "pairs.jsonl", "--cache", "none", *arguments)
        assert (done.status, done.out) == (2, "")
        assert done.err.startswith(message)
    assert run("train", "heda").err.endswith("No such command 'heda'. Did you mean 'head'?\n")
    assert "Missing option '--pairs'" in run("train", "head", "mini").err


@pytest.mark.slow
@pytest.mark.usefixtures("pairs")
def test_a_decoder_is_trained_and_the_command_that_is_printed_builds_with_it(run: Run, folder: Path) -> None:
    done = run("train", "contrastive", "mini-decoder", "--method", "prompteol", "--pairs", "pairs.jsonl",
               "--out", "made", "--batch", "16", "--rate", "5e-3", "--read-tokens", "32", "--force")  # fmt: skip

    fields = dict(
        line.split(maxsplit=1) for line in done.out.splitlines() if not line.startswith(("mean", "learnt", "to"))
    )
    assert done.status == 0
    assert fields["model"] == "mini-decoder, 315,392 parameters learn"
    assert "learnt from           180, 12 of 12 steps, the best after" in done.out
    assert "of 20 that were held out" in done.out
    command = done.out.splitlines()[-1].split(maxsplit=3)[3]
    assert command == "ragidx build CORPUS --model made"
    (folder / "docs").mkdir()
    (folder / "docs" / "mill.md").write_text("The mill stands by the river.\n")
    assert run(*command.replace("CORPUS", "docs").split()[1:]).status == 0
    assert "prompteol" in run("info").out

    exported = run("train", "export", "ragidx-index", "st")
    lines = exported.out.splitlines()
    assert (exported.status, lines[0]) == (0, "folder      st, 128 dimensions")
    assert lines[1] == "modules     Transformer, Pooling, Dense, Normalize"
    assert lines[-1] == 'to use it   SentenceTransformer("st")'
    as_json = json.loads(run("train", "export", "made", "st2", "--json").out)
    assert (as_json["folder"], as_json["dim"], as_json["prompts"]) == ("st2", 128, {})


@pytest.mark.slow
@pytest.mark.usefixtures("pairs")
def test_a_decoder_that_is_no_better_ends_with_status_1(run: Run, folder: Path) -> None:
    done = run("train", "contrastive", "mini-decoder", "--method", "prompteol", "--pairs", "pairs.jsonl",
               "--out", "made", "--batch", "16", "--rate", "1e-9", "--read-tokens", "32", "--limit", "60",
               "--json")  # fmt: skip

    report = json.loads(done.out)
    assert (done.status, report["folder"], report["best_step"]) == (1, None, 0)
    assert not (folder / "made" / "config.json").exists()


def test_what_a_decoder_is_trained_on_has_to_be_there(run: Run, folder: Path) -> None:
    done = run("train", "mntp", "mini-decoder", "--text", "nothing", "--out", "made")

    assert (done.status, done.out) == (2, "")
    assert "nothing" in done.err


@pytest.mark.slow
def test_texts_of_a_decoder_that_are_too_few_are_those_of_an_option(run: Run, folder: Path) -> None:
    (folder / "few.jsonl").write_text('{"id": "a", "text": "The mill."}\n')

    assert run("train", "simcse", "mini-decoder", "--text", "few.jsonl", "--out", "made").err == (
        "Error: --text: 1 texts teach nothing\n  hint: give 40 or more\n"
    )


@pytest.mark.parametrize("stage", ["contrastive", "simcse", "mntp", "export"])
def test_a_missing_extra_is_named(stage: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name in ("peft", "torch") else find(name, *more)
    )
    needed = ["--pairs", "p"] if stage == "contrastive" else ["--text", "t"]
    done = run("train", stage, "m", *(["out"] if stage == "export" else [*needed, "--out", "o"]))

    packages = "torch, which is" if stage == "export" else "torch and peft, which are"
    extra = "models" if stage == "export" else "train"
    assert done.status == 2
    assert done.err == (
        f"Error: `train.{stage}` needs {packages} not installed\n"
        f"  hint: pip install '.[{extra}]' in a checkout of ragidx\n"
    )
