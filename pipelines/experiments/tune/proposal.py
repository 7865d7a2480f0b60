"""What a tuning gives: what was tried, the choice, what it is worth, and the commands that take it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.encoders.methods import default_filter, resolve
from ragidx.indexer.options import ENCODER_OPTIONS
from ragidx.pipelines.experiments.evaluate.significance import too_few
from ragidx.pipelines.experiments.evaluate.tasks import INDEX, Task
from ragidx.pipelines.experiments.tune.sample import TuneSample
from ragidx.pipelines.experiments.tune.search import SearchChoice, Space, TunedChoice, VectorsChoice
from ragidx.pipelines.ingest.options import CORPUS_OPTIONS
from ragidx.pipelines.ingest.resolve import Resolved

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.evaluate.grid import MeasuredConfiguration
    from ragidx.pipelines.experiments.tune.bench import Measurements


@dataclass(frozen=True, slots=True)
class Estimate:
    """The sample that is going to be encoded, and the time that this takes.

    Attributes:
        n_chunks, n_documents: numbers of chunks and documents in the sample.
        of_documents: number of documents in the corpus.
        n_queries: number of queries that are asked.
        n_layers: number of layers of each chunk and query.
        seconds: seconds that encoding takes, about, where nothing of it is in the cache.
    """

    n_chunks: int
    n_documents: int
    of_documents: int
    n_queries: int
    n_layers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Tried:
    """One configuration, on all queries; these values chose, so they test nothing.

    Attributes:
        part: vectors, searched by cosines alone, or search.
        what: the configuration, a `VectorsChoice` or a `SearchChoice`.
        mean: mean of the measure.
        difference: difference from the mean of the part's default.
        bytes: size of a chunk in bytes.
    """

    part: str
    what: VectorsChoice | SearchChoice
    mean: float
    difference: float
    bytes: float


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The vectors and the search that are advised, and what was measured.

    Attributes:
        source: the corpus or the index, as it was named.
        model: the model whose layers were compared.
        n_chunks, n_documents: numbers of chunks and documents in the sample.
        of_documents: number of documents in the corpus.
        n_queries: number of queries that were asked.
        synthetic: whether the queries were made of the corpus.
        measure: the measure that decided.
        tried: all that was tried, the vectors first.
        vectors: the choice of method, layer, filter and width, measured by dense search.
        search: the choice of a search of the advised vectors.
        build: the command that builds an index with the advised vectors.
        query: the command that searches as advised.
        notes: notes on what was left out.
    """

    source: str
    model: str
    n_chunks: int
    n_documents: int
    of_documents: int
    n_queries: int
    synthetic: bool
    measure: str
    tried: tuple[Tried, ...]
    vectors: TunedChoice
    search: TunedChoice
    build: str
    query: str
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The proposal as JSON."""
        data = dataclasses.asdict(self)
        for name in ("vectors", "search"):
            part: TunedChoice = getattr(self, name)
            data[name] |= {"is_better": part.is_better, "advised": dataclasses.asdict(part.advised)}
        return data


def proposal_of(
    task: Task,
    made_by: Mapping[str, Resolved],
    space: Space,
    bench: Measurements,
    sample: TuneSample,
    measure: str,
    parts: tuple[TunedChoice, TunedChoice],
) -> Proposal:
    """The report of a finished search; `made_by`: what makes the vectors of each method."""
    vectors, search = parts
    return Proposal(
        source=str(task.path),
        model=made_by[vectors.default.method].encoder_spec.model,
        n_chunks=len(sample.chunks),
        n_documents=sample.n_documents,
        of_documents=sample.of_documents,
        n_queries=len(sample.judged.texts),
        synthetic=sample.judged.synthetic is not None,
        measure=measure,
        tried=(
            *_tried("vectors", bench.by_vectors, space.vectors, measure),
            *_tried("search", bench.by_search[vectors.advised], space.search, measure),
        ),
        vectors=vectors,
        search=search,
        build=_build(task, made_by[vectors.advised.method], vectors.advised),
        query=_query(search.advised),
        notes=(*sample.notes, *bench.faults, *too_few(len(sample.judged.texts))),
    )


def _tried(
    part: str, rows: Mapping[Any, MeasuredConfiguration | None], default: VectorsChoice | SearchChoice, measure: str
) -> Iterator[Tried]:
    """What could be measured, with its difference from the default."""
    measured = {what: (float(row.values[measure].mean()), row.bytes) for what, row in rows.items() if row is not None}
    for what, (mean, n_bytes) in measured.items():
        yield Tried(part, what, mean, mean - measured[default][0], n_bytes or 0.0)


def _build(task: Task, made: Resolved, advised: VectorsChoice) -> str:
    """The command that builds an index with these vectors, and else as the default's are made."""
    spec, usual = made.encoder_spec, resolve(made.files, method=advised.method)
    words = ["ragidx", "build"]
    words += ["--index", str(task.path), "--rebuild"] if task.kind == INDEX else [str(task.path)]
    for name in (*CORPUS_OPTIONS, "records"):
        words += [word for one in getattr(made.options, name) or () for word in _typed(name, one)]
    words += ["--model", spec.model, "--method", advised.method]
    for name in ENCODER_OPTIONS:
        if name not in ("method", "layer") and getattr(spec, name) != getattr(usual, name):
            words += _typed(name, getattr(spec, name))
    chunks = made.spec.chunk
    for name, option in (("size", "chunk_size"), ("overlap", "chunk_overlap"), ("titles", "titles")):
        if getattr(chunks, name) != getattr(ChunkSpec(titles=True), name):
            words += _typed(option, getattr(chunks, name))
    if advised.layer is not None:
        words += ["--layer", str(advised.layer)]
    words += ["--filter", advised.filter]
    if advised.filter != "none":
        words += ["--dim", str(advised.dim)]
    if advised.offset is not None:
        words += ["--filter-offset", str(advised.offset)]
    if advised.center or default_filter(made.files, spec).center:
        words += _typed("center", advised.center)
    return shlex.join(words)


def _typed(name: str, value: Any) -> list[str]:
    """An option as it is typed."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [option if value else f"--no-{option[2:]}"]
    if isinstance(value, tuple):
        return [word for one in value for word in (option.removesuffix("s"), str(one))]
    return [option, "none" if value is None else str(value)]


def _query(search: SearchChoice) -> str:
    words = ["ragidx", "query", "...", "--mode", search.mode]
    if search.fusion is not None:
        words += ["--fusion", search.fusion]
    if search.weight is not None:
        words += ["--weight", f"{search.weight:g}"]
    return " ".join(words)
