"""What a change costs: one document in a hundred changed, and none, against the full build.

    python benchmarks/incremental.py --text DIR [--chunks 100000]

The text is taken from the *.jsonl.zst files of a folder, one file a document, as many as give so many chunks. Whole
processes; bytes are those that the process had the system write. Reading and hashing is a loop over the same files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import record

from ragidx.corpora.readers.registry import documents

_CHARS_A_CHUNK = 850  # of this text, with the bundled model's tokenizer and 256 tokens
_PREPARE = "import ragidx.pipelines.ingest.build, sys; sys.exit(0)"


def build(corpus, index):
    """The report of a build, its seconds, and the bytes that it wrote."""
    started = time.perf_counter()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    command = [sys.executable, "-m", "ragidx", "build", str(corpus), "--index", str(index), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    told = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return json.loads(told), time.perf_counter() - started, 512 * usage.ru_oublock


def read_and_hash(corpus):
    """What any incremental build has to do."""
    started = time.perf_counter()
    for path in corpus.rglob("*.txt"):
        hashlib.sha256(path.read_bytes()).digest()
    return time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--chunks", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus, index, chars, count = Path(folder) / "corpus", Path(folder) / "index", 0, 0
        for document in documents(arguments.text, on_skip=lambda _: None):
            if chars >= arguments.chunks * _CHARS_A_CHUNK:
                break
            place = corpus / f"{count % 100:02}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{count}.txt").write_text(document.text)
            chars, count = chars + len(document.text), count + 1
        first, full, full_bytes = build(corpus, index)
        for number in range(0, count, 100):
            path = corpus / f"{number % 100:02}" / f"{number}.txt"
            path.write_text(path.read_text() + "\n\nOne sentence more.")
        second, part, part_bytes = build(corpus, index)
        idle, hashing, starting = [], [], []
        for _ in range(5):
            idle.append(build(corpus, index)[1])
            hashing.append(read_and_hash(corpus))
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", _PREPARE], check=True)
            starting.append(time.perf_counter() - started)
    middle = {name: statistics.median(v) for name, v in (("idle", idle), ("hash", hashing), ("start", starting))}
    record(
        "incremental build",
        {
            "chunks": first["n_chunks"],
            "documents": first["n_documents"],
            "full s": round(full, 1),
            "full bytes": full_bytes,
            "1 % changed: documents": second["n_changed"],
            "1 % changed: chunks encoded": second["n_encoded"],
            "1 % changed: s": round(part, 2),
            "1 % changed: bytes": part_bytes,
            "time share": round(part / full, 4),
            "bytes share": round(part_bytes / full_bytes, 4),
            "idle s": round(middle["idle"], 2),
            "read and hash s": round(middle["hash"], 2),
            "starting Python and ragidx s": round(middle["start"], 2),
            "idle against reading and hashing": round(middle["idle"] / middle["hash"], 2),
        },
        model="mini",
        corpus_bytes=chars,
    )


if __name__ == "__main__":
    main()
