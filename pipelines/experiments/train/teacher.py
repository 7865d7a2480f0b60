"""Texts whose vectors a teacher has made: which file each text is in, and its vector as int8.

    rows.parquet       file, a path, with `id`, `start`, `end` of a document's text, or `row` of a pair, of its query
    vectors.i8.npy     (n, d) int8, a row each

Files are JSON Lines, packed or not, of documents (`id`, `text`) or of pairs (`query`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.evalset_files import lines_of
from ragidx.indexer.arrays import Floats
from ragidx.indexer.normalize import l2_normalize

ROWS, VECTORS = "rows.parquet", "vectors.i8.npy"
_COLUMNS = ("file", "id", "start", "end", "row")


def is_teacher(path: Path) -> bool:
    """Whether a folder holds texts' vectors."""
    return (path / ROWS).is_file()


def read_teacher(folder: Path, text: Path) -> tuple[list[str], Floats]:
    """The texts, and their vectors (n, d) of unit length.

    Args:
        folder: the folder that holds both files.
        text: the folder that the paths in the rows begin in.

    Raises:
        CorpusError: a file is missing or cannot be read, they do not belong together, or a row's text is not there.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        columns = pq.read_table(folder / ROWS, columns=list(_COLUMNS)).to_pydict()
        raw = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, pa.ArrowException) as fault:
        hint = f"the folder holds {ROWS} with {', '.join(_COLUMNS)}, and {VECTORS}"
        raise CorpusError("the teacher's files cannot be read", hint, where=str(folder)) from fault
    n = len(columns["file"])
    if raw.dtype != np.int8 or raw.ndim != 2 or len(raw) != n:
        message = f"{VECTORS} holds {raw.dtype} {raw.shape}, for {n:,} rows"
        raise CorpusError(message, "take both files of one teacher", where=str(folder))
    vectors = raw.astype(np.float32)
    zero = np.flatnonzero(~vectors.any(axis=1))
    if zero.size:
        message = f"the vector of row {zero[0]} is zero"
        raise CorpusError(message, "leave rows without a vector out of both files", where=str(folder / VECTORS))
    rows_of: dict[str, list[dict[str, Any]]] = {}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for row in rows:
        rows_of.setdefault(row["file"], []).append(row)
    texts = {file: iter(_texts(text / file, of_file)) for file, of_file in rows_of.items()}
    return [next(texts[row["file"]]) for row in rows], l2_normalize(vectors).vectors


def _texts(file: Path, rows: list[dict[str, Any]]) -> list[str]:
    """The texts of the rows of one file."""
    if not file.is_file():
        hint = "name the folder that the paths in the teacher's rows begin in with `text`"
        raise CorpusError("no such file", hint, where=str(file))
    try:
        lines = (json.loads(line) for _, line in lines_of(file))
        if rows[0]["id"] is None:
            queries = [line["query"] for line in lines]
            return [queries[row["row"]] for row in rows]
        bodies = {line["id"]: line["text"] for line in lines}
        return [bodies[row["id"]][row["start"] : row["end"]] for row in rows]
    except (ValueError, KeyError, IndexError, TypeError) as fault:
        message = f"a row's text is not there: {type(fault).__name__} {fault}"
        raise CorpusError(message, "take the texts that the teacher read", where=str(file)) from fault
