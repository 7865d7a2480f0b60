"""Whether the recall that a build measures is what real questions find, for each index type.

    python benchmarks/recall.py --vectors vectors.parquet --queries queries.npy [--rows 200000] [--types hnsw,ivf]

The first rows of the file are stored; a build tunes itself by questions that it makes of them, and the real ones are
asked with the effort that it chose. `told` is the build's ann_recall@10, `real` that of the queries, both against exact
search over the same float16 vectors.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from figures import record

from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann import tuning
from ragidx.indexer.ann.faiss_files import map_vectors, vectors_header
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.store.files import VECTORS

K = tuning.TUNED_K


def first_rows(path, rows):
    """Unit vectors (rows, dim)."""
    found = []
    for batch in pq.ParquetFile(path).iter_batches(65_536, columns=["vector"]):
        found.append(np.stack(batch.column("vector").to_numpy(zero_copy_only=False)).astype(np.float32))
        if sum(map(len, found)) >= rows:
            break
    return unit(np.concatenate(found)[:rows])


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--types", default="hnsw,ivf,ivfpq,rabitq,sq8")
    arguments = parser.parse_args()
    vectors, queries = first_rows(arguments.vectors, arguments.rows), unit(np.load(arguments.queries)[:1000])
    queries, (rows, dim) = queries.astype(np.float32), vectors.shape
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / VECTORS
        path.write_bytes(vectors_header(dim, rows) + vectors.astype("<f2").tobytes())
        exact = map_vectors(path, dim, rows)
        best, _ = exact.search(queries, K)
        for name in arguments.types.split(","):
            started = time.perf_counter()
            index, repeats, told = tuning.choose(path, dim, rows, IndexOptions(name), None, lambda *_: None)
            seconds = time.perf_counter() - started
            scores, _ = ann.search(index, told.recipe, told.effort, exact, queries, K, None, repeats)
            record(
                "recall told and real",
                {
                    "made": str(told.recipe),
                    "told": round(told.recall, 4),
                    "real": round(float((scores >= best[:, K - 1 : K] - 1e-6).mean()), 4),
                    "cosine of the nearest row, median": round(float(np.median(best[:, 0])), 3),
                    "build s": round(seconds, 1),
                },
                index=name,
                rows=rows,
                dim=dim,
                target=IndexOptions().target_recall,
            )


if __name__ == "__main__":
    main()
