"""Documents as one stream of tokens, BOS before and EOS after each, cut into windows for language modelling.

A window may hold the end of one document and the beginning of the next; attention is not cut between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from ragidx.pipelines.train.mini.tokens import BOS, EOS, special_id, token_ids


def packed(tokenizer: Tokenizer, documents: Iterable[str]) -> NDArray[np.uint16]:
    """(n,) token ids of all documents, each between BOS and EOS."""
    bos, eos = ([special_id(tokenizer, name)] for name in (BOS, EOS))
    parts: list[NDArray[np.uint16]] = []
    for row in token_ids(tokenizer, documents):
        parts.append(np.concatenate([bos, row, eos]).astype(np.uint16))
    return np.concatenate(parts)


def packed_once(path: Path, tokenizer: Tokenizer, documents: Iterable[str]) -> NDArray[np.uint16]:
    """The stream in `path`, made first if the file is missing."""
    if not path.is_file():
        save_file({"stream": packed(tokenizer, documents)}, path)
    return load_file(path)["stream"]


class Windows:
    """Batches of windows in a seeded order; batch `step` is always the same."""

    def __init__(self, stream: NDArray[np.uint16], length: int, batch: int, seed: int) -> None:
        self.stream, self.length, self.batch, self.seed = stream, length, batch, seed
        self.per_epoch = (len(stream) - 1) // length // batch
        if self.per_epoch == 0:
            raise ValueError(f"{len(stream)} tokens are fewer than one batch of {batch} x {length} + 1")
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def __call__(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(batch, length) inputs, and the token that follows each of them."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            draw = np.random.default_rng((self.seed, epoch))
            self._epoch, self._order = epoch, draw.permutation((len(self.stream) - 1) // self.length)
        first = self._order[place * self.batch : (place + 1) * self.batch, None] * self.length
        rows = torch.from_numpy(self.stream[first + np.arange(self.length + 1)].astype(np.int64))
        return rows[:, :-1], rows[:, 1:]
