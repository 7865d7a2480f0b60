"""The ladder of docs/train.md: SmolLM2 untrained, and after each stage, alone and under filters and a head.

    python benchmarks/ladder.py --text FILE --pairs DIR --evalsets DIR --out DIR [--minutes 8] [--seeds 0 1 2]
        [--model smollm2] [--dtype bfloat16] [--sets cranfield stsb] [--max-length 160]

Two ways: PromptEOL and contrastive training; and LLM2Vec behind a beginning, MNTP, SimCSE and contrastive training,
each of --minutes. What is in --out is not made again, so a run that was ended goes on: the models, `ladder.jsonl` with
the report of each stage, and `measured/` with what train_head.py said of each. For one core, OMP_NUM_THREADS=1 and
`taskset -c 0`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import ragidx

BEGINNING = "Represent the meaning of this text, so that similar texts are found:{text}"
BOTH_WAYS = {"method": "llm2vec", "template": BEGINNING}
PROMPT = {"method": "prompteol"}


def trained(arguments, name, stage, model, options):
    """The folder of a stage's model."""
    folder = arguments.out / name
    if not (folder / "config.json").exists():
        source = {"text": arguments.text, "limit": 3_000}
        if stage == "contrastive":
            source = {"pairs": arguments.pairs, "cache": str(arguments.out / "cache")}
        report = getattr(ragidx.train, stage)(
            model,
            out=folder,
            minutes=arguments.minutes,
            dtype=arguments.dtype,
            force=True,
            **source,
            **options,
        )
        with (arguments.out / "ladder.jsonl").open("a") as stream:
            stream.write(json.dumps({"name": name} | report.to_json()) + "\n")
    return folder


def measured(arguments, name, model, method, template=None):
    """A row of train_head.py, unless it is there."""
    said = arguments.out / "measured" / f"{name}.json"
    if said.exists():
        return
    command = [sys.executable, str(Path(__file__).with_name("train_head.py")), "--model", str(model), "--name", name]
    command += ["--pairs", str(arguments.pairs), "--evalsets", str(arguments.evalsets), "--method", method]
    command += ["--limit", "2000", "--dtype", "mixed", "--cache", str(arguments.out / "cache")]
    command += ["--max-length", str(arguments.max_length)] if arguments.max_length else []
    command += ["--template", template] if template else []
    done = subprocess.run([*command, "--sets", *arguments.sets], check=True, capture_output=True, text=True)
    said.parent.mkdir(exist_ok=True)
    said.write_text(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--evalsets", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--sets", nargs="+", default=["cranfield", "stsb"])
    parser.add_argument("--max-length", type=int, default=160, help="0: whole documents")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    measured(arguments, "prompteol", arguments.model, **PROMPT)
    measured(arguments, "llm2vec", arguments.model, **BOTH_WAYS)
    for seed in arguments.seeds:
        of = f"{arguments.minutes:g} min, seed {seed}"
        short = {"seed": seed, "read_tokens": 64}
        one = trained(arguments, f"contrastive, {of}", "contrastive", arguments.model, {**PROMPT, **short})
        measured(arguments, f"contrastive, {of}", one, "prompteol")
        stages = (("mntp", {"seed": seed, **BOTH_WAYS}), ("simcse", short), ("contrastive", short))
        model, name = arguments.model, ""
        for stage, options in stages:
            name = f"{name}{', ' if name else ''}{stage}"
            model = trained(arguments, f"{name}, {of}", stage, model, options)
            measured(arguments, f"{name}, {of}", model, "llm2vec")


if __name__ == "__main__":
    main()
