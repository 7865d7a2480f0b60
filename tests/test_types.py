"""What a type checker says of programs that use ragidx: one run, with the settings and the cache of `make types`."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import ragidx
from ragidx.pipelines.index import Index

pytest.importorskip("mypy", reason="needs mypy, of the extra 'test'")

ROOT = Path(__file__).resolve().parents[1]
RIGHT = """
import ragidx
from ragidx import Condition, field

late: Condition = (field("year") >= 1990) & ~field("lang").is_in(["de", "fr"]) | field("title").is_null()
years: list[Condition] = [1990 <= field("year"), field("year") == 1990, field("year") != 1.5]


def found(index: ragidx.Index, where: str | Condition | None = None) -> list[str]:
    with index.batch() as batch:
        batch.delete(where=late)
    return [hit.doc_id for hit in index.search("who?", where=late)] + [one.id for one in index.documents(where=where)]
"""
WRONG = """
from ragidx import field

field("year") >= [1990]
(field("year") == 1) & True
field("lang").contains(3)
"""


@pytest.mark.slow
def test_conditions_and_the_script_of_the_python_page_which_uses_every_member_of_an_index(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    _, script = runpy.run_path(str(ROOT / "docs" / "transcripts.py"))["examples"](page)[0]
    members = {name for name in [*vars(Index), "report"] if not name.startswith("_")} - {"searcher"}
    files = {"page.py": script, "right.py": RIGHT, "wrong.py": WRONG}
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    done = subprocess.run(
        [sys.executable, "-m", "mypy", *(str(tmp_path / name) for name in files)],  # strict, as ragidx itself
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(Path(ragidx.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert members - set(re.findall(r"[Ii]ndex\.(\w+)", script)) == set()
    told = [line.split(":")[:2] for line in done.stdout.splitlines() if ": error:" in line]
    assert [[Path(name).name, line] for name, line in told] == [["wrong.py", n] for n in "456"], done.stdout
