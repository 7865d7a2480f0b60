"""Index types beside hnswlib, usearch and FAISS alone: recall by real questions, the time of one and of many, making.

    python benchmarks/recall.py --vectors vectors.npy --queries queries.npy [--rows 100000] [--types auto,pq4,hnsw]
        [--beside hnswlib,usearch,faiss] [--alone pq4,sq8] [--named "what the vectors are"]

The first rows of the file (of the column `vector` of a Parquet file) are stored. A build tunes itself by questions that
it makes of them, and the real ones are asked with the effort that it chose: `told` is the build's ann_recall@10, `real`
that of the queries, both against exact search over the same float16 vectors. The others are made as their authors'
examples do (M 16, efConstruction 200; usearch float16; PQ x4fs with its own refinement), and their effort is raised
until the same queries find 95 %. All on one thread; all times are of the processor. Questions are asked in turns of
fifty, so that none finds the caches full of another's rows. `--alone` are types whose codes are all that is kept
(`codes_only`): `bytes a row` is all that stands for the vectors, and `again` what the questions find after the decoded
rows were coded a second time, as `compact --all` does. No dependency: pip install hnswlib usearch.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path

import faiss
import numpy as np
import pyarrow.parquet as pq
from figures import record

from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann import tuning
from ragidx.indexer.ann.coding import write_codes
from ragidx.indexer.ann.decoded import DecodedVectors
from ragidx.indexer.ann.faiss_files import map_ann, map_vectors, vectors_header, write
from ragidx.indexer.ann.index_types import IndexOptions, padded, product_codes
from ragidx.indexer.ann.repeats import Repeats
from ragidx.indexer.store.files import VECTORS

K, TURN = tuning.TUNED_K, 50
TARGET = IndexOptions().target_recall
EFFORTS = [*range(10, 64, 2), *range(64, 256, 8), *range(256, 1025, 32)]


def first_rows(path, rows):
    """Unit vectors (rows, dim), filled up to a width that FAISS reads fast."""
    if path.suffix == ".npy":
        return unit(np.load(path, mmap_mode="r")[:rows].astype(np.float32))
    found = []
    for batch in pq.ParquetFile(path).iter_batches(65_536, columns=["vector"]):
        found.append(np.stack(batch.column("vector").to_numpy(zero_copy_only=False)).astype(np.float32))
        if sum(map(len, found)) >= rows:
            break
    return unit(np.concatenate(found)[:rows])


def unit(vectors):
    wide = np.pad(vectors, ((0, 0), (0, padded(vectors.shape[1]) - vectors.shape[1])))
    return np.ascontiguousarray(wide / np.linalg.norm(wide, axis=1, keepdims=True), np.float32)


def ours(name, path, exact):
    """What `index_type` makes, its search as it was tuned, and what a build says of it."""
    dim, rows, sizes = exact.d, exact.ntotal, []
    chosen = tuning.choose(path, dim, rows, IndexOptions(name), None, lambda *_: None)
    if chosen is None:
        return lambda queries: ann.search_exact(exact, queries, K, None)[1], {"made": "flat", "bytes a row": 0}
    index, repeats, made = chosen
    write(index, lambda data: sizes.append(len(data)) or len(data))
    effort = {"beam": made.effort.beam, "lists": made.effort.lists, "factor": made.effort.factor}
    told = {"made": str(made.recipe), "told": round(made.recall, 4), "bytes a row": round(sum(sizes) / rows, 1)}
    return (
        lambda queries: ann.search(index, made.recipe, made.effort, exact, queries, K, None, repeats)[1],
        told | {"effort": " ".join(f"{key} {value}" for key, value in effort.items() if value)},
    )


def alone(name, path, exact, folder):
    """What codes alone find, and what is found when they were coded again; `path` has the vectors."""

    def coded(path, name, options):
        made = write_codes(folder / name, path, exact.d, exact.ntotal, options, None, lambda *_: None)
        count = made.tuned.repeats
        repeats = Repeats.mapped(folder / name, count, exact.ntotal) if count else None
        recipe = made.tuned.recipe
        index = map_ann(folder / name, recipe, (exact.d, exact.ntotal), count)
        decoded = DecodedVectors(folder / name, recipe, index, exact.d, exact.ntotal, repeats, made.zero)
        return (
            made,
            decoded,
            lambda queries: ann.search(index, recipe, made.tuned.effort, decoded, queries, K, None, repeats)[1],
        )

    options, second = IndexOptions(name, codes_only=True), folder / f"decoded-{VECTORS}"
    made, decoded, search = coded(path, f"{name}-alone", options)
    seconds = time.process_time()
    with second.open("wb") as file:
        file.write(vectors_header(exact.d, exact.ntotal))
        for block in np.array_split(np.arange(exact.ntotal), 50):
            file.write(decoded[block])
    _, _, again = coded(second, f"{name}-again", options)
    told = {"made": str(made.tuned.recipe), "told": round(made.tuned.recall, 4)}
    told["bytes a row"] = round((folder / f"{name}-alone").stat().st_size / exact.ntotal, 1)
    effort = made.tuned.effort
    told["effort"] = " ".join(f"{key} {value}" for key, value in dataclasses.asdict(effort).items() if value)
    return search, told, again, time.process_time() - seconds


def theirs_hnswlib(vectors):
    import hnswlib

    index = hnswlib.Index("ip", vectors.shape[1])
    index.init_index(len(vectors), ef_construction=200, M=16)
    index.set_num_threads(1)
    index.add_items(vectors)

    def search(queries, effort):
        index.set_ef(effort)
        return index.knn_query(queries, K)[0].astype(np.int64)

    return search, "M 16, efConstruction 200, float32", index.index_file_size()


def theirs_usearch(vectors):
    from usearch.index import Index

    index = Index(ndim=vectors.shape[1], metric="ip", dtype="f16")
    index.add(np.arange(len(vectors)), vectors, threads=1)

    def search(queries, effort):
        index.expansion_search = effort
        return np.asarray(index.search(queries, K, threads=1).keys).reshape(len(queries), K).astype(np.int64)

    return search, "defaults, float16", index.serialized_length


def theirs_faiss(vectors):
    made = f"PQ{product_codes(vectors.shape[1], 2)}x4fs,Refine(SQfp16)"
    index = faiss.index_factory(vectors.shape[1], made, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)

    def search(queries, effort):
        return index.search(queries, K, params=faiss.IndexRefineSearchParameters(k_factor=effort / K))[1]

    return search, made, len(faiss.serialize_index(index))


def reaching(search, queries, recall):
    """A search with the least effort that finds 95 %, and this effort."""
    effort = next((one for one in EFFORTS if recall(search(queries, one)) >= TARGET), EFFORTS[-1])
    return lambda asked: search(asked, effort), {"effort": str(effort)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--types", default="flat,auto,pq4,ivfpq4,RaBitQfs,sq8,ivf,ivfpq,rabitq,hnsw")
    parser.add_argument("--beside", default="")
    parser.add_argument("--alone", default="")
    parser.add_argument("--named", default="all-MiniLM-L6-v2")
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(1)
    vectors, queries = first_rows(arguments.vectors, arguments.rows), unit(np.load(arguments.queries)[:1000])
    with tempfile.TemporaryDirectory() as folder:
        (rows, dim), path = vectors.shape, Path(folder) / VECTORS
        path.write_bytes(vectors_header(dim, rows) + vectors.astype("<f2").tobytes())
        exact = map_vectors(path, dim, rows)
        best, _ = exact.search(queries, K)
        every = exact.reconstruct_n(0, rows)

        def recall(found):
            return float((np.einsum("qd,qkd->qk", queries, every[found]) >= best[:, K - 1 :] - 1e-5).mean())

        found, values = {}, {}
        for name in filter(None, f"{arguments.types},{arguments.beside}".split(",")):
            started = time.process_time()
            if name in arguments.beside.split(","):
                search, made, size = globals()[f"theirs_{name}"](vectors)
                seconds = time.process_time() - started
                found[name], about = reaching(search, queries, recall)
                # beside the vectors, as ragidx's index is: all three keep these themselves
                own = (4 if name == "hnswlib" else 2) * dim
                about |= {"made": made, "bytes a row": round(size / rows - own, 1)}
            else:
                found[name], about = ours(name, path, exact)
                seconds = time.process_time() - started
            values[name] = about | {"real": round(recall(found[name](queries)), 4), "build CPU s": round(seconds, 1)}
            print(name, values[name], flush=True)
        for name in filter(None, arguments.alone.split(",")):
            started, key = time.process_time(), f"{name} alone"
            found[key], about, again, more = alone(name, path, exact, Path(folder))
            about["build CPU s"] = round(time.process_time() - started - more, 1)
            about |= {"real": round(recall(found[key](queries)), 4), "again": round(recall(again(queries)), 4)}
            values[key] = about
            print(key, about, flush=True)
        timed(found, queries, values)
        for name, measured in values.items():
            kind = "engine" if name in arguments.beside.split(",") else "index"
            setting = {"rows": rows, "dim": dim, "target": TARGET, "model": arguments.named}
            record("codes alone" if "again" in measured else "index types", measured, **{kind: name}, **setting)


def timed(found, queries, values):
    """The median of single questions and of a batch of a thousand, in turns."""
    times = {name: ([], []) for name in found}
    for start in range(0, 250, TURN):
        for name, search in found.items():
            for query in queries[start : start + TURN]:
                started = time.process_time()
                search(query[None])
                times[name][0].append(time.process_time() - started)
    for _ in range(3):
        for name, search in found.items():
            started = time.process_time()
            search(queries)
            times[name][1].append(time.process_time() - started)
    for name, (ones, many) in times.items():
        values[name]["one ms"] = round(1000 * statistics.median(ones), 3)
        values[name]["ms a query of 1,000"] = round(1000 * min(many) / len(queries), 4)


if __name__ == "__main__":
    main()
