"""An empty index, for documents or vectors of a program.

options -> spec -> one commit without rows
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import SpecError
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.writing import StoreWriter
from ragidx.pipelines.ingest.options import INDEX_OPTIONS, build_options
from ragidx.pipelines.ingest.resolve import resolve
from ragidx.pipelines.vectors import RowWriter


def create(path: Path, dim: int | None, options: Mapping[str, Any], *, exist_ok: bool) -> None:
    """Commit an empty index that encodes texts as the options say, or with `dim` takes vectors as wide.

    Raises:
        SpecError: there is an index and it may not be, an option is wrong, or the filter is fitted on a corpus.
    """
    if committed_or_none(path) is not None:
        if exist_ok:
            return
        raise _there_is_one(path)
    if dim is not None:
        for name in options:
            if name not in INDEX_OPTIONS:
                raise SpecError(
                    f"dim={dim} makes an index for precomputed vectors, and {name} is about encoding",
                    f"remove `{name}`; the dimensions of encoded texts are `filter=ragidx.FilterSpec(dim={dim})`",
                    where="`dim`",
                )
        with RowWriter(path, dim, **options) as writer:
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
    ) as writer:
        if writer.store is None:
            writer.commit({}, 0, changed=True)
        elif not exist_ok:  # another process made it meanwhile
            raise _there_is_one(path)


def _there_is_one(path: Path) -> SpecError:
    hint = "open it with ragidx.Index, or give `exist_ok=True`"
    return SpecError("there is an index already", hint, where=str(path))
