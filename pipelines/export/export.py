"""Export: the state of an index goes to a target, as a whole.

    index, "parquet:FILE" | "datasets:DIR" -> ExportReport

The same state again does nothing; a later one takes the place of what is there. Rows of another index or model are not
replaced unless that is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.indexer.store.store import Store
from ragidx.pipelines.export import files
from ragidx.pipelines.export.about import About

OnProgress = Callable[[int, int], None]
"""Called with the rows that are written, and all of them."""


@dataclass(frozen=True)
class ExportReport:
    """What an export did.

    Attributes:
        target: where the rows are.
        generation: of the index.
        n_rows: of the target.
        n_written: now; 0: it had this state.
        seconds: that it took.
    """

    target: str
    generation: int
    n_rows: int
    n_written: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


class _Kind(NamedTuple):
    about: Callable[[Path], About | None]
    write: Callable[[Store, Path, About, files.OnRows], None]


_KINDS = {
    "parquet": _Kind(files.about_file, files.write_parquet),
    "datasets": _Kind(files.about_dataset, files.write_dataset),
}


def export(
    store: Store, to: str, *, replace: bool = False, on_progress: OnProgress = lambda done, total: None
) -> ExportReport:
    """Write the rows of an index to a target.

    Args:
        store: the state of the index.
        to: `parquet:FILE` or `datasets:DIR`; a path that ends in `.parquet` is the first.
        replace: also rows of another index, and vectors that were made in another way.
        on_progress: called after each part.

    Raises:
        SpecError: there is no such kind of target, the index has no rows, or the target holds something else.
        RagidxError: it cannot be written; it is what it was.
    """
    started = time.perf_counter()
    kind, path = target_of(to)
    about, n_rows = About.of(store), store.manifest.n_chunks
    if not n_rows:
        raise SpecError("the index has no rows to export", "build it first", where=str(store.path))
    before = kind.about(path)
    if before is None and path.is_file() and not replace:
        raise SpecError("it holds something else", "name another target, or give `replace=True`", where=to)
    if before is not None and before.is_of(about):
        return ExportReport(to, about.generation, n_rows, 0, time.perf_counter() - started)
    if before is not None and before.fingerprint != about.fingerprint and not replace:
        raise SpecError(
            "its vectors were made in another way, by another model or filter",
            "name another target, or give `replace=True`",
            where=to,
        )
    done = 0

    def on_rows(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, n_rows)

    kind.write(store, path, about, on_rows)
    return ExportReport(to, about.generation, n_rows, n_rows, time.perf_counter() - started)


def target_of(text: str) -> tuple[_Kind, Path]:
    """The kind of a target, and its place.

    Raises:
        SpecError: there is no such kind.
    """
    name, sign, place = text.partition(":")
    if not sign and text.lower().endswith(".parquet"):
        name, place = "parquet", text
    if name not in _KINDS or not place:
        fault = unknown_name("target", name, list(_KINDS))
        raise SpecError(fault.message, f"name one as {', '.join(f'{one}:PATH' for one in _KINDS)}", where=text)
    return _KINDS[name], Path(place)
