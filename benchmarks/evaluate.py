"""What a grid costs: 24 configurations of `ragidx.evaluate` against one build and 24 searches of the same queries.

python benchmarks/evaluate.py --evalsets DIR [--set scifact]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from figures import record

import ragidx
from ragidx.corpora.evalsets import load_qrels, load_queries

FILTERS, TAUS, MODES = ("embedfilter", "truncation", "pca"), (1, 2, 4, 8), ("dense", "hybrid")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evalsets", type=Path, required=True, help="folder that holds sets in BEIR layout")
    parser.add_argument("--set", default="scifact")
    arguments = parser.parse_args()
    folder = arguments.evalsets / arguments.set
    qrels = load_qrels(folder)
    queries = [text for name, text in load_queries(folder).items() if name in qrels]
    with tempfile.TemporaryDirectory() as temporary:
        started = time.perf_counter()
        index = ragidx.build(folder, Path(temporary) / "index")
        built = time.perf_counter()
        for mode in MODES:
            for _ in range(len(FILTERS) * len(TAUS)):
                index.rank_documents(queries, k=100, mode=mode)
        searched = time.perf_counter()
    report = ragidx.evaluate(folder, grid=ragidx.Grid(filter=FILTERS, tau=TAUS, mode=MODES), cache=None)
    done = time.perf_counter()
    n_rows, parts = len(report.tasks[0].rows), searched - started
    assert n_rows == len(FILTERS) * len(TAUS) * len(MODES)
    record(
        f"{arguments.set} evaluate",
        {
            "configurations": n_rows,
            "build s": round(built - started, 1),
            "searches s": round(searched - built, 1),
            "evaluate s": round(done - searched, 1),
            "ratio": round((done - searched) / parts, 2),
        },
        model="mini",
        queries=len(queries),
    )


if __name__ == "__main__":
    main()
