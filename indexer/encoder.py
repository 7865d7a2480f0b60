"""Encoders: texts to raw vectors (n, hidden) float32, neither filtered nor normalised.

What both kinds share is here: batches, and the two paths. Documents and queries are encoded by different calls, so that
an instruction can never be forgotten on one of them. The kinds are `ragidx.indexer.decoder` and
`ragidx.indexer.wrapped`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, Unpack, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ragidx.corpora.errors import ModelError, SpecError, lone_surrogate
from ragidx.indexer import batching, precision
from ragidx.indexer.batching import Batch, Budget
from ragidx.indexer.instructions import instruction as sentence_of
from ragidx.indexer.methods import SENTENCE_TRANSFORMERS, EncoderOptions, resolve
from ragidx.indexer.models import ModelFiles, locate
from ragidx.indexer.rendering import Rendered
from ragidx.indexer.specs import EncoderSpec
from ragidx.indexer.tokens import TextTokenizer

if TYPE_CHECKING:
    from ragidx.indexer.filters import Filter

Floats = NDArray[np.float32]
log = logging.getLogger("ragidx.indexer")


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


class BatchEncoder(ABC):
    """What both kinds of encoder share: rendering is theirs, batches are here."""

    spec: EncoderSpec
    hidden: int
    files: ModelFiles
    tokenizer: TextTokenizer

    def __init__(self, device: str, dtype: str, *, measured: bool) -> None:
        self.device = device
        self.dtype = dtype
        self._measured = measured  # the user left the dtype to us
        self._tuned = False
        self.threads: int | None = None  # None: as torch is set
        self.apart: int | None = None  # longer rows share no batch with shorter ones
        self.budget = Budget(batching.CPU_BUDGET if device == "cpu" else batching.GPU_BUDGET)

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

    def batches(
        self, texts: Sequence[str], *, instruction: str | None = None, project: Filter | None = None
    ) -> Iterator[Batch]:
        """Vectors as they come, longest texts first.

        Args:
            texts: what to encode.
            instruction: None for documents; for queries the instruction, or the empty string.
            project: a filter, applied in float32 on the device.
        """
        matrix = None if project is None else torch.from_numpy(project.matrix).to(self.device)
        shift = None if project is None or project.shift is None else torch.from_numpy(project.shift).to(self.device)

        def forward(ids: Tensor, attention: Tensor | None, pooled: Tensor) -> Tensor:
            with precision.threads(self.threads):
                vectors = self.forward(ids, attention, pooled, instruction)
                if matrix is None:
                    return vectors
                # A zero vector, which says that nothing was pooled, stays one.
                shifted = vectors @ matrix if shift is None else vectors @ matrix - shift
                return shifted * vectors.any(dim=1, keepdim=True)

        yield from self._run(self.rendered(texts, instruction), forward)

    def tune(self, texts: Sequence[str]) -> None:
        """Measure, once, on texts that are about to be encoded: threads, batch size, and whether `mixed` pays.

        Only on a CPU, where the best of each differs by machine and by what else runs on it; the dtype only if it was
        left to us.
        """
        if self._tuned or self.device != "cpu" or not texts:
            return
        self._tuned = True
        rows = sorted(self.rendered(texts[:512], None), key=lambda row: -row.width)
        self.threads = precision.best_threads(self._sample(rows, self.budget.tokens)[0])
        with precision.threads(self.threads):
            self.budget.tokens = self._best_budget(rows)
            if self._measured and precision.faster_mixed(self.module(), self._sample(rows, self.budget.tokens)[0]):
                self.dtype = "mixed"

    def _best_budget(self, rows: Sequence[Rendered]) -> int:
        """The batch size with the most tokens a second: larger ones are tried as long as they are faster."""
        best, fastest = 0, 0.0
        for budget in batching.CPU_BUDGETS:
            forward, n_tokens = self._sample(rows, budget)
            rate = n_tokens / precision.seconds(forward)
            if rate <= fastest:
                break
            best, fastest = budget, rate
        return best

    def _sample(self, rows: Sequence[Rendered], budget: int) -> tuple[Callable[[], Tensor], int]:
        """A forward pass over a batch of typical rows, and how many tokens it reads."""
        middle = rows[len(rows) // 4 :]
        taken = middle[: max(1, budget // max(1, middle[0].width))]
        batch = batching.collate(taken, self.tokenizer.pad, torch.device(self.device))
        return lambda: self.forward(*batch, None), sum(row.n_tokens for row in taken)

    @abstractmethod
    def rendered(self, texts: Sequence[str], instruction: str | None) -> list[Rendered]:
        """What the model reads for each text."""

    @abstractmethod
    def forward(self, ids: Tensor, attention: Tensor | None, pooled: Tensor, instruction: str | None) -> Tensor:
        """One padded batch to (b, hidden) float32."""

    @abstractmethod
    def module(self) -> torch.nn.Module:
        """The network, for the choice of its number format."""

    def _run(self, rows: Sequence[Rendered], forward: batching.Forward) -> Iterator[Batch]:
        place = torch.device(self.device)
        yield from batching.run(
            rows, forward, budget=self.budget, pad=self.tokenizer.pad, device=place, apart=self.apart
        )

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
        device: auto, cuda, mps, cpu.
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
    files = locate(
        model,
        revision=options.get("revision"),
        adapters=options.get("adapters") or (),
        pooler=options.get("pooler"),
    )
    return encoder_of(files, resolve(files, **options), device=device, dtype=dtype, attn=attn)


def encoder_of(
    files: ModelFiles, spec: EncoderSpec, *, device: str = "auto", dtype: str = "auto", attn: str = "auto"
) -> Encoder:
    """The encoder a whole spec describes."""
    place = precision.choose_device(device)
    kind = precision.choose_dtype(dtype, place)
    if spec.method == SENTENCE_TRANSFORMERS:
        if attn != "auto":
            raise SpecError(
                "a sentence-transformers model brings its own attention",
                "leave out --attn, or choose another --method",
                where="--attn",
            )
        from ragidx.indexer.wrapped import WrappedEncoder

        return WrappedEncoder(files, spec, device=place, dtype=kind, measured=dtype == "auto")
    from ragidx.indexer.decoder import DecoderEncoder

    return DecoderEncoder(files, spec, device=place, dtype=kind, measured=dtype == "auto", attn=attn)
