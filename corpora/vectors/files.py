"""Precomputed vectors: parquet, arrow, feather and npy files, one or a folder of them, as batches.

    path -> VectorRows, bounded in size, all of one width

A broken row is skipped and reported. A file that cannot be read, has no vectors, or has vectors of another width
throughout is an error, unlike in a folder of documents. So is a file that changes while it is read: its size, time and
inode are compared before and after each batch. Whether a vector is finite or zero is not checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ragidx.corpora.errors import CorpusError, check_machine
from ragidx.corpora.limits import ReadOptions, UnreadableError
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import OnSkip
from ragidx.corpora.sources import Source, sources
from ragidx.corpora.vectors.batch import VectorRows, batch_rows, check_width, row_ids
from ragidx.corpora.vectors.npy import open_npy

__all__ = ["ENDINGS", "Reader", "VectorRows", "read_vectors", "vector_batches", "vector_sizes"]

_NPY = ".npy"
ENDINGS = (".parquet", ".arrow", ".feather", ".ipc", _NPY)
"""Lower case, below `.gz` and `.zst`."""

HINT = "repair the file, or exclude it"
_GIVE = f"give one of {', '.join(ENDINGS)}, or a folder of them"

Reader: TypeAlias = Callable[[SourceFile, str | None, int | None, bool], Iterator[VectorRows]]
"""Of a file with columns: given that of vectors, their width, and whether ids that are row numbers have its name."""


def vector_batches(
    path: str | Path,
    vector_field: str | None = None,
    options: ReadOptions | None = None,
    *,
    dim: int | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    indexes: Sequence[str] = (),
    on_skip: OnSkip,
    on_source: Callable[[Source], None] = lambda source: None,
    read: Reader | None = None,
) -> Iterator[VectorRows]:
    """The rows of a file, or of all files of a folder, streaming.

    Args:
        path: a file or a folder.
        vector_field: the column of vectors; None: one with a known name (`vectors.fields`).
        options: options of reading: the fields of ids and texts, and bounds.
        dim: the width that the vectors must have; None: that of the first ones.
        include: gitignore-style globs below a folder; a file is kept if one matches.
        exclude: the same, for what to skip.
        indexes: folders that are skipped as indexes, as in `sources`.
        on_skip: called for each skip.
        on_source: called before a file is read.
        read: reads files with columns, with the errors of `read_vectors`; None: they are read in this process.

    Raises:
        CorpusError: there is no such file; one cannot be read, changes while it is read, has no vectors, or has
            vectors of another width.
        SpecError: a glob is not valid.
    """
    is_folder = Path(path).is_dir()
    for source in _sources(path, include, exclude, indexes, on_skip):
        file = SourceFile(source=source, options=options or ReadOptions(), on_skip=on_skip)
        if not _is_read(file, is_folder=is_folder):
            continue
        on_source(source)
        reader = read_vectors if read is None or file.ending == _NPY else read
        for batch in _unchanged(file, reader(file, vector_field, dim, is_folder)):
            dim = batch.vectors.shape[1]
            yield batch


def vector_sizes(
    path: str | Path, *, include: Sequence[str] = (), exclude: Sequence[str] = (), indexes: Sequence[str] = ()
) -> list[int]:
    """The bytes of each file that will be read; nothing is opened."""
    found = _sources(path, include, exclude, indexes, lambda _: None)
    return [
        source.size
        for source in found
        if source.name.lower().removesuffix(".gz").removesuffix(".zst").endswith(ENDINGS)
    ]


def _sources(
    path: str | Path, include: Sequence[str], exclude: Sequence[str], indexes: Sequence[str], on_skip: OnSkip
) -> Iterator[Source]:
    """As `sources`, without standard input: it has no ending to choose a reader by."""
    if str(path) == "-":
        raise CorpusError("vectors are not read from standard input", _GIVE, where="-")
    try:
        return sources(path, include=include, exclude=exclude, indexes=indexes, on_skip=on_skip)
    except CorpusError as fault:
        raise CorpusError(fault.message, _GIVE, where=fault.where) from fault


def _is_read(file: SourceFile, *, is_folder: bool) -> bool:
    """Whether it is a file of vectors; another kind of file is skipped in a folder, else refused."""
    if file.ending in ENDINGS:
        return True
    if is_folder:
        file.skip("not a file of vectors")
        return False
    raise CorpusError("it is not a file of vectors", _GIVE, where=file.source.name)


def read_vectors(file: SourceFile, vector_field: str | None, dim: int | None, named: bool) -> Iterator[VectorRows]:
    """The rows of a file, read in this process.

    Raises:
        CorpusError: it cannot be read, or has no vectors of the width.
    """
    try:
        if file.ending == _NPY:
            yield from _read_npy(file, vector_field, dim, named)
        else:
            from ragidx.corpora.vectors.columnar import read_columns  # loads pyarrow

            yield from read_columns(file, vector_field, dim, named=named)
    except (UnreadableError, OSError) as fault:
        name = file.source.name
        check_machine(fault, name)
        reason = f"cannot be read: {fault.strerror or fault}" if isinstance(fault, OSError) else str(fault)
        raise CorpusError(reason, HINT, where=name) from fault


def _unchanged(file: SourceFile, batches: Iterator[VectorRows]) -> Iterator[VectorRows]:
    """The batches of a file that nothing writes meanwhile."""
    before = _state(file)
    try:
        for batch in batches:
            _check_unchanged(file, before)
            yield batch
            _check_unchanged(file, before)  # do not parse a changed file
    except CorpusError:
        _check_unchanged(file, before)  # then the change is the fault
        raise
    _check_unchanged(file, before)


def _state(file: SourceFile) -> tuple[int, ...]:
    """What changes when a file is written or replaced; empty if the file is missing, which reading reports."""
    assert file.source.path is not None
    try:
        found = file.source.path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _check_unchanged(file: SourceFile, before: tuple[int, ...]) -> None:
    """Refuse a file that changed since its reading began.

    Raises:
        CorpusError: it changed; what was read may mix two states.
    """
    if _state(file) != before:
        raise CorpusError(
            "the file changed while it was read",
            "wait until nothing writes it, and run the same command again",
            where=file.source.name,
        )


def _read_npy(file: SourceFile, vector_field: str | None, dim: int | None, named: bool) -> Iterator[VectorRows]:
    """A matrix, block by block; its ids are the row numbers."""
    if (vector_field, file.options.id_field, file.options.text_field) != (None, None, None):
        raise CorpusError(
            "an .npy file has no columns",
            "remove `vector_field`, `id_field` and `text_field`, or give a parquet or arrow file",
            where=file.source.name,
        )
    with file.path() as path, open_npy(path, file.source.name) as matrix:
        check_width(matrix.width, dim, "the array", file.source.name)
        if not matrix.total:
            file.skip("holds no row")
        step = batch_rows(matrix.width)
        for start in range(0, matrix.total, step):
            vectors = matrix.rows(start, step)
            rows = np.arange(start, start + len(vectors))
            yield VectorRows(
                file=file.source.name,
                rows=rows,
                ids=row_ids(file, rows, named=named),
                vectors=vectors,
                texts=[""] * len(rows),
                doc_ids=None,
                metadata=[{}] * len(rows),
                share=(start + len(rows)) / matrix.total,
            )
