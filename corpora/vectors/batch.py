"""Batches of rows from files of precomputed vectors, and the checks that every such file must pass.

    VectorBatch(file, rows, ids, vectors (n, dim), texts, doc_ids, metadata, share)

Rows count from 0, as in numpy: `part.parquet#17` is the 18th row. File formats are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.readers.source_file import SourceFile

MAX_WIDTH = 65_536  # dimensions of a vector, as in an index

_BATCH_NUMBERS = 1 << 20  # in the vectors of a batch, about: 8 MiB in the float64 that lengths are taken in
_LEAST_ROWS = 16
MAX_ROWS, MAX_BYTES = 4096, 4 * _BATCH_NUMBERS
"""Of a batch that is read at once, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRows:
    """Some rows of a file, or of a program, without broken ones.

    Args:
        file: name of the file below the root; "": the rows are a program's.
        rows: (n,) their numbers in the file, from 0.
        ids: not empty; duplicates are not checked here.
        vectors: (n, dim) of a floating type, as in the file; of a program, of any number.
        texts: "" if there is none.
        doc_ids: None: each row is a document of its own.
        metadata: values by name, sorted by name; of a file, without missing ones.
        share: share of the file that is read after this batch, 0 to 1.
    """

    file: str = ""
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    ids: list[str]
    vectors: NDArray[Any]
    texts: list[str]
    doc_ids: list[str] | None
    metadata: list[dict[str, Any]]
    share: float = 1.0

    def where(self, place: int) -> str:
        """The row at a place of this batch, for reports: `part.parquet#17`."""
        return f"{self.file}#{self.rows[place]}"


def batch_rows(width: int) -> int:
    """How many rows of this width are read at once.

    >>> batch_rows(384), batch_rows(65_536)
    (2730, 16)
    """
    return min(max(_BATCH_NUMBERS // max(1, width), _LEAST_ROWS), MAX_ROWS)


def check_width(width: int, dim: int | None, what: str, where: str) -> None:
    """Refuse a width that does not fit the other vectors.

    Args:
        width: dimensions of a vector.
        dim: width that the vectors must have; None: any.
        what: the column or array, for the message.
        where: the file, for the message.

    Raises:
        CorpusError: it does not fit.
    """
    if not 1 <= width <= MAX_WIDTH:
        raise CorpusError(
            f"{what} holds vectors of {width:,} dimensions", f"give vectors of 1 to {MAX_WIDTH:,}", where=where
        )
    if dim is not None and width != dim:
        raise CorpusError(
            f"{what} holds vectors of {width:,} dimensions; those of the index, or of the files before, have {dim:,}",
            "vectors of two models do not mix: choose another `index`, or replace this one with `rebuild=True`",
            where=where,
        )


def row_ids(file: SourceFile, rows: NDArray[np.int64], *, named: bool) -> list[str]:
    """Ids of rows that have none: their numbers; `named`: with the file's name in front, for many files."""
    return [file.doc_id(name) if named else name for name in map(str, rows.tolist())]
