"""Hybrid search at size: what the lexical part costs a build, and what it costs a question.

    python benchmarks/hybrid.py corpus --texts DIR --rows 1000000 --out chunks.jsonl
    python benchmarks/hybrid.py build --corpus chunks.jsonl --index DIR
    python benchmarks/hybrid.py words --corpus chunks.jsonl --index DIR       the lexical part alone, added and removed
    python benchmarks/hybrid.py ask --corpus chunks.jsonl --index DIR         questions, beside tantivy
    python benchmarks/hybrid.py quality --evalset DIR --model M --dims 255 128 64 32

A row is 150 words in a row of real texts (`--texts`: a folder of .jsonl.zst with a field `text`). Questions are
`natural`, 8 words in a row of a row, or `rare`, 8 of its words that fewer than 5 % of 2,000 drawn rows have. One
thread; a question is encoded by the model each time; hits are not folded, since rows drawn like this
overlap as no corpus does.
`words` takes the lexical part away and adds it again, each a build as a process in which nothing is opened or encoded.
`quality` is nDCG@10 and recall@100 of whole documents with all queries, with paired tests of hybrid search against each
part.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import zstandard
from figures import record

import ragidx
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.indexer.ann.faiss_files import faiss
from ragidx.pipelines.experiments.evaluate.measures import ndcg
from ragidx.pipelines.experiments.evaluate.significance import difference

WORDS = 150
QUESTIONS = 300
WARM = 100  # asked before
RARE = 0.05


def words_of(folder):
    found = []
    for path in sorted(folder.glob("*.jsonl.zst")):
        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            for line in io.TextIOWrapper(stream, "utf-8"):
                found += json.loads(line)["text"].split()
    return found


def corpus(arguments):
    words, draw = words_of(arguments.texts), random.Random(0)
    with arguments.out.open("w", encoding="utf-8") as file:
        for row in range(arguments.rows):
            start = draw.randrange(len(words) - WORDS)
            text = " ".join(words[start : start + WORDS])
            file.write(json.dumps({"_id": str(row), "text": text}) + "\n")


def process(*arguments):
    """A build: its report, CPU seconds and peak of memory in MiB."""
    running = subprocess.Popen(
        [sys.executable, "-m", "ragidx", "build", *map(str, arguments), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    told = running.stdout.read()
    _, status, usage = os.wait4(running.pid, 0)
    assert status == 0, arguments
    return json.loads(told), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def build(arguments):
    report, seconds, peak = process(arguments.corpus, "--index", arguments.index, "--chunk-size", "none", "--rebuild")
    values = {"rows": report["n_chunks"], "CPU s": round(seconds, 1), "peak MiB": round(peak)}
    record("build with words", values, model="mini", index=",".join(sorted(set(report["segment_types"]))))


def words(arguments):
    same = (arguments.corpus, "--index", arguments.index)
    process(*same, "--no-lexical")
    _, idle, _ = process(*same)
    report, seconds, peak = process(*same, "--lexical")
    retriever = ragidx.Index(arguments.index)
    entries = retriever.searcher.store.manifest.segments
    size = sum(entry.files[entry.lexical].bytes for entry in entries)
    values = {
        "rows": report["n_chunks"],
        "CPU s": round(seconds - idle, 1),
        "peak MiB": round(peak),
        "bytes a row": round(size / report["n_chunks"], 1),
    }
    record("lexical part", values, model="mini", index="postings and moments")


def drawn(path, count, seed):
    """Words of some rows, of which the file is not held."""
    with path.open("rb") as file:
        n_rows = sum(1 for _ in file)
    wanted = set(random.Random(seed).sample(range(n_rows), min(n_rows, count)))
    with path.open(encoding="utf-8") as file:
        return n_rows, [json.loads(line)["text"].split() for row, line in enumerate(file) if row in wanted]


def ask(arguments):
    retriever, draw = ragidx.Index(arguments.index), random.Random(1)
    faiss().omp_set_num_threads(1)
    n_rows, rows = drawn(arguments.corpus, 10 * QUESTIONS, 1)
    draw.shuffle(rows)
    natural = []
    for row in rows[:QUESTIONS]:
        start = draw.randrange(WORDS - 8)
        natural.append(" ".join(row[start : start + 8]))
    analyzer = retriever.searcher.store.lexical.analyzer
    df = Counter(term for row in rows for term in {term for word in row for term in analyzer(word)})

    def is_rare(word):
        return all(df[term] < RARE * len(rows) for term in analyzer(word))

    rare = []
    for row in rows[QUESTIONS:]:
        chosen = [word for word in row if is_rare(word)][:8]
        if len(chosen) == 8 and len(rare) < QUESTIONS:
            rare.append(" ".join(chosen))
    searches = {}
    for mode in MODES:  # each with the words of its own questions in memory alone
        own = ragidx.Index(arguments.index)
        searches[mode] = lambda question, own=own, mode=mode: own.search(question, 10, mode=mode, fold=False)
    if arguments.tantivy:
        searches["tantivy"] = _tantivy(arguments.corpus)
    for kind, questions in (("rare", rare), ("natural", natural)):
        for search in searches.values():
            for question in questions[:WARM]:
                search(question)
        taken = {name: [] for name in searches}
        for question in questions[WARM:]:  # in turns
            for name, search in searches.items():
                started = time.perf_counter()
                search(question)
                taken[name].append(1000 * (time.perf_counter() - started))
        for name, times in taken.items():
            values = {
                "p50 ms": round(statistics.median(times), 2),
                "p95 ms": round(float(np.quantile(times, 0.95)), 2),
                "rows": n_rows,
            }
            record(f"question, {kind} words", values, model=name, index="mini")


def quality(arguments):
    folder = arguments.evalset
    qrels = load_qrels(folder)
    queries = {name: text for name, text in load_queries(folder).items() if name in qrels}
    with tempfile.TemporaryDirectory() as room:
        options = {} if arguments.model in ("mini", "mini-decoder") else {"filter": "none"}  # else unfiltered
        ragidx.build(folder, room, model=arguments.model, chunks=ragidx.ChunkSpec(size=None), **options)
        retriever, names = ragidx.Index(room), list(queries)

        def measured(**how):
            found = retriever.rank_documents(list(queries.values()), 100, **how)
            ranked = [[document for document, _ in one] for one in found]
            right = [{name for name, gain in qrels[query].items() if gain > 0} for query in names]
            gains = [ndcg(one, qrels[query]) for one, query in zip(ranked, names, strict=True)]
            recall = [len(some.intersection(one)) / len(some) for one, some in zip(ranked, right, strict=True) if some]
            means = [round(float(np.mean(one)), 4) for one in (gains, recall)]
            return np.array(gains), dict(zip(("nDCG@10", "R@100"), means, strict=True))

        name = Path(arguments.model).name
        setting = {"model": "all-MiniLM-L6-v2" if name == "model" else name, "index": folder.name}
        lexical, values = measured(mode="lexical")
        record("quality of words", values, search="lexical", **setting)
        for dim in arguments.dims:
            narrow = {} if dim == retriever.info().dim else {"dim": dim}
            dense, values = measured(mode="dense", **narrow)
            record("quality of words", values, search="dense", dim=dim, **setting)
            for fusion in ("z", "rrf"):
                both, values = measured(mode="hybrid", fusion=fusion, **narrow)
                for name, parent in (("dense", dense), ("lexical", lexical)):
                    apart = difference(both, parent)
                    low, high = round(apart.low, 4), round(apart.high, 4)
                    values[f"against {name}"] = {"mean": round(apart.mean, 4), "low": low, "high": high, "p": apart.p}
                record("quality of words", values, search=f"hybrid {fusion}", dim=dim, **setting)


MODES = ("dense", "lexical", "hybrid")


def _tantivy(corpus):
    import tantivy

    room = tempfile.mkdtemp()
    schema = tantivy.SchemaBuilder()
    schema.add_unsigned_field("row", fast=True, stored=True)
    schema.add_text_field("text", tokenizer_name="en_stem")
    index = tantivy.Index(schema.build(), path=room)
    started = time.process_time()
    writer = index.writer(num_threads=1)
    n_rows = 0
    for line in corpus.open(encoding="utf-8"):
        document = tantivy.Document()
        document.add_unsigned("row", n_rows)
        document.add_text("text", json.loads(line)["text"])
        writer.add_document(document)
        n_rows += 1
    writer.commit()
    writer.wait_merging_threads()
    size = sum(path.stat().st_size for path in Path(room).rglob("*") if path.is_file())
    values = {"CPU s": round(time.process_time() - started, 1), "bytes a row": round(size / n_rows, 1)}
    record("lexical part", values, model="tantivy", index="tantivy")
    index.reload()
    searcher = index.searcher()

    def search(question):
        words = "".join(letter if letter.isalnum() else " " for letter in question.lower())
        query = index.parse_query(words, ["text"])
        return [searcher.doc(place)["row"][0] for _, place in searcher.search(query, 10).hits]

    return search


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["corpus", "build", "words", "ask", "quality"])
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--index", type=Path)
    parser.add_argument("--evalset", type=Path)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--dims", type=int, nargs="*", default=[255])
    parser.add_argument("--tantivy", action="store_true")
    arguments = parser.parse_args()
    {"corpus": corpus, "build": build, "words": words, "ask": ask, "quality": quality}[arguments.what](arguments)


if __name__ == "__main__":
    main()
