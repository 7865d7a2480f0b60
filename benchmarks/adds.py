"""Single documents added to an index that exists: the time of one, what a thousand leave behind, beside two rivals.

    python benchmarks/adds.py [--chunks 100000] [--adds 1000] [--singles 50] [--rivals PYTHON]
        [--folder DIR]

All three get the same vectors of the bundled model's width. ragidx also encodes the text, indexes its words, stores it
whole and syncs it to the disk; the rivals get the vector made beforehand. Each runs in a process of its own. PYTHON is
the interpreter of an environment with lancedb and chromadb, which cannot be imported beside ragidx's dependencies:
python3 -m venv rivals && rivals/bin/pip install lancedb chromadb
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

BATCH = 5_000
WORDS = [f"word{number}" for number in range(30)]
RIVALS = ("lancedb", "chromadb")


def texts(count, seed):
    """Different texts of some 40 words."""
    draws = np.random.default_rng(seed).integers(0, len(WORDS), (count, 40))
    return [f"note {seed} {number} " + " ".join(WORDS[word] for word in row) for number, row in enumerate(draws)]


def vectors_of(count, seed):
    """Vectors of unit length, as wide as those of the bundled model."""
    made = np.random.default_rng(seed).standard_normal((count, 255)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def folder_bytes(folder):
    """What lies in a folder, and in how many files."""
    sizes = [path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


def sync(path):
    """Milliseconds to write a small file and sync it: what the disk takes, whoever asks."""
    started = time.perf_counter()
    with path.open("wb") as file:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
    return round(1000 * (time.perf_counter() - started), 2)


def ours(folder, first):
    """An index of the first texts; what adds one, and what deletes one."""
    import ragidx

    index = ragidx.Index.create(Path(folder))
    with index.batch() as batch:
        for start in range(0, len(first), BATCH):
            batch.add([ragidx.Document(f"a{start + n}", text) for n, text in enumerate(first[start : start + BATCH])])
    return (
        lambda name, text, vector: index.add([ragidx.Document(name, text)]),
        lambda name: index.delete([name]),
        lambda: len(index.info().segments),
    )


def lance(folder, first):
    """The same in LanceDB, a table without an index."""
    import lancedb

    def rows(texts, vectors, start):
        return [
            {"id": f"a{start + n}", "text": text, "vector": vector.tolist()}
            for n, (text, vector) in enumerate(zip(texts, vectors, strict=True))
        ]

    made = vectors_of(len(first), 1)
    table = lancedb.connect(folder).create_table("notes", rows(first[:BATCH], made[:BATCH], 0))
    for start in range(BATCH, len(first), BATCH):
        table.add(rows(first[start : start + BATCH], made[start : start + BATCH], start))
    return (
        lambda name, text, vector: table.add([{"id": name, "text": text, "vector": vector.tolist()}]),
        lambda name: table.delete(f"id = '{name}'"),
        lambda: None,
    )


def chroma(folder, first):
    """The same in Chroma, whose graph takes every vector at once."""
    import chromadb

    made = vectors_of(len(first), 1)
    settings = {"hnsw:space": "cosine"}
    notes = chromadb.PersistentClient(folder).create_collection("notes", metadata=settings)
    for start in range(0, len(first), BATCH):
        part = slice(start, start + BATCH)
        notes.add(
            ids=[f"a{n}" for n in range(start, start + len(first[part]))], documents=first[part], embeddings=made[part]
        )
    return (
        lambda name, text, vector: notes.upsert(ids=[name], documents=[text], embeddings=[vector]),
        lambda name: notes.delete(ids=[name]),
        lambda: None,
    )


MAKERS = {"ragidx": ours, "lancedb": lance, "chromadb": chroma}


def serve(name, folder, chunks, adds):
    """In a process of its own: make the index, then add or delete as asked by lines, and answer with milliseconds."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    add, delete, segments = MAKERS[name](folder, texts(chunks, 1))
    given = list(zip((f"b{n}" for n in range(adds)), texts(adds, 2), vectors_of(adds, 2), strict=True))
    print(json.dumps(importlib.metadata.version(name)), file=answers, flush=True)
    for line in sys.stdin:
        verb, first, end = json.loads(line)
        taken, used = [], time.process_time()
        for number in range(first, end):
            started = time.perf_counter()
            add(*given[number]) if verb == "add" else delete(f"a{number}")
            taken.append(round(1000 * (time.perf_counter() - started), 2))
        used = 1000 * (time.process_time() - used) / (end - first)
        print(json.dumps([taken, round(used, 2), segments()]), file=answers, flush=True)


class System:
    """One of the three, in its process."""

    def __init__(self, name, python, folder, arguments):
        self.folder = Path(folder) / name
        command = [python, __file__, "--serve", name, str(self.folder)]
        command += ["--chunks", str(arguments.chunks), "--adds", str(arguments.adds)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def version(self):
        """Of the package; the index is made then."""
        return json.loads(self.process.stdout.readline())

    def ask(self, verb, first, end):
        """Milliseconds of each call, CPU time of one, and the number of segments."""
        self.process.stdin.write(json.dumps([verb, first, end]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--adds", type=int, default=1_000)
    parser.add_argument("--singles", type=int, default=50)
    parser.add_argument("--rivals", metavar="PYTHON")
    parser.add_argument("--folder", metavar="DIR", help="where the indexes are made: /dev/shm syncs at no cost")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve, arguments.chunks, arguments.adds)
        return
    from figures import record, spread

    pythons = {"ragidx": sys.executable} | (dict.fromkeys(RIVALS, arguments.rivals) if arguments.rivals else {})
    values, singles, synced = {}, arguments.singles, []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        systems = {name: System(name, python, folder, arguments) for name, python in pythons.items()}
        versions = {name: system.version() for name, system in systems.items()}
        taken = {name: {"add": [], "delete": []} for name in systems}
        for verb in ("add", "delete"):
            for number in range(singles):  # in turns
                synced.append(sync(Path(folder) / "synced"))
                for name, system in systems.items():
                    taken[name][verb] += system.ask(verb, number, number + 1)[0]
        for name, system in systems.items():
            rest, used, segments = system.ask("add", singles, arguments.adds)
            n_bytes, n_files = folder_bytes(system.folder)
            every = taken[name]["add"] + rest
            values[name] = {
                "one add, ms": spread(taken[name]["add"]),
                "one delete, ms": spread(taken[name]["delete"]),
                "all adds, ms": spread(every),
                "one add, CPU ms": used,
                "all adds, s": round(sum(every) / 1000, 2),
                "folder, MiB": round(n_bytes / (1 << 20), 1),
                "files": n_files,
            } | ({} if segments is None else {"segments": segments})
            system.close()
    values["one file of 4 KiB written and synced, ms"] = spread(synced)
    middle = {name: statistics.median(taken[name]["add"]) for name in systems}
    values["ratio of p50 to the fastest"] = round(middle["ragidx"] / min(middle.values()), 2)
    record("adds", values, chunks=arguments.chunks, adds=arguments.adds, folder=arguments.folder, versions=versions)


if __name__ == "__main__":
    main()
