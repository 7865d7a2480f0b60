"""Masked next-token prediction: a decoder that attends both ways learns to read what comes after (LLM2Vec, stage one).

texts -> their ids joined and cut into blocks, each behind the template's own beginning -> some tokens hidden -> the
token at i is predicted from the state at i - 1, by the model's own head, whose logits are made where a token is hidden
and nowhere else. What is hidden is drawn from seed and step, so a run that resumes hides the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Trainer, TrainingArguments

from ragidx.corpora.errors import SpecError
from ragidx.indexer.arrays import Doubles, Ints
from ragidx.indexer.filters.unembedding import find_unembedding
from ragidx.indexer.models import checkpoint
from ragidx.indexer.options import written_out
from ragidx.indexer.prompts.tokenizer import TextTokenizer
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.train.decoders import processes
from ragidx.pipelines.experiments.train.decoders.cost import plan
from ragidx.pipelines.experiments.train.decoders.folder import Run
from ragidx.pipelines.experiments.train.decoders.inputs import (
    about_model,
    about_steps,
    digest_of,
    held_texts,
    resolved_of,
    steps_of,
)
from ragidx.pipelines.experiments.train.decoders.network import Network
from ragidx.pipelines.experiments.train.decoders.runs import DecoderReport, Training, of_network
from ragidx.pipelines.experiments.train.keywords import MntpKeywords, StepKeywords
from ragidx.pipelines.experiments.train.objectives import NO_LABEL, Masking, blocks, mask_tokens, mntp_loss

_BY_FAMILY = {"mistral": "mask"}  # LLM2Vec's choice; of the others bert
_SHARES = {"bert": 0.2, "mask": 0.8}  # its shares, by what hides
_MASK = "_"
_MOST_HELD_OUT = 128  # blocks
_AT_ONCE = 8  # blocks whose likelihood is worked out together


@written_out
def mntp(
    model: str | os.PathLike[str], *, on_progress: OnStage | None = None, **options: Unpack[MntpKeywords]
) -> DecoderReport:
    """Train a decoder to attend both ways, on texts alone, by masked next-token prediction.

    Args:
        model: a decoder, as `build` takes it; its method is `llm2vec` where none is named.
        on_progress: called when a stage begins.

    Raises:
        CorpusError: there is no text.
        SpecError: an option is wrong, there is too little text, or the method's attention is causal.
        RagidxError: of the subclass that says what to do.
    """
    how = steps_of("train.mntp", MntpKeywords, options, batch=32, method="llm2vec")
    hidden_share = how["hidden_share"]
    if hidden_share is not None and not 0 < hidden_share < 1:
        raise SpecError(f"hidden_share={hidden_share} hides nothing, or all", "give 0.2", where="`hidden_share`")
    began, tell = time.perf_counter(), Stages(on_progress)
    resolved = resolved_of("train.mntp", model, how)
    if resolved.encoder_spec.attention != "bidirectional":
        raise SpecError("attention is causal", "use `method=llm2vec` or `attention=bidirectional`", where="`attention`")
    rest, held = held_texts(Path(how["text"]), resolved, how)
    about = {**about_model(resolved), "data": digest_of([*rest, *held]), "how": about_steps(how)}
    run = Run(Path(how["out"]), "mntp", {**about, "hidden": hidden_share, "hidden_as": how["hidden_as"]})
    network = Network(resolved, how)
    task = _Prediction(network, how, hidden_share, how["hidden_as"])
    of_rest, of_held = task.blocks_of(rest), task.blocks_of(held)[:_MOST_HELD_OUT]
    if not len(of_rest) or not len(of_held):
        raise SpecError("the text is too short for a block", "give more, or fewer `read_tokens`", where="`text`")

    def score() -> Doubles:
        with network.resting(), torch.inference_mode():
            return task.likelihoods(torch.from_numpy(of_held), how["seed"])

    def planned() -> dict[str, Any]:
        block = torch.from_numpy(of_rest[:1])
        features = [block, torch.ones_like(block), torch.ones_like(block, dtype=torch.bool)]
        # Of the logits, their exponentials and gradients, in float32.
        of_head = 4 * 4 * network.encoder.backbone.n_tokens * task.masking.probability
        steps, longest = how["steps"] or how["epochs"] * -(-len(of_rest) // how["batch"]), how["read_tokens"]
        n_tokens = longest * how["batch"]
        return plan(network, how, features, steps=steps, n_tokens=n_tokens, longest=longest, more_bytes=of_head)

    run.planned(planned)
    measure = "log-likelihood of hidden tokens"
    training = Training(run, network, how, score, measure, "blocks", tell, began)
    args = training.arguments(TrainingArguments, remove_unused_columns=False)
    kind = of_network(_by_parts(task, run.plan["mini_batch"], how["seed"]), network)
    data = list(torch.from_numpy(of_rest))
    return training.carried_out(kind(model=network, args=args, train_dataset=data, data_collator=_stacked), len(rest))


def mask_of(tokenizer: TextTokenizer) -> int:
    """The token that hides another: `_`, which tokenizers that mark the beginning of a word have by itself, too."""
    number = tokenizer.pieces.token_to_id(_MASK)
    return tokenizer.piece(_MASK)[-1] if number is None else number


class _Prediction:
    """Blocks of ids, with tokens hidden, and the loss of what the model predicts in their place."""

    def __init__(self, network: Network, how: StepKeywords, share: float | None, hidden_as: str | None) -> None:
        tokenizer = network.encoder.tokenizer
        empty = network.encoder.rendered(["a"], None)[0]
        self.network, self.head = network, _Head(network)
        self.start = torch.tensor(empty.ids[: empty.positions()[0]], dtype=torch.int64)
        self.length = how["read_tokens"] - len(self.start)
        hidden_as = hidden_as or _BY_FAMILY.get(network.files.family, "bert")
        special = (tokenizer.bos, tokenizer.eos, tokenizer.pad)
        self.masking = Masking(
            probability=share or _SHARES[hidden_as],
            mask_id=mask_of(tokenizer),
            special_ids=frozenset(number for number in special if number is not None),
            n_tokens=network.encoder.backbone.n_tokens,
            all_masked=hidden_as == "mask",
        )

    def blocks_of(self, texts: list[str]) -> Ints:
        """(n, length) ids of texts joined."""
        if self.length < 2:
            raise SpecError("the template fills the block", "give more `read_tokens`", where="`read_tokens`")
        ids = self.network.encoder.tokenizer.ids(texts)
        rows = [block.numpy() for block in blocks(ids, self.length)]
        return np.stack(rows) if rows else np.zeros((0, self.length), np.int64)

    def likelihoods(self, ids: Tensor, seed: int) -> Doubles:
        """(n,) the mean log-likelihood of each block's hidden tokens, (n, length); one without a hidden one has 0."""
        hidden, labels = self.hidden(ids, seed)
        losses = []
        for some, wanted in zip(torch.split(hidden, _AT_ONCE), torch.split(labels, _AT_ONCE), strict=True):
            each = mntp_loss(self.network.states(some), wanted, self.head, reduction="none")
            losses.append(each.sum(dim=1) / (wanted[:, 1:] != NO_LABEL).sum(dim=1).clamp(min=1))
        return -torch.cat(losses).double().cpu().numpy()

    def hidden(self, ids: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Blocks (b, length) behind the template's beginning, some tokens hidden; and labels, both (b, t)."""
        place = self.network.encoder.device
        masked, labels = mask_tokens(ids.cpu(), self.masking, torch.Generator().manual_seed(seed))
        start = self.start.expand(len(ids), -1)
        labels = torch.cat([torch.full_like(start, NO_LABEL), labels], dim=1)
        labels[:, 0] = NO_LABEL  # nothing comes before it
        return torch.cat([start, masked], dim=1).to(place), labels.to(place)

    def parts(self, ids: Tensor, seed: int, at_once: int) -> Iterator[tuple[Tensor, int]]:
        """The sum over the hidden tokens of some blocks each, those that this process reads; and how many all have."""
        hidden, labels = self.hidden(ids, seed)
        n = int((labels != NO_LABEL).sum())
        every = zip(torch.split(hidden, at_once), torch.split(labels, at_once), strict=True)
        for some, wanted in processes.own(every):
            yield mntp_loss(self.network.states(some), wanted, self.head, reduction="sum"), n


class _Head:
    """The model's own head, as its family applies it; it does not learn."""

    def __init__(self, network: Network) -> None:
        config: Any = network.model.config.get_text_config()
        self._softcap = getattr(config, "final_logit_softcapping", None)
        self._times = (getattr(config, "logit_scale", None) or 1) / (getattr(config, "logits_scaling", None) or 1)
        embeddings = network.model.get_input_embeddings().weight
        stored = find_unembedding(network.files)
        self._bias = None
        if (bias := checkpoint.find(network.files, (".lm_head.bias",))) is not None:
            numbers = np.concatenate([np.asarray(block, np.float32).ravel() for block in checkpoint.blocks(bias)])
            self._bias = torch.from_numpy(numbers).to(embeddings)
        if stored.shape == tuple(embeddings.shape) and f".{stored.name}".endswith(checkpoint.INPUTS):
            self._weight = embeddings
        else:
            rows = np.concatenate([np.asarray(block, np.float32) for block in checkpoint.blocks(stored)])
            self._weight = torch.from_numpy(rows).to(embeddings)

    def __call__(self, states: Tensor) -> Tensor:
        """(n, d) -> (n, V)."""
        logits: Tensor = functional.linear(states, self._weight, self._bias) * self._times
        return logits if self._softcap is None else torch.tanh(logits / self._softcap) * self._softcap


def _stacked(rows: list[Tensor]) -> dict[str, Tensor]:
    return {"ids": torch.stack(rows)}


def _by_parts(task: _Prediction, at_once: int, seed: int) -> type[Trainer]:
    class ByParts(Trainer):
        def training_step(
            self, model: nn.Module, inputs: dict[str, Tensor], num_items_in_batch: object = None
        ) -> Tensor:
            """The mean over all hidden tokens of the batch, the passes back in parts."""
            model.train()
            total = torch.zeros((), device=self.args.device)
            for part, n in task.parts(inputs["ids"], (seed << 32) + self.state.global_step + 1, at_once):
                loss = part / max(1, n)
                self.accelerator.backward(loss)
                total += loss.detach()
            return processes.summed(total)

    return ByParts
