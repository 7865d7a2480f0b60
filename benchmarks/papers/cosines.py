"""What a state knows of later tokens, and what attention both ways does to states (LLM2Vec, figures 4, 5 and 7).

    python benchmarks/papers/cosines.py [--model smollm2] [--out cosines.svg]

Figure 4: a query and two sentences with its beginning, one like it and one not (table 10 of the echo paper, which
LLM2Vec takes, too); vectors are the mean over the words of the shared beginning alone. Causal states there are the same
in all three, so both cosines are 1; where later words come in, the like one is nearer.
Figure 5: the cosine of each token's state, causal and both ways, in every layer, on a paragraph of the bundled sample;
`--data FILE`: on the text of a file. `pooled` is the cosine of the means over the tokens.
"""

import json
from pathlib import Path

import common
import numpy as np

METHODS = ("classical", "echo", "reba", "llm2vec")


def shared(*sentences):
    """How many words the sentences have in common at their beginning."""
    same = [len(set(words)) == 1 for words in zip(*sentences, strict=False)]
    return same.index(False) if False in same else len(same)


def main():
    said = common.options(__doc__, "a text").parse_args()
    lines = Path(__file__).with_name("triples.jsonl").read_text("utf-8").splitlines()
    triples = [triple for triple in map(json.loads, lines) if triple["table"] == 10][: said.limit]
    words = [[triple[side].split() for side in ("query", "positive", "negative")] for triple in triples]
    rows, drawn = [], {}
    for method in METHODS:
        encoder = common.encoder(said, method)
        of_words = encoder.encode_words([sentence for triple in words for sentence in triple])
        starts = [shared(*triple) for triple in words for _ in triple]
        means = np.stack([vectors[:start].mean(axis=0) for vectors, start in zip(of_words, starts, strict=True)])
        like, unlike = (common.cosines(means[::3], means[at::3]) for at in (1, 2))
        drawn[method] = like, unlike
        rows.append(
            (
                method,
                *(float(part.mean()) for part in (like, unlike, like - unlike)),
                f"{(like > unlike + 1e-6).mean():.2f}",
            )
        )
    common.table(["beginnings alone", "cosine with the like", "with the unlike", "difference", "like nearer"], rows)
    text = said.data.read_text("utf-8") if said.data else " ".join(next(common.paragraphs())[0])
    both = [common.encoder(said, "classical", attention=one) for one in ("causal", "bidirectional")]
    ((one,), (other,)) = (encoder.encode_tokens([text], every_layer=True) for encoder in both)
    by_token, pooled = common.cosines(one, other), common.cosines(one.mean(axis=1), other.mean(axis=1))
    print()
    common.table(
        ["layer", "mean of the tokens", "least", "pooled"],
        [
            (layer + 1, float(of.mean()), float(of.min()), float(mean))
            for layer, (of, mean) in enumerate(zip(by_token, pooled, strict=True))
        ],
    )
    with common.picture(said.out, figsize=(9, 3.6)) as figure:
        left, right = figure.subplots(1, 2)
        for place, (like, unlike) in enumerate(drawn.values()):
            left.plot([place - 0.15] * len(like), like, "o", color="C0", alpha=0.5, label="like" * (not place))
            left.plot([place + 0.15] * len(unlike), unlike, "o", color="C1", alpha=0.5, label="unlike" * (not place))
        left.set_xticks(range(len(drawn)), list(drawn))
        left.set(title="cosine of shared beginnings")
        left.legend()
        extent = (-0.5, by_token.shape[1] - 0.5, 0.5, len(by_token) + 0.5)
        drawn_map = right.imshow(by_token, origin="lower", aspect="auto", vmin=0, vmax=1, extent=extent)
        figure.colorbar(drawn_map, ax=right)
        right.set(xlabel="token", ylabel="layer", title="cosine of states, causal and both ways")


if __name__ == "__main__":
    common.run(main)
