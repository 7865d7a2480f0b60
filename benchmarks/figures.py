"""A figure's row: what was measured, by which command, on which machine, with which versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path

FIGURES = Path(__file__).with_name("figures.jsonl")
LIBRARIES = (
    *("ragidx", "torch", "transformers", "sentence-transformers", "faiss-cpu", "tokenizers", "pyarrow", "numpy"),
    "faster-paddle",
)


def processor():
    """The CPU's name, its count and the units that decide speed here."""
    import os

    name, units = platform.processor() or platform.machine(), []
    info = Path("/proc/cpuinfo")
    if info.is_file():
        text = info.read_text()
        name = next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")), name)
        units = [unit for unit in ("avx512f", "avx512_bf16", "amx_bf16") if unit in text]
    return f"{len(os.sched_getaffinity(0))} x {name} {' '.join(units)}".strip()


def commit():
    """The tree that was measured."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def spread(values):
    """Median, least and greatest of repeated runs."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": len(values)}


def _placeless(argument):
    return f"DIR/{Path(argument).name}" if "/" in argument else argument


def provenance():
    """Command, date, tree, machine and versions."""
    versions = {}
    for library in LIBRARIES:
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        # Where things lie on this machine is nobody's business: the last part of a path says enough.
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *map(_placeless, sys.argv[1:])]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "machine": processor(),
        "python": platform.python_version(),
        "versions": versions,
    }


def record(name, values, **setting):
    """Print a row and append it to figures.jsonl."""
    row = {"figure": name, "values": values, "setting": setting} | provenance()
    with FIGURES.open("a") as stream:
        stream.write(json.dumps(row) + "\n")
    print(json.dumps({"figure": name, "values": values, **setting}, indent=2), flush=True)
