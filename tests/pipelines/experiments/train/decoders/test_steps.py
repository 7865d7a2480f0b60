"""How many steps a run makes, at which rate, on what, and within which memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.pipelines.experiments.train.decoders.data_sets import batches_of, data_sets
from ragidx.pipelines.experiments.train.decoders.inputs import steps_of
from ragidx.pipelines.experiments.train.decoders.optimizer import share_of_rate, steps_of_rise
from ragidx.pipelines.experiments.train.keywords import StepKeywords
from ragidx.pipelines.experiments.train.pairs import Pair, TrainingPairs, read_pairs

from .....raising import message_of
from .conftest import SMALL

pytestmark = pytest.mark.slow


def _steps(**options: Any) -> StepKeywords:
    return steps_of("", StepKeywords, options)


def _pairs(sizes: dict[str, int], weights: list[float] | None = None) -> TrainingPairs:
    every = [[Pair(f"q {name} {number}", f"p {name} {number}") for number in range(n)] for name, n in sizes.items()]
    return TrainingPairs.of([*sizes], every, weights or [])


def _rows(batches: list[list[int]]) -> list[int]:
    return [row for batch in batches for row in batch]


def test_steps_are_as_many_as_asked_for_and_what_is_seen_again_is_in_a_new_order() -> None:
    data = data_sets(_pairs({"a": 32}), None)

    batches = batches_of(data, _steps(batch=8, steps=10))

    assert len(batches) == 10
    first, second = batches[:4], batches[4:8]
    assert [sorted(_rows(part)) for part in (first, second)] == [list(range(32))] * 2
    assert first != second
    assert batches[:3] == batches_of(data, _steps(batch=8, steps=3))
    assert batches[:4] == batches_of(data, _steps(batch=8))


def test_batches_of_a_file_come_as_often_as_its_weight_says() -> None:
    data = data_sets(_pairs({"a": 40, "b": 80, "c": 80}), None)

    batches = batches_of(data, _steps(batch=8, epochs=2), {"a": 2.0, "b": 0.25, "c": 1.5})

    sets = Counter(np.searchsorted([40, 120, 200], batch[0], side="right").item() for batch in batches)
    assert sets == {0: 2 * 2 * 5, 1: 2 * 3, 2: 2 * 15}  # 10 * 0.25 is rounded to 3
    seen = Counter(_rows(batches))
    assert {seen[place] for place in range(40)} == {4}
    assert {seen[place] for place in range(120, 200)} == {2, 3, 4}


def test_a_head_sees_the_pairs_of_a_file_as_often() -> None:
    pairs = _pairs({"a": 300, "b": 300}, [3, 0.5])

    seen = Counter(int(pairs.groups[batch[0]]) for batch in pairs.batches(1, 0))

    assert seen == {0: 3 * 2, 1: 1}  # batches of 256


def test_a_weight_is_written_behind_the_name_of_a_file_or_folder_unless_that_is_its_name(pairs: Path) -> None:
    (pairs / "x=3").write_text((pairs / "two.jsonl").read_text())

    read = read_pairs([f"{pairs / 'one.jsonl'}=2", pairs / "x=3", f"{pairs / 'x=3'}=0.5", f"{pairs}=4"])

    assert [name.rpartition("/")[2] for name in read.names] == ["one.jsonl", "x=3", "x=3", "one.jsonl", "two.jsonl"]
    assert read.weights == (2, 1, 0.5, 4, 4)
    held, rest = read.held_and_rest(None, 0)
    assert held.weights == rest.weights == read.weights


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "1e9", "two", ""])
def test_a_weight_that_is_none_is_refused(weight: str, pairs: Path) -> None:
    file = pairs / "one.jsonl"

    assert message_of(SpecError, lambda: read_pairs([f"{file}={weight}"])) == (
        f"`pairs`: '{weight}' is no weight of a file\n  hint: give a number above 0, 1,000 at most: {file}=2"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 0}, "`steps`: steps=0 is out of range\n  hint: give 1 or more"),
        ({"steps": 9, "epochs": 1}, "`steps`: `epochs` says how long, too\n  hint: give one of the two"),
        ({"steps": 9, "minutes": 1.0}, "`steps`: `minutes` says how long, too\n  hint: give one of the two"),
        ({"warmup": -0.1}, "`warmup`: warmup=-0.1 is out of range\n  hint: give 0 or more"),
        ({"warmup": float("nan")}, "`warmup`: warmup=nan is out of range\n  hint: give 0 or more"),
        ({"warmup": float("inf")}, "`warmup`: warmup=inf is no number of steps\n  hint: give 0 or more"),
    ],
)
def test_steps_that_cannot_be_made_are_refused(options: dict[str, Any], said: str) -> None:
    assert message_of(SpecError, lambda: _steps(**options)) == said


def test_the_rate_rises_for_as_many_steps_as_asked_for() -> None:
    rates = [share_of_rate(step, 1_000, steps_of_rise(300, 1_000)) for step in range(1_000)]

    assert int(np.argmax(rates)) == 300
    assert rates[0] == pytest.approx(1 / 301)
    assert rates[-1] == pytest.approx(1 / 700)
    assert [steps_of_rise(warmup, 20) for warmup in (0, 0.1, 0.25, 0.999, 1, 19)] == [0, 2, 5, 19, 1, 19]
    assert message_of(SpecError, lambda: steps_of_rise(300, 20)) == (
        "`warmup`: the rate would rise for 300 steps, and the run has 20\n"
        "  hint: give fewer than 20, or a share such as 0.1"
    )


@pytest.mark.parametrize("stage", ["contrastive", "simcse", "mntp"])
def test_a_run_makes_the_steps_at_the_rates_that_were_asked_for(
    stage: str, pairs: Path, text: Path, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    learnt = {"pairs": [f"{pairs / 'one.jsonl'}=2", pairs / "two.jsonl"]} if stage == "contrastive" else {"text": text}
    options: dict[str, Any] = {**SMALL, **learnt, "method": "llm2vec", "batch": 32, "steps": 5, "warmup": 3}

    report = getattr(ragidx.train, stage)(tiny_model(), out=tmp_path / "out", force=True, every=2, **options)

    rows = [json.loads(line) for line in (tmp_path / "out" / "training" / "log.jsonl").read_text().splitlines()]
    shares = [row["rate"] / SMALL["rate"] for row in rows if "loss" in row]
    assert shares == pytest.approx([1 / 4, 2 / 4, 3 / 4, 1, 1 / 2])
    assert [one.step for one in report.scores] == [0, 2, 4, 5]


@pytest.mark.parametrize("stage", ["contrastive", "mntp"])
def test_states_are_made_again_where_one_text_does_not_fit_and_the_losses_are_the_same(
    stage: str,
    pairs: Path,
    text: Path,
    tiny_model: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learnt: dict[str, Any] = {"pairs": pairs} if stage == "contrastive" else {"text": text}
    options = {**SMALL, **learnt, "method": "llm2vec", "steps": 3, "force": True, "dtype": "float32", "dropout": 0.0}
    whole = getattr(ragidx.train, stage)(tiny_model(), out=tmp_path / "whole", **options)
    monkeypatch.setattr("ragidx.pipelines.experiments.train.decoders.cost._available", lambda: 100_000)

    report = getattr(ragidx.train, stage)(tiny_model(), out=tmp_path / "again", **options)

    plans = [json.loads((tmp_path / name / "training" / "run.json").read_text()) for name in ("whole", "again")]
    assert [plan["recompute"] for plan in plans] == [False, True]
    assert plans[1]["bytes_a_token"] < 0.8 * plans[0]["bytes_a_token"]
    assert plans[1]["mini_batch"] == 1
    again = "One text would take half of the free memory: states are made twice (gradient checkpointing)."
    assert (again in whole.notes, again in report.notes) == (False, True)
    assert report.last_loss == pytest.approx(whole.last_loss, rel=1e-5)  # without dropout
