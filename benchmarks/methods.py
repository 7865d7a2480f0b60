"""The bundled model under every method and filter: quality on the sample, SciFact and STS-B, and bytes a vector.

    python benchmarks/methods.py --evalsets DIR [--sets sample,stsb,scifact] [--methods 'preset;echo'] [--filters paper]

One encoding pass a method and set; the filters are applied to its raw vectors. Whole documents. `--filters paper` are
the EmbedFilter paper's baselines at tau 2; those that are fitted are fitted on the documents of the set, or on the
sentences of the STS file.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
from functools import partial
from pathlib import Path

import ir_measures
import numpy as np
from figures import record
from scipy.stats import spearmanr

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.corpora.readers.registry import documents
from ragidx.indexer.encoders.methods import filter_spec
from ragidx.indexer.filters.filter import make_filter
from ragidx.indexer.filters.fitting import Sample
from ragidx.indexer.specs import FILTERS, FilterSpec
from ragidx.pipelines.demo import sample_corpus

ENCODERS = {
    "preset": {},
    "classical": {"method": "classical", "layer": -1},
    "echo": {"method": "echo"},
    "echo, 3 copies": {"method": "echo", "copies": 3},
    "prompteol": {"method": "prompteol"},
    "metaeol": {"method": "metaeol"},
    "llm2vec": {"method": "llm2vec"},
    "reba": {"method": "reba"},
}


def filters(encoder, chosen, preset):
    """Names and specs: none, and EmbedFilter where the model's preset starts and in the middle; or the paper's."""
    if chosen == "paper":
        offset = filter_spec(encoder.files, encoder.spec, FilterSpec(tau=2.0)).offset
        yield f"tau 2, offset {offset}", FilterSpec(tau=2.0, offset=offset)
        for name in FILTERS:
            if name != "none":
                yield f"{name}, tau 2", FilterSpec(name=name, tau=2.0)
        return
    yield "none", FilterSpec(name="none")
    if preset:
        yield "preset's", filter_spec(encoder.files, encoder.spec)
    for tau in (2.0, 4.0, 8.0):
        shifted = filter_spec(encoder.files, encoder.spec, FilterSpec(tau=tau))
        yield f"tau {tau:g}, offset {shifted.offset}", shifted
        yield f"tau {tau:g}, middle", FilterSpec(tau=tau)


def options(encoder, given, spec):
    """What `ragidx build` and `query` are given for an encoder and a filter; empty for the model's preset."""
    asked = {"dim": spec.dim} if spec.tau is None else {"tau": spec.tau}
    if spec.name != "embedfilter":
        asked = {"name": spec.name} | (asked if spec.name != "none" else {})
    elif not given and spec == filter_spec(encoder.files, encoder.spec):
        asked = {}
    elif spec != filter_spec(encoder.files, encoder.spec, FilterSpec(**asked)):
        middle = (encoder.hidden - spec.width(encoder.hidden)) // 2
        asked["offset"] = middle if spec.offset is None else spec.offset
    names = {"name": "filter", "offset": "filter-offset"}
    numbers = {name: f"{value:g}" if isinstance(value, float) else value for name, value in (given | asked).items()}
    return " ".join(f"--{names.get(name, name)} {value}" for name, value in numbers.items())


def unit(vectors):
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)


def retrieval(encoder, folder, corpus):
    """Raw vectors of documents and queries, and what is needed to measure."""
    found = list(documents(corpus, on_skip=lambda _: None))
    qrels = load_qrels(folder)
    queries = {key: text for key, text in load_queries(folder).items() if key in qrels}
    raw = encoder.encode_document([document.text for document in found])
    asked = encoder.encode_query(list(queries.values()))
    ids = np.array([document.id for document in found])

    sample = Sample(raw, encoder.tokenizer.ids([document.text for document in found]))

    def quality(spec):
        map_ = make_filter(spec, encoder, sample)
        scores = unit(asked if map_ is None else map_(asked)) @ unit(raw if map_ is None else map_(raw)).T
        best = np.argsort(-scores, axis=1)[:, :100]
        run = {
            query: dict(zip(ids[best[row]].tolist(), scores[row, best[row]].tolist(), strict=True))
            for row, query in enumerate(queries)
        }
        return ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)[ir_measures.nDCG @ 10]

    return quality


def similarity(encoder, path, cache=None):
    """Gold scores of an STS file (n,), and the cosines (n,) by a filter: the same path, the query's, on both sides."""
    with path.open() as lines:
        rows = [line.rstrip("\n").split("\t") for line in list(lines)[1:]]
    pairs = [(float(score), *texts) for score, *texts in rows]
    texts = list(dict.fromkeys(text for _, *both in pairs for text in both))
    places = {text: place for place, text in enumerate(texts)}
    raw = encoded(encoder, texts, cache)
    one, other = ([places[pair[side]] for pair in pairs] for side in (1, 2))
    sample = Sample(raw[one + other], encoder.tokenizer.ids([texts[place] for place in one + other]))

    def cosines(spec):
        map_ = make_filter(spec, encoder, sample)
        vectors = unit(raw if map_ is None else map_(raw))
        return (vectors[one] * vectors[other]).sum(axis=1)

    return np.array([gold for gold, _, _ in pairs]), cosines


def encoded(encoder, texts, cache):
    """Raw vectors of queries, (n, hidden); kept in the folder `cache`, if there is one."""
    if cache is None:
        return encoder.encode_query(texts)
    key = hashlib.sha256(json.dumps([str(encoder.spec), encoder.dtype, texts]).encode()).hexdigest()[:16]
    file = cache / f"{encoder.spec.method}-{key}.npy"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        np.save(file, encoder.encode_query(texts))
    return np.load(file)


def correlation(gold, cosines, spec):
    return float(spearmanr(gold, cosines(spec)).statistic)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evalsets", type=Path, required=True)
    parser.add_argument("--sets", default="sample,stsb,scifact")
    parser.add_argument("--methods", default=";".join(ENCODERS), help="separated by ;")
    parser.add_argument("--filters", choices=("embedfilter", "paper"), default="embedfilter")
    arguments = parser.parse_args()
    folder, sample = arguments.evalsets, sample_corpus().parent
    for name in arguments.methods.split(";"):
        encoder = ragidx.load_encoder("mini", device="cpu", **ENCODERS[name])
        texts = [document.text for document in documents(sample / "documents", on_skip=lambda _: None)]
        encoder.tune(texts)
        qualities = {}
        if "sample" in arguments.sets:
            qualities["sample nDCG@10"] = retrieval(encoder, sample, sample / "documents")
        if "stsb" in arguments.sets:
            for part in ("dev", "test"):
                gold, cosines = similarity(encoder, folder / "stsb" / f"{part}.tsv")
                qualities[f"STS-B {part} Spearman"] = partial(correlation, gold, cosines)
        if "scifact" in arguments.sets:
            qualities["SciFact nDCG@10"] = retrieval(encoder, folder / "scifact", folder / "scifact")
        for filter_name, spec in filters(encoder, arguments.filters, name == "preset"):
            width = encoder.hidden if spec.name == "none" else spec.width(encoder.hidden)
            values = {}
            for measure_, quality in qualities.items():
                with contextlib.suppress(SpecError):  # a set that is too small to fit the filter on has no figure
                    values[measure_] = round(quality(spec), 4)
            record(
                "mini by method and filter",
                values | {"vector bytes": 2 * width},
                method=name,
                filter=filter_name,
                options=options(encoder, ENCODERS[name], spec),
                dim=width,
                dtype=encoder.dtype,
                encoder=str(encoder.spec),
            )


if __name__ == "__main__":
    main()
