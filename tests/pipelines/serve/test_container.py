"""The Dockerfile: what it starts, and its check of health, run as they are written there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from .conftest import TOKEN, until

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "Dockerfile").read_text().replace("\\\n", "")


def words(instruction: str) -> list[str]:
    """The JSON form of an instruction."""
    found = re.findall(rf"^{instruction} [^\[]*(\[.*\])$", TEXT, re.MULTILINE)
    listed: list[str] = json.loads(found[-1])
    return listed


@pytest.mark.slow
def test_it_starts_and_is_healthy(index: Path) -> None:
    entry = [word.replace("/index", str(index)) for word in words("ENTRYPOINT")]
    assert entry[0] == "ragidx"
    environment = os.environ | {"RAGIDX_TOKEN": TOKEN}
    command = [sys.executable, "-m", *entry, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as started:
        assert started.stderr is not None
        line = started.stderr.readline()
        assert "auth: bearer token  writable: no" in line
        threading.Thread(target=started.stderr.read, daemon=True).start()
        port = re.search(r":(\d+)  ", line)
        assert port is not None
        check = [word.replace("8411", port[1]) for word in words("HEALTHCHECK")]
        check[0] = sys.executable
        try:
            until(lambda: subprocess.run(check, capture_output=True, check=False).returncode == 0)
            wrong = [word.replace(port[1], "1") for word in check]
            assert subprocess.run(wrong, capture_output=True, check=False).returncode != 0
        finally:
            started.terminate()
        assert started.wait(20) == 0


def test_it_runs_as_no_root_and_holds_no_index() -> None:
    lines = [line.split(maxsplit=1) for line in TEXT.splitlines() if line and not line.startswith("#")]
    last = [line for line in lines if line[0] == "USER"][-1]
    assert int(last[1]) > 0
    assert ["VOLUME", "/index"] in lines
    assert all("slim" in line[1] for line in lines if line[0] == "FROM")
    assert "torch" not in TEXT.split("FROM", 1)[1]
