"""The README's figures: the latest row of each setting in figures.jsonl. `python benchmarks/table.py` prints them."""

from __future__ import annotations

import json
from pathlib import Path

FIGURES = Path(__file__).with_name("figures.jsonl")
QUALITIES = ("sample nDCG@10", "STS-B test Spearman", "SciFact nDCG@10")


def rows(path=FIGURES):
    """The latest row of each figure and setting, in the order in which they were first measured."""
    found = {}
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        named = {name: row["setting"].get(name) for name in ("model", "options", "method", "filter")}
        size = row["values"].get("chunks") if row["figure"] == "build at scale" else None
        key = json.dumps([row["figure"], named, size])
        if row["figure"] == "mini by method and filter" and key in found:
            row = row | {"values": found[key]["values"] | row["values"]}
        found[key] = row
    return list(found.values())


def of(figure, found):
    return [row for row in found if row["figure"] == figure]


def markdown(found):
    """All tables, as they stand in the README."""
    machine = found[-1]["machine"]
    parts = [
        f"Machine of all rows: {machine}, shared with other work. Single runs, but for the medians of the"
        " encoding speed (5 runs in turns) and the cold start (7)."
    ]
    quality = of("scifact quality", found)
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
    for row in of("encode throughput against sentence-transformers", found):
        ratio = row["values"]["ratio"]
        parts.append(
            f"Encoding {row['setting']['texts']} SciFact documents with {row['setting']['model']}, against"
            f" sentence-transformers' own `encode` with its defaults: **{ratio['median']:.2f}x**"
            f" ({ratio['min']:.2f} to {ratio['max']:.2f}, {ratio['runs']} runs in turns; {row['setting']['dtype']},"
            f" {row['setting']['threads']} against {row['setting']['their_threads']} threads,"
            f" least cosine {row['values']['least cosine']:.5f})."
        )
    grid = of("mini by method and filter", found)
    if grid:
        head = ["| mini: method, filter | " + " | ".join(QUALITIES) + " | vector bytes |", "| --- |" + " --- |" * 4]
        body = [
            f"| {row['setting']['method']}, {row['setting']['filter']} | "
            + " | ".join(f"{row['values'][name]:.3f}" if name in row["values"] else "-" for name in QUALITIES)
            + f" | {row['values']['vector bytes']} |"
            for row in grid
        ]
        parts.append("\n".join(head + body))
    for row in of("cold start", found):
        cold = row["values"]
        told = ", ".join(f"`{n}` {v['median']:.2f} s" for n, v in cold.items() if isinstance(v, dict))
        parts.append(
            f"Cold start, whole processes: {told}. `--help` takes {cold['--help / import click']:.1f} times"
            f" `import click`, a query {cold['query / load']:.2f} times the bare loading of torch and the model."
        )
    scale = of("build at scale", found)
    if scale:
        head = ["| `build` with mini | seconds | of them encoding | peak memory |", "| --- | --- | --- | --- |"]
        body = [
            f"| {row['values']['chunks']:,} chunks | {row['values']['seconds']} | {row['values']['seconds encoding']}"
            f" | {row['values']['peak MiB']} MiB |"
            for row in scale
        ]
        parts.append("\n".join(head + body))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(markdown(rows()), end="")
