"""Logit spectroscopy: what a vector and each direction of the spectrum write into a model's vocabulary.

The logits of a vector h (d,) are h W_U^T (V,). The average token is the vector whose logits come nearest to log p, p
the share of each token in a corpus: log p (W_U^T)^+. Leaving direction v_i out changes the logit of token t by
-(h v_i)(W_U[t] v_i), so the Δ of all directions are one product. Source: the EmbedFilter paper, sections 2.3 and 3.2.
The head is read from its checkpoint in blocks of rows; no V x d matrix is ever in memory. The bias of a head and what a
model does to its logits afterwards (a scale, a cap) play no part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragidx.indexer.arrays import Doubles
from ragidx.indexer.filters.unembedding import Spectrum
from ragidx.indexer.models.checkpoint import StoredTensor, blocks

Ids = NDArray[np.int64]


def top_tokens(counts: Ids, k: int) -> Ids:
    """The ids of the k largest counts (V,), most frequent first; of equal counts the smaller id first.

    >>> top_tokens(np.array([3, 9, 0, 9]), 3)
    array([1, 3, 0])
    """
    return np.argsort(-np.asarray(counts, dtype=np.int64), kind="stable")[:k].astype(np.int64)


def log_frequencies(counts: Ids, vocabulary: int) -> Doubles:
    """Logarithm of the share of each of `vocabulary` tokens, every count raised by one so that unseen ones count.

    Of counts (n,), n <= vocabulary: rows that pad a head beyond the tokenizer count as tokens never seen.
    """
    smoothed = np.pad(np.asarray(counts, dtype=np.float64), (0, vocabulary - len(counts))) + 1.0
    return np.asarray(np.log(smoothed / smoothed.sum()), dtype=np.float64)


def average_of_log_p(head: StoredTensor, spectrum: Spectrum, log_p: Doubles) -> Doubles:
    """The average token log_p (W_U^T)^+, (V,) -> (d,): the vector whose logits come nearest to `log_p`.

    With W_U = U Σ V^T it is (W_U^T log_p) V Σ^-2 V^T: one pass over the rows, then d x d.
    """
    carried = np.zeros(head.shape[1])
    start = 0
    for rows in blocks(head):
        carried += log_p[start : start + len(rows)] @ rows.astype(np.float64)
        start += len(rows)
    squared = np.square(spectrum.values)
    inverse = np.divide(1.0, squared, out=np.zeros_like(squared), where=_kept(head, spectrum))
    return spectrum.directions @ (inverse * (spectrum.directions.T @ carried))


def delta(head: StoredTensor, spectrum: Spectrum, average: ArrayLike, tokens: ArrayLike) -> Doubles:
    """Δ of every direction (d,): the relative change of the summed logits of `tokens` without it in `average`.

    Δ_i = -(h v_i) Σ_t (W_U[t] v_i) / Σ_t (h W_U[t]). All Δ add up to -1. Logits of an average token are negative, as
    log p is: a direction with Δ < 0 carries them, one with Δ > 0 raises the tokens above them. `average` (d,) is h.

    Raises:
        ValueError: no tokens, an id beyond the rows of the head, or logits that add up to 0.
    """
    total = head_rows(head, tokens).sum(axis=0, dtype=np.float64)
    shares = (np.asarray(average, dtype=np.float64) @ spectrum.directions) * (total @ spectrum.directions)
    whole = float(shares.sum())
    if whole == 0.0:
        raise ValueError("the logits of the tokens add up to 0, so no change of them has a size")
    return np.asarray(-shares / whole, dtype=np.float64)


def head_rows(head: StoredTensor, ids: ArrayLike) -> NDArray[np.float32]:
    """Rows of the head, (n,) -> (n, d) float32, in the order of `ids`.

    Raises:
        ValueError: no ids, or an id beyond the rows of the head.
    """
    wanted = np.asarray(ids, dtype=np.int64)
    if wanted.ndim != 1 or not wanted.size or wanted.min() < 0 or wanted.max() >= head.shape[0]:
        raise ValueError(f"expected one or more ids from 0 to {head.shape[0] - 1}, got {wanted}")
    out = np.empty((wanted.size, head.shape[1]), dtype=np.float32)
    start = 0
    for rows in blocks(head):
        here = np.flatnonzero((wanted >= start) & (wanted < start + len(rows)))
        if here.size:
            out[here] = rows[wanted[here] - start]
        start += len(rows)
    return out


def top_logits(head: StoredTensor, vectors: ArrayLike, k: int) -> tuple[Ids, Doubles]:
    """The k tokens with the largest logits of a few vectors: (n, d) -> ids and logits, both (n, k), largest first.

    Of equal logits the smaller id comes first; a head with fewer than k rows gives them all. Summed in float64: the
    logits of frequent tokens often agree to five digits, and their order should not depend on the machine.
    """
    values = logits(head, vectors)
    ids = np.argsort(-values, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(values, ids, axis=1)


def logits(head: StoredTensor, vectors: ArrayLike) -> Doubles:
    """All logits of a few vectors, (n, d) -> (n, V)."""
    asked = np.asarray(vectors, dtype=np.float64)
    return np.concatenate([asked @ rows.astype(np.float64).T for rows in blocks(head)], axis=1)


def token_coordinates(head: StoredTensor, spectrum: Spectrum, vectors: ArrayLike) -> Doubles:
    """A few vectors as one number a token, such that inner products stay what they are: (n, d) -> (n, V).

    The columns of W_U (W_U^T W_U)^(-1/2) are orthonormal, so for x and y (V,) of two vectors, Σ_t x_t y_t is their
    inner product, and each term is the part of token t. Logits have no such sum: in them every
    direction counts with its singular value. What a vector has in directions without one is lost.
    """
    kept = _kept(head, spectrum)
    inverse = np.divide(1.0, spectrum.values, out=np.zeros_like(spectrum.values), where=kept)
    along = np.asarray(vectors, dtype=np.float64) @ spectrum.directions
    return logits(head, (along * inverse) @ spectrum.directions.T)


def _kept(head: StoredTensor, spectrum: Spectrum) -> NDArray[np.bool_]:
    """Which directions a pseudo-inverse keeps: squares that come out of a Gram matrix are rounding below this."""
    squared = np.square(spectrum.values)
    return np.asarray(squared > squared[0] * 10 * max(head.shape) * np.finfo(np.float64).eps, dtype=np.bool_)
