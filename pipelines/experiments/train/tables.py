"""Token tables are trained: so that the sum of a text's rows has the direction of the text's vector.

token ids and vectors of texts, less their mean -> pairs of tokens that say more than both apart -> a start: the model's
vectors of single tokens, shorter for frequent ones, and zero for pairs -> Adam, under the cosine -> `TokenTable`
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from ragidx.corpora.left_out import Left
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import sources
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.token_table import TokenTable, pair_keys, row_numbers
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors, cache_folder
from ragidx.pipelines.experiments.train.frozen import told
from ragidx.pipelines.ingest.corpus import chunker_of
from ragidx.pipelines.ingest.resolve import Resolved
from ragidx.pipelines.ingest.workers.spread import documents

AT_ONCE = 4_096
"""Texts that are encoded together; a killed run loses no more."""
MOST_PAIRS = 30_000
EPOCHS = 10

_FEWEST = 5  # times that a pair is seen
_LIFT = 2  # times as often as chance has it
_POWER = 0.75  # of that number, times pointwise mutual information, is what pairs are chosen by
_WEIGHT = 1e-3  # a of a / (a + p), p the share of a token: frequent ones start short (Arora et al. 2017)
_INNER = "##"  # before what is inside of a word, in WordPiece


@dataclass(frozen=True)
class TrainedTable:
    """The rows that training learnt.

    Attributes:
        tokens, pairs: the tokens, and pairs of tokens, that have a row.
        rows: (u + p, k) float32, as in a `TokenTable`.
        losses: 1 less the cosine, the mean of each epoch.
    """

    tokens: Ints
    pairs: Ints
    rows: Floats
    losses: tuple[float, ...]

    def table(self, tokenizer: Tokenizer) -> TokenTable:
        """The token table of these rows; the tokenizer is for texts, as `token_table.plain` makes it."""
        return TokenTable.of(tokenizer, self.tokens, self.pairs, self.rows)


def texts_of(corpus: Path, resolved: Resolved, limit: int | None) -> list[str]:
    """The first chunks of a corpus, at most `limit`, as they are encoded; what cannot be read is left out.

    Raises:
        CorpusError: there is no such corpus.
    """
    chunker, texts = chunker_of(resolved.encoder, resolved.spec.chunk), list[str]()
    for document in documents(sources(corpus, beir=True, on_skip=_pass), _pass):
        texts += [chunker.encoded_text(chunk) for chunk in chunker.chunks(document) if chunk.text.strip()]
        if limit is not None and len(texts) >= limit:
            break
    return texts[:limit]


def vectors_of(
    texts: Sequence[str],
    resolved: Resolved,
    cache: str | os.PathLike[str] | None,
    tell: Callable[[str], None] = lambda stage: None,
) -> Floats:
    """Raw vectors (n, d) of texts, from the cache where they are; `tell` is called before each `AT_ONCE` texts."""
    none = np.zeros((0, resolved.hidden), np.float32)
    with RawVectors(resolved, cache_folder(cache)) as known:
        return np.concatenate([none, *(known.texts(part) for part in told(texts, "encoding", tell, AT_ONCE))])


def _pass(skip: Skip | Left) -> None:
    """What is skipped teaches nothing."""


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


def spelled(tokenizer: Tokenizer, tokens: Ints) -> list[str]:
    """What each token spells, alone; some spell nothing."""
    return [text.removeprefix(_INNER) for text in tokenizer.decode_batch([[token] for token in tokens.tolist()])]


def start(single: Floats, counts: Ints) -> Floats:
    """The rows (u, k) at the start: vectors of single tokens less their mean, shorter for frequent ones.

    Args:
        single: (u, k) vectors of single tokens, of unit length or zero.
        counts: (u,) how often each token is seen.
    """
    known = single.any(axis=1, keepdims=True)
    mean = single.sum(axis=0) / max(1, np.count_nonzero(known))
    share = counts / max(1, counts.sum())
    rows: Floats = ((single - mean) * known * (_WEIGHT / (_WEIGHT + share))[:, None]).astype(np.float32)
    return rows


def train_rows(
    ids: Sequence[Ints],
    vectors: Floats,
    single: Callable[[Ints], Floats],
    *,
    pairs: int = MOST_PAIRS,
    epochs: int = EPOCHS,
    batch: int = 256,
    rate: float = 3e-3,
    seed: int = 0,
    tell: Callable[[str], None] = lambda stage: None,
) -> TrainedTable:
    """Rows whose sums over texts are like `vectors` less their mean.

    Args:
        ids: the token ids of each text.
        vectors: (n, k) float32, the vectors of these texts, of unit length.
        single: a function that gives the vectors (u, k) of single tokens, of unit length or zero.
        pairs: the most pairs of tokens that have a row.
        epochs: how often each text is seen.
        batch: texts of a step.
        rate: the learning rate of Adam at first; it falls to 0.
        seed: decides the order of the texts.
        tell: called with what begins, for people.
    """
    import torch
    from torch.nn import functional

    targets = l2_normalize(vectors - vectors.mean(axis=0)).vectors
    tokens, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *ids]), return_counts=True)
    chosen = chosen_pairs(ids, pairs)
    rows_of = [row_numbers(row, tokens, chosen).astype(np.int32) for row in ids]
    begun = start(single(tokens), counts)
    begun = np.concatenate([begun, np.zeros((len(chosen), begun.shape[1]), np.float32)])
    table = torch.nn.Parameter(torch.from_numpy(begun))
    optimizer = torch.optim.Adam([table], lr=rate)
    steps = list(_batches(len(ids), epochs, batch, seed))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, max(1, len(steps)))
    losses = list[float]()
    for number, texts in enumerate(steps):
        if number % max(1, len(steps) // epochs) == 0:
            tell(f"training, step {number:,} of {len(steps):,}")
        rows = [rows_of[text] for text in texts.tolist()]
        starts = torch.from_numpy(np.cumsum([0, *map(len, rows[:-1])]))
        flat = torch.from_numpy(np.concatenate(rows).astype(np.int64))
        sums = functional.embedding_bag(flat, table, starts, mode="sum")
        loss = 1 - functional.cosine_similarity(sums, torch.from_numpy(targets[texts])).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    means = tuple(float(np.mean(part)) for part in np.array_split(losses, epochs) if len(part))
    return TrainedTable(tokens, chosen, table.detach().numpy(), means)


def _batches(n: int, epochs: int, batch: int, seed: int) -> Iterator[Ints]:
    """Numbers of texts, batch by batch."""
    for epoch in range(epochs):
        order = np.random.default_rng((seed, epoch)).permutation(n)
        yield from np.array_split(order, max(1, round(n / batch)))
