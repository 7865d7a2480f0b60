"""`ragidx build --vectors`: an index of precomputed vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any

import click

from ragidx.pipelines.cli import console, describe, interrupts
from ragidx.pipelines.cli.build_notes import tell_kept, tell_memory, tell_removed, tell_skips, with_options
from ragidx.pipelines.cli.options import FILTER_OPTIONS, typed_options
from ragidx.pipelines.cli.progress import ProgressLine
from ragidx.pipelines.ingest.options import QUERY_OPTIONS, STORE_OPTIONS
from ragidx.pipelines.ingest.report import BuildReport, QueryModelCheck

_QUERY = {*QUERY_OPTIONS, *FILTER_OPTIONS} - {"filter_sample", "filter_topk"}
_TIMED_ROWS = 10_000  # fewer give no useful rate
_COMMON = ("vectors", "vector_field", "index", "as_json", "model", "offline", "config")


def check_usage(corpus: Sized, vectors: str | None, vector_field: str | None, index: Path) -> None:
    """Refuse arguments that exclude each other.

    Raises:
        click.UsageError: names them.
    """
    if corpus and vectors is not None:
        raise click.UsageError("give CORPUS or --vectors FILE, not both")
    if not corpus and vectors is None and not index.exists():
        raise click.UsageError("give CORPUS or --vectors FILE")
    if vectors is None and vector_field is not None:
        raise click.UsageError("--vector-field names a column of --vectors")
    if vectors is None:
        return
    typed = typed_options()
    for name, option in typed.items():
        if name in _QUERY and "model" not in typed:
            raise click.UsageError(
                f"{option} is about the model that encodes questions: add --model, or remove {option}"
            )
        if name not in {*STORE_OPTIONS, *_COMMON, *_QUERY}:
            raise click.UsageError(f"{option} does not apply to precomputed vectors: remove it")


def build(vectors: str, vector_field: str | None, index: Path, as_json: bool, options: Mapping[str, Any]) -> None:
    """Build, with progress and report."""
    from ragidx.pipelines.vectors.build import build_vectors

    taken: dict[str, Any] = {
        name: value for name, value in options.items() if name in ("model", *QUERY_OPTIONS, *STORE_OPTIONS)
    }
    line = ProgressLine(as_json=as_json)
    with interrupts.reported(lambda: interrupts.START_AGAIN), line:
        report = build_vectors(vectors, index, on_progress=line.callback, vector_field=vector_field, **taken)
    if as_json:
        console.print_json(with_options(report.to_json()))
    else:
        _tell(report)


def _tell(r: BuildReport) -> None:
    """The report on stdout; what was skipped, on stderr."""
    made_by = "" if r.spec.precomputed is None else r.spec.precomputed.made_by
    gone = f", {r.n_removed:,} removed" if r.n_removed else ""
    checking = f" (and {r.encode_seconds:.1f} s for the model)" if r.encode_seconds else ""
    seconds = r.seconds - r.encode_seconds
    console.print_fields(
        [
            ("index", f"{r.index}  (generation {r.generation}{'' if r.committed else ', unchanged'})"),
            ("vectors", f"{r.dim:,} numbers each, precomputed" + (f" by {made_by}" if made_by else "")),
            *([] if r.queries is None else [("questions", _questions(r.queries))]),
            (
                "rows",
                f"{r.n_chunks:,}: {r.n_added:,} new, {r.n_changed:,} changed, {r.n_unchanged:,} unchanged{gone}",
            ),
            ("documents", f"{r.n_documents:,}"),
            *describe.searched_field(r.index_type, r.segment_types, r.recall),
            ("words", describe.words(r.lexical, r.lexical_setting)),
            ("size", describe.size(r.index_bytes, r.n_chunks, "row")),
            ("time", f"{seconds:.1f} s{_rate(r, seconds)}{checking}"),
        ]
    )
    if r.input_dim is not None:
        console.note(f"Cut: the vectors of the file have {r.input_dim:,} numbers, the index keeps the first {r.dim:,}.")
    tell_removed(r)
    tell_kept(r, "row")
    tell_memory(r)
    tell_skips(r)


def _rate(r: BuildReport, seconds: float) -> str:
    """Rows per second; nothing for few rows, whose time is mostly start and end."""
    n_new = r.n_added + r.n_changed
    return f", {n_new / max(seconds, 1e-9):,.0f} vectors/s" if n_new >= _TIMED_ROWS and not r.n_unchanged else ""


def _questions(queries: QueryModelCheck) -> str:
    """Which model encodes questions, and whether it made the vectors."""
    by = f"by {queries.encoder.model}"
    if queries.n_checked is None:
        return f"{by}, unchanged"
    if queries.median_cosine is None or queries.least_cosine is None:
        return f"{by}, not checked: the rows have no texts"
    again = f"{console.plural(queries.n_checked, 'text')} encoded again"
    return f"{by}: {again}, cosine {queries.median_cosine:.4f} (median), {queries.least_cosine:.4f} (least)"
