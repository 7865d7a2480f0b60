"""Two numbers of a search and of a filter: the weight of vectors in hybrid search, and the power of PCA.

    PYTHONPATH=SITE python benchmarks/weight_and_power.py weight --evalsets DIR --models all-MiniLM-L6-v2 mini
    PYTHONPATH=SITE python benchmarks/weight_and_power.py power --evalsets DIR --models all-MiniLM-L6-v2 mini

Chunks have 128 tokens. `weight`: nDCG@10 of hybrid search by weight, against 0.5, on SciFact's train
claims, which choose it, and on SciFact test and Cranfield. `power`: PCA whose components are divided by their standard
deviation to a power, against 0, by width: nDCG@10 of dense search on SciFact and Cranfield, Spearman on STS-B test.
Intervals are bootstraps over queries or pairs, p of paired permutations, not corrected.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from figures import record
from results import place_of
from titles import smaller

import ragidx
from ragidx import Grid, Questions
from ragidx.pipelines.experiments.evaluate.significance import difference

CHUNKS = ragidx.ChunkSpec(size=128, titles=True)
WEIGHTS = (0.5, 0.4, 0.6, 0.7, 0.8)
POWERS = (0.0, 0.3, 0.5)
DIMS = (384, 192, 96, 48)


def apart(after, before):
    found = difference(after, before)
    names = ("mean", "low", "high", "p")
    return {name: round(float(getattr(found, name)), 4) for name in names}


def weight(arguments):
    for model in arguments.models:
        for name, split in (("scifact", "train"), ("scifact", "test"), ("cranfield", "test")):
            source = arguments.evalsets / name
            grid = Grid(model=place_of(model), mode="hybrid", weight=list(WEIGHTS))
            questions = Questions.read(source, source, split=split)
            options = {"questions": questions, "cache": arguments.cache, "chunks": CHUNKS}
            (task,) = ragidx.evaluate(source, grid=grid, **options).tasks
            by_weight = {row.configuration.weight: task.values["ndcg@10"][at] for at, row in enumerate(task.rows)}
            for one, values in by_weight.items():
                about = {"nDCG@10": round(float(values.mean()), 4)}
                about |= {"against 0.5": apart(values, by_weight[0.5])} if one != 0.5 else {}
                record(
                    "weight of vectors in hybrid search",
                    about,
                    model=model,
                    set=name,
                    split=split,
                    weight=one,
                    documents=fewer(arguments, name),
                )


def power(arguments):
    for model in arguments.models:
        for name in arguments.sets:
            before = {}
            for one in POWERS:
                mode = {} if name == "stsb" else {"mode": "dense"}
                grid = Grid(model=place_of(model), filter="pca", dim=list(DIMS), **mode)
                options = {"filter_power": one, "cache": arguments.cache} | ({"chunks": CHUNKS} if mode else {})
                (task,) = ragidx.evaluate(arguments.evalsets / name, grid=grid, **options).tasks
                for at, row in enumerate(task.rows):
                    values, dim = task.values[task.measure][at], row.configuration.dim
                    about = {task.measure: round(float(values.mean()), 4)}
                    about |= {"against 0": apart(values, before[dim])} if one else {}
                    before.setdefault(dim, values)
                    record(
                        "power of PCA",
                        about,
                        model=model,
                        set=name,
                        dim=dim,
                        power=one,
                        documents=fewer(arguments, name),
                    )


def fewer(arguments, name):
    """How many documents of a set are read; None: all."""
    return arguments.documents if name == "scifact" else None


def with_fewer(arguments, temp):
    """The folder of sets; of SciFact at most `--documents`."""
    if not arguments.documents:
        return arguments.evalsets
    for name in ("stsb", "cranfield"):
        Path(temp, name).symlink_to(arguments.evalsets.resolve() / name)
    return smaller(arguments.evalsets, "scifact", temp, arguments.documents)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["weight", "power"])
    parser.add_argument("--evalsets", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=["all-MiniLM-L6-v2", "mini"])
    parser.add_argument("--sets", nargs="+", default=["stsb", "cranfield", "scifact"])
    parser.add_argument("--documents", type=int, help="of SciFact at most so many, those that are judged first")
    parser.add_argument("--cache", default="")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temp:
        arguments.evalsets = with_fewer(arguments, temp)
        {"weight": weight, "power": power}[arguments.what](arguments)


if __name__ == "__main__":
    main()
