"""What commands say of a new state that is shown to be worse than the old one, but not by more than the margin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragidx.pipelines.cli import adapt, train_frozen, upgrade
from ragidx.pipelines.experiments.evaluate.tasks import Judged
from ragidx.pipelines.experiments.train.frozen import Score
from ragidx.pipelines.experiments.trials.adapt import AdaptReport
from ragidx.pipelines.experiments.trials.questions import QuestionsReport
from ragidx.pipelines.experiments.trials.trial import NOT_BETTER, Comparison
from ragidx.pipelines.experiments.trials.upgrade import UpgradeReport
from ragidx.pipelines.ingest.report import BuildReport

N = 200


def comparison(loss: float) -> Comparison:
    """Of queries of which each eighth loses something, and as many gain where `loss` is 0."""
    apart = np.zeros(N)
    apart[::8] = -loss or 0.1
    apart[1::8] = 0 if loss else -0.1
    return Comparison.of(np.full(N, 0.5), 0.5 + apart, Judged(dict.fromkeys(map(str, range(N)), "x"), {}), 0.005)


@pytest.mark.parametrize(
    ("loss", "swapped", "questions", "committed"),
    [
        (
            0.05,
            "no: the new one is worse, and a loss of more than 0.005 cannot be ruled out",
            "by the model (the table is worse); `ragidx query --questions table` takes the table",
            "no: answers are worse; --force commits it all the same",
        ),
        (
            0,
            "no: a loss of more than 0.005 cannot be ruled out; if both are equally good, "
            "some 622 queries would show it",
            "by the model (the table is not shown to be as good); `ragidx query --questions table` takes the table",
            "no: answers are not shown to be better; --force commits it all the same",
        ),
    ],
)
def test_a_loss_that_is_shown_is_called_one(loss: float, swapped: str, questions: str, committed: str) -> None:
    found = comparison(loss)
    assert found.verdict == "undecided"
    scores = (Score("a", 8, 0.5, None), Score("b", 8, 0.5, None))

    of_index: dict[str, Any] = {"index": "i", "generation": 2, "comparison": found, "committed": False}
    spent = {"encoding_seconds": 1.0, "training_seconds": 1.0}
    counts = dict.fromkeys(("n_chunks", "n_texts", "n_tokens", "n_pairs", "n_bytes"), 9)

    upgraded = UpgradeReport(**of_index, verdict="undecided", before="a", after="b", build=BuildReport(index="i"))
    asked = QuestionsReport(
        **of_index, verdict="undecided", questions="model", **counts, table_ms=1.0, model_ms=2.0, training_seconds=1.0
    )
    adapted = AdaptReport(
        **of_index, verdict=NOT_BETTER, is_mapped=True, pairs={}, n_dropped=0, scores=scores, weight=None, **spent
    )

    assert upgrade._verdict(upgraded) == swapped
    assert dict(train_frozen._of_questions(asked))["questions"] == questions
    assert dict(adapt._fields(adapted))["committed"] == committed
