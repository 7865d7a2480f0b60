"""The notes below a build's table: what was cut, removed, chosen and skipped."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any

from ragidx.corpora.errors import install
from ragidx.corpora.left_out import GUESS, LOST, RULE, UNKNOWN, UNKNOWN_SCRIPT
from ragidx.corpora.sources import BY_RULE, PICTURE
from ragidx.indexer.ann.index_types import MIN_ROWS
from ragidx.pipelines.cli import console, describe
from ragidx.pipelines.cli.help import as_options, reasons
from ragidx.pipelines.ingest.report import SPENT, BuildReport

_WORDS = {LOST: "Lost", GUESS: "Read by a guess", UNKNOWN: "Not known"}
_NAMES = 3
_FILES = 5
_REASONS = 12  # shown on a terminal; a broken export can have as many as it has records


def notes(r: BuildReport) -> Iterator[str]:
    """A line each, for stderr."""
    noun = "document" if r.spec.precomputed is None else "row"
    if r.input_dim is not None:
        yield f"Cut: the vectors of the file have {r.input_dim:,} dimensions, the index keeps the first {r.dim:,}."
    if r.endpoint is not None and r.endpoint.n_cut:
        cut = console.plural(r.endpoint.n_cut, "text")
        yield f"Cut by the endpoint: {cut} longer than its model reads; a smaller --chunk-size keeps all of their text."
    if r.n_truncated:
        cut = console.plural(r.n_truncated, "document")
        yield f"Cut: {cut} longer than the model reads; --chunk-size keeps all of their text."
    if r.n_empty:
        yield f"Without text: {console.plural(r.n_empty, 'document')}."
    if r.unknown:
        unknown = describe.unknown(r.unknown, has_words=r.lexical is not None)
        yield f"Not known to the model: {unknown}; `ragidx doctor --index {r.index}` says more."
    yield from _fields(r)
    if r.n_removed:
        last, what = r.generation - 1, "it" if r.n_removed == 1 else "them"
        yield (
            f"Removed: {r.n_removed:,}{_names(r.removed, r.n_removed)}; `ragidx rollback {last}` brings {what} back "
            f"while generation {last} is kept."
        )
    if r.removed_folders:
        folders = ", ".join(f"{name} {count:,}" for name, count in r.removed_folders.items())
        yield f"Removed of folders that are empty or gone: {folders}."
    if r.n_unreadable:
        unreadable = f"{console.plural(r.n_unreadable, 'document')}{_names(r.unreadable, r.n_unreadable)}"
        yield f"Not readable now, kept as before: {unreadable}."
    if r.n_deleted_before:
        yield f"Deleted earlier, skipped: {console.plural(r.n_deleted_before, noun)}; --restore adds them again."
    if r.over_memory is not None:
        remedy = f"; `ragidx compact` merges the {len(r.segment_types)} segments" if len(r.segment_types) > 1 else ""
        yield (
            f"Over --max-memory: a search reads {console.n_bytes(r.over_memory.search_bytes)} of vectors, more than "
            f"{console.n_bytes(r.over_memory.max_memory)}; segments of fewer than {MIN_ROWS:,} vectors are searched "
            f"exactly{remedy}."
        )
    yield from _skips(r)
    yield from _left(r)


def with_options(data: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a build or a plan, its reasons for skipping in the command line's words."""
    return data | {name: reasons(data[name]) for name in ("skipped", "skipped_places") if name in data}


def _names(shown: Sequence[str], count: int) -> str:
    """The first ids, in parentheses; nothing where none is listed."""
    if not shown:
        return ""
    return f" ({', '.join(shown[:_NAMES])}{', ...' if count > min(len(shown), _NAMES) else ''})"


def _fields(r: BuildReport) -> Iterator[str]:
    """How files with records are read since this build, and fields that are not what they seem."""
    new = [(name, fields) for name, fields in r.fields.items() if fields["new"]]
    for name, fields in new[:_FILES]:
        named = {"title": fields["title"], "id": fields.get("id")}
        options = "--text-field" if fields["text"] is not None else "--id-field"
        if fields["text"] is not None:
            named = {"text": ", ".join(fields["text"]) or "every field, as lines"} | named
            options += " and --id-field" if fields.get("id") else ""
        said = "; ".join(f"{key} = {value}" for key, value in named.items() if value)
        yield console.printable(f"{name}: {said}; change it with {options}")
    if len(new) > _FILES:
        yield f"and {len(new) - _FILES:,} more files by the values of their fields: --json lists all of them."
    for mixed, kinds in list(r.mixed_fields.items())[:_FILES]:
        usual, *others = kinds
        rest = "".join(f", and of {kind} in {', '.join(map(console.printable, kinds[kind]))}" for kind in others)
        yield f"Mixed: the field '{console.printable(mixed)}' has values of {usual}{rest}: it is text."
    if r.n_shared_fields:
        from ragidx.indexer.writing.field_bounds import MAX_FIELDS, SHARED  # pyarrow, which no --help needs

        dropped = f" {r.n_values_dropped:,} values had no room there." if r.n_values_dropped else ""
        shared = f"{r.n_shared_fields:,} more share '{SHARED}', as JSON."
        yield f"Fields: an index has at most {MAX_FIELDS:,}; {shared}{dropped}"


def _skips(r: BuildReport) -> Iterator[str]:
    """What was skipped, with the first places of each reason."""
    for reason, count in list(r.skipped.items())[:_REASONS]:
        yield f"Skipped: {count:,} x {as_options(reason)}"
        if reason in BY_RULE or not r.committed:  # the user chose this, or the build that changed something has said it
            continue
        yield from (f"    {place}" for place in r.skipped_places[reason][:3])
        if count > 3:
            yield f"    and {count - 3:,} more"
        if reason.startswith(SPENT):
            yield "    not read again while unchanged; --retry tries them once more"
        if reason == PICTURE:
            yield _wheel()
    if len(r.skipped) > _REASONS:
        yield f"Skipped for {len(r.skipped) - _REASONS:,} more reasons: --json lists all of them."


def _wheel() -> str:
    """How scanned pages and pictures are read."""
    missing = importlib.util.find_spec("faster_paddle") is None
    return "    --ocr auto reads Latin and Chinese" + (f", after {install('ocr')}" if missing else "")


def _left(r: BuildReport) -> Iterator[str]:
    """What is not in the texts of documents: a line a kind, and one for all that rules leave out."""
    for kind, one in r.left.items():
        if one["class"] != RULE:
            shown = ", ".join(map(console.printable, one["places"][:_NAMES]))
            more = ", ..." if one["files"] > _NAMES else ""
            of = f"in {console.plural(one['files'], 'file')} ({shown}{more})"
            yield f"{_WORDS[one['class']]}: {one['count']:,} x {kind} {of}"
            if kind == "scanned pages" and "pages read by OCR" not in r.left and r.committed:
                yield _wheel()
            if kind == UNKNOWN_SCRIPT and r.committed:
                yield "    --ocr with a language of tesseract reads them, such as --ocr rus"
    by_rule = [f"{one['count']:,} x {kind}" for kind, one in r.left.items() if one["class"] == RULE]
    if by_rule:
        yield f"Left out by rule: {', '.join(by_rule)}."
