"""Cold start: `ragidx --help` against `import click`, one `ragidx query` against bare loading of torch and the model.

    python benchmarks/cold_start.py [--rounds 7]

Whole processes, in turns, the disk warm. The query also against an index that is there already.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import resources

from figures import record, spread

import ragidx
from ragidx.pipelines.demo import sample_corpus


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    mini = str(resources.files("ragidx.indexer") / "models" / "mini")
    bare = (
        "import torch, transformers; transformers.logging.set_verbosity_error(); "
        f"transformers.AutoModel.from_pretrained({mini!r}, dtype=torch.float32); "
        f"transformers.AutoTokenizer.from_pretrained({mini!r})"
    )
    with tempfile.TemporaryDirectory() as folder:
        ragidx.build(sample_corpus(), folder)
        commands = {
            "import click": [sys.executable, "-c", "import click"],
            "ragidx --help": [sys.executable, "-m", "ragidx", "--help"],
            "load torch and the model": [sys.executable, "-c", bare],
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
        seconds = {name: [] for name in commands}
        for number in range(rounds + 1):
            for name, command in commands.items():
                started = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                if number:  # the first turn warms the disk
                    seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    record(
        "cold start",
        {name: {key: round(value, 3) for key, value in spread(values).items()} for name, values in seconds.items()}
        | {
            "--help / import click": round(medians["ragidx --help"] / medians["import click"], 2),
            "query / load": round(medians["ragidx query"] / medians["load torch and the model"], 2),
        },
    )


if __name__ == "__main__":
    main()
