"""What a run begins with: a model and how it encodes, chunks of a corpus, and digests by which both are known again."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch

from ragidx.corpora.errors import SpecError
from ragidx.indexer.devices import choose_device
from ragidx.indexer.models.fingerprint import weights_fingerprint
from ragidx.indexer.models.locate import TRAINED_POOLING
from ragidx.pipelines.experiments.train.decoders import processes
from ragidx.pipelines.experiments.train.keywords import StepKeywords
from ragidx.pipelines.experiments.train.poolings import LAYERS, check_rows
from ragidx.pipelines.experiments.train.tables import texts_of
from ragidx.pipelines.ingest.options import build_options, checked, encoding_of
from ragidx.pipelines.ingest.resolve import Resolved, resolve_against

K = TypeVar("K")

FEWEST_TEXTS = 40
MOST_HELD_OUT = 200
"""Texts, or pairs: they are encoded again for each score."""

_HELD_OUT = 0.05
_NOT_KEPT = ("template_query", "copies", "pool_eos", "layer_norm", "max_length", "truncate", "compute_matched")


def steps_of(door: str, keywords: type[K], given: Mapping[str, Any], **stage: Any) -> K:
    """All options of a stage of training; `stage`: its own defaults of options that are None.

    Raises:
        SpecError: one is not known, or trains nothing.
    """
    how: Any = checked(door, keywords, given)
    named = next((name for name in ("epochs", "minutes") if how[name] is not None), None)
    if how["steps"] is not None and named is not None:
        raise SpecError(f"`{named}` says how long, too", "give one of the two", where="`steps`")
    for name, default in ({"batch": 48, "attention_dropout": 0.0, "epochs": 1} | stage).items():
        how[name] = default if how[name] is None else how[name]
    for name in ("minutes", "rate", "scale"):
        if how[name] is not None and not 0 < how[name] < math.inf:
            raise SpecError(f"{name}={how[name]} trains nothing", "give more than 0", where=f"`{name}`")
    for name in ("dropout", "attention_dropout"):
        if not 0 <= how[name] < 1:
            raise SpecError(f"{name}={how[name]} trains nothing", "give 0 to less than 1", where=f"`{name}`")
    if not 0 <= how["warmup"] < math.inf:
        raise SpecError(f"warmup={how['warmup']} is no number of steps", "give 0 or more", where="`warmup`")
    return cast(K, how)


def about_steps(how: StepKeywords) -> dict[str, Any]:
    """What decides the weights, as JSON types."""
    several = {"processes": processes.count()} if processes.count() > 1 else {}
    return {name: value for name, value in how.items() if name in StepKeywords.__annotations__} | several


def resolved_of(what: str, model: str | os.PathLike[str], how: Mapping[str, Any]) -> Resolved:
    """A model, and how it makes vectors, by the options of a build among those of a stage.

    Raises:
        SpecError: an option is not possible.
    """
    named = encoding_of(how)
    lost = next((name for name in _NOT_KEPT if name in named), None)
    if lost is not None:
        raise SpecError("a trained model does not keep this option", f"remove `{lost}`", where=f"`{lost}`")
    place = str(named.get("device", "auto"))
    if place.startswith("cuda:") and place != "cuda:0":
        raise SpecError(
            "a run takes the first GPU that it sees",
            f"set CUDA_VISIBLE_DEVICES={place.removeprefix('cuda:')} and use `device=cuda`",
            where="`device`",
        )
    processes.begin(choose_device(place))
    if named.get("dtype", "auto") == "auto":
        named["dtype"] = "bfloat16" if _is_fast(place) else "float32"
    if named["dtype"] not in ("float32", "bfloat16"):
        raise SpecError(f"nothing is trained in {named['dtype']}", "use float32 or bfloat16", where="`dtype`")
    is_new = (
        named.get("pooling") == "trainable" and "pooler" not in named and not (Path(model) / TRAINED_POOLING).exists()
    )
    if is_new:  # it begins at random, and has no file yet
        check_rows(how["rows"], named.get("layer"))
        named.pop("pooling")
    resolved = resolve_against(build_options(what, **named, model=os.fspath(model), filter="none"))
    if not is_new:
        return resolved
    layer = -1 if how["rows"] == LAYERS else resolved.encoder_spec.layer  # a preset may name another
    encoder = dataclasses.replace(resolved.encoder_spec, pooling="trainable", layer=layer)
    return dataclasses.replace(resolved, spec=dataclasses.replace(resolved.spec, encoder=encoder))


def _is_fast(device: str) -> bool:
    """Whether bfloat16 is computed at least twice as fast as float32: by a GPU, or a CPU with AMX."""
    place = choose_device(device)
    if place == "cpu":
        return bool(torch.cpu._is_amx_tile_supported())
    return place.startswith("cuda") and torch.cuda.is_bf16_supported(including_emulation=False)


def about_model(resolved: Resolved) -> dict[str, Any]:
    """Which weights a run begins with, by their hash, and how they are read."""
    spec = resolved.encoder_spec
    return {
        "dtype": resolved.options.dtype,
        "weights": weights_fingerprint(resolved.files),
        "encoder": {name: value for name, value in spec.to_json().items() if name != "model"},
    }


def digest_of(texts: Iterable[str]) -> str:
    """sha256 (hex) of texts in their order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()


def held_texts(corpus: Path, resolved: Resolved, how: StepKeywords) -> tuple[list[str], list[str]]:
    """Chunks of a corpus to learn from, and those that are held out, none in both.

    Raises:
        CorpusError: there is no such corpus.
        SpecError: it has too few texts.
    """
    texts = list(dict.fromkeys(texts_of(corpus, resolved, how["limit"])))
    if len(texts) < FEWEST_TEXTS:
        raise SpecError(f"{len(texts):,} texts teach nothing", f"give {FEWEST_TEXTS} or more", where="`text`")
    order = np.random.default_rng(how["seed"]).permutation(len(texts)).tolist()
    n = min(MOST_HELD_OUT, max(FEWEST_TEXTS // 2, round(_HELD_OUT * len(texts))))
    return [texts[place] for place in sorted(order[n:])], [texts[place] for place in sorted(order[:n])]
