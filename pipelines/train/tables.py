"""Token tables are trained: so that the sum of a text's rows has the direction of the text's vector.

token ids and vectors of texts, less their mean -> pairs of tokens that say more than both apart -> a start: the mean
vector of the texts that have a token, shorter for frequent ones -> Adam, under the cosine -> `TokenTable`
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.token_table import TokenTable, pair_keys, row_numbers
from ragidx.pipelines.evaluate.sources.corpus import CorpusSource
from ragidx.pipelines.evaluate.sources.raw_vectors import RawVectors, cache_folder
from ragidx.pipelines.ingest.resolve import Resolved

MOST_PAIRS = 30_000
EPOCHS = 10

_FEWEST = 5  # times that a pair is seen
_LIFT = 2  # times as often as chance has it
_POWER = 0.75  # of that number, times pointwise mutual information, is what pairs are chosen by
_WEIGHT = 1e-3  # a of a / (a + p), p the share of a token: frequent ones start short (Arora et al. 2017)
_RATE = 1e-2
_BATCH = 256
_TEXTS = 512  # whose mean vectors are added up at once


@dataclass(frozen=True)
class Bags:
    """Row numbers of texts, one after the other, and where each text ends."""

    rows: Ints
    ends: Ints

    @classmethod
    def of(cls, ids: Sequence[Ints], tokens: Ints, pairs: Ints) -> Bags:
        """Those of token ids."""
        rows = [row_numbers(row, tokens, pairs).astype(np.int32) for row in ids]
        return cls(
            np.concatenate([np.zeros(0, np.int32), *rows]), np.cumsum([len(row) for row in rows], dtype=np.int64)
        )

    def some(self, numbers: Ints) -> tuple[Ints, Ints]:
        """The rows of some texts, and where each begins among them."""
        starts = np.concatenate([[0], self.ends[:-1]])
        parts = [self.rows[starts[one] : self.ends[one]] for one in numbers.tolist()]
        lengths = np.cumsum([0, *(len(part) for part in parts)])
        return np.concatenate([np.zeros(0, np.int32), *parts]).astype(np.int64), lengths[:-1]


def texts_of(
    corpus: Path, resolved: Resolved, limit: int, cache: str | os.PathLike[str] | None
) -> tuple[list[str], Floats]:
    """At most `limit` chunks of a corpus, as they are encoded, and (n, d) their raw vectors.

    Raises:
        RagidxError: what a build of the corpus would raise.
    """
    with tempfile.TemporaryDirectory() as folder, RawVectors(resolved, cache_folder(cache)) as vectors:
        source = CorpusSource(corpus, Path(folder), vectors, fitted=None)
        texts = list(itertools.islice(source.texts(), limit))
        return texts, np.concatenate([np.zeros((0, source.dim), np.float32), *source.blocks()])[: len(texts)]


def chosen_pairs(ids: Sequence[Ints], most: int = MOST_PAIRS) -> Ints:
    """Keys of the pairs of tokens that are worth a row, ascending: frequent, and more so than chance has it."""
    every = np.concatenate([np.zeros(0, np.int64), *ids])
    keys, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *map(pair_keys, ids)]), return_counts=True)
    keys, counts = keys[counts >= _FEWEST], counts[counts >= _FEWEST]
    alone = np.bincount(every, minlength=1).astype(np.float64)
    chance = alone[keys >> 32] * alone[keys & 0xFFFFFFFF]
    lift = counts * max(1, len(every)) / chance
    keys, worth = keys[lift > _LIFT], (counts**_POWER * np.log(lift))[lift > _LIFT]
    return np.sort(keys[np.argsort(-worth, kind="stable")[:most]])


def start(bags: Bags, targets: Floats, n_rows: int) -> Floats:
    """(n_rows, k): of each row the mean target of the texts that have it, each by its share of the text, made shorter
    where the row is frequent.
    """
    sums, weights = np.zeros((n_rows, targets.shape[1]), np.float32), np.zeros(n_rows)
    for first in range(0, len(targets), _TEXTS):
        numbers = np.arange(first, min(first + _TEXTS, len(targets)))
        rows, starts = bags.some(numbers)
        lengths = np.diff([*starts, len(rows)])
        shares = np.repeat(1 / np.maximum(lengths, 1), lengths).astype(np.float32)
        np.add.at(sums, rows, np.repeat(targets[numbers], lengths, axis=0) * shares[:, None])
        np.add.at(weights, rows, shares)
    frequency = np.bincount(bags.rows, minlength=n_rows) / max(1, len(bags.rows))
    scale = _WEIGHT / (_WEIGHT + frequency) / np.maximum(weights, 1e-12)
    made: Floats = sums * scale[:, None].astype(np.float32)
    return made


def train_table(
    tokenizer: Tokenizer,
    ids: Sequence[Ints],
    vectors: Floats,
    *,
    epochs: int = EPOCHS,
    seed: int = 0,
    tell: Callable[[str], None] = lambda stage: None,
) -> TokenTable:
    """A table whose vectors of texts are like `vectors` less their mean.

    Args:
        tokenizer: for texts, as `token_table.plain` makes it.
        ids: of each text, by that.
        vectors: (n, k) float32 of these texts.
        epochs: how often each text is seen.
        seed: of their order.
        tell: called with what begins.
    """
    import torch
    from torch.nn import functional

    targets = l2_normalize(vectors - vectors.mean(axis=0)).vectors
    tokens, pairs = np.unique(np.concatenate([np.zeros(0, np.int64), *ids])), chosen_pairs(ids)
    bags, n_rows = Bags.of(ids, tokens, pairs), len(tokens) + len(pairs)
    table = torch.nn.Parameter(torch.from_numpy(start(bags, targets, n_rows)))
    optimizer = torch.optim.Adam([table], lr=_RATE)
    steps = list(_batches(len(ids), epochs, seed))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, max(1, len(steps)))
    for number, some in enumerate(steps):
        if number % max(1, len(steps) // epochs) == 0:
            tell(f"training, step {number:,} of {len(steps):,}")
        rows, starts = (torch.from_numpy(part) for part in bags.some(some))
        made = functional.embedding_bag(rows, table, starts, mode="sum")
        loss = 1 - functional.cosine_similarity(made, torch.from_numpy(targets[some])).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        schedule.step()
    return TokenTable.of(tokenizer, tokens, pairs, table.detach().numpy())


def _batches(n: int, epochs: int, seed: int) -> Iterator[Ints]:
    """Numbers of texts, batch by batch."""
    for epoch in range(epochs):
        order = np.random.default_rng((seed, epoch)).permutation(n)
        yield from np.array_split(order, max(1, round(n / _BATCH)))
