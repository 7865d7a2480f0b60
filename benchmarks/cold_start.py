"""Cold start: `ragidx --help` against `import click`, one `ragidx query` against bare loading of torch and the model.

    python benchmarks/cold_start.py [--rounds 7]
    python benchmarks/cold_start.py --decoder FOLDER --name NAME [--rounds 3]    # a question by a decoder with echo

Whole processes, in turns, the disk warm. The query also against an index that is there already.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path

from figures import record, spread

import ragidx
from ragidx.pipelines.cli.demo import sample_corpus


def bare(model):
    """What loads a model and its tokenizer, and nothing else."""
    code = (
        "import torch, transformers; transformers.logging.set_verbosity_error(); "
        f"transformers.AutoModel.from_pretrained({model!r}, dtype=torch.float32); "
        f"transformers.AutoTokenizer.from_pretrained({model!r})"
    )
    return [sys.executable, "-c", code]


def timed(commands, rounds):
    """Seconds by command, in turns; the first turn warms the disk."""
    seconds = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            if number:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def spreads(seconds):
    return {name: {key: round(value, 3) for key, value in spread(values).items()} for name, values in seconds.items()}


def decoder(model, name, rounds):
    """A question by a decoder."""
    with tempfile.TemporaryDirectory() as folder:
        documents = Path(folder) / "documents.jsonl"
        documents.write_text(json.dumps({"text": "Two engineers chased pigeons out of their antenna."}))
        ragidx.build(documents, f"{folder}/index", model=model, method="echo", dtype="float32")
        question = [sys.executable, "-m", "ragidx", "query", "who chased pigeons?", "--index", f"{folder}/index"]
        seconds = timed({"load torch and the model": bare(model), "ragidx query": question}, rounds)
    more = statistics.median(seconds["ragidx query"]) - statistics.median(seconds["load torch and the model"])
    record("cold start of a decoder", spreads(seconds) | {"query - load": round(more, 2)}, model=name, method="echo")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--decoder")
    parser.add_argument("--name")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    if arguments.decoder:
        decoder(arguments.decoder, arguments.name, rounds)
        return
    mini = str(resources.files("ragidx.indexer") / "models" / "mini")
    with tempfile.TemporaryDirectory() as folder:
        ragidx.build(sample_corpus(), folder)
        commands = {
            "import click": [sys.executable, "-c", "import click"],
            "ragidx --help": [sys.executable, "-m", "ragidx", "--help"],
            "load torch and the model": bare(mini),
            "ragidx query": [sys.executable, "-m", "ragidx", "query", "who chased pigeons?", "--index", folder],
            "ragidx build, nothing changed": [
                sys.executable,
                "-m",
                "ragidx",
                "build",
                str(sample_corpus()),
                "--index",
                folder,
            ],
        }
        seconds = timed(commands, rounds)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    record(
        "cold start",
        spreads(seconds)
        | {
            "--help / import click": round(medians["ragidx --help"] / medians["import click"], 2),
            "query / load": round(medians["ragidx query"] / medians["load torch and the model"], 2),
        },
    )


if __name__ == "__main__":
    main()
