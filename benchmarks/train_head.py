"""What a trained head or pooling is worth, beside no filter, EmbedFilter and whitening, on sets not trained on.

    python benchmarks/train_head.py --pairs DIR --evalsets DIR --model FILE --name NAME --method prompteol
        [--limit 9000] [--teacher MODEL] [--rows layers tokens] [--cache DIR] [--sets cranfield stsb]
        [--max-length 160] [--template S] [--mode hybrid]

The head is trained as `ragidx train head` does, poolings of these rows as `ragidx train pooling`; all rows are of
`ragidx.evaluate`, dense (or --mode hybrid), documents whole or cut at --max-length, head and pooling at all of their
dimensions, EmbedFilter (also centred) and whitening (fitted on the set itself) at half of the model's. Models that
`ragidx train contrastive` and its like made are measured the same way.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from figures import record

import ragidx
from ragidx.pipelines.experiments.evaluate.significance import difference


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=Path, required=True, help="a file of pairs, or a folder of them")
    parser.add_argument("--evalsets", type=Path, required=True, help="folder that holds the sets")
    parser.add_argument("--sets", nargs="+", default=["cranfield", "stsb"])
    parser.add_argument("--model", default="mini")
    parser.add_argument("--name", help="of the model, for the row")
    parser.add_argument("--method")
    parser.add_argument("--limit", type=int, default=9000)
    parser.add_argument("--teacher")
    parser.add_argument("--rows", nargs="*", default=[], help="layers, tokens: poolings that are trained, too")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--template")
    parser.add_argument("--mode", default="dense")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", default="")
    arguments = parser.parse_args()
    encoder = {"method": arguments.method, "dtype": arguments.dtype, "template": arguments.template}
    encoder = {name: value for name, value in encoder.items() if value is not None}
    cut = {} if arguments.max_length is None else {"max_length": arguments.max_length}
    read = {name: value for name, value in encoder.items() if name != "dtype"} | cut
    run = {name: value for name, value in encoder.items() if name == "dtype"}
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "a.head"
        report = ragidx.train.head(
            arguments.model,
            pairs=arguments.pairs,
            limit=arguments.limit,
            teacher=arguments.teacher,
            seed=arguments.seed,
            out=file,
            force=True,
            cache=arguments.cache,
            **encoder,
            **cut,
        )
        values = {
            "held out": {one.name: round(one.mean, 4) for one in report.scores},
            "training s": round(report.training_seconds, 1),
        }
        poolings = {}
        for rows in arguments.rows:
            poolings[rows] = Path(temporary) / f"{rows}.pooling"
            report = ragidx.train.pooling(
                arguments.model,
                pairs=arguments.pairs,
                limit=arguments.limit,
                seed=arguments.seed,
                rows=rows,
                out=poolings[rows],
                force=True,
                cache=arguments.cache,
                **encoder,
                **cut,
            )
            values["held out"][f"pooling {rows}"] = round(report.scores[-1].mean, 4)
            values[f"training {rows} s"] = round(report.training_seconds, 1)
        grid = {
            "none": ("none", {}),
            "embedfilter": ("embedfilter", {"tau": 2}),
            "embedfilter, centred": ("embedfilter", {"tau": 2, "center": True}),
            "whitening": ("whitening", {"tau": 2}),
            "head": (f"head:{file}", {"tau": 1}),
        }
        for name in arguments.sets:
            options = {} if name == "stsb" else {"chunks": ragidx.ChunkSpec(size=None)}
            mode = None if name == "stsb" else arguments.mode
            found = {}
            plain = None
            for label, (filter_, width) in grid.items():
                (task,) = ragidx.evaluate(
                    arguments.evalsets / name,
                    grid=ragidx.Grid(model=arguments.model, filter=filter_, mode=mode, **width, **read),
                    cache=arguments.cache,
                    **run,
                    **options,
                ).tasks
                row, values_of = task.rows[-1], task.values[task.measure][-1]
                apart = None if plain is None else difference(values_of, plain)
                plain = values_of if plain is None else plain
                found[label] = {
                    "dim": row.configuration.dim,
                    "value": round(row.interval.mean, 4),
                    "low": round(row.interval.low, 4),
                    "high": round(row.interval.high, 4),
                } | ({} if apart is None else {"difference": round(apart.mean, 4), "p": apart.p})
            for rows, pooler in poolings.items():
                (task,) = ragidx.evaluate(
                    arguments.evalsets / name,
                    grid=ragidx.Grid(
                        model=arguments.model, filter="none", mode=mode, pooling="trainable", layer=-1, **read
                    ),
                    cache=arguments.cache,
                    **run,
                    pooler=str(pooler),
                    **options,
                ).tasks
                apart = difference(task.values[task.measure][-1], plain)
                found[f"pooling {rows}"] = {
                    "value": round(task.rows[-1].interval.mean, 4),
                    "difference": round(apart.mean, 4),
                    "p": apart.p,
                }
            values[name] = {"measure": task.measure} | found
    record(
        "head",
        values,
        model=arguments.name or arguments.model,
        method=arguments.method or "preset",
        pairs=report.n_pairs,
        held_out=report.n_held_out,
        teacher=arguments.teacher,
        max_length=arguments.max_length,
        mode=arguments.mode,
    )


if __name__ == "__main__":
    main()
