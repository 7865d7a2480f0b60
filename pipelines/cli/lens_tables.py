"""What `ragidx lens` prints: tables of tokens, of what query and hit share, and of the spectrum."""

from __future__ import annotations

import itertools
import sys
import textwrap
from typing import TYPE_CHECKING

import click

from ragidx.pipelines.cli import console, describe
from ragidx.retriever.passages import nearest

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.lens.lens import HitLens, Lens, TextLens
    from ragidx.pipelines.experiments.lens.spectrum import SpectrumReport

_FITS = 0.3  # correlation with log p below which a note warns that the average token does not follow frequency
_STRONGEST = 4  # directions named for each group


def print_lens(seen: TextLens | HitLens) -> None:
    """How the vectors were made; the tokens of a text, or of a query, its hit, and those that both write."""
    from ragidx.pipelines.experiments.lens.lens import HitLens

    rows = [
        ("model", f"{seen.model}: {describe.encoder(seen.encoder)}"),
        ("filter", describe.filter_(seen.filter, seen.dim)),
    ]
    if not isinstance(seen, HitLens):
        console.print_fields(rows)
        click.echo()
        _print_lens(seen.lens)
        return
    room = console.width(sys.stdout)
    console.print_fields([("index", seen.index), *rows])
    click.echo(f"\n{click.style('query', bold=True)}")
    _print_passage(seen.query.text, room)
    _print_lens(seen.query)
    hit = seen.hit
    source = console.printable(hit.doc_id) + (f"  › {console.printable(hit.heading)}" if hit.heading else "")
    click.echo(f"\n{click.style(f'hit {hit.rank}', bold=True)}  {hit.score:5.3f}  {click.style(source, fg='cyan')}")
    _print_passage(nearest(hit.text, seen.query.text)[0], room)
    _print_lens(seen.written)
    click.echo()
    _print_shared(seen)


def _print_passage(text: str, room: int) -> None:
    for line in textwrap.wrap(console.printable(text), room - 4):
        click.echo(f"    {line}")


def _print_lens(lens: Lens) -> None:
    """Columns of tokens and logits; without a filter only `before`."""
    filtered = bool(lens.after)
    columns = {"before": lens.before} | ({"after": lens.after, "removed": lens.removed} if filtered else {})
    rows = [
        [cell for entry in row for cell in (("", "") if entry is None else (entry.token, f"{entry.logit:.3f}"))]
        for row in itertools.zip_longest(*columns.values())
    ]
    console.print_table([cell for name in columns for cell in (name, "logit")], rows)
    if filtered:
        click.echo(f"removed: {100 * lens.removed_share:.1f} % of the vector's squared length")


def _print_shared(seen: HitLens) -> None:
    if not seen.shared:
        click.echo("The two share no token.")
        return
    console.print_table(
        ["both write", "part of the score", "query", "hit"],
        [[each.token, f"{each.share:.4f}", f"{each.query:.3f}", f"{each.hit:.3f}"] for each in seen.shared],
    )
    shared = sum(each.share for each in seen.shared)
    click.echo(f"{shared:.3f} of the score of {seen.score:.3f}; the rest is spread over the whole vocabulary")


def print_spectrum(report: SpectrumReport) -> None:
    """What was counted, the shares of the edges, and the strongest directions of each group."""
    r = report
    width = r.values.size
    console.print_fields(
        [
            ("model", f"{r.model}: {width} directions, {r.n_vocabulary:,} tokens"),
            (
                "counted",
                f"{r.n_tokens:,} tokens, {r.n_distinct:,} of them different, in {console.plural(r.n_texts, 'text')} of"
                f" {r.source}",
            ),
            ("filter", describe.filter_(r.filter, r.dim)),
            (
                "average",
                f"its logits have a correlation of {r.fit:.2f} with log p" + (", mean subtracted" if r.centred else ""),
            ),
            *(
                describe.mean_cosines(r.mean_cosines, "text")
                or [("cosines", "not measured: the model gave no vectors")]
            ),
        ]
    )
    click.echo()
    console.print_table(
        ["share of Σ|Δ|", "directions", *(group.name for group in r.groups), "none preferred"],
        [
            [
                parts[0].name,
                f"{parts[0].n_directions}",
                *(f"{100 * part.share:.1f} %" for part in parts),
                f"{100 * parts[0].n_directions / width:.1f} %",
            ]
            for parts in zip(*(group.parts for group in r.groups), strict=True)
        ],
    )
    click.echo()
    console.print_table(
        [f"{len(r.groups[0].ids)} tokens", "mean log p", "mean logit", "largest |Δ|: direction and Δ"],
        [[g.name, f"{g.log_p:.2f}", f"{g.logit:.2f}", _strongest(g.delta.tolist())] for g in r.groups],
    )
    if r.fit < _FITS:
        console.note(
            "The average token does not follow frequencies in this head, so Δ says little about them"
            + ("." if r.centred else "; see --centred.")
        )


def _strongest(delta: list[float]) -> str:
    order = sorted(range(len(delta)), key=lambda i: -abs(delta[i]))[:_STRONGEST]
    return ", ".join(f"{i} ({delta[i]:+.3f})" for i in order)
