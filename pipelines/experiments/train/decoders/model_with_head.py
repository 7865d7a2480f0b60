"""A whole model, with its head, and its tokenizer, to be written to a folder that others read, too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from ragidx.corpora.errors import SpecError
from ragidx.indexer import atomic
from ragidx.indexer.models import lora
from ragidx.indexer.models.locate import ModelFiles

_TOKENIZER = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model"),
)


def whole_model(files: ModelFiles, dtype: torch.dtype | str) -> Any:
    """The model with its head, which EmbedFilter reads, on the CPU; adapters that it was loaded with added.

    `dtype`: "auto" is that of its files; of a GGUF file it is float32.
    """
    from transformers import AutoModel, AutoModelForCausalLM

    if files.gguf is not None:
        from ragidx.indexer.models.gguf.architectures import ROPE_FACTORS
        from ragidx.indexer.models.gguf.model import load_gguf

        model: Any = load_gguf(files.gguf, files.config, dtype=torch.float32, head=True)[0]
        if ROPE_FACTORS in files.gguf.tensors:
            _keep_rope(model)
        return model
    how: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "local_files_only": True}
    how["dtype"] = dtype
    loaded: Any = AutoModelForCausalLM.from_pretrained(files.folder, output_loading_info=True, **how)
    model, report = loaded
    if report["missing_keys"]:  # a checkpoint without its head, which would be drawn at random
        model = AutoModel.from_pretrained(files.folder, **how)
    for folder in files.adapters:
        lora.merge(model, folder, folder.name)
    return model


def _keep_rope(model: Any) -> None:
    """Say in the config how much slower each pair of a head rotates, as a GGUF file of Llama 3.1 has it."""
    rotary, config = model.base_model.rotary_emb, model.config
    width = 2 * rotary.inv_freq.numel()
    theta = config.rope_parameters["rope_theta"]
    plain = theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
    slower = (plain / rotary.inv_freq.cpu()).tolist()
    config.rope_parameters = {
        "rope_type": "longrope",  # the one kind that has a factor for each
        "rope_theta": theta,
        "short_factor": slower,
        "long_factor": slower,
        "factor": 1.0,
        "attention_factor": 1.0,
        "original_max_position_embeddings": config.max_position_embeddings,
    }


def check_whole(files: ModelFiles, model: Any) -> None:
    """Whether what `model` learns can be written as a whole model.

    Raises:
        SpecError: with its head it is a model of another structure.
    """
    if files.gguf is not None:
        return
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            whole: Any = AutoModelForCausalLM.from_config(model.config)  # type: ignore[no-untyped-call]
    except ValueError:
        whole = None  # there is no head for it
    if whole is None or type(getattr(whole, whole.base_model_prefix, whole)) is not type(model):
        raise SpecError(
            f"'{files.name}' reads more than text, or has another structure with its head: it cannot be written whole",
            "take a model of text alone",
            where="`model`",
        )


def save_tokenizer(files: ModelFiles, folder: Path) -> None:
    """Write a model's tokenizer to a folder, without a chat template, which others would put round every text."""
    if files.gguf is None:
        for name in _TOKENIZER:
            source = files.tokenizer_folder / name
            if name == "tokenizer_config.json" and source.is_file():
                settings = json.loads(source.read_text("utf-8"))
                settings.pop("chat_template", None)
                atomic.write_file(folder / name, json.dumps(settings, indent=2, ensure_ascii=False).encode())
            elif source.is_file():
                shutil.copyfile(source, folder / name)
        return
    from ragidx.indexer.models.gguf.tokenizer import read_tokenizer

    backend, special = read_tokenizer(files.gguf, files.name)
    settings = {f"{name}_token": backend.id_to_token(number) for name, number in special.items() if number is not None}
    settings |= {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": files.config.get("max_position_embeddings"),
    }
    atomic.write_file(folder / "tokenizer.json", backend.to_str().encode())
    atomic.write_file(folder / "tokenizer_config.json", json.dumps(settings, indent=2, ensure_ascii=False).encode())
