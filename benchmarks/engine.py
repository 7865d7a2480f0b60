"""The index engine at size: building, opening and compacting an index of vectors, and searching it beside bare FAISS.

    python benchmarks/grow.py --real vectors.npy --rows 1000000 --out vectors.parquet
    python benchmarks/engine.py size --vectors vectors.parquet --index DIR [ragidx build options]
    python benchmarks/engine.py search --index DIR --queries queries.npy
    python benchmarks/engine.py compact --index DIR

`size` runs `ragidx build --vectors` as a process of its own, which loads no torch. `search` takes turns with the same
FAISS index called directly, all of it warm, and compares a scan of all vectors with reading memory. `compact` deletes a
fifth of the rows first, with `ragidx delete`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from figures import record

from ragidx.indexer.ann.search import search_exact
from ragidx.indexer.store import Store
from ragidx.indexer.writing.merging import memory_bytes


def run(*arguments):
    """A command as a process: what it printed as JSON, its seconds, its peak of memory in MiB."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "ragidx", *map(str, arguments), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    told = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, arguments
    return json.loads(told), time.perf_counter() - started, usage.ru_maxrss / 1024


def size(arguments, options):
    """Building and opening."""
    shutil.rmtree(arguments.index, ignore_errors=True)
    report, seconds, peak = run("build", "--vectors", arguments.vectors, "--index", arguments.index, *options)
    store = Store.open(arguments.index)
    faiss_mib = sum(memory_bytes(entry) for entry in store.manifest.segments) / 2**20
    opening = statistics.median(timed(lambda: Store.open(arguments.index)) for _ in range(21))
    record(
        "build of vectors",
        {
            "rows": report["n_chunks"],
            "seconds": round(seconds, 1),
            "peak MiB": round(peak),
            "FAISS index MiB": round(faiss_mib),
            "peak above the index MiB": round(peak - faiss_mib),
            "open ms": round(1000 * opening, 1),
            "index bytes": report["index_bytes"],
            "made": [str(entry.ann.recipe) if entry.ann else "flat" for entry in store.manifest.segments],
            "ann_recall@10 when built": [entry.ann.recall if entry.ann else 1 for entry in store.manifest.segments],
        },
        rows=report["n_chunks"],
        dim=report["dim"],
        options=" ".join(options),
    )


def compact(arguments, options):
    """A fifth deleted, and the rest rewritten, in a copy."""
    copy = Path(f"{arguments.index}-copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(arguments.index, copy)
    try:
        _, deleting, _ = run("delete", "--where", "group < 200", "--index", copy)
        report, seconds, peak = run("compact", "--index", copy, *options)
        record(
            "compaction",
            {
                "rows left": report["n_chunks"],
                "rows dropped": report["n_dropped"],
                "seconds": round(seconds, 1),
                "seconds of the deletion": round(deleting, 1),
                "peak MiB": round(peak),
                "bytes before": report["bytes_before"],
                "bytes after": report["bytes_after"],
                "made": report["segment_types"],
            },
            rows=report["n_chunks"] + report["n_dropped"],
            dim=report["dim"],
        )
    finally:
        shutil.rmtree(copy)


def search(arguments, options):
    """Ragidx and FAISS in turns on one index; a scan of all vectors beside reading memory."""
    import faiss

    store = Store.open(arguments.index)
    queries = unit(np.load(arguments.queries)[:960].astype(np.float32))
    (segment,) = store.segments
    made = segment.entry.ann
    bare = bare_call(faiss, segment)
    store.search(queries, 10), bare(queries)  # everything is in memory now
    inside = watch(segment)
    values = {"made": str(made.recipe) if made else "flat"}
    for batch in (1, 64):
        blocks = [queries[start : start + batch] for start in range(0, len(queries), batch)][: 480 if made else 60]
        blocks *= max(1, 120 // len(blocks))
        ours, theirs, own, half = [], [], [], len(blocks) // 2
        for number, block in enumerate(blocks):
            other = blocks[number - half]  # who comes second with the same query would find it in the caches
            inside.seconds = 0.0
            ours.append(timed(lambda block=block: store.search(block, 10)))
            own.append(ours[-1] - inside.seconds)
            theirs.append(timed(lambda block=other: bare(block)))
        one, other = (1000 * statistics.median(times) for times in (ours, theirs))
        values[f"batch {batch}"] = {
            "ragidx ms": round(one, 3),
            "FAISS ms": round(other, 3),
            "more": round(one / other - 1, 4),
        }
        values[f"batch {batch}"]["outside of FAISS ms"] = round(1000 * statistics.median(own), 3)
        values[f"batch {batch}"]["queries/s"] = round(1000 * batch / one)
    exact, _ = search_exact(segment.exact_index, queries[:200], 10, None)
    found, _ = segment.search(queries[:200], 10, None)
    values["ann_recall@10 of the queries"] = round(float((found >= exact[:, 9:] - 1e-6).mean()), 3)
    values |= scan(segment, queries)
    record("search beside FAISS", values, rows=segment.entry.rows, dim=store.manifest.dim, options=values["made"])


class Watched:
    """An index that adds up the seconds of its searches: what is left of a call is not FAISS."""

    def __init__(self, index):
        self.index, self.seconds = index, 0.0

    def __getattr__(self, name):
        return getattr(self.index, name)

    def search(self, *arguments, **options):
        """As the index does."""
        started = time.perf_counter()
        try:
            return self.index.search(*arguments, **options)
        finally:
            self.seconds += time.perf_counter() - started


def watch(segment):
    """The index that a segment searches, watched from now on."""
    name = "ann_index" if segment.entry.ann else "exact_index"
    segment.__dict__[name] = watched = Watched(getattr(segment, name))
    return watched


def bare_call(faiss, segment):
    """The same FAISS index, called as its own examples do."""
    if segment.entry.ann is None:
        vectors = segment.exact_index
        return lambda block: vectors.search(block, 10)
    made = segment.entry.ann
    assert made.recipe.links is not None, "only flat and hnsw are one FAISS call"
    parameters = faiss.SearchParametersHNSW(efSearch=made.effort.at(10, 1.0).beam)
    index = segment.ann_index
    return lambda block: index.search(block, 10, params=parameters)


def scan(segment, queries):
    """Bytes a second of one exact query, and of adding up the same bytes with numpy in as many threads."""
    import faiss

    threads = faiss.omp_get_max_threads()
    codes = np.array_split(np.ascontiguousarray(segment.codes).view(np.uint64).ravel(), threads)
    with ThreadPoolExecutor(threads) as pool:
        reading = min(timed(lambda: list(pool.map(np.sum, codes))) for _ in range(7))
    size = sum(part.nbytes for part in codes)
    vectors = segment.exact_index
    scanning = min(timed(lambda query=query: search_exact(vectors, query[None], 10, None)) for query in queries[:15])
    return {
        "scan GB/s": round(size / scanning / 1e9, 1),
        "reading GB/s": round(size / reading / 1e9, 1),
        "share of the bandwidth": round(reading / scanning, 2),
    }


def timed(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("size", "search", "compact"))
    parser.add_argument("--vectors")
    parser.add_argument("--index", required=True)
    parser.add_argument("--queries")
    arguments, options = parser.parse_known_args()
    {"size": size, "search": search, "compact": compact}[arguments.part](arguments, options)


if __name__ == "__main__":
    main()
