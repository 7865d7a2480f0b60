"""An index in another form, from what is stored: narrower, or under another index type; nothing is encoded again.

A narrower index is what a build at that width would have made, but that its numbers were rounded twice: each is within
a step of float16 of the other, and the cosine of both vectors is 1 to 1e-6. The spec says the narrower width, the
filter is cut to it, and `ragidx build` continues the index as any other.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann.alone import check_has_vectors
from ragidx.indexer.ann.tuning import OnStage
from ragidx.indexer.normalize import check_width
from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import files_of
from ragidx.indexer.writing import rewrite
from ragidx.indexer.writing.rewrite import NewForm, Rewritten
from ragidx.pipelines.ingest.options import index_options
from ragidx.pipelines.ingest.report import made_in
from ragidx.pipelines.ingest.resolve import fingerprint_of
from ragidx.retriever.models import FILTER_FILE, QUESTIONS_FILE


@dataclass(frozen=True)
class ReshapeReport:
    """What became of an index.

    Attributes:
        index: folder of the index.
        generation: number of the committed generation.
        committed: whether anything was done.
        dim: number of dimensions that are kept.
        index_type: index type as it was asked for.
        segment_types: index of each segment: flat, or a factory string.
        recall: the least ann_recall@10 that was measured; None: every vector is compared.
        n_chunks: number of chunks in the index.
        n_segments: number of segments in the index; `n_rewritten` is how many of the old ones were rewritten.
        n_dropped: dead rows that are gone.
        bytes_before: bytes of the files of the state that was there before.
        bytes_after: the same, now.
        folder_bytes: bytes of all of the folder, with the older generations that are kept.
    """

    index: str
    generation: int
    committed: bool
    dim: int
    index_type: str
    segment_types: list[str]
    recall: float | None
    n_chunks: int
    n_segments: int
    n_rewritten: int
    n_dropped: int
    bytes_before: int
    bytes_after: int
    folder_bytes: int

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return dataclasses.asdict(self)


def compact(
    index: str | Path = "ragidx-index", *, everything: bool = False, on_stage: OnStage = lambda stage, rows, done: None
) -> ReshapeReport:
    """Merge small segments and drop dead rows, in one commit; readers that are open are not disturbed.

    `everything` rewrites all segments, where there is anything to gain. `on_stage` is called with what is done, how
    many rows there are, and how many are done.

    Raises:
        IndexFormatError: there is no index, or it is damaged.
        BusyError: a writer holds the index.
        RagidxError: the folder cannot be written.
    """
    return _report(Path(index), rewrite.compact(Path(index), everything=everything, on_stage=on_stage))


def shrink(
    index: str | Path = "ragidx-index", *, dim: int, on_stage: OnStage = lambda stage, rows, done: None
) -> ReshapeReport:
    """Replace an index by its first `dim` dimensions, in one commit; `rollback` brings the wide one back.

    Raises:
        SpecError: the index is not that wide, or its filter keeps dimensions in no order.
        IndexFormatError: there is no index, or it is damaged.
        BusyError: a writer holds the index.
        RagidxError: the folder cannot be written.
    """

    def decide(store: Store) -> NewForm | None:
        check_has_vectors(store.manifest.index, "shrink", str(store.path))
        return None if dim == store.manifest.dim else _change(store, dim)

    return _report(Path(index), rewrite.replace(Path(index), decide, on_stage=on_stage))


def reindex(
    index: str | Path,
    target: str | Path,
    *,
    dim: int | None = None,
    index_type: str | None = None,
    target_recall: float | None = None,
    max_memory: int | str | None = None,
    codes_only: bool | None = None,
    on_stage: OnStage = lambda stage, rows, done: None,
    opened: Store | None = None,
) -> ReshapeReport:
    """Make another index of the vectors that are stored: narrower, under another type, or both.

    Args:
        index: the index folder, which is only read.
        target: a folder outside the index that is empty or does not exist; after a failure it is as before.
        dim: number of dimensions that are kept; None: all.
        index_type: a name or a factory string; None: as it was.
        target_recall: target recall as in a build; None: as it was.
        max_memory: bound of memory as in a build; None: as it was.
        codes_only: whether segments with codes keep no vectors; None: as it was.
        on_stage: called with what is done, how many rows there are, and how many are done.
        opened: the state to be read; None: the committed one.

    Raises:
        SpecError: an option is out of range, there is an index in `target`, or it lies in `index`.
        IndexFormatError: there is no index, or it is damaged.
        RagidxError: the folder cannot be written.
    """

    def decide(store: Store) -> NewForm:
        check_has_vectors(store.manifest.index, "reindex", str(store.path))
        wanted = store.manifest.dim if dim is None else dim
        asked = {"index_type": index_type, "target_recall": target_recall, "max_memory": max_memory}
        return _change(store, wanted, **asked, codes_only=codes_only)

    return _report(Path(target), rewrite.copy(opened or Store.open(index), Path(target), decide, on_stage=on_stage))


def _change(store: Store, dim: int, **asked: Any) -> NewForm:
    """The index at this width, under the options of an index that are named."""
    base = store.manifest
    spec = IndexSpec.from_json(dict(base.spec), where=str(store.path))
    blobs = {name: store.blob(name) for name in base.files}
    if dim != base.dim:
        spec, blobs = _narrower(spec, blobs, base.dim, dim)
    options = index_options(base.index, dim, **asked)
    spec = dataclasses.replace(spec, index_type=options.index_type)
    return NewForm(spec.to_json(), fingerprint_of(spec, blobs), dim, options, blobs)


def _narrower(spec: IndexSpec, blobs: dict[str, bytes], stored: int, dim: int) -> tuple[IndexSpec, dict[str, bytes]]:
    """The spec and the filter of the first `dim` of `stored` dimensions."""
    from ragidx.indexer.filters.filter import Filter, coordinates
    from ragidx.indexer.token_table import TokenTable

    or_else = ", or go back with `ragidx rollback` if it was shrunk"
    check_width("dim", dim, stored, error=SpecError, or_else=or_else)
    if not spec.filter.nested:
        raise SpecError(
            f"filter '{spec.filter.name}' keeps dimensions in no order: the first {dim} are not its narrower form",
            f"build again with `dim={dim}`",
            where="`dim`",
        )
    if spec.precomputed is not None:
        given = dataclasses.replace(spec.precomputed, input_dim=spec.precomputed.input_dim or stored)
        spec = dataclasses.replace(spec, precomputed=given)  # a build cuts those of the same file
    if QUESTIONS_FILE in blobs:
        table = TokenTable.from_bytes(blobs[QUESTIONS_FILE], QUESTIONS_FILE)
        blobs = {**blobs, QUESTIONS_FILE: table.narrowed(dim).to_bytes()}
    if spec.encoder is None:
        return spec, blobs
    cut = coordinates(stored, np.arange(dim))
    if FILTER_FILE in blobs:
        cut = Filter.from_bytes(blobs[FILTER_FILE]).narrowed(dim)
    if cut.then is not None:
        narrow = dataclasses.replace(spec.filter, adapted=cut.then.content())
    else:
        name = "truncation" if spec.filter.name == "none" else spec.filter.name
        narrow = dataclasses.replace(spec.filter, name=name, tau=None, dim=dim)
    return dataclasses.replace(spec, filter=narrow), {**blobs, FILTER_FILE: cut.to_bytes()}


def _report(index: Path, done: Rewritten) -> ReshapeReport:
    manifest = done.manifest
    made, recall = made_in(manifest)
    return ReshapeReport(
        index=str(index),
        generation=manifest.generation,
        committed=done.committed,
        dim=manifest.dim,
        index_type=manifest.index.index_type,
        segment_types=made,
        recall=recall,
        n_chunks=manifest.n_chunks,
        n_segments=len(manifest.segments),
        n_rewritten=done.n_segments,
        n_dropped=done.n_dropped,
        bytes_before=done.bytes_before,
        bytes_after=sum(entry.bytes for entry in files_of(manifest).values()),
        folder_bytes=sum(path.lstat().st_size for path in index.rglob("*") if path.is_file()),
    )
