"""The estimate of `build --plan`: fields, a table of index types, one of widths, and advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ragidx.corpora.sources import BY_RULE
from ragidx.indexer.ann.index_types import FLAT, MIN_ROWS
from ragidx.indexer.encoders.methods import OWN_MODULES
from ragidx.pipelines.cli import console, describe
from ragidx.pipelines.cli.help import reasons

if TYPE_CHECKING:
    from ragidx.pipelines.plan.footprint import Room, WidthRoom
    from ragidx.pipelines.plan.plan import Forecast
    from ragidx.pipelines.plan.sample import Estimate

_LONG_SECONDS = 60.0
_LOADING_S = 2.0  # less is not shown
_TIMES = {"echo": 2, "reba": 2, "metaeol": 8}  # how often a method reads a text without `copies`


def print_forecast(f: Forecast) -> None:
    """All of it on stdout, advice last."""
    console.print_fields(_fields(f))
    click.echo()
    _print_index_types(f.room)
    if len(f.room.widths) > 1:
        click.echo()
        console.print_table(
            ["dimensions", "bytes a vector", "disk", "option"],
            [
                [
                    f"{one.dim:,}" + (" *" if number == 0 else ""),
                    f"{one.vector_bytes:,}",
                    console.n_bytes(one.disk_bytes),
                    _narrower(f, one),
                ]
                for number, one in enumerate(f.room.widths)
            ],
        )
    click.echo("* as requested; nothing was built")
    for line in advice(f):
        click.echo(console.printable(line))


def advice(f: Forecast) -> list[str]:
    """What prevents the build, and what would make it faster or smaller."""
    room, spec, lines = f.room, f.encoder, []
    needed = room.index_bytes + room.journal_bytes
    if needed > room.free_bytes:
        lines.append(
            f"The disk of the index has {console.n_bytes(room.free_bytes)} left, and the build needs "
            f"{console.n_bytes(needed)}: choose another folder with --index."
        )
    if room.limit_bytes is not None and room.build_bytes > room.limit_bytes:
        lines.append(
            f"This process may use {console.n_bytes(room.limit_bytes)} of memory, and the build needs "
            f"{console.n_bytes(room.build_bytes)}: use a smaller model, or --dtype bfloat16."
        )
    chosen = room.index_types[0]
    if room.max_memory is not None and not chosen.fits:
        lines.append(
            f"A search reads {console.n_bytes(chosen.search_bytes)} of vectors, more than --max-memory "
            f"{console.n_bytes(room.max_memory)}: segments of fewer than {MIN_ROWS:,} vectors are searched exactly."
        )
    if f.encode_seconds > _LONG_SECONDS:
        times = spec.copies or _TIMES.get(spec.method, 1)
        if times > 1:
            lines.append(
                f"To make it faster: {spec.method} reads each text {times} times, --method llm2vec and classical once."
            )
        if spec.layer != 0 and f.speed is not None and f.speed.device == "cpu":
            lines.append("To make it faster: use a GPU; --device auto takes one if there is one.")
    narrow = next((one for one in room.widths if one.tau is not None and _fits(room, one)), None)
    if narrow is not None and not _fits(room, room.widths[0]):
        lines.append(
            f"To make it fit: {_narrower(f, narrow)} keeps {narrow.dim:,} of {f.dim:,} numbers, "
            f"{console.n_bytes(narrow.disk_bytes)} in all; quality is not estimated: run `ragidx sweep`."
        )
    if f.truncated.value:
        lines.append("To lose no text: --chunk-size cuts documents into parts that the model reads whole.")
    return lines


def _narrower(f: Forecast, one: WidthRoom) -> str:
    """What to type for a width; empty for the requested one.

    A model that pools by itself mostly has no head, which the filter of --tau alone reads.
    """
    cut = f.filter.name == "none" and f.method in OWN_MODULES
    return "" if one.tau is None else f"{'--filter truncation ' * cut}--tau {one.tau}"


def _fits(room: Room, one: WidthRoom) -> bool:
    """Whether an index of this width has room on the disk, and within --max-memory."""
    search_bytes = room.index_types[0].search_bytes * one.vector_bytes / room.widths[0].vector_bytes
    return one.disk_bytes + room.journal_bytes <= room.free_bytes and (
        room.max_memory is None or search_bytes <= room.max_memory
    )


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


def _print_index_types(room: Room) -> None:
    """One row a type, and whether it fits --max-memory if set."""
    head = ["index type", "disk", "memory to search", "memory to build", "exact"]
    rows = [
        [
            one.index_type + (" *" if number == 0 else ""),
            console.n_bytes(one.disk_bytes),
            console.n_bytes(one.search_bytes),
            console.n_bytes(one.build_bytes),
            "yes" if one.exact else "no",
        ]
        for number, one in enumerate(room.index_types)
    ]
    if room.max_memory is not None:
        head.append(f"fits into {console.n_bytes(room.max_memory)}")
        rows = [[*row, "yes" if one.fits else "no"] for row, one in zip(rows, room.index_types, strict=True)]
    console.print_table(head, rows)


def _fields(f: Forecast) -> list[tuple[str, str]]:
    room = f.room
    everything = f.share_read >= 1
    read = "read whole" if everything else f"{100 * f.share_read:.2g} % read, a sample; the rest is estimated"
    gone = f", {f.removed:,} removed" if f.removed else ""
    fields = [
        ("corpus", f"{f.corpus}: {console.plural(f.n_files, 'file')}, {console.n_bytes(f.corpus_bytes)}, {read}"),
        ("model", f"{f.model}: {describe.encoder(f.encoder)}"),
        ("filter", describe.filter_(f.filter, f.dim)),
        (
            "documents",
            f"{_range(f.documents)}: {f.added.value:,} new, {f.changed.value:,} changed, "
            f"{f.unchanged.value:,} unchanged{gone}",
        ),
        (
            "chunks",
            f"{_range(f.chunks)}: {f.to_encode.value:,} to encode, {f.chunks.value - f.to_encode.value:,} reused",
        ),
        ("tokens", f"{_range(f.tokens)}, {f.tokens.value / max(1, f.to_encode.value):,.0f} a chunk"),
    ]
    if f.truncated.value:
        fields.append(("cut", f"{_range(f.truncated)} longer than the model reads"))
    if f.empty.value:
        fields.append(("empty", f"{_range(f.empty)} without text"))
    skipped = reasons({reason: count for reason, count in f.skipped.items() if reason not in BY_RULE})
    fields += [("skipped", f"{count:,} x {reason}") for reason, count in skipped.items()]
    fields.append(("speed", _speed(f)))
    fields += [
        ("time", _time(f)),
        (
            "disk",
            f"{console.n_bytes(room.index_bytes)}: {_parts(room)}; {console.n_bytes(room.journal_bytes)} more until "
            f"it is committed, {console.n_bytes(room.free_bytes)} free",
        ),
        ("memory", f"{console.n_bytes(room.build_bytes)} or so, the model included"),
    ]
    return fields


def _parts(room: Room) -> str:
    """The parts of the index, without the few bytes of its headers."""
    parts = {
        "vectors": room.vector_bytes,
        "texts": room.text_bytes,
        "words": room.lexical_bytes,
        "the filter": room.filter_bytes,
    }
    if not room.index_types[0].exact:
        parts[room.index_types[0].recipe] = room.index_bytes - sum(parts.values())
    return ", ".join(f"{name} {console.n_bytes(size)}" for name, size in parts.items() if size > 0)


def _speed(f: Forecast) -> str:
    from ragidx.indexer.encoders.protocol import TUNE_FROM  # loads numpy, which no --help needs

    s = f.speed
    if s is None:
        return "nothing to encode"
    is_small = f.to_encode.value < TUNE_FROM
    untuned = "" if s.tuned or s.device != "cpu" or is_small else "; the build tunes, and may be faster"
    return (
        f"{s.tokens_per_s:,.0f} tokens/s ({s.device}, {s.dtype}): the median of {s.n_groups} measured, "
        f"{console.plural(s.n_chunks, 'chunk')}, {s.low:,.0f} to {s.high:,.0f}{untuned}"
    )


def _time(f: Forecast) -> str:
    between = f" ({duration(f.seconds_low)} to {duration(f.seconds_high)})"
    making = "" if f.index_recipe == FLAT else f"; making {f.index_recipe} comes on top"
    words = f", {duration(f.lexical_seconds)} the words" if f.lexical_seconds else ""
    loading = f", {duration(f.load_seconds)} loading the model" if f.load_seconds >= _LOADING_S else ""
    return f"{duration(f.seconds)}{between}, {duration(f.encode_seconds)} of it encoding{loading}{words}{making}"


def _range(e: Estimate) -> str:
    return f"{e.value:,}" if e.exact else f"{e.value:,} ({e.low:,} to {e.high:,})"
