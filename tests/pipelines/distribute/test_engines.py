"""The programs of the pages on Dask and Spark, run as they are where the engine is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ragidx

ROOT = Path(ragidx.__file__).resolve().parent


@pytest.mark.slow
@pytest.mark.parametrize(("page", "package"), [("dask", "distributed"), ("spark", "pyspark")])
def test_the_programs_of_the_page(page: str, package: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason=f"the package {package} is not installed")
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    (tmp_path / "corpora").symlink_to(ROOT / "corpora")
    programs = re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", text, re.DOTALL)

    assert programs
    for program, shown in programs:
        (tmp_path / "program.py").write_text(program)
        done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout.endswith(shown), done.stderr
