"""The scores of a run by step: how good the model was after how many steps, as a table and a picture."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ragidx.indexer import atomic
from ragidx.pipelines.base import pictures
from ragidx.pipelines.experiments.train.decoders.folder import Run


@dataclass(frozen=True)
class StepScore:
    """The score after some steps of a run.

    Attributes:
        step: how many steps were made; 0: none yet.
        loss: the mean loss of the steps since the score before; None before the first step.
        score: the mean over the texts that were held out.
        gain_low: lower end of the 95 % interval of the difference from the score before the first step.
        gain_high: upper end of the same.
    """

    step: int
    loss: float | None
    score: float
    gain_low: float = 0.0
    gain_high: float = 0.0


def scores_of(run: Run) -> tuple[StepScore, ...]:
    """The scores of a run, in the order of its steps."""
    scores, losses = list[StepScore](), list[float]()
    for row in run.rows():
        if "loss" in row:
            losses.append(row["loss"])
        else:
            scores.append(StepScore(loss=float(np.mean(losses)) if losses else None, **row))
            losses.clear()
    return tuple(scores)


def draw(run: Run, scores: Sequence[StepScore]) -> None:
    """Write the scores by step as a table, and with the loss as a picture, where matplotlib is installed."""
    table = "".join(json.dumps(asdict(score)) + "\n" for score in scores)
    atomic.write_file(run.folder / "scores.jsonl", table.encode())
    if importlib.util.find_spec("matplotlib") is None:
        return
    rows = run.rows()
    with pictures.style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.5), layout="constrained")
        left = figure.subplots()
        right = left.twinx()
        for axis, name, colour in ((left, "loss", "C0"), (right, "score", "C1")):
            drawn = [(row["step"], row[name]) for row in rows if name in row]
            axis.plot(*zip(*drawn, strict=True), marker="o" if name == "score" else "", color=colour)
            axis.set_ylabel(name, color=colour)
        low, high = ([scores[0].score + gain for gain in gains] for gains in zip(*map(_ends, scores), strict=True))
        right.fill_between([score.step for score in scores], low, high, color="C1", alpha=0.2, linewidth=0)
        left.set_xlabel("step")
        atomic.write_file(run.folder / "log.svg", pictures.saved(figure, "svg"))


def _ends(score: StepScore) -> tuple[float, float]:
    return score.gain_low, score.gain_high
