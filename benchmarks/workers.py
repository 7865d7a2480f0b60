"""A corpus read and cut by one process and by several, beside an older checkout; and what the own process costs.

    python benchmarks/workers.py --text DIR [--mb 100 | --files 1500] [--workers 2] [--pairs 5] [--base CHECKOUT]
    python benchmarks/workers.py --text DIR --stages [--mb 100]

The text is that of the *.jsonl.zst files of a folder: as one file of JSON Lines, or as small files of mixed formats.
Builds are whole processes with the bundled model, words included, in turns; `--base` adds an older checkout, which lies
in a folder as `ragidx`. CPU seconds are those of the build's own process and those of its workers; the peaks are the
largest of each. The load is that of the last minute. `--stages` profiles the own process of one build by two workers.
"""

from __future__ import annotations

import argparse
import html
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import record, spread

from ragidx.corpora.readers.registry import documents

_BUILD = """
import json, resource, sys, time
started = time.perf_counter()
import ragidx
ragidx.build(sys.argv[1], sys.argv[2], rebuild=True, workers=json.loads(sys.argv[3]))
wall = time.perf_counter() - started
own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps({
    "wall": wall, "parent": own.ru_utime + own.ru_stime, "workers": others.ru_utime + others.ru_stime,
    "parent_mib": own.ru_maxrss / 1024, "worker_mib": others.ru_maxrss / 1024,
}))
"""
_STAGES = """
import cProfile, json, pstats, sys, time
import ragidx
profile = cProfile.Profile(time.process_time)
profile.runcall(ragidx.build, sys.argv[1], sys.argv[2], rebuild=True, workers=2)
stats = pstats.Stats(profile)
names = json.loads(sys.argv[3])
found = {name: max((row[3] for (file, _, function), row in stats.stats.items()
                    if function == call and file.endswith(module)), default=None)
         for name, (module, call) in names.items()}
print(json.dumps({"all": stats.total_tt} | found))
"""
# The functions of the build's own process in which a stage happens; its time is that of all that they call.
_FUNCTIONS = {
    "events from frames": ("workers/codec.py", "decoded"),
    "changes": ("ingest/changes.py", "_kind"),
    "vectors": ("ingest/encode.py", "encode"),
    "rows to disk": ("writing/segment_writer.py", "add"),
    "graph": ("ann/tuning.py", "choose"),
    "words": ("writing/lexical_files.py", "lexical_entry"),
}


def large_file(texts, folder, mb):
    """One file of JSON Lines."""
    corpus, n_bytes = folder / "corpus.jsonl", 0
    with corpus.open("w") as file:
        for number, text in enumerate(texts):
            n_bytes += file.write(json.dumps({"id": str(number), "text": text}) + "\n")
            if n_bytes >= mb * 1_000_000:
                break
    return corpus


def small_files(texts, folder, count):
    """Files of some kB: Markdown, text, HTML, JSON Lines, CSV, mail and notebooks in turns."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, text in enumerate(itertools.islice(texts, count)):
        cells = [{"cell_type": "markdown", "metadata": {}, "source": text}]
        kinds = {
            "md": f"# Note {number}\n\n{text}\n",
            "txt": text,
            "html": f"<html><title>Note {number}</title><body><h1>Note</h1><p>{html.escape(text)}</p></body></html>",
            "jsonl": json.dumps({"id": number, "text": text}) + "\n",
            "csv": f"id,text\n{number},{json.dumps(text.replace(chr(34), ''), ensure_ascii=False)}\n",
            "eml": f"From: a@b.example\nSubject: Note {number}\nContent-Type: text/plain; charset=utf-8\n\n{text}\n",
            "ipynb": json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}),
        }
        ending = list(kinds)[number % len(kinds)]
        (corpus / f"note-{number:04}.{ending}").write_text(kinds[ending], "utf-8")
    return corpus


def build(corpus, index, workers, path=None):
    """The figures of a build."""
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    command = [sys.executable, "-c", _BUILD, str(corpus), str(index), json.dumps(workers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, env=environment)
    return json.loads(done.stdout) | {"load": os.getloadavg()[0]}


def shares(corpus, folder):
    """The share of each stage in the CPU time of the build's own process, and the time itself."""
    command = [sys.executable, "-c", _STAGES, str(corpus), str(folder / "index"), json.dumps(_FUNCTIONS)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout.splitlines()[-1])
    seconds = found.pop("all")
    return {"CPU s": round(seconds, 1)} | {name: round(value / seconds, 3) for name, value in found.items() if value}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--files", type=int)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--base", type=Path, help="folder that holds the older checkout as `ragidx`")
    parser.add_argument("--stages", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        texts = (document.text for document in documents(arguments.text, on_skip=lambda _: None))
        if arguments.files:
            corpus = small_files(texts, folder, arguments.files)
        else:
            corpus = large_file(texts, folder, arguments.mb)
        mb = sum(path.stat().st_size for path in (corpus, *corpus.glob("*")) if path.is_file()) / 1e6
        setting = {"model": "mini", "mb": round(mb, 1), "files": arguments.files or 1}
        if arguments.stages:
            record("stages of the build's own process", shares(corpus, folder), **setting)
            return
        ours = f"{arguments.workers} worker{'s' if arguments.workers > 1 else ''}"
        ways = {"1 worker": (1, None), ours: (arguments.workers, None)}
        if arguments.base:
            ways["base"] = (arguments.workers, arguments.base)
        runs = {name: [] for name in ways}
        for _ in range(arguments.pairs):
            for name, way in ways.items():
                runs[name].append(build(corpus, folder / name.replace(" ", "-"), *way))
                print(name, runs[name][-1], flush=True)
    medians = {
        name: {key: round(statistics.median(run[key] for run in one), 2) for key in one[0]}
        for name, one in runs.items()
    }
    several = runs[ours]
    values = {"medians": medians}
    for name in runs.keys() - {ours}:
        pairs = list(zip(several, runs[name], strict=True))
        values[f"wall / {name}"] = rounded(spread([one["wall"] / other["wall"] for one, other in pairs]))
        values[f"CPU / {name}"] = rounded(spread([cpu(one) / cpu(other) for one, other in pairs]))
    own, others = (statistics.median(run[key] for run in several) for key in ("parent", "workers"))
    values["parent CPU s a MB"], values["cores that it can feed"] = round(own / mb, 3), round(others / own, 1)
    record(
        "workers" if arguments.workers > 1 else "build in one process",
        values,
        workers=arguments.workers,
        pairs=arguments.pairs,
        **setting,
    )


def cpu(run):
    return run["parent"] + run["workers"]


def rounded(values):
    return {key: round(value, 3) for key, value in values.items()}


if __name__ == "__main__":
    main()
