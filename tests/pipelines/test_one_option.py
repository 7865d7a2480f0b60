"""An option of a search, a build, an evaluation or training is one line, and is in every place that takes it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ragidx

ROOT = Path(ragidx.__file__).resolve().parent
SEARCH = '    glow: Annotated[int | None, Option("N", "Let N hits glow.", "Hit", least=1, for_agents=True)]\n'
BUILD = '    glow: Annotated[int | None, Option("N", "Let N chunks glow, as `stemmer` says.", "Index")]\n'
TRAINING = '    glow: Annotated[int, _training("N", "Let N pairs glow, as `epochs` says.", default=3, least=1)]\n'
GRID = '    glow: Annotated[_Ints, _filter("N", "A glow, as `tau` says.")] = None\n'
BEGIN = """
import inspect, importlib.util, json, sys
from pathlib import Path
from click.testing import CliRunner
import ragidx
from ragidx.pipelines.cli.main import cli
spec = importlib.util.spec_from_file_location("reference", sys.argv[1])
page = importlib.util.module_from_spec(spec)
spec.loader.exec_module(page)
found = {"cli.md": page.reference()}
"""
OF_SEARCH = """
import asyncio
from ragidx.pipelines.serve import agents
from ragidx.pipelines.serve.interface import description
found["help"] = CliRunner().invoke(cli, ["query", "--help-all"]).output
found["help()"] = inspect.getdoc(ragidx.Index.search)
found["signature"] = str(inspect.signature(ragidx.search))
found["HTTP"] = description()["components"]["schemas"]
[tool] = [one for one in asyncio.run(agents.tools(None).list_tools()) if one.name == "search"]
found["MCP"] = tool.input_schema["properties"]
print(json.dumps(found))
"""
OF_BUILD = """
from ragidx.pipelines.cli.config import options_of_file, read_config
from ragidx.pipelines.cli.help import as_options
found["help"] = CliRunner().invoke(cli, ["build", "--help-all"]).output
for member in (ragidx.build, ragidx.Index.build, ragidx.Index.create, ragidx.Index.plan):
    found[member.__qualname__] = [inspect.getdoc(member), str(inspect.signature(member))]
found["message"] = as_options("`glow` is out of range")
for value in ("3", "true", "\'many\'"):
    Path("ragidx.toml").write_text(f"[index]\\nglow = {value}\\n")
    try:
        found[value] = read_config(Path("ragidx.toml"), options_of_file(cli.get_command(None, "build"))).options
    except ragidx.SpecError as fault:
        found[value] = str(fault)
print(json.dumps(found))
"""
OF_TRAINING = """
from ragidx.pipelines.cli.help import as_options
found["help"] = CliRunner().invoke(cli, ["train", "head", "--help-all"]).output
for member in (ragidx.train.head, ragidx.train.pooling):
    found[member.__name__] = [inspect.getdoc(member), str(inspect.signature(member))]
found["message"] = as_options("`glow` is out of range")
for value in (0, 1):
    try:
        ragidx.train.head(pairs="none", glow=value)
    except ragidx.RagidxError as fault:
        found[value] = str(fault)
print(json.dumps(found))
"""
OF_GRID = """
found["help"] = CliRunner().invoke(cli, ["evaluate", "--help-all"]).output
found["help()"], found["signature"] = inspect.getdoc(ragidx.Grid), str(inspect.signature(ragidx.Grid))
found["called"] = CliRunner().invoke(cli, ["evaluate", "none", "--glow", "3", "--glow", "4.5"]).output
found["axes"] = ragidx.Grid(glow=[3, 3]).axes()
print(json.dumps(found))
"""


def found_with(line: str, before: str, module: str, code: str, folder: Path) -> Any:
    """What a program prints as JSON that runs in a copy of the package, of which one module has a line more."""
    path, package = Path(module), folder / "ragidx"
    for inner in (Path(), *reversed(path.parents[:-1])):
        (package / inner).mkdir()
        for one in (ROOT / inner).iterdir():
            if one.name not in (".git", ".venv", ".typing", "build") and not path.is_relative_to(inner / one.name):
                (package / inner / one.name).symlink_to(one)
    text = (ROOT / path).read_text()
    assert text.count(before) == 1
    (package / path).write_text(text.replace(before, line + before))

    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code, str(ROOT / "docs" / "cli_reference.py")],
        env=os.environ | {"PYTHONPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_an_option_of_a_search_that_is_added_by_one_line_is_in_all_places(tmp_path: Path) -> None:
    found = found_with(SEARCH, "    per_document: Annotated[", "retriever/keywords.py", OF_SEARCH, tmp_path)

    assert re.search(r"Hit options:\n(  .*\n)*  --glow N +Let N hits glow\.  \[x>=1\]\n", found["help"])
    assert "Let N hits glow.  [x>=1]" in found["cli.md"]
    assert "\n    glow: Let N hits glow.\n" in found["help()"]
    assert "glow: int | None = None" in found["signature"]
    for body in ("Search", "SearchBatch", "VectorSearch"):
        field = found["HTTP"][body]["properties"]["glow"]
        assert (field["description"], field["anyOf"][0]["minimum"]) == ("Let N hits glow.", 1)
    assert found["MCP"]["glow"]["description"] == "Let N hits glow."


@pytest.mark.slow
def test_an_option_of_a_build_that_is_added_by_one_line_is_in_all_places(tmp_path: Path) -> None:
    found = found_with(BUILD, "    lexical: Annotated[", "retriever/keywords.py", OF_BUILD, tmp_path)

    assert re.search(r"Index options:\n(  .*\n)*  --glow N +Let N chunks glow, as --stemmer says\.\n", found["help"])
    assert found["cli.md"].count("Let N chunks glow, as --stemmer says.") == 1
    for member in ("build", "Index.build", "Index.create", "Index.plan"):
        help_, signature = found[member]
        assert "glow: int | None = None" in signature
        assert member == "Index.plan" or "\n    glow: Let N chunks glow, as `stemmer` says.\n" in help_
    assert found["message"] == "--glow is out of range"
    assert found["3"] == {"glow": "3"}
    assert found["true"].startswith("ragidx.toml:2: the value of 'glow' is of another type")
    assert found["'many'"].startswith("ragidx.toml:2: the value of 'glow': 'many' is not a valid integer")


@pytest.mark.slow
def test_an_option_of_training_that_is_added_by_one_line_is_in_all_places(tmp_path: Path) -> None:
    module = "pipelines/experiments/train/keywords.py"
    found = found_with(
        TRAINING, '    force: Annotated[bool, _training(None, "Write the file', module, OF_TRAINING, tmp_path
    )

    said = r"--glow N +Let N pairs glow, as --epochs\s+says\.\s+\[default: 3; x>=1\]"
    assert re.search(rf"Training options:\n(  .*\n)*  {said}\n", found["help"])
    assert len(re.findall(said, found["cli.md"])) == 2
    for member in ("head", "pooling"):
        help_, signature = found[member]
        assert "glow: int = 3" in signature
        assert "\n    glow: Let N pairs glow, as `epochs` says.\n" in help_
    assert found["message"] == "--glow is out of range"
    assert found["0"] == "`glow`: glow=0 is out of range\n  hint: give 1 or more"
    assert found["1"] == "none: no such file or folder\n  hint: check the path"


@pytest.mark.slow
def test_an_axis_of_a_grid_that_is_added_by_one_line_is_in_all_places(tmp_path: Path) -> None:
    module = "pipelines/experiments/evaluate/options.py"

    found = found_with(GRID, "    dim: Annotated[", module, OF_GRID, tmp_path)

    assert re.search(r"Filter options:\n(  .*\n)*  --glow N +A glow, as --tau says; may be repeated\.\n", found["help"])
    assert found["cli.md"].count("A glow, as --tau says; may be repeated.") == 1
    assert "\n    glow: A glow, as `tau` says.\n" in found["help()"]
    assert "glow: int | collections.abc.Sequence[int] | None = None" in found["signature"]
    assert "'--glow': '4.5' is not a valid integer" in found["called"]
    assert found["axes"] == {"glow": [3]}
