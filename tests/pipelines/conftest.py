"""The command line as a user meets it: arguments in; exit status, standard output and standard error out."""

from __future__ import annotations

import io
import math
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.main import main

PROGRESS = re.compile(r"(?m)^[a-z ]+: \d+ %, .*\n")  # lines that come on a slow machine alone


class Done(NamedTuple):
    """What a command left behind; equal to the plain tuple."""

    status: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _no_lines_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a build takes is the machine's affair; a test of these lines says how often they come."""
    monkeypatch.setattr(console, "PLAIN_EVERY_S", math.inf)


@pytest.fixture(scope="session")
def _caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(autouse=True)
def _own_cache(_caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No raw vectors of another run are found; the folder is made by whoever keeps some."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(_caches / uuid.uuid4().hex))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, so that commands and messages have short names; no setting of the caller's."""
    monkeypatch.chdir(tmp_path)
    for name in ("RAGIDX_INDEX", "RAGIDX_DEBUG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """`run("build", "corpus")`: the command in this process."""

    def call(*args: str, stdin: bytes = b"") -> Done:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            with pytest.raises(SystemExit) as left:
                main(list(args))
        assert isinstance(left.value.code, int)
        return Done(left.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def run_process(folder: Path) -> Callable[..., Done]:
    """`run_process("build", "corpus")`: the command as a process of its own.

    `through` stands in front of it: a command that runs the rest in another setting; `code` in place of `-m ragidx`.
    """

    def call(
        *args: str,
        through: Sequence[str] = (),
        code: str = "",
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Done:
        start = ["-c", code] if code else ["-m", "ragidx"]
        done = subprocess.run(
            [*through, sys.executable, *start, *args],
            cwd=folder,
            env=os.environ | (env or {}),
            input=stdin,
            capture_output=True,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), PROGRESS.sub("", done.stderr.decode()))

    return call


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sweep's searches a few are timed, not hundreds: no test looks at how long they take."""
    for name in ("_SINGLE_CALLS", "_BATCH_CALLS", "_LEAST_CALLS"):
        monkeypatch.setattr(f"ragidx.pipelines.experiments.evaluate.cells.{name}", 2)


@pytest.fixture(scope="session")
def _indexes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("indexes")


@pytest.fixture
def model(folder: Path, tiny_model: Callable[..., Path]) -> Path:
    """`tiny`, the folder of a random model of two layers, 32 wide, that reads 128 tokens."""
    return shutil.copytree(tiny_model("llama"), folder / "tiny")


@pytest.fixture
def index(small_corpus: Path, model: Path, run: Callable[..., Done], folder: Path, _indexes: Path) -> Path:
    """`ragidx-index`, the default, made of `corpus` with `tiny`: made once a run, a copy for each test.

    The model knows no meaning, but it reads query and document alike: a document's own text finds it with score 1.
    """
    return _copy(_indexes / "tiny", folder, run, "--model", "tiny", "--method", "classical")


@pytest.fixture
def mini_index(small_corpus: Path, run: Callable[..., Done], folder: Path, _indexes: Path) -> Path:
    """The same with the bundled model, which knows what a question means."""
    return _copy(_indexes / "mini", folder, run)


@pytest.fixture
def decoder_index(small_corpus: Path, run: Callable[..., Done], folder: Path, _indexes: Path) -> Path:
    """The same with the bundled decoder, which has layers and a head."""
    return _copy(_indexes / "decoder", folder, run, "--model", "mini-decoder")


def _copy(ready: Path, folder: Path, run: Callable[..., Done], *options: str) -> Path:
    if not ready.exists():
        done = run("build", "corpus", *options)  # beside the corpus, as its copies are
        assert (done.status, done.err) == (0, "")
        (folder / "ragidx-index").rename(ready)
    return shutil.copytree(ready, folder / "ragidx-index")
