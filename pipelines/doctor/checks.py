"""Checks of a loaded model: a text has the same vector alone and in a batch, and in each number format.

A batch is padded on the right, a text alone is not. In float32 a difference is the largest one over the largest number
of the vectors, and 1e-5 is promised; in another format it is a cosine distance, and 1e-3 is. Servers round, too: their
vectors are compared by cosine. Loading a decoder checks the direction of its attention, with and without padding.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragidx.corpora.errors import ModelError, RagidxError
from ragidx.indexer.arrays import Floats
from ragidx.indexer.devices import choose_device
from ragidx.indexer.encoders import Encoder
from ragidx.indexer.encoders.load import encoder_of
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import EncoderSpec
from ragidx.pipelines.doctor.report import Check, measured

if TYPE_CHECKING:
    from ragidx.indexer.encoders.decoder import DecoderEncoder

BEGINNING = "Represent the meaning of this text, so that similar texts are found:{text}"
TEXTS = (
    "a",
    "Who signed the lease for the house by the lake?",
    "The river rises in the hills and flows past the old mill before it reaches the sea.",
    "Ünïcödé naïve café, 東京タワー, Привет мир!",
    "Movable metal type was cast in Korea before Gutenberg, and books were printed with it; " * 3,
)
EXACT = 1e-5  # of the largest number, in float32
ROUGH = 1e-3  # cosine distance, in any other format, and of servers

_WORDS, _PASSAGES, _TAKEN_OUT = 60, 40, (10, 18)
_MUCH = 0.1  # of a mean reciprocal rank
_PARAGRAPHS = 3  # whose states are compared in both directions
_ALIKE = 0.8  # cosine in the layer where it is least

_NEIGHBOURS = (
    "a text's vector depends on what is computed beside it: use `device=cpu`, or another version of transformers"
)
_ROUNDED = "use `dtype=float32`"
_AGAIN = "builds and queries would be refused: ask the server for one model, on one kind of machine"
_TOGETHER = "a text's vector depends on what is sent with it: update the server, or take another"


def probe(
    files: ModelFiles, spec: EncoderSpec, *, device: str, dtype: str, attn: str
) -> tuple[str, str, tuple[Check, ...]]:
    """Device, number format and checks of a network: in float32, and in the format that a build here would use.

    With the dtype `auto` on a CPU that format is measured, as a build does. One copy of the weights is held at a time.

    Raises:
        SpecError: an unknown device or dtype, or a layer that the model does not have.
        ModelError: one text does not fit into the device's memory.
    """
    import torch

    from ragidx.indexer.encoders import precision
    from ragidx.indexer.encoders.decoder import DecoderEncoder

    place = choose_device(device)
    used = precision.choose_dtype(dtype, place)
    checks: list[Check] = []
    vectors: dict[str, Floats] = {}
    for kind in dict.fromkeys(("float32", used)):
        asked = dtype if kind == used else kind
        with_attn = "auto" if attn.startswith("flash") and kind != used else attn  # flash attention has no float32
        try:
            encoder = encoder_of(files, spec, device=place, dtype=asked, attn=with_attn)
        except ModelError as fault:
            reason = f"{fault.message}; {fault.hint}" if fault.hint else fault.message
            return place, used, (*checks, Check("loading", kind, status="failed", hint=reason))
        except torch.OutOfMemoryError:
            checks.append(_too_large(kind, used, place))
            continue
        if not vectors and isinstance(encoder, DecoderEncoder) and encoder.backbone.layer != 0:
            checks.append(Check(f"{spec.attention} attention", kind))  # else it had not been loaded
        vectors[kind] = _vectors(encoder, TEXTS)
        checks.append(alone_and_together(encoder, vectors[kind]))
        if kind == "float32" and isinstance(encoder, DecoderEncoder) and spec.template == spec.method == "llm2vec":
            checks.append(beginning(encoder))
        if kind == "float32" and isinstance(encoder, DecoderEncoder) and encoder.has_layers:
            checks.append(both_directions(encoder))
        if asked == "auto":
            encoder.tune(TEXTS)
            used = encoder.dtype
            if used not in vectors:
                vectors[used] = _vectors(encoder, TEXTS)
                checks.append(alone_and_together(encoder, vectors[used]))
        del encoder
        gc.collect()
        if place.startswith("cuda"):
            torch.cuda.empty_cache()
    if used != "float32" and len(vectors) == 2:
        distance = _cosine_distance(vectors[used], vectors["float32"])
        checks.append(measured(f"{used} against float32", used, distance, ROUGH, hint=_ROUNDED))
    return place, used, tuple(checks)


def probe_static(files: ModelFiles, spec: EncoderSpec) -> tuple[Check, ...]:
    """Checks of a model without a network."""
    encoder = encoder_of(files, spec)
    return (alone_and_together(encoder, _vectors(encoder, TEXTS)),)


def probe_endpoint(files: ModelFiles, spec: EncoderSpec, endpoint: str | None) -> tuple[Check, ...]:
    """Checks of a model of a server, with some ten short texts; where it does not answer, that alone."""
    try:
        encoder = encoder_of(files, spec, endpoint=endpoint)
        together, again = encoder.encode_document(TEXTS), encoder.encode_document(TEXTS)
        alone = np.concatenate([encoder.encode_document([text]) for text in TEXTS])
    except RagidxError as fault:
        where = f"{fault.where}: " if fault.where else ""
        return (Check("the endpoint answers", "-", status="failed", hint=f"{where}{fault.message}; {fault.hint}"),)
    return (
        Check(f"the endpoint answers, {encoder.hidden:,} dimensions", "-"),
        measured("the same text twice", "float32", _cosine_distance(again, together), ROUGH, hint=_AGAIN),
        measured("alone and in a batch", "float32", _cosine_distance(alone, together), ROUGH, hint=_TOGETHER),
    )


def alone_and_together(encoder: Encoder, together: Floats) -> Check:
    """Whether each text has the same vector alone as in a batch.

    Args:
        encoder: encoder of the model.
        together: (n, hidden) of `TEXTS`, from one call.
    """
    name, alone = "alone and in a batch", np.concatenate([_vectors(encoder, [text]) for text in TEXTS])
    if encoder.dtype == "float32":
        largest = max(float(np.abs(alone).max()), float(np.finfo("f4").tiny))
        difference = float(np.abs(together - alone).max()) / largest
        return measured(name, encoder.dtype, difference, EXACT, hint=_NEIGHBOURS)
    distance = _cosine_distance(together, alone)
    return measured(name, encoder.dtype, distance, ROUGH, hint=f"{_NEIGHBOURS}; or {_ROUNDED}")


def beginning(encoder: DecoderEncoder) -> Check:
    """Whether a decoder that attends both ways does better behind a beginning: how well some words out of a text find
    the rest of it among others, as mean reciprocal rank. Some decoders break without one.
    """
    start, end = _TAKEN_OUT
    passages = _passages()
    parts = [
        [" ".join(words[start:end]) for words in passages],
        [" ".join(words[:start] + words[end:]) for words in passages],
    ]
    values = []
    for template in (encoder.spec.template, BEGINNING):
        with _reading(encoder, template=template):
            one, other = (l2_normalize(encoder.encode_document(texts)).vectors for texts in parts)
        cosines = one @ other.T
        values.append(float(np.mean(1 / (cosines >= np.diagonal(cosines)[:, None]).sum(axis=1))))
    plain, behind = values
    hint = f"use `template='{BEGINNING}'`" if behind > plain + _MUCH else ""
    return Check(f"rests of texts found: {plain:.2f}, behind a beginning {behind:.2f}", encoder.dtype, hint=hint)


def both_directions(encoder: DecoderEncoder) -> Check:
    """How much states change where attention runs in the other direction, with the same weights: the cosine of the mean
    of a text's states, causal and both ways, by layer. After LLM2Vec, section 4.2, which compares tokens one by one.
    """
    from ragidx.indexer.encoders.backbone import check_direction

    texts, network, spec = [" ".join(words) for words in _passages()[:_PARAGRAPHS]], encoder.backbone, encoder.spec
    other = "causal" if spec.attention == "bidirectional" else "bidirectional"
    name, template = "causal against both ways", spec.template if spec.method == "llm2vec" else "classical"
    with _reading(encoder, method="classical", template=template, copies=None, pooling="mean"):
        own = encoder.encode_layers(texts)
        try:
            with network.other_direction():
                check_direction(network, other, encoder.files.name)
                others = encoder.encode_layers(texts)
        except ModelError as fault:
            return Check(name, encoder.dtype, status="not applicable", hint=fault.message)
    by_layer = by_layer_cosines(own, others)
    least = int(by_layer.argmin())
    alike = by_layer[least] >= _ALIKE
    is_trained = bool(encoder.files.adapters) or bool(encoder.files.preset().get("masked"))
    return Check(
        f"{name}: cosine {by_layer.mean():.2f}, least {by_layer[least]:.2f} in layer {least + 1}: states change "
        + ("little" if alike else "much"),
        encoder.dtype,
        hint="" if alike or is_trained else "before it attends both ways, train it: `ragidx train mntp`",
    )


def by_layer_cosines(some: Floats, others: Floats) -> Floats:
    """(L,) cosines of the vectors of each text and layer, (L, n, d), with those of the other side: mean of the texts.

    >>> of_layers = np.array([[[2.0, 0.0], [0.0, 1.0]], [[3.0, 0.0], [1.0, 0.0]]])
    >>> by_layer_cosines(of_layers, np.array([[[1.0, 0.0], [0.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]]]))
    array([1. , 0.5])
    """
    lengths = np.linalg.norm(some, axis=2) * np.linalg.norm(others, axis=2)
    means: Floats = ((some * others).sum(axis=2) / np.maximum(lengths, np.finfo("f4").tiny)).mean(axis=1)
    return means


@contextlib.contextmanager
def _reading(encoder: DecoderEncoder, **changes: Any) -> Iterator[None]:
    """Inside, the encoder reads texts as its spec says with these changes."""
    spec = encoder.spec
    try:
        encoder.spec = dataclasses.replace(spec, **changes)
        encoder.use_template(encoder.backbone.max_positions)
        yield
    finally:
        encoder.spec = spec
        encoder.use_template(encoder.backbone.max_positions)


def _passages() -> list[list[str]]:
    """The first words of some documents of the sample."""
    found = []
    for path in sorted(Path(str(resources.files("ragidx.corpora") / "sample" / "documents")).rglob("*.md")):
        found.append(path.read_text("utf-8").split()[:_WORDS])
    return found[:_PASSAGES]


def _cosine_distance(some: Floats, others: Floats) -> float:
    """The largest between a row of one and the row of the other at its place."""
    a, b = some.astype(np.float64), others.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = (a * b).sum(axis=1) / np.maximum(lengths, np.finfo("f8").tiny)
    return float(np.maximum(1 - cosines, 0).max())  # rounding can put a cosine above 1


def _too_large(kind: str, used: str, place: str) -> Check:
    message = f"the weights do not fit into the memory of '{place}'"
    if kind == used:
        return Check("loading", kind, status="failed", hint=f"{message}: use a smaller model, or `device=cpu`")
    return Check("loading", kind, status="not applicable", hint=f"{message}: only {used} is looked at")


def _vectors(encoder: Encoder, texts: Sequence[str]) -> Floats:
    """(n, hidden) of documents; numbers that are not finite stay, for the checks to find."""
    vectors = np.zeros((len(texts), encoder.hidden), np.float32)
    for batch in encoder.batches(list(texts)):
        vectors[batch.rows] = batch.vectors
    return vectors
