"""Checks of a loaded model: does attention run as asked for, and is a text's vector the same however it is computed.

The direction is seen by changing the last token of a row and looking at the states before it, without padding and with
it on either side. Vectors of texts alone are held against those in a batch, and of padded rows against those of the row
alone, where the backbone is read directly: the mean state of the tokens that the method pools. In float32 a difference
is the largest one over the largest number of the vectors, and 1e-5 is promised; in another format it is a cosine
distance, and 1e-3 is. Models with modules of their own are only read through those.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ragidx.corpora.errors import ModelError
from ragidx.indexer.arrays import Floats
from ragidx.indexer.devices import choose_device
from ragidx.indexer.encoders import precision
from ragidx.indexer.encoders.decoder import DecoderEncoder
from ragidx.indexer.encoders.load import encoder_of
from ragidx.indexer.encoders.protocol import Encoder
from ragidx.indexer.encoders.static import StaticEncoder
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.prompts.rendering import Rendered
from ragidx.indexer.specs import EncoderSpec
from ragidx.pipelines.doctor.report import Check, measured

TEXTS = (
    "a",
    "Who signed the lease for the house by the lake?",
    "The river rises in the hills and flows past the old mill before it reaches the sea.",
    "Ünïcödé naïve café, 東京タワー, Привет мир!",
    "Movable metal type was cast in Korea before Gutenberg, and books were printed with it; " * 3,
)
EXACT = 1e-5  # of the largest number, in float32
ROUGH = 1e-3  # cosine distance, in any other format
SEEN = 1e-6  # of the largest state: more is an effect, less is none

_PADDINGS = {"no padding": (0, 0), "padded right": (0, 5), "padded left": (5, 0)}  # tokens before and behind
_OWN_MODULES = "the model's own modules decide"
_NO_ATTENTION = "layer 0, the input embeddings, has no attention"
_NO_PADDING = "each text is pooled by itself, so nothing is padded"
_SEES = "it sees later tokens: use `attention=bidirectional`, or another version of transformers"
_BLIND = "it does not see later tokens: use a causal method such as `method=echo`, or another version of transformers"
_NEIGHBOURS = (
    "a text's vector depends on what is computed beside it: use `device=cpu`, or another version of transformers"
)
_LEFT = "ragidx pads right, so its vectors are right; do not pad left where other programs make vectors to compare"
_ROUNDED = "use `dtype=float32`"


@dataclass(frozen=True)
class Examined:
    """Where and in what a model was examined, and what came of it."""

    device: str
    dtype: str
    checks: tuple[Check, ...]


def probe(files: ModelFiles, spec: EncoderSpec, *, device: str, dtype: str, attn: str) -> Examined:
    """All checks of a model, in float32 and in the number format that a build here would use.

    With the dtype `auto` on a CPU that format is measured, as a build does. One copy of the weights is held at a time.

    Raises:
        SpecError: an unknown device or dtype, or a layer that the model does not have.
        ModelError: one text does not fit into the device's memory.
    """
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
            return Examined(place, used, (*checks, Check("loading", kind, status="failed", hint=reason)))
        except torch.OutOfMemoryError:
            checks.append(_too_large(kind, used, place))
            continue
        if not vectors:
            checks += directions(encoder)
        vectors[kind] = _vectors(encoder, TEXTS)
        checks += samenesses(encoder, vectors[kind])
        if asked == "auto":
            encoder.tune(TEXTS)
            used = encoder.dtype
            if used not in vectors:
                vectors[used] = _vectors(encoder, TEXTS)
                checks += samenesses(encoder, vectors[used])
        del encoder
        _free(place)
    if used != "float32" and len(vectors) == 2:
        distance = _angle(vectors[used], vectors["float32"])
        checks.append(measured(f"{used} against float32", used, distance, ROUGH, hint=_ROUNDED))
    return Examined(place, used, tuple(checks))


def directions(encoder: Encoder) -> list[Check]:
    """Whether a change of the last token reaches the states before it: all of them where attention runs both ways, none
    where it is causal.
    """
    both_ways = encoder.spec.attention == "bidirectional"
    names = {padding: f"{encoder.spec.attention} attention, {padding}" for padding in _PADDINGS}
    if isinstance(encoder, StaticEncoder) or (isinstance(encoder, DecoderEncoder) and encoder.backbone.layer == 0):
        return [_left_out(name, encoder, _NO_ATTENTION) for name in names.values()]
    if not isinstance(encoder, DecoderEncoder):
        return [_left_out(f"direction of attention, {padding}", encoder, _OWN_MODULES) for padding in _PADDINGS]
    row = max(_rows(encoder), key=lambda row: len(row.ids)).ids
    other = [*row[:-1], next(token for token in row if token != row[-1])]
    checks = []
    for padding, name in names.items():
        before, behind = _PADDINGS[padding]
        one, changed = _states(encoder, [row, other], before, behind)
        moved = (one - changed)[:-1].abs().amax(dim=-1) / one.abs().max()
        # Both ways, the token that is reached least; causal, the one that is reached most.
        worst = float(moved.min() if both_ways else moved.max())
        hint = _BLIND if both_ways else _SEES
        checks.append(measured(name, encoder.dtype, worst, SEEN, hint=hint, at_least=both_ways))
    return checks


def samenesses(encoder: Encoder, vectors: Floats) -> list[Check]:
    """Whether texts have the same vectors alone as in a batch, and rows the same padded on either side.

    Args:
        encoder: of the model.
        vectors: (n, hidden) of `TEXTS`, from one call.
    """
    alone = np.concatenate([_vectors(encoder, [text]) for text in TEXTS])
    checks = [_same("alone and in a batch", encoder, vectors, alone, _NEIGHBOURS)]
    names = {padding: f"alone and {padding}" for padding in _PADDINGS if any(_PADDINGS[padding])}
    if isinstance(encoder, StaticEncoder):
        return checks + [_left_out(name, encoder, _NO_PADDING) for name in names.values()]
    if not isinstance(encoder, DecoderEncoder):
        return checks + [_left_out(name, encoder, _OWN_MODULES) for name in names.values()]
    rows = _rows(encoder)
    bare = np.concatenate([_pooled(_states(encoder, [row.ids], 0, 0), [row]) for row in rows])
    for padding, name in names.items():
        before, behind = _PADDINGS[padding]
        padded = _pooled(_states(encoder, [row.ids for row in rows], before, behind), rows)
        checks.append(_same(name, encoder, padded, bare, _LEFT if before else _NEIGHBOURS))
    return checks


def _same(name: str, encoder: Encoder, found: Floats, expected: Floats, hint: str) -> Check:
    if encoder.dtype == "float32":
        return measured(name, encoder.dtype, _share(found, expected), EXACT, hint=hint)
    return measured(name, encoder.dtype, _angle(found, expected), ROUGH, hint=f"{hint}; or {_ROUNDED}")


def _share(found: Floats, expected: Floats) -> float:
    """The largest difference, over the largest number."""
    return float(np.abs(found - expected).max() / max(float(np.abs(expected).max()), np.finfo("f4").tiny))


def _angle(found: Floats, expected: Floats) -> float:
    """The largest cosine distance between rows of the same number."""
    a, b = found.astype(np.float64), expected.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = (a * b).sum(axis=1) / np.maximum(lengths, np.finfo("f8").tiny)
    return float(np.maximum(1 - cosines, 0).max())  # rounding can put a cosine above 1


def _left_out(name: str, encoder: Encoder, why: str) -> Check:
    return Check(name, encoder.dtype, status="not applicable", hint=why)


def _too_large(kind: str, used: str, place: str) -> Check:
    message = f"the weights do not fit into the memory of '{place}'"
    if kind == used:
        return Check("loading", kind, status="failed", hint=f"{message}: use a smaller model, or `device=cpu`")
    return Check("loading", kind, status="not applicable", hint=f"{message}: only {used} is looked at")


def _vectors(encoder: Encoder, texts: Sequence[str]) -> Floats:
    """(n, hidden) of documents; numbers that are not finite stay, for the checks to find."""
    found = np.zeros((len(texts), encoder.hidden), np.float32)
    for batch in encoder.batches(list(texts)):
        found[batch.rows] = batch.vectors
    return found


def _rows(encoder: DecoderEncoder) -> list[Rendered]:
    """What the model reads for the texts that leave room for padding, each prompt for a text as a row of its own."""
    rows = [row for first in encoder.rendered(TEXTS, None) for row in (first, *first.also)]
    room = encoder.max_length
    padding = max(map(max, _PADDINGS.values()))
    return [row for row in rows if room is None or len(row.ids) + padding <= room] or rows


def _states(encoder: DecoderEncoder, rows: Sequence[Sequence[int]], before: int, behind: int) -> list[Tensor]:
    """States (t_i, d) of each row, padding left out, computed in one batch: float32 on the CPU.

    Args:
        encoder: of the model.
        rows: ids of each row.
        before: tokens of padding before the longest row; if there are any, shorter ones are padded left too.
        behind: tokens of padding behind the longest row.
    """
    longest = max(len(row) for row in rows) + before + behind
    starts = [longest - len(row) if before else 0 for row in rows]
    ids = torch.full((len(rows), longest), encoder.tokenizer.pad)
    mask = torch.zeros_like(ids)
    for number, (row, start) in enumerate(zip(rows, starts, strict=True)):
        ids[number, start : start + len(row)] = torch.tensor(row)
        mask[number, start : start + len(row)] = 1
    place = encoder.backbone.model.device
    states = encoder.backbone.states(ids.to(place), None if bool(mask.all()) else mask.to(place))
    states = states.to("cpu", torch.float32)
    return [found[start : start + len(row)] for found, row, start in zip(states, rows, starts, strict=True)]


def _pooled(states: Sequence[Tensor], rows: Sequence[Rendered]) -> Floats:
    """(n, d): the mean state of the tokens that the method pools in each row."""
    return torch.stack([one[row.positions()].mean(dim=0) for one, row in zip(states, rows, strict=True)]).numpy()


def _free(place: str) -> None:
    """Give back what a model held that is no longer there."""
    gc.collect()
    if place.startswith("cuda"):
        torch.cuda.empty_cache()
