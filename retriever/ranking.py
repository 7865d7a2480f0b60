"""What is ranked, and by what: queries in the forms that a search needs, and the limits on scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragidx.corpora.errors import QueryError
from ragidx.indexer.arrays import Floats
from ragidx.indexer.normalize import check_query_width, cut_rows, l2_normalize
from ragidx.retriever.fusion import Scored
from ragidx.retriever.options import DENSE, LEXICAL, SearchOptions


@dataclass(frozen=True)
class Queries:
    """What is asked, in the forms that a search needs.

    Attributes:
        vectors: (q, dim) of length 1; None: nothing is compared by cosine.
        texts: q questions; None: only vectors are asked.
    """

    vectors: Floats | None = None
    texts: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.texts or ()) if self.vectors is None else len(self.vectors)

    def of(self, numbers: Sequence[int]) -> Queries:
        """Some of them."""
        return Queries(
            None if self.vectors is None else self.vectors[list(numbers)],
            None if self.texts is None else [self.texts[number] for number in numbers],
        )


def unit_queries(
    vectors: ArrayLike, dim: int, input_dim: int | None, *, index: str | Path, file: str | Path = ""
) -> NDArray[np.float32]:
    """(q, dim) of length 1: what the rows of an index are compared with.

    Args:
        vectors: (q, dim) numbers, or (q, input_dim): cut as the rows were.
        dim: width of the index.
        input_dim: what its vectors were cut from; None: they were not.
        index: its folder, for messages.
        file: that holds the vectors, for messages; "": in none.

    Raises:
        ValueError: no matrix of numbers of at most 64 bits, or a part of it is masked.
        QueryError: the width is another, or a vector is zero or has a number that is not finite.
    """
    if np.ma.is_masked(vectors):
        raise ValueError("some of the query vectors are masked: leave them out, or fill them")
    matrix = np.asarray(vectors)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or matrix.dtype.itemsize > 8:
        raise ValueError(f"query vectors have the shape {matrix.shape} and hold {matrix.dtype}, not (q, {dim})")
    check_query_width(matrix.shape[1], dim, input_dim=input_dim, where=str(file or index))
    unit = cut_rows(l2_normalize(matrix), dim)
    for row, reason in unit.faults:
        place = f"query {row + 1:,}" if len(matrix) > 1 else ""
        raise QueryError(
            reason.replace("the vector", "the query's vector"),
            "give another vector",
            where=": ".join(filter(None, [str(file), place])),
        )
    return unit.vectors


def needs_vectors(options: SearchOptions) -> bool:
    """Whether a question has to be encoded."""
    return options.mode != LEXICAL or options.min_score is not None


def is_too_far(scored: Scored, options: SearchOptions) -> bool:
    """Whether a chunk has a smaller cosine than a hit may have."""
    return options.min_score is not None and scored.dense is not None and scored.dense < options.min_score


def is_last(scored: Scored, options: SearchOptions) -> bool:
    """Whether no chunk from this one on can be a hit, for scores fall."""
    if options.min_z is not None and scored.score < options.min_z:
        return True
    return options.mode == DENSE and is_too_far(scored, options)
