"""The report of a build on a terminal: a table, and the notes below it."""

from __future__ import annotations

from ragidx.pipelines.cli import console, describe
from ragidx.pipelines.cli.build_notes import notes, with_options
from ragidx.pipelines.ingest.report import BuildReport, QueryModelCheck

_TIMED_ROWS = 10_000  # fewer give no useful rate
_MANY_DEAD = 100  # dead rows: fewer are nobody's concern after a build, and `info` has them


def tell_report(r: BuildReport, *, as_json: bool) -> None:
    """The report on stdout; what was skipped, on stderr."""
    if as_json:
        console.print_json(with_options(r.to_json()))
        return
    is_of_vectors = r.spec.precomputed is not None
    console.print_fields(
        [
            ("index", f"{r.index}  (generation {r.generation}{'' if r.committed else ', unchanged'})"),
            *(_of_vectors(r) if is_of_vectors else [*_of_texts(r), *_largest(r)]),
            *describe.searched_field(r.index_type, r.segment_types, r.recall, r.code_bytes),
            ("words", describe.words(r.lexical, r.lexical_setting)),
            ("size", describe.size(r.index_bytes, r.n_chunks, "row" if is_of_vectors else "chunk")),
            *describe.dead_rows(r.n_dead, r.n_chunks, _MANY_DEAD),
            *_endpoint(r),
            ("time", _time_of_vectors(r) if is_of_vectors else f"{r.seconds:.1f} s{_encoding(r)}"),
        ]
    )
    for line in notes(r):
        console.note(line)


def _largest(r: BuildReport) -> list[tuple[str, str]]:
    from ragidx.indexer.store import Store

    return describe.largest(Store.open(r.index)) if r.committed else []


def _of_texts(r: BuildReport) -> list[tuple[str, str]]:
    """What was encoded, and how."""
    others = r.n_documents - r.n_added - r.n_changed - r.n_unchanged
    counts = (
        (r.n_removed, "removed"),
        (r.n_unreadable, "not readable now"),
        (others - r.n_unreadable, "in other sources"),
    )
    more = "".join(f", {count:,} {what}" for count, what in counts if count > 0)
    unopened = f", {console.plural(r.n_files_unopened, 'file')} not opened" if r.n_files_unopened else ""
    fitted = f", fitted on {console.plural(r.n_fitted, 'chunk')} of the corpus" if r.n_fitted else ""
    return [
        ("model", f"{r.model}: {describe.encoder(r.spec.encoder)}"),
        ("filter", describe.filter_(r.spec.filter, r.dim) + fitted),
        *describe.mean_cosines(r.mean_cosines, "chunk"),
        ("documents", f"{r.n_documents:,}: {_changes(r)}{more}{unopened}"),
        ("chunks", f"{r.n_chunks:,}: {_chunks(r)}"),
    ]


def _of_vectors(r: BuildReport) -> list[tuple[str, str]]:
    """The precomputed vectors, and the model of questions."""
    made_by = "" if r.spec.precomputed is None else r.spec.precomputed.made_by
    removed = f", {r.n_removed:,} removed" if r.n_removed else ""
    return [
        ("vectors", f"{r.dim:,} dimensions, precomputed" + (f" by {made_by}" if made_by else "")),
        *([] if r.queries is None else [("questions", _questions(r.queries))]),
        ("rows", f"{r.n_chunks:,}: {_changes(r)}{removed}"),
        ("documents", f"{r.n_documents:,}"),
    ]


def _changes(r: BuildReport) -> str:
    return f"{r.n_added:,} new, {r.n_changed:,} changed, {r.n_unchanged:,} unchanged"


def _endpoint(r: BuildReport) -> list[tuple[str, str]]:
    """The row on what a server was asked, if it was."""
    used = r.endpoint
    if used is None:
        return []
    tokens = "tokens not counted by it" if used.n_tokens is None else f"{console.plural(used.n_tokens, 'token')} read"
    again = f", {used.n_retries:,} sent again" if used.n_retries else ""
    return [("endpoint", f"{used.url}: {console.plural(used.n_requests, 'request')}{again}, {tokens}")]


def _encoding(r: BuildReport) -> str:
    """How much of the time went into encoding, how fast, and on what; without encoding, on what alone."""
    if not (r.n_encoded and r.encode_seconds > 0):
        return f" ({r.device}, {r.dtype})" if r.device else ""
    rate = console.pace(r.n_encoded, r.encode_seconds)
    return f", {r.encode_seconds:.2f} s of it encoding ({rate}; {r.device}, {r.dtype})"


def _chunks(r: BuildReport) -> str:
    """How the chunks came about; unchanged documents were not cut again."""
    if r.n_chunks_unchanged and not r.n_encoded and not r.n_chunks_reused:
        return f"{r.n_chunks_unchanged:,} unchanged"
    kept = f", {r.n_chunks_unchanged:,} unchanged" if r.n_chunks_unchanged else ""
    return f"{r.n_encoded:,} encoded, {r.n_chunks_reused:,} reused{kept}"


def _time_of_vectors(r: BuildReport) -> str:
    """Seconds, and rows a second; no rate for few rows, whose time is mostly start and end."""
    seconds, n_new = r.seconds - r.encode_seconds, r.n_added + r.n_changed
    is_timed = n_new >= _TIMED_ROWS and not r.n_unchanged
    rate = f", {n_new / max(seconds, 1e-9):,.0f} vectors/s" if is_timed else ""
    checking = f" (and {r.encode_seconds:.1f} s for the model)" if r.encode_seconds else ""
    return f"{seconds:.1f} s{rate}{checking}"


def _questions(queries: QueryModelCheck) -> str:
    """Which model encodes questions, and whether it made the vectors."""
    by = f"by {queries.encoder.model}"
    if queries.n_checked is None:
        return f"{by}, unchanged"
    if queries.median_cosine is None or queries.least_cosine is None:
        return f"{by}, not checked: the rows have no texts"
    again = f"{console.plural(queries.n_checked, 'text')} encoded again"
    return f"{by}: {again}, cosine {queries.median_cosine:.4f} (median), {queries.least_cosine:.4f} (least)"
