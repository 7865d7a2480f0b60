"""Sweep: which dimension to take, and which index. Storage, time and quality at every width, from one encoding.

corpus -> raw vectors, from the cache or encoded once -> for each filter, width and index type a real index, which is
written, mapped, searched, timed and removed -> an evaluation whose rows have costs. An index can be swept in place of a
corpus. What dense rows are compared with is the full width in float32, every vector of it. Nothing stays behind but raw
vectors in the cache, and what `out` names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.evalsets import load_qrels, load_queries, place_in_qrels
from ragidx.indexer.ann.index_types import DEFAULT_RECALL, FLAT, IndexOptions
from ragidx.indexer.arrays import Floats
from ragidx.indexer.store.files import MANIFEST
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.evaluate.conclusions import Wanted, report_of
from ragidx.pipelines.experiments.evaluate.files import check_out, write_out
from ragidx.pipelines.experiments.evaluate.grid import Rankings, Searches
from ragidx.pipelines.experiments.evaluate.measures import MEASURES, ir_measures
from ragidx.pipelines.experiments.evaluate.report import EvaluationReport
from ragidx.pipelines.experiments.evaluate.sources.corpus import CorpusSource
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors, cache_folder
from ragidx.pipelines.experiments.evaluate.sources.series import (
    Series,
    WidthChoice,
    check_filters,
    fitted_sample,
    full_width,
    notes_on_fit,
    series_of,
)
from ragidx.pipelines.experiments.evaluate.sources.source import IndexSource, VectorSource
from ragidx.pipelines.experiments.evaluate.tasks import CORPUS, INDEX, Judged, Task, check_documents, judged_of, of_beir
from ragidx.pipelines.ingest.options import ENCODING_OPTIONS, build_options, check_names
from ragidx.pipelines.ingest.report import OnProgress
from ragidx.pipelines.ingest.resolve import resolve_against
from ragidx.retriever.options import DENSE, MODES

_FILTER_FIELDS = ("offset", "seed", "sample", "topk")
KNOWN = (
    *("model", *ENCODING_OPTIONS),
    *(f"filter_{name}" for name in _FILTER_FIELDS),
    *("filters", "index_types"),
)
"""Those of a build that a sweep takes, too, and what it takes in place of one filter and one index type."""
_NPY = (".npy", ".npy.gz", ".npy.zst")


def sweep(
    source: str | Path,
    *,
    dims: Sequence[int] | None = None,
    taus: Sequence[float] | None = None,
    index_types: Sequence[str] = (FLAT,),
    filters: Sequence[str] | None = None,
    queries: str | Path | None = None,
    qrels: str | Path | None = None,
    query_vectors: str | Path | None = None,
    target_recall: float = DEFAULT_RECALL,
    cache: str | Path | None = "",
    out: str | Path | None = None,
    on_progress: OnStage | None = None,
    on_build: OnProgress | None = None,
    **options: Any,
) -> EvaluationReport:
    """Measure storage, time and quality at several widths.

    Args:
        source: an index, or a corpus: a folder, a file, a BEIR folder, or `-`.
        dims: widths.
        taus: more widths, as hidden width / tau; neither: tau = 1, 2, 4, 8, 16.
        index_types: names or factory strings.
        filters: whose widths; None: an index's own; without one EmbedFilter for decoders, else truncation and PCA.
        queries: JSON lines or a BEIR folder; None: those of a BEIR corpus, else chunks that are held out.
        qrels: that judge them; None: those of a BEIR corpus, else there is no nDCG.
        query_vectors: of an index: the vectors of the queries, one for each in their order, as an .npy array or JSON;
            without `queries`, they ask and nothing judges them.
        target_recall: ann_recall@10 that approximate indexes are tuned to.
        cache: folder of raw vectors of a corpus; "": the user's; None: nothing is kept.
        out: a folder for results.csv, results.json, per_query.parquet and a picture.
        on_progress: called when a stage begins.
        on_build: called while a corpus is encoded.
        options: of a build, for a corpus; for an index what says where its model is and how it runs; and the filters'
            filter_offset, filter_seed, filter_sample, filter_topk.

    Returns:
        An evaluation of vectors, against the exact answers at full width; and one of search with words, against words
        alone, where there are texts and judged text queries.

    Raises:
        RagidxError: of the subclass that says what to do.
    """
    fields, made_with = _split(options)
    wanted = WidthChoice(tuple(dims or ()), tuple(taus or ()))
    types = tuple(dict.fromkeys(index_types))
    for name in types:
        IndexOptions(name, target_recall)  # which says what is wrong with it
    check_filters(filters or ())
    asked, judges = of_beir(Path(source), *(None if path is None else Path(path) for path in (queries, qrels)))
    if judges is not None and asked is None:
        raise SpecError("qrels judge queries, and there are none", "name their file with `queries`", where="`qrels`")
    if judges is not None:
        ir_measures()
    texts = None if asked is None else load_queries(asked)
    judged = None if texts is None else _judged(texts, judges)  # what is wrong with a file is said at once
    is_index = (Path(source) / MANIFEST).exists()
    if not is_index:
        _check_corpus(source, query_vectors)
    results = None if out is None else Path(out)
    if results is not None:
        check_out(results)
    tell = Stages(on_progress)
    with contextlib.ExitStack() as opens:
        folder = Path(opens.enter_context(tempfile.TemporaryDirectory(prefix="ragidx-sweep-")))
        if is_index:
            opened: VectorSource = IndexSource(source, made_with, query_vectors)
        else:
            tell("encoding the corpus")
            sample = fitted_sample(filters, fields)
            resolved = resolve_against(build_options("sweep", filter="none", **made_with))
            vectors = opens.enter_context(RawVectors(resolved, cache_folder(cache)))
            opened = CorpusSource(source, folder, vectors, fitted=sample, out=results, on_build=on_build)
        tell("encoding the queries")
        judged, of_queries = _queries(opened, asked, texts, judged)
        tell("fitting the filters")
        found = series_of(opened, filters, wanted, fields)
        series = [full_width(opened), *_without_full(found, opened)]
        task = Task(Path(source).resolve().name or str(source), INDEX if is_index else CORPUS, Path(source), judged)
        searches = Searches(MODES if judged.qrels else (DENSE,), types, target_recall=target_recall)
        meter = Rankings(
            judged.texts,
            judged.qrels,
            searches,
            folder,
            tell,
            measure=next(iter(MEASURES)) if judged.qrels else None,
            costs=True,
            vectors=of_queries,
        )
        tell.expect(meter.count(series))
        rows = list(meter.measure(opened, series))
        notes = [*opened.notes, *judged.notes, *(note for one in found for note in one.left_out), *meter.notes]
        notes += notes_on_fit(opened, series)
        sizes = opened.n_documents, opened.n_rows
    dense = [one for one in rows if one.configuration.mode == DENSE]
    reports = [report_of(task, dense, list(judged.texts), sizes, notes, Wanted())]
    if len(dense) < len(rows):
        with_words = [one for one in rows if one.configuration.mode != DENSE]
        of_words = report_of(task, with_words, list(judged.texts), sizes, [], Wanted())
        reports.append(dataclasses.replace(of_words, name=f"{task.name}, with words", notes=()))
    report = EvaluationReport(tuple(reports))
    return report if results is None else write_out(report, results)


def _judged(texts: dict[str, str], qrels: Path | None) -> Judged:
    """Queries, those that are judged where there are qrels."""
    return (
        Judged(texts, {})
        if qrels is None
        else judged_of(texts, load_qrels(qrels), functools.partial(place_in_qrels, qrels))
    )


def _queries(
    source: VectorSource, queries: Path | None, texts: dict[str, str] | None, judged: Judged | None
) -> tuple[Judged, Floats]:
    """What is asked, with its vectors: queries, given vectors, or some of the rows."""
    given = source.given
    if texts is None or judged is None:
        vectors = source.hold_out() if given is None else given
        count = len(vectors)
        note = f"There are no queries: {count:,} held-out chunks were asked." if given is None else ""
        return Judged({str(number): "" for number in range(1, count + 1)}, {}, (note,) if note else ()), vectors
    if given is not None and len(given) != len(texts):
        raise CorpusError(
            f"there are {len(given):,} vectors and {len(texts):,} queries",
            "give a vector for each query, in the order of their file",
            where=str(queries),
        )
    if judged.qrels:
        judged = dataclasses.replace(judged, notes=(*judged.notes, *check_documents(judged, source.doc_ids())))
    if given is None:
        return judged, source.encode(list(judged.texts.values()))
    return judged, given[[row for row, name in enumerate(texts) if name in judged.texts]]


def _without_full(series: Sequence[Series], source: VectorSource) -> Iterator[Series]:
    """What the rows of the full width do not show already: truncation to all coordinates is that."""
    for one in series:
        widths = tuple(width for width in one.widths if one.map is not None or width != source.dim)
        if widths:
            yield dataclasses.replace(one, widths=widths)


def _check_corpus(source: str | Path, query_vectors: str | Path | None) -> None:
    path = Path(source)
    if path.name.lower().endswith(_NPY) and path.is_file():
        raise SpecError(
            "a file of vectors is not a corpus: there is no text that a model could read",
            f"make an index of it and sweep that: ragidx build --vectors {path.name} --index DIR",
            where=str(source),
        )
    if query_vectors is not None:
        raise SpecError(
            "of a corpus the queries are encoded by the model that encodes the documents",
            "remove it, or sweep an index of precomputed vectors",
            where="`query_vectors`",
        )


def _split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of the filters that are swept, and what is said of the source.

    Raises:
        SpecError: an option that no sweep takes.
    """
    check_names("sweep", options, KNOWN)
    of_source: dict[str, Any] = dict(options)
    fields = {name: of_source.pop(f"filter_{name}", None) for name in _FILTER_FIELDS}
    return fields, of_source
