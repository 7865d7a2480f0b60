"""Time and peak memory of `ragidx build` for growing corpora, as a whole process: flat memory is the claim.

    python benchmarks/scale.py --text DIR [--chunks 1000,10000,100000] [--rival CHECKOUT] [options of build]

The text is taken from the *.jsonl.zst files of a folder, as many documents as give so many chunks. The rival is another
commit of ragidx, in a folder with that name; it builds the same corpus, right after.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import record

from ragidx.corpora.readers.registry import documents

_CHARS_A_CHUNK = 850  # of this text, with the bundled model's tokenizer and 256 tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--chunks", default="1000,10000,100000")
    parser.add_argument("--rival", type=Path)
    arguments, options = parser.parse_known_args()
    for wanted in map(int, arguments.chunks.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            corpus, chars = Path(folder) / "corpus.jsonl", 0
            with corpus.open("w") as stream:
                for document in documents(arguments.text, on_skip=lambda _: None):
                    if chars >= wanted * _CHARS_A_CHUNK:
                        break
                    stream.write(json.dumps({"id": document.id, "text": document.text}) + "\n")
                    chars += len(document.text)
            own, seconds, usage = build(corpus, Path(folder) / "index", options)
            rival = arguments.rival and build(corpus, Path(folder) / "rival", options, arguments.rival)
        values = {
            "chunks": own["n_chunks"],
            "seconds": round(seconds, 1),
            "CPU s": round(cpu(usage), 1),
            "seconds encoding": round(own["encode_seconds"], 1),
            "peak MiB": round(usage.ru_maxrss / 1024),
            "index bytes": own["index_bytes"],
        }
        if rival:
            report, seconds, other = rival
            values |= {
                "rival: chunks": report["n_chunks"],
                "rival: seconds": round(seconds, 1),
                "rival: CPU s": round(cpu(other), 1),
                "CPU s / rival": round(cpu(usage) / cpu(other), 3),
            }
        record("build at scale", values, model="mini", corpus_bytes=chars, options=" ".join(options))


def build(corpus, index, options, checkout=None):
    """The report, seconds and resources of one build, by this version or by a checkout's."""
    command = [sys.executable, "-m", "ragidx", "build", str(corpus), "--index", str(index), "--json", *options]
    places = [*([str(checkout.parent)] if checkout else []), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, cwd=index.parent
    )
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    assert status == 0
    report = json.loads(out)
    return report, seconds, usage


def cpu(usage):
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
