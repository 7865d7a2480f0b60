"""Rerankers: a model that reads a question together with each passage, and orders the passages by what it finds.

    question, passages -> scores (n,), higher is better

A cross-encoder of sentence-transformers gives its raw logit. A decoder is asked by a prompt of rerankers.toml: whether
the passage answers (logit of yes less logit of no), or how likely the question is after the passage (the mean
log-probability of its tokens). Scores are raw: a sigmoid saturates, and equal scores order nothing. No model is the
default: a small decoder makes the order of hybrid search worse (docs/query.md).
"""

from __future__ import annotations

import contextlib
import functools
import re
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeAlias

import numpy as np

from ragidx.corpora.errors import ModelError, SpecError, check_machine, first_line, unknown_name
from ragidx.indexer.arrays import Floats, slices
from ragidx.indexer.devices import check_models, choose_device
from ragidx.indexer.models.locate import ModelFiles, locate
from ragidx.indexer.prompts.tokenizer import load_tokenizer
from ragidx.retriever.hit import RerankWarning

AUTO, CROSS_ENCODER, LIKELIHOOD = "auto", "cross-encoder", "likelihood"

_BATCH = 8  # passages that go through the model at once
_BORDER = 2  # tokens more that are cut, since those at a border may be others
_SLOT = re.compile(r"\{(query|document|instruction)\}")
_LEAST_MASS = 0.1  # of the probabilities of yes and no together


@dataclass(frozen=True, slots=True)
class Prompt:
    """An entry of rerankers.toml."""

    method: str
    families: Sequence[str]
    instruction: str
    prompt: Sequence[str]
    yes: str
    no: str


def reranker_methods() -> list[str]:
    """The ways to rerank, by name."""
    return [AUTO, CROSS_ENCODER, *_prompts()]


def load_reranker(model: str, *, method: str = AUTO, device: str = "auto", dtype: str = "auto") -> Reranker:
    """A reranker; model and method are those of `Rerank`, the device as in `load_encoder`.

    `dtype` is float32, bfloat16 or float16; `auto` is float32 on a CPU, and bfloat16 elsewhere.

    Raises:
        ModelError: there is no such model, or it is no reranker.
        SpecError: the method is unknown.
        RagidxError: the extra `models` is not installed.
    """
    if method not in reranker_methods():
        fault = unknown_name("method of reranking", method, reranker_methods())
        raise SpecError(fault.message, fault.hint, where="`rerank_method`")
    check_models(f"the reranker '{model}'")
    try:
        files = locate(model)
    except ModelError as fault:
        raise ModelError(fault.message, fault.hint.replace("`model`", "`rerank`"), where="`rerank`") from fault
    place = choose_device(device)
    kind = _kind(files)
    if kind == CROSS_ENCODER:
        if method not in (AUTO, CROSS_ENCODER):
            raise SpecError(f"'{model}' is a cross-encoder, not a decoder", "remove it", where="`rerank_method`")
        return CrossEncoderReranker(files, place, _dtype(dtype, place))
    if method == CROSS_ENCODER:
        raise ModelError(f"'{model}' is a decoder, no cross-encoder", "give another method", where="`rerank_method`")
    name = next((n for n, p in _prompts().items() if files.family in p.families), LIKELIHOOD)
    prompt = _prompts()[name if method == AUTO else method]
    return DecoderReranker(files, prompt, place, _dtype(dtype, place))


class CrossEncoderReranker:
    """A cross-encoder, by sentence-transformers."""

    def __init__(self, files: ModelFiles, device: str, dtype: str) -> None:
        import torch
        from sentence_transformers import CrossEncoder

        from ragidx.indexer.encoders.backbone import silence_transformers

        silence_transformers()
        with _loading(files, "a cross-encoder"):
            self._model = CrossEncoder(
                str(files.folder),
                device=device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": getattr(torch, dtype), "use_safetensors": True},
                activation_fn=torch.nn.Identity(),
            )
        if not files.sentence_transformers:  # the spelling of a special token in a passage is text
            self._model.tokenizer.backend_tokenizer.encode_special_tokens = True
        labels = int(self._model.num_labels or 1)
        if labels != 1:
            raise ModelError(
                f"'{files.name}' has {labels} labels: it sorts pairs into classes, and gives no relevance",
                "name a cross-encoder with one label",
                where="`rerank`",
            )

    def score(self, query: str, passages: Sequence[str]) -> Floats:
        """Raw logits."""
        pairs = [(query, passage) for passage in passages]
        found = self._model.predict(pairs, batch_size=_BATCH, show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(found, np.float32).reshape(-1)


class DecoderReranker:
    """A decoder with a prompt."""

    def __init__(self, files: ModelFiles, prompt: Prompt, device: str, dtype: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        from ragidx.indexer.encoders.backbone import silence_transformers
        from ragidx.indexer.models.gguf.model import load_gguf

        silence_transformers()
        self.device = device
        with _loading(files, "a decoder"):
            model: Any = (
                AutoModelForCausalLM.from_pretrained(
                    files.folder,
                    dtype=getattr(torch, dtype),
                    local_files_only=True,
                    trust_remote_code=False,
                    use_safetensors=True,
                )
                if files.gguf is None
                else load_gguf(files.gguf, files.config, dtype=getattr(torch, dtype), head=True)[0]
            )
        self._model = model.to(device).eval().requires_grad_(False)
        self._prompt, self._files, self._tokenizer = prompt, files, load_tokenizer(files)
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._limit = int(limit) if limit else 1 << 20
        if prompt.method == "yes-no":
            self._answers = [self._answer(prompt.yes), self._answer(prompt.no)]

    def score(self, query: str, passages: Sequence[str]) -> Floats:
        """The score of each passage, as the prompt's method says.

        Raises:
            ModelError: the question alone is longer than the model reads.
        """
        found: list[float] = []
        for batch in slices(passages, _BATCH):
            rows = [self._ids(query, passage) for passage in batch]
            found += self._yes_no(rows) if self._prompt.method == "yes-no" else self._likelihood(rows)
        return np.array(found, np.float32)

    def _answer(self, text: str) -> int:
        ids = self._tokenizer.piece(text)
        if len(ids) != 1:
            raise ModelError(
                f"{text!r} is {len(ids)} tokens of '{self._files.name}', and one is compared",
                f"take another method: {', '.join(reranker_methods())}",
                where="`rerank_method`",
            )
        return int(ids[0])

    def _ids(self, query: str, passage: str) -> tuple[list[int], int]:
        """Token ids of the prompt, and how many at the end are those of its last part; the passage is cut to fit."""
        parts = self._parts(query, passage)
        excess = sum(map(len, parts)) - self._limit
        if excess > 0:
            spans = self._tokenizer.spans([passage])[0]
            kept = max(0, len(spans) - excess - _BORDER)
            parts = self._parts(query, passage[: spans[kept][0]] if kept < len(spans) else passage)
            if sum(map(len, parts)) > self._limit:
                raise ModelError(
                    f"the question is longer than the {self._limit:,} tokens that '{self._files.name}' reads",
                    "shorten it",
                )
        return [token for part in parts for token in part], len(parts[-1])

    def _parts(self, query: str, passage: str) -> list[list[int]]:
        """Ids of each part of the prompt, those that the tokenizer puts before every text first."""
        values = {"query": query, "document": passage, "instruction": self._prompt.instruction}
        found = [list(self._tokenizer.prefix)]
        for part in self._prompt.prompt:
            filled = _SLOT.sub(lambda slot: values[slot[1]], part)
            found.append(self._tokenizer.ids([filled])[0] if _SLOT.search(part) else self._tokenizer.piece(part))
        return found

    def _states(self, rows: Sequence[tuple[list[int], int]]) -> tuple[Any, Any]:
        """Last hidden states (b, t, d), and the ids (b, t), padded at the end."""
        import torch

        longest = max(len(ids) for ids, _ in rows)
        ids = torch.zeros((len(rows), longest), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for number, (row, _) in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(row)
            mask[number, : len(row)] = 1
        with torch.inference_mode():
            output = self._model.base_model(
                input_ids=ids.to(self.device), attention_mask=mask.to(self.device), use_cache=False
            )
        return output.last_hidden_state, ids.to(self.device)

    def _yes_no(self, rows: Sequence[tuple[list[int], int]]) -> list[float]:
        """Logit of yes less logit of no at the last position."""
        import torch

        states, _ = self._states(rows)
        ends = [len(ids) - 1 for ids, _ in rows]
        last = states[range(len(rows)), ends]
        with torch.inference_mode():
            logits = self._model.get_output_embeddings()(last).float()
        mass = logits.softmax(-1)[:, self._answers].sum(-1)
        if float(mass.max()) < _LEAST_MASS:
            warnings.warn(
                f"'{self._files.name}' answers neither yes nor no ({100 * float(mass.max()):.1g} % of what it would "
                "say): its order may be worth nothing; another method asks in another way",
                RerankWarning,
                stacklevel=2,
            )
        yes, no = self._answers
        differences: list[float] = (logits[:, yes] - logits[:, no]).tolist()
        return differences

    def _likelihood(self, rows: Sequence[tuple[list[int], int]]) -> list[float]:
        """The mean log-probability of the tokens of the last part."""
        import torch

        states, ids = self._states(rows)
        found = []
        with torch.inference_mode():
            for number, (row, count) in enumerate(rows):
                places = slice(len(row) - count - 1, len(row) - 1)
                logits = self._model.get_output_embeddings()(states[number, places]).float()
                chosen = ids[number, len(row) - count : len(row)]
                found.append(float(logits.log_softmax(-1).gather(-1, chosen[:, None]).mean()))
        return found


Reranker: TypeAlias = CrossEncoderReranker | DecoderReranker
"""`score` gives (n,), higher is better, for a question and n passages."""


def check_scores(scores: Floats, model: str) -> None:
    """Whether a reranker's scores order the passages; a warning where all are equal.

    Raises:
        ModelError: one is not a number.
    """
    if not np.isfinite(scores).all():
        raise ModelError(
            f"'{model}' gives {np.count_nonzero(~np.isfinite(scores))} of {len(scores)} passages a score that is no "
            "number",
            "try --dtype float32, or another model",
            where="`rerank`",
        )
    if len(scores) > 1 and float(np.ptp(scores)) <= 1e-6 * float(np.abs(scores).max()):
        warnings.warn(
            f"'{model}' gives all {len(scores)} passages the same score: their order is that of the search",
            RerankWarning,
            stacklevel=2,
        )


@contextlib.contextmanager
def _loading(files: ModelFiles, kind: str) -> Iterator[None]:
    """Name the model, where the block cannot load it."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as fault:
        check_machine(fault, files.folder)
        raise ModelError(
            f"'{files.name}' cannot be loaded as {kind}: {first_line(fault)}", "name another model", where="`rerank`"
        ) from fault


def _kind(files: ModelFiles) -> str:
    """`cross-encoder` or `decoder`.

    Raises:
        ModelError: the model is neither.
    """
    architecture = str((files.config.get("architectures") or [""])[0])
    if architecture.endswith("ForSequenceClassification") or (
        files.sentence_transformers and (files.folder / "1_LogitScore").is_dir()
    ):
        return CROSS_ENCODER
    if architecture.endswith(("ForCausalLM", "LMHeadModel")) and not files.sentence_transformers:
        return "decoder"
    what = f"it is a {architecture}" if architecture else "its config names no architecture"
    raise ModelError(
        f"'{files.name}' is no reranker: {what}, neither a cross-encoder nor a decoder with its head",
        "name a cross-encoder such as cross-encoder/ms-marco-MiniLM-L6-v2, or a decoder",
        where="`rerank`",
    )


def _dtype(dtype: str, device: str) -> str:
    if dtype == "auto":
        return "float32" if device == "cpu" else "bfloat16"
    if dtype == "mixed":
        raise SpecError("a reranker runs in one number format", "give float32 or bfloat16", where="`dtype`")
    return dtype


@functools.cache
def _prompts() -> dict[str, Prompt]:
    data = resources.files(__package__ or "").joinpath("rerankers.toml").read_text("utf-8")
    return {name: Prompt(**entry) for name, entry in tomllib.loads(data).items()}
