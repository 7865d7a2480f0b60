"""Sentence-transformers models, with their own modules and prompts, run over this package's batches.

Their `encode` sorts by characters and takes a fixed number of rows a batch; here the batches are cut by tokens,
without a mask where nothing is padded, and the linear layers run in bfloat16 where that is measured faster. The
vectors are theirs. Imported only when such a model is named: the library takes seconds to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ragidx.corpora.errors import ModelError, check_machine, first_line
from ragidx.indexer.encoders import precision
from ragidx.indexer.encoders.backbone import silence_transformers
from ragidx.indexer.encoders.torch_encoder import BatchEncoder
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.models.modules import check_bare_text
from ragidx.indexer.prompts.rendering import Rendered
from ragidx.indexer.prompts.tokenizer import TextTokenizer
from ragidx.indexer.specs import EncoderSpec

_OWN = "\0own"  # means the model's own query prompt: no instruction was requested, nor the empty one
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


class WrappedEncoder(BatchEncoder):
    """A sentence-transformers model as an `Encoder`."""

    def __init__(self, files: ModelFiles, spec: EncoderSpec, *, device: str, dtype: str) -> None:
        super().__init__(device, dtype)
        self.files, self.spec = files, spec
        self.model = _load(files, device, precision.DTYPES[self.dtype])
        if self.dtype == "mixed":
            precision.use_mixed(self.model)
        self.tokenizer = TextTokenizer.of(self.model.tokenizer, model=files.name)
        self.hidden = int(self.model.get_embedding_dimension())
        known = (self.model.max_seq_length, self.tokenizer.max_length)
        self.max_length: int | None = min((n for n in known if n), default=None)

    def prompt(self, instruction: str | None) -> str:
        """The string the model wants before a text: for documents its own, for queries the instruction's or its own."""
        prompts: dict[str, str] = {name: text for name, text in self.model.prompts.items() if text}
        default = prompts.get(self.model.default_prompt_name or "", "")
        if instruction is None:
            return next((prompts[name] for name in _DOCUMENT_PROMPTS if name in prompts), default)
        if instruction == _OWN:
            return prompts.get("query", default)
        return f"Instruct: {instruction}\nQuery: " if instruction else ""

    def default_instruction(self) -> str:
        """The model's own query prompt."""
        return _OWN

    def text_limit(self, instruction: str | None = None) -> int | None:
        """The most tokens of a text that are read, beside the model's special tokens and prompt."""
        fitting = None
        if self.max_length is not None:
            around = len(self.tokenizer.prefix) + len(self.tokenizer.suffix)
            fitting = max(1, self.max_length - around - self._n_prompt(instruction))
        return min((limit for limit in (fitting, self.spec.max_length) if limit is not None), default=None)

    def _n_prompt(self, instruction: str | None) -> int:
        return len(self.tokenizer.piece(self.prompt(instruction)))

    def rendered(self, texts: Sequence[str], instruction: str | None) -> list[Rendered]:
        """Prompt and text as one string, with the tokenizer's special tokens around, cut at the end of the text."""
        prompt = self.prompt(instruction)
        before, after = self.tokenizer.prefix, self.tokenizer.suffix
        limit = self.text_limit(instruction)
        room = None if limit is None else limit + self._n_prompt(instruction)
        rows = []
        for ids in self.tokenizer.ids([self.tokenizer.head(prompt + text, room) for text in texts]):
            kept = ids[:room]
            whole = [*before, *kept, *after]
            rows.append(Rendered(whole, ((0, len(whole)),), len(kept) < len(ids)))
        return rows

    @torch.inference_mode()
    def forward(self, ids: Tensor, attention: Tensor | None, pooled: Tensor, instruction: str | None) -> Tensor:
        """One padded batch through the model's own modules."""
        features: dict[str, Any] = {"input_ids": ids, "attention_mask": pooled.to(torch.int64)}
        prompt = self.prompt(instruction)
        if prompt:
            features["prompt_length"] = len(self.tokenizer.prefix) + self._n_prompt(instruction)
        task = "document" if instruction is None else "query"
        return self.model(features, task=task)["sentence_embedding"].to(torch.float32)  # type: ignore[no-any-return]

    def module(self) -> torch.nn.Module:
        """The whole chain of modules."""
        return self.model  # type: ignore[no-any-return]


def _load(files: ModelFiles, device: str, dtype: torch.dtype) -> Any:
    check_bare_text(files.folder, files.name)
    from sentence_transformers import SentenceTransformer

    silence_transformers()
    try:
        model = SentenceTransformer(
            str(files.folder),
            device=device,
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"dtype": dtype, "use_safetensors": True},
        )
    except Exception as fault:  # the library raises what a model's files make it
        check_machine(fault, files.folder)
        raise ModelError(
            f"'{files.name}' cannot be loaded by sentence-transformers: {first_line(fault)}",
            "ragidx loads weights from safetensors, without code from the model's folder",
            where=str(files.folder),
        ) from fault
    return model.eval()
