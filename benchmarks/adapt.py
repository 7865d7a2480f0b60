"""What `ragidx adapt` says of an index by sentences of its documents, and what its map is worth on real judgements.

    python benchmarks/adapt.py --evalset DIR --model mini [--method llm2vec] [--layer 1] [--limit 10000]
    python benchmarks/adapt.py --evalset DIR --model FILE --name SmolLM2-135M-Instruct --method classical --layer 1

The index is adapted in any case (`force`), and the judged queries of the set are asked before and after: by vectors
alone, and by the index's default search.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from figures import record

import ragidx
from ragidx.pipelines.experiments.evaluate.significance import difference
from ragidx.pipelines.experiments.evaluate.tasks import task_of
from ragidx.pipelines.experiments.trials.trial import by_query
from ragidx.retriever.searcher import Searcher


def shown(before, now):
    """Two systems on the same queries, for a row."""
    found = difference(now, before)
    numbers = {"before": before.mean(), "after": now.mean(), "difference": found.mean, "low": found.low}
    numbers |= {"high": found.high, "p": found.p}
    return {name: round(float(number), 4) for name, number in numbers.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evalset", type=Path, required=True)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--name", help="what the rows call the model")
    parser.add_argument("--method")
    parser.add_argument("--layer", type=int)
    parser.add_argument("--limit", type=int, default=10_000)
    parser.add_argument("--index", type=Path, help="where the index is kept; default: nowhere")
    parser.add_argument("--cache", default="")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = arguments.index or Path(folder) / "index"
        options = {"method": arguments.method, "layer": arguments.layer}
        index = ragidx.build(arguments.evalset, place, model=arguments.model, **options)
        before, generation = Searcher.open(place), index.generation
        report = index.adapt(limit=arguments.limit, force=True, cache=arguments.cache)
        after, found = Searcher.open(place), report.comparison
        judged = task_of(arguments.evalset).judged
        real = {mode: [by_query(one, judged, mode=mode) for one in (before, after)] for mode in ("dense", "hybrid")}
        values = {
            "queries made": found.n_queries,
            "made": {name: round(getattr(found, name), 4) for name in ("old", "new", "difference", "low", "high", "p")},
            "lower bound": round(found.lower_bound, 4),
            "is better": found.lower_bound > 0,
            "weight": report.weight,
            "pairs": dict(report.pairs),
            "held-out MRR": [round(one.mean, 4) for one in report.scores],
            "queries judged": len(judged.texts),
            "dense": shown(*real["dense"]),
            "hybrid": shown(*real["hybrid"]),
            "encoding_s": round(report.encoding_seconds, 1),
            "training_s": round(report.training_seconds, 1),
            "seconds": round(report.seconds, 1),
        }
        index.rollback(generation)
        record(
            "adapt",
            values,
            model=arguments.name or arguments.model,
            set=arguments.evalset.name,
            method=after.spec.encoder.method,
            options=f"layer {arguments.layer}" if arguments.layer else "",
            rows=index.searcher.store.manifest.n_chunks,
        )


if __name__ == "__main__":
    main()
