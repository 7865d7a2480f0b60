"""Places with rows: what a search, and whoever reads documents, asks of the folder of an index, or of an engine.

A row is a number. What a condition allows, `allowed`, has the form that its place wants: in a folder it is a mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from ragidx.corpora.errors import QueryError
from ragidx.indexer.arrays import Bools, Floats, Ints, slices
from ragidx.indexer.normalize import check_query_width, cut_rows, l2_normalize
from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import State
from ragidx.indexer.store.rows import Row, true_places
from ragidx.retriever.fusion import Scored, rank_dense, rank_hybrid, rank_lexical, with_cosines
from ragidx.retriever.options import DENSE, HYBRID, LEXICAL, SearchOptions

if TYPE_CHECKING:
    from ragidx.retriever.where.conditions import Condition

VECTOR = "vector"
"""The column of the vectors."""
BLOCK = 256  # rows that are decoded at once
_FEW = 100  # chunks: a smallest cosine that fewer reach becomes a mask


@dataclass(frozen=True)
class Queries:
    """What is asked, in the forms that a search needs.

    Attributes:
        vectors: (q, dim) of length 1, or zero; None: nothing is compared by cosine.
        texts: q questions; None: only vectors are asked.
    """

    vectors: Floats | None = None
    texts: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.texts or ()) if self.vectors is None else len(self.vectors)

    @property
    def are_unknown(self) -> list[bool]:
        """Which have no vector, since the model does not know them; empty: nothing is compared by cosine."""
        return [] if self.vectors is None else [not vector.any() for vector in self.vectors]

    def of(self, numbers: Sequence[int]) -> Queries:
        """Some of them."""
        return Queries(
            None if self.vectors is None else self.vectors[list(numbers)],
            None if self.texts is None else [self.texts[number] for number in numbers],
        )


class Rows(State, Protocol):
    """A committed state, wherever its rows are."""

    @property
    def has_words(self) -> bool:
        """Whether texts are ranked by the words of a question."""

    @property
    def words_by(self) -> str:
        """What they are ranked by, `Hit.bm25`."""

    def asked(self) -> Self:
        """The same state, for one search: it may remember what is found for that."""

    def allowed(self, where: Condition | None) -> Any:
        """The rows that fulfil a condition, as `ranked` and `record_batches` take them; None: all."""

    def ranked(self, queries: Queries, k: int, allowed: Any, options: SearchOptions) -> list[list[Scored]]:
        """The k best chunks for each query, of those allowed.

        Queries have vectors where `needs_vectors`, and texts where the mode is not dense.
        """

    def knows_a_word(self, text: str) -> bool:
        """Whether a row has a word of a text."""

    def rows(self, numbers: Sequence[int]) -> list[Row]:
        """Some rows that were found, in their order."""

    def vectors(self, rows: Ints) -> Floats:
        """(n, dim) of rows that were found, in their order."""

    def around(self, row: int, n: int) -> Sequence[Row]:
        """A row that was found with `n` others on each side, where they are of its document; in any order."""

    def folder_of(self, row: int) -> str | None:
        """Which of several indexes has a row; None: there is one."""

    def named(self, column: str, names: Sequence[str]) -> list[Row]:
        """The rows that have one of these names in a column, `chunk_id` or `doc_id`."""

    def vectors_named(self, ids: Sequence[str]) -> dict[str, Floats]:
        """The vectors, (dim,) float32, of the chunks that have one of these ids."""

    def by_document(self) -> Iterator[Row]:
        """All rows, those of a document together."""

    def record_batches(self, columns: Sequence[str], allowed: Any) -> Iterator[Any]:
        """Columns of the rows that are allowed: fixed ones, `meta.FIELD`, `owner` as the source's name, or `VECTOR`."""


class FolderRows(Store):
    """The state of an index folder. Its masks are (n_rows,)."""

    words_by = "bm25"

    @property
    def has_words(self) -> bool:
        return self.lexical is not None

    def asked(self) -> Self:
        return self

    def allowed(self, where: Condition | None) -> Bools | None:
        if where is None:
            return None
        from ragidx.retriever.where.masks import matching_rows

        return matching_rows(self, where)

    def ranked(self, queries: Queries, k: int, allowed: Bools | None, options: SearchOptions) -> list[list[Scored]]:
        # A smallest cosine that few chunks reach becomes a mask, so that no search has to go through all others.
        if options.mode == DENSE or options.min_score is None:
            return self._ranked(queries, k, allowed, options)
        each = (queries.of([number]) for number in range(len(queries)))
        return [self._ranked(query, k, self._near(query, allowed, options), options)[0] for query in each]

    def _ranked(self, queries: Queries, k: int, allowed: Bools | None, options: SearchOptions) -> list[list[Scored]]:
        vectors, texts = queries.vectors, queries.texts or ()
        if options.mode == LEXICAL:
            ranked = list(rank_lexical(self, texts, k, allowed))
            if vectors is None:
                return ranked
            return [with_cosines(self, of_query, query) for of_query, query in zip(ranked, vectors, strict=True)]
        assert vectors is not None
        if options.mode == HYBRID:
            return list(rank_hybrid(self, vectors, texts, k, allowed, options))
        return rank_dense(self, vectors, k, allowed, options)

    def _near(self, query: Queries, allowed: Bools | None, options: SearchOptions) -> Bools | None:
        """What is allowed without chunks below the smallest cosine, where few are above it."""
        assert query.vectors is not None
        (best,) = rank_dense(self, query.vectors, _FEW, allowed, options)
        if len(best) == _FEW and not is_too_far(best[-1], options):
            return allowed
        near = np.zeros(self.n_rows, np.bool_)
        near[[one.row for one in best if not is_too_far(one, options)]] = True
        return near

    def around(self, row: int, n: int) -> Sequence[Row]:
        part, number = self.part_of(row)
        numbers = range(max(0, number - n), min(part.n_rows, number + n + 1))
        found = part.rows(numbers)
        return [one for one in found if one.doc_id == found[numbers.index(number)].doc_id]

    def folder_of(self, row: int) -> str | None:
        return str(self.part_of(row)[0].path) if len(self.parts) > 1 else None

    def named(self, column: str, names: Sequence[str]) -> list[Row]:
        return self.rows(self._numbers(column, names))

    def vectors_named(self, ids: Sequence[str]) -> dict[str, Floats]:
        numbers = self._numbers("chunk_id", ids)
        return dict(zip((row.chunk_id for row in self.rows(numbers)), self.vectors(numbers), strict=True))

    def _numbers(self, column: str, names: Sequence[str]) -> Ints:
        import pyarrow.compute as pc  # questions need none

        wanted = pa.array(list(dict.fromkeys(names)), pa.large_string())
        found = [
            rows[true_places(pc.is_in(batch.column(0), value_set=wanted))] for rows, batch in self.batches([column])
        ]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def by_document(self) -> Iterator[Row]:
        """All rows, in the order of the index, but those of a document together: two segments may share one."""
        ids = pa.chunked_array([batch.column(0) for _, batch in self.batches(["doc_id"])], pa.large_string())
        places = ids.combine_chunks().dictionary_encode().indices.to_numpy()
        for some in slices(np.argsort(places, kind="stable"), BLOCK):
            yield from self.rows(some)

    def record_batches(self, columns: Sequence[str], allowed: Bools | None) -> Iterator[Any]:
        from ragidx.retriever.where.masks import OWNER, source_names

        read = list(dict.fromkeys(name for name in columns if name != VECTOR)) or ["chunk_id"]
        for rows, batch in self.batches(read, allowed):
            arrays = [_vectors(self.vectors(rows)) if name == VECTOR else batch.column(name) for name in columns]
            if OWNER in columns:
                at = columns.index(OWNER)
                arrays[at] = source_names(self, arrays[at])
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def unit_queries(
    vectors: ArrayLike, dim: int, input_dim: int | None, *, index: str | Path, file: str | Path = ""
) -> NDArray[np.float32]:
    """(q, dim) of length 1: what the rows of an index are compared with.

    Args:
        vectors: (q, dim) floats, or (q, input_dim): cut as the rows were.
        dim: width of the index.
        input_dim: what its vectors were cut from; None: they were not.
        index: folder of the index, for messages.
        file: file that holds the vectors, for messages; "": none does.

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
    """Whether a chunk has a smaller cosine than a hit may have, or none."""
    return options.min_score is not None and (scored.dense is None or scored.dense < options.min_score)


def is_last(scored: Scored, options: SearchOptions) -> bool:
    """Whether no chunk from this one on can be a hit, for scores fall."""
    if options.min_z is not None and scored.score < options.min_z:
        return True
    return options.mode == DENSE and is_too_far(scored, options)


def _vectors(vectors: Floats) -> Any:
    flat = pa.array(vectors.astype(np.float16).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
