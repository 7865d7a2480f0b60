"""The spec of an index of precomputed vectors: what the user says, and what the index was made with."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ragidx.corpora.errors import IndexFormatError, SpecError, lone_surrogate
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.differences import Difference, differences, mismatch
from ragidx.indexer.specs import FilterSpec, IndexSpec, Precomputed
from ragidx.indexer.store.manifest import Manifest


def spec_of_vectors(
    old: Manifest | None,
    dim: int,
    *,
    index_type: str | None = None,
    made_by: str = "",
    queries: IndexSpec | None = None,
    where: str = "",
) -> IndexSpec:
    """The spec of vectors of this width; what is not said is the index's own.

    Args:
        old: the state that is updated; None: a new index.
        dim: width of the vectors as they are given: the index's, or what it was before it was shrunk.
        index_type: a name or a factory string; None: the index's own, else the default.
        made_by: what made the vectors, in the user's words; "": what the index says.
        queries: what an index of the model would have, that encodes questions; None: the index's own, else none does.
        where: the index, for messages.

    Raises:
        SpecError: the index holds something else, or `made_by` is not text.
    """
    have, given = (None, Precomputed()) if old is None else check_given(old, where)
    if lone_surrogate(made_by) is not None:
        raise SpecError("the model's name is not Unicode text", "write it in UTF-8")
    base = have or IndexSpec(
        encoder=None,
        precomputed=given,
        filter=FilterSpec(name="none"),
        chunk=ChunkSpec(size=None),
        index_type=IndexOptions().index_type,
    )
    want = dataclasses.replace(base, index_type=index_type or base.index_type)
    if queries is not None:
        want = dataclasses.replace(
            want,
            filter=queries.filter,
            weights=queries.weights,
            template=queries.template,
            encoder=queries.encoder,
            questions=queries.questions or want.questions,
            weight=want.weight if queries.weight is None else queries.weight,
        )
    if made_by:
        want = dataclasses.replace(want, precomputed=dataclasses.replace(given, made_by=made_by))
    if have is None or old is None:
        return want
    changes = differences(have, want)
    if want.encoder is not None and have.encoder is None:
        changes = [Difference("encoder.model", None, want.encoder.model)]
    if dim not in (old.dim, given.input_dim):
        words = f"vectors have {old.dim:,} dimensions in the index, {dim:,} now"
        changes.insert(0, Difference("dim", old.dim, dim, words))
    if changes:
        raise mismatch(changes, want.index_type, where)
    return want


class GivenSpec(NamedTuple):
    """The spec of an index of precomputed vectors, and what it says of them."""

    spec: IndexSpec
    given: Precomputed


def check_given(manifest: Manifest, where: str) -> GivenSpec:
    """The spec of an index, if it holds precomputed vectors.

    Raises:
        SpecError: a model of ragidx made them.
        IndexFormatError: the widths that it names do not go together.
    """
    spec = IndexSpec.from_json(dict(manifest.spec), where=where)
    given = spec.precomputed
    if given is None:
        model = "" if spec.encoder is None else spec.encoder.model
        raise SpecError(
            f"the index holds what the model '{model}' encoded, not precomputed vectors",
            "choose another `index`, or replace it with `rebuild=True`",
            where=where,
        )
    if given.input_dim is not None and given.input_dim <= manifest.dim:
        raise IndexFormatError(
            f"the index cannot hold the first {manifest.dim:,} of {given.input_dim:,} dimensions",
            "put the manifest back, or replace the index with `rebuild=True`",
            where=where,
        )
    return GivenSpec(spec, given)
