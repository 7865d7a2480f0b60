"""Tensors of a GGUF file as numbers: rows are read and dequantised block by block, by the package `gguf`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import ModelError, check_machine
from ragidx.indexer.model_files import AGAIN
from ragidx.indexer.models.gguf.header import GgufTensor

_BLOCK_BYTES = 1 << 24  # of float32 at a time


def check_readable(tensor: GgufTensor) -> None:
    """Whether its kind can be dequantised.

    Raises:
        ModelError: it cannot.
    """
    try:
        _dequantised(np.zeros((1, tensor.row_bytes), np.uint8), tensor.kind)
    except NotImplementedError as fault:
        raise ModelError(
            f"'{tensor.name}' is stored as {tensor.kind}, which cannot be read",
            "use a file in another quantisation, such as Q4_K_M or Q8_0, or the folder with the safetensors",
            where=str(tensor.path),
        ) from fault


def float_blocks(tensor: GgufTensor, n_rows: int | None = None) -> Iterator[NDArray[np.float32]]:
    """The rows in order, (n, last dimension) float32, `n_rows` at a time, else as many as take 16 MiB.

    Dimensions before the last are read as one.

    Raises:
        ModelError: the file cannot be read, or is shorter than when its header was read.
    """
    for rows in stored_blocks(tensor, n_rows or max(1, _BLOCK_BYTES // (4 * tensor.shape[-1]))):
        yield _dequantised(rows, tensor.kind)


def stored_blocks(tensor: GgufTensor, n_rows: int) -> Iterator[NDArray[np.uint8]]:
    """The bytes of the rows as they are stored, (n, row_bytes), at most `n_rows` at a time.

    Raises:
        ModelError: as `float_blocks`.
    """
    try:
        with tensor.path.open("rb", buffering=0) as stream:
            stream.seek(tensor.start)
            for first in range(0, tensor.n_rows, n_rows):
                rows = np.empty((min(n_rows, tensor.n_rows - first), tensor.row_bytes), np.uint8)
                wanted = rows.data.cast("B")
                while wanted:
                    taken = stream.readinto(wanted)
                    if not taken:
                        raise ModelError(f"it ends inside '{tensor.name}'", AGAIN, where=str(tensor.path))
                    wanted = wanted[taken:]
                yield rows
    except OSError as fault:
        check_machine(fault, tensor.path)
        raise ModelError(f"the file cannot be read: {fault.strerror}", AGAIN, where=str(tensor.path)) from fault


def _dequantised(rows: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    with np.errstate(all="ignore"):  # a damaged scale gives numbers that are not finite, which are refused later
        found: Any = dequantize(rows, GGMLQuantizationType[kind])
    return np.asarray(found, np.float32)
