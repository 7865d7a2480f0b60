"""Linear probes on the vectors of words that a frozen decoder gives (LLM2Vec, figure 2 and table 4; ReBA, word tasks).

    python benchmarks/papers/word_probes.py [--model smollm2] [--data conll.tsv] [--out probes.svg]

A linear classifier (ridge regression onto the tags) learns the tag of each word from its vector, on 70 % of the
sentences; the rest is the test. Data: a word, a tab and its tag a line, a blank line between sentences, or JSON lines
{"words": [...], "tags": [...]}. The made set has words that the words to their right decide: "The cold water moved",
"The cold moved". A causal state cannot know; a second copy, or attention both ways, can. Expect of words with several
tags in the data: classical no better than their commonest tag, echo far above it.
"""

import json

import common
import numpy as np

import ragidx

METHODS = ("classical", "echo", "reba", "llm2vec")
WORDS = (
    "cold light dark calm human metal adult official individual original solid liquid square secret",  # both
    "water box house river window garden letter table coat stone machine picture boat song",
    "fell moved changed remained vanished appeared grew returned shone waited",
)
TAILS = ("near/PREP the/DET door/NOUN", "after/PREP noon/NOUN", "slowly/ADV", "again/ADV")


def made(n):
    """Sentences of words with tags."""
    draw = np.random.default_rng(0)
    for _ in range(n):
        both, noun, verb = (draw.choice(words.split()) for words in WORDS)
        subject = f"{both}/ADJ {noun}/NOUN" if draw.random() < 0.5 else f"{both}/NOUN"
        tagged = f"{draw.choice(['The', 'This', 'Every'])}/DET {subject} {verb}/VERB {draw.choice(TAILS)}"
        yield [tuple(word.split("/")) for word in tagged.split()]


def read(path):
    """Sentences of a file; a row that is no word with its tag is refused."""
    text, sentences = path.read_text("utf-8"), [[]]
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("{"):
            row = json.loads(line)
            words, tags = row.get("words", ()), row.get("tags", ())
            if len(words) != len(tags) or not words:
                what, where = f"{len(words)} words have {len(tags)} tags", f"{path}:{number}"
                raise ragidx.CorpusError(what, 'give each word one: {"words": [...], "tags": [...]}', where=where)
            sentences.append(list(zip(words, tags, strict=True)))
        elif not line.strip():
            sentences.append([])
        elif len(cells := line.split("\t")) != 2 or not all(map(str.strip, cells)):
            what = f"the row has {len(cells)} columns, or an empty one"
            raise ragidx.CorpusError(what, "give a word, a tab and its tag", where=f"{path}:{number}")
        else:
            sentences[-1].append(tuple(cells))
    return [sentence for sentence in sentences if sentence]


def main():
    said = common.options(__doc__, "words with tags, as above", limit=400).parse_args()
    sentences = (list(made(said.limit)) if said.data is None else read(said.data))[: said.limit]
    words = [[word for word, _ in sentence] for sentence in sentences]
    flat, tags = zip(*(pair for sentence in sentences for pair in sentence), strict=True)
    names, wanted = np.unique(tags, return_inverse=True)
    tests = np.random.default_rng(1).random(len(sentences)) < 0.3
    tests = np.repeat(tests, [len(sentence) for sentence in sentences])
    counts = np.zeros((len(set(flat)), len(names)), int)
    places = np.unique(flat, return_inverse=True)[1]
    np.add.at(counts, (places, wanted), 1)
    several = ((counts > 0).sum(axis=1) > 1)[places]
    rows = [("the word's commonest tag", counts.argmax(axis=1)[places])]
    for method in METHODS:
        vectors = np.concatenate(common.encoder(said, method).encode_words(words)).astype(np.float64)
        scaled = (vectors - vectors[~tests].mean(axis=0)) / (vectors[~tests].std(axis=0) + 1e-6)
        inputs = np.hstack([scaled, np.ones((len(scaled), 1))])
        gram = inputs[~tests].T @ inputs[~tests] + len(inputs) / 100 * np.eye(inputs.shape[1])
        weights = np.linalg.solve(gram, inputs[~tests].T @ np.eye(len(names))[wanted[~tests]])
        rows.append((method, (inputs @ weights).argmax(axis=1)))
    of = [some for some in (tests, tests & several) if some.any()]
    right = [(name, *(float((found == wanted)[some].mean()) for some in of)) for name, found in rows]
    heads = [f"{some.sum():,} words{which}" for some, which in zip(of, ("", " with several tags"), strict=False)]
    common.table(["method", *heads], right)
    with common.picture(said.out, figsize=(5, 3)) as figure:
        axes = figure.subplots()
        for place, label in enumerate(heads, start=1):
            axes.bar(np.arange(len(right)) + 0.4 * place, [row[place] for row in right], 0.38, label=label)
        axes.set_xticks(np.arange(len(right)) + 0.6, ["commonest", *METHODS])
        axes.set_ylabel("accuracy")
        axes.legend(loc="lower right")


if __name__ == "__main__":
    common.run(main)
