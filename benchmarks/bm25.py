"""BM25 of ragidx beside bm25s and tantivy, each with Snowball's English stemmer and no stop words.

    pip install bm25s tantivy
    python benchmarks/bm25.py --evalsets DIR --sets scifact cranfield      quality: nDCG@10 and recall@100
    python benchmarks/bm25.py --evalsets DIR --rows 50000                  speed: index, bytes, questions

Quality is of whole documents (title and text) with all their queries. For speed, a row is 150 words in a row of SciFact
and Cranfield; questions are 8 words in a row of a row. Times are CPU seconds of one thread, in turns.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import bm25s
import numpy as np
import Stemmer
import tantivy
from figures import record

from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.corpora.readers.registry import documents
from ragidx.indexer.lexical.analyzer import Analyzer
from ragidx.indexer.lexical.blocks import blocks
from ragidx.indexer.lexical.bm25 import Bm25
from ragidx.indexer.lexical.postings import Postings
from ragidx.indexer.lexical.postings_writer import write_postings
from ragidx.indexer.lexical.stemming import stemmer
from ragidx.pipelines.experiments.evaluate.measures import ndcg


class _Ragidx:
    def __init__(self, texts, folder):
        self.analyzer = Analyzer(stemmer("english"))
        write_postings(folder / "lexical.arrow", blocks(((text, "") for text in texts), self.analyzer))
        segments = [Postings(folder / "lexical.arrow", len(texts))]
        self.bm25 = Bm25(segments)

    def search(self, question, k):
        found = self.bm25.scores(self.analyzer(question))
        if found is None:
            return []
        hits = np.flatnonzero(found)
        best = hits[np.argpartition(-found[hits], min(k, len(hits)) - 1)[:k]]
        return best[np.lexsort((best, -found[best]))].tolist()


class _Bm25s:
    def __init__(self, texts, folder):
        self.stemmer, self.index = Stemmer.Stemmer("english"), bm25s.BM25(method="lucene", k1=1.2, b=0.75)
        self.index.index(self._tokens(texts), show_progress=False)
        self.index.save(str(folder))

    def _tokens(self, texts):
        return bm25s.tokenize(texts, stopwords=None, stemmer=self.stemmer, show_progress=False)

    def search(self, question, k):
        k = min(k, self.index.scores["num_docs"])
        rows, found = self.index.retrieve(self._tokens([question]), k=k, show_progress=False)
        return rows[0][found[0] > 0].tolist()


class _Tantivy:
    def __init__(self, texts, folder):
        schema = tantivy.SchemaBuilder()
        schema.add_unsigned_field("row", fast=True, stored=True)
        schema.add_text_field("text", tokenizer_name="en_stem")
        self.index = tantivy.Index(schema.build(), path=str(folder))
        writer = self.index.writer(num_threads=1)
        for row, text in enumerate(texts):
            document = tantivy.Document()
            document.add_unsigned("row", row)
            document.add_text("text", text)
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        self.index.reload()
        self.searcher = self.index.searcher()

    def search(self, question, k):
        words = "".join(letter if letter.isalnum() else " " for letter in question)
        query = self.index.parse_query(words, ["text"])
        return [self.searcher.doc(place)["row"][0] for _, place in self.searcher.search(query, k).hits]


RIVALS = {"ragidx": _Ragidx, "bm25s": _Bm25s, "tantivy": _Tantivy}


def quality(folder):
    found = list(documents(folder, on_skip=lambda _: None))
    queries, qrels = load_queries(folder), load_qrels(folder)
    for name, make in RIVALS.items():
        with tempfile.TemporaryDirectory() as room:
            index = make([document.text for document in found], Path(room))
            gains, recalls = [], []
            for query, judged in qrels.items():
                right = {doc for doc, gain in judged.items() if gain > 0}
                if right and query in queries:
                    hits = [found[row].id for row in index.search(queries[query], 100)]
                    gains.append(ndcg(hits, judged))
                    recalls.append(len(right.intersection(hits)) / len(right))
        values = {"nDCG@10": round(float(np.mean(gains)), 4), "R@100": round(float(np.mean(recalls)), 4)}
        record("bm25 quality", values, model=name, index=folder.name, rows=len(found))


def speed(texts, questions):
    for name, make in RIVALS.items():
        with tempfile.TemporaryDirectory() as room:
            started = time.process_time()
            index = make(texts, Path(room))
            made = time.process_time() - started
            size = sum(path.stat().st_size for path in Path(room).rglob("*") if path.is_file())
            times = []
            for question in questions:
                started = time.perf_counter()
                index.search(question, 10)
                times.append(1000 * (time.perf_counter() - started))
        values = {
            "index s": round(made, 2),
            "bytes a row": round(size / len(texts), 1),
            "p50 ms": round(statistics.median(times), 2),
            "p95 ms": round(float(np.quantile(times, 0.95)), 2),
        }
        record("bm25 speed", values, model=name, rows=len(texts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalsets", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=[])
    parser.add_argument("--rows", type=int)
    arguments = parser.parse_args()
    for name in arguments.sets:
        quality(arguments.evalsets / name)
    if arguments.rows:
        sets = [arguments.evalsets / name for name in ("scifact", "cranfield")]
        words = " ".join(one.text for path in sets for one in documents(path, on_skip=lambda _: None)).split()
        draw = random.Random(0)
        starts = [draw.randrange(len(words) - 150) for _ in range(arguments.rows)]
        texts = [" ".join(words[start : start + 150]) for start in starts]
        questions = [" ".join(words[start + 20 : start + 28]) for start in draw.sample(starts, 200)]
        speed(texts, questions)


if __name__ == "__main__":
    main()
