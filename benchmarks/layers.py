"""`--layer auto`: the layer that it chooses, and nDCG@10 of every layer on a part of an evaluation set.

    python benchmarks/layers.py --model FOLDER --name SmolLM2-135M-Instruct --evalset DIR

The part: 60 questions, their relevant documents and 80 others, the first 700 characters of each. `--layer auto` sees 64
documents of the set, the first 1,200 characters of each. float32, one encoding pass a method.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
from figures import record
from scipy.stats import spearmanr

import ragidx
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.corpora.readers.registry import documents
from ragidx.indexer.encoders.methods import filter_spec
from ragidx.indexer.filters.filter import make_filter
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import FilterSpec
from ragidx.pipelines.evaluate.significance import ndcg
from ragidx.pipelines.ingest.choose_layer import choose_layer

METHODS = ("classical", "echo")
FILTERS = ({"name": "none"}, {"tau": 2.0})


class Kept:
    """An encoder whose vectors are worked out once, for several filters."""

    def __init__(self, encoder):
        self._encoder, self._found = encoder, {}
        self.query_instruction = encoder.query_instruction

    def encode_layers(self, texts, instruction=None):
        """As the encoder does."""
        key = (*texts, instruction)
        if key not in self._found:
            self._found[key] = self._encoder.encode_layers(list(texts), instruction)
        return self._found[key]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", required=True, help="what the rows call the model")
    parser.add_argument("--evalset", type=Path, required=True)
    arguments = parser.parse_args()
    found = {one.id: one.text for one in documents(arguments.evalset, on_skip=lambda _: None)}
    qrels, queries = load_qrels(arguments.evalset), load_queries(arguments.evalset)
    rng = np.random.default_rng(0)
    sample = [found[name][:1200] for name in rng.choice(sorted(found), 64, replace=False)]
    asked = list(itertools.islice((name for name in qrels if name in queries), 60))
    judged = {name for query in asked for name in qrels[query] if name in found}
    pool = sorted(judged | set(rng.choice(sorted(found), 80, replace=False).tolist()))
    for method in METHODS:
        encoder = ragidx.load_encoder(arguments.model, method=method, device="cpu", dtype="float32")
        kept = Kept(encoder)
        texts = kept.encode_layers([found[name][:700] for name in pool])
        questions = kept.encode_layers([queries[name] for name in asked], encoder.query_instruction(None))
        for filter_ in FILTERS:
            spec = filter_spec(encoder.files, encoder.spec, FilterSpec(**filter_))
            project = make_filter(spec, encoder)
            layer, scores = choose_layer(kept, project, sample)
            quality = [
                float(
                    np.mean(
                        [ndcg([pool[i] for i in row], qrels[query]) for query, row in zip(asked, rows, strict=True)]
                    )
                )
                for rows in (best(left, right, project) for left, right in zip(questions, texts, strict=True))
            ]
            record(
                "layers",
                {
                    "layer": len(scores) if layer == -1 else layer,
                    "layers": len(scores),
                    "nDCG@10": round(quality[layer if layer == -1 else layer - 1], 3),
                    "last": round(quality[-1], 3),
                    "best": round(max(quality), 3),
                    "best layer": int(np.argmax(quality)) + 1,
                    "correlation": round(float(spearmanr(scores, quality).statistic), 3),
                    "MRR of layers": scores,
                    "nDCG@10 of layers": [round(one, 3) for one in quality],
                },
                model=arguments.name,
                method=method,
                filter="tau 2" if "tau" in filter_ else "none",
                set=arguments.evalset.name,
                documents=len(pool),
            )


def best(questions, texts, project):
    """The ten best documents of each question."""
    left, right = (l2_normalize(one if project is None else project(one)).vectors for one in (questions, texts))
    return np.argsort(-(left @ right.T), axis=1)[:, :10]


if __name__ == "__main__":
    main()
