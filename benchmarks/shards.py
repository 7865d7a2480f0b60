"""A build in shards beside the same build on one machine: CPU, seconds, memory; and what a commit of many shards takes.

    python benchmarks/shards.py --corpus DIR [--shards 1 2 4] [--ray] [--name NAME]
    python benchmarks/shards.py --tiny 1000

The steps of each build are commands of their own, one after the other, as a scheduler starts them; shards encode with
the bundled model, and vectors get no approximate index: a build of one machine would make one where a shard is too
small for one, and spend as much CPU for it as for all else. `--ray` builds with as many actors of Ray on this machine,
too; of it the CPU of all processes counts, as far as it is seen ten times a second. `--tiny N` divides N small files
into N shards, which are built in one process, and measures division and commit. Adds rows to figures.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from figures import record

from ragidx.indexer.store import Store

FLAT = ("--index-type", "flat")


def run(*arguments):
    """CPU seconds, seconds and MiB at most of one command."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "ragidx", *map(str, arguments)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{arguments} ended with {status}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - started, used.ru_maxrss / 1024


def run_tree(*arguments):
    """As `run`, of a command with processes that it does not wait for, as those of Ray; MiB of all at once."""
    started, used, most = time.perf_counter(), {}, 0
    process = psutil.Popen([sys.executable, "-m", "ragidx", *map(str, arguments)], stdout=subprocess.DEVNULL)
    while process.poll() is None:
        n_bytes = 0
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                times = one.cpu_times()
                used[one.pid] = times.user + times.system
                n_bytes += one.memory_info().rss
        most = max(most, n_bytes)
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{arguments} ended with {process.returncode}")
    return sum(used.values()), time.perf_counter() - started, most / 2**20


def shown(runs):
    """Sums of CPU and seconds, the most memory."""
    cpu, seconds, memory = zip(*runs, strict=True)
    return {"CPU s": round(sum(cpu), 1), "s": round(sum(seconds), 1), "MiB": round(max(memory))}


def divided(corpus, n, folder):
    """The three steps, and all of them."""
    stage, index = folder / f"stage-{n}", folder / f"index-{n}"
    first = run("build", corpus, *FLAT, "--index", index, "--shards", n, "--stage", stage)
    shards = [run("build", "--shard", f"{number}/{n}", "--stage", stage, "--workers", 1) for number in range(n)]
    last = run("build", "--commit", stage)
    steps = {"division": shown([first]), "shards": shown(shards), "commit": shown([last])}
    return steps | {"all": shown([first, *shards, last])}, index


def compared(arguments):
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        one = ["--index", folder / "one", "--workers", 1]
        values = {"one machine": shown([run("build", arguments.corpus, *FLAT, *one)])}
        whole = values["one machine"]["CPU s"]
        for n in arguments.shards:
            steps, index = divided(arguments.corpus, n, folder)
            steps["CPU, of one machine's"] = round(steps["all"]["CPU s"] / whole, 3)
            values[f"{n} shards"] = steps
            if arguments.ray:
                where = ["--index", folder / f"ray-{n}", "--ray", "--actors", n]
                steps = shown([run_tree("build", arguments.corpus, *FLAT, *where)])
                steps["CPU, of one machine's"] = round(steps["CPU s"] / whole, 3)
                values[f"Ray, {n} actors"] = steps
        store = Store.open(folder / "one")
        n_bytes = sum(path.stat().st_size for path in arguments.corpus.rglob("*") if path.is_file())
        n_bytes = n_bytes or arguments.corpus.stat().st_size
        setting = {"corpus": arguments.name or arguments.corpus.name, "MB": round(n_bytes / 1e6)}
        record("shards", values, **setting, chunks=store.manifest.n_chunks)
        assert store.manifest.n_chunks == Store.open(index).manifest.n_chunks
    return values


def tiny(n):
    from ragidx.pipelines.distribute import Division, build_shard

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "docs").mkdir()
        for number in range(n):
            (folder / "docs" / f"{number:05d}.txt").write_text(f"Document {number} is about mill {number % 97}.\n" * 20)
        steps = {
            "division": run("build", folder / "docs", "--index", folder / "i", "--shards", n, "--stage", folder / "s")
        }
        division = Division.open(folder / "s")
        started = time.perf_counter()
        for number in range(n):
            build_shard(division, number)
        seconds = time.perf_counter() - started
        steps["commit"] = run("build", "--commit", folder / "s")
        values = {name: shown([one]) for name, one in steps.items()} | {"a shard, s": round(seconds / n, 3)}
        record("shards", values, shards=n, chunks=Store.open(folder / "i").manifest.n_chunks)
    return values


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--name")
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--tiny", type=int)
    arguments = parser.parse_args()
    values = tiny(arguments.tiny) if arguments.tiny else compared(arguments)
    print(json.dumps(values, indent=2))


if __name__ == "__main__":
    main()
