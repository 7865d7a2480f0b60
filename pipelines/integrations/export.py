"""Export: the state of an index goes to a target: a file, or a table of an engine.

    index, "parquet:FILE" | "datasets:DIR" | "lancedb:DIR" | ... -> ExportReport

The same state again does nothing. A later one takes the place of a file, and changes the rows of a table that differ.
Vectors of another model are not replaced unless that is asked for.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ragidx.corpora.addresses import hidden
from ragidx.corpora.errors import IndexFormatError, SpecError, lone_surrogate, printable, unknown_name
from ragidx.indexer.ann.alone import check_has_vectors
from ragidx.pipelines.integrations.engines import files
from ragidx.pipelines.integrations.engines.layout import DIGEST, AboutTable, rows_of
from ragidx.pipelines.integrations.engines.table import Table
from ragidx.pipelines.integrations.engines.target import ENGINES, EXAMPLES, Target, is_target
from ragidx.retriever.rows import FolderRows

OnProgress = Callable[[int, int], None]
"""Called with the rows that are written, and all of them."""


@dataclass(frozen=True)
class ExportReport:
    """What an export did.

    Attributes:
        target: where the rows are; without what is secret.
        generation: the generation of the index.
        n_rows: how many rows the target has.
        n_written: how many rows were written; 0: the target had this state.
        seconds: the time of the export.
        n_deleted: how many rows were deleted, which the index no longer has.
        refused: how many rows the target cannot hold, by the reason; it does not have them.
    """

    target: str
    generation: int
    n_rows: int
    n_written: int
    seconds: float
    n_deleted: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON types."""
        return asdict(self)


def export(
    store: FolderRows,
    to: str,
    *,
    replace: bool = False,
    strict: bool = False,
    decoded: bool = False,
    on_progress: OnProgress = lambda done, total: None,
) -> ExportReport:
    """Write the rows of an index to a target.

    Args:
        store: the state of the index.
        to: `parquet:FILE`, `datasets:DIR`, or a table as `Target` names it; a path that ends in `.parquet` is a file.
        replace: write all anew, whatever is there.
        strict: end before anything is written if the target cannot hold all rows.
        decoded: write decoded vectors, where the index stores codes alone.
        on_progress: called after each part.

    Raises:
        SpecError: there is no such kind of target, the index has no rows, the target holds something else, or, with
            `strict`, it cannot hold all rows.
        RagidxError: it cannot be written.
    """
    started = time.perf_counter()
    if not decoded:
        check_has_vectors(store.manifest.index, "export", str(store.path))
    if lone_surrogate(to) is not None:
        raise SpecError("its name is not UTF-8", "name another target", where=printable(to))
    about, n_rows = AboutTable.of(store), store.manifest.n_chunks
    if not n_rows:
        raise SpecError("the index has no rows to export", "build it first", where=str(store.path))
    if is_target(to):
        target = Target.parse(to)
        with closing(target.open()) as table:
            done = _Export(store, table, about, on_progress).run(target.shown, replace=replace, strict=strict)
    else:
        done = _to_file(store, to, about, on_progress, replace=replace)
    return dataclasses.replace(done, seconds=time.perf_counter() - started)


def _to_file(store: FolderRows, to: str, about: AboutTable, on_progress: OnProgress, *, replace: bool) -> ExportReport:
    kind, path = target_of(to)
    before, n_rows = None, store.manifest.n_chunks
    try:
        before = kind.about(path)
    except IndexFormatError:
        if not replace:
            raise
    if before is None and not replace and any(one.is_file() for one in (path, *path.rglob("*"))):
        raise SpecError("it holds something else", "name another target, or give `replace=True`", where=to)
    if before is not None and not replace:
        if before.is_of(about):
            return ExportReport(to, about.generation, n_rows, 0, 0.0)
        _check_same_space(before, about, to)
    done = 0

    def on_rows(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, n_rows)

    kind.write(store, path, about, on_rows)
    return ExportReport(to, about.generation, n_rows, n_rows, 0.0)


class _Export:
    """FolderRows on their way to a table; those that it cannot hold are counted."""

    def __init__(self, store: FolderRows, table: Table, about: AboutTable, on_progress: OnProgress) -> None:
        self._store, self._table, self._about, self._on_progress = store, table, about, on_progress
        self._refused = Counter[str]()
        self._n_read = self._n_written = 0

    def run(self, to: str, *, replace: bool, strict: bool) -> ExportReport:
        table, about = self._table, self._about
        table.check(about)
        before = None if replace else table.about()
        n_rows = self._store.manifest.n_chunks
        if before is not None:
            _check_same_space(before, about, to)
        if strict:
            self._check_all(to)
        if before is not None and before.is_of(about) and table.is_whole:
            if (held := table.count()) < n_rows and not strict:
                self._count_refused()
            return ExportReport(to, about.generation, held, 0, 0.0, refused=dict(self._refused))
        gone: dict[str, int] = {}
        if before is None or not before.has_shape_of(about) or before.stemmer != about.stemmer:
            table.replace(self._rows(), about)
        else:
            gone = table.digests()
            table.update(self._rows(gone), lambda: list(gone), about)
        held = n_rows - self._refused.total()
        return ExportReport(to, about.generation, held, self._n_written, 0.0, len(gone), dict(self._refused))

    def _rows(self, known: dict[str, int] | None = None) -> Iterator[Any]:
        """The rows to write; those that are `known` as they are, and all that are read, leave it."""
        n_rows = self._store.manifest.n_chunks
        for batch in rows_of(self._store, self._about):
            self._n_read += len(batch)
            kept = self._held(batch)
            if known is not None:
                ids, digests = kept.column("chunk_id").to_pylist(), kept.column(DIGEST).to_pylist()
                changed = [known.pop(name, None) != one for name, one in zip(ids, digests, strict=True)]
                kept = kept.filter(pa.array(changed, pa.bool_()))
            if len(kept):
                self._n_written += len(kept)
                yield kept
            self._on_progress(self._n_read, n_rows)

    def _held(self, batch: Any) -> Any:
        """The rows of a batch that the table can hold; the others are counted."""
        held = np.ones(len(batch), np.bool_)
        for reason, rows in self._table.refused(batch).items():
            if n_new := int((held & rows).sum()):
                self._refused[reason] += n_new
            held &= ~rows
        return batch if held.all() else batch.filter(pa.array(held))

    def _count_refused(self) -> None:
        for batch in rows_of(self._store, self._about):
            self._held(batch)

    def _check_all(self, to: str) -> None:
        """Whether the table can hold all rows.

        Raises:
            SpecError: it cannot.
        """
        self._count_refused()
        if self._refused:
            why = "; ".join(f"{count:,} {reason}" for reason, count in sorted(self._refused.items()))
            hint = "change the documents, or export without `strict=True`: these rows are then counted and not written"
            raise SpecError(f"it cannot hold {self._refused.total():,} rows: {why}", hint, where=to)


def _check_same_space(before: AboutTable, about: AboutTable, to: str) -> None:
    spaces = [(one.fingerprint, one.dim, one.spec.get("precomputed")) for one in (before, about)]
    if spaces[0] != spaces[1]:
        raise SpecError(
            "its vectors were made in another way, by another model or filter",
            "name another target, or give `replace=True`",
            where=to,
        )


class _Kind(NamedTuple):
    about: Callable[[Path], AboutTable | None]
    write: Callable[[FolderRows, Path, AboutTable, files.OnRows], None]


_KINDS = {
    "parquet": _Kind(files.about_file, files.write_parquet),
    "datasets": _Kind(files.about_dataset, files.write_dataset),
}


def target_of(text: str) -> tuple[_Kind, Path]:
    """The kind of a target that is a file or a folder, and its place.

    Raises:
        SpecError: there is no such kind.
    """
    name, sign, place = text.partition(":")
    if not sign and text.lower().endswith(".parquet"):
        name, place = "parquet", text
    if name not in _KINDS or not place:
        fault = unknown_name("target", name, [*_KINDS, *ENGINES])
        known = ", ".join([*(f"{one}:PATH" for one in _KINDS), *EXAMPLES])
        raise SpecError(fault.message, f"name one as {known}", where=hidden(text))
    return _KINDS[name], Path(place)
