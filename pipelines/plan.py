"""The plan of a build: what was asked for, what the index was made with, and the one spec that follows from both.

Options that are left out are the index's own; an option that differs from the index is an error that says what
differs, and `rebuild` replaces the index. Loads no torch until the encoder or the filter is needed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.ann import INDEX_TYPES
from ragidx.indexer.methods import SENTENCE_TRANSFORMERS, filter_spec, resolve
from ragidx.indexer.models import ModelFiles, locate, weights_fingerprint
from ragidx.indexer.specs import EncoderSpec, FilterSpec, IndexSpec, differences
from ragidx.indexer.store import Store
from ragidx.indexer.templates import load_template

if TYPE_CHECKING:
    from ragidx.indexer.encoder import Encoder
    from ragidx.indexer.filters import EmbedFilter

FILTER_FILE = "filter.safetensors"


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What a user may say about a build; None: the index's own, else the preset's, else the default."""

    model: str | None = None
    revision: str | None = None
    method: str | None = None
    pooling: str | None = None
    template: str | None = None
    attention: str | None = None
    layer: int | None = None
    pool_eos: bool | None = None
    instruction: str | None = None
    max_length: int | None = None
    filter: str | None = None
    tau: float | None = None
    dim: int | None = None
    filter_offset: int | None = None
    chunk_size: int | Literal["none"] | None = None
    chunk_overlap: int | None = None
    headings: bool | None = None
    index_type: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    text_field: str | None = None
    id_field: str | None = None
    strict: bool = False
    rebuild: bool = False


_ENCODER = ("method", "pooling", "template", "attention", "layer", "pool_eos", "instruction", "max_length", "revision")


@dataclass
class Plan:
    """The spec of a build and what it is made from."""

    spec: IndexSpec
    files: ModelFiles
    options: BuildOptions
    stored: Store | None  # the index as it is, where it is gone on with

    def load_encoder(self) -> Encoder:
        """Load the model."""
        from ragidx.indexer.encoder import encoder_of

        return encoder_of(self.files, self.spec.encoder, device=self.options.device, dtype=self.options.dtype)

    @functools.cached_property
    def filter(self) -> EmbedFilter | None:
        """The filter: the index's own where there is one, so that every vector went through the same numbers."""
        from ragidx.indexer.filters import EmbedFilter
        from ragidx.indexer.unembedding import spectrum_of

        if self.spec.filter.name == "none":
            return None
        if self.stored is not None:
            return EmbedFilter.from_bytes(self.stored.blob(FILTER_FILE))
        return EmbedFilter.from_spectrum(spectrum_of(self.files), self.spec.filter)

    def matrix(self) -> NDArray[np.float32] | None:
        """(hidden, dim) of the filter; None where there is none."""
        return None if self.filter is None else self.filter.matrix

    def dim(self) -> int:
        """Width of the stored vectors."""
        if self.stored is not None:
            return self.stored.manifest.dim
        return self.load_width() if self.filter is None else self.filter.dim

    def load_width(self) -> int:
        """Hidden width of the model, from its config where that says it."""
        if self.spec.encoder.method == SENTENCE_TRANSFORMERS:
            return self._encoder_for_width.hidden
        return self.files.hidden or self._encoder_for_width.hidden

    @functools.cached_property
    def _encoder_for_width(self) -> Encoder:
        return self.load_encoder()

    def blobs(self) -> dict[str, bytes]:
        """Files that the index keeps beside its vectors."""
        if self.stored is not None:
            return {name: self.stored.blob(name) for name in self.stored.manifest.files}
        return {} if self.filter is None else {FILTER_FILE: self.filter.to_bytes()}


def make_plan(index: Path, options: BuildOptions) -> Plan:
    """What a build will do.

    Raises:
        SpecError: an option is unknown or out of range, or the index was made with another.
        ModelError: the model is not there.
    """
    stored = None if options.rebuild else _stored(index)
    old = None if stored is None else IndexSpec.from_json(dict(stored.manifest.spec), where=str(index))
    files = locate(
        options.model or (old.encoder.model if old else "mini"),
        revision=options.revision or (old.encoder.revision if old else None),
    )
    spec = _index_spec(files, options, old)
    if old is not None and stored is not None:
        changes = differences(old, spec)
        if changes:
            raise SpecError(
                "the index was made otherwise: " + "; ".join(changes),
                "leave the option out to go on with the index, or replace it with --rebuild",
                where=str(index),
            )
    return Plan(spec, files, options, stored)


def _stored(index: Path) -> Store | None:
    """The committed state, None where nothing is committed yet."""
    if not (index / "manifest.json").exists():
        return None
    return Store.open(index)


def _index_spec(files: ModelFiles, o: BuildOptions, old: IndexSpec | None) -> IndexSpec:
    encoder = _encoder_spec(files, o, old)
    template = (
        "" if encoder.method == SENTENCE_TRANSFORMERS else load_template(encoder.template, files.family).content()
    )
    return IndexSpec(
        encoder=encoder,
        filter=_filter_spec(files, o, encoder, old),
        chunk=_chunk_spec(o, old),
        index_type=_index_type(o, old),
        weights=weights_fingerprint(files),
        template=template,
    )


def _encoder_spec(files: ModelFiles, o: BuildOptions, old: IndexSpec | None) -> EncoderSpec:
    asked: dict[str, Any] = {name: getattr(o, name) for name in _ENCODER}
    if old is None or (o.method is not None and o.method != old.encoder.method):
        return resolve(files, **asked)
    given = {name: value for name, value in asked.items() if value is not None}
    if old.encoder.method == SENTENCE_TRANSFORMERS:
        return resolve(
            files, **({"instruction": old.encoder.instruction, "max_length": old.encoder.max_length} | given)
        )
    kept = dataclasses.replace(old.encoder, **given)
    return dataclasses.replace(kept, model=files.name)


def _filter_spec(files: ModelFiles, o: BuildOptions, encoder: EncoderSpec, old: IndexSpec | None) -> FilterSpec:
    if old is not None and (o.filter, o.tau, o.dim, o.filter_offset) == (None, None, None, None):
        return old.filter
    return filter_spec(files, encoder, name=o.filter, tau=o.tau, dim=o.dim, offset=o.filter_offset)


def _chunk_spec(o: BuildOptions, old: IndexSpec | None) -> ChunkSpec:
    base = old.chunk if old is not None else ChunkSpec()
    size = base.size if o.chunk_size is None else None if o.chunk_size == "none" else o.chunk_size
    overlap = base.overlap if o.chunk_overlap is None else o.chunk_overlap
    headings = base.headings if o.headings is None else o.headings
    return ChunkSpec(size=size, overlap=overlap, headings=headings)


def _index_type(o: BuildOptions, old: IndexSpec | None) -> str:
    if o.index_type is None:
        return old.index_type if old is not None else "flat"
    if o.index_type not in INDEX_TYPES:
        raise unknown_name("index type", o.index_type, INDEX_TYPES)
    return o.index_type
