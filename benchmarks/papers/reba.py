"""Backward attention against repetition alone (ReBA, table 2: its main rows, poolings and number of copies).

    python benchmarks/papers/reba.py [--model smollm2] [--data stsb/dev.tsv] [--out reba.svg]

Classical, Echo-k and ReBA-k, k copies of the bare text, with last and with mean pooling, on pairs with scores; what is
compared has the same number of copies and the same pooling. p is by randomisation over the pairs, corrected for all
pairs of rows (Holm). Expect of last pooling ReBA-k far above Echo-k and classical, of the mean little between them.
"""

import common
import numpy as np

import ragidx

POOLINGS = ("last", "mean")


def main():
    parser = common.options(__doc__)
    parser.add_argument("--copies", type=int, default=3, help="at most")
    said = parser.parse_args()
    copies = list(range(1, said.copies + 1))
    grid = ragidx.Grid(
        model=said.model, method=["classical", "echo", "reba"], copies=copies, pooling=POOLINGS, layer=-1, filter="none"
    )
    run = {"device": said.device, "dtype": said.dtype, "cache": None}
    with common.pairs_file(said) as file:
        (task,) = ragidx.evaluate(file, grid=grid, judge=ragidx.Judge(all_pairs=True), **run).tasks
    for note in task.notes:
        print(note)
    made = [row.configuration for row in task.rows]
    places = {(one.method, one.copies or 1, one.pooling): at for at, one in enumerate(made)}
    means = {key: task.rows[at].interval.mean for key, at in places.items()}

    def against(key, other):
        """The difference of two rows, and its p."""
        apart = task.pairs[tuple(sorted((places[key], places[other]), reverse=True))]
        return f"{means[key] - means[other]:+.3f} (p {apart.p:.2g})"

    rows = []
    for method, k, pooling in sorted(means, key=lambda key: key[::-1]):
        others = (("echo", k, pooling), ("classical", 1, pooling)) if method == "reba" else ()
        key = (method, k, pooling)
        rows.append((*key, means[key], *(against(key, other) for other in others), *[""] * (2 - len(others))))
    n = f"Spearman, {task.n_documents} pairs"
    common.table(["method", "copies", "pooling", n, "against echo", "against classical"], rows)
    with common.picture(said.out, figsize=(5, 3)) as figure:
        axes = figure.subplots()
        for colour, method in enumerate(("reba", "echo", "classical")):
            for pooling, line in zip(POOLINGS, ("-", "--"), strict=True):
                found = sorted((k, mean) for (m, k, p), mean in means.items() if (m, p) == (method, pooling))
                axes.plot(*np.transpose(found), f"C{colour}o{line}", label=f"{method}, {pooling}")
        axes.set(xlabel="copies of the text", ylabel="Spearman", xticks=copies)
        axes.legend(fontsize=7)


if __name__ == "__main__":
    common.run(main)
