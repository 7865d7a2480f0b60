"""A run that trains a decoder: scores on held-out texts, checkpoints, the best weights, and what it comes to.

A score is of values by held-out text, higher is better. It is taken before the first step, and then every few steps;
the best weights are kept. Killed and started again, a run resumes at its last checkpoint and ends with the same weights
as one that was not, on a CPU with the same number of threads.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.data_loader import prepare_data_loader
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import PrinterCallback

from ragidx.corpora.errors import ModelError, RagidxError, check_machine, first_line
from ragidx.indexer.arrays import Doubles
from ragidx.indexer.encoders import precision
from ragidx.pipelines.base.stages import Stages
from ragidx.pipelines.experiments.evaluate.significance import MeanDifference, difference
from ragidx.pipelines.experiments.train.decoders import processes
from ragidx.pipelines.experiments.train.decoders.folder import WEIGHTS, Run
from ragidx.pipelines.experiments.train.decoders.network import DIVERGED, Network
from ragidx.pipelines.experiments.train.decoders.optimizer import Masters, share_of_rate, steps_of_rise
from ragidx.pipelines.experiments.train.decoders.scores import StepScore, draw, scores_of
from ragidx.pipelines.experiments.train.keywords import DecoderKeywords

_SCORE_SHARE = 5


@dataclass(frozen=True)
class DecoderReport:
    """What a run of training made, and how it scores.

    Attributes:
        folder: the folder of the model; None: there is none, since it is no better than what it began with.
        stage: contrastive, simcse or mntp.
        model: the model that it began with.
        n_learning: how many parameters learnt.
        n_texts: how many texts, or pairs, there were to learn from.
        n_held_out: how many texts or pairs were held out, for the score.
        steps: how many steps were made.
        best_step: the step after which the weights were best.
        of_steps: how many steps were planned.
        first_loss: the mean loss of the first tenth of the steps.
        last_loss: the mean loss of the last tenth of the steps.
        measure: the name of the score.
        before: the score at the start.
        after: the score of the weights that are kept.
        gain: the difference of the scores, after less before, with its interval.
        tokens_a_second: how many tokens a second were trained on, while steps were made.
        peak_bytes: the most memory that was in use.
        seconds: the time of this call.
        scores: the score before the first step, and after each step where it was taken.
        notes: sentences for people, such as how sure the gain is.
    """

    folder: str | None
    stage: str
    model: str
    n_learning: int
    n_texts: int
    n_held_out: int
    steps: int
    best_step: int
    of_steps: int
    first_loss: float
    last_loss: float
    measure: str
    before: float
    after: float
    gain: MeanDifference
    tokens_a_second: float
    peak_bytes: int
    seconds: float
    scores: tuple[StepScore, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON types."""
        return asdict(self)


class Training(NamedTuple):
    """What learns, and how it is scored.

    Attributes:
        run: the folder of the run.
        network: the decoder that learns.
        how: the options of the training.
        score: a function that gives the score of each held-out text by the network as it is, (n,); higher is better.
        measure: the name of the score.
        what: what the held-out texts are called: texts or pairs.
        tell: a function that is called with progress.
        began: the time when the call began, as `time.perf_counter` has it.
        notes: sentences for people.
    """

    run: Run
    network: Network
    how: DecoderKeywords
    score: Callable[[], Doubles]
    measure: str
    what: str
    tell: Stages
    began: float
    notes: tuple[str, ...] = ()

    def arguments(self, kind: type, **more: Any) -> Any:
        """The arguments of a trainer, for the run as it was planned."""
        if self.run.plan["recompute"]:
            self.network.recompute()
        args = kind(
            output_dir=str(self.run.folder),
            max_steps=self.run.plan["steps"],
            per_device_train_batch_size=self.how["batch"],
            learning_rate=self.how["rate"],
            seed=self.how["seed"],
            save_strategy="no",  # the callback says when
            save_total_limit=2,
            logging_steps=1,
            logging_nan_inf_filter=False,
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
            use_cpu=self.network.encoder.device == "cpu",
            **more,
        )
        # With more GPUs the trainer splits a batch, and a text is a wrong answer to the queries of its part alone.
        args._n_gpu = min(args.n_gpu, 1)
        return args

    def carried_out(self, trainer: Trainer, n_texts: int) -> DecoderReport:
        """Train, from the last checkpoint if there is one; write the best weights, if they are better than the start.

        Args:
            trainer: a trainer of a class that `of_network` makes.
            n_texts: how many texts there are to learn from.

        Raises:
            MachineError: the disk or the memory is full.
        """
        run, network, how = self.run, self.network, self.how
        of_step = float(run.plan["step_seconds"])
        if how["minutes"] is not None and of_step > 60 * how["minutes"]:
            long = f"one step takes about {of_step:,.1f} s, more than {how['minutes']:g} min"
            self.tell(f"{long}: interrupt, and take a smaller batch")
        with precision.threads(run.plan["threads"]):
            self.tell.expect(run.plan["steps"])
            watch = Watch(self)
            trainer.remove_callback(PrinterCallback)
            trainer.add_callback(watch)
            start = processes.of_first(run.checkpoint)
            try:
                if start is not None and run.has_ended(start):  # the trainer would make one step more
                    network.restore(load_file(start / WEIGHTS))
                else:
                    trainer.train(resume_from_checkpoint=None if start is None else str(start))
            except (OSError, RuntimeError, MemoryError) as fault:
                check_machine(fault, run.folder)
                raise
            return processes.of_first(lambda: self._ended(watch, n_texts))

    def _ended(self, watch: Watch, n_texts: int) -> DecoderReport:
        best = self.run.best()
        assert best is not None  # of the start
        if best.step or not self.how["force"]:
            self.network.restore(best.weights)
        return self._report(watch, best.step, self.score(), n_texts)

    def _report(self, watch: Watch, best_step: int, values: Doubles, n_texts: int) -> DecoderReport:
        """Write the model, unless no step is better than the start, and say what became of it."""
        run, network, notes = self.run, self.network, [*self.notes]
        gain, before, after = difference(values, watch.before), float(watch.before.mean()), float(values.mean())
        if run.plan["recompute"]:
            notes.append("One text would take half of the free memory: states are made twice (gradient checkpointing).")
        is_kept = self.how["force"] or best_step > 0
        if not is_kept:
            no = f"By the {self.what} that were held out no step is better than the start"
            notes.append(f"{no}: `force=True` writes the last.")
        elif gain.verdict == "worse":
            notes.append(f"By {len(values):,} {self.what} it is worse than the start.")
        elif gain.verdict != "better":
            notes.append(f"By {len(values):,} {self.what} the gain is not shown to be real.")
        scores = scores_of(run)
        draw(run, scores)
        if is_kept:
            network.save(run.out, masked=run.stage == "mntp")
            run.finish({"model": network.spec.model, "step": best_step, "before": before, "after": after})
        losses = [row["loss"] for row in run.rows() if "loss" in row]
        tenth = max(1, len(losses) // 10)
        return DecoderReport(
            folder=str(run.out) if is_kept else None,
            stage=run.stage,
            model=network.spec.model,
            n_learning=network.n_learning,
            n_texts=n_texts,
            n_held_out=len(values),
            steps=len(losses),
            best_step=best_step,
            of_steps=watch.steps,
            first_loss=float(np.mean(losses[:tenth])),
            last_loss=float(np.mean(losses[-tenth:])),
            measure=self.measure,
            before=before,
            after=after,
            gain=gain,
            tokens_a_second=watch.tokens_a_second,
            peak_bytes=_peak_bytes(),
            seconds=time.perf_counter() - self.began,
            scores=scores,
            notes=tuple(notes),
        )


class Watch(TrainerCallback):
    """Scores, the log, the best weights and progress of a run that was planned."""

    def __init__(self, training: Training) -> None:
        self.run, self.network, self.score, self.tell = training.run, training.network, training.score, training.tell
        self.steps, self.patience = int(self.run.plan["steps"]), training.how["patience"]
        self.before, self.every = processes.of_first(lambda: self._begun(training.how["every"]))
        self._began, self._tokens, self._loss = time.perf_counter(), self.network.n_tokens, 0.0
        self.step_seconds, self.step_tokens = 0.0, 0

    def _begun(self, every: int | None) -> tuple[Doubles, int]:
        """The scores before the first step, and how many steps are between two."""
        began = time.perf_counter()
        before = self.score()
        every = self.run.every(every or self._often(time.perf_counter() - began))
        if self.run.best() is None:
            self._keep(0, before)
        return before, every

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tell which step begins."""
        so_far = f", loss {self._loss:.3f}, {self.tokens_a_second:,.0f} tokens/s" if self._loss else ""
        self.tell(f"step {state.global_step + 1:,} of {self.steps:,}{so_far}")
        self._began, self._tokens = time.perf_counter(), self.network.n_tokens

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the score where it is due, keep the weights if they are the best, and ask for a checkpoint."""
        self.step_seconds += time.perf_counter() - self._began
        self.step_tokens += self.network.n_tokens - self._tokens
        step = state.global_step
        if step % self.every == 0 or step == self.steps:
            control.should_log = control.should_save = True
            control.should_training_stop |= processes.of_first(lambda: self._is_over(step))

    def _is_over(self, step: int) -> bool:
        """Whether the run is out of patience, by the score after a step; weights that are the best are kept."""
        values = self.score()
        best = self.run.best()
        assert best is not None  # of the start
        gain = difference(values, self.before)
        if values.mean() > best.score:
            self._keep(step, values, gain_low=gain.low, gain_high=gain.high)
            return False
        self.run.log(step=step, score=float(values.mean()), gain_low=gain.low, gain_high=gain.high)
        if not self.patience or (step - best.step) // self.every < self.patience:
            return False
        self.run.end()
        return True

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """Write the loss down.

        Raises:
            ModelError: the loss is no number.
        """
        if logs and "loss" in logs:
            self._loss = float(logs["loss"])
            if not math.isfinite(self._loss):
                message = f"after step {state.global_step:,} the loss is no number"
                raise ModelError(message, DIVERGED, where=str(self.run.folder))
            rates = {"rate": logs.get("learning_rate"), "tokens_a_second": round(self.tokens_a_second)}
            if processes.rank() == 0:
                self.run.log(step=state.global_step, loss=self._loss, **rates)

    @property
    def tokens_a_second(self) -> float:
        """Tokens that were learnt from in a second, by all processes, while steps were made."""
        return processes.count() * self.step_tokens / max(self.step_seconds, 1e-9)

    def _often(self, score_seconds: float) -> int:
        """Steps between two scores: a tenth of all, or as many as take five times as long as a score."""
        as_long = math.ceil(_SCORE_SHARE * score_seconds / max(float(self.run.plan["step_seconds"]), 1e-9))
        return max(1, self.steps // 10, min(as_long, self.steps))

    def _keep(self, step: int, values: Doubles, **gain: float) -> None:
        self.run.keep_best(self.network.weights(), step, float(values.mean()))
        self.run.log(step=step, score=float(values.mean()), **gain)


def of_network(kind: type[Trainer], network: Network) -> Any:
    """A trainer that keeps and takes the weights that learn, and nothing else of a model."""

    class Trained(kind):  # type: ignore[misc, valid-type]  # the kind is a value here
        def create_accelerator_and_postprocess(self) -> None:
            super().create_accelerator_and_postprocess()
            if processes.count() > 1:  # the loss reads a part of each batch, and the sum of gradients is made here
                self.accelerator.prepare_model = lambda model, **_: model
                whole = functools.partial(prepare_data_loader, num_processes=1, process_index=0, put_on_device=True)
                self.accelerator.prepare_data_loader = lambda loader, **_: whole(
                    loader, self.accelerator.device, use_seedable_sampler=True
                )

        def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            loss: torch.Tensor = super().training_step(*args, **kwargs)
            if processes.count() > 1:
                for weight in network.parameters():
                    if weight.requires_grad:
                        weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                        processes.summed(weight.grad)
            return loss

        def _save(self, output_dir: str | None = None, state_dict: object = None) -> None:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            save_file(network.weights(), folder / WEIGHTS)

        def _save_checkpoint(self, *args: object, **kwargs: object) -> None:
            try:
                super()._save_checkpoint(*args, **kwargs)
            except (OSError, RuntimeError, SafetensorError) as fault:  # of a full disk torch speaks of its own file
                message = f"a checkpoint cannot be written: {first_line(fault)}"
                hint = "make room and give the same command: it resumes at the last checkpoint"
                raise RagidxError(message, hint, where=self.args.output_dir) from fault

        def _load_from_checkpoint(self, resume_from_checkpoint: str, model: object = None) -> None:
            network.restore(load_file(Path(resume_from_checkpoint) / WEIGHTS))

        def create_optimizer(self, *args: object, **kwargs: object) -> torch.optim.Optimizer:
            weights = [weight for weight in network.parameters() if weight.requires_grad]
            if all(weight.dtype == torch.float32 for weight in weights):
                return super().create_optimizer(*args, **kwargs)  # type: ignore[no-any-return]
            self.optimizer = Masters(weights, lr=self.args.learning_rate, weight_decay=self.args.weight_decay)
            return self.optimizer

        def create_scheduler(
            self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
        ) -> torch.optim.lr_scheduler.LRScheduler:
            """The library's own makes the first step at a rate of 0, one in ten of a short run."""
            rising = steps_of_rise(network.how["warmup"], num_training_steps)
            share = functools.partial(share_of_rate, steps=num_training_steps, rising=rising)
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, share)
            self._created_lr_scheduler = True
            return self.lr_scheduler

        def add_model_card_callback(self, default_args_dict: object) -> None:
            """None: nothing is published."""

    return Trained


def _peak_bytes() -> int:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
