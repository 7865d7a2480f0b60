"""How much the wording of the prompt decides (echo embeddings, figure 3 and appendix D).

    python benchmarks/papers/prompts.py [--model smollm2] [--data stsb/dev.tsv] [--out prompts.svg]

Spearman's correlation on pairs with scores, with each of some wordings of the paper's appendix D, {text} in the place
of S: the mean over the wordings and their spread, beside the 95 % interval that the best one has by the choice of pairs
alone. Expect echo and classical to spread little, PromptEOL much, and echo above classical whatever the wording.
"""

import common
import numpy as np

import ragidx

TEMPLATES = {
    "classical": (
        *("Write a sentence I] {text}", "Write some text PROMPT- {text}", "Say a query QUERY: {text}"),
        *("COMPLETE THE QUERY text 0) {text}", "Complete the sentence:- {text}", "Explain a query text 0 {text}"),
    ),
    "echo": (
        "Repeat The Paragraph.\nquery 1) {text} .\nquery 2) {text}",
        "REPEAT THE SENTENCE :: PROMPT {text} :: RESPONSE {text}",
        "Rewrite the query — QUERY (A) {text} — (B) {text}",
        "Rewrite the text. SENTENCE A) {text} . B) {text}",
        "Rephrase the sentence: @ {text} :Again@ {text}",
        "Fill in the blank in the prompt: Query a) {text} : Query b) {text}",
    ),
    "prompteol": (
        "SUMMARIZE THE QUERY.\nPrompt: {text} IN A WORD.",
        "Summarize the sentence!\nPROMPT {text} Succinctly With One Word!",
        "CATEGORIZE THE PROMPT query\n{text} With a single word",
        "Understand the sentence\n@ {text} In a single word",
        "Understand The Prompt:QUERY [0] {text} in a single word:",
        "Analyze the sentence.\nSentence {text} In A Unique One-word Way.",
    ),
}


def measured(said, file, method, templates):
    """The row of each template."""
    how = {"model": said.model, "method": method, "filter": "none", "layer": -1, "template": templates}
    run = {"device": said.device, "dtype": said.dtype, "cache": None}
    return ragidx.evaluate(file, grid=ragidx.Grid(**how), **run).tasks[0].rows


def main():
    parser = common.options(__doc__)
    parser.add_argument("--wordings", type=int, default=6, help="of each method")
    said, rows, drawn = parser.parse_args(), [], {}
    with common.pairs_file(said) as file:
        for method, templates in TEMPLATES.items():
            found = measured(said, file, method, templates[: said.wordings])
            means = np.array([row.interval.mean for row in found])
            best = found[int(means.argmax())].interval
            rows.append(
                (
                    method,
                    len(means),
                    float(means.mean()),
                    float(means.std()),
                    float(means.min()),
                    best.mean,
                    f"{best.low:.3f} to {best.high:.3f}",
                )
            )
            drawn[method] = means
    common.table(["method", "wordings", "mean", "standard deviation", "worst", "best", "its 95 % interval"], rows)
    with common.picture(said.out, figsize=(5, 3)) as figure:
        axes = figure.subplots()
        axes.boxplot(list(drawn.values()))
        axes.set_xticks(range(1, len(drawn) + 1), list(drawn))
        axes.set_ylabel("Spearman, a point a wording")


if __name__ == "__main__":
    common.run(main)
