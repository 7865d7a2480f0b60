"""Tune: which layer, filter and search suit a corpus and a model, by queries of that corpus; nothing is changed.

corpus or index -> `Sample`, as large as the time allows -> every layer of each method, in one pass -> `search`, on the
rows of an evaluation -> `Proposal`: what was tried, the choice with what it is worth on queries that did not choose it,
and the command that builds it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.indexer.encoders.methods import OWN_MODULES, filter_spec
from ragidx.indexer.specs import ENCODER_OPTIONS, FILTERS
from ragidx.pipelines.evaluate.axes import as_list
from ragidx.pipelines.evaluate.grid import OnStage, Searches, Stages
from ragidx.pipelines.evaluate.measures import MEASURES
from ragidx.pipelines.evaluate.sources.raw_vectors import RawVectors, default_cache
from ragidx.pipelines.evaluate.sources.source import IndexSource
from ragidx.pipelines.evaluate.tasks import CORPUS, INDEX, Task, task_of
from ragidx.pipelines.ingest.corpus import chunker_of
from ragidx.pipelines.ingest.options import CORPUS_OPTIONS, RUN_OPTIONS, BuildOptions, build_options, check_names
from ragidx.pipelines.ingest.report import OnProgress, Progress
from ragidx.pipelines.ingest.resolve import Resolved, resolve_against
from ragidx.pipelines.ingest.workers.chunks import Cutter
from ragidx.pipelines.tune.bench import Encoding, Measurements
from ragidx.pipelines.tune.proposal import Estimate, Proposal, proposal_of
from ragidx.pipelines.tune.sample import MOST_CHUNKS, Drawn, Sample, from_corpus, from_index, some_queries
from ragidx.pipelines.tune.search import Search, Space, Vectors, search
from ragidx.retriever.options import DENSE, HYBRID, LEXICAL, WEIGHT, Z

MINUTES = 20.0
WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)
SHARES = (2, 4)
"""Hidden width / width of the filters that are tried."""

_SIZES = (MOST_CHUNKS, 2000, 1000, 500, 250)
_LAYERS_BYTES = 2 << 30
_TIMED = 4  # texts
_AT_ONCE = 64
_OPTIONS = (
    *(name for name in ENCODER_OPTIONS if name not in ("method", "layer")),
    *(*RUN_OPTIONS, "chunks", *CORPUS_OPTIONS, "records", "fields"),
)


def tune(
    source: str | os.PathLike[str],
    *,
    model: str | None = None,
    method: str | Sequence[str] | None = None,
    filter: str | Sequence[str] | None = None,
    queries: str | os.PathLike[str] | None = None,
    qrels: str | os.PathLike[str] | None = None,
    split: str = "test",
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
        model: as of `build`; None: the index's, else mini.
        method: one or several; None: the default.
        filter: those that are tried beside the default; None: none, embedfilter, pca and whitening.
        queries: with `qrels`; None: queries are made of the corpus.
        qrels: that judge them.
        split: of the judgements of a BEIR folder that `queries` names.
        measure: that is to be high.
        minutes: that encoding may take, about; the sample is as large as that allows.
        seed: of what is drawn.
        cache: folder of raw vectors; "": the user's; None: nothing is kept.
        on_estimate: called before anything is encoded.
        on_progress: called when a stage begins.
        on_build: called while the corpus is read.
        options: of the encoder and the corpus, as of `build`.

    Raises:
        RagidxError: of the subclass that says what to do.
    """
    check_names("tune", options, _OPTIONS)
    if measure not in MEASURES:
        raise unknown_name("measure", measure, MEASURES)
    for name in as_list(filter or ()):
        if name not in FILTERS:
            raise unknown_name("filter", name, FILTERS)
    task = task_of(source, queries=queries, qrels=qrels, split=split, labelled=bool(queries or qrels))
    if task.kind not in (CORPUS, INDEX):
        raise SpecError("it is neither a corpus nor an index", "name one of them", where=str(source))
    tell = Stages(on_progress)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ragidx-tune-")))
        kept = None if cache is None else default_cache() if cache == "" else Path(cache)
        models = _models(task, options | {"model": model}, [*as_list(method or (None,))], kept, stack)
        tell("drawing a sample")
        drawn = _drawn(task, models[0], seed, on_build)
        sample = _sized(drawn, models, minutes, on_estimate)
        encodings = {one.method: _encoded(one, sample, tell) for one in models}
        tell.total = 0  # how many configurations there will be depends on what is chosen
        modes = (DENSE, HYBRID) if sample.synthetic else (DENSE, LEXICAL, HYBRID)
        searches = Searches(modes, weights=WEIGHTS)
        bench = Measurements(sample, encodings, searches, measure, folder, tell)
        space = _space(models, encodings, filter)
        parts = search(space, bench, len(sample.queries))
        return proposal_of(task, models[0].default, options, space, bench, sample, measure, parts)


@dataclass(frozen=True)
class _Model:
    """A method of the model.

    Attributes:
        default: as a build without options would have it, or as the index has it.
        vectors: of its last layer, or its own.
        own: the layer of the default; None: it has no others.
    """

    default: Resolved
    vectors: RawVectors
    own: int | None

    @property
    def method(self) -> str:
        """Its name."""
        return self.default.encoder_spec.method


def _models(
    task: Task,
    options: Mapping[str, Any],
    methods: Sequence[str | None],
    cache: Path | None,
    stack: contextlib.ExitStack,
) -> list[_Model]:
    """The methods, the first of them the default, each opened for all of its layers where it has them."""
    own: dict[str, Any] = {}
    if task.kind == INDEX:
        spec = IndexSource(task.path, {}).spec
        if spec.encoder is None:
            raise SpecError(
                "the index holds precomputed vectors: it has no model to tune",
                "tune the corpus",
                where=str(task.path),
            )
        names = ("instruction", "max_length") if spec.encoder.method in OWN_MODULES else ENCODER_OPTIONS
        own = {name: getattr(spec.encoder, name) for name in names} | {"model": spec.encoder.model}
        own |= {"method": spec.encoder.method, "filter": spec.filter, "chunks": spec.chunk}
        changed = [name for name in ("model", "chunks") if options.get(name) is not None]
        if changed:
            raise SpecError(
                f"the index has its own {changed[0]}", "remove it, or tune the corpus", where=f"`{changed[0]}`"
            )
    named = {name: value for name, value in options.items() if value is not None}
    models = []
    for method in methods:
        asked = own | named if method in (None, own.get("method")) else _of_model(own) | named | {"method": method}
        default = resolve_against(build_options("tune", **asked))
        models.append(_opened(default, asked, cache, stack))
    return list({one.method: one for one in models}.values())


def _of_model(own: Mapping[str, Any]) -> dict[str, Any]:
    """What an index says of its model that another method has, too."""
    return {name: own[name] for name in ("model", "adapters", "max_length", "chunks") if name in own}


def _opened(default: Resolved, asked: Mapping[str, Any], cache: Path | None, stack: contextlib.ExitStack) -> _Model:
    layer = default.encoder_spec.layer
    if default.encoder_spec.method not in OWN_MODULES and layer != 0:  # which runs no network
        vectors = stack.enter_context(_raw({**asked, "layer": -1}, cache))
        with contextlib.suppress(SpecError):
            n_layers = len(vectors.encoder.encode_layers([]))
            place = layer if layer > 0 else n_layers + 1 + layer
            return _Model(default, vectors, -1 if place == n_layers else place)
    return _Model(default, stack.enter_context(_raw(asked, cache)), None)


def _raw(asked: Mapping[str, Any], cache: Path | None) -> RawVectors:
    return RawVectors(resolve_against(build_options("tune", **{**asked, "filter": "none"})), cache)


def _drawn(task: Task, model: _Model, seed: int, on_build: OnProgress | None) -> Drawn:
    judged = None if task.judged is None else some_queries(task.judged, seed)
    if task.kind == INDEX:
        return from_index(IndexSource(task.path, {}), judged, seed)
    cutter = Cutter(lambda: chunker_of(model.vectors.encoder, model.default.spec.chunk))
    options: BuildOptions = model.default.options
    return from_corpus(task.path, options, cutter, judged, Progress(on_progress=on_build), seed)


def _sized(drawn: Drawn, models: Sequence[_Model], minutes: float, on_estimate: Callable[[Estimate], None]) -> Sample:
    """The largest sample for which there is time and memory, or the smallest of all."""
    first = next(iter(drawn.documents.values()))
    chunker = chunker_of(models[0].vectors.encoder, models[0].default.spec.chunk)
    texts = [chunker.encoded_text(chunk) for group in list(drawn.documents.values())[:_TIMED] for chunk in group][
        :_TIMED
    ]
    seconds = []
    layers = 1
    for one in models:
        run = one.vectors.encoder.encode_document if one.own is None else one.vectors.encoder.encode_layers
        run([chunker.encoded_text(first[0])])
        started = time.perf_counter()
        layers = max(layers, len(run(texts)) if one.own is not None else 1)
        seconds.append((time.perf_counter() - started) / max(1, sum(map(len, texts))))
    hidden = models[0].vectors.resolved.hidden
    for size in _SIZES:
        sample = drawn.sample(size)
        n_chars = sum(len(chunk.text) for chunk in sample.chunks) + sum(map(len, sample.queries.values()))
        needed = n_chars * sum(seconds)
        n_bytes = 4 * len(models) * layers * hidden * (len(sample.chunks) + len(sample.queries))
        if needed <= 60 * minutes and n_bytes <= _LAYERS_BYTES:
            break
    on_estimate(
        Estimate(len(sample.chunks), sample.n_documents, sample.of_documents, len(sample.queries), layers, needed)
    )
    return sample


def _encoded(model: _Model, sample: Sample, tell: Stages) -> Encoding:
    """All layers of the sample, or the model's own vectors."""
    vectors = model.vectors
    chunker = chunker_of(vectors.encoder, model.default.spec.chunk)
    texts = [chunker.encoded_text(chunk) for chunk in sample.chunks]
    starts = range(0, len(texts), _AT_ONCE)
    tell.expect(len(starts))

    def parts() -> Iterator[Any]:
        for start in starts:
            tell(f"encoding with {model.method}, {start:,} of {len(texts):,}")
            part = texts[start : start + _AT_ONCE]
            yield vectors.texts(part)[None] if model.own is None else vectors.layers(part)

    queries = list(sample.queries.values())
    if model.own is None:
        asked, layers = vectors.queries(queries)[None], (None,)
    else:
        asked = vectors.layers(queries, vectors.encoder.query_instruction(None))
        layers = (*range(1, len(asked)), -1)
    return Encoding(vectors, layers, texts, np.concatenate(list(parts()), axis=1), asked)


def _space(models: Sequence[_Model], encodings: Mapping[str, Encoding], filter: str | Sequence[str] | None) -> Space:
    """What is tried: every layer with the default filter and without one; then filters and widths at that layer."""
    first = models[0]
    spec, hidden = first.default.spec.filter, first.vectors.resolved.hidden
    default = Vectors(first.method, first.own, spec.name, spec.width(hidden), spec.offset)
    named = as_list(filter) if filter is not None else ["none", "embedfilter", "pca", "whitening"]
    if first.method in OWN_MODULES and filter is None:
        named.remove("embedfilter")

    def layers(present: Vectors) -> list[Vectors]:
        found = []
        for one in models:
            own = filter_spec(one.default.files, one.default.encoder_spec)
            kept = Vectors(one.method, None, own.name, own.width(hidden), own.offset)
            if one is first:
                kept = default
            for layer in encodings[one.method].layers:
                for name, dim, offset in {(kept.filter, kept.dim, kept.offset), ("none", hidden, None)}:
                    found.append(Vectors(one.method, layer, name, dim, offset))
        return found

    def filters(present: Vectors) -> list[Vectors]:
        return [
            Vectors(present.method, present.layer, name, dim, offset)
            for name in named
            for dim, offset in _widths(name, hidden, default.offset)
        ]

    return Space(default, Search(HYBRID, Z, WEIGHT), (layers, filters))


def _widths(name: str, hidden: int, offset: int | None) -> list[tuple[int, int | None]]:
    """Widths and first columns of a filter."""
    if name == "none":
        return [(hidden, None)]
    narrow = [hidden // share for share in SHARES]
    if name != "embedfilter":
        return [(dim, None) for dim in narrow]
    firsts = dict.fromkeys([offset, 0, 1, hidden // 32])
    return [(dim, first) for first in firsts for dim in (hidden - (first or 0), *narrow) if dim < hidden]
