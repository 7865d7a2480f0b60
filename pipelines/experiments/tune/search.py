"""The strategy of a tuning: one choice after the other, and the whole of it again without the queries that test it.

What a build stores (`VectorsChoice`): method and layer, then filter and width, by dense search. Then how it is searched
(`SearchChoice`). In each step the present choice stays unless another one is better by more than the standard error of
the difference. What the choice is worth is measured by cross-fitting: on each fifth of the queries with what the other
four fifths choose, in all steps. Values come from a `Bench`; what is encoded and how is not known here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer.arrays import Doubles
from ragidx.pipelines.experiments.evaluate.significance import FEWEST_QUERIES, MeanDifference, difference, holm

FOLDS = 5

_SEED = 0

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class VectorsChoice:
    """The vectors that a build stores.

    `layer` None: the only one that the model has; `offset` None: centred, or no EmbedFilter.
    """

    method: str
    layer: int | None
    filter: str
    dim: int
    offset: int | None = None
    center: bool = False

    def __str__(self) -> str:
        """For people.

        >>> str(VectorsChoice("echo", 9, "embedfilter", 288, 1, center=True))
        'echo, layer 9, centred, embedfilter from 1, 288 dimensions'
        """
        layer = "" if self.layer is None else ", last layer" if self.layer == -1 else f", layer {self.layer}"
        first = "" if self.offset is None else f" from {self.offset}"
        filter_ = "no filter" if self.filter == "none" else f"{self.filter}{first}"
        centred = ", centred" if self.center else ""
        return f"{self.method}{layer}{centred}, {filter_}, {self.dim:,} dimensions"


@dataclass(frozen=True, slots=True)
class SearchChoice:
    """How vectors are searched; fusion and weight are those of hybrid search."""

    mode: str
    fusion: str | None = None
    weight: float | None = None

    def __str__(self) -> str:
        """For people."""
        return self.mode if self.weight is None else f"{self.mode}, {self.fusion}, weight {self.weight:g}"


class Bench(Protocol):
    """The measurements that decide; each is made once."""

    def dense(self, vectors: VectorsChoice) -> Doubles | None:
        """(q,) values of dense search; None: there are no such vectors."""

    def searches(self, vectors: VectorsChoice) -> Mapping[SearchChoice, Doubles]:
        """(q,) values of every search."""


@dataclass(frozen=True)
class Space:
    """The choices that are tried.

    Attributes:
        vectors: the default choice of vectors.
        search: the default choice of a search.
        steps: steps of the choice of vectors: each leads from the present choice to others.
    """

    vectors: VectorsChoice
    search: SearchChoice
    steps: Sequence[Callable[[VectorsChoice], Sequence[VectorsChoice]]]


@dataclass(frozen=True)
class TunedChoice:
    """A part of the choice: the vectors, or the search.

    Attributes:
        default: the choice that is taken where no other is better.
        chosen: the choice by all queries.
        of_folds: the choice that each fold of the queries was tested with, made by the other folds.
        gain: the gain of these choices over the default, on all queries; p is corrected for there being two parts.
    """

    default: Any
    chosen: Any
    of_folds: tuple[Any, ...]
    gain: MeanDifference

    @property
    def is_better(self) -> bool:
        """Whether the choice is worth taking: with fewer than 20 queries nothing is."""
        return self.chosen != self.default and self.gain.verdict == "better"

    @property
    def advised(self) -> Any:
        """The choice where it is better, else the default."""
        return self.chosen if self.is_better else self.default


def search(space: Space, bench: Bench, n_queries: int) -> tuple[TunedChoice, TunedChoice]:
    """The choice of vectors, and of a search of those that are advised."""
    folds = np.random.default_rng(_SEED).permutation(n_queries) % min(FOLDS, n_queries)
    others = [folds != fold for fold in range(folds.max() + 1)]
    everything = np.ones(n_queries, bool)

    found = [_vectors(space, bench, here) for here in others]
    gain = _gain(folds, [_dense(bench, one) for one in found], [_dense(bench, space.vectors)] * len(others))
    vectors = TunedChoice(space.vectors, _vectors(space, bench, everything), tuple(found), gain)

    # Each fold's search is of what the other folds chose, so that no query has a say in anything it tests.
    of_folds = [bench.searches(one) for one in (found if vectors.is_better else [space.vectors] * len(others))]
    chosen = [_best(values, space.search, here) for values, here in zip(of_folds, others, strict=True)]
    gain = _gain(
        folds,
        [values[one] for values, one in zip(of_folds, chosen, strict=True)],
        [values[space.search] for values in of_folds],
    )
    best = _best(bench.searches(vectors.advised), space.search, everything)
    return vectors, TunedChoice(space.search, best, tuple(chosen), gain)


def _vectors(space: Space, bench: Bench, here: NDArray[np.bool_]) -> VectorsChoice:
    """What some of the queries choose, step by step."""
    present = space.vectors
    for step in space.steps:
        values = {one: found for one in (present, *step(present)) if (found := bench.dense(one)) is not None}
        present = _best(values, present, here)
    return present


def _best(values: Mapping[C, Doubles], present: C, here: NDArray[np.bool_]) -> C:
    """The best by some of the queries; the present one, unless that is better by more than the standard error."""
    best = max(values, key=lambda one: float(values[one][here].mean()))
    apart = values[best][here] - values[present][here]
    return best if apart.mean() > apart.std() / max(1, len(apart) - 1) ** 0.5 else present


def _gain(folds: NDArray[np.int64], chosen: Sequence[Doubles], default: Sequence[Doubles]) -> MeanDifference:
    """Of each fold's choice over its default, each query in its own fold."""
    every = np.arange(len(folds))
    apart = difference(np.stack(chosen)[folds, every], np.stack(default)[folds, every])
    corrected = holm([apart, apart])[0]  # the other part's p is not known yet, and may be as small
    return corrected if len(folds) >= FEWEST_QUERIES else dataclasses.replace(corrected, verdict="not real")


def _dense(bench: Bench, vectors: VectorsChoice) -> Doubles:
    values = bench.dense(vectors)
    assert values is not None  # it was chosen, or is the default
    return values
