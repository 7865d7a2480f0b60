"""What a build resolves to: what was asked for, what the index was made with, and the one spec that follows from both.

Options that are not given are the index's own; an option that differs from the index is an error that says what
differs, and `rebuild` replaces the index. Loads no torch until the encoder or the filter is needed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ragidx.corpora.errors import SpecError
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.ann.index_types import AUTO, INDEX_TYPES, IndexOptions, check_index_type
from ragidx.indexer.devices import check_devices, choose_device
from ragidx.indexer.differences import Difference, differences, mismatch
from ragidx.indexer.encoders import methods
from ragidx.indexer.encoders.load import check_network
from ragidx.indexer.encoders.methods import OWN_MODULES, continued_options, filter_spec, located
from ragidx.indexer.filters.anisotropy import Anisotropy
from ragidx.indexer.model_files import expanded
from ragidx.indexer.models.fingerprint import weights_fingerprint
from ragidx.indexer.models.locate import ModelFiles, locate
from ragidx.indexer.options import EncoderOptions, RunOptions
from ragidx.indexer.prompts.templates import template_of
from ragidx.indexer.specs import HEAD, EncoderSpec, IndexSpec
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import DELETED_FILE
from ragidx.indexer.store.generations import committed_or_none
from ragidx.pipelines.ingest.options import INDEX_OPTIONS, BuildOptions, index_options
from ragidx.retriever.models import FILTER_FILE, kept_endpoint, stored_filter

if TYPE_CHECKING:
    from ragidx.indexer.encoders import Embedder, Encoder
    from ragidx.indexer.filters.filter import Filter
    from ragidx.indexer.filters.fitting import FilterSample


@dataclass
class Resolved:
    """The spec of a build and what it is made from."""

    spec: IndexSpec
    files: ModelFiles
    options: BuildOptions
    stored: Store | None  # the index as it is, where it is updated
    anisotropy: Anisotropy = field(default_factory=Anisotropy)  # of what the model makes, before and after the filter

    @property
    def encoder_spec(self) -> EncoderSpec:
        """How a text becomes a vector."""
        assert self.spec.encoder is not None  # there is a model
        return self.spec.encoder

    @property
    def devices(self) -> list[str]:
        """Where texts are encoded; the first is that of `encoder`."""
        return check_devices(self.options.device)

    @functools.cached_property
    def encoder(self) -> Encoder:
        """The model, loaded when it is first asked for."""
        from ragidx.indexer.encoders.load import encoder_of

        o = self.options
        for device in self.devices[1:]:  # before anything is loaded
            choose_device(device)
        kept = kept_endpoint(self.stored) if self.files.served and self.stored is not None else None
        run = RunOptions(device=self.devices[0], dtype=o.dtype, attn=o.attn, endpoint=o.endpoint)
        encoder = encoder_of(self.files, self.encoder_spec, **run, stored=kept)
        encoder.use_format(self.format)
        return encoder

    @functools.cached_property
    def format(self) -> str:
        """The number format of a CPU in which vectors of the index were made; empty where none is known."""
        notes = {} if self.stored is None else self.stored.manifest.notes
        return str(notes.get("dtype", "")) if str(notes.get("device")).startswith("cpu") else ""

    def use_format(self, name: str) -> None:
        """Encode in the number format of a CPU in which other vectors were made, unless one is named."""
        self.format = name
        if self.loaded is not None:
            self.loaded.use_format(name)

    @property
    def device(self) -> str:
        """Where texts were encoded; empty where none were, since nothing asked for the model."""
        return "" if self.loaded is None else ",".join([self.loaded.device, *self.devices[1:]])

    @property
    def loaded(self) -> Encoder | None:
        """The model, where something asked for it: an idle build loads none."""
        return vars(self).get("encoder")

    @functools.cached_property
    def filter(self) -> Filter | None:
        """The filter: the index's own where there is one, so that every vector went through the same numbers."""
        from ragidx.indexer.filters.filter import make_filter

        if self.stored is not None:
            return stored_filter(self.stored, self.spec.filter)
        return make_filter(self.spec.filter, self)

    @property
    def embedder(self) -> Embedder:
        """What makes the vectors: encoder and filter."""
        from ragidx.indexer.encoders import Embedder

        return Embedder(self.encoder, self.filter, self.anisotropy)

    @property
    def wants_a_sample(self) -> bool:
        """Whether the filter is still to be fitted on a sample of the corpus."""
        return self.stored is None and bool(self.spec.filter.fitted)

    def fit(self, sample: FilterSample) -> None:
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
        if self.encoder_spec.method in OWN_MODULES:
            return self.encoder.hidden
        return self.files.hidden or self.encoder.hidden

    def fingerprint(self) -> str:
        """The index's own where one is updated, else `fingerprint_of`; a filter is made for it only if fitted."""
        if self.stored is not None:
            return self.stored.manifest.fingerprint  # the specs were compared
        return fingerprint_of(self.spec, self.blobs() if self.spec.filter.fitted else {})

    def index_options(self) -> IndexOptions:
        """Which index large segments get: what was asked for, else the index's own."""
        own, dim, o = IndexOptions(), None, self.options
        if self.stored is not None:
            own, dim = self.stored.manifest.index, self.stored.manifest.dim
        elif self.spec.index_type not in INDEX_TYPES:  # the width of a model may be known to its network alone
            dim = self.spec.filter.width(self.hidden)
        asked = {name: getattr(o, name) for name in INDEX_OPTIONS}
        return index_options(own, dim, **asked | {"index_type": self.spec.index_type})

    def blobs(self) -> dict[str, bytes]:
        """Files that the index keeps beside its vectors; without those that were deleted, where they are restored."""
        if self.stored is not None:
            left_out = {DELETED_FILE} if self.options.restore else set()
            return {name: self.stored.blob(name) for name in self.stored.manifest.files if name not in left_out}
        blobs = {} if self.filter is None else {FILTER_FILE: self.filter.to_bytes()}
        if self.files.served:
            from ragidx.indexer.encoders.endpoint import CANARY_FILE, EndpointEncoder, canary_bytes

            assert isinstance(self.encoder, EndpointEncoder)
            blobs[CANARY_FILE] = canary_bytes(self.encoder)
        return blobs


def fingerprint_of(spec: IndexSpec, blobs: Mapping[str, bytes]) -> str:
    """The spec's; of a filter that is fitted on a corpus, its numbers too: vectors of two fits are never mixed."""
    if not spec.filter.fitted:
        return spec.fingerprint()
    content = hashlib.sha256(blobs[FILTER_FILE]).hexdigest()
    return hashlib.sha256(f"{spec.fingerprint()}\0{content}".encode()).hexdigest()


def resolve(index: Path, options: BuildOptions) -> Resolved:
    """What a build into a folder will do: it updates the index that is committed there, unless it replaces it.

    Raises:
        SpecError: an option is unknown or out of range, or the index was made with another.
        ModelError: the model is not there.
        RagidxError: the extra `models` is asked for, and not installed.
    """
    goes_on = not options.rebuild and committed_or_none(index) is not None
    return resolve_against(options, Store.open(index) if goes_on else None)


def resolve_against(options: BuildOptions, stored: Store | None = None) -> Resolved:
    """What follows from the options, and from the index that is updated; nothing is opened but the model's files.

    Errors are those of `resolve`.
    """
    where = "" if stored is None else str(stored.path)
    old = None if stored is None else IndexSpec.from_json(dict(stored.manifest.spec), where=where)
    if old is not None and old.precomputed is not None:
        raise SpecError(
            "the index holds precomputed vectors, and cannot be updated from a corpus",
            "update it with `vectors`, choose another `index`, or replace it with `rebuild=True`",
            where=where,
        )
    old_encoder = None if old is None else old.encoder
    files = _files(options.model, options.encoder, old_encoder)
    if old is not None and old_encoder is not None and bool(files.served) != (old_encoder.method == methods.ENDPOINT):
        # The options of one mean nothing to the other.
        raise mismatch([Difference("encoder.model", old_encoder.model, files.name)], old.index_type, where)
    encoder_options = options.encoder if old_encoder is None else continued_options(old_encoder, options.encoder)
    encoder = methods.resolve(files, **encoder_options)
    if options.index_type is not None:
        check_index_type(options.index_type)
    old_chunks = ChunkSpec(titles=True) if old is None else old.chunk
    spec = IndexSpec(
        encoder=encoder,
        filter=filter_spec(files, encoder, options.filter, None if old is None else old.filter),
        chunk=old_chunks if options.chunks is None else options.chunks.over(old_chunks),
        index_type=options.index_type or (AUTO if old is None else old.index_type),
        weights=weights_fingerprint(files),
        template=_template_content(encoder, files),
        weight=methods.preset_weight(files, encoder) if old is None else old.weight,
        questions="" if old is None else old.questions,
    )
    made = None
    if options.filter is not None and options.filter.name.startswith(HEAD):
        spec, made = _with_head(spec, expanded(options.filter.name.removeprefix(HEAD)))
    changes = [] if old is None else differences(old, spec)
    if changes:
        fields = {change.field for change in changes}
        raise _narrower(mismatch(changes, spec.index_type, where), options, stored, fields)
    resolved = Resolved(spec, files, options, stored)
    if made is not None and stored is None:
        resolved.filter = made
    run = RunOptions(device=options.device, dtype=options.dtype, attn=options.attn, endpoint=options.endpoint)
    check_network(files, resolved.encoder_spec, **run)
    resolved.index_options()  # what is wrong with them shows now
    return resolved


def _narrower(fault: SpecError, options: BuildOptions, stored: Store | None, fields: set[str]) -> SpecError:
    """The error, with the command that makes an index narrower where that is all that was asked for."""
    dim = None if options.filter is None else options.filter.dim
    if stored is None or dim is None or dim >= stored.manifest.dim or not fields <= {"filter.dim", "filter.tau"}:
        return fault
    command = f"ragidx shrink --dim {dim} --index {shlex.quote(str(stored.path))}"
    return SpecError(
        fault.message, f"{fault.hint}; '{command}' makes it narrower, and encodes nothing", where=fault.where
    )


def _with_head(spec: IndexSpec, file: Path) -> tuple[IndexSpec, Filter]:
    """The spec with the content of a head in place of its file, and the filter that it is."""
    from ragidx.indexer.filters.filter import head_filter
    from ragidx.indexer.filters.heads import load_head

    head = load_head(file)
    head.check(spec, str(file))
    named = head.named(spec.filter)
    return dataclasses.replace(spec, filter=named), head_filter(head, named)


def _template_content(spec: EncoderSpec, files: ModelFiles) -> str:
    if spec.method in OWN_MODULES:
        return ""
    return template_of(spec, files.family).content()


def _files(model: str | None, asked: EncoderOptions, own: EncoderSpec | None) -> ModelFiles:
    """The model that is named, else the index's own; each of what belongs to it likewise."""
    if own is None:
        return located(model or "mini", asked)
    return locate(
        model or own.model,
        revision=asked.get("revision") or own.revision,
        adapters=asked.get("adapters") or own.adapters,
        pooler=asked.get("pooler") or own.pooler,
        served=True,
    )
