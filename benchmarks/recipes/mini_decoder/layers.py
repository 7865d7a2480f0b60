"""The layers of mini: causal language modelling over the corpora's text, the table frozen and tied.

Documents are packed, BOS before and EOS after each, and cut into windows; attention is not cut between documents. The
full softmax over 30,522 tokens is more work than the layers below it, so the loss sums over the targets of the batch
and a uniform sample of the rest, whose logits carry log(rest / sample): the partition sum stays right on average
(Bengio and Senecal 2008).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from ragidx.benchmarks.recipes.mini_decoder.network import WRITING, export
from ragidx.benchmarks.recipes.mini_decoder.texts import training_documents
from ragidx.benchmarks.recipes.mini_decoder.tokens import mini_tokenizer, token_ids

LENGTH, BATCH = 256, 16  # tokens a window, windows a step
_WARM_UP = 0.02
_WRITING_FACTOR, _NORM_FACTOR = 0.1, 15.0  # of the learning rate


def packed(tokenizer: PreTrainedTokenizerFast, documents: Iterable[str]) -> NDArray[np.uint16]:
    """(n,) token ids of all documents, each between BOS and EOS."""
    around = tokenizer.bos_token_id, tokenizer.eos_token_id
    rows = token_ids(tokenizer, documents)
    return np.concatenate([np.concatenate([around[:1], row, around[1:]]).astype(np.uint16) for row in rows])


def windows(stream: NDArray[np.uint16], length: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of windows (batch, length), and the token that follows each of theirs, in a new order each epoch."""
    n_windows = (len(stream) - 1) // length
    for number in itertools.count():
        epoch, place = divmod(number, n_windows // batch)
        if place == 0:
            order = np.random.default_rng((0, epoch)).permutation(n_windows)
        first = order[place * batch : (place + 1) * batch, None] * length
        rows = torch.from_numpy(stream[first + np.arange(length + 1)].astype(np.int64))
        yield rows[:, :-1], rows[:, 1:]


def learning_rate(peak: float, share: float) -> float:
    """Linear warm-up, then a cosine to a fiftieth of the peak; `share` of all steps is done."""
    if share < _WARM_UP:
        return peak * max(share, 1e-4) / _WARM_UP
    fall = 0.5 * (1 + math.cos(math.pi * (share - _WARM_UP) / (1 - _WARM_UP)))
    return peak * (0.02 + 0.98 * fall)


def adam(model: LlamaForCausalLM) -> torch.optim.AdamW:
    """AdamW in three groups, each with its factor of the learning rate.

    Unit rows make a stream of RMS 1/16, where a Llama's is about 1: what writes into it learns slower. The norms, the
    final one above all, learn faster: logits start as small multiples of a cosine and must separate frequent tokens.
    """
    named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    matrices = [(name, weight) for name, weight in named if weight.ndim == 2]
    groups = [
        {"params": [w for name, w in matrices if not name.endswith(WRITING)], "weight_decay": 0.05, "factor": 1.0},
        {
            "params": [w for name, w in matrices if name.endswith(WRITING)],
            "weight_decay": 0.05,
            "factor": _WRITING_FACTOR,
        },
        {"params": [w for _, w in named if w.ndim != 2], "weight_decay": 0.0, "factor": _NORM_FACTOR},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95))


def candidates(targets: Tensor, vocabulary: int, sample: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Token ids the softmax runs over, the targets first, and (n,) what is added to their logits."""
    mine = torch.unique(targets)
    rest = torch.ones(vocabulary, dtype=torch.bool)
    rest[mine] = False
    others = rest.nonzero().squeeze(1)
    drawn = others[torch.randperm(len(others), generator=generator)[:sample]]
    shift = torch.zeros(len(mine) + len(drawn))
    if len(drawn):
        shift[len(mine) :] = math.log(len(others) / len(drawn))
    return torch.cat([mine, drawn]), shift


def sampled_loss(states: Tensor, table: Tensor, targets: Tensor, sample: int, generator: torch.Generator) -> Tensor:
    """Mean cross-entropy of (n, d) final states against (n,) targets, in nats."""
    ids, shift = candidates(targets, len(table), sample, generator)
    place_of = torch.zeros(len(table), dtype=torch.long)
    place_of[ids] = torch.arange(len(ids))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = functional.linear(states, table[ids])
    return functional.cross_entropy(logits.float() + shift, place_of[targets])


def train(
    model: LlamaForCausalLM,
    batches: Iterator[tuple[Tensor, Tensor]],
    steps: int,
    tell: Callable[[str], None],
    *,
    sample: int = 3000,
    peak: float = 3e-3,
) -> None:
    """Train the layers of a float32 decoder; the table stays as it is.

    `batches` are of `windows`, `sample` is how many tokens are drawn for the softmax, `peak` the highest learning rate.
    """
    table = model.model.embed_tokens.weight.requires_grad_(False)
    optimizer, generator, losses = adam(model), torch.Generator().manual_seed(0), []
    for step, (inputs, targets) in enumerate(itertools.islice(batches, steps)):
        for group in optimizer.param_groups:
            group["lr"] = group["factor"] * learning_rate(peak, step / steps)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            states = model.model(input_ids=inputs, use_cache=False).last_hidden_state
        loss = sampled_loss(states.flatten(0, 1), table, targets.flatten(), sample, generator)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        torch.nn.utils.clip_grad_norm_([w for group in optimizer.param_groups for w in group["params"]], 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        if (step + 1) % 50 == 0:
            tell(f"step {step + 1} of {steps}: loss {np.mean(losses[-50:]):.4f}")


@click.command()
@click.option("--corpora", type=click.Path(path_type=Path, exists=True), required=True, help="Folder with text/.")
@click.option(
    "--model", "folder", type=click.Path(path_type=Path, exists=True), required=True, help="What `table` wrote."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Model folder to write.")
@click.option("--steps", type=int, default=2310, show_default=True, help="Batches of 16 x 256 tokens.")
def main(corpora: Path, folder: Path, out: Path, steps: int) -> None:
    """Train the layers on top of the table of --model and write the model to --out."""
    tokenizer = mini_tokenizer(folder)
    stream = packed(tokenizer, training_documents(corpora))
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    train(model, windows(stream, LENGTH, BATCH), steps, click.echo)
    export(model, tokenizer, out)


if __name__ == "__main__":
    main()
