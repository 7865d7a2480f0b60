"""What the programs of this folder share: options, pairs of sentences, tables in Markdown, pictures."""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import itertools
import json
import sys
import tempfile
from importlib import resources
from pathlib import Path

import numpy as np

import ragidx

PAIRS = "pairs of sentences: a table with a header of score, sentence1 and sentence2, by tabs, or JSON lines of these"


def options(doc, data=PAIRS, limit=120):
    """The options of all programs; a program adds its own."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini-decoder", help="a decoder, as for `ragidx build`")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--data", type=Path, help=f"{data} [default: a small made set]")
    parser.add_argument("--limit", type=int, default=limit, help="rows of the data, at most")
    parser.add_argument("--out", type=Path, help="a picture, .svg or .png")
    return parser


def encoder(said, method, **more):
    """The encoder of a method, of the last layer: a preset of the model may be of another one."""
    return ragidx.load_encoder(said.model, method=method, device=said.device, dtype=said.dtype, **{"layer": -1} | more)


def run(main):
    """A program; what a user can repair is one line."""
    try:
        main()
    except (ragidx.RagidxError, OSError) as fault:
        sys.exit(" ".join(f"Error: {fault}".split()))


def paragraphs():
    """The paragraphs of the bundled sample, by document: lists of sentences."""
    for path in sorted((Path(str(resources.files("ragidx.corpora"))) / "sample" / "documents").rglob("*.md")):
        blocks = (" ".join(block.split()) for block in path.read_text("utf-8").split("\n\n") if block[:1].isalpha())
        found = [[one.strip(". ") + "." for one in block.split(". ")] for block in blocks]
        yield [block for block in found if len(block) > 1]


def pairs(said):
    """(score, sentence, sentence) of `--data`; made: 2 of one paragraph, 1 of one document, 0 of two documents."""
    if said.data is None:
        documents = [found for found in paragraphs() if len(found) > 1]
        made = []
        for (one, two, *_), (other, *_) in itertools.pairwise(documents):
            made += [(2.0, one[0], one[1]), (1.0, one[0], two[0]), (0.0, one[0], other[0]), (1.0, one[1], two[1])]
        return made[: said.limit]
    text = said.data.read_text("utf-8")
    if text.lstrip().startswith("{"):
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    else:
        rows = list(csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE))
    try:
        found = [(float(row["score"]), row["sentence1"], row["sentence2"]) for row in rows]
    except (KeyError, TypeError, ValueError) as fault:
        raise ragidx.CorpusError(f"it is no file of pairs: {fault!r}", f"give {PAIRS}", where=str(said.data)) from fault
    places = np.random.default_rng(0).permutation(len(found))[: said.limit]  # in STS files, sources follow one another
    return [found[place] for place in sorted(places)]


@contextlib.contextmanager
def pairs_file(said):
    """The same as a file, for `ragidx.evaluate`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / (said.data.stem if said.data else "sample")
        rows = ({"score": score, "sentence1": one, "sentence2": two} for score, one, two in pairs(said))
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        yield file


def cosines(some, others):
    """(..., n) of vectors (..., n, d), row by row."""
    lengths = np.linalg.norm(some, axis=-1) * np.linalg.norm(others, axis=-1)
    return (some * others).sum(axis=-1) / np.maximum(lengths, np.finfo("f4").tiny)


def table(head, rows):
    """Print a table; values that are no counts with three digits."""
    for row in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(f"{one:.3f}" if isinstance(one, float) else str(one) for one in row) + " |")


@contextlib.contextmanager
def picture(out, **size):
    """A figure, which is written at the end; nothing without `--out`, or without anything drawn."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained", **size)
    with rc_context({"svg.hashsalt": "ragidx", "font.size": 9}):
        yield figure
        if out is not None:
            figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)
