"""Encoders: texts to raw vectors (n, hidden) float32, neither filtered nor normalised.

What all kinds share is here. Documents and queries are encoded by different calls, so that an instruction can never be
forgotten on one of them. The kinds are `decoder`, `sentence_transformer` and, for what no network is needed, `static`,
all in this package: torch and transformers take seconds to load, so nothing here imports them.
"""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Unpack, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import ModelError, SpecError, lone_surrogate
from ragidx.indexer.devices import check_device, check_dtype
from ragidx.indexer.encoders.methods import SENTENCE_TRANSFORMERS, EncoderOptions, located, resolve
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.prompts.instructions import instruction as sentence_of
from ragidx.indexer.prompts.rendering import Rendered
from ragidx.indexer.prompts.tokenizer import TextTokenizer
from ragidx.indexer.specs import EncoderSpec

if TYPE_CHECKING:
    from ragidx.indexer.filters.filter import Filter

Floats = NDArray[np.float32]
log = logging.getLogger("ragidx.indexer")


@dataclass(frozen=True, slots=True)
class Batch:
    """Vectors of some rows of a call.

    Attributes:
        rows: which texts of the call, in the vectors' order.
        vectors: (len(rows), k) float32, or (len(rows), t, k) where every token has one.
        n_tokens: tokens the model read for them, padding left out.
        n_truncated: how many of the texts were cut.
    """

    rows: list[int]
    vectors: NDArray[np.float32]
    n_tokens: int
    n_truncated: int


@runtime_checkable
class Encoder(Protocol):
    """What turns texts into vectors."""

    spec: EncoderSpec
    hidden: int
    files: ModelFiles
    tokenizer: TextTokenizer
    device: str
    dtype: str

    def encode_document(self, texts: Sequence[str]) -> Floats:
        """(n, hidden) of documents, raw."""
        ...

    def encode_query(self, texts: Sequence[str], instruction: str | None = None) -> Floats:
        """(n, hidden) of queries, raw. `instruction` None: the spec's own; empty: none."""
        ...

    def batches(
        self, texts: Sequence[str], *, instruction: str | None = None, project: Filter | None = None
    ) -> Iterator[Batch]:
        """Vectors as they come; `instruction` None: documents. `project` is applied on the device."""
        ...

    def rendered(self, texts: Sequence[str], instruction: str | None) -> list[Rendered]:
        """What the model reads for each text; `instruction` None: documents."""
        ...

    def text_limit(self) -> int | None:
        """The most tokens of a document that the model reads whole; None: no limit."""
        ...

    def template_content(self) -> str:
        """The template as it is, for the index's fingerprint."""
        ...

    def encode_words(self, texts: Sequence[Sequence[str]], *, previous: bool | None = None) -> list[Floats]:
        """(n_words, hidden) for each text: vectors of words in their context."""
        ...

    def tune(self, texts: Sequence[str]) -> None:
        """Measure, on texts that are about to be encoded, which number format and batch size are fastest here."""
        ...

    def on_threads(self, count: int | None) -> AbstractContextManager[None]:
        """Compute on `count` threads inside, where the model's library can be told; None changes nothing."""
        ...


class TextEncoder(ABC):
    """What all kinds of encoder share: both paths, and the checks of what comes out of them."""

    spec: EncoderSpec
    hidden: int
    files: ModelFiles
    tokenizer: TextTokenizer
    device: str
    dtype: str

    def encode_document(self, texts: Sequence[str]) -> Floats:
        """(n, hidden) float32 of documents, raw: neither filtered nor normalised.

        Raises:
            ModelError: the model gave a number that is not finite.
        """
        return self._collect(texts, None)

    def encode_query(self, texts: Sequence[str], instruction: str | None = None) -> Floats:
        """(n, hidden) float32 of queries, raw.

        Args:
            texts: the questions.
            instruction: the task sentence put before them, or `task:NAME`; None: the spec's own, else what the template
                does; empty: none.
        """
        return self._collect(texts, self.query_instruction(instruction))

    def encode_words(self, texts: Sequence[Sequence[str]], *, previous: bool | None = None) -> list[Floats]:
        """Vectors of words, which a model's own modules do not have.

        Raises:
            SpecError: always, but for decoders.
        """
        raise SpecError(
            f"{self.spec.method} has one vector a text and none for its words",
            "use --method llm2vec, reba or classical",
        )

    def query_instruction(self, asked: str | None) -> str:
        """The instruction that queries carry: asked for, else the spec's, else the template's; empty for none."""
        if asked is not None:
            return sentence_of(asked) or ""
        return self.spec.instruction if self.spec.instruction is not None else self.default_instruction()

    def default_instruction(self) -> str:
        """What queries carry when nobody says anything."""
        return ""

    @abstractmethod
    def batches(
        self, texts: Sequence[str], *, instruction: str | None = None, project: Filter | None = None
    ) -> Iterator[Batch]:
        """Vectors as they come, in the order that suits the encoder.

        Args:
            texts: what to encode.
            instruction: None for documents; for queries the instruction, or the empty string.
            project: a filter, applied in float32.
        """

    @abstractmethod
    def rendered(self, texts: Sequence[str], instruction: str | None) -> list[Rendered]:
        """What the model reads for each text."""

    def tune(self, texts: Sequence[str]) -> None:
        """Measure what is fastest here, on texts that are about to be encoded; without a network there is no choice."""
        return

    def on_threads(self, count: int | None) -> AbstractContextManager[None]:
        """Compute on `count` threads inside; without a network there is nothing to share among them."""
        return contextlib.nullcontext()

    def _collect(self, texts: Sequence[str], instruction: str | None) -> Floats:
        check_texts(texts)
        out = np.zeros((len(texts), self.hidden), dtype=np.float32)
        cut = 0
        for batch in self.batches(list(texts), instruction=instruction):
            out[batch.rows] = batch.vectors
            cut += batch.n_truncated
        if cut:
            log.warning("%d of %d texts are longer than the model reads and were cut", cut, len(texts))
        bad = np.flatnonzero(~np.isfinite(out).all(axis=1))
        if bad.size:
            raise ModelError(
                f"the model gave a vector that is not finite for text {int(bad[0])}: {texts[bad[0]][:60]!r}",
                "try --dtype float32",
            )
        return out


def check_texts(texts: Sequence[str]) -> None:
    """What a program can get wrong about texts.

    Raises:
        TypeError: one string in place of a list of them, or something that is no string.
        ValueError: a string that is no Unicode text: it holds half of a surrogate pair.
    """
    if isinstance(texts, str):
        raise TypeError("expected a list of texts, got one string: its characters would be taken for texts")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {number} is {type(text).__name__}, not str")
        at = lone_surrogate(text)
        if at is not None:
            raise ValueError(f"text {number} is no Unicode text: half of a surrogate pair at character {at}")


def load_encoder(
    model: str = "mini",
    *,
    device: str = "auto",
    dtype: str = "auto",
    attn: str = "auto",
    **options: Unpack[EncoderOptions],
) -> Encoder:
    """An encoder for a model; what is left out is the model's preset, then the method's default.

    Args:
        model: `mini`, a folder, or a hub id. A folder that holds a LoRA adapter stands for its base with it.
        device: auto, cuda, mps, cpu. A static model (layer 0, mean) takes the CPU for auto: it runs no network.
        dtype: auto, float32, bfloat16, float16, mixed.
        attn: how a decoder's attention is computed, a name of transformers': sdpa, eager, flash_attention_2; auto.
        options:
            method: classical, echo, prompteol, metaeol, llm2vec, reba, sentence-transformers.
            template: a name in templates.toml, or a string with `{text}`.
            copies: how often echo (without words between) or reba repeats the text.
            pooling: mean, weighted_mean, last, eos, bos, trainable.
            pooler: the weights of the trainable pooling, a safetensors file.
            attention: causal or bidirectional.
            layer: hidden layer that is pooled; -1 the last, 0 the input embeddings.
            layer_norm: whether a layer before the last one goes through the final norm too.
            pool_eos: whether an EOS or closing marker that the template pools counts (echo's authors do it).
            instruction: default instruction of queries; `task:NAME` for that of a known task.
            max_length: tokens of a text that are read at most.
            compute_matched: whether max_length holds for all copies of the text together.
            truncate: where a text that is too long is cut: end or middle.
            adapters: LoRA adapters, merged in this order: folders or hub ids.
            revision: of a hub id.

    Raises:
        ModelError: the model cannot be found or loaded, or does not attend as the method needs.
        SpecError: an unknown name, a value out of range, or options that do not go together.
    """
    files = located(model, options)
    return encoder_of(files, resolve(files, **options), device=device, dtype=dtype, attn=attn)


def encoder_of(
    files: ModelFiles, spec: EncoderSpec, *, device: str = "auto", dtype: str = "auto", attn: str = "auto"
) -> Encoder:
    """The encoder a whole spec describes."""
    check_device(device)
    check_dtype(dtype)
    if device in ("auto", "cpu") and dtype in ("auto", "float32") and attn == "auto":
        from ragidx.indexer.encoders.static import StaticEncoder, is_static

        if is_static(files, spec):
            return StaticEncoder(files, spec)
    from ragidx.indexer.encoders import precision

    place = precision.choose_device(device)
    kind = precision.choose_dtype(dtype, place)
    if spec.method == SENTENCE_TRANSFORMERS:
        if attn != "auto":
            raise SpecError(
                "a sentence-transformers model brings its own attention",
                "leave out --attn, or choose another --method",
                where="--attn",
            )
        from ragidx.indexer.encoders.sentence_transformer import WrappedEncoder

        return WrappedEncoder(files, spec, device=place, dtype=kind, measured=dtype == "auto")
    from ragidx.indexer.encoders.decoder import DecoderEncoder

    return DecoderEncoder(files, spec, device=place, dtype=kind, measured=dtype == "auto", attn=attn)
