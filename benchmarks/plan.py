"""What `ragidx build --plan` estimates against what the build does, each as a process of its own.

    python benchmarks/plan.py --text DIR [--chunks 2000,40000] [--methods preset,echo]

The text is taken from the files of a folder, as many documents as give so many chunks; the model is mini, by its preset
(static vectors) and by methods that run its layers. A corpus of more than 8 MiB is estimated from a sample. A build's
seconds include the making of an approximate index, the plan's do not; `--index-type flat` makes none.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import record

from ragidx.corpora.readers.registry import documents

_CHARS_A_CHUNK = 850  # of this text, with the bundled model's tokenizer and 256 tokens


def write_corpus(text, path, wanted):
    """Documents of about so many chunks, as JSON Lines."""
    chars = 0
    with path.open("w") as stream:
        for document in documents(text, on_skip=lambda _: None):
            if chars >= wanted * _CHARS_A_CHUNK:
                return
            stream.write(json.dumps({"id": document.id, "text": document.text}) + "\n")
            chars += len(document.text)


def run(*arguments):
    """The JSON that a build prints, its wall-clock seconds, and its peak memory in bytes."""
    command = [sys.executable, "-m", "ragidx", "build", "--json", *arguments]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return json.loads(out), time.perf_counter() - started, 1024 * usage.ru_maxrss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--chunks", default="2000,40000")
    parser.add_argument("--methods", default="preset,echo")
    arguments, options = parser.parse_known_args()
    for wanted in map(int, arguments.chunks.split(",")):
        for method in arguments.methods.split(","):
            chosen = options if method == "preset" else [*options, "--method", method]
            with tempfile.TemporaryDirectory() as folder:
                corpus = Path(folder) / "corpus.jsonl"
                write_corpus(arguments.text, corpus, wanted)
                size = corpus.stat().st_size
                place = [str(corpus), "--index", f"{folder}/index"]
                plan, plan_seconds, _ = run(*place, "--plan", *chosen)
                made, seconds, peak = run(*place, *chosen)
            pairs = {
                "chunks": (plan["n_chunks"], made["n_chunks"]),
                "tokens": (plan["n_tokens"], made["n_tokens"]),
                "seconds": (round(plan["seconds"], 1), round(made["seconds"], 1)),
                "seconds encoding": (round(plan["encode_seconds"], 1), round(made["encode_seconds"], 1)),
                "index bytes": (plan["footprint"]["index_bytes"], made["index_bytes"]),
                "peak MiB": (round(plan["footprint"]["build_bytes"] / 2**20), round(peak / 2**20)),
            }
            record(
                "plan against build",
                {name: {"predicted": told, "actual": found} for name, (told, found) in pairs.items()}
                | {
                    "seconds of the plan": round(plan_seconds, 1),
                    "share read": round(plan["share_read"], 3),
                    "wall seconds of the build": round(seconds, 1),
                },
                model="mini",
                method=method,
                corpus_bytes=size,
                options=" ".join(options),
            )


if __name__ == "__main__":
    main()
