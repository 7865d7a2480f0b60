"""What encoders are trained on: the contrastive loss and masked next-token prediction (MNTP). No model, no text.

    contrastive_loss   Pooling and Attention, echo, LLM2Vec; with two dropout draws of one text it is SimCSE (Gao 2021)
    blocks, mask_tokens, mntp_loss
                       BehnamGhader et al. 2024 (LLM2Vec): attention runs both ways, and a masked token is predicted
                       from the state *before* it, because that is what the head of a decoder was trained to do

Ids and labels (b, t) int64, logits (b, t, V) -> a loss in nats, a float32 scalar. The loss of mini-decoder is in
`ragidx.benchmarks.recipes.mini_decoder.layers`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

NO_LABEL = -100


def contrastive_loss(
    queries: Tensor, positives: Tensor, negatives: Tensor | None = None, scale: float = 20.0
) -> Tensor:
    """Cross-entropy of each query's own positive among all candidates, by cosine; mean over the queries.

    Candidates of every query are the positives of the whole batch and all hard negatives. The `scale` of echo is 50, a
    temperature of 1/50; that of SimCSE is 20.

    Args:
        queries: (b, d) vectors of any length.
        positives: (b, d), row i belongs to query i.
        negatives: (n, d) hard negatives of the batch, in any order and number.
        scale: what cosines are multiplied with; the reciprocal of the temperature.

    >>> round(float(contrastive_loss(torch.eye(2), torch.eye(2), scale=1.0)), 4)  # -log(e / (e + 1))
    0.3133
    """
    candidates = positives if negatives is None else torch.cat([positives, negatives])
    cosines = functional.normalize(queries.float(), dim=1) @ functional.normalize(candidates.float(), dim=1).T
    return functional.cross_entropy(scale * cosines, torch.arange(len(queries), device=queries.device))


def blocks(texts: Iterable[Sequence[int]], length: int) -> Iterator[Tensor]:
    """The ids of all texts joined and cut every `length` ids; the rest at the end is dropped.

    Args:
        texts: ids of each text, with the model's special tokens.
        length: ids a block, at least 2: MNTP predicts nothing at the first.

    Yields:
        (length,) int64.

    >>> [block.tolist() for block in blocks([[1, 5, 6], [1, 7], [1, 8]], 3)]
    [[1, 5, 6], [1, 7, 1]]
    """
    stream = itertools.chain.from_iterable(texts)
    while len(block := list(itertools.islice(stream, length))) == length:
        yield torch.tensor(block, dtype=torch.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """Which tokens are hidden, and by what.

    Attributes:
        probability: the share of tokens that are to be predicted. LLM2Vec: 0.2 for Llama-like models, 0.8 for Mistral.
        mask_id: the token that hides another. Decoders have no mask token; LLM2Vec takes `_`.
        special_ids: tokens that are never hidden: BOS, EOS, padding.
        n_tokens: size of the vocabulary, from which random tokens are drawn.
        all_masked: all hidden tokens become the mask; else 80 % do, 10 % become a random token and 10 % stay (Devlin et
            al. 2019).
    """

    probability: float
    mask_id: int
    special_ids: frozenset[int]
    n_tokens: int
    all_masked: bool = False


def mask_tokens(ids: Tensor, masking: Masking, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Hide tokens at random, each independently.

    Args:
        ids: (b, t) token ids of texts.
        masking: the tokens that may be hidden, and what hides them.
        generator: where draws come from, on the device of `ids`; in the order of transformers' collator, so that one
            seed hides the same tokens in both.

    Returns:
        ids and labels, both (b, t): what the model reads, and the token that was hidden, `NO_LABEL` elsewhere.
    """

    def drawn(share: float) -> Tensor:
        shares = torch.full(ids.shape, share, device=ids.device)
        return torch.bernoulli(shares, generator=generator).to(torch.bool)

    special = torch.tensor(sorted(masking.special_ids), dtype=ids.dtype, device=ids.device)
    hidden = drawn(masking.probability) & ~torch.isin(ids, special)
    labels = torch.where(hidden, ids, NO_LABEL)
    if masking.all_masked:
        return torch.where(hidden, masking.mask_id, ids), labels
    masked = hidden & drawn(0.8)
    randomised = hidden & ~masked & drawn(0.5)
    random = torch.randint(masking.n_tokens, ids.shape, generator=generator, device=ids.device, dtype=ids.dtype)
    return torch.where(masked, masking.mask_id, torch.where(randomised, random, ids)), labels


def mntp_loss(
    states: Tensor,
    labels: Tensor,
    head: Callable[[Tensor], Tensor] | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    """Cross-entropy of the hidden tokens, the one at position i predicted from the state at i - 1.

    A token hidden at position 0 has nothing before it and gives no loss. A batch without a hidden token gives 0.

    Args:
        states: (b, t, d) states of a model that attends both ways.
        labels: (b, t) tokens to predict, `NO_LABEL` where nothing is to be predicted.
        head: a function that gives the logits (n, V) of states (n, d); None: the states are logits.
        reduction: the mean over the hidden tokens, their sum, or none: (b, t - 1), 0 where no token is hidden.
    """
    targets = labels[:, 1:]
    hidden = targets != NO_LABEL
    # Only hidden tokens have logits, and in float32: of a large vocabulary the others would be most of the memory.
    logits = states[:, :-1][hidden] if head is None else head(states[:, :-1][hidden])
    loss = functional.cross_entropy(logits.float(), targets[hidden], reduction="none" if reduction == "none" else "sum")
    if reduction == "none":
        return torch.zeros(hidden.shape, device=loss.device).masked_scatter(hidden, loss)
    return loss if reduction == "sum" else loss / hidden.sum().clamp(min=1)
