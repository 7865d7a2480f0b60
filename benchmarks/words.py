"""Words of ten languages, and what they cost: does a noun find its sentence, in how many bytes and seconds.

    python benchmarks/words.py                                               first hits by language
    python benchmarks/words.py --evalsets DIR --sets scifact cranfield       nDCG@10, bytes and seconds
    python benchmarks/words.py --texts ko=constitution.txt                   bytes and seconds of other texts
    PYTHONPATH=OLDER python benchmarks/words.py --tree before                the same of another tree

words/sentences.tsv has 40 sentences a language, each with its noun as people ask for it; in the sentence it has the
particles, prefixes and endings that it needs there. An index has the 40 of a language, with the stemmer that `auto`
guesses; an equal score is a lost place. Every second sentence was kept out of every choice of a rule. Texts are cut
after 500 characters at the next line; seconds are the least CPU time of five runs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from figures import record

from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.corpora.readers.registry import documents
from ragidx.indexer.lexical.analyzer import Analyzer
from ragidx.indexer.lexical.blocks import blocks
from ragidx.indexer.lexical.bm25 import Bm25
from ragidx.indexer.lexical.postings import Postings
from ragidx.indexer.lexical.postings_writer import write_postings
from ragidx.indexer.lexical.stemming import guess_language, stemmer
from ragidx.pipelines.experiments.evaluate.measures import ndcg

SENTENCES = Path(__file__).parent / "words" / "sentences.tsv"


class Words:
    """An index of some texts by their words alone."""

    def __init__(self, texts):
        self.stemmer = guess_language(texts)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lexical.arrow"
            started = time.process_time()
            analyzer = Analyzer(stemmer(self.stemmer))
            write_postings(path, blocks(((text, "") for text in texts), analyzer))
            self.seconds, self.bytes = time.process_time() - started, path.stat().st_size
            bm25 = Bm25([Postings(path, len(texts))])
        self.scores = lambda question: bm25.scores(analyzer(question))

    def rank(self, question, right):
        """The place of a text among all, the last of equal ones; None: it has no word of the question."""
        scores = self.scores(question)
        return None if scores is None or not scores[right] else int((scores >= scores[right]).sum())


def languages(tree):
    found = {}
    rows = [line.split("\t") for line in SENTENCES.read_text("utf-8").splitlines()]
    for language in dict.fromkeys(row[0] for row in rows):
        pairs = [row[1:] for row in rows if row[0] == language]
        words = Words([sentence for _, sentence in pairs])
        ranks = [words.rank(question, place) or len(pairs) for place, (question, _) in enumerate(pairs)]
        found[language] = {"stemmer": words.stemmer}
        for name, half in (("chosen by", ranks[::2]), ("kept out", ranks[1::2])):
            found[language] |= {f"{name}: first": half.count(1), f"{name}: first three": sum(at <= 3 for at in half)}
    record("words by language", found, tree=tree)


def quality(words, ids, folder):
    queries, qrels = load_queries(folder), load_qrels(folder)
    gains = []
    for query, judged in qrels.items():
        if query in queries and any(gain > 0 for gain in judged.values()):
            scores = words.scores(queries[query])
            best = [] if scores is None else np.lexsort((np.arange(len(ids)), -scores))[:10]
            gains.append(ndcg([ids[row] for row in best if scores[row]], judged))
    return {"nDCG@10": round(float(np.mean(gains)), 4)}


def costs(name, texts, tree, ids=None, folder=None):
    runs = [Words(texts) for _ in range(5)]
    values = {"bytes": runs[0].bytes, "CPU s": round(min(run.seconds for run in runs), 2)}
    values |= quality(runs[0], ids, folder) if folder else {}
    record("cost of words", values, set=name, rows=len(texts), tree=tree)


def paragraphs(path):
    found = [""]
    for line in path.read_text("utf-8").splitlines(keepends=True):
        found[-1] += line
        found += [""] if len(found[-1]) > 500 else []
    return [text for text in found if text.strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalsets", type=Path)
    parser.add_argument("--sets", nargs="*", default=[])
    parser.add_argument("--texts", nargs="*", default=[], metavar="NAME=FILE")
    parser.add_argument("--tree", default="now")
    arguments = parser.parse_args()
    if not arguments.sets and not arguments.texts:
        languages(arguments.tree)
    for name in arguments.sets:
        found = list(documents(arguments.evalsets / name, on_skip=lambda _: None))
        folder = arguments.evalsets / name
        costs(name, [one.text for one in found], arguments.tree, [one.id for one in found], folder)
    for given in arguments.texts:
        name, path = given.split("=", 1)
        costs(name, paragraphs(Path(path)), arguments.tree)


if __name__ == "__main__":
    main()
