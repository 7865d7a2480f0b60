"""An empty index, for documents or vectors of a program.

options -> spec -> one commit without rows
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import SpecError
from ragidx.indexer.atomic import temporary_room
from ragidx.indexer.store.files import LOCK
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.writing import StoreWriter
from ragidx.pipelines.ingest.options import INDEX_OPTIONS, build_options
from ragidx.pipelines.ingest.resolve import resolve
from ragidx.pipelines.vectors import RowWriter
from ragidx.retriever.models import ModelPlace
from ragidx.retriever.searcher import Searcher

_SHARED, _ROOM = Path("/dev/shm"), 1 << 30  # in a container it may be of 64 MiB


def create(path: Path, options: Mapping[str, Any], *, exist_ok: bool, timeout: float = 0.0) -> None:
    """Commit an empty index that encodes texts as the options say, or with `dim` takes vectors as wide.

    Args:
        path: folder of the index.
        options: options of `Index.create`.
        exist_ok: leave the one that is there already.
        timeout: seconds to wait for another writer, such as one that makes it.

    Raises:
        BusyError: another writer held the folder for longer.
        SpecError: there is an index and it may not be, an option is wrong, or the filter is fitted on a corpus.
    """
    if committed_or_none(path) is not None:
        if exist_ok:
            return
        raise _there_is_one(path)
    options = dict(options)
    if (dim := options.pop("dim", None)) is not None:
        for name in options:
            if name not in INDEX_OPTIONS:
                raise SpecError(
                    f"dim={dim} makes an index for precomputed vectors, and {name} is about encoding",
                    f"remove `{name}`; the dimensions of encoded texts are `filter=ragidx.FilterSpec(dim={dim})`",
                    where="`dim`",
                )
        with RowWriter(path, dim, timeout=timeout, **options) as writer:
            writer.commit()
        return
    resolved = resolve(path, build_options("create", **options))
    if resolved.wants_a_sample:
        raise SpecError(
            f"{resolved.spec.filter.fitted} is fitted on a corpus, and there is none yet",
            "take another, or build the index of a folder first",
            where="`filter`",
        )
    with StoreWriter(
        path,
        spec=resolved.spec.to_json(),
        fingerprint=resolved.fingerprint(),
        dim=resolved.dim(),
        index=resolved.index_options(),
        blobs=resolved.blobs(),
        timeout=timeout,
    ) as writer:
        if writer.store is None:
            writer.commit({}, 0, changed=True)
        elif not exist_ok:  # another process made it meanwhile
            raise _there_is_one(path)


def is_to_come(path: Path) -> bool:
    """Whether a folder may become an index: it is not there, or empty, or one is being made in it.

    Raises:
        IndexFormatError: the index in it is damaged or newer.
    """
    if committed_or_none(path) is not None or path.is_file():
        return False
    return not path.exists() or (path / LOCK).exists() or not any(path.iterdir())


def without_rows(path: Path, options: Mapping[str, Any], place: ModelPlace) -> Searcher:
    """The state that `create` will make; nothing is written to the path."""
    with tempfile.TemporaryDirectory() as folder, temporary_room(Path(folder)):
        create(Path(folder) / "index", options, exist_ok=False)
        found = Searcher.open(Path(folder) / "index", place)
    found.store.path = path
    return found


def room_in_memory(owner: object) -> tuple[Path, Callable[[], object]]:
    """A folder in memory, where the system has room there, and what takes it away; else with the owner it goes."""
    at = _SHARED if os.access(_SHARED, os.W_OK) and shutil.disk_usage(_SHARED).free >= _ROOM else None
    folder = tempfile.mkdtemp(prefix="ragidx-", dir=at)
    return Path(folder), weakref.finalize(owner, _remove, folder, os.getpid())


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # and not one that was forked from it
        shutil.rmtree(folder, ignore_errors=True)


def _there_is_one(path: Path) -> SpecError:
    hint = "open it with ragidx.Index(path, create=True), or give `exist_ok=True`"
    return SpecError("there is an index already", hint, where=str(path))
