"""Several processes of one run: the same steps as of one, written once, and resumed."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.indexer.encoders import precision

from .....raising import message_of
from .conftest import SMALL

pytestmark = pytest.mark.slow

# The second run of each stage ends at a step, by an error in all processes, and is given again.
_RUNS = """
import json, sys, torch.distributed
from ragidx import train
from ragidx.pipelines.experiments.train.decoders import runs
model, given, place = sys.argv[1:]
begin, stop_at = runs.Watch.on_step_begin, None
def end(self, args, state, control, **kwargs):
    begin(self, args, state, control, **kwargs)
    if state.global_step == stop_at:
        raise KeyError
runs.Watch.on_step_begin = end
for stage, options in json.loads(given).items():
    report = getattr(train, stage)(model, out=f"{place}/{stage}", **options)
    stop_at = 3
    try:
        getattr(train, stage)(model, out=f"{place}/{stage}-parts", **options)
        raise SystemExit("not stopped")
    except KeyError:
        stop_at = None
    parts = getattr(train, stage)(model, out=f"{place}/{stage}-parts", **options)
    idle = getattr(train, stage)(model, out=f"{place}/{stage}-idle", **{**options, "rate": 1e-30, "patience": 1})
    print(json.dumps([stage, torch.distributed.get_rank(), report.after, report.steps, idle.steps]), flush=True)
"""


def test_two_processes_make_the_steps_of_one_and_resume(
    pairs: Path, text: Path, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    options: dict[str, Any] = {**SMALL, "method": "llm2vec", "dropout": 0.0, "dtype": "float32", "device": "cpu"}
    options |= {"batch": 9, "every": 2, "steps": 4, "force": True, "read_tokens": 32}
    stages = {
        "contrastive": {**options, "pairs": str(pairs), "teacher": "mini", "cache": None, "matryoshka": True},
        "mntp": {**options, "text": str(text)},
    }
    (tmp_path / "runs.py").write_text(_RUNS)
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    command = [*launch, tmp_path / "runs.py", tiny_model(), json.dumps(stages), tmp_path / "two"]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = sorted(map(json.loads, re.findall(r'\["[^]]*\]', done.stdout)))  # two processes may write on one line

    for stage, asked in stages.items():
        with precision.threads(1):
            report = getattr(ragidx.train, stage)(tiny_model(), out=tmp_path / "one" / stage, **asked)
        of_stage = [one for one in said if one[0] == stage]
        assert [one[1] for one in of_stage] == [0, 1]
        assert of_stage[0][2:] == of_stage[1][2:] == [pytest.approx(report.after, abs=1e-5), 4, 2]
        one, two, parts = (
            load_file(tmp_path / place / "training" / "adapter_model.safetensors")
            for place in (f"one/{stage}", f"two/{stage}", f"two/{stage}-parts")
        )
        for name, weight in one.items():
            assert two[name] == pytest.approx(weight, abs=1e-5), name
            assert (parts[name] == two[name]).all(), name

    again = functools.partial(ragidx.train.mntp, tiny_model(), out=tmp_path / "two" / "mntp", **stages["mntp"])
    assert (
        message_of(SpecError, again).partition(": ")[2].startswith("the folder holds a run that differs in: processes")
    )
