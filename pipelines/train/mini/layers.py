"""Train the layers of mini: causal language modelling over the corpora's text, the table frozen and tied.

`--model` is the folder that `table` wrote; the run resumes from `--out`/checkpoint.safetensors. Time, not steps, ends
it: the learning rate follows the share of `--minutes` spent, so that a slow machine ends with the same schedule.
Layer 0 is never touched.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaForCausalLM

from ragidx.pipelines.train.mini import checkpoint
from ragidx.pipelines.train.mini.loss import full_loss, sampled_loss
from ragidx.pipelines.train.mini.packing import Windows, packed, packed_once
from ragidx.pipelines.train.mini.texts import held_out_documents, training_documents
from ragidx.pipelines.train.mini.tokens import bare_tokenizer

WRITING = ("o_proj.weight", "down_proj.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Parameters of a run; the schedule follows `steps` if set, else the time."""

    minutes: float = 75.0
    steps: int | None = None
    batch: int = 16
    length: int = 256
    sample: int = 3000
    peak: float = 3e-3
    warm_up: float = 0.02
    decay: float = 0.05
    writing_factor: float = 0.1
    norm_factor: float = 15.0
    save_every_s: float = 300.0
    seed: int = 0


def share_done(spec: RunSpec, progress: checkpoint.Progress) -> float:
    """0 at the start, 1 or more when the run is over."""
    if spec.steps is not None:
        return progress.step / spec.steps
    return progress.elapsed_s / (60 * spec.minutes)


def learning_rate(spec: RunSpec, share: float) -> float:
    """Linear warm-up, then a cosine to a fiftieth of the peak."""
    if share < spec.warm_up:
        return spec.peak * max(share, 1e-4) / spec.warm_up
    fall = 0.5 * (1 + math.cos(math.pi * min(1.0, (share - spec.warm_up) / (1 - spec.warm_up))))
    return spec.peak * (0.02 + 0.98 * fall)


def trainable(model: LlamaForCausalLM) -> dict[str, torch.nn.Parameter]:
    """Every parameter but the table."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def adam(parameters: dict[str, torch.nn.Parameter], spec: RunSpec) -> torch.optim.AdamW:
    """AdamW in three groups, each with its factor of the learning rate.

    Unit rows make a stream of RMS 1/16, where a Llama's is about 1: what writes into it learns slower. The norms, the
    final one above all, learn faster: logits start as small multiples of a cosine and must separate frequent tokens.
    """
    matrices = {name: p for name, p in parameters.items() if p.ndim == 2}
    writing = [p for name, p in matrices.items() if name.endswith(WRITING)]
    reading = [p for name, p in matrices.items() if not name.endswith(WRITING)]
    norms = [p for p in parameters.values() if p.ndim != 2]
    groups = [
        {"params": reading, "weight_decay": spec.decay, "factor": 1.0},
        {"params": writing, "weight_decay": spec.decay, "factor": spec.writing_factor},
        {"params": norms, "weight_decay": 0.0, "factor": spec.norm_factor},
    ]
    return torch.optim.AdamW(groups, lr=spec.peak, betas=(0.9, 0.95))


def train(
    model: LlamaForCausalLM, windows: Windows, out: Path, spec: RunSpec, tell: Callable[[str], None]
) -> checkpoint.Progress:
    """Run to the end of `spec`, resuming from `out` and writing checkpoints there."""
    out.mkdir(parents=True, exist_ok=True)
    path, parameters = out / "checkpoint.safetensors", trainable(model)
    optimizer = adam(parameters, spec)
    progress = checkpoint.load(path, parameters, optimizer)
    generator, recent, last, saved = torch.Generator(), [0.0], time.monotonic(), time.monotonic()
    shown, shown_tokens = last, progress.tokens
    while (share := share_done(spec, progress)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = group["factor"] * learning_rate(spec, share)
        inputs, targets = windows(progress.step)
        loss = _step(
            model, optimizer, inputs, targets, spec, generator.manual_seed(spec.seed * 1_000_003 + progress.step)
        )
        now = time.monotonic()
        progress.step, progress.tokens = progress.step + 1, progress.tokens + inputs.numel()
        progress.elapsed_s, last = progress.elapsed_s + now - last, now
        recent = [*recent[-49:], loss] if progress.step > 1 else [loss]
        if progress.step % 50 == 0:
            rate = (progress.tokens - shown_tokens) / (now - shown)
            left = progress.elapsed_s * (1 / max(share_done(spec, progress), 1e-9) - 1) / 60
            done = f"step {progress.step} loss {np.mean(recent):.4f} tokens {progress.tokens:,}"
            tell(f"{done} {rate:,.0f} tokens/s ETA {left:.1f} min")
            shown, shown_tokens = now, progress.tokens
        if now - saved > spec.save_every_s:
            checkpoint.save(path, parameters, optimizer, progress)
            saved = now
    checkpoint.save(path, parameters, optimizer, progress)
    return progress


def _step(
    model: LlamaForCausalLM,
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    spec: RunSpec,
    generator: torch.Generator,
) -> float:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = model.model(input_ids=inputs, use_cache=False).last_hidden_state
    table = model.model.embed_tokens.weight.detach()
    loss = sampled_loss(states.flatten(0, 1), table, targets.flatten(), spec.sample, generator)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)
    optimizer.step()
    return float(loss.detach())


def held_out_loss(model: LlamaForCausalLM, stream: NDArray[np.uint16], length: int) -> float:
    """Mean loss in nats a token over the stream, exact softmax, windows of `length`."""
    windows, total, count = Windows(stream, length, 1, 0), 0.0, 0
    with torch.inference_mode():
        for step in range(windows.per_epoch):
            inputs, targets = windows(step)
            states = model.model(input_ids=inputs, use_cache=False).last_hidden_state
            total += full_loss(states.flatten(0, 1), model.model.embed_tokens.weight, targets.flatten())
            count += targets.numel()
    return total / count


def unigram_loss(
    train_stream: NDArray[np.uint16],
    stream: NDArray[np.uint16],
    vocabulary: int,
) -> float:
    """Mean loss in nats a token of the training text's token frequencies (plus one each)."""
    counts = np.bincount(train_stream, minlength=vocabulary) + 1.0
    return float(-np.log(counts / counts.sum())[stream].mean())


@click.command()
@click.option("--corpora", type=click.Path(path_type=Path, exists=True), required=True, help="Folder with text/.")
@click.option(
    "--model", "folder", type=click.Path(path_type=Path, exists=True), required=True, help="Model folder to start from."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder of the checkpoint; resumed from if it holds one.",
)
@click.option(
    "--minutes", type=float, default=75.0, show_default=True, help="Training time in all, resumed runs added up."
)
@click.option("--threads", type=int, default=2, show_default=True, help="CPU threads.")
@click.option("--peak", type=float, default=3e-3, show_default=True, help="Highest learning rate.")
@click.option("--seed", type=int, default=0, show_default=True)
def main(corpora: Path, folder: Path, out: Path, minutes: float, threads: int, peak: float, seed: int) -> None:
    """Train the layers on top of the table of --model and report the held-out loss."""
    torch.set_num_threads(threads)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer, spec = bare_tokenizer(folder), RunSpec(minutes=minutes, peak=peak, seed=seed)
    stream = packed_once(out / "stream.safetensors", tokenizer, training_documents(corpora))
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.model.embed_tokens.weight.requires_grad_(False)
    windows = Windows(stream, spec.length, spec.batch, seed)
    progress = train(model, windows, out, spec, lambda line: click.echo(line, err=True))
    held_out = packed(tokenizer, held_out_documents(corpora))
    figures = {
        "steps": progress.step,
        "tokens": progress.tokens,
        "minutes": round(progress.elapsed_s / 60, 1),
        "held_out_tokens": len(held_out),
        "held_out_loss": round(held_out_loss(model, held_out, spec.length), 4),
        "unigram_loss": round(unigram_loss(stream, held_out, len(model.model.embed_tokens.weight)), 4),
    }
    (out / "figures.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    click.echo(json.dumps(figures))


if __name__ == "__main__":
    main()
