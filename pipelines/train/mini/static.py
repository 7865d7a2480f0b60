"""Static vectors: every vocabulary entry run alone through the teacher, the start of the trained table.

Model2Vec's recipe (Minish Lab): states of `[CLS] token [SEP]`, their mean. (V, 384) float32, not normalised.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel


def static_vectors(folder: Path, cls: int, sep: int, batch: int = 1024) -> NDArray[np.float32]:
    """(V, width) mean state of each vocabulary entry, run alone between [CLS] and [SEP]."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    rows: list[NDArray[np.float32]] = []
    with torch.inference_mode():
        for first in range(0, model.config.vocab_size, batch):
            some = torch.arange(first, min(first + batch, model.config.vocab_size))
            ids = torch.stack([torch.full_like(some, cls), some, torch.full_like(some, sep)], dim=1)
            rows.append(model(input_ids=ids).last_hidden_state.mean(dim=1).numpy())
    return np.concatenate(rows)
