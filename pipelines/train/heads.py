"""A head: a linear map over the vectors of a model that stays as it is, trained on pairs in seconds.

pairs -> raw vectors, from the cache where they are -> z-scores of each coordinate -> a map (d, k) under the contrastive
loss, both ways, at several widths (Matryoshka) -> one file, the filter `head:FILE` of a build. Batches are of one data
set each, and none has a text twice. Pairs that are held out say what it is worth, beside whitening, which needs no
pairs: with fewer than some 2,000 it is as good.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Doubles, Floats, Ints
from ragidx.indexer.devices import check_models
from ragidx.indexer.encoders.methods import continued_options
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.filters.fitting import Sample
from ragidx.indexer.filters.heads import Head, load_head
from ragidx.indexer.filters.unembedding import decompose
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.store.files import MANIFEST
from ragidx.pipelines.evaluate.significance import MeanDifference, difference
from ragidx.pipelines.evaluate.sources.raw_vectors import RawVectors, cache_folder
from ragidx.pipelines.ingest.options import QUERY_OPTIONS, build_options, check_names
from ragidx.pipelines.ingest.resolve import Resolved, resolve_against
from ragidx.pipelines.stages import OnStage, Stages
from ragidx.pipelines.train.pairs import Pairs, read_pairs
from ragidx.retriever.searcher import Searcher

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("linear", "whitening")
MOST_PAIRS = 10_000
FEW_PAIRS = 2_000
"""With fewer, whitening is as good."""

_AT_ONCE = 256  # texts that a killed run loses at most
_BATCH = 256
EPOCHS = 8
_RATE = 1e-3
_DROPOUT = 0.1
_SCALE = 20.0
_LIKE_TEACHER = 20.0  # weight of the teacher's cosines
_SHARES = (1, 2, 4, 8)  # width of the map / widths that are trained
_HELD_OUT, _MOST_HELD_OUT = 0.05, 1_000
_FEWEST = 40  # pairs
_RANK = 1e-6  # of the largest deviation: below it nothing varies
_TIE = 1e-6  # cosines of equal texts


@dataclass(frozen=True)
class Score:
    """How well held-out queries find their own texts among those of the others: mean reciprocal rank."""

    name: str
    dim: int
    mean: float
    against: MeanDifference | None  # the vectors without a map


@dataclass(frozen=True)
class HeadReport:
    """What was trained.

    Attributes:
        file: of the head; None: it was not written, since it is no better than no map.
        model: whose vectors it maps.
        n_pairs: that it was trained on.
        of_pairs: that there are.
        n_held_out: that it was measured on.
        scores: of no map, whitening, and the head.
        encoding_seconds: with what was in the cache.
        training_seconds: of the map.
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
class Sides:
    """Raw vectors of pairs, (n, d) each; (n,) numbers that are the same where texts are."""

    queries: Floats
    positives: Floats
    query_numbers: Ints
    positive_numbers: Ints


def head(
    model: str | os.PathLike[str] = "mini",
    *,
    pairs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] = "head.safetensors",
    kind: str = "linear",
    dim: int | None = None,
    teacher: str | None = None,
    limit: int | None = MOST_PAIRS,
    epochs: int = EPOCHS,
    seed: int = 0,
    force: bool = False,
    cache: str | os.PathLike[str] | None = "",
    on_progress: OnStage | None = None,
    **options: Any,
) -> HeadReport:
    """Train a map over the vectors of a model, or of the model of an index.

    Args:
        model: as of `build`, or an index.
        pairs: files of JSON Lines with `query` and `positive`, or folders of them; each file is a data set.
        out: the file that is written.
        kind: `linear`, or `whitening`, which is fitted on both sides of the pairs and takes no note of which belong
            together.
        dim: width of the map; None: that of the model, of whitening a quarter.
        teacher: a model whose cosines are learnt, too; None: none.
        limit: pairs that are taken, as many of each file; None: all.
        epochs: how often each is seen.
        seed: of what is drawn.
        force: write it even if it is worse than no map.
        cache: folder of raw vectors; "": the user's; None: nothing is kept.
        on_progress: called when a stage begins.
        options: of the encoder, as of `build`.

    Raises:
        CorpusError: a file of pairs has faults.
        SpecError: an option is wrong, or there are too few pairs.
        RagidxError: of the subclass that says what to do.
    """
    check_names("train.head", options, tuple(name for name in QUERY_OPTIONS if name != "filter"))
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    for name, number in (("limit", limit), ("epochs", epochs)):
        if number is not None and number < 1:
            raise SpecError(f"{name}={number:,} trains nothing", "give 1 or more", where=f"`{name}`")
    if kind == "linear":
        check_models("`kind=linear`")
    target = _target(Path(out))
    paths = [pairs] if isinstance(pairs, str | os.PathLike) else list(pairs)
    every = read_pairs([Path(path) for path in paths])
    drawn = every if limit is None else every.drawn(limit, seed)
    if len(drawn) < _FEWEST:
        raise SpecError(f"{len(drawn):,} pairs teach nothing", f"give {_FEWEST} or more", where="`pairs`")
    held, rest = drawn.split(min(_MOST_HELD_OUT, max(_FEWEST // 2, round(_HELD_OUT * len(drawn)))), seed)
    named = {name: value for name, value in options.items() if value is not None}
    resolved = resolve_against(build_options("train.head", **{**_of_source(model), **named, "filter": "none"}))
    width = _width(resolved.hidden, dim, kind)
    tell, kept, began = Stages(on_progress), cache_folder(cache), time.perf_counter()
    models = [resolved]
    if teacher is not None:
        models.append(resolve_against(build_options("train.head", model=teacher, filter="none")))
    tell.expect(1 + 2 * len(models) * (-(-len(rest) // _AT_ONCE)) + 2 * (-(-len(held) // _AT_ONCE)))
    held_out = _encoded(held, resolved, kept, tell)
    trained_on, *taught = [_encoded(rest, one, kept, tell) for one in models]
    encoded = time.perf_counter()
    tell("training")
    maps: dict[str, Filter | None] = {"none": None}
    with contextlib.suppress(SpecError) if kind == "linear" else contextlib.nullcontext():  # of few pairs, perhaps
        maps["whitening"] = whitening(trained_on, width if kind == "whitening" else None)
    if kind == "linear":
        maps["linear"] = linear(
            trained_on, rest.groups, width, teacher=next(iter(taught), None), epochs=epochs, seed=seed
        )
    scores, notes = _scores(held_out, maps), list[str]()
    if kind == "linear" and len(rest) < FEW_PAIRS:
        notes.append(f"With fewer than {FEW_PAIRS:,} pairs whitening may be as good: `kind=whitening`.")
    gain = scores[-1].against
    is_kept = force or gain is None or gain.verdict != "worse"
    if is_kept:
        about: dict[str, Json] = {
            "encoder": resolved.encoder_spec.to_json(),
            "vectors": resolved.spec.encoder_fingerprint(),
            "kind": kind,
            "pairs": len(rest),
            "files": [file.name for file in every.files],
            "teacher": teacher,
            "epochs": epochs,
            "seed": seed,
        }
        made = maps[kind]
        assert made is not None
        assert made.shift is not None
        atomic.write_file(target, Head(made.matrix, made.shift, about).to_bytes())
    else:
        notes.append("On the pairs that were held out it is worse than no map, so it is not written: `force=True`.")
    return HeadReport(
        file=str(target) if is_kept else None,
        model=resolved.encoder_spec.model,
        n_pairs=len(rest),
        of_pairs=len(every),
        n_held_out=len(held),
        scores=tuple(scores),
        encoding_seconds=encoded - began,
        training_seconds=time.perf_counter() - encoded,
        notes=tuple(notes),
    )


def whitening(sides: Sides, dim: int | None = None) -> Filter:
    """Principal components of both sides, each scaled to variance 1; `dim` None: a quarter of their width.

    Raises:
        SpecError: the vectors vary in fewer directions.
    """
    rows = np.concatenate([sides.queries, sides.positives])
    width = dim or max(1, rows.shape[1] // 4)
    mean, components = Sample(rows).components(width, "whitening")
    matrix = components.directions[:, :width] / components.values[:width]
    return Filter(matrix.astype(np.float32), shift=(mean @ matrix).astype(np.float32))


def linear(
    sides: Sides, groups: Ints, dim: int, *, teacher: Sides | None = None, epochs: int = EPOCHS, seed: int = 0
) -> Filter:
    """A map of z-scores that draws the two texts of a pair together and those of others apart.

    Args:
        sides: what it is trained on.
        groups: (n,) the data set of each pair.
        dim: width of the map; its halves are trained, too.
        teacher: the same pairs, by another model; None: no teacher.
        epochs: how often each pair is seen.
        seed: of batches and dropout.
    """
    import torch
    from torch.nn import functional

    from ragidx.pipelines.train.objectives import contrastive_loss

    def dropped(rows: Tensor) -> Tensor:
        return rows * (torch.rand(rows.shape, generator=generator) >= _DROPOUT) / (1 - _DROPOUT)

    def cosines(one: Tensor, other: Tensor) -> Tensor:
        return functional.normalize(one, dim=1) @ functional.normalize(other, dim=1).T

    rows = np.concatenate([sides.queries, sides.positives])
    mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    scale = 1 / np.where(deviation > _RANK * deviation.max(), deviation, np.inf)
    data = [torch.from_numpy(((side - mean) * scale).astype(np.float32)) for side in (sides.queries, sides.positives)]
    start = decompose(np.cov(np.concatenate([part.numpy() for part in data]), rowvar=False)).directions
    weight = torch.tensor(start[:, :dim].astype(np.float32), requires_grad=True)
    widths = [width for share in _SHARES if (width := dim // share) > 0]
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW([weight], lr=_RATE)
    for numbers in _batches(sides, groups, epochs, seed):
        loss = torch.zeros(())
        first, second = (dropped(part[numbers]) @ weight for part in data)
        for width in widths:
            one, other = first[:, :width], second[:, :width]
            loss = loss + contrastive_loss(one, other, scale=_SCALE) + contrastive_loss(other, one, scale=_SCALE)
            if teacher is not None:
                wanted = cosines(*(torch.from_numpy(side[numbers]) for side in (teacher.queries, teacher.positives)))
                loss = loss + _LIKE_TEACHER * functional.mse_loss(cosines(one, other), wanted)
        optimizer.zero_grad()
        (loss / len(widths)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    matrix = scale[:, None] * weight.detach().numpy().astype(np.float64)
    return Filter(matrix.astype(np.float32), shift=(mean @ matrix).astype(np.float32))


def _batches(sides: Sides, groups: Ints, epochs: int, seed: int) -> Iterator[Ints]:
    """Numbers of pairs, of one data set each and no text twice, in random order; pairs that do not fit are left out."""
    drawn = np.random.default_rng(seed)
    for _ in range(epochs):
        batches = []
        for group in np.unique(groups):
            order = drawn.permutation(np.flatnonzero(groups == group))
            for start in range(0, len(order), _BATCH):
                part = order[start : start + _BATCH]
                for numbers in (sides.query_numbers, sides.positive_numbers):
                    part = part[np.unique(numbers[part], return_index=True)[1]]
                if len(part) > 1:
                    batches.append(part)
        yield from (batches[place] for place in drawn.permutation(len(batches)))


def _scores(sides: Sides, maps: Mapping[str, Filter | None]) -> list[Score]:
    """Of each map, compared with the first."""
    found: list[Score] = []
    base: Doubles | None = None
    for name, one in maps.items():
        queries, positives = (
            l2_normalize(side if one is None else one(side)).vectors for side in (sides.queries, sides.positives)
        )
        cosines = queries @ positives.T
        own = np.diagonal(cosines)[:, None]
        values = 1 / (1 + np.count_nonzero(cosines > own + _TIE, axis=1))
        against = None if base is None else difference(values, base)
        base = values if base is None else base
        found.append(Score(name, queries.shape[1], float(values.mean()), against))
    return found


def _encoded(pairs: Pairs, resolved: Resolved, cache: Path | None, tell: Stages) -> Sides:
    """Raw vectors of both sides."""
    made: list[Floats] = []
    with RawVectors(resolved, cache) as vectors:
        for what, texts, encode in (
            ("queries", pairs.queries, vectors.queries),
            ("passages", pairs.positives, vectors.texts),
        ):
            parts = []
            for start in range(0, len(texts), _AT_ONCE):
                tell(f"encoding {what} by {resolved.encoder_spec.model}, {start:,} of {len(texts):,}")
                parts.append(encode(texts[start : start + _AT_ONCE]))
            made.append(np.concatenate(parts))
    first, second = (np.unique(texts, return_inverse=True)[1] for texts in (pairs.queries, pairs.positives))
    return Sides(made[0], made[1], first, second)


def _of_source(model: str | os.PathLike[str]) -> dict[str, Any]:
    """The model, or what an index says of its own."""
    if not (Path(model) / MANIFEST).exists():
        return {"model": os.fspath(model)}
    searcher = Searcher.open(Path(model))
    spec = searcher.spec.encoder
    if spec is None:
        raise SpecError("the index holds precomputed vectors: it has no model", "name the model", where=str(model))
    return {**continued_options(spec, {}), "model": searcher.place.model or spec.model}


def _width(hidden: int, dim: int | None, kind: str) -> int:
    width = dim or (hidden if kind == "linear" else max(1, hidden // 4))
    if not 0 < width <= hidden:
        raise SpecError(f"dim={width:,} is not from 1 to {hidden:,}", "give the width of the map", where="`dim`")
    return width


def _target(out: Path) -> Path:
    """The file to write, unless it is something else than a head."""
    if out.is_dir():
        raise SpecError("it is a folder", "name a file", where=str(out))
    if out.exists():
        load_head(out)
    return out
