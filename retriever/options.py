"""What is asked of an index beside the question: how many hits, among which rows, by how much of each vector.

k, where, dim and rerank_dim, as a user gives them, and an index -> SearchOptions: checked, and the condition parsed,
once for a search, before anything is encoded for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from ragidx.corpora.errors import QueryError
from ragidx.indexer.store.store import Store, check_widths
from ragidx.retriever.where.conditions import Condition
from ragidx.retriever.where.masks import parse_for


class SearchKeywords(TypedDict, total=False):
    """The options of a search, by name."""

    k: int
    where: str | None
    dim: int | None
    rerank_dim: int | None


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The options of a search in one index.

    Args:
        k: hits a query, 1 or more.
        where: which rows may be found; None: all.
        dim: compare the first numbers of the vectors only; None: all.
        rerank_dim: compare what was found so again, by this many numbers; None: not again.
    """

    k: int
    where: Condition | None = None
    dim: int | None = None
    rerank_dim: int | None = None


def search_options(
    store: Store, k: int, where: str | None, *, dim: int | None = None, rerank_dim: int | None = None
) -> SearchOptions:
    """The options, for a search in this index.

    Raises:
        QueryError: k is not a whole number from 1 on, the condition is wrong, or a width is not in the index.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise QueryError(f"k={k!r} is not a whole number", "give 1 or more", where="`k`")
    if k < 1:
        raise QueryError(f"k={k} asks for no hit", "give 1 or more", where="`k`")
    if where is not None and not isinstance(where, str):
        raise QueryError(f"the condition is {where!r}, no text", "write one such as 'year >= 1900'", where="condition")
    condition = None if where is None else parse_for(store, where)
    check_widths(store.manifest.dim, dim, rerank_dim)
    return SearchOptions(int(k), condition, dim, rerank_dim)  # faiss takes no integer of numpy's
