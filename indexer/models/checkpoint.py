"""Single tensors of a model, read from its safetensors or GGUF files without loading the model, or torch.

Rows come as NumPy arrays. bfloat16, which NumPy does not have, is widened to float32 by torch: the one case that
imports it. What is quantised in a GGUF file is dequantised to float32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from ragidx.corpora.errors import ModelError, check_machine, panics_of
from ragidx.indexer.devices import check_models
from ragidx.indexer.model_files import AGAIN, read_json
from ragidx.indexer.models.gguf.header import GgufTensor
from ragidx.indexer.models.gguf.tensors import float_blocks
from ragidx.indexer.models.locate import ModelFiles

FLOATS = ("F64", "F32", "F16", "BF16")
INPUTS = (".embed_tokens.weight", ".wte.weight", ".word_embeddings.weight", ".embed_in.weight", ".token_embd.weight")
_BLOCK = 4096


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file."""

    path: Path
    name: str
    kind: str  # how its numbers are stored, such as F16
    shape: tuple[int, ...]
    gguf: GgufTensor | None = None  # where it is in a GGUF file; None: the file is a safetensors file

    @property
    def holds_floats(self) -> bool:
        """Whether `blocks` can read it as numbers: in a GGUF file also where it is quantised."""
        return self.gguf is not None or self.kind in FLOATS


def find(files: ModelFiles, endings: tuple[str, ...]) -> StoredTensor | None:
    """The tensor whose name ends so, the outermost of several; None where there is none.

    Raises:
        ModelError: the file cannot be read.
    """
    names = tensors(files)
    matching = sorted((name for name in names if f".{name}".endswith(endings)), key=len)
    if not matching:
        return None
    path, name = names[matching[0]], matching[0]
    if files.gguf is not None:
        tensor = files.gguf.tensors[name]
        return StoredTensor(path, name, tensor.kind, tensor.shape, tensor)
    with _reading(path), safe_open(str(path), framework="np") as file:
        part = file.get_slice(name)
        return StoredTensor(path, name, str(part.get_dtype()), tuple(int(n) for n in part.get_shape()))


def tensors(files: ModelFiles) -> dict[str, Path]:
    """Tensor names and the file of each; names of shards are untrusted and stay in the folder.

    Raises:
        ModelError: the list of shards says nothing, or a file cannot be read.
    """
    if files.gguf is not None:
        return {name: tensor.path for name, tensor in files.gguf.tensors.items()}
    index = files.folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = dict(read_json(index)["weight_map"])
        except (ValueError, TypeError, KeyError) as fault:
            raise ModelError("it does not say which file holds which weight", AGAIN, where=str(index)) from fault
        return {str(name): files.folder / Path(str(shard)).name for name, shard in shards.items()}
    names: dict[str, Path] = {}
    for path in files.weight_files:
        with _reading(path), safe_open(str(path), framework="np") as file:
            names |= dict.fromkeys(file.keys(), path)
    return names


def blocks(tensor: StoredTensor) -> Iterator[NDArray[np.floating[Any]]]:
    """The rows of a matrix in order, at most 4,096 at a time, (n, d), as wide as they are stored or float32.

    Raises:
        ModelError: the file cannot be read.
    """
    if tensor.gguf is not None:
        yield from float_blocks(tensor.gguf, _BLOCK)
        return
    is_bfloat16 = tensor.kind == "BF16"
    if is_bfloat16:
        check_models(f"the bfloat16 weight '{tensor.name}'")
    with _reading(tensor.path), safe_open(str(tensor.path), framework="pt" if is_bfloat16 else "np") as file:
        part = file.get_slice(tensor.name)
        for start in range(0, tensor.shape[0], _BLOCK):
            rows = part[start : min(start + _BLOCK, tensor.shape[0])]
            yield rows.float().numpy() if is_bfloat16 else rows


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        with panics_of("safetensors", path):
            yield
    except (SafetensorError, OSError) as fault:
        check_machine(fault, path)
        raise ModelError(f"the weights cannot be read: {fault}", AGAIN, where=str(path)) from fault
