"""The methods of a model that are tuned: opened for every layer, sized by what there is time for, encoded.

task and options -> `Model`s; a draw of documents -> as many as encoding takes no longer than it may -> `EncodedSample`s
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.corpora.errors import SpecError
from ragidx.indexer.encoders.methods import OWN_MODULES, continued_options
from ragidx.indexer.filters.fitting import N_QUESTIONS, as_questions, lowest
from ragidx.indexer.specs import HEAD
from ragidx.pipelines.base.stages import Stages
from ragidx.pipelines.experiments.evaluate.options import Questions
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors
from ragidx.pipelines.experiments.evaluate.sources.source import IndexSource
from ragidx.pipelines.experiments.evaluate.tasks import INDEX, Task
from ragidx.pipelines.experiments.tune.bench import EncodedSample
from ragidx.pipelines.experiments.tune.proposal import Estimate
from ragidx.pipelines.experiments.tune.sample import (
    MOST_CHUNKS,
    Drawn,
    TuneSample,
    from_corpus,
    from_index,
    some_queries,
)
from ragidx.pipelines.ingest.corpus import chunker_of
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.ingest.report import OnProgress, Progress
from ragidx.pipelines.ingest.resolve import Resolved, resolve_against
from ragidx.pipelines.ingest.workers.chunks import Cutter

_SIZES = (MOST_CHUNKS, 2000, 1000, 500, 250)
_LAYERS_BYTES = 2 << 30
_TIMED = 4  # texts
_AT_ONCE = 64


@dataclass(frozen=True)
class Model:
    """A method of the model.

    Attributes:
        default: the method as a build without options would have it, or as the index has it.
        vectors: the raw vectors of the method's last layer, or its own.
        own: the layer of the default; None: the method has no others.
    """

    default: Resolved
    vectors: RawVectors
    own: int | None

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.default.encoder_spec.method


def models_of(
    task: Task,
    options: Mapping[str, Any],
    methods: Sequence[str | None],
    cache: Path | None,
    stack: contextlib.ExitStack,
) -> list[Model]:
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
        if spec.filter.name.startswith(HEAD):
            raise SpecError(
                "the index has a trained head, which fits no other layer, method or filter",
                "tune the corpus, with its model",
                where=str(task.path),
            )
        own = {**continued_options(spec.encoder, {}), "model": spec.encoder.model, "method": spec.encoder.method}
        own |= {"filter": spec.filter, "chunks": spec.chunk}
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


def _opened(default: Resolved, asked: Mapping[str, Any], cache: Path | None, stack: contextlib.ExitStack) -> Model:
    layer = default.encoder_spec.layer
    if default.encoder_spec.method not in OWN_MODULES and layer != 0:  # which runs no network
        with contextlib.ExitStack() as opened, contextlib.suppress(SpecError):  # what has no vector for each layer
            vectors = opened.enter_context(_raw({**asked, "layer": -1}, cache))
            n_layers = len(vectors.encoder.encode_layers([]))
            place = layer if layer > 0 else n_layers + 1 + layer
            stack.push(opened.pop_all())
            return Model(default, vectors, -1 if place == n_layers else place)
    return Model(default, stack.enter_context(_raw(asked, cache)), None)


def _raw(asked: Mapping[str, Any], cache: Path | None) -> RawVectors:
    return RawVectors(resolve_against(build_options("tune", **{**asked, "filter": "none"})), cache)


def drawn_of(task: Task, model: Model, questions: Questions, seed: int, on_build: OnProgress | None) -> Drawn:
    """Documents of a corpus or an index, with queries."""
    asked = questions if task.judged is None else some_queries(task.judged, seed)
    if task.kind == INDEX:
        return from_index(IndexSource(task.path, {}), asked, seed)
    cutter = Cutter(lambda: chunker_of(model.vectors.encoder, model.default.spec.chunk))
    return from_corpus(task.path, model.default.options, cutter, asked, Progress(on_progress=on_build), seed)


def sized(drawn: Drawn, models: Sequence[Model], minutes: float, on_estimate: Callable[[Estimate], None]) -> TuneSample:
    """The largest sample for which there is time and memory, or the smallest of all."""
    chunker = chunker_of(models[0].vectors.encoder, models[0].default.spec.chunk)
    chunks = itertools.islice(itertools.chain.from_iterable(drawn.documents.values()), _TIMED)
    texts = [chunker.encoded_text(chunk) for chunk in chunks]
    seconds, layers = [], 1
    for one in models:
        run = one.vectors.encoder.encode_document if one.own is None else one.vectors.encoder.encode_layers
        run(texts[:1])
        started = time.perf_counter()
        made = run(texts)
        seconds.append((time.perf_counter() - started) / max(1, sum(map(len, texts))))
        layers = max(layers, 1 if one.own is None else len(made))
    hidden = models[0].vectors.resolved.hidden
    for size in _SIZES:
        sample = drawn.sample(size)
        n_chars = sum(len(chunk.text) for chunk in sample.chunks) + sum(map(len, sample.judged.texts.values()))
        needed = n_chars * sum(seconds)
        n_bytes = 4 * len(models) * layers * hidden * (len(sample.chunks) + len(sample.judged.texts))
        if needed <= 60 * minutes and n_bytes <= _LAYERS_BYTES:
            break
    on_estimate(
        Estimate(len(sample.chunks), sample.n_documents, sample.of_documents, len(sample.judged.texts), layers, needed)
    )
    return sample


def encoded(model: Model, sample: TuneSample, tell: Stages) -> EncodedSample:
    """The sample as a method encodes it: all layers, or the model's own vectors."""
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

    queries, drawn = list(sample.judged.texts.values()), lowest(0, (chunk.id for chunk in sample.chunks), N_QUESTIONS)
    sentences = as_questions([sample.chunks[place].text for place in drawn], 0)
    said = vectors.encoder.query_instruction(None)
    asked, questions = (
        vectors.queries(texts)[None] if model.own is None else vectors.layers(texts, said)
        for texts in (queries, sentences)
    )
    layers = (None,) if model.own is None else (*range(1, len(asked)), -1)
    return EncodedSample(vectors, layers, texts, np.concatenate(list(parts()), axis=1), asked, questions)
