"""Builds of few small files as whole processes, in pairs with an older checkout: a new index, and nothing changed.

    python benchmarks/small_builds.py --base CHECKOUT [--files 30] [--kind md] [--pairs 15]

`--base` is a folder that holds the older checkout as `ragidx`. Both run in turns, with the bundled model; one pair
before the first warms the disk. Ratios are of this checkout to the older one, pair by pair, in seconds of wall and CPU.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import record, spread

from ragidx.pipelines.cli.demo import sample_corpus


def timed(command, path):
    """Seconds of wall, and of CPU with all children."""
    before, started = os.times(), time.perf_counter()
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    subprocess.run(command, check=True, capture_output=True, env=environment)
    wall, after = time.perf_counter() - started, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def rounded(values):
    return {key: round(value, 3) for key, value in values.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--files", type=int, default=30)
    parser.add_argument("--kind", choices=("md", "html"), default="md")
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        notes = sorted(sample_corpus().rglob("*.md"))[: arguments.files]
        for number, note in enumerate(notes):
            text = note.read_text("utf-8")
            page = f"<html><body><p>{text}</p></body></html>" if arguments.kind == "html" else text
            (corpus / f"{number}.{arguments.kind}").write_text(page, "utf-8")
        for pair in range(arguments.pairs + 1):
            for name, path in {"new": None, "base": arguments.base}.items():
                index = Path(folder) / name
                shutil.rmtree(index, ignore_errors=True)
                command = [sys.executable, "-m", "ragidx", "build", str(corpus), "--index", str(index)]
                for what in ("build", "nothing changed"):
                    measured = timed(command, path)
                    if pair:
                        for unit, value in zip(("wall", "CPU"), measured, strict=True):
                            seconds.setdefault((what, unit, name), []).append(value)
    values = {}
    for what in ("build", "nothing changed"):
        for unit in ("wall", "CPU"):
            ours, theirs = (seconds[what, unit, name] for name in ("new", "base"))
            ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
            values[f"{what}, {unit} s"] = rounded(spread(ours))
            values[f"{what}, {unit} / base"] = rounded(spread(ratios))
    record("small builds", values, files=len(notes), kind=arguments.kind, pairs=arguments.pairs)


if __name__ == "__main__":
    main()
