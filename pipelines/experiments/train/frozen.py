"""What is trained on pairs beside a model that stays as it is: the steps that heads and poolings share.

check -> `task_of`: pairs that are trained on, and pairs that are held out -> `encoded` -> fit, by the contrastive loss,
both ways, at several widths (Matryoshka) -> `TrainingTask.kept`: `Score`s on the pairs that were held out; what was
trained is written unless it is worse; the report
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from ragidx.pipelines.ingest.options import build_options, encoding_of
from ragidx.pipelines.ingest.resolve import Resolved, resolve_against
from ragidx.retriever.searcher import Searcher

if TYPE_CHECKING:
    from torch import Tensor

    from ragidx.indexer.options import EncoderOptions
    from ragidx.pipelines.experiments.train.keywords import PairsKeywords
    from ragidx.retriever.trial_keywords import Paths

AT_ONCE = 256
"""Texts that are encoded together; a killed run loses no more."""
RATE = 1e-3
DROPOUT = 0.1

_SCALE = 20.0
_SHARES = (1, 2, 4, 8)  # width of the vectors / widths that are trained
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
    """What was trained on pairs.

    Attributes:
        file: the file that was written; None: none was, since it is worse than what needs no training.
        model: the model whose vectors or states are read.
        n_pairs: how many pairs it was trained on.
        of_pairs: how many pairs the files have.
        n_held_out: how many pairs were held out, for the scores.
        scores: the scores of what needs no training, and last of what was trained.
        encoding_seconds: the time of encoding; what is in the cache takes none.
        training_seconds: the time of training and of the scores.
        notes: sentences for people.
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
    """What is trained on pairs, by which model: the pairs to learn from, and those that are held out for the score."""

    resolved: Resolved
    rest: TrainingPairs
    held: TrainingPairs
    of_pairs: int
    began: float = field(default_factory=time.perf_counter)

    def kept(
        self,
        sides: Mapping[str, tuple[Floats, Floats]],
        write: Callable[[], Path],
        *notes: str,
        than: str,
        force: bool,
        ready: float,
    ) -> TrainingReport:
        """Score, write what was trained unless it is worse than what needs no training, and report.

        Args:
            sides: vectors of both sides of the held-out pairs, by name: first of what needs no training, last
                of what was trained.
            write: a function that writes the file, and gives its path.
            notes: sentences for people.
            than: the name of what needs no training, for people.
            force: write the file even if what was trained is worse.
            ready: the time when all was encoded, as `time.perf_counter` has it.
        """
        compared = scores(sides)
        gain = compared[-1].against
        is_kept = force or gain is None or gain.verdict != "worse"
        worse = f"On the pairs that were held out it is worse than {than}, so it is not written: `force=True`."
        return TrainingReport(
            file=str(write()) if is_kept else None,
            model=self.resolved.encoder_spec.model,
            n_pairs=len(self.rest),
            of_pairs=self.of_pairs,
            n_held_out=len(self.held),
            scores=compared,
            encoding_seconds=ready - self.began,
            training_seconds=time.perf_counter() - ready,
            notes=notes if is_kept else (*notes, worse),
        )


@dataclass(frozen=True)
class Sides:
    """Raw vectors of the two texts of pairs, (n, d) each."""

    queries: Floats
    positives: Floats


def task_of(what: str, model: str | os.PathLike[str], how: PairsKeywords) -> TrainingTask:
    """The pairs, drawn and split, and the model without a filter; of an index, its own.

    Raises:
        CorpusError: a file of pairs has faults.
        SpecError: there are too few pairs.
        RagidxError: of the subclass that says what to do.
    """
    every = read_pairs(listed(how["pairs"]))
    held, rest = every.held_and_rest(how["limit"], how["seed"])
    is_index = (Path(model) / MANIFEST).exists()
    source = options_of(Searcher.open(Path(model))) if is_index else {"model": os.fspath(model)}
    resolved = resolve_against(build_options(what, **{**source, **encoding_of(how), "filter": "none"}))
    return TrainingTask(resolved, rest, held, len(every))


def target_of(out: str | os.PathLike[str], what: str, is_one: Callable[[Path], object]) -> Path:
    """The file to write, which may be there if it `is_one`; it is checked before anything is encoded.

    Raises:
        SpecError: it is a folder, or something else than `what`; or its folder is missing.
    """
    target = Path(out)
    if target.is_dir():
        raise SpecError("it is a folder", "name a file", where=str(target))
    if not target.parent.is_dir():
        raise SpecError("its folder is missing", "make it, or name another file with `out`", where=str(target))
    if target.exists() and not is_one(target):
        raise SpecError(f"the file is no {what}", "name another", where=str(target))
    return target


def listed(pairs: Paths) -> list[Path]:
    """The paths of pairs, of which one may be named alone."""
    return [Path(path) for path in ([pairs] if isinstance(pairs, str | os.PathLike) else pairs)]


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
        second: (b, d) vectors of the texts that answer them.
        wanted: (b, b) cosines that are learnt, too, by their squared difference.
        weight: how much this difference counts.
    """
    from torch.nn import functional

    from ragidx.pipelines.experiments.train.objectives import contrastive_loss

    losses = list[Any]()
    for width in filter(None, (first.shape[1] // share for share in _SHARES)):
        queries, texts = first[:, :width], second[:, :width]
        losses.append(contrastive_loss(queries, texts, scale=_SCALE) + contrastive_loss(texts, queries, scale=_SCALE))
        if wanted is not None:
            cosines = functional.normalize(queries, dim=1) @ functional.normalize(texts, dim=1).T
            losses[-1] = losses[-1] + weight * functional.mse_loss(cosines, wanted)
    return sum(losses[1:], losses[0]) / len(losses)  # type: ignore[no-any-return]


def scores(named: Mapping[str, tuple[Floats, Floats]]) -> tuple[Score, ...]:
    """The score of both sides of the pairs that were held out, by name; each is compared with the first."""
    found, base = list[Score](), None
    for name, sides in named.items():
        values = reciprocal_ranks(*sides)
        against = None if base is None else difference(values, base)
        base = values if base is None else base
        found.append(Score(name, sides[0].shape[1], float(values.mean()), against))
    return tuple(found)


def reciprocal_ranks(queries: Floats, positives: Floats, texts: Sequence[str] | None = None) -> Doubles:
    """Reciprocal ranks (n,) of each query's own text among all, by vectors (n, d) and (n, d) of any length.

    `texts`: the positives; another one that is as near comes first, so that vectors that are all alike find nothing.
    None: the own text comes first.
    """
    cosines = l2_normalize(queries).vectors @ l2_normalize(positives).vectors.T
    of_pairs = np.diagonal(cosines)[:, None]
    if texts is None:
        before = cosines > of_pairs + _TIE
    else:
        numbers = np.unique(texts, return_inverse=True)[1]
        before = (cosines >= of_pairs - _TIE) & (numbers[:, None] != numbers)
    ranks: Doubles = 1 / (1 + np.count_nonzero(before, axis=1))
    return ranks


def encoded(pairs: TrainingPairs, resolved: Resolved, cache: str | os.PathLike[str] | None, tell: Stages) -> Sides:
    """Raw vectors of both sides, from the cache where they are."""
    sides: list[Floats] = []
    with RawVectors(resolved, cache_folder(cache)) as vectors:
        for what, texts, encode in (
            ("queries", pairs["query"], vectors.queries),
            ("passages", pairs["positive"], vectors.texts),
        ):
            model = resolved.encoder_spec.model
            sides.append(np.concatenate([encode(part) for part in told(texts, f"encoding {what} by {model}", tell)]))
    return Sides(*sides)


def told(
    texts: Sequence[str], what: str, tell: Callable[[str], None], at_once: int = AT_ONCE
) -> Iterator[Sequence[str]]:
    """Some texts at a time, each behind a word on how far it is."""
    for start in range(0, len(texts), at_once):
        tell(f"{what}, {start:,} of {len(texts):,}")
        yield texts[start : start + at_once]
