"""What decoders are trained on, and which model: its identity, texts that are held out, wrong answers, digests."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ragidx.corpora.errors import SpecError
from ragidx.indexer.arrays import slices
from ragidx.indexer.devices import choose_device
from ragidx.indexer.models.fingerprint import weights_fingerprint
from ragidx.indexer.models.locate import TRAINED_POOLING
from ragidx.indexer.normalize import l2_normalize
from ragidx.pipelines.experiments.train.decoders.how import How
from ragidx.pipelines.experiments.train.frozen import Sides
from ragidx.pipelines.experiments.train.pairs import TrainingPairs
from ragidx.pipelines.experiments.train.tables import texts_of
from ragidx.pipelines.ingest.options import QUERY_OPTIONS, build_options, check_names
from ragidx.pipelines.ingest.resolve import Resolved, resolve_against

FEWEST_TEXTS = 40
MOST_HELD_OUT = 200
"""Texts, or pairs: they are encoded again for each score."""

_HELD_OUT = 0.05
_NOT_KEPT = ("copies", "pool_eos", "layer_norm", "max_length", "truncate", "compute_matched")
_MARGIN = 0.95  # of the cosine of a query's own text
_AT_ONCE = 1024  # queries whose cosines are held


def resolved_of(what: str, model: str | os.PathLike[str], options: Mapping[str, Any]) -> Resolved:
    """A model, and how it makes vectors, by the options of a build.

    Raises:
        SpecError: an option is not known, or not possible.
    """
    named = {name: value for name, value in options.items() if value is not None}
    check_names(what, named, tuple(name for name in QUERY_OPTIONS if name != "filter"))
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
    if named.get("dtype", "auto") == "auto":
        named["dtype"] = "bfloat16" if _is_fast(named.get("device", "auto")) else "float32"
    if named["dtype"] not in ("float32", "bfloat16"):
        raise SpecError(f"nothing is trained in {named['dtype']}", "use float32 or bfloat16", where="`dtype`")
    is_new = (
        named.get("pooling") == "trainable" and "pooler" not in named and not (Path(model) / TRAINED_POOLING).exists()
    )
    if is_new:  # it begins at random, and has no file yet
        named.pop("pooling")
    resolved = resolve_against(build_options(what, **named, model=os.fspath(model), filter="none"))
    if not is_new:
        return resolved
    encoder = dataclasses.replace(resolved.encoder_spec, pooling="trainable")
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


def held_texts(corpus: Path, resolved: Resolved, how: How) -> tuple[list[str], list[str]]:
    """Chunks of a corpus to learn from, and those that are held out, none in both.

    Raises:
        CorpusError: there is no such corpus.
        SpecError: it has too few texts.
    """
    texts = list(dict.fromkeys(texts_of(corpus, resolved, how.limit)))
    if len(texts) < FEWEST_TEXTS:
        raise SpecError(f"{len(texts):,} texts teach nothing", f"give {FEWEST_TEXTS} or more", where="`text`")
    order = np.random.default_rng(how.seed).permutation(len(texts)).tolist()
    n = min(MOST_HELD_OUT, max(FEWEST_TEXTS // 2, round(_HELD_OUT * len(texts))))
    return [texts[place] for place in sorted(order[n:])], [texts[place] for place in sorted(order[:n])]


def mined(pairs: TrainingPairs, sides: Sides, n: int) -> list[list[str]]:
    """For each query the n texts of its data set that are nearest to it, of those with less than 95 % of the cosine of
    its own (NV-Retriever, Moreira et al. 2024); fewer where there are not so many.

    A text that another pair has as the answer to the same query is none of them, nor another text of its owner.
    """
    found: list[list[str]] = [[] for _ in pairs.queries]
    right = _right(pairs)
    queries, positives = l2_normalize(sides.queries).vectors, l2_normalize(sides.positives).vectors
    for group in np.unique(pairs.groups):
        places = np.flatnonzero(pairs.groups == group)
        for part in slices(places, _AT_ONCE):
            cosines = queries[part] @ positives[places].T
            own = (queries[part] * positives[part]).sum(axis=1, keepdims=True)
            cosines[cosines >= own * np.where(own > 0, _MARGIN, 1 / _MARGIN)] = -np.inf
            for row, place in zip(cosines, part.tolist(), strict=True):
                for near in np.argsort(-row, kind="stable"):
                    if len(found[place]) == n or row[near] == -np.inf:
                        break
                    text = pairs.positives[places[near]]
                    if pairs.owners[places[near]] not in right[pairs.queries[place]] and text not in found[place]:
                        found[place].append(text)
    return found


def filled(pairs: TrainingPairs, wrong: Sequence[Sequence[str]], wanted: Sequence[int]) -> list[list[str]]:
    """As many wrong answers as wanted: those that there are, again, and where there are none other texts of the data
    set, of other owners; none for a data set in which a query has no such text.
    """
    found = [[*itertools.islice(itertools.cycle(texts), n)] for texts, n in zip(wrong, wanted, strict=True)]
    lacking = {group for group, texts, n in zip(pairs.groups.tolist(), found, wanted, strict=True) if len(texts) < n}
    right = _right(pairs) if lacking else {}
    for group in lacking:
        places = np.flatnonzero(pairs.groups == group).tolist()
        for turn, place in enumerate(places):
            if found[place] or not wanted[place]:
                continue
            after = itertools.chain(places[turn:], places[:turn])
            others = (one for one in after if pairs.owners[one] not in right[pairs.queries[place]])
            texts = [pairs.positives[one] for one in itertools.islice(others, wanted[place])]
            found[place] = [*itertools.islice(itertools.cycle(texts), wanted[place])]
        if not all(found[place] for place in places):
            for place in places:
                found[place] = []
    return found


def _right(pairs: TrainingPairs) -> dict[str, set[str]]:
    """Owners of the texts that answer each query."""
    right: dict[str, set[str]] = {}
    for query, owner in zip(pairs.queries, pairs.owners, strict=True):
        right.setdefault(query, set()).add(owner)
    return right
