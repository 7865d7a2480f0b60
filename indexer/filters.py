"""EmbedFilter: an orthogonal projection of embeddings, read from the model's own unembedding matrix.

embeddings (n, d) -> (n, k) float32, k = d // tau. `W_U = U Sigma V^T`; the columns kept are the middle of the
spectrum, or start at an offset; the edges, where frequent tokens live, are dropped. The reduced form `e V[:, s:e]`
has the same inner products as the projection `e V[:, s:e] V[:, s:e]^T`. Columns stand centre-out, so every prefix of
a vector is itself the narrower filter. Source: the EmbedFilter paper. Nothing is normalised here: the store does
that, once, last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from ragidx.corpora.errors import unknown_name
from ragidx.indexer.specs import FILTERS, FilterSpec
from ragidx.indexer.unembedding import Spectrum, spectrum_of

if TYPE_CHECKING:
    from ragidx.indexer.encoder import Encoder


class EmbedFilter:
    """A linear map (d, k) with orthonormal columns, applied to pooled embeddings.

    Attributes:
        matrix: (d, k) float32.
        columns: which columns of the spectrum it keeps, in stored order.
    """

    def __init__(self, matrix: NDArray[np.float32], columns: NDArray[np.int64]) -> None:
        self.matrix = np.ascontiguousarray(matrix, dtype=np.float32)
        self.columns = columns

    @classmethod
    def from_encoder(
        cls, encoder: Encoder, tau: float | None = None, dim: int | None = None, offset: int | None = None
    ) -> EmbedFilter:
        """The filter of an encoder's model.

        Raises:
            SpecError: tau, dim or offset are out of range.
            ModelError: the model has no unembedding matrix.
        """
        return cls.from_spectrum(spectrum_of(encoder.files), FilterSpec(tau=tau, dim=dim, offset=offset))

    @classmethod
    def from_spectrum(cls, spectrum: Spectrum, spec: FilterSpec) -> EmbedFilter:
        """The filter that `spec` describes, of a spectrum (d, d)."""
        hidden = spectrum.directions.shape[0]
        columns = kept_columns(hidden, spec.width(hidden), spec.offset)
        return cls(spectrum.directions[:, columns].astype(np.float32), columns)

    @property
    def hidden(self) -> int:
        """Width of what goes in."""
        return int(self.matrix.shape[0])

    @property
    def dim(self) -> int:
        """Width of what comes out."""
        return int(self.matrix.shape[1])

    def __call__(self, embeddings: ArrayLike) -> NDArray[np.float32]:
        """(n, d) -> (n, k), in float32.

        Raises:
            ValueError: the embeddings are not d wide.
        """
        rows = np.asarray(embeddings, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.hidden:
            raise ValueError(f"the filter takes embeddings of shape (n, {self.hidden}), got {rows.shape}")
        return rows @ self.matrix

    def to_bytes(self) -> bytes:
        """The filter as a safetensors file."""
        return save_tensors({"matrix": self.matrix, "columns": self.columns})

    @classmethod
    def from_bytes(cls, data: bytes) -> EmbedFilter:
        """The inverse of `to_bytes`."""
        tensors = load_tensors(data)
        return cls(tensors["matrix"], tensors["columns"])


def make_filter(spec: FilterSpec, encoder: Encoder) -> EmbedFilter | None:
    """The filter a spec asks for; None for `none`.

    Raises:
        SpecError: an unknown filter.
    """
    if spec.name not in FILTERS:
        raise unknown_name("filter", spec.name, FILTERS)
    if spec.name == "none":
        return None
    return EmbedFilter.from_spectrum(spectrum_of(encoder.files), spec)


def kept_columns(hidden: int, width: int, offset: int | None = None) -> NDArray[np.int64]:
    """Which `width` of `hidden` columns are kept, in the order in which they are stored.

    With an offset the order is plain; without one it is centre-out: for every k the first k are the middle k.

    >>> kept_columns(6, 4), kept_columns(5, 3), kept_columns(6, 3, offset=1)
    (array([2, 3, 1, 4]), array([2, 1, 3]), array([1, 2, 3]))
    """
    if offset is not None:
        return np.arange(offset, offset + width, dtype=np.int64)
    order: list[int] = []
    low = high = hidden // 2  # the kept set of width k is [low, high), starting empty
    for k in range(1, width + 1):
        start = (hidden - k) // 2
        if k == 1:
            low, high = start, start
        if start < low:
            low -= 1
            order.append(low)
        else:
            order.append(high)
            high += 1
    return np.array(order, dtype=np.int64)
