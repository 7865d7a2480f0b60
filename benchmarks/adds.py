"""Single documents added to an index that exists: the time of one, what a thousand leave behind, beside two rivals.

    python benchmarks/adds.py [--chunks 100000] [--adds 1000] [--singles 50] [--rivals lancedb chromadb]

All three get the same vectors of the bundled model's width. ragidx also encodes the text, indexes its words and stores
it whole; the rivals get the vector made beforehand. The packages are no dependency: pip install lancedb chromadb.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from figures import record, spread

import ragidx

BATCH = 5_000
WORDS = [f"word{number}" for number in range(30)]


def texts(count, seed):
    """Different texts of some 40 words."""
    draws = np.random.default_rng(seed).integers(0, len(WORDS), (count, 40))
    return [f"note {seed} {number} " + " ".join(WORDS[word] for word in row) for number, row in enumerate(draws)]


def timed(call, arguments):
    """Milliseconds of each call."""
    taken = []
    for argument in arguments:
        started = time.perf_counter()
        call(argument)
        taken.append(1000 * (time.perf_counter() - started))
    return taken


def folder_bytes(folder):
    """What lies in a folder, and in how many files."""
    sizes = [path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


def ours(folder, first):
    """An index of the first texts; what adds one."""
    index = ragidx.Index.create(Path(folder) / "ragidx")
    with index.batch() as batch:
        for start in range(0, len(first), BATCH):
            batch.add([ragidx.Document(f"a{start + n}", text) for n, text in enumerate(first[start : start + BATCH])])
    return lambda given: index.add([ragidx.Document(given[0], given[1])])


def lance(folder, first):
    """The same in LanceDB, a table without an index."""
    import lancedb

    def rows(texts, vectors, start):
        return [
            {"id": f"a{start + n}", "text": text, "vector": vector.tolist()}
            for n, (text, vector) in enumerate(zip(texts, vectors, strict=True))
        ]

    made = vectors_of(len(first), 1)
    table = lancedb.connect(str(Path(folder) / "lance")).create_table("notes", rows(first[:BATCH], made[:BATCH], 0))
    for start in range(BATCH, len(first), BATCH):
        table.add(rows(first[start : start + BATCH], made[start : start + BATCH], start))
    return lambda given: table.add([{"id": given[0], "text": given[1], "vector": given[2].tolist()}])


def chroma(folder, first):
    """The same in Chroma, whose graph takes every vector at once."""
    import chromadb

    made = vectors_of(len(first), 1)
    notes = chromadb.PersistentClient(str(Path(folder) / "chroma")).create_collection(
        "notes", metadata={"hnsw:space": "cosine"}
    )
    for start in range(0, len(first), BATCH):
        part = slice(start, start + BATCH)
        notes.add(
            ids=[f"a{n}" for n in range(start, start + len(first[part]))], documents=first[part], embeddings=made[part]
        )
    return lambda given: notes.upsert(ids=[given[0]], documents=[given[1]], embeddings=[given[2]])


def vectors_of(count, seed):
    """Vectors of unit length, as wide as those of the bundled model."""
    made = np.random.default_rng(seed).standard_normal((count, 255)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--adds", type=int, default=1_000)
    parser.add_argument("--singles", type=int, default=50)
    parser.add_argument("--rivals", nargs="*", default=[], choices=["lancedb", "chromadb"])
    arguments = parser.parse_args()
    first, more = texts(arguments.chunks, 1), texts(arguments.adds, 2)
    given = [
        (f"b{n}", text, vector) for n, (text, vector) in enumerate(zip(more, vectors_of(len(more), 2), strict=True))
    ]
    known = {"lancedb": lance, "chromadb": chroma}
    makers = {"ragidx": ours} | {name: known[name] for name in arguments.rivals}
    values = {}
    with tempfile.TemporaryDirectory() as folder:
        adders = {name: make(folder, first) for name, make in makers.items()}
        taken = {name: [] for name in makers}
        for one in given[: arguments.singles]:  # in turns
            for name, add in adders.items():
                taken[name] += timed(add, [one])
        for name, add in adders.items():
            started = time.perf_counter()
            timed(add, given[arguments.singles :])
            n_bytes, n_files = folder_bytes(Path(folder) / name.removesuffix("db"))
            values[name] = {
                "one add, ms": spread([round(ms, 2) for ms in taken[name]]),
                "adds, s": round(time.perf_counter() - started + sum(taken[name]) / 1000, 2),
                "folder, MiB": round(n_bytes / (1 << 20), 1),
                "files": n_files,
            }
        values["ragidx"]["segments"] = len(ragidx.Index(Path(folder) / "ragidx").info().segments)
    fastest = min(statistics.median(taken[name]) for name in makers)
    values["ratio of p50 to the fastest"] = round(statistics.median(taken["ragidx"]) / fastest, 2)
    record("adds", values, chunks=arguments.chunks, adds=arguments.adds)


if __name__ == "__main__":
    main()
