"""How many steps a model needs: untouched, and after masked next-token prediction (LLM2Vec, figure 6).

    python benchmarks/papers/samples.py [--model smollm2] [--data pairs.jsonl] [--out samples.svg] [--limit 400]

Contrastive training on the same pairs, in the same order, from three starts: causal, both ways, and both ways after
MNTP on the bundled sample (`--text`: another corpus). The score is the mean reciprocal rank of held-out pairs, every
`--every` steps. Data: JSON lines of "query" and "positive"; made: the first two sentences of the sample's paragraphs.
Expect the model after MNTP to begin higher, or to need fewer steps for the score at which the others end.
"""

import json
import tempfile
from importlib import resources
from pathlib import Path

import common

import ragidx

SAMPLE = Path(str(resources.files("ragidx.corpora"))) / "sample" / "documents"


def main():
    parser = common.options(__doc__, 'pairs: JSON lines of "query" and "positive"', limit=240)
    parser.add_argument("--text", type=Path, default=SAMPLE, help="what MNTP learns from")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--every", type=int, default=5)
    said = parser.parse_args()
    shared = {
        "device": said.device,
        "layer": -1,
        "limit": said.limit,
        "batch": said.batch,
        "read_tokens": 64,
        "force": True,
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder, pairs, found = Path(temporary), said.data, {}
        if pairs is None:
            pairs = folder / "pairs.jsonl"
            made = [{"query": one, "positive": two} for blocks in common.paragraphs() for one, two, *_ in blocks]
            pairs.write_text("".join(json.dumps(pair) + "\n" for pair in made))
        ragidx.train.mntp(said.model, text=said.text, out=folder / "mntp", **shared)
        starts = {
            "causal": (said.model, "classical"),
            "both ways": (said.model, "llm2vec"),
            "both ways, after MNTP": (folder / "mntp", "llm2vec"),
        }
        for name, (model, method) in starts.items():
            run = {"pairs": [pairs], "method": method, "out": folder / name, "every": said.every}
            report = ragidx.train.contrastive(model, **shared | run)
            found[name] = [(one.step, one.score) for one in report.scores]
    steps = sorted({step for of in found.values() for step, _ in of})
    rows = [(step, *(dict(of).get(step, "") for of in found.values())) for step in steps]
    common.table(["step", *found], rows)
    with common.picture(said.out, figsize=(5, 3)) as figure:
        axes = figure.subplots()
        for name, of in found.items():
            axes.plot(*zip(*of, strict=True), marker="o", markersize=3, label=name)
        axes.set(xlabel="step", ylabel="mean reciprocal rank of held-out pairs")
        axes.legend(fontsize=7)


if __name__ == "__main__":
    common.run(main)
