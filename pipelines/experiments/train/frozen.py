"""What heads and poolings share: a frozen model, pairs to learn from, and pairs that say what it is worth.

pairs -> those that are trained on, and those that are held out -> the contrastive loss, both ways, at several widths
(Matryoshka) -> `Score`s on the pairs that were held out.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ragidx.corpora.errors import SpecError
from ragidx.indexer.arrays import Doubles, Floats
from ragidx.indexer.encoders.methods import continued_options
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.store.files import MANIFEST
from ragidx.pipelines.base.stages import Stages
from ragidx.pipelines.experiments.evaluate.significance import MeanDifference, difference
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors, cache_folder
from ragidx.pipelines.experiments.train.pairs import TrainingPairs, read_pairs
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.ingest.resolve import Resolved, resolve_against
from ragidx.retriever.searcher import Searcher

if TYPE_CHECKING:
    from torch import Tensor

    from ragidx.indexer.options import EncoderOptions

MOST_PAIRS = 10_000
EPOCHS = 8
AT_ONCE = 256
"""Texts that are encoded together; a killed run loses no more."""
FEWEST_PAIRS = 40
RATE = 1e-3
DROPOUT = 0.1

_SCALE = 20.0
_SHARES = (1, 2, 4, 8)  # width of the vectors / widths that are trained
_HELD_OUT, _MOST_HELD_OUT = 0.05, 1_000
_TIE = 1e-6  # cosines of equal texts


@dataclass(frozen=True)
class Score:
    """How well held-out queries find their own texts among those of the others: mean reciprocal rank."""

    name: str
    dim: int
    mean: float
    against: MeanDifference | None  # the first of them


@dataclass(frozen=True)
class TrainingReport:
    """What was trained.

    Attributes:
        file: that was written; None: none, since it is worse than what needs no training.
        model: whose vectors or states it reads.
        n_pairs: that it was trained on.
        of_pairs: that there are.
        n_held_out: that it was measured on.
        scores: of what needs no training, and of what was trained.
        encoding_seconds: with what was in the cache.
        training_seconds: without encoding.
        notes: for people.
    """

    file: str | None
    model: str
    n_pairs: int
    of_pairs: int
    n_held_out: int
    scores: tuple[Score, ...]
    encoding_seconds: float
    training_seconds: float
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON types."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class TrainingTask:
    """What is trained on and measured on, by which model."""

    resolved: Resolved
    rest: TrainingPairs
    held: TrainingPairs
    of_pairs: int


@dataclass(frozen=True)
class Sides:
    """Raw vectors of pairs, (n, d) each."""

    queries: Floats
    positives: Floats


def task_of(
    what: str,
    model: str | os.PathLike[str],
    pairs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    options: Mapping[str, Any],
    *,
    limit: int | None,
    epochs: int,
    seed: int,
) -> TrainingTask:
    """The pairs, drawn and split, and the model without a filter; of an index, its own.

    Raises:
        CorpusError: a file of pairs has faults.
        SpecError: a number is out of range, or there are too few pairs.
        RagidxError: of the subclass that says what to do.
    """
    check_numbers(limit=limit, epochs=epochs, seed=seed)
    every = read_pairs(listed(pairs))
    held, rest = held_and_rest(every, limit, seed)
    named = {name: value for name, value in options.items() if value is not None}
    resolved = resolve_against(build_options(what, **{**_of_source(model), **named, "filter": "none"}))
    return TrainingTask(resolved, rest, held, len(every))


def check_numbers(*, seed: int, **named: int | None) -> None:
    """Whether something is trained.

    Raises:
        SpecError: a number is below 1, or the seed below 0.
    """
    if seed < 0:
        raise SpecError(f"seed={seed} is negative", "give 0 or more", where="`seed`")
    for name, number in named.items():
        if number is not None and number < 1:
            raise SpecError(f"{name}={number:,} trains nothing", "give 1 or more", where=f"`{name}`")


def check_target(out: Path) -> None:
    """Whether a file can be written there; before anything is encoded.

    Raises:
        SpecError: it is a folder, or its folder is missing.
    """
    if out.is_dir():
        raise SpecError("it is a folder", "name a file", where=str(out))
    if not out.parent.is_dir():
        raise SpecError("its folder is missing", "make it, or name another file with `out`", where=str(out))


def listed(pairs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The paths of pairs, of which one may be named alone."""
    return [Path(path) for path in ([pairs] if isinstance(pairs, str | os.PathLike) else pairs)]


def held_and_rest(
    every: TrainingPairs, limit: int | None, seed: int, most: int = _MOST_HELD_OUT
) -> tuple[TrainingPairs, TrainingPairs]:
    """The pairs that say what was learnt, some `most` at most, and those that are learnt from, of `limit` drawn.

    Raises:
        SpecError: there are too few.
    """
    drawn = every if limit is None else every.drawn(limit, seed)
    if len(drawn) < FEWEST_PAIRS:
        raise SpecError(f"{len(drawn):,} pairs teach nothing", f"give {FEWEST_PAIRS} or more", where="`pairs`")
    held, rest = drawn.split(min(most, max(FEWEST_PAIRS // 2, round(_HELD_OUT * len(drawn)))), seed)
    if len(rest) < FEWEST_PAIRS // 2:
        few = f"{len(rest):,} pairs are left of texts that are not held out"
        raise SpecError(few, "give pairs of more texts, or take more with `limit`", where="`pairs`")
    return held, rest


def _of_source(model: str | os.PathLike[str]) -> dict[str, Any]:
    """The model, or what an index says of its own."""
    if not (Path(model) / MANIFEST).exists():
        return {"model": os.fspath(model)}
    return options_of(Searcher.open(Path(model)))


def options_of(searcher: Searcher) -> dict[str, Any]:
    """How an index makes its raw vectors, as options of a build.

    Raises:
        SpecError: it has no model.
    """
    spec, place = searcher.spec.encoder, searcher.place
    if spec is None:
        where = str(searcher.store.path)
        raise SpecError("the index holds precomputed vectors: it has no model", "name the model", where=where)
    moved: dict[str, Any] = {
        name: value for name in ("adapters", "pooler") if (value := getattr(place, name)) is not None
    }
    run = {"device": place.device, "dtype": place.dtype, "endpoint": place.endpoint}
    return {**continued_options(spec, cast("EncoderOptions", moved)), **run, "model": place.model or spec.model}


def contrast(first: Tensor, second: Tensor, wanted: Tensor | None = None, weight: float = 0.0) -> Tensor:
    """The contrastive loss of a batch, both ways, the mean over its widths; a scalar.

    Args:
        first: (b, d) vectors of queries.
        second: (b, d) of the texts that answer them.
        wanted: (b, b) cosines that are learnt, too, by their squared difference.
        weight: of that.
    """
    from torch.nn import functional

    from ragidx.pipelines.experiments.train.objectives import contrastive_loss

    losses = list[Any]()
    for width in filter(None, (first.shape[1] // share for share in _SHARES)):
        one, other = first[:, :width], second[:, :width]
        losses.append(contrastive_loss(one, other, scale=_SCALE) + contrastive_loss(other, one, scale=_SCALE))
        if wanted is not None:
            cosines = functional.normalize(one, dim=1) @ functional.normalize(other, dim=1).T
            losses[-1] = losses[-1] + weight * functional.mse_loss(cosines, wanted)
    return sum(losses[1:], losses[0]) / len(losses)  # type: ignore[no-any-return]


def scores(named: Mapping[str, tuple[Floats, Floats]]) -> tuple[Score, ...]:
    """Of both sides of the pairs that were held out, by name; each is compared with the first."""
    found: list[Score] = []
    base: Doubles | None = None
    for name, sides in named.items():
        values = reciprocal_ranks(*sides)
        against = None if base is None else difference(values, base)
        base = values if base is None else base
        found.append(Score(name, sides[0].shape[1], float(values.mean()), against))
    return tuple(found)


def reciprocal_ranks(queries: Floats, positives: Floats, texts: Sequence[str] | None = None) -> Doubles:
    """(n,) of each query, where its own text is among all: (n, d) and (n, d) of any length.

    `texts`: the positives; another one that is as near comes first, so that vectors that are all alike find nothing.
    None: the own text comes first.
    """
    one, other = l2_normalize(queries).vectors, l2_normalize(positives).vectors
    cosines = one @ other.T
    own = np.diagonal(cosines)[:, None]
    if texts is None:
        before = cosines > own + _TIE
    else:
        numbers = np.unique(texts, return_inverse=True)[1]
        before = (cosines >= own - _TIE) & (numbers[:, None] != numbers)
    ranks: Doubles = 1 / (1 + np.count_nonzero(before, axis=1))
    return ranks


def encoded(pairs: TrainingPairs, resolved: Resolved, cache: str | os.PathLike[str] | None, tell: Stages) -> Sides:
    """Raw vectors of both sides, from the cache where they are."""
    made: list[Floats] = []
    with RawVectors(resolved, cache_folder(cache)) as vectors:
        for what, texts, encode in (
            ("queries", pairs.queries, vectors.queries),
            ("passages", pairs.positives, vectors.texts),
        ):
            parts = []
            for start in range(0, len(texts), AT_ONCE):
                tell(f"encoding {what} by {resolved.encoder_spec.model}, {start:,} of {len(texts):,}")
                parts.append(encode(texts[start : start + AT_ONCE]))
            made.append(np.concatenate(parts))
    return Sides(*made)
