"""A decoder of transformers with the weights of a GGUF file, dequantised one tensor after the other.

The peak of memory is the model in the asked format and one block of rows. transformers can read GGUF itself, but needs
accelerate, parses the file three times, and leaves rope factors out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ragidx.indexer.models.gguf.architectures import HEAD, ROPE_FACTORS, Weight, weights_of
from ragidx.indexer.models.gguf.header import Gguf
from ragidx.indexer.models.gguf.tensors import float_blocks


def load_gguf(
    gguf: Gguf, config: Mapping[str, Any], *, dtype: torch.dtype, head: bool = False, implementation: str = "auto"
) -> tuple[Any, Mapping[str, Any]]:
    """A model of transformers on the CPU, with its head or without, and its report of what it loaded.

    Raises:
        ModelError: the file cannot be read, or holds something else than its architecture has.
        Exception: what transformers raises where it lacks the attention implementation.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING, AutoConfig

    made = AutoConfig.for_model(**config)
    kind: Any = (MODEL_FOR_CAUSAL_LM_MAPPING if head else MODEL_MAPPING)[type(made)]
    weights = {
        weight.name if head else weight.name.removeprefix("model."): _read(weight, dtype)
        for weight in weights_of(gguf)
        if head or weight.tensor.name != HEAD
    }
    model, report = kind.from_pretrained(
        None,
        config=made,
        state_dict=weights,
        dtype=dtype,
        output_loading_info=True,
        **({} if implementation == "auto" else {"attn_implementation": implementation}),
    )
    factors = gguf.tensors.get(ROPE_FACTORS)
    if factors is not None:  # Llama 3.1 and later: how much slower each pair of a head rotates than by its base
        rotary = model.base_model.rotary_emb
        slower = rotary.inv_freq / _read(Weight(factors, ROPE_FACTORS), torch.float32)
        rotary.inv_freq.copy_(slower)
        rotary.original_inv_freq.copy_(slower)
    return model, report


def _read(weight: Weight, dtype: torch.dtype) -> Tensor:
    tensor = weight.tensor
    read = torch.empty((tensor.n_rows, tensor.shape[-1]), dtype=dtype)
    start = 0
    for rows in float_blocks(tensor):
        read[start : start + len(rows)] = torch.from_numpy(rows - weight.minus if weight.minus else rows)
        start += len(rows)
    read = read.view(tensor.shape)
    return read if weight.order is None else read[torch.from_numpy(weight.order)]
