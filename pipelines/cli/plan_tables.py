"""The estimate of `build --plan`: what changes, how long, how big, and advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ragidx.corpora.sources import BY_RULE
from ragidx.indexer.ann.index_types import FLAT, MIN_ROWS
from ragidx.pipelines.cli import console, describe
from ragidx.pipelines.cli.help import reasons

if TYPE_CHECKING:
    from ragidx.pipelines.plan.footprint import IndexFootprint
    from ragidx.pipelines.plan.plan import Plan

_LOADING_S = 2.0  # less is not shown


def print_plan(p: Plan) -> None:
    """All of it on stdout, advice last."""
    console.print_fields(_fields(p))
    click.echo("Nothing was built.")
    for line in advice(p):
        click.echo(console.printable(line))


def advice(p: Plan) -> list[str]:
    """What prevents the build, and what would lose no text."""
    size, lines = p.footprint, []
    needed = size.index_bytes + size.journal_bytes
    if needed > size.free_bytes:
        lines.append(
            f"The disk of the index has {console.n_bytes(size.free_bytes)} left, and the build needs "
            f"{console.n_bytes(needed)}: choose another folder with --index."
        )
    if size.limit_bytes is not None and size.build_bytes > size.limit_bytes:
        lines.append(
            f"This process may use {console.n_bytes(size.limit_bytes)} of memory, and the build needs "
            f"{console.n_bytes(size.build_bytes)}: use a smaller model, or --dtype bfloat16."
        )
    if size.max_memory is not None and size.search_bytes > size.max_memory:
        lines.append(
            f"A search reads {console.n_bytes(size.search_bytes)} of vectors, more than --max-memory "
            f"{console.n_bytes(size.max_memory)}: segments of fewer than {MIN_ROWS:,} vectors are searched exactly."
        )
    if p.n_truncated:
        lines.append("To lose no text: --chunk-size cuts documents into parts that the model reads whole.")
    return lines


def duration(seconds: float) -> str:
    """A time for people, two units at most.

    >>> duration(0.04), duration(59.7), duration(190), duration(7260), duration(90_000)
    ('0.0 s', '1 min', '3 min 10 s', '2 h 1 min', '25 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, part, part_name in ((3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            more = whole % unit // part
            return f"{whole // unit} {name}" + (f" {more} {part_name}" if more else "")
    return f"{whole} s"


def _fields(p: Plan) -> list[tuple[str, str]]:
    size = p.footprint
    everything = p.share_read >= 1
    read = "read whole" if everything else f"{100 * p.share_read:.2g} % read, a sample; the rest is estimated"
    gone = f", {p.n_removed:,} removed" if p.n_removed else ""
    fields = [
        ("corpus", f"{p.corpus}: {console.plural(p.n_files, 'file')}, {console.n_bytes(p.corpus_bytes)}, {read}"),
        ("model", f"{p.model}: {describe.encoder(p.encoder)}"),
        ("filter", describe.filter_(p.filter, p.dim)),
        (
            "documents",
            f"{p.n_documents:,}: {p.n_added:,} new, {p.n_changed:,} changed, {p.n_unchanged:,} unchanged{gone}",
        ),
        (
            "chunks",
            f"{p.n_chunks:,}: {p.n_to_encode:,} to encode, {p.n_chunks - p.n_to_encode:,} reused",
        ),
        ("tokens", f"{p.n_tokens:,}, {p.n_tokens / max(1, p.n_to_encode):,.0f} a chunk"),
    ]
    if p.n_truncated:
        fields.append(("cut", f"{p.n_truncated:,} longer than the model reads"))
    if p.n_empty:
        fields.append(("empty", f"{p.n_empty:,} without text"))
    skipped = reasons({reason: count for reason, count in p.skipped.items() if reason not in BY_RULE})
    fields += [("skipped", f"{count:,} x {reason}") for reason, count in skipped.items()]
    fields.append(("speed", _speed(p)))
    reads = f"a search reads {console.n_bytes(size.search_bytes)} of vectors"
    fields += [*cost(p), ("memory", f"{console.n_bytes(size.build_bytes)} or so, the model included; {reads}")]
    return fields


def cost(p: Plan) -> list[tuple[str, str]]:
    """Time and disk."""
    size = p.footprint
    return [
        ("time", _time(p)),
        (
            "disk",
            f"{console.n_bytes(size.index_bytes)}: {_parts(size)}; {console.n_bytes(size.journal_bytes)} more until "
            f"it is committed, {console.n_bytes(size.free_bytes)} free",
        ),
    ]


def _parts(size: IndexFootprint) -> str:
    """The parts of the index, without the few bytes of its headers."""
    parts = {
        "vectors": size.vector_bytes,
        "their index": size.ann_bytes,
        "texts": size.text_bytes,
        "lexical": size.lexical_bytes,
        "the filter": size.filter_bytes,
    }
    return ", ".join(f"{name} {console.n_bytes(count)}" for name, count in parts.items() if count > 0)


def _speed(p: Plan) -> str:
    from ragidx.indexer.encoders.protocol import TUNE_FROM  # loads numpy, which no --help needs

    s = p.speed
    if s is None:
        return "nothing to encode"
    is_small = p.n_to_encode < TUNE_FROM
    untuned = "" if s.tuned or s.device != "cpu" or is_small else "; the build tunes, and may be faster"
    return (
        f"{s.tokens_per_s:,.0f} tokens/s ({s.device}, {s.dtype}), measured on "
        f"{console.plural(s.n_chunks, 'chunk')}{untuned}"
    )


def _time(p: Plan) -> str:
    making = "" if p.index_recipe == FLAT else f"; making {p.index_recipe} comes on top"
    lexical = f", {duration(p.lexical_seconds)} the lexical part" if p.lexical_seconds else ""
    loading = f", {duration(p.load_seconds)} loading the model" if p.load_seconds >= _LOADING_S else ""
    return f"{duration(p.seconds)}, {duration(p.encode_seconds)} of it encoding{loading}{lexical}{making}"
