"""What a question costs with dead rows beside the live ones, in that of the same rows after `compact`.

    python benchmarks/deletions.py [--documents 40000] [--questions 60]

Documents of 40 words, drawn as words of a language are, in one index of the bundled model, exact or with a graph;
deleted at random with `compact=False` until 14, 50 and 82 % of the rows are dead. Each state and its compacted copy
answer the same questions in turns, in processes of their own time (CPU): by vectors, by words, by both, by both with a
condition, and by both at a quarter of the dimensions.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from figures import record

import ragidx
from ragidx.corpora.records import Document

SHARES = (0.14, 0.5, 0.82)
KINDS = {
    "dense": {"mode": "dense"},
    "lexical": {"mode": "lexical"},
    "hybrid": {"mode": "hybrid"},
    "hybrid, condition": {"mode": "hybrid", "where": "year >= 1950"},
    "hybrid, 64 dimensions": {"mode": "hybrid", "dim": 64},
}


def texts(count, rng):
    """Texts of 40 words of 20,000, as often as words of a language are."""
    parts = ("bdfgklmnprst", "aeiou", "lmnrst", "aeiou", "bdfgklmnprst")
    words = np.array(["".join(letters) for letters in itertools.product(*parts)])
    words = np.random.default_rng(1).permutation(words)[:20_000]
    places = np.minimum(rng.zipf(1.3, (count, 40)) - 1, len(words) - 1)
    return [" ".join(row) for row in words[places]]


def seconds(index, question, options):
    """CPU seconds of a question."""
    started = time.process_time()
    index.search(question, 10, **options)
    return time.process_time() - started


def compared(one, other, questions, options):
    """Of each question the cost in `one` over that in `other`; the least of three turns of each."""
    ratios, costs = [], []
    for question in questions[:5]:
        seconds(one, question, options), seconds(other, question, options)
    for question in questions:
        turns = [(seconds(one, question, options), seconds(other, question, options)) for _ in range(3)]
        mine, theirs = (min(column) for column in zip(*turns, strict=True))
        ratios.append(mine / theirs)
        costs.append(mine * 1000)
    return {"ratio": round(statistics.median(ratios), 3), "ms": round(statistics.median(costs), 2)}


def main():
    """Build, delete, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=40_000)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--types", nargs="+", default=["flat", "hnsw"])
    parser.add_argument("--dry", action="store_true", help="print, and record nothing")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    every = texts(arguments.documents, rng)
    questions = [" ".join(text.split()[:6]) for text in texts(arguments.questions, rng)]
    order = rng.permutation(arguments.documents)
    for index_type in arguments.types:
        with tempfile.TemporaryDirectory() as folder:
            place, copy = Path(folder) / "index", Path(folder) / "compacted"
            index = ragidx.Index.create(place, index_type=index_type, stemmer="none")
            index.add(Document(str(n), text, {"year": 1900 + n % 100}) for n, text in enumerate(every))
            values = {}
            for share in SHARES:
                gone = order[: int(share * arguments.documents)]
                index.delete([str(n) for n in gone], missing="skip", compact=False)
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(place, copy)
                other = ragidx.Index(copy)
                other.compact(everything=True)
                values[f"{share:.0%} dead"] = {
                    kind: compared(index, other, questions, options) for kind, options in KINDS.items()
                }
                print(index_type, share, values[f"{share:.0%} dead"], flush=True)
            if not arguments.dry:
                record("dead rows", values, index_type=index_type, documents=arguments.documents)


if __name__ == "__main__":
    main()
