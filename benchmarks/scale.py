"""Time and peak memory of `ragidx build` for growing corpora, as a whole process: flat memory is the claim.

    python benchmarks/scale.py --text DIR [--chunks 1000,10000,100000]

The text is taken from the *.jsonl.zst files of a folder, as many documents as give so many chunks.
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
            command = [
                sys.executable,
                "-m",
                "ragidx",
                "build",
                str(corpus),
                "--index",
                f"{folder}/index",
                "--json",
                *options,
            ]
            started = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            out = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
            assert status == 0
            report = json.loads(out)
        record(
            "build at scale",
            {
                "chunks": report["n_chunks"],
                "seconds": round(seconds, 1),
                "seconds encoding": round(report["encode_seconds"], 1),
                "peak MiB": round(usage.ru_maxrss / 1024),
                "index bytes": report["index_bytes"],
            },
            model="mini",
            corpus_bytes=chars,
            options=" ".join(options),
        )


if __name__ == "__main__":
    main()
