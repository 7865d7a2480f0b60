"""Real vectors, grown to a size: a test of an index needs neighbours that are near, which noise does not have.

    python benchmarks/grow.py --real vectors.npy --rows 1000000 --out vectors.parquet

The first rows are the real ones, as they are. Each other one lies between a real vector and one of its eight nearest,
at a random place, with Gaussian noise of length 0.25 added, brought back to unit length. Seeded; columns: id, vector
(float16), group (an integer below 1,000, for conditions).
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NEIGHBOURS, NOISE = 8, 0.25


def load(path):
    """Unit vectors of a .npy file; int8 codes are scaled."""
    real = np.load(path, mmap_mode="r").astype(np.float32)
    return real / np.linalg.norm(real, axis=1, keepdims=True)


def near(real):
    """The eight nearest other rows of each row, nearly exact."""
    import faiss

    index = faiss.index_factory(real.shape[1], "IVF512,SQfp16", faiss.METRIC_INNER_PRODUCT)
    index.train(real[:: max(1, len(real) // 40_000)])
    index.add(real)
    index.nprobe = 8
    return index.search(real, NEIGHBOURS + 1)[1]


def grow(real, rows, seed=0, block=50_000):
    """Blocks of float16 vectors, `rows` in all, the real ones first."""
    rng, neighbours = np.random.default_rng(seed), near(real)
    for start in range(0, min(rows, len(real)), block):
        yield real[start : min(rows, start + block)].astype(np.float16)
    for start in range(len(real), rows, block):
        count = min(block, rows - start)
        one = rng.integers(0, len(real), count)
        other = neighbours[one, rng.integers(1, NEIGHBOURS + 1, count)]
        share = rng.uniform(0, 1, (count, 1)).astype(np.float32)
        made = share * real[one] + (1 - share) * real[other]
        made += rng.standard_normal(made.shape).astype(np.float32) * (NOISE / np.sqrt(real.shape[1]))
        yield (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float16)


def write(real, rows, path):
    """A parquet file of grown vectors."""
    dim, start = real.shape[1], 0
    kind = pa.list_(pa.float16(), dim)
    schema = pa.schema([("id", pa.string()), ("vector", kind), ("group", pa.int64())])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for block in grow(real, rows):
            numbers = np.arange(start, start + len(block))
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), dim)
            writer.write_batch(
                pa.record_batch([pa.array([f"v{n}" for n in numbers]), vectors, numbers % 1000], schema=schema)
            )
            start += len(block)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", required=True, metavar="FILE", help="real vectors, (n, dim) .npy, 20,000 at least")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", required=True, metavar="FILE")
    arguments = parser.parse_args()
    write(load(arguments.real), arguments.rows, arguments.out)


if __name__ == "__main__":
    main()
