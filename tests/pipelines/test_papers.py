"""Every command of docs/papers.md runs, on the bundled decoder and folders of a few texts; with few steps."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Done

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text("utf-8")
PAPERS = re.findall(r"^## (.+)\n(?:.*\n)*?```sh\n((?:.*\n)*?)```", PAGE, re.MULTILINE)
FEW = {"--steps": "2", "--batch": "4", "--warmup": "1", "--latents": "4"}
WORDS = ["river", "lamp", "tower", "bee", "letter", "wolf", "mill", "honey"]
WORDS += ["harbour", "glass", "winter", "road", "signal", "garden", "bridge", "captain"]
TEXTS = [f"The {a} near the {b} was seen by the {c}." for a, b, c in zip(WORDS, WORDS[1:], WORDS[2:], strict=False)]


@pytest.fixture
def sets(folder: Path) -> None:
    """The folders and files that the page names."""
    for name in ("stsb", "scifact/qrels", "texts", "docs"):
        (folder / name).mkdir(parents=True)
    for path in sorted((ROOT / "corpora" / "sample" / "documents" / "history").glob("*.md"))[:4]:
        shutil.copy(path, folder / "docs")
    for number, text in enumerate(TEXTS * 4):
        (folder / "texts" / f"{number}.txt").write_text(f"{text} It was {number}. " * 4)
    pairs = [f"{number % 5}\t{text}\t{TEXTS[number // 2]}\n" for number, text in enumerate(TEXTS)]
    (folder / "stsb" / "test.tsv").write_text("".join(pairs))
    documents = [{"_id": f"d{number}", "text": text} for number, text in enumerate(TEXTS)]
    queries = [{"_id": f"q{number}", "text": f"where is the {word}?"} for number, word in enumerate(WORDS[:6])]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / "scifact" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = "".join(f"q{number}\td{number}\t1\n" for number in range(6))
    (folder / "scifact" / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    with (folder / "pairs.jsonl").open("w") as stream:
        for number in range(64):
            word = f"{WORDS[number % 16]} {number}"
            stream.write(json.dumps({"query": f"where is {word}?", "positive": f"Here is the {word}."}) + "\n")


def test_the_page_is_of_five_papers() -> None:
    assert len(PAPERS) == 5


@pytest.mark.slow
@pytest.mark.usefixtures("sets")
@pytest.mark.parametrize(("paper", "commands"), PAPERS, ids=[paper for paper, _ in PAPERS])
def test_the_commands_run(paper: str, commands: str, run: Callable[..., Done]) -> None:
    for line in re.findall(r"^ragidx (.+)$", commands.replace("\\\n", " "), re.MULTILINE):
        words = shlex.split(line)
        words = [FEW.get(before, word) for before, word in zip(["", *words], words, strict=False)]
        if words[0] == "train":
            words.append("--force")  # what two steps made may be no better

        done = run(*words)

        assert done.status == 0, f"{paper}: {line}\n{done.err}"
