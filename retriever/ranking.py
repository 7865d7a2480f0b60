"""Ranking: the chunks of an index for some queries, as the options of a search say.

queries and k -> ranked chunks, by cosines, BM25 or both (`fusion`). A smallest cosine that few chunks reach is turned
into a mask of those chunks: then no search has to go through all others to find that out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragidx.corpora.errors import QueryError
from ragidx.indexer.arrays import Bools, Floats
from ragidx.indexer.normalize import check_query_width, cut_rows, l2_normalize
from ragidx.indexer.store import Store
from ragidx.retriever.fusion import Scored, rank_dense, rank_hybrid, rank_lexical, with_cosines
from ragidx.retriever.options import DENSE, HYBRID, LEXICAL, SearchOptions

if TYPE_CHECKING:
    from ragidx.indexer.store.rows import Row
    from ragidx.retriever.where.conditions import Condition

_FEW = 100  # chunks: a smallest cosine that fewer reach becomes a mask


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


class StoreElsewhere(Store):
    """A state whose rows are in another engine: it is asked for what it has, and holds no row itself.

    Its `rows` and `vectors` are of what `ranked` found.
    """

    def part_of(self, row: int) -> tuple[Store, int]:
        """The state itself: it is one index."""
        return self, row

    @abstractmethod
    def ranked(self, queries: Queries, k: int, options: SearchOptions) -> list[list[Scored]]:
        """The k best chunks for each query that fulfil the condition of the options."""

    @abstractmethod
    def rows_named(self, column: str, names: Sequence[str]) -> list[Row]:
        """The rows that have one of these names in a column, `chunk_id` or `doc_id`."""

    @abstractmethod
    def record_batches(self, columns: Sequence[str], where: Condition | None) -> Iterator[Any]:
        """The rows that fulfil a condition, with these columns of `contents.columns_of`, or the vector."""


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


def rank(store: Store, queries: Queries, k: int, allowed: Bools | None, options: SearchOptions) -> list[list[Scored]]:
    """The k best chunks for each query, of those allowed, (rows,).

    Queries have vectors where `needs_vectors`, and texts where the mode is not dense.
    """
    if isinstance(store, StoreElsewhere):
        return store.ranked(queries, k, options)
    if options.mode == DENSE or options.min_score is None:
        return _ranked(store, queries, k, allowed, options)
    ranked = []
    for number in range(len(queries)):
        query = queries.of([number])
        ranked += _ranked(store, query, k, _near(store, query, allowed, options), options)
    return ranked


def _near(store: Store, query: Queries, allowed: Bools | None, options: SearchOptions) -> Bools | None:
    """What is allowed without chunks below the smallest cosine, where few are above it."""
    assert query.vectors is not None
    (best,) = rank_dense(store, query.vectors, _FEW, allowed, options)
    if len(best) == _FEW and not is_too_far(best[-1], options):
        return allowed
    near = np.zeros(store.n_rows, np.bool_)
    near[[one.row for one in best if not is_too_far(one, options)]] = True
    return near


def _ranked(
    store: Store, queries: Queries, k: int, allowed: Bools | None, options: SearchOptions
) -> list[list[Scored]]:
    vectors, texts = queries.vectors, queries.texts or ()
    if options.mode == LEXICAL:
        ranked = list(rank_lexical(store, texts, k, allowed))
        if vectors is None:
            return ranked
        return [with_cosines(store, of_query, query) for of_query, query in zip(ranked, vectors, strict=True)]
    assert vectors is not None
    if options.mode == HYBRID:
        return list(rank_hybrid(store, vectors, texts, k, allowed, options))
    return rank_dense(store, vectors, k, allowed, options)
