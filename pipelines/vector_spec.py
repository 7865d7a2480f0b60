"""The spec of an index of vectors that were made elsewhere: what the user says, and what the index was made with."""

from __future__ import annotations

from pathlib import Path

from ragidx.corpora.errors import SpecError, lone_surrogate
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.index_types import IndexOptions, check_index_type
from ragidx.indexer.manifest import MANIFEST, Manifest, read_manifest
from ragidx.indexer.methods import VECTORS, given_vectors
from ragidx.indexer.specs import FilterSpec, IndexSpec, differences


def committed(index: Path) -> Manifest | None:
    """The committed state of an index, None where nothing is committed yet.

    Raises:
        IndexFormatError: it is damaged or newer.
    """
    return read_manifest(index) if (index / MANIFEST).exists() else None


def spec_of_vectors(
    old: Manifest | None, dim: int, *, index_type: str | None = None, model: str = "", where: str = ""
) -> IndexSpec:
    """The spec of vectors of this width; what is not said is the index's own.

    Args:
        old: the state that is gone on with; None: a new index.
        dim: width of the vectors.
        index_type: a name or a factory string; None: the index's own, else the default.
        model: what made the vectors, in the user's words; "": what the index says.
        where: the index, for messages.

    Raises:
        SpecError: the index holds something else, or `model` is no text.
    """
    have = None if old is None else check_given(old, where)
    if lone_surrogate(model) is not None:
        raise SpecError("the model's name is no Unicode text", "write it in UTF-8")
    named = model or ("" if have is None else have.encoder.model)
    want = IndexSpec(
        encoder=given_vectors(named),
        filter=FilterSpec(name="none"),
        chunk=ChunkSpec(size=None),
        index_type=index_type or (IndexOptions().index_type if have is None else have.index_type),
    )
    if have is None or old is None:
        return want
    changes = differences(have, want)
    if have.encoder.model != named:  # the only thing that such an index knows its model by
        changes.insert(0, f"encoder.model is {have.encoder.model!r} in the index, {named!r} now")
    if old.dim != dim:
        changes.insert(0, f"vectors have {old.dim:,} numbers in the index, {dim:,} now")
    if changes:
        raise SpecError(
            "the index was made otherwise: " + "; ".join(changes),
            "leave the option out to go on with the index, or replace it with --rebuild",
            where=where,
        )
    return want


def index_options(
    old: Manifest | None, spec: IndexSpec, dim: int, target_recall: float | None, max_memory: int | None
) -> IndexOptions:
    """Which index large segments get: what was asked for, else the index's own, else the default.

    Raises:
        SpecError: a value is unknown, out of range, or does not suit the width.
    """
    own = IndexOptions() if old is None else old.index
    options = IndexOptions(
        spec.index_type,
        own.target_recall if target_recall is None else target_recall,
        own.max_memory if max_memory is None else max_memory,
    )
    check_index_type(options.index_type, dim)
    return options


def check_given(manifest: Manifest, where: str) -> IndexSpec:
    """The spec of an index, if it holds vectors that were made elsewhere.

    Raises:
        SpecError: a model of ragidx made them.
    """
    spec = IndexSpec.from_json(dict(manifest.spec), where=where)
    if spec.encoder.method != VECTORS:
        raise SpecError(
            f"the index was made otherwise: it holds what the model '{spec.encoder.model}' encoded, "
            "not vectors that were made elsewhere",
            "choose another --index, or replace it with --rebuild",
            where=where,
        )
    return spec
