"""The folder of a run that trains a decoder.

OUT/training/run.json           what is trained on what, and how long: another run of these resumes here
OUT/training/checkpoint-N/      weights, optimizer, random state, after step N; the newest whole one is taken
OUT/training/log.jsonl          loss and speed of each step, and the scores
OUT/training/scores.jsonl       the scores by step, when the run has ended; log.svg draws them
OUT/training/training.json      how the model was made, when it is
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ragidx.corpora.errors import SpecError, check_machine
from ragidx.indexer import atomic
from ragidx.pipelines.experiments.train.decoders import processes
from ragidx.pipelines.experiments.train.decoders.network import MADE, TRAINING

WEIGHTS = "weights.safetensors"
"""What learns, in a checkpoint."""

_RUN, _LOG, _BEST = "run.json", "log.jsonl", "best.safetensors"
_CHECKPOINT = (WEIGHTS, "optimizer.pt", "scheduler.pt", "trainer_state.json")


class BestWeights(NamedTuple):
    """The best weights of a run so far, with their step and score."""

    weights: dict[str, Tensor]
    step: int
    score: float


class Run:
    """The folder of a run.

    Args:
        out: the folder of the model.
        about: the model, the data and the options that decide the weights, as JSON types: a run of other ones does not
            resume here.
        stage: the name of the recipe.

    Raises:
        SpecError: the folder holds something else.
    """

    def __init__(self, out: Path, stage: str, about: Mapping[str, Any]) -> None:
        self.out, self.folder, self.stage = out, out / TRAINING, stage
        self.about = {"stage": stage, **about}
        self.key = hashlib.sha256(json.dumps(self.about, sort_keys=True).encode()).hexdigest()
        self.plan = processes.of_first(self._found)

    def _found(self) -> dict[str, Any]:
        """The plan of a run that resumes; of one that begins nothing."""
        file, out = self.folder / _RUN, self.out
        if out.exists() and not file.is_file():
            raise SpecError("there is something else in this place", "name another folder with `out`", where=str(out))
        if not file.is_file():
            return {}
        plan: dict[str, Any] = json.loads(file.read_text("utf-8"))
        if plan.get("key") != self.key:
            other = ", ".join(_apart(plan.get("about", {}), self.about))
            message = f"the folder holds a run that differs in: {other or 'all'}"
            raise SpecError(message, "name another with `out`, or remove it", where=str(out))
        if (self.folder / MADE).is_file():
            raise SpecError("the model is there already", "name another folder with `out`", where=str(out))
        return plan

    def planned(self, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The plan of the run; of one that resumes, as it was made when the run began."""

        def whole() -> dict[str, Any]:
            if not self.plan:
                self.plan = {"key": self.key, "about": self.about, **make()}
                self._write()
            return self.plan

        self.plan = processes.of_first(whole)
        return self.plan

    def has_ended(self, checkpoint: Path) -> bool:
        """Whether no step comes after this checkpoint: it is of the last one, or the run is out of patience."""
        return bool(self.plan.get("ended")) or _step_of(checkpoint) >= self.plan["steps"]

    def end(self) -> None:
        """Write down that the run is out of patience."""
        self.plan["ended"] = True
        self._write()

    def every(self, steps: int) -> int:
        """How many steps are between two scores; of a run that resumes, as many as before."""
        if "every" not in self.plan:
            self.plan["every"] = steps
            self._write()
        return int(self.plan["every"])

    def _write(self) -> None:
        atomic.make_folder(self.folder)
        atomic.write_file(self.folder / _RUN, json.dumps(self.plan, indent=2).encode())

    def checkpoint(self) -> Path | None:
        """The newest checkpoint that is whole; None: there is none."""
        found = [path for path in self.folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
        found.sort(key=_step_of, reverse=True)
        return next((path for path in found if _is_whole(path)), None)

    def log(self, **row: Any) -> None:
        """Append a row to the log."""
        with (self.folder / _LOG).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the log, one for each step and kind; of a step that was made twice, the later one."""
        file = self.folder / _LOG
        lines = file.read_text("utf-8").splitlines() if file.is_file() else []
        found: dict[tuple[int, bool], dict[str, Any]] = {}
        for line in lines:
            with suppress(ValueError):  # the last one of a run that was killed
                row = json.loads(line)
                found[row["step"], "score" in row] = row
        return [found[place] for place in sorted(found)]

    def keep_best(self, weights: Mapping[str, Tensor], step: int, score: float) -> None:
        """Keep weights as the best so far."""
        new = self.folder / f"{_BEST}.new"
        save_file(dict(weights), new, metadata={"step": str(step), "score": repr(score)})
        atomic.replace(new, self.folder / _BEST)

    def best(self) -> BestWeights | None:
        """The best weights so far; None before there are any."""
        path = self.folder / _BEST
        if not path.is_file():
            return None
        with safe_open(path, framework="pt") as stored:
            about = stored.metadata()
        return BestWeights(load_file(path), int(about["step"]), float(about["score"]))

    def finish(self, made: Mapping[str, Any]) -> None:
        """Say how the model was made, and remove what only a run needs."""
        atomic.write_file(self.folder / MADE, json.dumps({**self.about, **made}, indent=2).encode())
        for path in self.folder.glob("checkpoint-*"):
            shutil.rmtree(path)
        (self.folder / _BEST).unlink(missing_ok=True)


def _apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Names of what is not the same in both, at any depth."""
    for name in sorted(one.keys() | other.keys()):
        first, second = one.get(name), other.get(name)
        if isinstance(first, dict) and isinstance(second, dict):
            yield from _apart(first, second)
        elif first != second:
            yield name


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _is_whole(checkpoint: Path) -> bool:
    """Whether all that a run resumes from can be read: of a save that was killed, the last file is missing."""
    if not all((checkpoint / name).is_file() for name in _CHECKPOINT):
        return False
    several = [f"_{number}" for number in range(processes.count())]
    if not all(zipfile.is_zipfile(checkpoint / f"rng_state{name}.pth") for name in (several if several[1:] else [""])):
        return False
    try:
        load_file(checkpoint / WEIGHTS)
        json.loads((checkpoint / "trainer_state.json").read_text("utf-8"))
        torch.load(checkpoint / "optimizer.pt", map_location="cpu", weights_only=True)
        torch.load(checkpoint / "scheduler.pt", map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError, SafetensorError, EOFError) as fault:
        check_machine(fault, checkpoint)
        return False
    return True
