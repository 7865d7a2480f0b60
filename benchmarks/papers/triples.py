"""Where classical embeddings fail and echo does not (echo embeddings: figure 2, tables 8 to 11, figure 6 of E.2).

    python benchmarks/papers/triples.py [--model smollm2] [--data stsb/dev.tsv] [--out ranks.svg]

1. The triples of tables 8, 9 and 10 (triples.jsonl): the share in which the query is nearer to the positive sentence
than to the negative one. In tables 8 and 10 the negative shares its beginning with the query, in table 9 its end.
2. E.2 on pairs with scores: those of the tenth whose first halves are most alike, and of the tenth of second halves (by
the bundled `mini`; the paper takes bge-base). A pair's error is its rank by cosine less its rank by score, as share of
all pairs: above 0, the cosine is too high. Expect of classical a higher error for first halves, of echo no difference.
3. Table 11: the pairs whose error echo makes smaller, or larger, the most.
"""

import json
from pathlib import Path

import common
import numpy as np
from scipy.stats import rankdata

import ragidx

METHODS = {
    **{"classical, mean": ("classical", "mean"), "classical, last": ("classical", "last")},
    **{"echo, mean": ("echo", "mean"), "llm2vec": ("llm2vec", "mean"), "reba": ("reba", "mean")},
    "prompteol": ("prompteol", "last"),
}
SHOWN = 3  # pairs of table 11, at each end


def halves(text):
    words = text.split()
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


def main():
    said = common.options(__doc__).parse_args()
    lines = Path(__file__).with_name("triples.jsonl").read_text("utf-8").splitlines()
    triples, tables = [json.loads(line) for line in lines], (8, 9, 10)
    scores, *sides = zip(*common.pairs(said), strict=True)
    judge, n = ragidx.load_embedder("mini"), len(scores)
    parts = [[judge.embed_document(part) for part in zip(*map(halves, side), strict=True)] for side in sides]
    tenths = [np.argsort(-(one * other).sum(axis=1))[: max(1, n // 10)] for one, other in zip(*parts, strict=True)]
    rows, errors = [], {}
    for name, (method, pooling) in METHODS.items():
        encoder = common.encoder(said, method, pooling=pooling)
        query, positive, negative = (
            encoder.encode_document([triple[side] for triple in triples]) for side in ("query", "positive", "negative")
        )
        right = common.cosines(query, positive) > common.cosines(query, negative)
        shares = [float(np.mean([r for r, t in zip(right, triples, strict=True) if t["table"] == k])) for k in tables]
        one, other = (encoder.encode_document(side) for side in sides)
        errors[name] = (rankdata(common.cosines(one, other)) - rankdata(scores)) / n
        early, late = (float(errors[name][places].mean()) for places in tenths)
        rows.append((name, *shares, early, late, early - late))
    of = ["table 8", "table 9", "table 10", "error, first halves alike", "second halves alike", "difference"]
    common.table(["method", *of], rows)
    classical, echo = errors["classical, mean"], errors["echo, mean"]
    better = np.argsort(np.abs(echo) - np.abs(classical))
    print()
    common.table(
        ["score", "error classical", "error echo", "sentence 1", "sentence 2"],
        [
            (scores[at], float(classical[at]), float(echo[at]), sides[0][at], sides[1][at])
            for at in (*better[:SHOWN], *better[-SHOWN:])
        ],
    )
    with common.picture(said.out, figsize=(8, 3)) as figure:
        for axes, (name, error) in zip(
            figure.subplots(1, 2, sharey=True), (("classical, mean", classical), ("echo, mean", echo)), strict=True
        ):
            for places, label in zip(tenths, ("first halves alike", "second halves alike"), strict=True):
                axes.hist(error[places], bins=np.linspace(-1, 1, 21), alpha=0.5, label=label)
            axes.set(title=name, xlabel="rank by cosine less rank by score")
        axes.legend()


if __name__ == "__main__":
    common.run(main)
