"""Reranking of the first hits: nDCG@10 of the order of hybrid search and of rerankers, and seconds a question.

    python benchmarks/rerank.py --evalset DIR --model FOLDER [--methods likelihood yes-no] [--queries 30] [--top 10]

Whole documents, mini; queries are drawn once, with a seed. The reranker reads the first `--top` hits of hybrid search.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
from figures import record

import ragidx
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.pipelines.experiments.evaluate.measures import ndcg
from ragidx.pipelines.experiments.evaluate.significance import difference


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalset", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--methods", nargs="+", default=["likelihood", "yes-no"])
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--top", type=int, default=10)
    arguments = parser.parse_args()
    qrels = load_qrels(arguments.evalset)
    every = {name: text for name, text in load_queries(arguments.evalset).items() if name in qrels}
    names = random.Random(0).sample(sorted(every), min(arguments.queries, len(every)))
    with tempfile.TemporaryDirectory() as room:
        ragidx.build(arguments.evalset, room, chunks=ragidx.ChunkSpec(size=None))
        retriever = ragidx.Index(room)

        def measured(**how):
            started = time.perf_counter()
            found = retriever.search_batch([every[name] for name in names], arguments.top, fold=False, **how)
            seconds = (time.perf_counter() - started) / len(names)
            ranked = [[hit.doc_id for hit in hits] for hits in found]
            return np.array([ndcg(one, qrels[name]) for one, name in zip(ranked, names, strict=True)]), seconds

        plain, seconds = measured()
        setting = {"index": arguments.evalset.name, "rows": len(names)}
        values = {"nDCG@10": round(float(plain.mean()), 4), "seconds a question": round(seconds, 3)}
        record("reranking", values, model="none", method="", **setting)
        for method in arguments.methods:
            retriever.searcher.reranker(arguments.model, method)
            found, seconds = measured(rerank=ragidx.Rerank(arguments.model, top=arguments).top, rerank_method=method)
            apart = difference(found, plain)
            values = {
                "nDCG@10": round(float(found.mean()), 4),
                "against none": {
                    "mean": round(apart.mean, 4),
                    "low": round(apart.low, 4),
                    "high": round(apart.high, 4),
                    "p": apart.p,
                },
                "seconds a question": round(seconds, 2),
            }
            record("reranking", values, model=Path(arguments.model).name, method=method, **setting)


if __name__ == "__main__":
    main()
