"""The plan of a build: what was asked for, what the index was made with, and the one spec that follows from both.

Options that are left out are the index's own; an option that differs from the index is an error that says what
differs, and `rebuild` replaces the index. Loads no torch until the encoder or the filter is needed.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ragidx.corpora.errors import SpecError
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.ann.index_types import AUTO, IndexOptions, check_index_type
from ragidx.indexer.devices import check_device, check_dtype, check_implementation
from ragidx.indexer.encoders.load import check_network
from ragidx.indexer.encoders.methods import (
    ENCODER_OPTIONS,
    SENTENCE_TRANSFORMERS,
    VECTORS,
    filter_spec,
    gone_on_with,
    resolve,
)
from ragidx.indexer.models.locate import ModelFiles, locate, weights_fingerprint
from ragidx.indexer.prompts.templates import load_template
from ragidx.indexer.specs import FILTERS, EncoderSpec, FilterSpec, IndexSpec, differences
from ragidx.indexer.store.store import Store

if TYPE_CHECKING:
    from ragidx.indexer.encoders.embedder import Embedder
    from ragidx.indexer.encoders.protocol import Encoder
    from ragidx.indexer.filters.filter import Filter
    from ragidx.indexer.filters.fitting import Sample
from ragidx.indexer.specs import mismatch
from ragidx.indexer.store.generations import committed_or_none

FILTER_FILE = "filter.safetensors"


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What a user may say about a build; None: the index's own, else the preset's, else the default."""

    model: str | None = None
    revision: str | None = None
    adapters: tuple[str, ...] | None = None
    method: str | None = None
    template: str | None = None
    copies: int | None = None
    pooling: str | None = None
    pooler: str | None = None
    attention: str | None = None
    layer: int | None = None
    layer_norm: bool | None = None
    pool_eos: bool | None = None
    instruction: str | None = None
    max_length: int | None = None
    compute_matched: bool | None = None
    truncate: str | None = None
    filter: str | None = None
    tau: float | None = None
    dim: int | None = None
    filter_offset: int | None = None
    filter_seed: int | None = None
    filter_sample: int | None = None
    filter_topk: int | None = None
    chunk_size: int | Literal["none"] | None = None
    chunk_overlap: int | None = None
    headings: bool | None = None
    index_type: str | None = None
    target_recall: float | None = None
    max_memory: int | None = None
    device: str = "auto"
    dtype: str = "auto"
    attn: str = "auto"
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    text_field: str | None = None
    id_field: str | None = None
    strict: bool = False
    reread: bool = False
    allow_removal: bool = False
    rebuild: bool = False


@dataclass
class Plan:
    """The spec of a build and what it is made from."""

    spec: IndexSpec
    files: ModelFiles
    options: BuildOptions
    stored: Store | None  # the index as it is, where it is gone on with

    @functools.cached_property
    def encoder(self) -> Encoder:
        """The model, loaded when it is first asked for."""
        from ragidx.indexer.encoders.load import encoder_of

        o = self.options
        return encoder_of(self.files, self.spec.encoder, device=o.device, dtype=o.dtype, attn=o.attn)

    @functools.cached_property
    def filter(self) -> Filter | None:
        """The filter: the index's own where there is one, so that every vector went through the same numbers."""
        from ragidx.indexer.filters.filter import Filter, make_filter

        if self.spec.filter.name == "none":
            return None
        if self.stored is not None:
            return Filter.from_bytes(self.stored.blob(FILTER_FILE))
        return make_filter(self.spec.filter, self)

    @property
    def embedder(self) -> Embedder:
        """What makes the vectors: encoder and filter."""
        from ragidx.indexer.encoders.embedder import Embedder

        return Embedder(self.encoder, self.filter)

    @property
    def wants_a_sample(self) -> bool:
        """Whether the filter is still to be fitted on a sample of the corpus."""
        return self.stored is None and FILTERS[self.spec.filter.name].calibrated

    def fit(self, sample: Sample) -> None:
        """Make the filter from a sample of the corpus; before anything asks for it, its width or its content."""
        from ragidx.indexer.filters.filter import make_filter

        self.filter = make_filter(self.spec.filter, self, sample)

    def dim(self) -> int:
        """Width of the stored vectors."""
        if self.stored is not None:
            return self.stored.manifest.dim
        return self.hidden if self.filter is None else self.filter.dim

    @functools.cached_property
    def hidden(self) -> int:
        """Width of the model's embeddings, from its config where that says it."""
        if self.spec.encoder.method == SENTENCE_TRANSFORMERS:
            return self.encoder.hidden
        return self.files.hidden or self.encoder.hidden

    def fingerprint(self) -> str:
        """The index's own where one is gone on with, else `fingerprint_of`; a filter is made for it only if fitted."""
        if self.stored is not None:
            return self.stored.manifest.fingerprint  # the specs were compared; older ones wrote 2.0 for 2
        return fingerprint_of(self.spec, self.blobs() if FILTERS[self.spec.filter.name].calibrated else {})

    def index_options(self) -> IndexOptions:
        """Which index large segments get: what was asked for, else the index's own."""
        own = IndexOptions() if self.stored is None else self.stored.manifest.index
        o = self.options
        return IndexOptions(
            self.spec.index_type,
            own.target_recall if o.target_recall is None else o.target_recall,
            own.max_memory if o.max_memory is None else o.max_memory,
        )

    def blobs(self) -> dict[str, bytes]:
        """Files that the index keeps beside its vectors."""
        if self.stored is not None:
            return {name: self.stored.blob(name) for name in self.stored.manifest.files}
        return {} if self.filter is None else {FILTER_FILE: self.filter.to_bytes()}


def fingerprint_of(spec: IndexSpec, blobs: Mapping[str, bytes]) -> str:
    """The spec's; of a filter that is fitted on a corpus, its numbers too: vectors of two fits are never mixed."""
    if not FILTERS[spec.filter.name].calibrated:
        return spec.fingerprint()
    content = hashlib.sha256(blobs[FILTER_FILE]).hexdigest()
    return hashlib.sha256(f"{spec.fingerprint()}\0{content}".encode()).hexdigest()


def make_plan(index: Path, options: BuildOptions) -> Plan:
    """What a build will do.

    Raises:
        SpecError: an option is unknown or out of range, or the index was made with another.
        ModelError: the model is not there.
        RagidxError: the extra `models` is asked for, and not installed.
    """
    check_device(options.device)  # here, since a build with nothing to encode never loads what else would refuse them
    check_dtype(options.dtype)
    check_implementation(options.attn)
    stored = None if options.rebuild else _stored(index)
    old = None if stored is None else IndexSpec.from_json(dict(stored.manifest.spec), where=str(index))
    if old is not None and old.encoder.method == VECTORS:
        raise SpecError(
            "the index was made otherwise: it holds vectors that were made elsewhere",
            "go on with it by --vectors, choose another --index, or replace it with --rebuild",
            where=str(index),
        )
    files = locate(
        options.model or (old.encoder.model if old else "mini"),
        revision=options.revision or (old.encoder.revision if old else None),
        adapters=options.adapters or (old.encoder.adapters if old else ()),
        pooler=options.pooler or (old.encoder.pooler if old else None),
    )
    spec = _index_spec(files, options, old)
    if old is not None and stored is not None:
        changes = differences(old, spec)
        if changes:
            raise mismatch(changes, spec.index_type, str(index))
    check_network(files, spec.encoder, device=options.device, dtype=options.dtype, attn=options.attn)
    plan = Plan(spec, files, options, stored)
    plan.index_options()  # what is wrong with them shows now
    return plan


def _stored(index: Path) -> Store | None:
    """The committed state, None where nothing is committed yet."""
    return None if committed_or_none(index) is None else Store.open(index)


def _index_spec(files: ModelFiles, o: BuildOptions, old: IndexSpec | None) -> IndexSpec:
    encoder = _encoder_spec(files, o, old)
    return IndexSpec(
        encoder=encoder,
        filter=_filter_spec(files, o, encoder, old),
        chunk=_chunk_spec(o, old),
        index_type=_index_type(o, old),
        weights=weights_fingerprint(files, old.weights if old else ""),
        template=_template_content(encoder, files),
    )


def _template_content(spec: EncoderSpec, files: ModelFiles) -> str:
    if spec.method == SENTENCE_TRANSFORMERS:
        return ""
    return load_template(spec.template, files.family, method=spec.method, copies=spec.copies).content()


def _encoder_spec(files: ModelFiles, o: BuildOptions, old: IndexSpec | None) -> EncoderSpec:
    asked: dict[str, Any] = {name: getattr(o, name) for name in ENCODER_OPTIONS}
    if old is None:
        return resolve(files, **asked)
    return resolve(files, **gone_on_with(old.encoder, asked))


def _filter_spec(files: ModelFiles, o: BuildOptions, encoder: EncoderSpec, old: IndexSpec | None) -> FilterSpec:
    asked: dict[str, Any] = {
        "name": o.filter,
        "tau": o.tau,
        "dim": o.dim,
        "offset": o.filter_offset,
        "seed": o.filter_seed,
        "sample": o.filter_sample,
        "topk": o.filter_topk,
    }
    if old is not None and all(value is None for value in asked.values()):
        return old.filter
    return filter_spec(files, encoder, **asked)


def _chunk_spec(o: BuildOptions, old: IndexSpec | None) -> ChunkSpec:
    base = old.chunk if old is not None else ChunkSpec()
    size = base.size if o.chunk_size is None else None if o.chunk_size == "none" else o.chunk_size
    overlap = base.overlap if o.chunk_overlap is None else o.chunk_overlap
    headings = base.headings if o.headings is None else o.headings
    return ChunkSpec(size=size, overlap=overlap, headings=headings)


def _index_type(o: BuildOptions, old: IndexSpec | None) -> str:
    if o.index_type is None:
        return old.index_type if old is not None else AUTO
    check_index_type(o.index_type)
    return o.index_type
