"""What a question costs a warm index, and whole commands, beside another tree of this repository.

    python benchmarks/asking.py --base TREE --index DIR --queries FILE [--rounds 5] [--name NAME]
    python benchmarks/asking.py --base TREE --index DIR --commands [--rounds 7]

TREE is a checkout, by which the base is imported. Processes with the one and the other in turns: CPU ms of a hybrid
question, k = 10, after each question was asked once; or the seconds of `ragidx query` and `ragidx --help`, whole
processes. The load of the machine stands beside them. Adds a row to figures.jsonl.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import record, spread

HERE = Path(__file__).resolve().parents[1]
ASK = """
import random, sys, time
import ragidx
from ragidx.corpora.evalsets import load_queries
texts = list(load_queries(sys.argv[2]).values())
index = ragidx.Index(sys.argv[1])
for text in texts:
    index.search(text)
asked = (random.Random(0).choices(texts, k=max(300, len(texts))))
begun = time.process_time()
for text in asked:
    index.search(text)
print(1000 * (time.process_time() - begun) / len(asked), index.info().n_chunks)
"""


def of(tree, arguments, folder):
    """A process that imports ragidx from a tree, and keeps its compiled modules."""
    links = Path(folder) / tree.name
    links.mkdir(exist_ok=True)
    if not (links / "ragidx").exists():
        (links / "ragidx").symlink_to(tree)
    own = os.environ | {"PYTHONPATH": str(links), "PYTHONPYCACHEPREFIX": f"{folder}/compiled"}
    own.pop("PYTHONDONTWRITEBYTECODE", None)
    begun, before = time.perf_counter(), os.times()
    done = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True, env=own)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, time.perf_counter() - begun, cpu


def ratios(values):
    """Of pairs, this tree to the base."""
    each = [here / base for here, base in zip(values["here"], values["base"], strict=True)]
    return {name: {key: round(value, 3) for key, value in spread(found).items()} for name, found in values.items()} | {
        "ratio": round(statistics.median(each), 3)
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--queries", type=Path)
    parser.add_argument("--commands", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--name", default="sample")
    arguments = parser.parse_args()
    trees = {"here": HERE, "base": arguments.base.resolve()}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.commands:
            commands = {
                "query": ["-m", "ragidx", "query", "who signed the lease?", "--index", str(arguments.index)],
                "help": ["-m", "ragidx", "--help"],
            }
            values = {"load": round(load, 1)}
            for name, command in commands.items():
                seconds = {f"{tree} {kind}": [] for tree in trees for kind in ("wall s", "cpu s")}
                for number in range(arguments.rounds + 1):
                    for tree, path in trees.items():
                        _, wall, cpu = of(path, command, folder)
                        if number:  # the first one compiles
                            seconds[f"{tree} wall s"].append(wall)
                            seconds[f"{tree} cpu s"].append(cpu)
                for kind in ("wall s", "cpu s"):
                    values[f"{name}, {kind}"] = ratios({tree: seconds[f"{tree} {kind}"] for tree in trees})
            record("starting, against the base", values)
            return
        spent = {tree: [] for tree in trees}
        for _ in range(arguments.rounds):
            for tree, path in trees.items():
                said, _, _ = of(path, ["-c", ASK, str(arguments.index), str(arguments.queries)], folder)
                milliseconds, chunks = said.split()
                spent[tree].append(float(milliseconds))
    values = {"CPU ms a question": ratios(spent), "chunks": int(chunks), "load": round(load, 1)}
    record("a question, against the base", values, index=arguments.name)


if __name__ == "__main__":
    main()
