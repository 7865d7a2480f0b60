"""An option of a search is one line, and is found in every place where it can be given."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ragidx

ROOT = Path(ragidx.__file__).resolve().parent
LINE = '    glow: Annotated[int | None, Option("N", "Let N hits glow.", "Hit", least=1, for_agents=True)]\n'
PLACES = """
import asyncio, importlib.util, inspect, json, sys
import click
from click.testing import CliRunner
import ragidx
from ragidx.pipelines.cli.main import cli
from ragidx.pipelines.serve import agents
from ragidx.pipelines.serve.interface import description
found = {"help": CliRunner().invoke(cli, ["query", "--help-all"]).output, "help()": inspect.getdoc(ragidx.Index.search)}
found["signature"] = str(inspect.signature(ragidx.search))
found["HTTP"] = description()["components"]["schemas"]
spec = importlib.util.spec_from_file_location("reference", sys.argv[1])
page = importlib.util.module_from_spec(spec)
spec.loader.exec_module(page)
found["cli.md"] = page.reference()
[tool] = [one for one in asyncio.run(agents.tools(None).list_tools()) if one.name == "search"]
found["MCP"] = tool.input_schema["properties"]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_an_option_that_is_added_by_one_line_is_in_all_places(tmp_path: Path) -> None:
    package, room = tmp_path / "ragidx", tmp_path / "ragidx" / "retriever"
    room.mkdir(parents=True)
    for folder, copied in ((ROOT, package), (ROOT / "retriever", room)):
        for path in folder.iterdir():
            if path.name not in ("retriever", "keywords.py", ".git", ".venv", ".typing", "build"):
                (copied / path.name).symlink_to(path)
    before = (ROOT / "retriever" / "keywords.py").read_text()
    place = "    per_document: Annotated["
    assert before.count(place) == 1
    (room / "keywords.py").write_text(before.replace(place, LINE + place))

    done = subprocess.run(
        [sys.executable, "-c", PLACES, str(ROOT / "docs" / "cli_reference.py")],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert re.search(r"Hit options:\n(  .*\n)*  --glow N +Let N hits glow\.  \[x>=1\]\n", found["help"])
    assert "Let N hits glow.  [x>=1]" in found["cli.md"]
    assert "\n    glow: Let N hits glow.\n" in found["help()"]
    assert "glow: int | None = None" in found["signature"]
    for body in ("Search", "SearchBatch", "VectorSearch"):
        field = found["HTTP"][body]["properties"]["glow"]
        assert (field["description"], field["anyOf"][0]["minimum"]) == ("Let N hits glow.", 1)
    assert found["MCP"]["glow"]["description"] == "Let N hits glow."
