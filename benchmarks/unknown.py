"""Which texts a model does not know: the share of each language, and what that does to answers.

    python benchmarks/unknown.py [FILE] [--models mini mini-decoder] [--answers]

FILE is JSON Lines with "language" and "text", and perhaps "question", or lines of a language, a noun and a sentence
with tabs between; by default words/sentences.tsv. A text is unknown of which more than half of the characters are in
tokens that mean nothing to the model. With --answers, how many questions find their own text first in hybrid search
over the texts of their language: as it is, and with a vector for every text and question.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from figures import record

import ragidx
from ragidx.indexer.encoders.protocol import Encoder

SENTENCES = Path(__file__).parent / "words" / "sentences.tsv"


def texts_of(path):
    """Texts with their questions, by language."""
    found = {}
    for line in path.read_text("utf-8").splitlines():
        if path.suffix == ".jsonl":
            row = json.loads(line)
            language, question, text = row["language"], row.get("question"), row["text"]
        else:
            language, question, text = line.split("\t")
        found.setdefault(language, []).append((text, question))
    return found


def share(encoder, texts):
    return round(sum(map(encoder.tokenizer.is_unknown, texts)) / len(texts), 3) if texts else None


def first_hits(model, texts):
    """How many questions find their own text first."""
    with tempfile.TemporaryDirectory() as folder, ragidx.Index.create(Path(folder) / "index", model=model) as index:
        index.add([ragidx.Document(str(number), text) for number, (text, _) in enumerate(texts)])
        asked = {str(number): question for number, (_, question) in enumerate(texts) if question}
        answers = index.search_batch(list(asked.values()), k=1)
        return sum(hits[0].doc_id == name for name, hits in zip(asked, answers, strict=True) if hits)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=SENTENCES)
    parser.add_argument("--models", nargs="+", default=["mini", "mini-decoder"])
    parser.add_argument("--answers", action="store_true")
    given = parser.parse_args()
    by_language = texts_of(given.file)
    for model in given.models:
        encoder, values, asks = ragidx.load_encoder(model), {}, Encoder._unknown
        for language, texts in by_language.items():
            questions = [question for _, question in texts if question]
            values[language] = {
                "texts": share(encoder, [text for text, _ in texts]),
                "questions": share(encoder, questions),
            }
            if given.answers:
                values[language]["first"] = first_hits(model, texts)
                Encoder._unknown = lambda self, texts, rows: []
                values[language]["first, before"] = first_hits(model, texts)
                Encoder._unknown = asks
        record("unknown texts", values, model=model, texts=given.file.name, n=sum(map(len, by_language.values())))


if __name__ == "__main__":
    main()
