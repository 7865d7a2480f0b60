"""The model of an index: what it keeps of it, and loading it, once for all that use it.

store, and where the model is now -> its filter; its encoder, checked by the content of the weights

Whoever opens an index with the same weights, spec, device and number format shares one encoder, and whoever names the
same reranker one of these. Models are freed when nobody holds them any more.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.specs import MODEL, QUESTIONS, TABLE, EncoderSpec, FilterSpec, IndexSpec
from ragidx.indexer.store.files import blob_path

if TYPE_CHECKING:
    from ragidx.indexer.encoders import Encoder
    from ragidx.indexer.encoders.load import StoredEndpoint
    from ragidx.indexer.filters.filter import Filter
    from ragidx.indexer.models.locate import ModelFiles
    from ragidx.indexer.store.manifest import State
    from ragidx.indexer.token_table import TokenTable

FILTER_FILE = "filter.safetensors"
QUESTIONS_FILE = "questions.safetensors"
T = TypeVar("T")

_shared: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
_loading = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class ModelPlace:
    """Where an index's model is now and how it runs, as `PlaceKeywords` says; None: where it was."""

    model: str | None = None
    adapters: Sequence[str] | None = None
    pooler: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    endpoint: str | None = None
    questions: str | None = None


HERE = ModelPlace()
"""Where the index says, on whatever is fastest here."""


def shared(key: Hashable, load: Callable[[], T]) -> T:
    """What `load` gives, loaded once for all who hold it; one model is loaded at a time."""
    with _loading:
        found: T | None = _shared.get(key)
        if found is None:
            found = _shared[key] = load()
        return found


def stored_filter(store: State, spec: FilterSpec) -> Filter | None:
    """The filter that an index keeps; None for `none` that is neither centred nor adapted."""
    from ragidx.indexer.filters.filter import Filter

    has_none = spec.name == "none" and not spec.center and not spec.adapted
    return None if has_none else Filter.from_bytes(store.blob(FILTER_FILE))


def stored_table(store: State) -> TokenTable:
    """The table of questions that an index keeps, loaded once for all who hold it."""
    from ragidx.indexer.token_table import TokenTable

    name = str(store.path / blob_path(QUESTIONS_FILE, store.manifest.files[QUESTIONS_FILE]))
    key = QUESTIONS_FILE, store.manifest.files[QUESTIONS_FILE].sha256
    return shared(key, lambda: TokenTable.from_bytes(store.blob(QUESTIONS_FILE), name))


def encodes_questions(asked: str | None, spec: IndexSpec, store: State) -> str:
    """What encodes the questions of an index: table or model; `asked` None: what the index says.

    Raises:
        SpecError: neither of the two, or the index has no table.
    """
    if asked is None:
        return spec.questions or MODEL
    if asked not in QUESTIONS:
        raise SpecError(f"{asked!r} is neither table nor model", "give one of them", where="`questions`")
    if asked == TABLE and not spec.questions:
        hint = "make one: `ragidx train questions`"
        raise SpecError("the index has no table of questions", hint, where=str(store.path))
    return asked


def kept_endpoint(store: State) -> StoredEndpoint:
    """What an index of an endpoint's model keeps of it."""
    from ragidx.indexer.encoders.load import StoredEndpoint
    from ragidx.indexer.models.address import CANARY_FILE, KEPT_AS

    return StoredEndpoint(store.manifest.notes.get(KEPT_AS), store.blob(CANARY_FILE), str(store.path))


def model_key(store: State, spec: IndexSpec, place: ModelPlace) -> Hashable:
    """What the encoder of an index follows from: those of equal keys are the same."""
    from ragidx.indexer.models.address import CANARY_FILE, KEPT_AS

    encoder = spec.encoder and dataclasses.replace(spec.encoder, model="", revision=None, adapters=(), pooler=None)
    canary, address = store.manifest.files.get(CANARY_FILE), store.manifest.notes.get(KEPT_AS)
    address = address if isinstance(address, str) else None  # anyone may have written the folder
    run = place.device, place.dtype, place.endpoint
    return spec.weights, spec.template, encoder, run, canary and canary.sha256, address


def files_for(store: State, spec: IndexSpec, place: ModelPlace) -> ModelFiles:
    """The files of an index's model, where they are now; their content is that of the index's own.

    Raises:
        ModelError: the index holds vectors of an unknown model, its model is not here, or it is another.
    """
    encoder_spec = _encoder_spec(store, spec)
    from ragidx.indexer.models.fingerprint import weights_fingerprint
    from ragidx.indexer.models.locate import locate

    files = locate(
        place.model or encoder_spec.model,
        revision=encoder_spec.revision,
        adapters=encoder_spec.adapters if place.adapters is None else place.adapters,
        pooler=place.pooler or encoder_spec.pooler,
        served=True,
    )
    if weights_fingerprint(files) == spec.weights:
        return files
    if place.model is None and encoder_spec.model == "mini":  # of a version where mini was what is now mini-decoder
        older = locate("mini-decoder")
        if weights_fingerprint(older) == spec.weights:
            return older
    if files.served:
        why, hint = f", which is '{encoder_spec.model}'", "remove `model`"
    else:
        why, hint = ": its files have changed", f"name the right folder with `model`{_options(encoder_spec)}"
    raise ModelError(
        f"'{files.name}'{_extras(files)} is not the model this index was made with{why}",
        f"{hint}, or build the index again with `rebuild=True`",
        where=str(store.path),
    )


def encoder_for(store: State, spec: IndexSpec, place: ModelPlace, files: ModelFiles) -> Encoder:
    """The encoder of an index's questions; its `files` and its spec's names of them are those of who loaded it first.

    Raises:
        ModelError: the model does not load, or its template is another than the index's.
    """
    encoder_spec = _encoder_spec(store, spec)
    from ragidx.indexer.encoders.load import encoder_of

    device = "auto" if files.served else place.device  # which is then that of the search

    def load() -> Encoder:
        stored_endpoint = kept_endpoint(store) if files.served else None
        encoder = encoder_of(
            files, encoder_spec, device=device, dtype=place.dtype, endpoint=place.endpoint, stored=stored_endpoint
        )
        if encoder.template_content() != spec.template:
            raise ModelError(
                f"the template '{encoder_spec.template}' of this version is not the one this index was made with",
                "build the index again with `rebuild=True`",
                where=str(store.path),
            )
        return encoder

    return shared(model_key(store, spec, place), load)


def _encoder_spec(store: State, spec: IndexSpec) -> EncoderSpec:
    encoder_spec = spec.encoder
    if encoder_spec is None:
        made_by = spec.precomputed.made_by if spec.precomputed else ""
        by = f" by '{made_by}'" if made_by else ""
        raise ModelError(
            f"the index holds precomputed vectors{by}: it has no model that encodes a text question",
            "ask it with a vector: ragidx query --vector, or Index.search_vectors; or name the model that made them "
            "when it is built: ragidx build --vectors FILE --model M --rebuild",
            where=str(store.path),
        )
    return encoder_spec


def _extras(files: ModelFiles) -> str:
    """What belongs to the model beside its own folder, for messages."""
    named = [f"{len(files.adapters)} adapter{'s' * (len(files.adapters) > 1)}"] if files.adapters else []
    named += ["its pooler"] if files.pooler is not None else []
    return f" with {' and '.join(named)}" if named else ""


def _options(spec: EncoderSpec) -> str:
    """The options that say where those are."""
    adapters = " and its adapters, all of them in their order, with `adapters`" if spec.adapters else ""
    return adapters + (" and its pooler with `pooler`" if spec.pooler else "")
