"""Sweep: which dimension to take, and which index. Storage, time and quality at every width, from one encoding.

corpus -> raw vectors, encoded once -> for each filter, width and index type the files of a real segment, which are
written, mapped, searched and removed -> a row. An index can be swept in place of a corpus. What every row is compared
with is the full width in float32, every vector of it. Nothing stays behind but what `out` names.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann.index_types import DEFAULT_RECALL, FLAT, IndexOptions
from ragidx.indexer.specs import ENCODER_OPTIONS
from ragidx.indexer.store.files import MANIFEST
from ragidx.pipelines.evaluate.grid import OnStage, Stages
from ragidx.pipelines.evaluate.sources.corpus import CorpusSource
from ragidx.pipelines.evaluate.sources.raw_vectors import RawVectors
from ragidx.pipelines.evaluate.sources.series import WidthChoice, check_filters, fitted_sample, series_of
from ragidx.pipelines.evaluate.sources.source import IndexSource, Source, evaluation_of
from ragidx.pipelines.ingest.options import CORPUS_OPTIONS, RUN_OPTIONS, build_options, check_names
from ragidx.pipelines.ingest.report import OnProgress
from ragidx.pipelines.ingest.resolve import resolve_against
from ragidx.pipelines.sweep.files import check_out, write_out
from ragidx.pipelines.sweep.grid import Sweep
from ragidx.pipelines.sweep.report import SweepReport

_FILTER_FIELDS = ("offset", "seed", "sample", "topk")
KNOWN = (
    *("model", *ENCODER_OPTIONS, *RUN_OPTIONS, "chunks", *CORPUS_OPTIONS, "records", "fields"),
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
    out: str | Path | None = None,
    on_progress: OnStage | None = None,
    on_build: OnProgress | None = None,
    **options: Any,
) -> SweepReport:
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
        out: a folder for sweep.json, sweep.csv, sweep.svg and sweep.png.
        on_progress: called when a stage begins.
        on_build: called while a corpus is encoded.
        options: of a build, for a corpus; for an index what says where its model is and how it runs; and the filters'
            filter_offset, filter_seed, filter_sample, filter_topk.

    Raises:
        RagidxError: of the subclass that says what to do.
    """
    fields, made_with = _split(options)
    wanted = WidthChoice(tuple(dims or ()), tuple(taus or ()))
    types = [IndexOptions(name, target_recall) for name in dict.fromkeys(index_types)]
    check_filters(filters or ())
    asked, judged = (None if path is None else Path(path) for path in (queries, qrels))
    asked, judged = evaluation_of(source, asked, judged)
    is_index = (Path(source) / MANIFEST).exists()
    if not is_index:
        _check_corpus(source, query_vectors)
    if out is not None:
        check_out(Path(out))
    tell = Stages(on_progress)
    with contextlib.ExitStack() as opens, tempfile.TemporaryDirectory(prefix="ragidx-sweep-") as temporary:
        folder = Path(temporary)
        if is_index:
            opened: Source = IndexSource(source, made_with, query_vectors)
        else:
            tell("encoding the corpus")
            sample = fitted_sample(filters, fields)
            results = None if out is None else Path(out)
            resolved = resolve_against(build_options("sweep", filter="none", **made_with))
            vectors = opens.enter_context(RawVectors(resolved, None))
            opened = CorpusSource(source, folder, vectors, fitted=sample, out=results, on_build=on_build)
        tell("encoding the queries")
        questions = opened.ask(asked, judged)
        tell("fitting the filters")
        series = series_of(opened, filters, wanted, fields)
        report = Sweep(opened, questions, series, types, folder, tell).run()
    if out is not None:
        report = write_out(report, Path(out))
    return report


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
