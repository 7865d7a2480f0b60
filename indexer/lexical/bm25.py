"""BM25 over the segments of an index: k1 1.2, b 0.75, and statistics of all live rows.

score(row) = sum over the terms t of the question  n_t * idf_t * tf / (tf + k1 * (1 - b + b * length / mean length))
idf_t = ln(1 + (N - df_t + 0.5) / (df_t + 0.5)), never negative

N, mean length and df count live rows of all segments, so a row's score does not depend on how rows are spread over
segments, nor on rows that were deleted. Robertson and Zaragoza 2009; the idf is Lucene's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragidx.indexer.arrays import Bools, Floats
from ragidx.indexer.lexical.postings import Postings

K1, B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the live rows of an index.

    Attributes:
        n_rows: how many there are.
        n_terms: the sum of their lengths.
    """

    n_rows: int
    n_terms: int


def statistics(segments: Sequence[Postings], dead: Sequence[Bools | None]) -> Statistics:
    """The statistics of the live rows of some segments."""
    n_rows = n_terms = 0
    for segment, mask in zip(segments, dead, strict=True):
        lengths = segment.lengths if mask is None else segment.lengths[~mask]
        n_rows, n_terms = n_rows + len(lengths), n_terms + int(lengths.sum(dtype=np.int64))
    return Statistics(n_rows, n_terms)


def scores(
    segments: Sequence[Postings], dead: Sequence[Bools | None], terms: Sequence[str], of: Statistics
) -> list[Floats] | None:
    """(rows,) of each segment; 0 where a row has no term of the question, and for dead rows.

    Args:
        segments: of the index.
        dead: a mask of dead rows for each; None: none.
        terms: of the question, repeated as often as they occur.
        of: the statistics of the live rows.

    Returns:
        None if no live row has any of the terms.
    """
    if not of.n_terms:
        return None
    mean = of.n_terms / of.n_rows
    found = [np.zeros(len(segment.lengths), np.float32) for segment in segments]
    known = False
    for term, count in sorted(Counter(terms).items()):  # in one order, so that sums are rounded alike
        postings = [segment.find(term) for segment in segments]
        df = sum(
            0 if one is None else len(one.rows) if mask is None else int(np.count_nonzero(~mask[one.rows]))
            for one, mask in zip(postings, dead, strict=True)
        )
        if not df:
            continue
        known = True
        weight = np.float32(count * np.log1p((of.n_rows - df + 0.5) / (df + 0.5)))
        for segment, one, total in zip(segments, postings, found, strict=True):
            if one is not None:
                tf = one.counts.astype(np.float32)
                norm = np.float32(K1 * (1 - B)) + np.float32(K1 * B / mean) * segment.lengths[one.rows]
                total[one.rows] += weight * (tf / (tf + norm))
    if not known:
        return None
    for mask, total in zip(dead, found, strict=True):
        if mask is not None:
            total[mask] = 0
    return found
