"""The examples of the pages: Python blocks, and transcripts, which are blocks of text after `<!-- run -->`.

    python docs/transcripts.py docs/build.md README.md      run them, and write what is printed now into the pages

All examples of a page run in its order, in one folder that has `corpora/sample`. What differs from run to run (times,
sizes, dates, speeds) is not compared, and a transcript that differs in nothing else stays as it is.
tests/test_docs.py compares.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_BLOCK = re.compile(r"(<!-- run -->\n)?```(text|python)\n(.*?)```", re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_VARYING = re.compile(
    r"(?<=^speed ).*|[\d.,]+(?= (?:s|ms|min|chunks/s|tokens/s|KiB|MiB|GiB|bytes)\b)|\d{4}-\d\d-\d\dT[\d:]+Z",
    re.MULTILINE,
)
# What was trained on vectors of a network differs in the third digit from processor to processor.
_TRAINED = re.compile(r"^(?:pairs|nDCG@10|difference|a question) .*$", re.MULTILINE)
_NUMBER = re.compile(r"[-+]?\d+\.\d+")


def examples(page: str) -> list[tuple[str, str]]:
    """What is run of a page, in its order: `python` or `text`, and the block."""
    return [(language, body) for mark, language, body in _BLOCK.findall(page) if mark or language == "python"]


def run(page: str, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Run a page's examples in a folder, the working directory; for each command: its line, what is shown, printed."""
    (folder / "corpora").symlink_to(ROOT / "corpora")
    for number, (language, body) in enumerate(examples(page)):
        if language == "python":
            script = folder / f"example{number}.py"
            script.write_text(body, "utf-8")
            runpy.run_path(str(script))
        else:
            for line, shown in _COMMAND.findall(body):
                yield line, shown, _printed(line)


def steady(output: str) -> str:
    """Output without what differs from run to run, and without the widths of columns."""
    plain = _VARYING.sub("#", re.sub(" +", " ", output))
    return _TRAINED.sub(lambda line: _NUMBER.sub("#", line[0]), plain)


def _printed(line: str) -> str:
    """What a command line writes to stdout."""
    script = f'ragidx() {{ "{sys.executable}" -m ragidx "$@"; }}\n{line}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


def _write(path: Path) -> None:
    page = path.read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for line, shown, printed in run(page, Path(folder)):
            if steady(shown) != steady(printed):
                page = page.replace(f"$ {line}\n{shown}", f"$ {line}\n{printed}", 1)
        os.chdir(ROOT)
    path.write_text(page, "utf-8")


if __name__ == "__main__":
    for name in [Path(argument).resolve() for argument in sys.argv[1:]]:
        _write(name)
