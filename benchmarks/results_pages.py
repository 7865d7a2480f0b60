"""The pages of results, from the rows in results.jsonl: a page a set, and the table of the README.

`python benchmarks/results.py --page` writes them.
"""

from __future__ import annotations

import json
from pathlib import Path

ROWS = Path(__file__).with_name("results.jsonl")
ROOT = Path(__file__).resolve().parents[1]
NAMES = {"sample": "sample", "stsb": "STS-B test", "cranfield": "Cranfield", "scifact": "SciFact"}
MINILM, SMOLLM2 = "all-MiniLM-L6-v2", "SmolLM2-135M-Instruct"
DECODER = (
    *("classical", "echo", "echo:2", "echo:3", "prompteol"),
    *("metaeol", "llm2vec", "reba:1", "reba", "aligned-values"),
)
LAST = ("classical+last", "echo+last", "echo:2+last", "echo:3+last", "reba+last", "reba:3+last")
TEMPLATES = ("classical~classical-paper", "classical~document-query")
MODELS = {
    **{"mini": ("preset",), "mini-decoder": ("preset", *DECODER), MINILM: ("preset",)},
    SMOLLM2: (*DECODER, "reba:3", *LAST, *TEMPLATES, "classical@best", "prompteol@best"),
}
TABLES = (("mini", MINILM), ("mini-decoder",), (SMOLLM2,))
"""Models whose rows stand in one table."""

BASELINES = (
    *("truncation", "random", "random-directions", "dominant", "secondary", "bulk"),
    *("optimal", "optimal-abs", "whitening", "pca"),
)
EARLIER = 64  # a first direction before the middle
KEY = ("set", "model", "method", "filter", "dim", "offset", "mode")

# Question -> (what is asked about, what it is compared with): method (`*`: any), filter, tau, first direction, centred.
METHODS = {
    "repetition against the mean": (("echo", "none"), ("classical", "none")),
    "three copies against two": (("echo:3", "none"), ("echo:2", "none")),
    "backward attention against the second copy, mean": (("reba", "none"), ("echo:2", "none")),
    "backward attention against the second copy, last token": (("reba+last", "none"), ("echo:2+last", "none")),
    "backward attention against the third copy, last token": (("reba:3+last", "none"), ("echo:3+last", "none")),
    "backward attention against one reading, last token": (("reba+last", "none"), ("classical+last", "none")),
    "attention both ways against the mean": (("llm2vec", "none"), ("classical", "none")),
    "PromptEOL against echo": (("prompteol", "none"), ("echo", "none")),
    "eight prompts against one": (("metaeol", "none"), ("prompteol", "none")),
    "a sentence before the text against none": (("classical~classical-paper", "none"), ("classical", "none")),
    "a word before either side against none": (("classical~document-query", "none"), ("classical", "none")),
    "values of all layers against PromptEOL": (("aligned-values", "none"), ("prompteol", "none")),
    "values of all layers against PromptEOL, both at half the bytes": (
        ("aligned-values", "embedfilter", 2),
        ("prompteol", "embedfilter", 2),
    ),
    "the best layer against the last, mean": (("classical@best", "none"), ("classical", "none")),
    "the best layer against the last, PromptEOL": (("prompteol@best", "none"), ("prompteol", "none")),
}
NARROWER = {
    "half the bytes": (("*", "embedfilter", 2), ("*", "none")),
    "a quarter of the bytes": (("*", "embedfilter", 4), ("*", "none")),
    "an eighth of the bytes": (("*", "embedfilter", 8), ("*", "none")),
    f"an eighth from direction {EARLIER} on against the middle": (
        ("*", "embedfilter", 8, EARLIER),
        ("*", "embedfilter", 8),
    ),
}
DIRECTIONS = {
    "the middle against both ends removed": (("*", "embedfilter", 2), ("*", "bulk", 2)),
    "the middle against the largest removed": (("*", "embedfilter", 2), ("*", "secondary", 2)),
    "the middle against the smallest removed": (("*", "embedfilter", 2), ("*", "dominant", 2)),
    "the middle against random directions": (("*", "embedfilter", 2), ("*", "random-directions", 2)),
    "the middle against truncation": (("*", "embedfilter", 2), ("*", "truncation", 2)),
    "the middle against whitening": (("*", "embedfilter", 2), ("*", "whitening", 2)),
    "the middle against PCA": (("*", "embedfilter", 2), ("*", "pca", 2)),
}
CENTRED = {
    "centred, without a filter": (("*", "none", None, None, True), ("*", "none")),
    "centred, at half the bytes": (("*", "embedfilter", 2, None, True), ("*", "embedfilter", 2)),
    "centred, with whitening": (("*", "whitening", 2, None, True), ("*", "whitening", 2)),
    "both centred, the middle against whitening": (
        ("*", "embedfilter", 2, None, True),
        ("*", "whitening", 2, None, True),
    ),
}
QUESTIONS = METHODS | NARROWER | DIRECTIONS | CENTRED
BESIDE_WORDS = {
    "half the bytes beside BM25, against BM25": ("*", "embedfilter", 2),
    "no filter beside BM25, against BM25": ("*", "none"),
    "an eighth of the bytes beside BM25, against BM25": ("*", "embedfilter", 8),
    "centred beside BM25, against BM25": ("*", "embedfilter", 2, None, True),
}
BESIDE_NO_FILTER = "half the bytes beside BM25, against no filter beside it"
GROUPS = {
    "methods": METHODS,
    "widths": NARROWER,
    "directions": DIRECTIONS,
    "centring": CENTRED,
    "beside BM25": (*BESIDE_WORDS, BESIDE_NO_FILTER),
}


def key_of(row):
    return "/".join(str(row[name]) for name in KEY) + "/centred" * bool(row.get("center"))


def read_rows():
    """Rows by key, each with its run; and what was compared."""
    lines = [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()]
    runs = {line["run"]: line["provenance"] for line in lines if "provenance" in line}
    rows = {key_of(line): line | {"run": runs[line["run"]]} for line in lines if "mode" in line}
    return rows, [line for line in lines if "question" in line]


def narrower(model):
    """The filter that its narrower vectors have."""
    return "truncation" if model == "mini" else "embedfilter"


def fits(row, method, name, tau=None, offset=None, center=False, modes=("dense", "pairs")):
    if method not in ("*", row["method"]) or row["mode"] not in modes or bool(row.get("center")) != center:
        return False
    return row["filter"] == name and row["offset"] == offset and (tau is None or abs(row["tau"] - tau) < 0.1)


def pages(rows, answers):
    """Path -> mark -> the tables between its marks."""
    made = {ROOT / "docs" / f"results-{name}.md": {"tables": of_set(name, rows, answers)} for name in NAMES}
    return made | {ROOT / "README.md": {"smollm2": summary(rows, answers)}}


def filled(text, made):
    """A page with its tables."""
    for mark, table in made.items():
        before, _, rest = text.partition(f"<!-- {mark} -->\n")
        text = f"{before}<!-- {mark} -->\n{table}<!-- /{mark} -->{rest.partition(f'<!-- /{mark} -->')[2]}"
    return text


CHANCE = "random at τ 2"
HYBRID = {"modes": ("hybrid",)}
# Head of a column -> what `fits` asks of its row; without a name the filter that narrower vectors of the model have.
ALONE = {
    "no filter": {"name": "none"},
    "τ 2": {"tau": 2},
    CHANCE: {"tau": 2},
    "τ 4": {"tau": 4},
    "τ 8": {"tau": 8},
    "whitening, τ 2": {"name": "whitening", "tau": 2},
    "centred": {"name": "none", "center": True},
    "centred, τ 2": {"tau": 2, "center": True},
    "centred whitening, τ 2": {"name": "whitening", "tau": 2, "center": True},
}
BESIDE = {
    "no filter": {"name": "none", **HYBRID},
    **{f"τ {tau}": {"tau": tau, **HYBRID} for tau in (2, 4, 8)},
    "centred": {"name": "none", "center": True, **HYBRID},
    "centred, τ 2": {"tau": 2, "center": True, **HYBRID},
    "centred whitening, τ 2": {"name": "whitening", "tau": 2, "center": True, **HYBRID},
}
FILTERED = {name: {"name": name, "tau": 2} for name in ("embedfilter", *BASELINES)}
EARLY = {f"τ {tau}": {"name": "embedfilter", "tau": tau, "offset": EARLIER} for tau in (2, 4, 8)}


def of_set(name, rows, answers):
    """The tables of a set: vectors alone, beside BM25, filters at half the width, an earlier start, comparisons."""
    real, systems_here = better(answers), [own for (which, *_), own in systems(rows) if which == name]
    words = next((row for row in rows.values() if (row["set"], row["mode"]) == (name, "lexical")), None)
    some = next(row for row in rows.values() if row["set"] == name)
    counted = f"{some['measure']}, {some['queries']:,} {'pairs' if words is None else 'queries'}"

    def of_columns(columns, cells_of=cells_of):
        """A table for each group of models."""
        for models in TABLES:
            lines = []
            for own in (own for own in systems_here if own[0]["model"] in models):
                cells = cells_of(own, real, columns)
                whose = f"{own[0]['model']}, " * (len(models) > 1)
                lines += [[f"{whose}{label(own[0])}", *cells]] * (set(cells) != {"-"})
            if lines:
                whose = f"{models[0]}: " * (len(models) == 1)
                whole = zip([f"{whose}{counted}", *columns], *lines, strict=True)
                head, *lines = zip(*(column for column in whole if set(column[1:]) != {"-"}), strict=True)
                yield table(head, lines)

    parts = ["## The vectors alone", command(f"--sets {name} --grids widths,centred"), *of_columns(ALONE)]
    if words is not None:
        parts += ["## Beside BM25", f"BM25 alone has {spanned(words)}.", *of_columns(BESIDE)]
    parts += ["## Filters at half the width", command(f"--sets {name} --grids widths,baselines")]
    parts += [*of_columns(FILTERED, best_of), f"## From direction {EARLIER}"]
    parts += [command(f"--sets {name} --grids widths,offset"), *of_columns(EARLY), "## Comparisons"]
    for what, questions in GROUPS.items():
        if lines := verdicts(name, rows, answers, questions):
            parts += [f"### Of {what}", lines]
    return "\n\n".join(parts) + "\n"


def table(head, lines):
    text = [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines)]
    return "\n".join(text)


def cells_of(own, real, columns):
    """A value with half of its interval, bold where it is better; or what random projections reach."""
    narrow, cells = narrower(own[0]["model"]), []
    for head, asked in columns.items():
        row = first_row(own, "*", **{"name": narrow, **asked})
        if head == CHANCE:
            cells.append("{:.3f} to {:.3f}".format(*row["chance"]) if row and row["chance"] else "-")
        else:
            text = spanned(row) if row else "-"
            cells.append(f"**{text}**" if row and key_of(row) in real else text)
    return cells


def best_of(own, real, columns):
    """Values, the best of a line bold; of lines that have two or more."""
    found = [first_row(own, "*", **asked) for asked in columns.values()]
    if sum(row is not None for row in found) < 2:
        return ["-"]
    best = max(row["mean"] for row in found if row)
    marks = ["**" * (row is not None and row["mean"] == best) for row in found]
    texts = [f"{row['mean']:.3f}" if row else "-" for row in found]
    return [f"{mark}{text}{mark}" for mark, text in zip(marks, texts, strict=True)]


def first_row(rows, *what, **more):
    """The row that fits, or None."""
    return next((row for row in rows if fits(row, *what, **more)), None)


def systems(rows):
    """(set, model, method), in the order of the pages -> its rows."""
    by_system = {}
    for row in rows.values():
        by_system.setdefault((row["set"], row["model"], row["method"]), []).append(row)
    for name in NAMES:
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


def label(row):
    """A method as people read it."""
    text = row["method"].replace("@best", f", layer {row['layer']}").replace("+last", ", last token")
    return text.replace("classical~", "template ")


def spanned(row):
    return f"{row['mean']:.3f} ± {(row['high'] - row['low']) / 2:.3f}"


def verdicts(name, rows, answers, questions):
    """A line a question: what is better, worse or not shown to differ, with the span of the differences."""
    lines = []
    for question in questions:
        here = [line for line in answers if (line["question"], line["set"]) == (question, name)]
        if here:
            says = (
                named([line for line in here if line["verdict"] == verdict], rows)
                for verdict in ("better", "worse", "not real")
            )
            span, least = (spread_of(here, what, sign) for what, sign in (("difference", "+"), ("detectable", "")))
            lines.append([question, *says, span, least])
    head = ["question", "better", "worse", "not shown to differ", "differences", "detectable"]
    return table(head, lines) if lines else ""


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
        lines.append([method, *(f"**{n}**" if key_of(row) in real else n for n, row in cells)])
    head = [f"`{text}`, {576 // (what[1:] or (1,))[0]} dimensions" for text, what in filters.items()]
    return table(["`--method`", *head], lines) + "\n"
