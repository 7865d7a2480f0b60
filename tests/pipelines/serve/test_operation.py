"""The unit file and the line for cron of docs/serve.md: what they start takes these options, systemd takes the unit."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ragidx.pipelines.cli.serve import command
from ragidx.pipelines.index import Index

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "serve.md").read_text()
RAGIDX = "/opt/ragidx/bin/ragidx"


def block(language: str, first: str) -> str:
    """The text of a block of the page that begins with a line."""
    [found] = re.findall(rf"^```{language}\n{re.escape(first)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


UNIT = block("ini", "# /etc/systemd/system/ragidx.service")


def test_the_unit_starts_the_service() -> None:
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT)
    program, name, *options = shlex.split(unit["Service"]["ExecStart"])
    context = command.make_context(name, options)
    assert (program, name) == (RAGIDX, "serve")
    assert context.params["indexes"] == ("docs=/srv/ragidx/index",)
    assert unit["Service"]["User"] == "ragidx"
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze on this machine")
    true = shutil.which("true")
    assert true is not None
    (tmp_path / "ragidx.service").write_text(UNIT.replace(RAGIDX, true))
    done = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", str(tmp_path / "ragidx.service")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if "ragidx.service" in line]) == (0, [])


def test_the_line_for_cron_builds(small_corpus: Path, tmp_path: Path, run: Any) -> None:
    [line] = block("text", "# /etc/cron.d/ragidx").splitlines()
    *times, user, program, rest = line.split(maxsplit=7)
    assert (times, user, program) == (["30", "3", "*", "*", "*"], "ragidx", RAGIDX)
    assert "%" not in rest  # a line end to cron
    places = {"/srv/ragidx/documents": str(small_corpus), "/srv/ragidx/index": str(tmp_path / "index")}
    done = run(*(places.get(word, word) for word in shlex.split(rest)))
    assert (done.status, done.out, done.err) == (0, "", "")
    with Index(tmp_path / "index") as built:
        assert built.count() > 0
