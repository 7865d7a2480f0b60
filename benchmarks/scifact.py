"""SciFact through the command line: `ragidx build` of whole documents, `ragidx query --run`, nDCG@10 by ir_measures.

python benchmarks/scifact.py --evalsets DIR --model PATH [--option=value of ragidx build ...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ir_measures
from figures import record
from ir_measures import RR, R, nDCG

from ragidx.corpora.evalsets import load_qrels, load_queries


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evalsets", type=Path, required=True, help="folder that holds scifact/ in BEIR layout")
    parser.add_argument("--set", default="scifact")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--name", default="", help="of the model in the row")
    arguments, options = parser.parse_known_args()
    folder = arguments.evalsets / arguments.set
    with tempfile.TemporaryDirectory() as temporary:
        index, run, asked = Path(temporary) / "index", Path(temporary) / "run.trec", Path(temporary) / "queries.jsonl"
        qrels = load_qrels(folder)
        queries = {key: text for key, text in load_queries(folder).items() if key in qrels}
        asked.write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in queries.items()))
        ragidx = [sys.executable, "-m", "ragidx"]
        where = ["--index", str(index)]
        started = time.perf_counter()
        build = [*ragidx, "build", str(folder), *where, "--model", arguments.model, "--json", *options]
        done = subprocess.run(build, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        built = time.perf_counter() - started
        report = json.loads(done.stdout)
        query = [*ragidx, "query", "--queries", str(asked), "--run", str(run), "-k", "100", *where]
        subprocess.run(query, stderr=subprocess.DEVNULL, check=True)
        ranked = {}
        for line in run.read_text().splitlines():
            query_id, _, doc_id, _, score, _ = line.split()
            ranked.setdefault(query_id, {})[doc_id] = float(score)
        values = ir_measures.calc_aggregate([nDCG @ 10, RR @ 10, R @ 100], qrels, ranked)
    record(
        f"{arguments.set} quality",
        {str(name): round(value, 4) for name, value in values.items()}
        | {
            "seconds": round(built, 1),
            "documents/s": round(report["n_encoded"] / report["encode_seconds"], 1),
            "vector bytes": 2 * report["dim"],
            "truncated": report["n_truncated"],
        },
        model=arguments.name or Path(arguments.model).name,
        options=" ".join(options),
        dtype=report["dtype"],
        method=report["method"],
        filter=report["filter"],
    )


if __name__ == "__main__":
    main()
