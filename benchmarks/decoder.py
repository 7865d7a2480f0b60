"""A decoder under four methods and EmbedFilter at four widths: Spearman on STS-B test, and which differences are real.

    python benchmarks/decoder.py --model FOLDER --name SmolLM2-135M-Instruct --evalsets DIR --cache DIR

One encoding pass a method; the filters are applied to its raw vectors, which `--cache` keeps for the next run.
Intervals are percentiles of a bootstrap over the sentence pairs; a difference is that of two systems on the same pairs.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np
from figures import record
from methods import options, similarity
from scipy.stats import bootstrap, rankdata

import ragidx
from ragidx.indexer.encoders.methods import filter_spec
from ragidx.indexer.specs import FilterSpec

METHODS = ("classical", "echo", "llm2vec", "prompteol")
FILTERS = ({"name": "none"}, {"tau": 2.0}, {"tau": 4.0}, {"tau": 8.0}, {"tau": 8.0, "offset": 64})
RESAMPLES = 2_000


def correlations(gold, predicted):
    """Spearman's along the last axis, of (n,) or of (resamples, n): the correlation of ranks."""
    left, right = (rankdata(values, axis=-1) for values in (gold, predicted))
    left, right = (ranks - ranks.mean(axis=-1, keepdims=True) for ranks in (left, right))
    return (left * right).sum(axis=-1) / np.sqrt((left**2).sum(axis=-1) * (right**2).sum(axis=-1))


def interval(statistic, *paired):
    """A statistic of paired values, and where 95 % of its resampled values lie."""

    def along(*drawn, axis):
        return statistic(*drawn)

    found = bootstrap(paired, along, paired=True, n_resamples=RESAMPLES, method="percentile", rng=0, batch=500)
    low, high = found.confidence_interval
    return {"value": round(float(statistic(*paired)), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def apart(gold, one, other):
    return correlations(gold, one) - correlations(gold, other)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", required=True, help="what the rows call the model")
    parser.add_argument("--evalsets", type=Path, required=True)
    parser.add_argument("--cache", type=Path, help="folder for raw vectors")
    arguments = parser.parse_args()
    mean = []  # the first method's cosines by filter, which the others are compared with
    for method in METHODS:
        encoder = ragidx.load_encoder(arguments.model, method=method, device="cpu", dtype="float32")
        gold, cosines = similarity(encoder, arguments.evalsets / "stsb" / "test.tsv", arguments.cache)
        found = []
        for number, filter_ in enumerate(FILTERS):
            spec = filter_spec(encoder.files, encoder.spec, FilterSpec(**filter_))
            found.append(cosines(spec))
            values = {"STS-B test Spearman": interval(correlations, gold, found[number])}
            if number:
                values["against no filter"] = interval(apart, gold, found[number], found[0])
            if mean:
                values["against the mean"] = interval(apart, gold, found[number], mean[number])
            width = encoder.hidden if spec.name == "none" else spec.width(encoder.hidden)
            record(
                "decoder by method and filter",
                values | {"vector bytes": 2 * width},
                model=arguments.name,
                options=options(encoder, {"method": method}, spec),
                dim=width,
                dtype=encoder.dtype,
                pairs=len(gold),
                resamples=RESAMPLES,
                encoder=str(dataclasses.replace(encoder.spec, model=arguments.name)),
            )
        mean = mean or found


if __name__ == "__main__":
    main()
