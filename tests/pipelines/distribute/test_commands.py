"""`ragidx build --shards`, `--shard` and `--commit`: what they print and refuse; the page's files for schedulers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Done
from .conftest import WORDS, same, write

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "shards.md").read_text("utf-8")


@pytest.fixture
def corpus(folder: Path) -> Path:
    return write(folder / "docs", {f"{word}.txt": f"About the {word}." for word in WORDS})


def test_the_three_steps(corpus: Path, folder: Path, run: Callable[..., Done]) -> None:
    assert run("build", "docs", "--index", "one").status == 0
    divided = run("build", "docs", "--shards", "2", "--stage", "stage", "--json")
    said: dict[str, Any] = json.loads(divided.out)
    assert (said["n_shards"], said["stage"], said["index"]) == (2, "stage", str(folder / "ragidx-index"))
    assert sum(said["bytes"]) == sum(path.stat().st_size for path in corpus.iterdir())
    first = run("build", "--shard", "0/2", "--stage", "stage", "--device", "cpu")
    assert first == (0, "shard  0 of 2\nadds   6 documents, 6 chunks\n", "")
    second = run("build", "--shard", "1/2", "--stage", "stage", "--json")
    assert json.loads(second.out)["number"] == 1
    committed = run("build", "--commit", "stage")
    assert committed.status == 0
    assert "index      ragidx-index (generation 1)" in committed.out
    assert "documents  12: 12 new, 0 changed, 0 unchanged" in committed.out
    same(folder / "one", folder / "ragidx-index")
    again = run("build", "--commit", "stage")
    assert (again.status, again.err) == (0, "stage: committed already.\n")
    assert "index      ragidx-index (generation 1, unchanged)" in again.out
    shutil.rmtree(folder / "ragidx-index")
    for gone in ("ragidx-index", "stage/committed.json"):  # the second is of a stage that was never divided
        nothing = run("build", "--commit", "stage")
        assert (nothing.status, nothing.out) == (2, "")
        assert "stage: there is no division in this folder" in nothing.err
        (folder / gone).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["docs", "--shards", "2"], "--shards needs --stage DIR"),
        (["--shard", "0/2"], "--shard needs --stage DIR"),
        (["docs", "--stage", "s"], "--stage is for --shards N, --shard I/N or --ray"),
        (["--shard", "0/2", "--shards", "2", "--stage", "s"], "--shards and --shard exclude each other"),
        (["docs", "--shard", "0/2", "--stage", "s"], "--shard takes no CORPUS"),
        (["docs", "--commit", "s"], "--commit takes no CORPUS"),
        (
            ["--shard", "0/2", "--stage", "s", "--chunk-size", "9"],
            "--chunk-size does not go with --shard: name it with",
        ),
        (["--commit", "s", "--index", "i"], "--index does not go with --commit"),
        (["--vectors", "v.npy", "--shards", "2", "--stage", "s"], "--vectors does not go with --shards"),
        (["docs", "--plan", "--shards", "2", "--stage", "s"], "--plan does not go with --shards"),
        (["docs", "--shards", "0", "--stage", "s"], "0 is no number of shards"),
        (["-", "--shards", "2", "--stage", "s"], "standard input cannot be divided"),
        (["nowhere", "--shards", "2", "--stage", "s"], "nowhere: cannot be opened: No such file or directory"),
        (["--shard", "0/2", "--stage", "s"], "there is no division in this folder"),
    ],
)
def test_what_is_refused(corpus: Path, run: Callable[..., Done], arguments: list[str], message: str) -> None:
    done = run("build", *arguments)
    assert done.status == 2
    assert message in done.err


def test_a_number_that_is_no_shard(corpus: Path, run: Callable[..., Done]) -> None:
    assert run("build", "docs", "--shards", "2", "--stage", "stage").status == 0
    for text, message in (
        ("1", "'1' is not I/N, such as 0/8"),
        ("0/3", "the stage has 2 shards, not 3"),
        ("2/2", "there is no shard 2"),
    ):
        done = run("build", "--shard", text, "--stage", "stage")
        assert done.status == 2
        assert message in done.err


def blocks(language: str) -> list[str]:
    """What the page shows in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_script_for_slurm(tmp_path: Path) -> None:
    checker = shutil.which("shellcheck")
    if checker is None:
        pytest.skip("the program shellcheck is not installed")
    [script] = blocks("bash")
    (tmp_path / "shards.sh").write_text(script)
    done = subprocess.run([checker, str(tmp_path / "shards.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_job_for_kubernetes() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="the package kubernetes-validate is not installed")
    yaml = pytest.importorskip("yaml")
    [job] = blocks("yaml")
    validate.validate(yaml.safe_load(job), validate.latest_version(), strict=True)
