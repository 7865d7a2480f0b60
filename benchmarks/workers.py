"""One large file of JSON Lines, read and cut by one process and by several; and what the build's own process costs.

    python benchmarks/workers.py --text DIR [--mb 100] [--workers 2] [--pairs 5] [--base CHECKOUT]

The text is taken from the *.jsonl.zst files of a folder. Builds are whole processes with the bundled model, words
included, in turns; `--base` adds an older checkout as the one to compare with. CPU seconds are those of the build's own
process and those of its workers; the peaks are the largest of each. The load is that of the last minute.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import record

from ragidx.corpora.readers.registry import documents

_BUILD = """
import json, resource, sys, time
started = time.perf_counter()
import ragidx
workers = json.loads(sys.argv[3])
ragidx.build(sys.argv[1], sys.argv[2], rebuild=True, **({} if workers is None else {"workers": workers}))
wall = time.perf_counter() - started
own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps({
    "wall": wall, "parent": own.ru_utime + own.ru_stime, "workers": others.ru_utime + others.ru_stime,
    "parent_mib": own.ru_maxrss / 1024, "worker_mib": others.ru_maxrss / 1024,
}))
"""


def build(corpus, index, workers, path=None):
    """The figures of a build; `workers` None: an older version, which has none."""
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    command = [sys.executable, "-c", _BUILD, str(corpus), str(index), json.dumps(workers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, env=environment)
    return json.loads(done.stdout) | {"load": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--base", type=Path, help="folder that holds the older checkout as `ragidx`")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus, n_bytes, number = Path(folder) / "corpus.jsonl", 0, 0
        with corpus.open("w") as file:
            for document in documents(arguments.text, on_skip=lambda _: None):
                n_bytes += file.write(json.dumps({"id": str(number), "text": document.text}) + "\n")
                number += 1
                if n_bytes >= arguments.mb * 1_000_000:
                    break
        ways = {"1 worker": (1, None), f"{arguments.workers} workers": (arguments.workers, None)}
        if arguments.base:
            ways["base"] = (None, arguments.base)
        found = {name: [] for name in ways}
        for _ in range(arguments.pairs):
            for name, way in ways.items():
                found[name].append(build(corpus, Path(folder) / name.replace(" ", "-"), *way))
                print(name, found[name][-1], flush=True)
    size = n_bytes / 1e6
    middle = {
        name: {key: round(statistics.median(run[key] for run in runs), 2) for key in runs[0]}
        for name, runs in found.items()
    }
    several = middle[f"{arguments.workers} workers"]
    ratios = {name: round(one["wall"] / several["wall"], 2) for name, one in middle.items()}
    a_mb = several["parent"] / size
    cores = round(several["workers"] / several["parent"], 1)
    print(
        f"{size:.1f} MB; faster by {ratios}; the build's own process: {a_mb:.3f} s of CPU a MB, feeds {cores} workers"
    )
    values = {"medians": middle, "wall, against several": ratios, "parent s a MB": round(a_mb, 3)}
    record("workers", values, model="mini", mb=round(size), pairs=arguments.pairs)


if __name__ == "__main__":
    main()
