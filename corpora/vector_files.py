"""Vectors that somebody has already: parquet, arrow, feather and npy files, one or a folder of them, as batches.

    path -> VectorBatch, bounded in size, all of one width

A broken row is reported and left out. A file that cannot be read, has no vectors, or has vectors of another width
throughout is an error at once: unlike a folder of documents, it is all or nothing. Whether a vector is finite, or zero,
is not looked at here, nor what an index holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tokenize import TokenError
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.limits import Limits, ReadOptions, UnreadableError
from ragidx.corpora.office import OfficeConverter
from ragidx.corpora.records import OnSkip
from ragidx.corpora.source_file import SourceFile
from ragidx.corpora.sources import Source, sources
from ragidx.corpora.vector_batch import VectorBatch, batch_rows, check_width, row_ids

__all__ = ["ENDINGS", "VectorBatch", "VectorOptions", "vector_batches", "vector_bytes"]

_NPY = ".npy"
_NPY_FAULTS = (ValueError, TypeError, OverflowError, SyntaxError, TokenError, EOFError, MemoryError)  # of its header
ENDINGS = (".parquet", ".arrow", ".feather", ".ipc", _NPY)
"""Lower case, below `.gz` and `.zst`."""

Reader: TypeAlias = Callable[[SourceFile, "VectorOptions", int | None, bool], Iterator[VectorBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOptions:
    """What to take from a file; None: a column of a name that `vector_columns` knows.

    Args:
        vector_field: the column of vectors.
        id_field: the column of ids.
        text_field: the column of texts.
        limits: bounds on files.
    """

    vector_field: str | None = None
    id_field: str | None = None
    text_field: str | None = None
    limits: Limits = field(default_factory=Limits)


def vector_batches(
    path: str | Path,
    options: VectorOptions | None = None,
    *,
    dim: int | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    on_skip: OnSkip,
    on_source: Callable[[Source], None] | None = None,
) -> Iterator[VectorBatch]:
    """The rows of a file, or of all files of a folder, streaming.

    Args:
        path: a file or a folder.
        options: which columns to take.
        dim: the width that the vectors must have; None: that of the first ones.
        include: gitignore-style globs below a folder; a file is kept if one matches.
        exclude: the same, for what is left out.
        on_skip: called for whatever is left out, with its reason.
        on_source: called when a file is begun.

    Raises:
        CorpusError: there is no such file; one cannot be read; it has no vectors, or vectors of another width.
        SpecError: a glob is none.
    """
    options = options or VectorOptions()
    reading = ReadOptions(options.text_field, options.id_field, options.limits)
    is_folder = Path(path).is_dir()
    with OfficeConverter(options.limits) as office:  # a SourceFile has one; it is never started here
        for source in sources(path, include=include, exclude=exclude, on_skip=on_skip):
            file = SourceFile(source=source, options=reading, on_skip=on_skip, office=office)
            reader = _reader(file, is_folder=is_folder)
            if reader is None:
                continue
            if on_source is not None:
                on_source(source)
            for batch in _told(file, reader(file, options, dim, is_folder)):
                dim = batch.vectors.shape[1]
                yield batch


def vector_bytes(path: str | Path, *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> int:
    """What there is to read: sizes alone, nothing is opened."""
    found = sources(path, include=include, exclude=exclude, on_skip=lambda _: None)
    return sum(
        source.size
        for source in found
        if source.name.lower().removesuffix(".gz").removesuffix(".zst").endswith(ENDINGS)
    )


def _reader(file: SourceFile, *, is_folder: bool) -> Reader | None:
    """What reads the file; None, after a report, for another file of a folder."""
    if file.source.path is not None and file.ending in ENDINGS:
        return _read_npy if file.ending == _NPY else _read_columns
    if is_folder:
        file.skip("no file of vectors")
        return None
    raise CorpusError(
        "it is no file of vectors", f"give one of {', '.join(ENDINGS)}, or a folder of them", where=file.source.name
    )


def _told(file: SourceFile, batches: Iterator[VectorBatch]) -> Iterator[VectorBatch]:
    """The batches; what is wrong with the file becomes an error that names it."""
    hint = "mend the file, or leave it out"
    try:
        yield from batches
    except UnreadableError as fault:
        raise CorpusError(str(fault), hint, where=file.source.name) from fault
    except OSError as fault:
        raise CorpusError(f"cannot be read: {fault.strerror or fault}", hint, where=file.source.name) from fault


def _read_columns(file: SourceFile, options: VectorOptions, dim: int | None, is_folder: bool) -> Iterator[VectorBatch]:
    from ragidx.corpora.vector_columns import read_columns  # loads pyarrow

    return read_columns(file, options.vector_field, dim, named=is_folder)


def _read_npy(file: SourceFile, options: VectorOptions, dim: int | None, is_folder: bool) -> Iterator[VectorBatch]:
    """A matrix, mapped; its ids are the row numbers."""
    if (options.vector_field, options.id_field, options.text_field) != (None, None, None):
        raise CorpusError(
            "an .npy file has no columns",
            "leave out --vector-field, --id-field and --text-field, or give a parquet or arrow file",
            where=file.source.name,
        )
    with file.path() as path:
        matrix = _mapped(path, file.source.name)
        total, width = matrix.shape
        check_width(width, dim, "the array", file.source.name)
        if not total:
            file.skip("holds no row")
        step = batch_rows(width)
        for start in range(0, total, step):
            vectors = np.array(matrix[start : start + step], matrix.dtype.newbyteorder("="))  # this machine's order
            rows = np.arange(start, start + len(vectors))
            yield VectorBatch(
                file=file.source.name,
                rows=rows,
                ids=row_ids(file, rows, named=is_folder),
                vectors=vectors,
                texts=[""] * len(rows),
                doc_ids=None,
                metadata=[{}] * len(rows),
                share=(start + len(rows)) / total,
            )


def _mapped(path: Path, name: str) -> NDArray[Any]:
    """The matrix of an .npy file; nothing is unpickled: an array of objects is refused."""
    try:
        matrix = np.lib.format.open_memmap(path, mode="r")
    except _NPY_FAULTS as fault:
        first = (str(fault).splitlines() or [type(fault).__name__])[0][:200]
        raise CorpusError(
            f"damaged .npy data: {first}", "write it with numpy.save, as an array of numbers", where=name
        ) from fault
    if matrix.dtype.kind != "f" or matrix.dtype.itemsize > 8:
        raise CorpusError(
            f"the array holds {matrix.dtype}, not float16, float32 or float64",
            "convert it with array.astype('float32')",
            where=name,
        )
    if matrix.ndim != 2:
        raise CorpusError(
            f"the array has the shape {matrix.shape}, not (rows, width)", "write a vector in each row", where=name
        )
    return matrix
