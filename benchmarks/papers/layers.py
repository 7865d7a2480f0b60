"""The layers of a decoder: how alike their states are, and what each is worth (pooling and attention, figures 1 and 2).

    python benchmarks/papers/layers.py [--model smollm2] [--data stsb/dev.tsv] [--pooling mean] [--out layers.svg]

Figure 1: Spearman's correlation of the states of two layers, the EOS token's by default, as mean over the texts; the
picture has all pairs of layers, the table each layer with the one before it and with the last. Figure 2: of each layer
alone, Spearman's correlation of the cosine of two sentences with their score. Expect neighbours to be most alike, and
the best layer to be another than the last.
"""

import common
import numpy as np
from scipy.stats import rankdata, spearmanr


def alike(of_layers):
    """(L, L) Spearman's correlation of two layers' states, (L, n, d), as mean over the texts."""
    ranks = rankdata(of_layers, axis=2)
    ranks = (ranks - ranks.mean(axis=2, keepdims=True)) / ranks.std(axis=2, keepdims=True)
    return np.einsum("ind,jnd->ij", ranks, ranks, optimize=True) / (ranks.shape[1] * ranks.shape[2])


def main():
    parser = common.options(__doc__)
    parser.add_argument("--pooling", default="eos")
    said = parser.parse_args()
    scores, first, second = zip(*common.pairs(said), strict=True)
    of_layers = common.encoder(said, "classical", pooling=said.pooling).encode_layers([*first, *second])
    n, between = len(scores), alike(of_layers)
    worth = [float(spearmanr(common.cosines(layer[:n], layer[n:]), scores).statistic) for layer in of_layers]
    rows = [
        (layer + 1, float(between[layer, layer - 1]) if layer else "", float(between[layer, -1]), worth[layer])
        for layer in range(len(worth))
    ]
    common.table(["layer", "with the layer before", "with the last", f"Spearman, {n} pairs"], rows)
    print(f"\nbest: layer {np.argmax(worth) + 1} of {len(worth)}, {max(worth) - worth[-1]:+.3f} against the last")
    with common.picture(said.out, figsize=(9, 3.6)) as figure:
        left, right = figure.subplots(1, 2)
        ends = (0.5, len(worth) + 0.5)
        figure.colorbar(left.imshow(between, origin="lower", extent=(*ends, *ends), vmin=0, vmax=1), ax=left)
        left.set(xlabel="layer", ylabel="layer", title="Spearman of their states")
        right.plot(np.arange(1, len(worth) + 1), worth, marker="o", markersize=3)
        right.set(xlabel="layer", title=f"Spearman with the scores of {n} pairs")


if __name__ == "__main__":
    common.run(main)
