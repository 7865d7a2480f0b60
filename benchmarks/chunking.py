"""Cutting documents: speed, chunks and memory, beside other chunkers, and what another way of cutting does to search.

    python benchmarks/chunking.py speed --texts DIR [--megabytes 10] [--model tokenizer.json] [--old chunking.py]
    python benchmarks/chunking.py memory --texts DIR
    python benchmarks/chunking.py quality --evalset DIR --old chunking.py

`--texts` is a folder of .jsonl.zst with a field `text`; `--old` a module with another `Chunker`, such as
`git show COMMIT:corpora/chunking.py` gives. Speeds are CPU seconds of one thread, the chunkers in turns; the first run
over the texts is cold (no piece is known), the others are warm. semantic-text-splitter and langchain-text-splitters are
no dependencies: pip install --target DIR, and PYTHONPATH. `quality` is nDCG@10 of documents with mini, with a paired
test.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import tokenizers
import zstandard
from figures import record, spread

import ragidx
from ragidx.corpora.chunking import Chunker
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.corpora.records import Document
from ragidx.corpora.spec import ChunkSpec
from ragidx.pipelines.experiments.evaluate.measures import ndcg
from ragidx.pipelines.experiments.evaluate.significance import difference
from ragidx.pipelines.ingest import corpus as building

MINI = Path(ragidx.__file__).parent / "indexer" / "models" / "mini" / "tokenizer.json"
RUNS = 5
SIZE = 256


def documents(folder, megabytes):
    found, left = [], 1e6 * megabytes
    for path in sorted(folder.glob("*.jsonl.zst")):
        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            for line in io.TextIOWrapper(stream, "utf-8"):
                found.append(Document(str(len(found)), json.loads(line)["text"]))
                left -= len(found[-1].text.encode())
                if left <= 0:
                    return found
    return found


def tokenizer_of(path):
    found = tokenizers.Tokenizer.from_file(str(path))
    found.no_truncation()
    found.no_padding()
    found.encode_special_tokens = True
    return found


def chunker_in(path):
    """The `Chunker` of a module of another version."""
    spec = importlib.util.spec_from_file_location("another_chunking", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Chunker


def chunkers(arguments, tokenizer):
    """By name: what makes a function from a document to spans (start, end)."""

    def own(kind):
        def make():
            chunker = kind(ChunkSpec(size=SIZE), tokenizer, limit=512)
            return lambda document: [(chunk.start, chunk.end) for chunk in chunker.chunks(document)]

        return make

    found = {"ragidx": own(Chunker)}
    if arguments.old:
        found["ragidx before"] = own(chunker_in(arguments.old))
    if arguments.rivals:
        from langchain_text_splitters import RecursiveCharacterTextSplitter
        from semantic_text_splitter import TextSplitter

        def semantic():
            splitter = TextSplitter.from_huggingface_tokenizer(tokenizer, SIZE)
            return lambda one: [(at, at + len(text)) for at, text in splitter.chunk_indices(one.text)]

        def langchain():
            def count(text):
                return len(tokenizer.encode(text, add_special_tokens=False))

            splitter = RecursiveCharacterTextSplitter(
                chunk_size=SIZE, chunk_overlap=0, length_function=count, add_start_index=True
            )

            def cut(one):
                made = splitter.create_documents([one.text])
                return [(m.metadata["start_index"], m.metadata["start_index"] + len(m.page_content)) for m in made]

            return cut

        found |= {"semantic-text-splitter": semantic, "langchain recursive": langchain}
    return found


def speed(arguments):
    tokenizer = tokenizer_of(arguments.model)
    read = documents(arguments.texts, arguments.megabytes)
    megabytes = sum(len(one.text.encode()) for one in read) / 1e6
    makers = chunkers(arguments, tokenizer)
    made = {name: make() for name, make in makers.items()}
    taken, spans = {name: [] for name in made}, {}
    for _ in range(arguments.runs):
        for name, cut in made.items():
            started = time.process_time()
            spans[name] = [cut(one) for one in read]
            taken[name].append(megabytes / (time.process_time() - started))
    for name, rates in taken.items():
        values = {"cold MB/s": round(rates[0], 2), "warm MB/s": spread([round(rate, 2) for rate in rates[1:] or rates])}
        values |= measured(read, spans[name], tokenizer)
        record("cutting", values, chunker=name, megabytes=round(megabytes, 1), size=SIZE, model=arguments.name)


def measured(read, spans, tokenizer):
    """How many chunks, how full they are, and behind what they end: a line, a sentence, anything else."""
    counts, ends = [], {"line": 0, "sentence": 0, "other": 0}
    for one, found in zip(read, spans, strict=True):
        texts = [one.text[start:end] for start, end in found]
        counts += [len(row) for row in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        for text, (_, end), (start, _) in zip(texts, found, found[1:], strict=False):
            at_line, at_sentence = "\n" in one.text[end:start], text.rstrip("\"')]”’»*_")[-1:] in ".!?…。"
            ends["line" if at_line else "sentence" if at_sentence else "other"] += 1
    total = sum(ends.values())
    return {
        "chunks": len(counts),
        "mean tokens": round(float(np.mean(counts)), 1),
        "most tokens": max(counts),
        "over": sum(count > SIZE for count in counts),
        "% of cuts": {name: round(100 * n / total, 1) for name, n in ends.items()},
    }


def memory(arguments):
    tokenizer = tokenizer_of(arguments.model)
    text = "\n\n".join(one.text for one in documents(arguments.texts, 100))
    chunker = Chunker(ChunkSpec(size=SIZE), tokenizer, limit=512)
    before, started, n_chunks = resident(), time.process_time(), 0
    for _ in chunker.chunks(Document("large", text, markdown=arguments.markdown)):
        n_chunks += 1
    values = {
        "seconds": round(time.process_time() - started, 1),
        "MiB more": round(peak() - before),
        "MiB of the text alone": round(before),
        "chunks": n_chunks,
    }
    record("cutting 100 MB", values, model=arguments.name, markdown=arguments.markdown)


def resident():
    """MiB that the process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def peak():
    """MiB that it held at most; reading the texts took some that is free again, so what it says may be too much."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def quality(arguments):
    qrels = load_qrels(arguments.evalset)
    queries = {name: text for name, text in load_queries(arguments.evalset).items() if name in qrels}
    kinds = {"before": chunker_in(arguments.old), "now": Chunker}
    for size in (128, 256):
        found = {}
        for name, kind in kinds.items():
            building.Chunker = kind
            with tempfile.TemporaryDirectory() as room:
                report = ragidx.build(arguments.evalset, room, chunks=ChunkSpec(size=size), lexical=False).report
                ranked = ragidx.Index(room).rank_documents(list(queries.values()), 100, mode="dense")
            names = [[document for document, _ in one] for one in ranked]
            gains = np.array([ndcg(one, qrels[query]) for one, query in zip(names, queries, strict=True)])
            found[name] = (gains, report.n_chunks)
        apart = difference(found["now"][0], found["before"][0])
        values = {name: {"nDCG@10": round(float(gains.mean()), 4), "chunks": n} for name, (gains, n) in found.items()}
        values["difference"] = {"mean": round(apart.mean, 4), "low": round(apart.low, 4), "high": round(apart.high, 4)}
        record(
            "quality of chunks", values | {"p": round(apart.p, 4)}, set=arguments.evalset.name, size=size, model="mini"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "memory", "quality"])
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--model", type=Path, default=MINI, help="a tokenizer.json")
    parser.add_argument("--name", default="mini", help="of the model in the row")
    parser.add_argument("--old", type=Path)
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--evalset", type=Path)
    arguments = parser.parse_args()
    {"speed": speed, "memory": memory, "quality": quality}[arguments.what](arguments)


if __name__ == "__main__":
    main()
