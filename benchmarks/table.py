"""The figures of the README and of docs/figures.md: the latest row of each setting in figures.jsonl.

`python benchmarks/table.py` prints the README's; with `--write`, both go into their files, between their marks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIGURES = Path(__file__).with_name("figures.jsonl")
QUALITY = ("scifact quality", "mini by method and filter")
QUALITIES = ("sample nDCG@10", "STS-B test Spearman", "SciFact nDCG@10")


def rows(path=FIGURES):
    """The latest row of each figure and setting, in the order in which they were first measured."""
    found = {}
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        named = {name: row["setting"].get(name) for name in ("model", "options", "method", "filter", "rows")}
        size = row["values"].get("chunks") if row["figure"] == "build at scale" else None
        key = json.dumps([row["figure"], named, size])
        if row["figure"] == "mini by method and filter" and key in found:
            row = row | {"values": found[key]["values"] | row["values"]}
        found[key] = row
    return list(found.values())


def of(figures, found):
    return [row for row in found if row["figure"] in figures]


def machines(found):
    return " or ".join(sorted({row["machine"] for row in found}))


def markdown(found):
    """All tables, as they stand in the README."""
    timed = [row for row in found if row["figure"] not in QUALITY]
    parts = [
        f"Speed and memory: {machines(timed)}, shared with other work; single runs, but for the medians of the"
        f" encoding speed (5 runs in turns) and the cold start (7). Quality: {machines(of(QUALITY, found))}."
    ]
    quality = of(["scifact quality"], found)
    if quality:
        head = [
            "| SciFact by `build` and `query`, whole documents | nDCG@10 | recall@100 | vector bytes |",
            "| --- | --- | --- | --- |",
        ]
        body = [
            f"| {row['setting']['model']} | {row['values']['nDCG@10']:.3f} | {row['values']['R@100']:.3f}"
            f" | {row['values']['vector bytes']} |"
            for row in quality
        ]
        parts.append("\n".join(head + body))
    for row in of(["encode throughput against sentence-transformers"], found):
        ratio = row["values"]["ratio"]
        parts.append(
            f"Encoding {row['setting']['texts']} SciFact documents with {row['setting']['model']}, against"
            f" sentence-transformers' own `encode` with its defaults: **{ratio['median']:.2f}x**"
            f" ({ratio['min']:.2f} to {ratio['max']:.2f}, {ratio['runs']} runs in turns; {row['setting']['dtype']},"
            f" {row['setting']['threads']} against {row['setting']['their_threads']} threads,"
            f" least cosine {row['values']['least cosine']:.5f})."
        )
    grid = of(["mini by method and filter"], found)
    if grid:
        parts.append(by_method(grid))
        parts.append(by_filter(grid))
    for row in of(["cold start"], found):
        cold = row["values"]
        told = ", ".join(f"`{n}` {v['median']:.2f} s" for n, v in cold.items() if isinstance(v, dict))
        parts.append(
            f"Cold start, whole processes: {told}. `--help` takes {cold['--help / import click']:.1f} times"
            f" `import click`, a query {cold['query / load']:.2f} times the bare loading of torch and the model."
        )
    parts += [spectrum(row) for row in of(["unembedding spectrum"], found)]
    scale = of(["build at scale"], found)
    if scale:
        head = ["| `build` with mini | seconds | of them encoding | peak memory |", "| --- | --- | --- | --- |"]
        body = [
            f"| {row['values']['chunks']:,} chunks | {row['values']['seconds']} | {row['values']['seconds encoding']}"
            f" | {row['values']['peak MiB']} MiB |"
            for row in scale
        ]
        parts.append("\n".join(head + body))
    return "\n\n".join(parts) + "\n"


def spectrum(row):
    """One sentence on the decomposition of a head."""
    values, shape = row["values"], row["setting"]
    size = f"{shape['rows']:,} x {shape['width']:,}, {shape['dtype']}, {shape['threads']} threads"
    first, cached = values["first s"]["median"], values["cached s"]["median"]
    sentence = f"The spectrum of a head of {size}: {first:.1f} s and {values['peak MiB']:,} MiB, {cached:.2f} s cached"
    if "svd s" not in values:
        return f"{sentence}."
    return (
        f"{sentence}; `torch.linalg.svd` of the whole matrix in float32 takes {values['svd s']['median']:.1f} s and"
        f" {values['svd peak MiB']:,} MiB (medians of {values['svd s']['runs']} runs)."
    )


def by_method(grid):
    """A line a method: without a filter, and with EmbedFilter at half the width, where mini's useful part begins."""
    values = {(row["setting"]["method"], row["setting"]["filter"]): row["values"] for row in grid}
    lines = [
        "| mini: method, no filter → EmbedFilter, half the bytes | " + " | ".join(QUALITIES) + " |",
        "| --- |" + " --- |" * len(QUALITIES),
    ]
    for method in dict.fromkeys(method for method, _ in values):
        plain, half = values.get((method, "none"), {}), values.get((method, "tau 2, offset 1"), {})
        cells = [f"{told(plain, name)} → {told(half, name)}" for name in QUALITIES]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def by_filter(grid):
    """The EmbedFilter paper's baselines at half the width."""
    values = {(row["setting"]["method"], row["setting"]["filter"]): row["values"] for row in grid}
    methods = [m for m in dict.fromkeys(m for m, _ in values) if (m, "truncation, tau 2") in values]
    names = [f for m, f in values if methods and m == methods[0] and f.endswith(", tau 2")]
    names = ["none", "tau 2, offset 1", *names]
    head = [f"{method}: {name}" for method in methods for name in QUALITIES]
    lines = ["| mini: filter at half the width | " + " | ".join(head) + " |", "| --- |" + " --- |" * len(head)]
    for name in names:
        cells = [told(values.get((method, name), {}), quality) for method in methods for quality in QUALITIES]
        label = {"none": "none, full width", "tau 2, offset 1": "EmbedFilter, offset 1"}.get(name, name[:-7])
        lines.append(f"| {'EmbedFilter, middle' if label == 'embedfilter' else label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def whole_grid(found):
    """Every row of mini by method and filter."""
    head = ["| mini: method, filter | " + " | ".join(QUALITIES) + " | vector bytes |", "| --- |" + " --- |" * 4]
    body = [
        f"| {row['setting']['method']}, {row['setting']['filter']} | "
        + " | ".join(told(row["values"], name) for name in QUALITIES)
        + f" | {row['values']['vector bytes']} |"
        for row in of(["mini by method and filter"], found)
    ]
    return "\n".join(head + body) + "\n"


def told(values, name):
    return f"{values[name]:.3f}" if name in values else "-"


PLACES = {ROOT / "README.md": markdown, ROOT / "docs" / "figures.md": whole_grid}


def write(found):
    """Put the figures into their files."""
    for path, make in PLACES.items():
        before, _, rest = path.read_text("utf-8").partition("<!-- figures -->\n")
        after = rest.partition("<!-- /figures -->")[2]
        path.write_text(f"{before}<!-- figures -->\n{make(found)}<!-- /figures -->{after}", "utf-8")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write(rows())
    else:
        print(markdown(rows()), end="")
