"""Searching on a GPU, with all vectors of a segment in GPU memory.

vectors (rows, dim) float16 -> on one GPU, or cut into as many runs of rows as there are GPUs -> `search`, exact: each
block is compared in float32, so the scores are those of the CPU to the order in which numbers are added. This needs
torch (extra `models`). Exact search replaces every index of a segment and loses no recall: a GPU reads vectors far
faster than a CPU follows links or reads lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragidx.indexer.ann.faiss_files import Halves
from ragidx.indexer.ann.search import best_first
from ragidx.indexer.arrays import Bools, Floats, Ints

if TYPE_CHECKING:
    import torch

_BLOCK_BYTES = 256 << 20  # of float32 vectors and scores at once on a device


class DeviceVectors:
    """All vectors of a segment, in the memory of one or more devices.

    Args:
        codes: (rows, width), as they are stored; queries are as wide.
        devices: names as torch knows them; the rows are cut into as many runs.
    """

    def __init__(self, codes: Halves, devices: Sequence[str]) -> None:
        import torch

        cuts = np.linspace(0, len(codes), len(devices) + 1).astype(int).tolist()
        self._starts = cuts[:-1]
        self._parts = [
            torch.from_numpy(np.array(codes[start:end])).to(device)
            for start, end, device in zip(cuts, cuts[1:], devices, strict=False)
        ]

    def search(self, queries: Floats, k: int, allowed: Bools | None) -> tuple[Floats, Ints]:
        """As `ann.search_exact`."""
        found = [_best(part, start, queries, k, allowed) for start, part in zip(self._starts, self._parts, strict=True)]
        scores, rows = (np.concatenate(arrays, axis=1) for arrays in zip(*found, strict=True))
        return best_first(scores, rows, k)


def gpus(device: str) -> list[str]:
    """The GPUs that a name means, of those that are there: `cuda` all, `cuda:1` one, anything else none.

    Raises:
        SpecError: the named GPU is not on this machine.
    """
    if not device.startswith("cuda"):
        return []
    from ragidx.indexer.devices import choose_device

    choose_device(device)  # without torch or a GPU, raises the same error as for an encoder
    import torch

    return [device] if ":" in device else [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def room_on(devices: Sequence[str]) -> int:
    """Free bytes on the fullest of the devices, times their number."""
    import torch

    return min(torch.cuda.mem_get_info(device)[0] for device in devices) * len(devices)


def _best(part: torch.Tensor, first: int, queries: Floats, k: int, allowed: Bools | None) -> tuple[Floats, Ints]:
    """The k best rows of one device, from row `first` on, block by block: scores and rows (q, at most k)."""
    import torch

    questions = torch.from_numpy(queries).to(part.device)
    mask = None if allowed is None else torch.from_numpy(allowed[first : first + len(part)]).to(part.device)
    scores = torch.empty((len(queries), 0), device=part.device)
    rows = torch.empty((len(queries), 0), dtype=torch.int64, device=part.device)
    step = max(1, _BLOCK_BYTES // (4 * (part.shape[1] + len(queries))))
    for start in range(0, len(part), step):
        products = questions @ part[start : start + step].float().T
        if mask is not None:
            products.masked_fill_(~mask[start : start + step], -torch.inf)
        best = products.topk(min(k, products.shape[1]), dim=1)
        scores = torch.cat([scores, best.values], dim=1)
        rows = torch.cat([rows, best.indices + start], dim=1)
        chosen = scores.topk(min(k, scores.shape[1]), dim=1)
        scores, rows = chosen.values, rows.gather(1, chosen.indices)
    values = scores.cpu().numpy()
    return values, np.where(np.isneginf(values), -1, first + rows.cpu().numpy())
