"""The shape of the table: unit rows, one constant coordinate, and that coordinate the top singular direction.

A decoder's final norm gives every token the same length. So that it changes nothing, each row is `(c, z)` with |z| <
1 the meaning (short for frequent tokens) and `c = sqrt(1 - |z|^2) > 0` filling up to norm 1. The Gram matrix of the
table has the block `sum_t c_t z_t` beside `sum_t c_t^2`: where the first is zero, the constant coordinate is an
eigenvector, exactly, and the largest one, because every c is near 1. EmbedFilter with `offset 1` then removes that
coordinate and nothing else, and since z is turned to its own eigenvectors, columns [1, 1 + k) of the spectrum are
coordinates 1 to k in order of size. This is the "average token" of the EmbedFilter paper (section 3) made visible.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LONGEST = 0.95
SHORTENED = 0.01


def unit_table(vectors: NDArray[np.float32], width: int = 256, rounds: int = 50) -> NDArray[np.float32]:
    """Token vectors as unit rows of `width` dimensions, coordinate 0 the constant one.

    Args:
        vectors: (V, w) trained token vectors, w >= width - 1.
        width: columns of the table; width - 1 of them keep the largest principal directions.
        rounds: of centring; each subtracts the mean weighted by the constant coordinate, which moves it a little.

    Returns:
        (V, width). The longest SHORTENED share of the rows is cut to LONGEST, so that outliers do not set the scale.
    """
    meaning = _principal(vectors - vectors.mean(axis=0), width - 1)
    for _ in range(rounds):
        lengths = np.linalg.norm(meaning, axis=1, keepdims=True)
        meaning = meaning * (LONGEST / np.quantile(lengths, 1 - SHORTENED))
        meaning *= np.minimum(1.0, LONGEST / np.maximum(np.linalg.norm(meaning, axis=1, keepdims=True), 1e-12))
        constant = _constant(meaning)
        centred = meaning - (constant.T @ meaning) / constant.sum()
        if np.abs(centred - meaning).max() < 1e-9:
            break
        meaning = centred
    meaning = _principal(meaning, width - 1)
    return np.concatenate([_constant(meaning), meaning], axis=1).astype(np.float32)


def _constant(meaning: NDArray[np.float64]) -> NDArray[np.float64]:
    """(V, 1) the coordinate that brings each row to norm 1."""
    filling: NDArray[np.float64] = np.sqrt(np.maximum(1.0 - np.square(meaning).sum(axis=1, keepdims=True), 0.0))
    return filling


def _principal(vectors: NDArray[np.floating], width: int) -> NDArray[np.float64]:
    """The vectors in the first `width` eigenvectors of their Gram matrix, largest first."""
    wide = vectors.astype(np.float64)
    _, directions = np.linalg.eigh(wide.T @ wide)
    turned: NDArray[np.float64] = wide @ directions[:, ::-1][:, :width]
    return turned
