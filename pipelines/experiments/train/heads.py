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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.devices import check_models
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.filters.fitting import FilterSample
from ragidx.indexer.filters.heads import Head, load_head
from ragidx.indexer.filters.unembedding import decompose
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.train.frozen import (
    AT_ONCE,
    DROPOUT,
    EPOCHS,
    MOST_PAIRS,
    RATE,
    Sides,
    TrainingReport,
    check_target,
    contrast,
    encoded,
    scores,
    task_of,
)
from ragidx.pipelines.ingest.options import QUERY_OPTIONS, build_options, check_names
from ragidx.pipelines.ingest.resolve import resolve_against

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("linear", "whitening")
FEW_PAIRS = 2_000
"""With fewer, whitening is as good."""

_LIKE_TEACHER = 20.0  # weight of the teacher's cosines
_RANK = 1e-6  # of the largest deviation: below it nothing varies


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
) -> TrainingReport:
    """Train a map over the vectors of a model, or of the model of an index.

    Args:
        model: as of `build`, or an index.
        pairs: files of JSON Lines with `query` and `positive`, or folders of them; each file is a data set.
        out: the file that is written.
        kind: `linear`, or `whitening`, which is fitted on both sides of the pairs and takes no note of which belong
            together.
        dim: width of the map; None: that of the model, of whitening a quarter, or as many as there are pairs.
        teacher: a model whose cosines are learnt, too, by a linear map; None: none.
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
    if kind == "linear":
        check_models("`kind=linear`")
    elif teacher is not None:
        raise SpecError("whitening learns nothing of a teacher", "remove `teacher`", where="`teacher`")
    target = _target(Path(out))
    task = task_of("train.head", model, pairs, options, limit=limit, epochs=epochs, seed=seed)
    resolved, rest, held = task.resolved, task.rest, task.held
    width = _width(resolved.hidden, dim, kind, len(rest))
    tell, began = Stages(on_progress), time.perf_counter()
    models = [resolved]
    if teacher is not None:
        models.append(resolve_against(build_options("train.head", model=teacher, filter="none")))
    tell.expect(1 + 2 * len(models) * (-(-len(rest) // AT_ONCE)) + 2 * (-(-len(held) // AT_ONCE)))
    held_out = encoded(held, resolved, cache, tell)
    trained_on, *taught = [encoded(rest, one, cache, tell) for one in models]
    ready = time.perf_counter()
    tell("training")
    maps: dict[str, Filter | None] = {"none": None}
    with contextlib.suppress(SpecError) if kind == "linear" else contextlib.nullcontext():  # of few pairs, perhaps
        maps["whitening"] = whitening(trained_on, width if kind == "whitening" else None)
    if kind == "linear":
        maps["linear"] = linear(
            trained_on, rest.batches(epochs, seed), width, teacher=next(iter(taught), None), seed=seed
        )
    found, notes = scores({name: _mapped(held_out, one) for name, one in maps.items()}), list[str]()
    if kind == "linear" and len(rest) < FEW_PAIRS:
        notes.append(f"With fewer than {FEW_PAIRS:,} pairs whitening may be as good: `kind=whitening`.")
    gain = found[-1].against
    is_kept = force or gain is None or gain.verdict != "worse"
    if is_kept:
        about: dict[str, Json] = {
            "encoder": resolved.encoder_spec.to_json(),
            "vectors": resolved.spec.encoder_fingerprint(),
            "kind": kind,
            "pairs": len(rest),
            "files": list(rest.names),
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
    return TrainingReport(
        file=str(target) if is_kept else None,
        model=resolved.encoder_spec.model,
        n_pairs=len(rest),
        of_pairs=task.of_pairs,
        n_held_out=len(held),
        scores=found,
        encoding_seconds=ready - began,
        training_seconds=time.perf_counter() - ready,
        notes=tuple(notes),
    )


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
        sides: what it is trained on.
        batches: numbers of pairs.
        dim: width of the map; its halves are trained, too.
        teacher: the same pairs, by another model; None: no teacher.
        seed: of dropout.
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


def _mapped(sides: Sides, one: Filter | None) -> tuple[Floats, Floats]:
    return (sides.queries, sides.positives) if one is None else (one(sides.queries), one(sides.positives))


def _width(hidden: int, dim: int | None, kind: str, n: int) -> int:
    width = dim or (hidden if kind == "linear" else max(1, min(hidden // 4, n)))
    if not 0 < width <= hidden:
        raise SpecError(f"dim={width:,} is not from 1 to {hidden:,}", "give the width of the map", where="`dim`")
    return width


def _target(out: Path) -> Path:
    """The file to write, unless it is something else than a head."""
    check_target(out)
    if out.exists():
        load_head(out)
    return out
