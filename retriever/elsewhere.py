"""A state whose rows are in another engine: it is asked for what it has, and holds no row itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ragidx.indexer.store.store import Store

if TYPE_CHECKING:
    from ragidx.indexer.store.rows import Row
    from ragidx.retriever.fusion import Scored
    from ragidx.retriever.options import SearchOptions
    from ragidx.retriever.ranking import Queries
    from ragidx.retriever.where.conditions import Condition


class StoreElsewhere(Store):
    """What a store has to offer in place of rows and masks: `rows` and `vectors` are of what `ranked` found."""

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
