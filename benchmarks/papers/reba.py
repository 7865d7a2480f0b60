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
    places = {
        (row.configuration.method, row.configuration.copies or 1, row.configuration.pooling): at
        for at, row in enumerate(task.rows)
    }
    means = {key: task.rows[at].interval.mean for key, at in places.items()}

    def against(key, other):
        """The difference of two rows, and its p."""
        one, two = sorted((places[key], places[other]), reverse=True)
        apart = task.pairs[one, two]
        return f"{means[key] - means[other]:+.3f} (p {apart.p:.2g})"

    rows = []
    for (method, k, pooling), mean in sorted(means.items(), key=lambda one: (one[0][2], one[0][1], one[0][0])):
        key = (method, k, pooling)
        echo, classical = ("echo", k, pooling), ("classical", 1, pooling)
        rows.append(
            (
                method,
                k,
                pooling,
                mean,
                *(against(key, of) if key[0] == "reba" and of in places else "" for of in (echo, classical)),
            )
        )
    common.table(
        ["method", "copies", "pooling", f"Spearman, {task.n_documents} pairs", "against echo", "against classical"],
        rows,
    )
    with common.picture(said.out, figsize=(5, 3)) as figure:
        axes = figure.subplots()
        for (method, pooling), style in zip(
            [(m, p) for m in ("reba", "echo", "classical") for p in POOLINGS],
            ("C0-o", "C0--o", "C1-s", "C1--s", "C2-^", "C2--^"),
            strict=True,
        ):
            found = sorted((k, mean) for (m, k, p), mean in means.items() if (m, p) == (method, pooling))
            axes.plot(*np.transpose(found), style, label=f"{method}, {pooling}")
        axes.set(xlabel="copies of the text", ylabel="Spearman", xticks=copies)
        axes.legend(fontsize=7)


if __name__ == "__main__":
    common.run(main)
