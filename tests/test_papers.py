"""Every command of docs/papers.md runs, on the bundled decoder and folders of a few texts; with few steps."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ragidx.pipelines.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "papers.md").read_text("utf-8")
FEW = {"--steps": "2", "--batch": "4", "--warmup": "1", "--read-tokens": "32", "--every": "1", "--minutes": "0.01"}
WORDS = ["river", "lamp", "tower", "bee", "letter", "wolf", "mill", "honey"]
WORDS += ["harbour", "glass", "winter", "road", "signal", "garden", "bridge", "captain"]
TEXTS = [f"The {a} near the {b} was seen by the {c}." for a, b, c in zip(WORDS, WORDS[1:], WORDS[2:], strict=False)]


def _commands() -> Iterator[str]:
    """The command lines of the page, each whole."""
    for block in re.findall(r"(?:^    .*\n)+", PAGE, re.MULTILINE):
        yield from re.findall(r"^ *ragidx (.+)$", block.replace("\\\n", " "), re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders that the page names."""
    folder = tmp_path_factory.mktemp("papers")
    for name in ("stsb", "scifact/qrels", "texts", "docs"):
        (folder / name).mkdir(parents=True)
    for number, text in enumerate(TEXTS):
        (folder / "docs" / f"{number}.txt").write_text(text)
    (folder / "texts" / "all.txt").write_text("\n\n".join(TEXTS * 4))
    pairs = [f"{number % 5}\t{text}\t{TEXTS[number // 2]}" for number, text in enumerate(TEXTS)]
    (folder / "stsb" / "test.tsv").write_text("".join(f"{line}\n" for line in pairs))
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
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(list(_commands()))))
def test_the_commands_run(number: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    words = shlex.split(list(_commands())[number])
    for place, word in enumerate(words):
        if word in FEW:
            words[place + 1] = FEW[word]
    if words[0] == "train" and words[1] not in ("head", "pooling"):
        words.append("--force")  # two steps may make nothing better

    done = CliRunner().invoke(main, words)

    assert done.exit_code == 0, f"{words}\n{done.output}"
