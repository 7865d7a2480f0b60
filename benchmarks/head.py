"""Time and peak memory of the spectrum of an unembedding matrix: Gram matrix and eigenvectors against a whole SVD.

    python benchmarks/head.py [--rows 128256] [--width 4096] [--rounds 1] [--svd]

The head is random, in bfloat16, with singular values that fall like those of real heads: a few large ones, a slow
slope, a small tail. It is written block by block; each measurement is a process of its own with an empty cache. `--svd`
adds what the EmbedFilter authors do, `torch.linalg.svd` of the whole matrix in float32, where the memory is there
(about 5 times rows x width x 4 bytes).
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

import numpy as np
import torch
from figures import record, spread

_BLOCK = 4096
_KEPT = 2  # tau of the filter whose subspaces are compared


def write_head(folder, rows, width):
    """A model that is nothing but a config and a head."""
    config = {"model_type": "llama", "hidden_size": width, "vocab_size": rows, "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    random = torch.Generator().manual_seed(0)
    slope = torch.logspace(0, -1, width)
    slope[: width // 100] *= torch.logspace(1, 0, width // 100)
    turn = torch.linalg.qr(torch.randn(width, width, generator=random)).Q
    header = {"lm_head.weight": {"dtype": "BF16", "shape": [rows, width], "data_offsets": [0, 2 * rows * width]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for start in range(0, rows, _BLOCK):
            block = torch.randn(min(_BLOCK, rows - start), width, generator=random) * slope @ turn.T
            stream.write(block.to(torch.bfloat16).view(torch.uint8).numpy().data)


def measure(folder, what):
    """Seconds by step, and a digest of what was found; in a process of its own."""
    from ragidx.indexer.filters import unembedding
    from ragidx.indexer.models import checkpoint
    from ragidx.indexer.models.locate import locate

    files = locate(str(folder))
    head = unembedding.find_unembedding(files)
    clock = [time.perf_counter()]

    def lap():
        clock.append(time.perf_counter())
        return round(clock[-1] - clock[-2], 3)

    if what == "whole":
        unembedding.spectrum_of(files)
        seconds = {"first": lap()}
        found = unembedding.spectrum_of(files)
        seconds["cached"] = lap()
        directions, values = found.directions, found.values
    elif what == "steps":
        unembedding.file_digest(head.path)
        seconds = {"content hash": lap()}
        gram = unembedding._gram(head)
        seconds["Gram"] = lap()
        found = unembedding.decompose(gram)
        seconds["eigenvectors"] = lap()
        directions, values = found.directions, found.values
    else:
        whole = torch.from_numpy(np.concatenate(list(checkpoint.blocks(head))).astype(np.float32))
        _, values, rows = torch.linalg.svd(whole, full_matrices=False)
        seconds = {"svd": lap()}
        directions, values = rows.T.numpy(), values.numpy()
    width = len(values)
    start = (width - width // _KEPT) // 2
    np.savez(folder / f"{what}.npz", kept=directions[:, start : start + width // _KEPT], values=values)
    print(json.dumps(seconds))


def run(folder, what, home):
    """One measurement: seconds by step and peak memory."""
    command = [sys.executable, __file__, "--measure", what, "--folder", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"HOME": str(home)})
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return json.loads(out), round(usage.ru_maxrss / 1024)


def agreement(folder):
    """How far the two subspaces and the singular values are apart, at most."""
    ours, theirs = np.load(folder / "whole.npz"), np.load(folder / "svd.npz")
    outside = theirs["kept"] - ours["kept"] @ (ours["kept"].T @ theirs["kept"])
    return {
        "largest sine between the kept subspaces": float(np.linalg.norm(outside, 2)),
        "largest relative difference of singular values": float(np.abs(ours["values"] / theirs["values"] - 1).max()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=128_256)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--svd", action="store_true")
    parser.add_argument("--measure", choices=["whole", "steps", "svd"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.folder, arguments.measure)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_head(folder, arguments.rows, arguments.width)
        kinds = ["whole", "steps", *(["svd"] if arguments.svd else [])]
        seconds, peaks = {}, {}
        for number in range(arguments.rounds):
            for kind in kinds:
                home = folder / f"home-{kind}-{number}"
                home.mkdir()
                found, peak = run(folder, kind, home)
                peaks[kind] = max(peak, peaks.get(kind, 0))
                for step, value in found.items():
                    seconds.setdefault(step, []).append(value)
        values = {f"{step} s": spread(each) for step, each in seconds.items()} | {"peak MiB": peaks["whole"]}
        if arguments.svd:
            values |= {"svd peak MiB": peaks["svd"]} | agreement(folder)
    record(
        "unembedding spectrum",
        values,
        rows=arguments.rows,
        width=arguments.width,
        dtype="bfloat16",
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
