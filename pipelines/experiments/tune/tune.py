"""Tune: which layer, filter and search suit a corpus and a model, by queries of that corpus; nothing is changed.

corpus or index -> `TuneSample`, as large as the time allows -> every layer of each method, in one pass -> `search`, on
the rows of an evaluation -> `Proposal`: what was tried, the choice with what it is worth on queries that did not choose
it, and the command that builds it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.indexer.encoders.methods import OWN_MODULES, filter_spec
from ragidx.indexer.filters.heads import load_head
from ragidx.indexer.model_files import expanded
from ragidx.indexer.specs import HEAD, TOKEN_TABLE
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.evaluate.axes import check_filters
from ragidx.pipelines.experiments.evaluate.conclusions import measure_of
from ragidx.pipelines.experiments.evaluate.grid import Searches
from ragidx.pipelines.experiments.evaluate.measures import MEASURES, measures_of
from ragidx.pipelines.experiments.evaluate.options import ANSWERS, Grid, Judge, Questions, as_list, check_moved
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import cache_folder
from ragidx.pipelines.experiments.evaluate.tasks import CORPUS, INDEX, check_together, task_of
from ragidx.pipelines.experiments.tune.bench import EncodedSample, Measurements
from ragidx.pipelines.experiments.tune.models import Model, drawn_of, encoded, models_of, sized
from ragidx.pipelines.experiments.tune.proposal import Estimate, Proposal, proposal_of
from ragidx.pipelines.experiments.tune.sample import TuneSample
from ragidx.pipelines.experiments.tune.search import SearchChoice, Space, VectorsChoice, search
from ragidx.pipelines.ingest.options import ENCODING_OPTIONS, check_names
from ragidx.pipelines.ingest.report import OnProgress
from ragidx.retriever.options import DENSE, HYBRID, LEXICAL, WEIGHT, Z

MINUTES = 20.0
WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)
SHARES = (2, 4)
"""Hidden width / width of the filters that are tried."""

_OPTIONS = tuple(name for name in ENCODING_OPTIONS if name not in ("method", "layer"))


def tune(
    source: str | os.PathLike[str],
    *,
    model: str | None = None,
    method: str | Sequence[str] | None = None,
    filter: str | Sequence[str] | None = None,
    dim: int | Sequence[int] | None = None,
    offset: int | Sequence[int] | None = None,
    questions: Questions = Questions.made(),
    measure: str = "ndcg@10",
    minutes: float = MINUTES,
    seed: int = 0,
    cache: str | os.PathLike[str] | None = "",
    on_estimate: Callable[[Estimate], None] = lambda estimate: None,
    on_progress: OnStage | None = None,
    on_build: OnProgress | None = None,
    **options: Any,
) -> Proposal:
    """Propose a layer, a filter, a width and a search for a corpus and a model. Nothing is changed.

    Args:
        source: a corpus, or an index, whose own choices then are the defaults.
        model: the model, as of `build`; None: the index's, else mini.
        method: one method or several; None: the default.
        filter: filters that are tried beside the default; None: none, embedfilter, pca and whitening.
        dim: widths of the filters that are tried; None: a half and a quarter of the hidden width, and nearly all of it.
        offset: first columns of EmbedFilter that are tried; None: the middle, the preset's, 0, 1 and hidden width / 32.
        questions: the queries that ask, and what judges them: some that are made of the corpus, or judged ones.
        measure: the measure that is to be high.
        minutes: minutes that encoding may take, about; the sample is as large as that allows.
        seed: seed of the draw of the sample.
        cache: folder of raw vectors; "": the user's; None: nothing is kept.
        on_estimate: called before anything is encoded.
        on_progress: called when a stage begins.
        on_build: called while the corpus is read.
        options: options of the encoder and the corpus, as of `build`.

    Raises:
        RagidxError: of the subclass that says what to do.
    """
    check_moved("tune", options, "questions")
    check_names("tune", options, _OPTIONS)
    if not minutes >= 0:
        raise SpecError(f"minutes={minutes:g} is no time", "give 0 or more", where="`minutes`")
    grid = Grid(filter=filter, dim=dim, offset=offset)
    check_filters(grid)
    if questions.log is not None or questions.vectors is not None or questions.drop_self:
        hint = "give `Questions.read(queries, qrels)`, or `Questions.made()`"
        raise SpecError("judged queries choose, or some that are made of the corpus", hint, where="`questions`")
    if questions.qrels is None and questions.queries is not None and Path(questions.queries).is_dir():
        questions = replace(questions, qrels=questions.queries)  # a BEIR folder
    check_together(questions.queries, questions.qrels)
    task = task_of(source, questions)
    if task.kind not in (CORPUS, INDEX):
        raise SpecError("it is neither a corpus nor an index", "name one of them", where=str(source))
    if measure in MEASURES and measure not in measures_of(ANSWERS):
        raise unknown_name("measure", measure, measures_of(ANSWERS))
    measure_of(task, Judge(measure))  # before anything is encoded
    kept = cache_folder(cache)
    with contextlib.ExitStack() as stack:
        tell = Stages(on_progress)
        models = models_of(task, options | {"model": model}, as_list(method or (None,)), kept, stack)
        tell("drawing a sample")
        sample = sized(drawn_of(task, models[0], questions, seed, on_build), models, minutes, on_estimate)
        space, bench = prepared(models, sample, grid, measure, tell, stack)
        parts = search(space, bench, len(sample.judged.texts))
        return proposal_of(task, {one.method: one.default for one in models}, space, bench, sample, measure, parts)


def prepared(
    models: Sequence[Model],
    sample: TuneSample,
    grid: Grid,
    measure: str,
    tell: Stages,
    stack: contextlib.ExitStack,
) -> tuple[Space, Measurements]:
    """The choices that are tried, and what measures them.

    The sample is encoded here. Files last until the stack is closed.
    """
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ragidx-tune-")))
    encodings = {one.method: encoded(one, sample, tell) for one in models}
    tell.total = 0  # how many configurations there will be depends on what is chosen
    modes = (DENSE, HYBRID) if sample.judged.synthetic else (DENSE, LEXICAL, HYBRID)
    bench = Measurements(sample, encodings, Searches(modes, weights=WEIGHTS), measure, folder, tell)
    return _space(models, encodings, grid.axes()), bench


def _space(models: Sequence[Model], encodings: Mapping[str, EncodedSample], axes: Mapping[str, Sequence[Any]]) -> Space:
    """The choices that are tried: each layer with the default filter and without one; then filters and widths there."""
    first = models[0]
    spec, hidden = first.default.spec.filter, first.vectors.resolved.hidden
    default = VectorsChoice(first.method, first.own, spec.name, spec.width(hidden), spec.offset, spec.center)
    own = [] if first.method in OWN_MODULES else ["embedfilter"]
    if first.default.files.family == TOKEN_TABLE:
        own = ["truncation"]
    names = axes.get("filter", ["none", *own, "pca", "whitening"])

    def layers(present: VectorsChoice) -> list[VectorsChoice]:
        found = list[VectorsChoice]()
        for one in models:
            own = filter_spec(one.default.files, one.default.encoder_spec)
            kept = VectorsChoice(one.method, None, own.name, own.width(hidden), own.offset, own.center)
            if one is first:
                kept = default
            for layer in encodings[one.method].layers:
                here = replace(kept, layer=layer)
                found += dict.fromkeys([here, replace(here, filter="none", dim=hidden, offset=None)])
        return found

    def widths(present: VectorsChoice) -> list[VectorsChoice]:
        return [
            replace(present, filter=name, dim=dim, offset=offset)
            for name in names
            for dim, offset in filter_widths(name, hidden, default.offset, axes)
        ]

    def centers(present: VectorsChoice) -> list[VectorsChoice]:
        return [] if present.filter.startswith(HEAD) else [replace(present, center=not present.center)]

    return Space(default, SearchChoice(HYBRID, Z, WEIGHT), (layers, widths, centers))


def filter_widths(
    name: str, hidden: int, offset: int | None, axes: Mapping[str, Sequence[int]]
) -> list[tuple[int, int | None]]:
    """Widths and first columns of a filter: of EmbedFilter the middle, then the first and the last column apart."""
    if name == "none":
        return [(hidden, None)]
    if name.startswith(HEAD):
        return [(load_head(expanded(name.removeprefix(HEAD))).matrix.shape[1], None)]
    widths = axes.get("dim", [hidden // share for share in SHARES])
    if name != "embedfilter":
        return [(dim, None) for dim in widths]
    found, end = list[tuple[int, int | None]](), hidden // 32
    if "offset" not in axes:  # the same columns where None would be the first one of the model's preset
        found = [(dim, None if offset is None else max(0, (hidden - dim) // 2)) for dim in widths]
    for first in axes.get("offset", [offset or 0, 0, 1, end]):
        nearly_all = [] if "dim" in axes else [hidden - first, hidden - first - end]
        found += [(dim, first) for dim in (*(dim for dim in nearly_all if 0 < dim < hidden), *widths)]
    return list(dict.fromkeys(found))
