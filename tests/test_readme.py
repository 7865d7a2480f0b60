"""The README is short, its figures are measured, and what it leads to is there. Its examples: tests/test_docs.py."""

from __future__ import annotations

import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import ragidx
from ragidx.pipelines.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def _between(page: str, mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n(.*?)<!-- /{mark} -->", (ROOT / page).read_text("utf-8"), re.DOTALL)
    assert found
    return found[1]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120
    assert len(README.encode()) <= 8 * 1024


def test_every_command_has_a_row_that_links_its_page() -> None:
    rows = re.findall(r"^\| (\[`ragidx .*?\)) \|", README, re.MULTILINE)

    named = [re.findall(r"\[`ragidx ([\w-]+)`\]\(docs/\w+\.md(?:#[\w-]+)?\)", row) for row in rows]
    assert sorted(name for names in named for name in names) == sorted(COMMANDS)


def test_the_figure_of_every_reason_is_on_the_page_it_links() -> None:
    reasons = re.findall(r"^- \*\*.+\*\*(?:.|\n  )+$", README.split("## Why ragidx")[1].split("\n## ")[0], re.MULTILINE)

    assert len(reasons) == 5
    for reason in reasons:
        _, figure = re.findall(r"\*\*([^*]+)\*\*", reason)
        pages = [ROOT / target for target in re.findall(r"\]\((docs/\w+\.md)", reason)]
        shown = [page.read_text("utf-8") for page in pages] + [_between("README.md", "smollm2")]
        assert pages
        assert any(figure in text for text in shown), figure


def test_the_two_commands_of_make_are_named() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

    named = set(re.findall(r"(?:`|^ {4})make ([a-z]+)", README, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.wheel
@pytest.mark.slow
def test_the_demos_output_is_what_it_prints(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ragidx", "demo"], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    shown = _between("docs/install.md", "demo").removeprefix("```text\n").removesuffix("```\n")
    assert done.stdout == shown.replace(".venv/bin/ragidx", "ragidx")


def test_every_public_name_is_shown() -> None:
    page = (ROOT / "docs" / "python.md").read_text("utf-8")

    assert [name for name in ragidx.__all__ if f"ragidx.{name}" not in page] == []


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


def test_the_figures_are_those_that_were_measured() -> None:
    table = runpy.run_path(str(ROOT / "benchmarks" / "table.py"))

    found = table["rows"]()
    for page, mark, make in table["PLACES"]:
        assert _between(page, mark) == make(found), f"{page}, {mark}: python benchmarks/table.py --write"


def test_the_results_are_those_that_were_measured() -> None:
    folder = str(ROOT / "benchmarks")
    sys.path.insert(0, folder)
    try:
        results = runpy.run_path(f"{folder}/results.py")
    finally:
        sys.path.remove(folder)

    pages = results["pages"](*results["read_rows"]())
    sets = {f"results-{name}.md" for name in ("sample", "stsb", "cranfield", "scifact")}
    assert {path.name for path in pages} == sets | {"README.md"}
    for path, tables in pages.items():
        text = path.read_text("utf-8")
        assert results["filled"](text, tables) == text
