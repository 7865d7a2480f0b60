"""Which kind of encoder a model and a spec need: `decoder`, `sentence_transformer`, without a network `static`, or for
a model of a server `endpoint`.

Torch and transformers take seconds to load, so the kinds are imported when one of them is needed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from ragidx.corpora.errors import SpecError
from ragidx.indexer.devices import check_device, check_dtype, check_models, choose_device
from ragidx.indexer.encoders.methods import SENTENCE_TRANSFORMERS, filter_spec, located, resolve
from ragidx.indexer.encoders.protocol import Encoder
from ragidx.indexer.models.locate import SERVED, ModelFiles
from ragidx.indexer.options import EncoderOptions, RunOptions, written_out
from ragidx.indexer.specs import TOKEN_TABLE, EncoderSpec, FilterSpec

if TYPE_CHECKING:
    from ragidx.indexer.encoders.embedder import Embedder

log = logging.getLogger("ragidx.indexer")


@dataclass(frozen=True)
class StoredEndpoint:
    """What an index has of the endpoint that made its vectors."""

    url: object  # its address, not trusted; None: not known
    canary: bytes  # of the index's `CANARY_FILE`
    where: str  # the index


class LoadKeywords(EncoderOptions, RunOptions, total=False):
    """The arguments of `load_encoder` but the model."""


@written_out
def load_encoder(model: str = "mini", **options: Unpack[LoadKeywords]) -> Encoder:
    """An encoder for a model; unset options take the model's preset, then the method's default.

    With the device auto, a static model (layer 0, mean) takes the CPU: it runs no network. On a CPU the dtype auto is
    measured once, on the first call with 256 documents or more, and `encoder.dtype` says which it is; a named dtype
    never changes.

    Args:
        model: `mini`, a folder, a GGUF file, `ollama:NAME`, `smollm2`, a hub id, or `openai:NAME`. A folder with a LoRA
            adapter means its base model with the adapter.

    Raises:
        ModelError: the model cannot be found or loaded, or does not attend as the method needs.
        SpecError: an unknown name, a value out of range, or options that do not go together.
        RagidxError: it needs the extra `models`, which is not installed.
    """
    own: Any = dict(options)
    run = {name: own.pop(name) for name in RunOptions.__annotations__ if name in own}
    files = located(model, own)
    return encoder_of(files, resolve(files, **own), **run)


@written_out
def load_embedder(
    model: str = "mini", *, filter: FilterSpec | str | None = None, **options: Unpack[LoadKeywords]
) -> Embedder:
    """A model with its filter: texts become vectors of unit length, as an index holds them.

    Args:
        model: as in `load_encoder`.
        filter: none that is fitted on a corpus; a field that is not named, or all of it, is the model's preset's.

    Raises:
        RagidxError: as `load_encoder`; a filter that is not there, or does not suit the model, is a `SpecError`.
    """
    from ragidx.indexer.encoders.embedder import Embedder
    from ragidx.indexer.filters.filter import make_filter

    encoder = load_encoder(model, **options)
    named = FilterSpec(filter) if isinstance(filter, str) else filter
    return Embedder(encoder, make_filter(filter_spec(encoder.files, encoder.spec, named), encoder))


def encoder_of(
    files: ModelFiles,
    spec: EncoderSpec,
    *,
    device: str = "auto",
    dtype: str = "auto",
    attn: str = "auto",
    endpoint: str | None = None,
    stored: StoredEndpoint | None = None,
) -> Encoder:
    """The encoder a whole spec describes; `stored`: what its index has of an endpoint."""
    log.debug("loading the model %s, method %s, device %s, dtype %s", files.name, spec.method, device, dtype)
    check_device(device)
    check_dtype(dtype)
    needs = check_network(files, spec, device=device, dtype=dtype, attn=attn, endpoint=endpoint)
    if files.served:
        from ragidx.indexer.encoders.endpoint import EndpointEncoder, check_canary
        from ragidx.indexer.models.address import chosen_address

        known = None if stored is None else stored.url
        encoder = EndpointEncoder(files, spec, chosen_address(endpoint, known, files.name))
        if stored is not None:
            check_canary(encoder, stored.canary, stored.where)
        return encoder
    if needs is None:
        from ragidx.indexer.encoders.static import StaticEncoder

        return StaticEncoder(files, spec)
    place = choose_device(device)
    if spec.method == SENTENCE_TRANSFORMERS:
        if attn != "auto":
            raise SpecError(
                "a sentence-transformers model brings its own attention",
                "remove `attn`, or choose another `method`",
                where="`attn`",
            )
        from ragidx.indexer.encoders.sentence_transformer import WrappedEncoder

        return WrappedEncoder(files, spec, device=place, dtype=dtype)
    from ragidx.indexer.encoders.decoder import DecoderEncoder

    return DecoderEncoder(files, spec, device=place, dtype=dtype, attn=attn)


def check_network(
    files: ModelFiles, spec: EncoderSpec, *, device: str, dtype: str, attn: str, endpoint: str | None = None
) -> str | None:
    """What an encoder needs a neural network for, as a user names it; None: it is static, or a server runs it. Loads
    nothing.

    Raises:
        RagidxError: it needs one, and the extra `models` is not installed.
        SpecError: an option says how a server's model runs, or where a server is that is not asked.
    """
    from ragidx.indexer.encoders.static import asks_for_network

    if files.served:
        for name, value in (("device", device), ("dtype", dtype), ("attn", attn)):
            if value != "auto":
                raise SpecError(f"the server runs '{files.name}'", f"remove `{name}`", where=f"`{name}={value}`")
        return None
    if endpoint is not None:
        raise SpecError(
            f"'{files.name}' is no model of a server",
            f"name it as `model={SERVED}NAME`, or remove `endpoint`",
            where="`endpoint`",
        )
    needs = {
        f"`device={device}`": device not in ("auto", "cpu"),
        f"`dtype={dtype}`": dtype not in ("auto", "float32"),
        f"`attn={attn}`": attn != "auto",
    }
    what = asks_for_network(files, spec) or next((option for option, is_needed in needs.items() if is_needed), None)
    if what is not None and files.family == TOKEN_TABLE:
        hint = f"remove {what}" if what.startswith("`") else "name another model"
        raise SpecError(f"'{files.name}' is a table of tokens: it runs on the CPU, in float32", hint, where=what)
    if what is not None:
        check_models(what, *([SENTENCE_TRANSFORMERS] if spec.method == SENTENCE_TRANSFORMERS else []))
    return what
