"""`auto` against hnswlib and usearch: the same vectors, the same threads, each at the least effort that finds 95 %.

    python benchmarks/rivals.py --vectors vectors.parquet --queries queries.npy [--rows 200000]

Each is built as its authors' examples do (M 16, efConstruction 200; usearch float16, its defaults otherwise), and its
effort is raised until ann_recall@10 of the queries is 0.95: the same queries that are timed then, in turns of fifty
single ones (a query of one index should not find the caches full of another's rows) or one batch. The two packages are
no dependency: pip install hnswlib usearch.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import hnswlib
import numpy as np
import pyarrow.parquet as pq
from figures import record
from usearch.index import Index

import ragidx
from ragidx.indexer.ann import search as ann
from ragidx.pipelines.vectors import RowWriter

TARGET, K = 0.95, 10
EFFORTS = [*range(10, 64, 2), *range(64, 256, 8), *range(256, 1025, 32)]


def ours(vectors, folder):
    """An index of type auto."""
    with RowWriter(folder, vectors.shape[1]) as writer:
        for start in range(0, len(vectors), 20_000):
            writer.add_vectors(
                [str(n) for n in range(start, min(start + 20_000, len(vectors)))], vectors[start : start + 20_000]
            )
        writer.commit()
    (segment,) = ragidx.Index(folder).searcher.store.segments
    made, index = segment.entry.ann, segment.ann_index

    def search(queries, effort):
        tried = type(made.effort)(beam=effort, lists=made.effort.lists, factor=made.effort.factor)
        return ann.search(index, made.recipe, tried, segment.exact_index, queries, K, None, segment.repeats)[1]

    return search, str(made.recipe)


def theirs_hnswlib(vectors, threads):
    index = hnswlib.Index("ip", vectors.shape[1])
    index.init_index(len(vectors), ef_construction=200, M=16)
    index.set_num_threads(threads)
    index.add_items(vectors)

    def search(queries, effort):
        index.set_ef(effort)
        return index.knn_query(queries, K)[0].astype(np.int64)

    return search, "M 16, efConstruction 200, float32"


def theirs_usearch(vectors, threads):
    index = Index(ndim=vectors.shape[1], metric="ip", dtype="f16")
    index.add(np.arange(len(vectors)), vectors, threads=threads)

    def search(queries, effort):
        index.expansion_search = effort
        return np.asarray(index.search(queries, K, threads=threads).keys).reshape(len(queries), K).astype(np.int64)

    return search, "defaults, float16"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--queries", required=True)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    table = pq.ParquetFile(arguments.vectors)
    parts = [batch.column("vector").flatten().to_numpy() for batch in table.iter_batches(65_536, columns=["vector"])]
    every = np.concatenate(parts).reshape(table.metadata.num_rows, -1)
    chosen = np.sort(np.random.default_rng(0).permutation(len(every))[: arguments.rows])
    vectors = unit(every[chosen].astype(np.float32))
    queries = unit(np.load(arguments.queries)[:1000].astype(np.float32))
    products = -np.sort(-np.concatenate([top(queries, part) for part in np.array_split(vectors, 20)], axis=1), axis=1)
    values, found = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in (
            ("ragidx auto", lambda: ours(vectors, folder)),
            ("hnswlib", lambda: theirs_hnswlib(vectors, arguments.threads)),
            ("usearch", lambda: theirs_usearch(vectors, arguments.threads)),
        ):
            started = time.perf_counter()
            search, made = make()
            seconds = time.perf_counter() - started
            for effort in EFFORTS:
                rows = search(queries, effort)
                scores = np.einsum("qd,qkd->qk", queries, vectors[rows])
                recall = float((scores >= products[:, K - 1 : K] - 1e-4).mean())
                if recall >= TARGET:
                    break
            values[name] = {
                "made": made,
                "effort": effort,
                "ann_recall@10": round(recall, 4),
                "build s": round(seconds, 1),
            }
            found[name] = lambda block, search=search, effort=effort: search(block, effort)
        singles = [q[None] for q in queries]
        turns = {"single": [singles[n : n + 50] for n in range(0, 1000, 50)], "batch 1,000": [[queries]] * 9}
        for label, blocks in turns.items():
            times = {name: [] for name in found}
            for block in blocks:
                for name, search in found.items():
                    for asked in block:
                        started = time.perf_counter()
                        search(asked)
                        times[name].append(time.perf_counter() - started)
            for name, taken in times.items():
                values[name][f"queries/s {label}"] = round(len(blocks[0][0]) / statistics.median(taken))
    record("auto against hnswlib and usearch", values, rows=len(vectors), threads=arguments.threads, target=TARGET)


def top(queries, part):
    products = queries @ part.T
    return -np.partition(-products, K, axis=1)[:, :K]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
