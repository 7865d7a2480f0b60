"""What many equal vectors cost an approximate index: each of them indexed, as FAISS is given them, or once.

    python benchmarks/equal_vectors.py [--rows 12000] [--every 12] [--types hnsw,ivf,sq8,ivfpq,rabitq]

Documents of 100 words drawn from 3,000, every twelfth of which is the same five words, and 600 questions of one to six
of these words, by the bundled model. For each type: the recall that a build measures, that of the questions, at how
many of these not one of the ten best is found, and what making and file take; both in one run.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
import time
from pathlib import Path

import numpy as np
from figures import record

import ragidx
from ragidx.indexer.ann import making, tuning
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.faiss_files import map_vectors, vectors_header, write
from ragidx.indexer.ann.index_types import DEFAULT_RECALL, candidates, padded
from ragidx.indexer.ann.repeats import find_repeats
from ragidx.indexer.store.files import VECTORS

SAMPLE = Path(ragidx.__file__).parent / "corpora" / "sample" / "documents"
QUESTIONS, VOCABULARY, WORDS = 600, 3000, 100


def texts(rows, every):
    rng = random.Random(1)
    prose = " ".join(path.read_text("utf-8") for path in sorted(SAMPLE.rglob("*.md")))
    words = rng.sample(sorted(set(re.findall("[a-z]{4,}", prose.lower()))), VOCABULARY)
    same = " ".join(rng.choices(words, k=5))
    documents = [" ".join(rng.choices(words, k=WORDS)) if n % every else same for n in range(rows)]
    return documents, [" ".join(rng.choices(words, k=rng.randint(1, 6))) for _ in range(QUESTIONS)]


def measured(recipe, path, dim, rows, queries, repeats):
    exact, sizes = map_vectors(path, dim, rows), []
    started = time.thread_time()
    index = making.make(recipe, path, dim, rows, repeats=repeats)
    seconds = time.thread_time() - started
    truth = tuning.exact_answers(path, dim, rows, in_lists=recipe.lists is not None, repeats=repeats)
    made = tuning.tune(index, recipe, truth, exact, DEFAULT_RECALL, repeats)
    scores, _ = ann.search(index, recipe, made.effort, exact, queries, 10, None, repeats)
    found = scores >= ann.search_exact(exact, queries, 10, None)[0][:, -1:] - 1e-6
    write(index, lambda data: sizes.append(len(data)) or len(data))
    return {
        "told": round(made.recall, 3),
        "real": round(float(found.mean()), 3),
        "without one": int((~found.any(axis=1)).sum()),
        "effort": made.effort.beam or f"{made.effort.lists} x {made.effort.factor}",
        "CPU s": round(seconds, 1),
        "MB": round((sum(sizes) + (0 if repeats is None else len(repeats.to_bytes()))) / 1e6, 2),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--types", default="hnsw,ivf,sq8,ivfpq,rabitq")
    arguments = parser.parse_args()
    documents, questions = texts(arguments.rows, arguments.every)
    model = ragidx.load_embedder()
    with tempfile.TemporaryDirectory() as folder:
        vectors, queries = (np.asarray(model.embed_document(one), np.float32) for one in (documents, questions))
        wide = padded(vectors.shape[1])
        vectors, queries = (np.pad(one, ((0, 0), (0, wide - one.shape[1]))) for one in (vectors, queries))
        path = Path(folder) / VECTORS
        path.write_bytes(vectors_header(wide, len(vectors)) + vectors.astype("<f2").tobytes())
        repeats = find_repeats(path, wide, len(vectors))
        for name in arguments.types.split(","):
            [recipe] = candidates(name, len(vectors), wide)
            values = {
                "each": measured(recipe, path, wide, len(vectors), queries, None),
                "once": measured(recipe, path, wide, len(vectors), queries, repeats),
                "repeats": len(repeats),
            }
            record("equal vectors", values, index=name, rows=arguments.rows, every=arguments.every)


if __name__ == "__main__":
    main()
