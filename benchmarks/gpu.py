"""A GPU: tokens a second and the share of its matrix products that they use, memory, and exact search.

    python benchmarks/gpu.py [--device cuda] [--shapes 135M 0.5B 1B 7B] [--texts 4096] [--rounds 3]
    python benchmarks/gpu.py --device cpu --shapes tiny --texts 64 --rows 20000         # a trial without a GPU

The models are Llamas of random weights with the bundled tokenizer; 135M has the shape of SmolLM2. Rivals, in turns, on
the same texts: transformers' own model by length in batches of 64, and sentence-transformers with mean pooling, both in
bfloat16. The share is 2 x weights x tokens a second, over the rate of an 8192 x 8192 bfloat16 product on that device.
Exact search: torch against faiss on that device, where faiss has GPU code, else against faiss on the CPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import faiss
import numpy as np
import torch
from figures import record, spread
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoModel, LlamaConfig, LlamaModel

import ragidx
from ragidx.indexer.ann.gpu import DeviceVectors
from ragidx.indexer.encoders.batching import collate
from ragidx.indexer.encoders.precision import n_weights
from ragidx.indexer.models.locate import locate

# hidden, intermediate, layers, heads, heads of keys and values
SHAPES = {
    "tiny": (64, 128, 2, 4, 2),
    "135M": (576, 1536, 30, 9, 3),
    "0.5B": (896, 4864, 24, 14, 2),
    "1B": (2048, 8192, 16, 32, 8),
    "7B": (4096, 11008, 32, 32, 32),
}


def synchronise(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def timed(work, device):
    synchronise(device)
    started = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - started


def model_folder(shape, folder, device):
    """A Llama of random weights in bfloat16, with the bundled tokenizer."""
    hidden, intermediate, layers, heads, key_heads = SHAPES[shape]
    mini = locate("mini")
    config = LlamaConfig(
        vocab_size=mini.config["vocab_size"],
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        bos_token_id=mini.config["bos_token_id"],
        eos_token_id=mini.config["eos_token_id"],
        architectures=["LlamaModel"],
        dtype="bfloat16",
    )
    torch.manual_seed(0)
    with torch.device(device):
        LlamaModel(config).to(torch.bfloat16).save_pretrained(folder)
    for path in mini.folder.glob("*token*.json"):
        shutil.copy(path, folder)
    return folder


def product_rate(device, size):
    """Floating-point operations a second of a bfloat16 matrix product."""
    left, right = torch.randn(2, size, size, device=device).bfloat16()
    for _ in range(3):
        left @ right
    return 10 * 2 * size**3 / timed(lambda: [left @ right for _ in range(10)], device)


def texts_of(n):
    """Texts of 20 to 300 words, from the words of the tokenizer."""
    rng = np.random.default_rng(0)
    vocabulary = json.loads((locate("mini").folder / "tokenizer.json").read_text())["model"]["vocab"]
    words = np.array([word for word in vocabulary if word.isalpha()])
    return [" ".join(rng.choice(words, rng.integers(20, 300))) for _ in range(n)]


def plain(model, rows, pad, device, batch=64):
    """Mean vectors by transformers alone."""
    order = sorted(range(len(rows)), key=lambda row: -len(rows[row].ids))
    for start in range(0, len(order), batch):
        taken = [rows[row] for row in order[start : start + batch]]
        ids, attention, pooled = collate(taken, pad, torch.device(device))
        with torch.inference_mode():
            states = model(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state
            weights = pooled / pooled.sum(dim=1, keepdim=True)
            torch.bmm(weights.unsqueeze(1).to(states.dtype), states).squeeze(1).float().cpu()


def throughput(shape, arguments, texts, peak):
    device = arguments.device
    with tempfile.TemporaryDirectory() as folder:
        model_folder(shape, Path(folder), device)
        ours = ragidx.load_encoder(folder, method="classical", device=device, dtype="bfloat16")
        rows = ours.rendered(texts, None)
        alone = AutoModel.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()
        inner = Transformer(folder, model_kwargs={"dtype": torch.bfloat16})
        theirs = SentenceTransformer(modules=[inner, Pooling(inner.get_embedding_dimension())], device=device)
        theirs.tokenizer.pad_token = theirs.tokenizer.pad_token or theirs.tokenizer.eos_token
    n_tokens = sum(row.n_tokens for row in rows)
    works = {
        "transformers": lambda: plain(alone, ours.rendered(texts, None), ours.tokenizer.pad, device),
        "sentence-transformers": lambda: theirs.encode(texts, batch_size=64, show_progress_bar=False),
        "ragidx": lambda: ours.encode_document(texts),
    }
    rates, memory = {name: [] for name in works}, {}
    for number in range(arguments.rounds + 1):
        for name, work in works.items():
            if device.startswith("cuda"):
                torch.cuda.reset_peak_memory_stats(device)
            seconds = timed(work, device)
            if number:
                rates[name].append(n_tokens / seconds)
            if device.startswith("cuda"):
                memory[f"{name} GiB"] = round(torch.cuda.max_memory_allocated(device) / 2**30, 2)
    own = statistics.median(rates["ragidx"])
    weights = n_weights(ours.module())
    record(
        "decoder throughput on a GPU",
        {
            **{
                f"{name} tokens/s": {key: round(value) for key, value in spread(values).items()}
                for name, values in rates.items()
            },
            **{f"against {name}": round(own / statistics.median(rates[name]), 2) for name in list(rates)[:2]},
            "share of the product's rate": round(2 * weights * own / peak, 3),
            **memory,
        },
        shape=shape,
        weights=weights,
        texts=len(texts),
        tokens=n_tokens,
        device=place(device),
    )


def exact_search(arguments):
    device, k, width = arguments.device, 10, 256
    rng = np.random.default_rng(0)
    codes = rng.standard_normal((arguments.rows, width), np.float32)
    codes = (codes / np.linalg.norm(codes, axis=1, keepdims=True)).astype(np.float16)
    queries = np.ascontiguousarray(codes[:: max(1, len(codes) // 256)][:256].astype(np.float32))
    index = faiss.IndexFlatIP(width)
    index.add(codes.astype(np.float32))
    on_gpu = device.startswith("cuda") and hasattr(faiss, "StandardGpuResources")
    if on_gpu:
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), torch.device(device).index or 0, index)
    ours, seconds = DeviceVectors(codes, [device]), {"faiss": [], "torch": []}
    for number in range(arguments.rounds + 1):
        for name, work in (
            ("faiss", lambda: index.search(queries, k)),
            ("torch", lambda: ours.search(queries, k, None)),
        ):
            taken = timed(work, device)
            if number:
                seconds[name].append(taken)
    same = (index.search(queries, k)[1] == ours.search(queries, k, None)[1]).mean()
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    record(
        "exact search on a GPU",
        {
            **{f"{name} ms": round(1000 * value, 2) for name, value in medians.items()},
            "ratio": round(medians["faiss"] / medians["torch"], 2),
            "equal rows": round(float(same), 4),
        },
        rows=arguments.rows,
        dim=width,
        queries=len(queries),
        k=k,
        device=place(device),
        faiss="GPU" if on_gpu else "CPU",
    )


def place(device):
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", nargs="*", default=["135M", "0.5B", "1B", "7B"], choices=SHAPES)
    parser.add_argument("--texts", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    texts = texts_of(arguments.texts)
    peak = product_rate(arguments.device, 8192 if arguments.device.startswith("cuda") else 1024)
    print(f"a bfloat16 product: {peak / 1e12:.1f} TFLOP/s", flush=True)
    for shape in arguments.shapes:
        throughput(shape, arguments, texts, peak)
    exact_search(arguments)


if __name__ == "__main__":
    main()
