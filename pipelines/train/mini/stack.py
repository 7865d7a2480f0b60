"""The network of mini: a Llama whose table is given and whose layers start as the identity.

The table (V, d) has unit rows and is tied as the unembedding. `o_proj` and `down_proj` start at zero, so every layer
adds nothing; the final norm multiplies a unit row by GAIN * sqrt(d) and leaves its direction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM

GAIN = 6.0
"""Start of the final norm's weight. Rows of norm 1 are alike for frequent tokens, so logits must reach far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSpec:
    """Size of the layers on top of the table."""

    n_layers: int = 4
    n_heads: int = 4
    intermediate: int = 704
    max_length: int = 2048
    seed: int = 0


def decoder_config(vocabulary: int, width: int, spec: StackSpec, bos: int, eos: int, pad: int) -> LlamaConfig:
    """The configuration of the shipped model."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=spec.intermediate,
        num_hidden_layers=spec.n_layers,
        num_attention_heads=spec.n_heads,
        num_key_value_heads=spec.n_heads,
        max_position_embeddings=spec.max_length,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        bos_token_id=bos,
        eos_token_id=eos,
        pad_token_id=pad,
        architectures=["LlamaForCausalLM"],
    )


def identity_decoder(table: NDArray[np.float32], config: LlamaConfig, seed: int = 0) -> LlamaForCausalLM:
    """A decoder with this table, frozen and tied, whose layers return their input."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.model.layers.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.zero_()
            elif weight.ndim == 2:
                weight.normal_(std=weight.shape[1] ** -0.5)
        model.model.norm.weight.fill_(GAIN)
        model.model.embed_tokens.weight.copy_(torch.from_numpy(table))
    model.model.embed_tokens.weight.requires_grad_(False)
    model.tie_weights()
    return model
