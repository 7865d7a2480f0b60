"""Encoders: texts to raw vectors (n, hidden) float32, neither filtered nor normalised.

A decoder encoder is a template (text -> ids and pooled span), a backbone (ids -> hidden states) and a pooling (states
and span -> vector); a method is a choice of the three. Documents and queries are encoded by different calls, so that
an instruction can never be forgotten on one of the two paths.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ragidx.corpora.errors import ModelError
from ragidx.indexer import batching, precision
from ragidx.indexer.backbone import load_backbone
from ragidx.indexer.batching import Batch, Budget
from ragidx.indexer.methods import SENTENCE_TRANSFORMERS, resolve
from ragidx.indexer.models import ModelFiles, locate
from ragidx.indexer.pooling import POOLINGS
from ragidx.indexer.specs import EncoderSpec
from ragidx.indexer.templates import DEFAULT_INSTRUCTION, Rendered, load_template, render, text_limit
from ragidx.indexer.tokens import TextTokenizer

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
        self, texts: Sequence[str], *, instruction: str | None = None, project: Floats | None = None
    ) -> Iterator[Batch]:
        """Vectors as they come; `instruction` None: documents. `project` (hidden, k) is applied on the device."""
        ...

    def text_limit(self) -> int | None:
        """The most tokens of a document that the model reads whole; None: no limit."""
        ...

    def template_content(self) -> str:
        """The template as it is, for the index's fingerprint."""
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
            instruction: the task sentence put before them; None: the spec's own, else what the template does; empty:
            none.
        """
        return self._collect(texts, self.query_instruction(instruction))

    def query_instruction(self, asked: str | None) -> str:
        """The instruction that queries carry: asked for, else the spec's, else the template's; empty for none."""
        if asked is not None:
            return asked
        return self.spec.instruction if self.spec.instruction is not None else self.default_instruction()

    def default_instruction(self) -> str:
        """What queries carry when nobody says anything."""
        return ""

    def batches(
        self, texts: Sequence[str], *, instruction: str | None = None, project: Floats | None = None
    ) -> Iterator[Batch]:
        """Vectors as they come, longest texts first.

        Args:
            texts: what to encode.
            instruction: None for documents; for queries the instruction, or the empty string.
            project: (hidden, k) a filter's matrix, applied in float32 on the device.
        """
        matrix = None if project is None else torch.from_numpy(project).to(self.device)

        def forward(ids: Tensor, attention: Tensor | None, pooled: Tensor) -> Tensor:
            with precision.threads(self.threads):
                vectors = self.forward(ids, attention, pooled, instruction)
                return vectors if matrix is None else vectors @ matrix

        rendered = self.rendered(texts, instruction)
        yield from batching.run(
            rendered, forward, budget=self.budget, pad=self.tokenizer.pad, device=torch.device(self.device)
        )

    def tune(self, texts: Sequence[str]) -> None:
        """Measure, once, on texts that are about to be encoded: threads, batch size, and whether `mixed` pays.

        Only on a CPU, where the best of each differs by machine and by what else runs on it; the dtype only if it was
        left to us.
        """
        if self._tuned or self.device != "cpu" or not texts:
            return
        self._tuned = True
        rows = sorted(self.rendered(texts[:512], None), key=lambda row: -len(row.ids))
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
        taken = middle[: max(1, budget // max(1, len(middle[0].ids)))]
        batch = batching.collate(taken, self.tokenizer.pad, torch.device(self.device))
        return lambda: self.forward(*batch, None), sum(len(row.ids) for row in taken)

    @abstractmethod
    def rendered(self, texts: Sequence[str], instruction: str | None) -> list[Rendered]:
        """What the model reads for each text."""

    @abstractmethod
    def forward(self, ids: Tensor, attention: Tensor | None, pooled: Tensor, instruction: str | None) -> Tensor:
        """One padded batch to (b, hidden) float32."""

    @abstractmethod
    def module(self) -> torch.nn.Module:
        """The network, for the choice of its number format."""

    def _collect(self, texts: Sequence[str], instruction: str | None) -> Floats:
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


class DecoderEncoder(BatchEncoder):
    """Template, backbone and pooling over any decoder that `AutoModel` loads."""

    def __init__(self, files: ModelFiles, spec: EncoderSpec, *, device: str, dtype: str, measured: bool) -> None:
        super().__init__(device, dtype, measured=measured)
        self.files, self.spec = files, spec
        self.template = load_template(spec.template, files.family)
        self.tokenizer = TextTokenizer(_tokenizer(files), model=files.name)
        self.backbone = load_backbone(
            files, layer=spec.layer, attention=spec.attention, device=device, dtype=precision.DTYPES[dtype]
        )
        if dtype == "mixed":
            precision.use_mixed(self.backbone.model)
        self.hidden = self.backbone.hidden
        known = [n for n in (self.tokenizer.max_length, self.backbone.max_positions, spec.max_length) if n]
        self.max_length: int | None = min(known) if known else None
        self._pool: Callable[[Tensor, Tensor], Tensor] = POOLINGS[spec.pooling]
        self._limits: dict[str | None, int | None] = {}

    def default_instruction(self) -> str:
        """The retrieval instruction for methods trained with one, none for zero-shot methods."""
        return DEFAULT_INSTRUCTION if self.template.instructed else ""

    def text_limit(self, instruction: str | None = None) -> int | None:
        """The most tokens of a text that fit; with an instruction, of a query."""
        if instruction not in self._limits:
            self._limits[instruction] = text_limit(self.template, self.tokenizer, self.max_length, instruction)
        return self._limits[instruction]

    def template_content(self) -> str:
        """The template's pieces as they are."""
        return self.template.content()

    def rendered(self, texts: Sequence[str], instruction: str | None) -> list[Rendered]:
        """Ids and pooled span of each text."""
        limit = self.text_limit(instruction)
        return render(
            self.template,
            [self.tokenizer.head(text, limit) for text in texts],
            self.tokenizer,
            instruction=instruction,
            limit=limit,
            pool_eos=self.spec.pool_eos,
        )

    @torch.inference_mode()
    def forward(self, ids: Tensor, attention: Tensor | None, pooled: Tensor, instruction: str | None) -> Tensor:
        """Hidden states pooled in float32, whatever the backbone computes in."""
        return self._pool(self.backbone.states(ids, attention), pooled)

    def module(self) -> torch.nn.Module:
        """The backbone's network."""
        return self.backbone.model  # type: ignore[no-any-return]


def load_encoder(
    model: str = "mini",
    *,
    method: str | None = None,
    pooling: str | None = None,
    template: str | None = None,
    attention: str | None = None,
    layer: int | None = None,
    pool_eos: bool | None = None,
    instruction: str | None = None,
    max_length: int | None = None,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> Encoder:
    """An encoder for a model; what is left out is the model's preset, then the method's default.

    Args:
        model: `mini`, a folder, or a hub id.
        method: classical, echo, prompteol, llm2vec, sentence-transformers.
        pooling: mean, weighted_mean, last.
        template: a name in templates.toml, or a string with `{text}`.
        attention: causal or bidirectional.
        layer: hidden layer that is pooled; -1 the last, 0 the input embeddings.
        pool_eos: whether echo pools the EOS with the second copy (its authors do).
        instruction: default instruction of queries.
        max_length: tokens the model reads at most.
        revision: of a hub id.
        device: auto, cuda, mps, cpu.
        dtype: auto, float32, bfloat16, float16, mixed.

    Raises:
        ModelError: the model cannot be found or loaded, or does not attend as the method needs.
        SpecError: an unknown name, or a value out of range.
    """
    files = locate(model, revision=revision)
    spec = resolve(
        files,
        method=method,
        pooling=pooling,
        template=template,
        attention=attention,
        layer=layer,
        pool_eos=pool_eos,
        instruction=instruction,
        max_length=max_length,
        revision=revision,
    )
    return encoder_of(files, spec, device=device, dtype=dtype)


def encoder_of(files: ModelFiles, spec: EncoderSpec, *, device: str = "auto", dtype: str = "auto") -> Encoder:
    """The encoder a whole spec describes."""
    place = precision.choose_device(device)
    kind = precision.choose_dtype(dtype, place)
    if spec.method == SENTENCE_TRANSFORMERS:
        from ragidx.indexer.wrapped import WrappedEncoder

        return WrappedEncoder(files, spec, device=place, dtype=kind, measured=dtype == "auto")
    return DecoderEncoder(files, spec, device=place, dtype=kind, measured=dtype == "auto")


def _tokenizer(files: ModelFiles) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(files.folder, trust_remote_code=False, local_files_only=True)
    except (ValueError, OSError, KeyError, ImportError, TypeError) as fault:
        first = str(fault).strip().splitlines()[0] if str(fault).strip() else type(fault).__name__
        raise ModelError(
            f"the tokenizer of '{files.name}' cannot be loaded: {first}",
            "copy its tokenizer.json and tokenizer_config.json into the model's folder",
            where=str(files.folder),
        ) from fault
