"""The notes below a build's table: removals, memory, and what was skipped."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragidx.corpora.sources import BY_RULE
from ragidx.indexer.ann.index_types import MIN_ROWS
from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.help import as_options, reasons
from ragidx.pipelines.ingest.report import BuildReport

_TABLES = {".parquet": "parquet", ".arrow": "feather", ".feather": "feather"}
_NAMES = 3
_FILES = 5
_REASONS = 12  # shown on a terminal; a broken export can have as many as it has records


def tell_vectors(corpus: str) -> None:
    """On stderr: the file has a column of vectors, of which a build of texts makes metadata."""
    path = Path(corpus)
    if path.suffix.lower() not in _TABLES or not path.is_file():
        return
    import pyarrow as pa
    from pyarrow import dataset

    from ragidx.corpora.vectors.fields import is_vectors

    with contextlib.suppress(pa.ArrowException, OSError):
        schema = dataset.dataset(path, format=_TABLES[path.suffix.lower()]).schema
        name = next((field.name for field in schema if is_vectors(field.type)), None)
        if name is not None:
            console.note(
                f"The column '{name}' holds vectors, and the texts are encoded; --vectors indexes the vectors."
            )


def tell_memory(r: BuildReport) -> None:
    """On stderr: a search needs more than --max-memory."""
    if r.over_memory is not None:
        least = f"{MIN_ROWS:,} vectors"
        remedy = f"; `ragidx compact` merges the {len(r.segment_types)} segments" if len(r.segment_types) > 1 else ""
        console.note(
            f"Over --max-memory: a search reads {console.n_bytes(r.over_memory.search_bytes)} of vectors, more than "
            f"{console.n_bytes(r.over_memory.max_memory)}; segments of fewer than {least} are searched exactly{remedy}."
        )


def tell_layer(r: BuildReport) -> None:
    """On stderr: which layer was chosen, and why."""
    if r.layer_scores and r.encoder is not None:
        last = len(r.layer_scores)
        layer = last if r.encoder.layer == -1 else r.encoder.layer
        other = "" if layer == last else f"; {r.layer_scores[-1]:.2f} with the last"
        console.note(
            f"Layer {layer} of {last} was chosen: ten words of a text and the rest of it find each other with a mean "
            f"reciprocal rank of {r.layer_scores[layer - 1]:.2f}{other}."
        )


def tell_removed(r: BuildReport) -> None:
    """On stderr: what was removed, and how it comes back."""
    if r.n_removed:
        last, what = r.generation - 1, "it" if r.n_removed == 1 else "them"
        console.note(
            f"Removed: {r.n_removed:,}{_names(r.removed, r.n_removed)}; `ragidx rollback {last}` brings {what} back "
            f"while generation {last} is kept."
        )


def tell_kept(r: BuildReport, noun: str = "document") -> None:
    """On stderr: documents that are as they were because their files cannot be read, and what stays out."""
    if r.n_unreadable:
        console.note(
            f"Not readable now, kept as before: {console.plural(r.n_unreadable, 'document')}"
            f"{_names(r.unreadable, r.n_unreadable)}."
        )
    if r.n_deleted_before:
        console.note(
            f"Deleted earlier, skipped: {console.plural(r.n_deleted_before, noun)}; --restore adds them again."
        )


def _names(shown: Sequence[str], count: int) -> str:
    """The first ids, in parentheses; nothing where none is listed."""
    if not shown:
        return ""
    return f" ({', '.join(shown[:_NAMES])}{', ...' if count > min(len(shown), _NAMES) else ''})"


def tell_fields(r: BuildReport) -> None:
    """On stderr: how files with records are read since this build, and fields that are not what they seem."""
    new = [(name, fields) for name, fields in r.fields.items() if fields["new"]]
    for name, fields in new[:_FILES]:
        named = {"title": fields["title"], "id": fields.get("id")}
        options = "--text-field" if fields["text"] is not None else "--id-field"
        if fields["text"] is not None:
            named = {"text": ", ".join(fields["text"]) or "every field, as lines"} | named
            options += " and --id-field" if fields.get("id") else ""
        said = "; ".join(f"{key} = {value}" for key, value in named.items() if value)
        console.note(console.printable(f"{name}: {said}; change it with {options}"))
    if len(new) > _FILES:
        console.note(f"and {len(new) - _FILES:,} more files by the values of their fields: --json lists all of them.")
    for name, kinds in list(r.mixed_fields.items())[:_FILES]:
        console.note(f"Mixed: the field '{console.printable(name)}' has values of {', '.join(kinds)}, and is text.")
    if r.n_shared_fields:
        from ragidx.indexer.writing.field_bounds import MAX_FIELDS, SHARED  # pyarrow, which no --help needs

        left_out = f" {r.n_values_dropped:,} values had no room there." if r.n_values_dropped else ""
        console.note(
            f"Fields: an index has at most {MAX_FIELDS:,}; {r.n_shared_fields:,} more share "
            f"'{SHARED}', as JSON.{left_out}"
        )


def with_options(data: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a build or a plan, its reasons for skipping in the command line's words."""
    return data | {name: reasons(data[name]) for name in ("skipped", "skipped_places") if name in data}


def tell_skips(r: BuildReport) -> None:
    """What was skipped, on stderr."""
    for reason, count in list(r.skipped.items())[:_REASONS]:
        console.note(f"Skipped: {count:,} x {as_options(reason)}")
        if reason in BY_RULE or not r.committed:  # the user chose this, or the build that changed something has said it
            continue
        for place in r.skipped_places[reason][:3]:
            console.note(f"    {place}")
        if count > 3:
            console.note(f"    and {count - 3:,} more")
    if len(r.skipped) > _REASONS:
        console.note(f"Skipped for {len(r.skipped) - _REASONS:,} more reasons: --json lists all of them.")
