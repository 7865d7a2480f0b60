"""A model's vocabulary as the lens reads it: its unembedding matrix, the names of its tokens, and how often a corpus
has each.

Token names are shown as one printable word: a space is ▁, a byte that is not text by itself is <0xE2>, a control
character is escaped as in Python. The network is never loaded here: head and tokenizer are files of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragidx.corpora.errors import ModelError
from ragidx.indexer.arrays import bundles
from ragidx.indexer.encoders.methods import ENDPOINT
from ragidx.indexer.filters.logits import top_logits
from ragidx.indexer.filters.unembedding import Spectrum, find_unembedding, spectrum_of
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.prompts.tokenizer import TextTokenizer, load_tokenizer

if TYPE_CHECKING:
    from ragidx.retriever.searcher import Searcher

_BATCH_TEXTS = 512
_BATCH_CHARS = 4 << 20


@dataclass(frozen=True, slots=True)
class TokenLogit:
    """A token and its logit, read from one vector."""

    id: int
    token: str
    logit: float


class Vocabulary:
    """The tokens of a model and their rows in its unembedding matrix.

    Attributes:
        files: files of the model.
        head: the tensor that holds the matrix.
        hidden: hidden width d of the model.
        n_named: the rows that the tokenizer has a token for; a head may have more.

    Raises:
        ModelError: the model has no unembedding matrix, or one that cannot be read as numbers.
    """

    def __init__(self, files: ModelFiles, tokenizer: TextTokenizer) -> None:
        try:
            self.head = find_unembedding(files)
        except ModelError as fault:
            raise ModelError(
                fault.message,
                "the lens reads a decoder language model with its head in float16, bfloat16 or float32, such as "
                "`model=mini-decoder`",
                where=fault.where,
            ) from fault
        self.files = files
        self.hidden = self.head.shape[1]
        self._tokenizer = tokenizer
        self._by_bytes = "ByteLevel" in repr(tokenizer.pieces.decoder)
        self.n_named = min(self.head.shape[0], tokenizer.pieces.get_vocab_size(with_added_tokens=True))

    @functools.cached_property
    def spectrum(self) -> Spectrum:
        """The spectrum of the unembedding matrix."""
        return spectrum_of(self.files)

    def shown(self, token: int) -> str:
        """A token's name as one printable word; `<row 7>` for a row of the head without a token."""
        name = self._tokenizer.pieces.id_to_token(token)
        if name is None:
            return f"<row {token}>"
        return visible(text_of_bytes(name) if self._by_bytes else name)

    def top(self, vectors: ArrayLike, k: int) -> list[tuple[TokenLogit, ...]]:
        """For each vector (n, d) the k tokens with the largest logits, largest first."""
        ids, logits = top_logits(self.head, vectors, k)
        return [
            tuple(TokenLogit(int(i), self.shown(int(i)), float(x)) for i, x in zip(row, of_row, strict=True))
            for row, of_row in zip(ids, logits, strict=True)
        ]

    def count(self, texts: Iterable[str]) -> tuple[NDArray[np.int64], int]:
        """(V,) how often each token is in texts, and how many texts there are; special tokens are never counted."""
        counted = np.zeros(self.head.shape[0], dtype=np.int64)
        n_texts = 0
        for batch in bundles(texts, len, _BATCH_CHARS, _BATCH_TEXTS):
            n_texts += len(batch)
            for ids in self._tokenizer.ids(batch):
                found = np.asarray(ids, dtype=np.int64)
                counted += np.bincount(found[found < counted.size], minlength=counted.size)
        return counted, n_texts


def vocabulary_of(searcher: Searcher) -> Vocabulary:
    """The vocabulary of an index's own model.

    Raises:
        ModelError: the index has no model, or one of a server; it is not here, or has no unembedding matrix.
    """
    spec, where = searcher.spec.encoder, str(searcher.store.path)
    if spec is None:
        raise ModelError(
            "the index holds precomputed vectors, and no model whose tokens could be counted",
            "count in a corpus with `corpus`, and name a `model`",
            where=where,
        )
    if spec.method == ENDPOINT:
        raise ModelError(
            f"'{spec.model}' is a model of a server, and the lens reads the weights",
            "build an index with the model's folder or its hub id",
            where=where,
        )
    return Vocabulary(searcher.model_files, load_tokenizer(searcher.model_files))


def visible(name: str) -> str:
    """One printable word: spaces become ▁, what a terminal would not print is escaped.

    >>> visible(" the"), visible("\\n"), visible("\\x1b[31m"), visible("")
    ('▁the', '\\\\n', '\\\\x1b[31m', '<empty>')
    """
    shown = (
        "▁" if letter == " " else letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in name
    )
    return "".join(shown) or "<empty>"


def text_of_bytes(name: str) -> str:
    """The text of a token of a byte-level tokenizer, whose names spell each byte by one letter.

    A name that is not spelt so, as those of added tokens, stays as it is; bytes that are no text are shown one by one.

    >>> text_of_bytes("Ġthe"), text_of_bytes("Ã©"), text_of_bytes("âĢ"), text_of_bytes("<｜eos｜>")
    (' the', 'é', '<0xE2><0x80>', '<｜eos｜>')
    """
    letters = _letters_of_bytes()
    if not all(letter in letters for letter in name):
        return name
    data = bytes(letters[letter] for letter in name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in data)


@functools.cache
def _letters_of_bytes() -> dict[str, int]:
    """Radford et al. 2019 (GPT-2): printable bytes of Latin-1 spell themselves, the others letters from U+0100 on."""
    themselves = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(themselves)]
    return {chr(byte): byte for byte in themselves} | {chr(0x100 + n): byte for n, byte in enumerate(others)}
