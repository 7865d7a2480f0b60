"""A head: a linear map over the vectors of a model that stays as it is, trained on pairs in seconds.

pairs -> raw vectors, from the cache where they are -> z-scores of each coordinate -> a map (d, k) under the contrastive
loss, both ways, at several widths (Matryoshka) -> one file, the filter `head:FILE` of a build. Batches are of one data
set each, and none has a text twice. Pairs that are held out say what it is worth, beside whitening, which needs no
pairs: with fewer than some 2,000 it is as good.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from ragidx.corpora.errors import SpecError
from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.devices import check_models
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.filters.fitting import FilterSample
from ragidx.indexer.filters.heads import Head, load_head
from ragidx.indexer.filters.unembedding import decompose
from ragidx.indexer.options import written_out
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.train.frozen import (
    AT_ONCE,
    DROPOUT,
    RATE,
    Sides,
    TrainingReport,
    contrast,
    encoded,
    target_of,
    task_of,
)
from ragidx.pipelines.experiments.train.keywords import HeadKeywords
from ragidx.pipelines.ingest.options import build_options, checked
from ragidx.pipelines.ingest.resolve import resolve_against

if TYPE_CHECKING:
    from torch import Tensor

FEW_PAIRS = 2_000
"""With fewer, whitening is as good."""

_LIKE_TEACHER = 20.0  # weight of the teacher's cosines
_RANK = 1e-6  # of the largest deviation: below it nothing varies


@written_out
def head(
    model: str | os.PathLike[str] = "mini", *, on_progress: OnStage | None = None, **options: Unpack[HeadKeywords]
) -> TrainingReport:
    """Train a map over the vectors of a model, or of the model of an index.

    Args:
        model: a model, as `build` takes it, or an index.
        on_progress: called when a stage begins.

    Raises:
        CorpusError: a file of pairs has faults.
        SpecError: an option is wrong, or there are too few pairs.
        RagidxError: of the subclass that says what to do.
    """
    how = checked("train.head", HeadKeywords, options)
    kind, teacher, seed = how["kind"], how["teacher"], how["seed"]
    if kind == "linear":
        check_models("`kind=linear`")
    elif teacher is not None:
        raise SpecError("whitening learns nothing of a teacher", "remove `teacher`", where="`teacher`")
    target = target_of(how["out"], "head", load_head)
    task = task_of("train.head", model, how)
    resolved, rest, held = task.resolved, task.rest, task.held
    width = _width(resolved.hidden, how["dim"], kind, len(rest))
    tell, models = Stages(on_progress), [resolved]
    if teacher is not None:
        models.append(resolve_against(build_options("train.head", model=teacher, filter="none")))
    tell.expect(1 + 2 * len(models) * (-(-len(rest) // AT_ONCE)) + 2 * (-(-len(held) // AT_ONCE)))
    held_out = encoded(held, resolved, how["cache"], tell)
    trained_on, *taught = [encoded(rest, by, how["cache"], tell) for by in models]
    ready = time.perf_counter()
    tell("training")
    maps: dict[str, Filter | None] = {"none": None}
    with contextlib.suppress(SpecError) if kind == "linear" else contextlib.nullcontext():  # of few pairs, perhaps
        maps["whitening"] = learnt = whitening(trained_on, width if kind == "whitening" else None)
    if kind == "linear":
        batches = rest.batches(how["epochs"], seed)
        maps["linear"] = learnt = linear(trained_on, batches, width, teacher=next(iter(taught), None), seed=seed)

    def write() -> Path:
        about: dict[str, Json] = {
            "encoder": resolved.encoder_spec.to_json(),
            "vectors": resolved.spec.encoder_fingerprint(),
            "kind": kind,
            "pairs": len(rest),
            "files": list(rest.names),
            "teacher": teacher,
            "epochs": how["epochs"],
            "seed": seed,
        }
        assert learnt.shift is not None
        atomic.write_file(target, Head(learnt.matrix, learnt.shift, about).to_bytes())
        return target

    few = f"With fewer than {FEW_PAIRS:,} pairs whitening may be as good: `kind=whitening`."
    notes = [few] if kind == "linear" and len(rest) < FEW_PAIRS else []
    sides = {name: _mapped(held_out, by) for name, by in maps.items()}
    return task.kept(sides, write, *notes, than="no map", force=how["force"], ready=ready)


def whitening(sides: Sides, dim: int | None = None) -> Filter:
    """Principal components of both sides, each scaled to variance 1; `dim` None: a quarter of their width.

    Raises:
        SpecError: the vectors vary in fewer directions.
    """
    rows = np.concatenate([sides.queries, sides.positives])
    width = dim or max(1, rows.shape[1] // 4)
    mean, components = FilterSample(rows).components(width, "whitening")
    matrix = components.directions[:, :width] / components.values[:width]
    return Filter(matrix.astype(np.float32), shift=(mean @ matrix).astype(np.float32))


def linear(sides: Sides, batches: Iterable[Ints], dim: int, *, teacher: Sides | None = None, seed: int = 0) -> Filter:
    """A map of z-scores that draws the two texts of a pair together and those of others apart.

    Args:
        sides: the vectors that it is trained on.
        batches: numbers of pairs.
        dim: width of the map; its halves are trained, too.
        teacher: the vectors that another model makes of the same pairs; None: there is no teacher.
        seed: decides what dropout leaves out.
    """
    import torch
    from torch.nn import functional

    def dropped(rows: Tensor) -> Tensor:
        return rows * (torch.rand(rows.shape, generator=generator) >= DROPOUT) / (1 - DROPOUT)

    def unit(rows: Floats) -> Tensor:
        return functional.normalize(torch.from_numpy(rows), dim=1)

    rows = np.concatenate([sides.queries, sides.positives])
    mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    scale = 1 / np.where(deviation > _RANK * deviation.max(), deviation, np.inf)
    data = [torch.from_numpy(((side - mean) * scale).astype(np.float32)) for side in (sides.queries, sides.positives)]
    start = decompose(np.cov(np.concatenate([part.numpy() for part in data]), rowvar=False)).directions
    weight = torch.tensor(start[:, :dim].astype(np.float32), requires_grad=True)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW([weight], lr=RATE)
    for numbers in batches:
        first, second = (dropped(part[numbers]) @ weight for part in data)
        wanted = None if teacher is None else unit(teacher.queries[numbers]) @ unit(teacher.positives[numbers]).T
        optimizer.zero_grad()
        contrast(first, second, wanted, _LIKE_TEACHER).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    matrix = scale[:, None] * weight.detach().numpy().astype(np.float64)
    return Filter(matrix.astype(np.float32), shift=(mean @ matrix).astype(np.float32))


def _mapped(sides: Sides, by: Filter | None) -> tuple[Floats, Floats]:
    return (sides.queries, sides.positives) if by is None else (by(sides.queries), by(sides.positives))


def _width(hidden: int, dim: int | None, kind: str, n: int) -> int:
    width = dim or (hidden if kind == "linear" else max(1, min(hidden // 4, n)))
    if not 0 < width <= hidden:
        raise SpecError(f"dim={width:,} is not from 1 to {hidden:,}", "give the width of the map", where="`dim`")
    return width
