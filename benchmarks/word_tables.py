"""The tables of words, hybrid search and chunks, of docs/query.md and docs/benchmarks.md; table.py puts them there."""

from __future__ import annotations

WORDS = "quality of words"
COSTS = (("nDCG@10", ".3f"), ("bytes", ","), ("CPU s", ".2f"))


def of(figures, found):
    return [row for row in found if row["figure"] in figures]


def hybrid(found):
    """The table of docs/query.md: each part, and both; bold where both are really better than each."""
    by = {}
    for row in of([WORDS], found):
        setting = row["setting"]
        by.setdefault((setting["index"], setting["model"]), {})[setting["search"], setting.get("dim")] = row["values"]
    lines = ["| set, model | numbers | cosine | BM25 | hybrid | rrf |", "| --- | --- | --- | --- | --- | --- |"]
    for (name, model), cells in by.items():
        for dim in dict.fromkeys(dim for _, dim in cells if dim is not None):
            both = cells["hybrid z", dim]
            apart = [both["against dense"], both["against lexical"]]
            better = all(one["mean"] > 0 and one["p"] < 0.05 for one in apart)
            value = f"{both['nDCG@10']:.3f}"
            cosine, words, rrf = (
                f"{cells[key]['nDCG@10']:.3f}" for key in (("dense", dim), ("lexical", None), ("hybrid rrf", dim))
            )
            value = f"**{value}**" if better else value
            lines.append(f"| {name}, {model} | {dim} | {cosine} | {words} | {value} | {rrf} |")
    return "\n".join(lines) + "\n"


def languages(found):
    """The table of docs/build.md: nouns that find their sentence, by language; and what the words cost."""
    trees = {row["setting"]["tree"]: row["values"] for row in of(["words by language"], found)}
    lines = [
        "| 20 and 20 nouns | first hit, before | now | kept out: first hit, before | now | in the first three |",
        "| --- |" + " --- |" * 5,
    ]
    for language, now in trees["now"].items():
        cells = [trees[tree][language][f"{half}: first"] for half in ("chosen by", "kept out") for tree in trees]
        lines.append(f"| {language.capitalize()} | {' | '.join(map(str, cells))} | {now['kept out: first three']} |")
    lines += ["", "| words of | nDCG@10, before | now | bytes | now | CPU s | now |", "| --- |" + " --- |" * 6]
    by = {}
    for row in of(["cost of words"], found):
        by.setdefault((row["setting"]["set"], row["setting"]["rows"]), {})[row["setting"]["tree"]] = row["values"]
    for (name, n_rows), cost in by.items():
        cells = [
            f"{cost[tree].get(key, '-'):{form if key in cost[tree] else ''}}" for key, form in COSTS for tree in cost
        ]
        lines.append(f"| {name}, {n_rows:,} chunks | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def words(found):
    """The tables of docs/benchmarks.md on words and hybrid search."""
    rows = of([WORDS], found)
    if not rows:
        return []
    head = [
        "| whole documents | nDCG@10 | recall@100 | against the cosine | against BM25 |",
        "| --- | --- | --- | --- | --- |",
    ]
    body = []
    for row in rows:
        setting, values = row["setting"], row["values"]
        what = f"{setting['index']}, {setting['model']}, {setting['search']}"
        what += f", {setting['dim']} dimensions" if setting.get("dim") else ""
        apart = [_apart(values.get(f"against {part}")) for part in ("dense", "lexical")]
        body.append(f"| {what} | {values['nDCG@10']:.3f} | {values['R@100']:.3f} | {' | '.join(apart)} |")
    parts = ["\n".join(head + body)]
    quality = of(["bm25 quality"], found)
    if quality:
        head = ["| BM25, stemmed, no stop words | set | nDCG@10 | recall@100 |", "| --- | --- | --- | --- |"]
        body = [
            f"| {row['setting']['model']} | {row['setting']['index']} | {row['values']['nDCG@10']:.3f}"
            f" | {row['values']['R@100']:.3f} |"
            for row in quality
        ]
        parts.append("\n".join(head + body))
    for row in of(["bm25 speed", "lexical part", "build with words"], found):
        values = ", ".join(f"{value:,} {name}" for name, value in row["values"].items())
        parts.append(f"{row['figure'][0].upper()}{row['figure'][1:]}, {row['setting']['model']}: {values}.")
    asked = [row for row in found if row["figure"].startswith("question, ")]
    if asked:
        head = ["| a question, one thread, encoding included | p50 | p95 | chunks |", "| --- | --- | --- | --- |"]
        body = [
            f"| {row['figure'].removeprefix('question, ')}, {row['setting']['model']} | {row['values']['p50 ms']} ms"
            f" | {row['values']['p95 ms']} ms | {row['values']['rows']:,} |"
            for row in asked
        ]
        parts.append("\n".join(head + body))
    return parts


def chunks(found):
    """The tables of docs/benchmarks.md on cutting."""
    parts = []
    if cut := of(["cutting"], found):
        head = [
            "| cutting, at most 256 tokens of mini | MB/s, cold | warm | chunks | tokens a chunk | too long"
            " | at a line | at a sentence |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        body = [
            f"| {row['setting']['chunker']} | {v['cold MB/s']} | {v['warm MB/s']['median']} | {v['chunks']:,}"
            f" | {v['mean tokens']} | {v['over']} | {v['% of cuts']['line']} % | {v['% of cuts']['sentence']} % |"
            for row in cut
            for v in [row["values"]]
        ]
        parts.append("\n".join(head + body))
    if quality := of(["quality of chunks"], found):
        head = ["| set, tokens of a chunk | nDCG@10 before | now | difference |", "| --- | --- | --- | --- |"]
        body = [
            f"| {row['setting']['set']}, {row['setting']['size']} | {v['before']['nDCG@10']:.3f}"
            f" | {v['now']['nDCG@10']:.3f} | {_apart(v['difference'] | {'p': v['p']})} |"
            for row in quality
            for v in [row["values"]]
        ]
        parts.append("\n".join(head + body))
    for row in of(["cutting 100 MB"], found):
        kind = "Markdown" if row["setting"]["markdown"] else "plain"
        v = row["values"]
        parts.append(
            f"One {kind} document of 100 MB: {v['seconds']} s of one processor, {v['MiB more']} MiB beside the text."
        )
    for row in of(["reranking"], found):
        if apart := row["values"].get("against none"):
            setting = row["setting"]
            parts.append(
                f"Reranking of the first hits by {setting['model']}, {setting['method']}, {setting['rows']} questions "
                f"of {setting['index']}: nDCG@10 {row['values']['nDCG@10']:.3f}, against none {_apart(apart)}."
            )
    return parts


def _apart(difference):
    if difference is None:
        return "-"
    return f"{difference['mean']:+.3f} ({difference['low']:+.3f} to {difference['high']:+.3f}), p {difference['p']:.4f}"


def unknown(found):
    """The table of docs/models.md: shares of the sentences of each language that a model does not know."""
    by_model = {row["setting"]["model"]: row["values"] for row in of(["unknown texts"], found)}
    languages = list(next(iter(by_model.values())))
    lines = [f"| | {' | '.join(map(str.capitalize, languages))} |", "| --- |" + " --- |" * len(languages)]
    for model, values in by_model.items():
        cells = [f"{values[language]['texts']:.1%}" for language in languages]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
