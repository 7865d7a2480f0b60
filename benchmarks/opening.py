"""The first table of docs/benchmarks.md: what a reader asks, our figure, and what stands beside it."""


def opening(found):
    """A line a question; `found` are the rows of figures.jsonl."""
    lines = ["| question | ragidx | beside it |", "| --- | --- | --- |"]
    return "\n".join(lines + [f"| {' | '.join(line)} |" for line in _lines(found)]) + "\n"


def _lines(found):
    def row(figure, **setting):
        """The values of the last row of a setting."""
        each = (one for one in found if one["figure"] == figure and setting.items() <= one["setting"].items())
        return list(each)[-1]["values"]

    hybrid = row("quality of words", model="mini", index="scifact", search="hybrid z", dim=255)["nDCG@10"]
    minilm = row("quality of words", model="all-MiniLM-L6-v2", index="scifact", search="dense", dim=384)["nDCG@10"]
    words = row("bm25 quality", model="bm25s", index="scifact")["nDCG@10"]
    yield "the right ten first, SciFact, nDCG@10", f"{hybrid:.3f}", f"{words:.3f} bm25s, {minilm:.3f} all-MiniLM-L6-v2"
    quarter = row("quality of words", model="mini", index="scifact", search="hybrid z", dim=64)["nDCG@10"]
    yield "the same with a quarter of the dimensions", f"{quarter:.3f}", f"{hybrid:.3f} with all 255"
    own, models = row("install", extras="cpu"), row("install", extras="cpu,models")
    yield "what is installed", f"{own['MiB']:,} MiB, {own['seconds']:.0f} s", f"{models['MiB']:,} MiB with PyTorch"
    cold = row("cold start")
    load = cold["load torch and the model"]["median"]
    yield (
        "a question from a cold start",
        f"{cold['ragidx query']['median']:.2f} s",
        f"{load:.1f} s to load PyTorch and a model",
    )
    built = row("workers", mb=100.0)["medians"]
    yield (
        "a build of 100 MB of text, 2 cores",
        f"{built['2 workers']['wall']:.0f} s",
        f"{built['1 worker']['wall']:.0f} s with one worker",
    )
    changed = row("incremental build")
    yield (
        "a build after 1 % of the documents changed",
        f"{changed['1 % changed: s']:.1f} s",
        f"{changed['full s']:.0f} s for all",
    )
    ratio = row("encode throughput against sentence-transformers", dtype="float32")["ratio"]["median"]
    yield "encoding by all-MiniLM-L6-v2, float32", f"{ratio:.2f} times the texts a second", "sentence-transformers"
    asked, rival = (row("question, natural words", model=name)["p50 ms"] for name in ("hybrid", "tantivy"))
    yield "a question to 1,000,000 chunks", f"{asked:.0f} ms, hybrid", f"{rival:.0f} ms tantivy, BM25 alone"
    codes, graph = (
        row("index types", rows=100_000, dim=384, **named) for named in ({"index": "auto"}, {"engine": "hnswlib"})
    )
    made = "an index of 100,000 vectors, and one question to it"
    yield (
        made,
        *(f"{v['build CPU s']:.0f} s, {v['one ms']:.2f} ms{about}" for v, about in ((codes, ""), (graph, " hnswlib"))),
    )
    adds = row("adds")
    added, theirs = (adds[name]["all adds, ms"]["median"] for name in ("ragidx", "lancedb"))
    yield "one document added to 100,000 chunks", f"{added:.0f} ms", f"{theirs:.1f} ms LanceDB"
    served = row("servers")
    rates = {name: served[name]["8 clients"]["questions/s"] for name in served if name != "empty"}
    best = max(rates, key=rates.get)
    yield "answers a second over HTTP, 8 clients", f"{rates['ragidx']:.0f}", f"{rates[best]:.0f} {best}"
