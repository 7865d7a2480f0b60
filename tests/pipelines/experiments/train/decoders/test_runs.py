"""A run: what is kept of it, how it resumes after a kill, and what it refuses."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ragidx
from ragidx.corpora.errors import ModelError, RagidxError, SpecError
from ragidx.indexer.encoders import precision
from ragidx.pipelines.experiments.train.decoders.cost import fitting
from ragidx.pipelines.experiments.train.decoders.folder import Run
from ragidx.pipelines.experiments.train.decoders.optimizer import Masters, share_of_rate
from ragidx.pipelines.experiments.train.decoders.runs import Watch
from ragidx.pipelines.experiments.train.frozen import reciprocal_ranks

from .....raising import message_of
from .conftest import SMALL, write_pairs

pytestmark = pytest.mark.slow

LOSSES = "training/log.jsonl"
OPTIONS: dict[str, Any] = {"method": "prompteol", "every": 2, **SMALL}


@pytest.fixture
def train(pairs: Path, tiny_model: Callable[..., Path], tmp_path: Path) -> Callable[..., Any]:
    """`train(name, **options)`: a run on pairs, to a folder of this name."""

    def run(name: str, **options: Any) -> Any:
        return ragidx.train.contrastive(tiny_model(), pairs=pairs, out=tmp_path / name, **{**OPTIONS, **options})

    return run


@dataclass(frozen=True)
class Whole:
    """`train(name, force=True)` that nothing interrupts: what it wrote, reported, and said of its stages."""

    folder: Path
    report: Any
    stages: list[str]

    @property
    def weights(self) -> bytes:
        return _weights(self.folder)


@pytest.fixture(scope="module")
def whole(tiny_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Whole:
    place, stages = tmp_path_factory.mktemp("whole"), list[str]()
    pairs, said = write_pairs(place / "pairs"), lambda stage: stages.append(stage.name)
    report = ragidx.train.contrastive(
        tiny_model(), pairs=pairs, out=place / "model", force=True, on_progress=said, **OPTIONS
    )
    return Whole(place / "model", report, stages)


@pytest.fixture(scope="module")
def stopped(tiny_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `train(name, force=True)` that was killed at step 7."""
    place = tmp_path_factory.mktemp("stopped")
    with _killed_at(7):
        ragidx.train.contrastive(
            tiny_model(), pairs=write_pairs(place / "pairs"), out=place / "model", force=True, **OPTIONS
        )
    return place / "model"


class _Killed(Exception):
    pass


@contextlib.contextmanager
def _killed_at(step: int) -> Iterator[None]:
    begin = Watch.on_step_begin

    def end(self: Watch, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        begin(self, args, state, control, **kwargs)
        if state.global_step == step:
            raise _Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Watch, "on_step_begin", end)
        with pytest.raises(_Killed):
            yield


@pytest.fixture
def killed(train: Callable[..., Any]) -> Callable[..., None]:
    """`killed(name, step, **options)`: as `train`, but the run ends when this step begins."""

    def run(name: str, step: int, **options: Any) -> None:
        with _killed_at(step):
            train(name, **options)

    return run


def _weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_that_resumes_ends_with_the_same_weights_losses_and_scores(
    dtype: str, train: Callable[..., Any], killed: Callable[..., None], tmp_path: Path
) -> None:
    whole = train("whole", dtype=dtype, force=True)
    killed("parts", 5, dtype=dtype, force=True)
    assert (tmp_path / "parts" / "training" / "checkpoint-4").is_dir()

    parts = train("parts", dtype=dtype, force=True)

    assert _weights(tmp_path / "parts") == _weights(tmp_path / "whole")
    assert (parts.steps, parts.best_step, parts.after) == (whole.steps, whole.best_step, whole.after)
    assert (parts.first_loss, parts.last_loss) == (whole.first_loss, whole.last_loss)
    left = sorted(path.name for path in (tmp_path / "parts" / "training").iterdir())
    assert left == [
        *("adapter_config.json", "adapter_model.safetensors", "log.jsonl", "log.svg"),
        *("run.json", "scores.jsonl", "training.json"),
    ]


@pytest.mark.parametrize("damage", ["empty", "optimizer.pt", "trainer_state.json", "weights.safetensors"])
def test_a_checkpoint_that_is_not_whole_is_left_for_the_one_before(
    damage: str, train: Callable[..., Any], stopped: Path, whole: Whole, tmp_path: Path
) -> None:
    shutil.copytree(stopped, tmp_path / "parts")
    newest = tmp_path / "parts" / "training" / "checkpoint-6"
    if damage == "empty":
        shutil.rmtree(newest)
        newest.mkdir()
    elif damage == "trainer_state.json":
        (newest / damage).unlink()
    else:
        data = (newest / damage).read_bytes()
        (newest / damage).write_bytes(data[: len(data) // 2])

    train("parts", force=True)

    assert _weights(tmp_path / "parts") == whole.weights


def test_a_disk_that_is_full_at_a_checkpoint_ends_in_one_error_and_the_run_resumes_when_there_is_room(
    train: Callable[..., Any], killed: Callable[..., None], whole: Whole, tmp_path: Path
) -> None:
    killed("parts", 3, force=True)
    kept = tmp_path / "parts" / "training"
    most = (kept / "best.safetensors").stat().st_size * 3 // 2  # the optimizer's two numbers a weight are more
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        with pytest.raises(RagidxError) as caught:
            train("parts", force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert str(caught.value).startswith(f"{kept}: a checkpoint cannot be written: ")
    assert str(caught.value).endswith("hint: make room and give the same command: it resumes at the last checkpoint")

    train("parts", force=True)

    assert _weights(tmp_path / "parts") == whole.weights


def test_a_run_of_other_options_does_not_resume(
    train: Callable[..., Any], killed: Callable[..., None], tmp_path: Path
) -> None:
    killed("out", 1)

    said = message_of(SpecError, lambda: train("out", rate=1e-3))

    assert said == (
        f"{tmp_path / 'out'}: the folder holds a run that differs in: rate\n"
        "  hint: name another with `out`, or remove it"
    )


@pytest.mark.parametrize("more", [{}, {"minutes": 1e-6}], ids=["a pass", "a part of a pass"])
def test_a_run_that_is_killed_while_the_model_is_written_writes_it_again(
    more: dict[str, Any], train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = functools.partial(train, **more)
    train("whole", force=True)
    with monkeypatch.context() as patched:
        patched.setattr("ragidx.pipelines.experiments.train.decoders.network.save_tokenizer", _end)
        with pytest.raises(_Killed):
            train("parts", force=True)

    report = train("parts", force=True)

    assert _weights(tmp_path / "parts") == _weights(tmp_path / "whole")
    assert report.steps == report.of_steps
    assert message_of(SpecError, lambda: train("parts", force=True)) == (
        f"{tmp_path / 'parts'}: the model is there already\n  hint: name another folder with `out`"
    )


def _end(*args: object) -> None:
    raise _Killed


def test_a_number_format_that_nothing_is_trained_in_is_refused(train: Callable[..., Any]) -> None:
    assert message_of(SpecError, lambda: train("out", dtype="mixed")) == (
        "`dtype`: nothing is trained in mixed\n  hint: use float32 or bfloat16"
    )


def test_a_folder_of_something_else_is_left_alone(train: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    assert message_of(SpecError, lambda: train("out")) == (
        f"{tmp_path / 'out'}: there is something else in this place\n  hint: name another folder with `out`"
    )


def test_a_model_that_is_no_better_is_written_only_where_asked(train: Callable[..., Any], tmp_path: Path) -> None:
    worse = {"rate": 1e-9, "epochs": 1}

    report = train("out", **worse)

    assert (report.folder, report.best_step, report.before) == (None, 0, report.after)
    assert report.notes == (
        "By the pairs that were held out no step is better than the start: `force=True` writes the last.",
    )
    assert not (tmp_path / "out" / "config.json").exists()
    assert train("out", force=True, **worse).folder == str(tmp_path / "out")


def test_the_score_before_the_first_step_is_the_first_row_of_the_log(whole: Whole) -> None:
    report = whole.report
    rows = [json.loads(line) for line in (whole.folder / LOSSES).read_text().splitlines()]
    assert rows[0] == {"step": 0, "score": report.before}
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, report.of_steps + 1))
    assert [row["step"] for row in rows if "score" in row][1] == 2
    steps = report.of_steps
    rates = [SMALL["rate"] * share_of_rate(step, steps, rising=round(steps / 10)) for step in range(steps)]
    assert [row["rate"] for row in rows if "loss" in row] == pytest.approx(rates)
    assert min(rates) > 0


def test_the_scores_by_step_are_a_table_with_the_loss_between_them_and_drawn(whole: Whole) -> None:
    report, training = whole.report, whole.folder / "training"
    rows = [json.loads(line) for line in (training / "scores.jsonl").read_text().splitlines()]
    losses = [json.loads(line) for line in (training / "log.jsonl").read_text().splitlines() if '"loss"' in line]

    assert rows == list(report.to_json()["scores"])
    assert [row["step"] for row in rows] == [*range(0, report.of_steps, 2), report.of_steps]
    assert (rows[0]["loss"], rows[0]["score"]) == (None, report.before)
    assert rows[1]["loss"] == pytest.approx(np.mean([row["loss"] for row in losses[:2]]))
    assert max(row["score"] for row in rows) == report.after
    best = next(row for row in rows if row["step"] == report.best_step)
    assert (best["gain_low"], best["gain_high"]) == (report.gain.low, report.gain.high)
    assert (training / "log.svg").is_file()


def test_progress_says_loss_and_speed(whole: Whole) -> None:
    report = whole.report
    steps = [name for name in whole.stages if name.startswith("step ")]
    assert steps[0] == f"step 1 of {report.of_steps}"
    shape = rf"step \d+ of {report.of_steps}, loss \d+\.\d{{3}}, [\d,]+ tokens/s"
    assert all(re.fullmatch(shape, name) for name in steps[1:])
    assert len(steps) == report.of_steps


def test_a_loss_that_is_no_number_ends_the_run(train: Callable[..., Any], tmp_path: Path) -> None:
    said = message_of(ModelError, lambda: train("out", rate=1e38, epochs=4))

    assert "no number" in said
    assert said.endswith("hint: give a lower `rate`, or `dtype=float32`, in another folder")
    assert not (tmp_path / "out" / "config.json").exists()


def test_vectors_that_are_all_alike_score_nothing() -> None:
    alike, texts = np.ones((4, 3), np.float32), ["a", "b", "c", "c"]

    assert reciprocal_ranks(alike, alike, texts).tolist() == [1 / 4, 1 / 4, 1 / 3, 1 / 3]
    assert reciprocal_ranks(np.eye(4), np.eye(4), list("abcd")).tolist() == [1.0] * 4


def test_pairs_in_other_files_are_other_data(
    train: Callable[..., Any], killed: Callable[..., None], pairs: Path, tmp_path: Path
) -> None:
    killed("out", 1)
    (pairs / "one.jsonl").write_text("".join((pairs / name).read_text() for name in ("one.jsonl", "two.jsonl")))
    (pairs / "two.jsonl").unlink()

    said = message_of(SpecError, lambda: train("out"))

    assert said.startswith(f"{tmp_path / 'out'}: the folder holds a run that differs in: data\n")


def test_patience_ends_a_run_that_gains_nothing_which_makes_no_more_steps_later(train: Callable[..., Any]) -> None:
    impatient = {"rate": 1e-9, "epochs": 4, "patience": 2}
    first = train("out", **impatient)
    assert first.steps == 4
    assert first.of_steps > 8

    again = train("out", force=True, **impatient)

    assert (again.steps, again.last_loss) == (first.steps, first.last_loss)
    assert again.folder is not None


def test_the_same_run_under_another_name_of_the_model_resumes(
    pairs: Path, killed: Callable[..., None], tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    killed("out", 3, force=True)
    shutil.copytree(tiny_model(), tmp_path / "copy")

    report = ragidx.train.contrastive(
        tmp_path / "copy", pairs=pairs, out=tmp_path / "out", method="prompteol", every=2, force=True, **SMALL
    )

    assert report.steps == report.of_steps
    made = json.loads((tmp_path / "out" / "training" / "training.json").read_text())
    assert made["model"] == str(tmp_path / "copy")


def test_a_second_gpu_is_chosen_by_the_environment(train: Callable[..., Any]) -> None:
    assert message_of(SpecError, lambda: train("out", device="cuda:1")) == (
        "`device`: a run takes the first GPU that it sees\n  hint: set CUDA_VISIBLE_DEVICES=1 and use `device=cuda`"
    )


def test_minutes_bound_the_steps(train: Callable[..., Any]) -> None:
    stages: list[str] = []

    report = train("out", epochs=1000, minutes=1e-6, force=True, on_progress=lambda stage: stages.append(stage.name))

    assert report.of_steps == 1
    before = stages[: stages.index(next(name for name in stages if name.startswith("step 1 of 1")))]
    assert before[-1].endswith("s, more than 1e-06 min: interrupt, and take a smaller batch")


def test_as_many_texts_fit_as_half_of_the_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragidx.pipelines.experiments.train.decoders.cost._available", lambda: 2_000_000)
    monkeypatch.setattr("ragidx.pipelines.experiments.train.decoders.cost.free_bytes", lambda: None)

    assert [fitting(size, 100, 64, "cpu") for size in (1, 1_000, 100_000)] == [32, 10, 1]


def test_small_steps_add_up_in_bfloat16() -> None:
    steps = 64
    plain, weight = (torch.nn.Parameter(torch.ones(4, dtype=dtype)) for dtype in (torch.float32, torch.bfloat16))
    optimizers = torch.optim.AdamW([plain], lr=1e-4, weight_decay=0), Masters([weight], lr=1e-4, weight_decay=0)
    for _ in range(steps):
        for one, optimizer in zip((plain, weight), optimizers, strict=True):
            one.grad = torch.ones_like(one)
            optimizer.step()
            optimizer.zero_grad()

    assert torch.equal(weight, plain.bfloat16())
    assert float(weight[0].detach()) < 1  # one such step is less than bfloat16 can tell

    other = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    again = Masters([other], lr=1e-4, weight_decay=0)
    again.load_state_dict(optimizers[1].state_dict())
    assert torch.equal(other, weight)
    for one, optimizer in ((weight, optimizers[1]), (other, again)):
        one.grad = torch.ones_like(one)
        optimizer.step()
    assert torch.equal(again.state_dict()["copies"][0], optimizers[1].state_dict()["copies"][0])


# Of more than six steps, of which the fifth is in the second pass where `steps` are more than one has.
STAGES = {"contrastive": {"steps": 8, "batch": 16}, "simcse": {"epochs": 2}, "mntp": {"steps": 8, "batch": 16}}
# The libraries are loaded once; each stage runs in a fork, which is killed at the fifth step.
_KILLED = """
import json, os, signal, sys
import peft, sentence_transformers, transformers.trainer
from ragidx import train
from ragidx.pipelines.experiments.train.decoders import runs
model, stages = sys.argv[1:]
begin = runs.Watch.on_step_begin
def end(self, args, state, control, **kwargs):
    begin(self, args, state, control, **kwargs)
    if state.global_step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
runs.Watch.on_step_begin = end
for stage, options in json.loads(stages).items():
    if not (child := os.fork()):
        getattr(train, stage)(model, **options)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
"""


def test_killed_processes_resume_to_the_same_weights(
    pairs: Path, text: Path, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    options: dict[str, Any] = {**SMALL, "read_tokens": 32, "every": 2, "force": True, "method": "llm2vec"}
    stages: dict[str, dict[str, Any]] = {
        stage: options | ({"pairs": str(pairs)} if stage == "contrastive" else {"text": str(text)}) | more
        for stage, more in STAGES.items()
    }
    parts = {stage: asked | {"out": str(tmp_path / stage)} for stage, asked in stages.items()}
    command = [sys.executable, "-W", "ignore", "-c", _KILLED, str(tiny_model()), json.dumps(parts)]
    subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, stderr=subprocess.DEVNULL)

    for stage, asked in stages.items():
        with precision.threads(1):
            getattr(ragidx.train, stage)(tiny_model(), out=tmp_path / "whole" / stage, **asked)
            report = getattr(ragidx.train, stage)(tiny_model(), **parts[stage])

        assert _weights(tmp_path / stage) == _weights(tmp_path / "whole" / stage), stage
        assert report.steps == report.of_steps


def test_a_log_that_was_cut_off_is_read_to_its_last_whole_row(tmp_path: Path) -> None:
    run = Run(tmp_path / "out", "mntp", {})
    run.planned(lambda: {"steps": 1})
    run.log(step=1, loss=2.0)
    run.log(step=1, loss=3.0)
    with (run.folder / "log.jsonl").open("a") as stream:
        stream.write('{"step": 2, "lo')

    assert run.rows() == [{"step": 1, "loss": 3.0}]
