"""The network of mini, a Llama whose table is fixed and whose layers start as the identity; and the folder that ships.

The table (V, d) has unit rows and is tied as the unembedding. `o_proj` and `down_proj` start at zero, so every layer
adds nothing; the final norm multiplies a unit row by GAIN * sqrt(d) and leaves its direction.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

GAIN = 6.0
"""Start of the final norm's weight. Rows of norm 1 are alike for frequent tokens, so logits must reach far."""

WRITING = ("o_proj.weight", "down_proj.weight")
"""Weights through which a layer writes into the stream."""

PRESET: dict[str, object] = {
    "method": "classical",
    "pooling": "mean",
    "attention": "causal",
    "layer": 0,
    "filter": {"name": "embedfilter", "offset": 1, "tau": None, "dim": 255},
}


def decoder_config(
    tokenizer: PreTrainedTokenizerFast, width: int, *, n_layers: int = 4, n_heads: int = 4, intermediate: int = 704
) -> LlamaConfig:
    """The configuration of a decoder of `width` dimensions with this tokenizer."""
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=intermediate,
        num_hidden_layers=n_layers,
        num_attention_heads=n_heads,
        num_key_value_heads=n_heads,
        max_position_embeddings=tokenizer.model_max_length,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        architectures=["LlamaForCausalLM"],
    )


def identity_decoder(table: NDArray[np.float32], config: LlamaConfig) -> LlamaForCausalLM:
    """A decoder with this tied table, whose layers return their input."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.model.layers.named_parameters():
            if name.endswith(WRITING):
                weight.zero_()
            elif weight.ndim == 2:
                weight.normal_(std=weight.shape[1] ** -0.5)
        model.model.norm.weight.fill_(GAIN)
        model.model.embed_tokens.weight.copy_(torch.from_numpy(table))
    model.tie_weights()
    return model


def export(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write config, weights in float16 (tied ones once), tokenizer and preset to `out`; the model stays in float16."""
    model.half().save_pretrained(out)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    (out / "generation_config.json").unlink(missing_ok=True)
    tokenizer.save_pretrained(out)
    tokenizer.backend_tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    config = json.loads((out / "tokenizer_config.json").read_text("utf-8"))
    config |= {"tokenizer_class": "PreTrainedTokenizerFast"}  # the name that older transformers know as well
    config.pop("backend", None)
    for name, content in (("tokenizer_config.json", config), ("preset.json", PRESET)):
        (out / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
