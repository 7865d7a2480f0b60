"""Token tables: the vector of a text is the sum of the rows of its tokens, and of its pairs of neighbouring tokens.

text -> token ids -> rows (int8, a scale each) -> their sum (k,), at unit length

`ragidx train mini` makes a model of one. `ragidx train questions` fits one to the vectors of an index, so that its
questions need neither the model nor torch. Tokens and pairs that no text had have no row: a text of such tokens alone
has a zero vector, and so has a question that the tokenizer does not know. Not in it is the mean of the vectors it was
fitted to: that adds the same number to all scores of a question.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from tokenizers import Tokenizer

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.unknown import UnknownTokens

TABLE_FILE = "model.safetensors"
"""Of a model that is a table."""

QUESTIONS_NOTE = "ragidx questions"
"""In the header of a file of questions: which vectors it was trained on, as JSON."""

_MOST = 127  # of int8
_KINDS = {"tokens": np.int64, "pairs": np.int64, "rows": np.int8, "scales": np.float32}


@dataclass(frozen=True, eq=False)
class TokenTable:
    """Rows of tokens and of pairs.

    Attributes:
        tokenizer: the tokenizer that gives the ids.
        tokens: (u,) ids that have a row, ascending.
        pairs: (p,) `pair_keys` that have one, ascending.
        rows: (u + p, k) int8, those of the tokens first.
        scales: (u + p,) float32; a row is its numbers times its scale.
    """

    tokenizer: Tokenizer
    tokens: Ints
    pairs: Ints
    rows: NDArray[np.int8]
    scales: Floats

    def __post_init__(self) -> None:
        n = len(self.tokens) + len(self.pairs)
        if self.rows.ndim != 2 or len(self.rows) != n or self.scales.shape != (n,):
            raise ValueError(f"a table of {n} tokens and pairs has {self.rows.shape} rows, {self.scales.shape} scales")
        for keys in (self.tokens, self.pairs):
            if keys.ndim != 1 or (np.diff(keys) <= 0).any():
                raise ValueError("the keys of a table are not ascending")

    @classmethod
    def of(cls, tokenizer: Tokenizer, tokens: Ints, pairs: Ints, rows: Floats) -> Self:
        """A table of rows (u + p, k) float32, each rounded to 255 steps."""
        scales = np.abs(rows).max(axis=1, initial=0) / _MOST
        steps = np.rint(rows / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8)
        return cls(tokenizer, tokens, pairs, steps, scales.astype(np.float32))

    @property
    def dim(self) -> int:
        """Width of its vectors."""
        return int(self.rows.shape[1])

    def vectors(self, texts: Sequence[str]) -> Floats:
        """(n, k) of unit length; zero where no token of a text has a row, or most of the text is unknown."""
        found = np.zeros((len(texts), self.dim), np.float32)
        for number, ids in enumerate(token_ids(self.tokenizer, texts)):
            if not self._unknown.covers(texts[number], ids.tolist()):
                found[number] = self.vector(ids)
        return found

    @functools.cached_property
    def _unknown(self) -> UnknownTokens:
        return UnknownTokens.of(self.tokenizer)

    def vector(self, ids: Ints) -> Floats:
        """(k,) of a text's tokens and pairs, of unit length; zero where none has a row."""
        found: Floats = self.vectors_of_ids([ids])[0]
        return found

    def vectors_of_ids(self, ids: Sequence[Ints]) -> Floats:
        """(n, k) vectors of texts by their tokens. Each is added up by itself, so it never depends on the others."""
        rows, ends = rows_of_texts(ids, self.tokens, self.pairs)
        vectors = np.zeros((len(ids), self.dim), np.float32)
        for number, (start, end) in enumerate(itertools.pairwise([0, *ends.tolist()])):
            numbers = self.rows.take(rows[start:end], axis=0).astype(np.float32)
            # not BLAS: its threads cost more than they save here
            np.einsum("i,ij->j", self.scales.take(rows[start:end]), numbers, out=vectors[number])
        lengths = np.sqrt(np.square(vectors).sum(axis=1, keepdims=True))
        np.divide(vectors, lengths, out=vectors, where=lengths > 0)
        return vectors

    def narrowed(self, dim: int) -> Self:
        """The table of the first `dim` dimensions."""
        rows = np.ascontiguousarray(self.rows[:, :dim])
        return type(self)(self.tokenizer, self.tokens, self.pairs, rows, self.scales)

    def through(self, matrix: Floats) -> Self:
        """The table after a linear map of its vectors, (k, j)."""
        rows: Floats = self.rows.astype(np.float32) * self.scales[:, None]
        return self.of(self.tokenizer, self.tokens, self.pairs, rows @ matrix)

    def to_bytes(self, *, tokenizer: bool = True, notes: Mapping[str, str] | None = None) -> bytes:
        """The table as a safetensors file, with its tokenizer, or without it; `notes` are in its header."""
        tensors = {name: np.ascontiguousarray(getattr(self, name)) for name in _KINDS}
        named = np.frombuffer(self.tokenizer.to_str().encode(), np.uint8)
        return save_tensors({**tensors, "tokenizer": named} if tokenizer else tensors, dict(notes or {}) or None)

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """The inverse of `to_bytes`, of an index; `where` names the file in messages.

        Raises:
            IndexFormatError: the bytes are no table.
        """
        try:
            return cls.read(data)
        except ValueError as fault:
            hint = "make it again: `ragidx train questions`"
            raise IndexFormatError("the table of questions cannot be read", hint, where=where) from fault

    @classmethod
    def read(cls, data: bytes, tokenizer: Tokenizer | None = None) -> Self:
        """The inverse of `to_bytes`; `tokenizer`: where it is not in the bytes.

        Raises:
            ValueError: the bytes are no table.
        """
        try:
            tensors = load_tensors(data)
            if tokenizer is None:
                tokenizer = plain(Tokenizer.from_str(bytes(tensors.pop("tokenizer")).decode()))
            if {name: part.dtype.type for name, part in tensors.items()} != _KINDS:
                raise ValueError("other arrays than those of a table")
            made = cls(tokenizer, **tensors)
            if not np.isfinite(made.scales).all():
                raise ValueError("scales that are not finite")
        except Exception as fault:  # tokenizers raises no other class
            raise ValueError("the bytes are no table of tokens") from fault
        return made


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer for texts: nothing is cut, filled up or taken for a special token."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def token_ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Ints]:
    """The ids of each text, without special tokens around it."""
    encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    return [np.array(one.ids, np.int64) for one in encoded]


def pair_keys(ids: Ints) -> Ints:
    """A number for each token with the one after it, (n - 1,); another for any other two."""
    keys: Ints = (ids[:-1] << 32) | ids[1:]
    return keys


def row_numbers(ids: Ints, tokens: Ints, pairs: Ints) -> Ints:
    """The rows of a text in a table of these tokens and pairs: those of its tokens, then those of its pairs."""
    return rows_of_texts([ids], tokens, pairs)[0]


def rows_of_texts(ids: Sequence[Ints], tokens: Ints, pairs: Ints) -> tuple[Ints, Ints]:
    """The rows of texts in a table, those of one after those of another; and (n,) where each ends among them."""
    flat, owner = np.concatenate(ids), np.repeat(np.arange(len(ids)), [len(one) for one in ids])
    beside = np.flatnonzero(owner[1:] == owner[:-1])  # no pair is of two texts
    found = [_places(flat, tokens), _places(pair_keys(flat)[beside], pairs)]
    rows = np.concatenate([found[0], np.where(found[1] < 0, -1, found[1] + len(tokens))])
    owner = np.concatenate([owner, owner[beside]])
    kept = np.flatnonzero(rows >= 0)
    kept = kept[np.argsort(owner[kept], kind="stable")]
    return rows[kept], np.cumsum(np.bincount(owner[kept], minlength=len(ids)))


def _places(wanted: Ints, keys: Ints) -> Ints:
    """Where each of the wanted is among the keys; -1 for one that is not there."""
    if not len(keys):
        return np.full(len(wanted), -1)
    if keys[0] >= 0 and keys[-1] < len(wanted):  # ids of tokens, and many of them: looked up, not searched
        place_of = np.full(keys[-1] + 2, -1)
        place_of[keys] = np.arange(len(keys))
        return place_of.take(wanted, mode="clip")
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: Ints = np.where(keys[places] == wanted, places, -1)
    return found
