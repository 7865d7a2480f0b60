"""The README says what is: its output is real, its Python runs, its commands and options exist."""

from __future__ import annotations

import importlib
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import ragidx

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def _between(mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n(.*?)<!-- /{mark} -->", README, re.DOTALL)
    assert found
    return found[1]


@pytest.mark.slow
def test_the_demos_output_is_what_it_prints(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ragidx", "demo"], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    shown = _between("demo").removeprefix("```text\n").removesuffix("```\n").replace(".venv/bin/ragidx", "ragidx")
    assert done.stdout == shown


@pytest.mark.slow
def test_the_lens_output_is_what_it_prints() -> None:
    shown = re.search(r"```text\n\$ (ragidx lens .*?)\n(.*?)```", README, re.DOTALL)
    assert shown
    done = subprocess.run([sys.executable, "-m", *shlex.split(shown[1])], capture_output=True, text=True, check=True)

    assert done.stdout == shown[2]


@pytest.mark.parametrize("line", re.findall(r"^    (ragidx [^#\n]+)", README, re.MULTILINE))
def test_each_command_line_names_options_that_exist(line: str) -> None:
    from ragidx.pipelines.cli.main import cli

    words = shlex.split(line)
    command = cli.get_command(click.Context(cli), words[1])
    assert command is not None
    known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
    assert {word for word in words[2:] if re.match(r"--?[a-z]", word)} <= known


def test_every_command_stands_in_the_table() -> None:
    from ragidx.pipelines.cli.main import COMMANDS

    assert set(re.findall(r"^\| `ragidx (\w+)", README, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.slow
def test_the_python_examples_run(small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2

    for number, block in enumerate(blocks):
        (tmp_path / f"example{number}.py").write_text(block)
        runpy.run_path(str(tmp_path / f"example{number}.py"))

    assert ragidx.Retriever.open("index/").store.manifest.n_documents == 6


def test_every_public_name_is_shown() -> None:
    for name in ("build", "Retriever", "load_encoder", "EmbedFilter"):
        assert f"ragidx.{name}" in README


@pytest.mark.parametrize("target", re.findall(r"\]\(((?!http)[^)#]+)\)", README))
def test_every_link_leads_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


def _with_examples() -> list[str]:
    rooms = [path for room in ("corpora", "indexer", "retriever", "pipelines") for path in (ROOT / room).rglob("*.py")]
    return sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in rooms if ">>> " in path.read_text()
    )


@pytest.mark.parametrize("name", _with_examples())
def test_examples_in_docstrings_run(name: str) -> None:
    import doctest

    done = doctest.testmod(importlib.import_module(f"ragidx.{name}"))

    assert done.attempted > 0
    assert done.failed == 0


@pytest.mark.parametrize("page", ["README.md", "docs/figures.md"])
def test_the_figures_are_those_that_were_measured(page: str) -> None:
    table = runpy.run_path(str(ROOT / "benchmarks" / "table.py"))
    path = ROOT / page

    shown = re.search(r"<!-- figures -->\n(.*?)<!-- /figures -->", path.read_text("utf-8"), re.DOTALL)
    assert shown
    assert shown[1] == table["PLACES"][path](table["rows"]())
