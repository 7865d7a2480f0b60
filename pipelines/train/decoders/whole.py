"""A whole model, with its head, and its tokenizer, to be written to a folder that others read, too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

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
        from ragidx.indexer.models.gguf.model import load_gguf

        return load_gguf(files.gguf, files.config, dtype=torch.float32, head=True)[0]
    how: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "local_files_only": True}
    how["dtype"] = dtype
    model: Any
    loaded: Any = AutoModelForCausalLM.from_pretrained(files.folder, output_loading_info=True, **how)
    model, report = loaded
    if report["missing_keys"]:  # a checkpoint without its head, which would be drawn at random
        model = AutoModel.from_pretrained(files.folder, **how)
    for folder in files.adapters:
        lora.merge(model, folder, folder.name)
    return model


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
