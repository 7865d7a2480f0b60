"""Which dimension to take, on SciFact: `ragidx sweep` with mini (EmbedFilter) and all-MiniLM-L6-v2 (truncation, PCA).

    python benchmarks/sweep.py --evalsets DIR [--minilm PATH] [--out DIR]

Whole documents, one encoding of each model; one row a width, with size, quality and speed of a flat index. With
`--out`, tables and pictures of both sweeps are written there. Mini takes a minute, six layers some on two cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from figures import record

import ragidx


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evalsets", type=Path, required=True, help="folder that holds scifact/ in BEIR layout")
    parser.add_argument("--set", default="scifact")
    parser.add_argument("--minilm", help="folder of all-MiniLM-L6-v2, or its hub id")
    parser.add_argument("--skip-mini", action="store_true", help="only the other model")
    parser.add_argument("--out", type=Path, help="folder for the tables and pictures")
    arguments = parser.parse_args()
    models = [] if arguments.skip_mini else [("mini", "mini", ["truncation"])]
    if arguments.minilm:
        models.append(("all-MiniLM-L6-v2", arguments.minilm, ["truncation", "pca"]))
    for name, model, filters in models:
        report = ragidx.evaluate(
            arguments.evalsets / arguments.set,
            grid=ragidx.Grid(filter=filters, model=model),
            costs=True,
            chunks=ragidx.ChunkSpec(size=None),
            out=None if arguments.out is None else arguments.out / name,
            on_progress=lambda stage: print(f"stage {stage.number}: {stage.name}", flush=True),
        )
        task = report.tasks[0]
        full, *rows = task.rows
        for row in rows:
            costs, made = row.costs, row.configuration
            record(
                "sweep",
                {
                    "nDCG@10": round(row.interval.mean, 4),
                    "low": round(row.interval.low, 4),
                    "high": round(row.interval.high, 4),
                    "against full width": round(row.against.mean, 4),
                    "p": round(row.against.p, 4),
                    "overlap@10": round(row.means["overlap@10"], 4),
                    "vector bytes": round(row.bytes),
                    "disk bytes": costs.disk_bytes,
                    "p50 ms": round(costs.single.p50_ms, 4),
                    "p95 ms": round(costs.single.p95_ms, 4),
                    "p99 ms": round(costs.single.p99_ms, 4),
                    "batch p50 ms": round(costs.batch.p50_ms, 3),
                    "queries/s": round(costs.queries_per_s),
                },
                model=name,
                filter=made.filter,
                options=f"--dim {made.dim}",  # what tells one row from another in table.py
                index=costs.factory,
                rows=task.n_chunks,
                queries=len(task.query_ids),
                threads=costs.threads,
                full=round(full.interval.mean, 4),
            )
        if task.choice.number is not None:
            print(f"{name}: {task.rows[task.choice.number].name} is the cheapest that is not worse than the best")


if __name__ == "__main__":
    main()
