"""Encoders: texts to raw vectors (n, hidden) float32, neither filtered nor normalised.

The base of all encoders. Documents and queries have different calls, so that an instruction cannot be forgotten. This
module does not import torch or transformers.
"""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import ModelError, SpecError, lone_surrogate
from ragidx.indexer.arrays import Floats
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.prompts.instructions import instruction as sentence_of
from ragidx.indexer.prompts.rendering import Rendered
from ragidx.indexer.prompts.tokenizer import TextTokenizer
from ragidx.indexer.prompts.words import Words
from ragidx.indexer.specs import EncoderSpec

if TYPE_CHECKING:
    from ragidx.indexer.filters.filter import Filter

log = logging.getLogger("ragidx.indexer")

TUNE_FROM = 256
"""Texts of a call: from here on it pays to measure first which number format and batch size are fastest."""


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Vectors of some rows of a call."""

    rows: list[int]  # which texts of the call, in the vectors' order
    vectors: NDArray[np.float32]  # (len(rows), k), or (len(rows), t, k) where every token has one
    n_tokens: int  # that the model read for them, without padding
    n_truncated: int  # how many of the texts were cut
    raw_sum: NDArray[np.floating] | None = None  # (hidden,) of the known documents' before the filter, of length 1
    unknown: Sequence[int] = ()  # which vectors are of texts that mean nothing to the model


@dataclass
class EndpointUsage:
    """What an endpoint was asked so far."""

    url: str
    n_requests: int = 0  # that were answered
    n_retries: int = 0  # that were sent once more
    n_tokens: int | None = None  # that it says it read; None: it does not say
    n_cut: int | None = None  # texts of documents that it cut; None: it does not count, or its tokenizer is not here
    counted_by: str = ""  # what counts tokens here: the name of a tokenizer's file; empty: characters


class OtherModelError(ModelError):
    """The model of a server is not the one that made other vectors of the index."""


class Encoder(ABC):
    """The base of all encoders: documents, queries, and checks of their vectors."""

    spec: EncoderSpec
    hidden: int
    files: ModelFiles
    tokenizer: TextTokenizer
    device: str
    dtype: str
    has_measured = False  # whether `dtype` is what was found to be fastest here
    takes_ids = False  # whether much of its time is the tokenizer's, so that `tokenizer.know` pays

    @property
    def usage(self) -> EndpointUsage | None:
        """What a server was asked; None: the model runs here."""
        return None

    def encode_document(self, texts: Sequence[str]) -> Floats:
        """(n, hidden) float32 of documents, raw: neither filtered nor normalised.

        Raises:
            ModelError: the model gave a number that is not finite.
        """
        return self._collect(texts, None)

    def encode_query(self, texts: Sequence[str], instruction: str | None = None) -> Floats:
        """(n, hidden) float32 of queries, raw.

        Args:
            texts: the questions to encode.
            instruction: the task sentence put before them, or `task:NAME`; None: the spec's own, else what the template
                does; empty: none.
        """
        return self._collect(texts, self.query_instruction(instruction))

    def encode_words(self, texts: Sequence[Words], *, previous: bool | None = None) -> list[Floats]:
        """Vectors of words in their context, which only decoders have; see `DecoderEncoder.encode_words`.

        Raises:
            SpecError: always, but for decoders.
        """
        raise SpecError(
            f"{self.spec.method} has one vector a text and none for its words",
            "use `method=llm2vec`, reba or classical",
        )

    def encode_layers(self, texts: Sequence[str], instruction: str | None = None) -> Floats:
        """Vectors of texts from every layer, which only decoders have; see `DecoderEncoder.encode_layers`.

        Raises:
            SpecError: always, but for decoders.
        """
        raise SpecError(
            "the model has one vector a text and none for each of its layers",
            "give a decoder, or leave the layer to the model",
            where="`layer`",
        )

    def encode_tokens(
        self, texts: Sequence[str], instruction: str | None = None, *, every_layer: bool = False
    ) -> list[Floats]:
        """(t, hidden) for each text, the state of each token, or of each layer and token, which only decoders have.

        Raises:
            SpecError: always, but for decoders.
        """
        raise SpecError(
            "the model has one vector a text and none for its tokens",
            "give a decoder that runs its layers, such as `model=mini-decoder` with `layer=-1`",
            where="`model`",
        )

    def query_instruction(self, asked: str | None) -> str:
        """The instruction of queries: the requested one, else the spec's, else the template's; empty for none."""
        if asked is not None:
            return sentence_of(asked) or ""
        return self.spec.instruction if self.spec.instruction is not None else self.default_instruction()

    def default_instruction(self) -> str:
        """The default instruction of queries."""
        return ""

    @abstractmethod
    def batches(
        self, texts: Sequence[str], *, instruction: str | None = None, project: Filter | None = None, tune: bool = True
    ) -> Iterator[EncodedRows]:
        """Vectors as they come, in the order that suits the encoder.

        Args:
            texts: what to encode.
            instruction: None for documents; for queries the instruction, or the empty string.
            project: a filter, applied in float32.
            tune: whether the first call with `TUNE_FROM` documents or more measures what is fastest. False: for results
                that a later run must repeat, and for the caller's own measurements.
        """

    @abstractmethod
    def rendered(self, texts: Sequence[str], instruction: str | None) -> list[Rendered]:
        """What the model reads for each text; `instruction` None: documents."""

    @abstractmethod
    def text_limit(self) -> int | None:
        """The most tokens of a document that the model reads whole; None: no limit."""

    def template_content(self) -> str:
        """The template as it is, for the index's fingerprint; empty where the model's files or the spec have it."""
        return ""

    def tune(self, texts: Sequence[str]) -> None:
        """Measure what is fastest here, on texts to be encoded next; without a network there is no choice."""
        return

    def use_format(self, name: str) -> None:
        """Compute in the number format in which other vectors were made; only where `dtype` is auto, on a CPU."""
        return

    def on_threads(self, count: int | None) -> AbstractContextManager[None]:
        """Compute on `count` threads inside; without a network this changes nothing."""
        return contextlib.nullcontext()

    def _unknown(self, texts: Sequence[str], rows: Sequence[Rendered]) -> list[int]:
        """Which texts, of these rows, mean nothing to the model: more than half of the characters is unknown to it."""
        unknown = self.tokenizer.unknown
        if not unknown.numbers:
            return []
        return [
            place
            for place, (text, row) in enumerate(zip(texts, rows, strict=True))
            if unknown.occur(row.ids) and self.tokenizer.is_unknown(text, self.text_limit() if row.truncated else None)
        ]

    def _collect(self, texts: Sequence[str], instruction: str | None) -> Floats:
        check_texts(texts)
        batches = self.batches(list(texts), instruction=instruction)
        return collect(check_finite(batches, texts), len(texts), self.hidden)


def check_finite(
    batches: Iterable[EncodedRows], texts: Sequence[str], names: Sequence[str] | None = None
) -> Iterator[EncodedRows]:
    """The batches of these texts as they are; a message has the text's name, else its number and beginning.

    Raises:
        ModelError: a vector is not finite; the message names the text.
    """
    for batch in batches:
        bad = np.flatnonzero(~np.isfinite(batch.vectors).all(axis=1))
        if bad.size:
            row = batch.rows[int(bad[0])]
            what, hint = "the model gave a vector that is not finite", "try `dtype=float32`"
            if names is None:
                raise ModelError(f"{what} for text {row}: {texts[row][:60]!r}", hint)
            raise ModelError(what, f"{hint}; if it stays, exclude the document", where=names[row])
        yield batch


def collect(batches: Iterable[EncodedRows], n: int, width: int) -> Floats:
    """(n, width) of n texts, in their order; how many were cut is logged once."""
    out = np.zeros((n, width), np.float32)
    cut = 0
    for batch in batches:
        out[batch.rows] = batch.vectors
        cut += batch.n_truncated
    if cut:
        log.warning("%d of %d texts are longer than the model reads and were cut", cut, n)
    return out


def check_texts(texts: Sequence[str]) -> None:
    """Check the texts of the calling program.

    Raises:
        TypeError: a string in place of a list, or an item that is not a string.
        ValueError: a string that is not Unicode text: it holds half of a surrogate pair.
    """
    if isinstance(texts, str):
        raise TypeError("expected a list of texts, got one string: its characters would be taken for texts")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {number} is {type(text).__name__}, not str")
        at = lone_surrogate(text)
        if at is not None:
            raise ValueError(f"text {number} is not Unicode text: half of a surrogate pair at character {at}")
