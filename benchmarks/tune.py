"""What `ragidx tune` chooses by queries made of a corpus, and what that is worth on real judgements.

    python benchmarks/tune.py --evalset DIR --model mini
    python benchmarks/tune.py --evalset DIR --model FILE --name SmolLM2-135M-Instruct --method classical --relevant 250

`--relevant N`: on a part of the set, the documents that answer some queries, drawn until there are N, and a quarter as
many others. The rows: the choice, its gain on held-out synthetic queries, its gain on all judged queries, and for a
model with layers the rank correlation of both over the layers.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import tempfile
from pathlib import Path

from figures import record
from scipy.stats import spearmanr

import ragidx
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.corpora.readers.registry import documents
from ragidx.indexer.filters.fitting import lowest
from ragidx.pipelines.base.stages import Stages
from ragidx.pipelines.experiments.evaluate.significance import difference
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import cache_folder
from ragidx.pipelines.experiments.evaluate.tasks import task_of
from ragidx.pipelines.experiments.tune.models import drawn_of, models_of, sized
from ragidx.pipelines.experiments.tune.tune import prepared

UNLIMITED = 1e9


def part_of(evalset, n, folder):
    """A BEIR folder with some of the documents, and the queries that they answer."""
    texts = {one.id: one.text for one in documents(evalset, on_skip=lambda _: None)}
    qrels, queries = load_qrels(evalset), load_queries(evalset)
    relevant = {
        name: {doc: gain for doc, gain in found.items() if gain > 0 and doc in texts}
        for name, found in qrels.items()
        if name in queries
    }
    names, taken = list(relevant), {}
    for place in lowest(0, names, len(names)):
        if len(taken) >= n:
            break
        taken |= dict.fromkeys(relevant[names[place]])
    others = [name for name in texts if name not in taken]
    taken |= dict.fromkeys(others[place] for place in lowest(0, others, n // 4))
    kept = {name: {doc: gain for doc, gain in found.items() if doc in taken} for name, found in relevant.items()}
    kept = {name: found for name, found in kept.items() if found}
    (folder / "qrels").mkdir()
    rows = [json.dumps({"_id": name, "text": texts[name]}) for name in texts if name in taken]
    (folder / "corpus.jsonl").write_text("\n".join(rows) + "\n")
    rows = [json.dumps({"_id": name, "text": queries[name]}) for name in kept]
    (folder / "queries.jsonl").write_text("\n".join(rows) + "\n")
    rows = [f"{name}\t{doc}\t{gain}" for name, found in kept.items() for doc, gain in found.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows) + "\n")
    return folder


def shown(found):
    """A difference, for a row."""
    return {
        "value": round(found.mean, 4),
        "low": round(found.low, 4),
        "high": round(found.high, 4),
        "p": round(found.p, 4),
        "detectable": round(found.detectable, 4),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evalset", type=Path, required=True)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--name", help="what the rows call the model")
    parser.add_argument("--method")
    parser.add_argument("--relevant", type=int, help="documents of a part that answer queries")
    parser.add_argument("--minutes", type=float, default=UNLIMITED, help="of tune; 0: its smallest sample")
    parser.add_argument("--cache", type=Path, default=cache_folder(""))
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        corpus = arguments.evalset
        if arguments.relevant:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            corpus = part_of(corpus, arguments.relevant, folder)
        made = ragidx.tune(
            corpus,
            model=arguments.model,
            method=arguments.method,
            minutes=arguments.minutes,
            cache=arguments.cache,
            on_estimate=print,
        )
        task, tell = task_of(corpus), Stages(None)
        named = {"model": arguments.model}
        models = models_of(task, named, [arguments.method], arguments.cache, stack)
        real = sized(drawn_of(task, models[0], ragidx.Questions.read(), 0, None), models, UNLIMITED, lambda _: None)
        _, bench = prepared(models, real, ragidx.Grid(), made.measure, tell, stack)
        vectors, search = made.vectors, made.search
        values = {
            "queries made": made.n_queries,
            "queries judged": len(real.judged.texts),
            "default vectors": str(vectors.default),
            "chosen vectors": str(vectors.chosen),
            "vectors, held out": shown(vectors.gain),
            "vectors advised": vectors.is_better,
            "vectors, judged": shown(difference(bench.dense(vectors.chosen), bench.dense(vectors.default))),
            "default search": str(search.default),
            "chosen search": str(search.chosen),
            "search, held out": shown(search.gain),
            "search advised": search.is_better,
        }
        found = bench.searches(vectors.advised)
        values["search, judged"] = shown(difference(found[search.chosen], found[search.default]))
        default = dataclasses.replace(vectors.default, layer=None)
        none = dataclasses.replace(default, filter="none", dim=models[0].vectors.resolved.hidden, offset=None)
        for name, kept in (("default filter", default), ("no filter", none)):
            rows = [one for one in made.tried if one.part == "vectors" and one.what.layer is not None]
            rows = [one for one in rows if dataclasses.replace(one.what, layer=None) == kept]
            of_layers = [(one.mean, float(bench.dense(one.what).mean())) for one in rows]
            if of_layers:
                synthetic, judged = zip(*of_layers, strict=True)
                values[f"layers, {name}"] = {
                    "correlation": round(float(spearmanr(synthetic, judged).statistic), 3),
                    "made": [round(one, 3) for one in synthetic],
                    "judged": [round(one, 3) for one in judged],
                }
        record(
            "tune",
            values,
            model=arguments.name or arguments.model,
            set=arguments.evalset.name,
            documents=real.n_documents,
            method=vectors.default.method,
        )


if __name__ == "__main__":
    main()
