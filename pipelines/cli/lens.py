"""`ragidx lens`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragidx.corpora.records import json_text
from ragidx.corpora.sources import BY_RULE
from ragidx.indexer.options import ENCODER_OPTIONS, RunOptions
from ragidx.pipelines.cli import console, lens_tables
from ragidx.pipelines.cli.help import GroupedCommand, as_options
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.options import (
    json_option,
    offline_option,
    path_option,
    typed_options,
)
from ragidx.pipelines.cli.vector_options import (
    FILTER_OPTIONS,
    encoder_options,
    filter_options,
    with_values,
)
from ragidx.pipelines.ingest.report import Skips

if TYPE_CHECKING:
    from ragidx.pipelines.experiments.lens.lens import HitLens, TextLens
    from ragidx.pipelines.experiments.lens.spectrum import SpectrumReport

_ELSEWHERE = "choose another file with --out"

# Options that decide a vector; `--instruction` has another meaning here than in a build.
_ENCODER = set(ENCODER_OPTIONS) - {"instruction"}
_PLACES = {"model", "adapters", "pooler"}  # where the index's own files are now
_SPECTRUM = {"corpus", "tokens", "centred", "out"}
_HIT = {"hit", "where"}


@click.command("lens", cls=GroupedCommand)
@click.argument("text", metavar="TEXT", required=False)
@path_option("--index", "DIR", "TEXT is a query to this index: show a hit beside it.")
@click.option("--hit", type=int, default=1, show_default=True, metavar="N", help="With --index: which hit to show.")
@click.option("--where", metavar="EXPR", help="With --index: a condition on metadata, as in a query.")
@click.option("--instruction", metavar="S", help="Read TEXT as a query with this task sentence; '' for none.")
@click.option("-k", type=click.IntRange(min=1), default=10, show_default=True, help="Tokens to show.")
@click.option("--spectrum", is_flag=True, help="Show which directions write frequent, rare and random tokens.")
@click.option("--corpus", metavar="CORPUS", help="With --spectrum: count tokens here, or in the chunks of --index.")
@click.option(
    "--tokens", type=int, default=100, show_default=True, metavar="N", help="With --spectrum: tokens in each group."
)
@click.option("--centred", is_flag=True, help="With --spectrum: subtract the mean of log p, which all tokens share.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With --spectrum: a picture (.svg, .png) or .json.",
)
@encoder_options
@filter_options
@keyword_options(RunOptions, only=["device", "dtype"])
@offline_option
@json_option
def command(text: str | None, index: Path | None, spectrum: bool, as_json: bool, **options: Any) -> None:
    """Show the tokens nearest to a text's vector, before and after the filter, and those of the removed part.

    \b
        ragidx lens "the river reaches the sea"

    Without --model or --index the model is mini-decoder: the default one of a build has no unembedding matrix.
    With --index, TEXT is a query, and one of its hits by the vectors is shown beside it. With --spectrum, no text is
    read: tokens are counted, and each direction of the model's unembedding matrix is measured by its effect on
    frequent, rare and random tokens.

    \b
        ragidx lens "why were pigeons chased out of an antenna?" --index ragidx-index --hit 2
        ragidx lens --spectrum --corpus docs/ --out spectrum.svg
    """
    _check_usage(text, index, options["corpus"], spectrum=spectrum)
    if spectrum:
        _show_spectrum(index, as_json, options)
        return
    seen = _read_text(text or "", options) if index is None else _read_hit(text or "", index, options)
    if as_json:
        console.print_json(seen.to_json())
    else:
        lens_tables.print_lens(seen)


def _check_usage(text: str | None, index: Path | None, corpus: str | None, *, spectrum: bool) -> None:
    """Refuse options that mean nothing together."""
    typed = typed_options()
    excluded = (
        (index is not None, (_ENCODER | FILTER_OPTIONS) - _PLACES, "the index decides how its vectors are made"),
        (spectrum, (_HIT | _ENCODER | {"k", "instruction"}) - {"revision"}, "with --spectrum"),
        (not spectrum, _SPECTRUM, "without --spectrum"),
        (index is None, _HIT, "without --index"),
    )
    for holds, names, why in excluded:
        if holds and names & typed.keys():
            raise click.UsageError(f"{why}: remove {', '.join(sorted(typed[name] for name in names & typed.keys()))}")
    if spectrum and text is not None:
        raise click.UsageError("--spectrum reads no TEXT: remove it")
    if spectrum and (corpus is None) == (index is None):
        raise click.UsageError("--spectrum counts tokens: give one of --corpus and --index")
    if not spectrum and text is None:
        raise click.UsageError("give a text, or --spectrum with --corpus or --index")


def _read_text(text: str, options: dict[str, Any]) -> TextLens:
    from ragidx.indexer.encoders.load import encoder_of
    from ragidx.indexer.encoders.methods import resolve
    from ragidx.indexer.models.locate import locate
    from ragidx.pipelines.experiments.lens.lens import lens_text

    places = {name: options[name] for name in ("adapters", "pooler") if options[name]}
    files = locate(options["model"] or "mini-decoder", revision=options["revision"], **places)
    spec = resolve(files, **{name: options[name] for name in _ENCODER})
    encoder = encoder_of(files, spec, device=options["device"], dtype=options["dtype"])
    wanted = with_values(options).get("filter")
    return lens_text(text, encoder, wanted, instruction=options["instruction"], k=options["k"])


def _read_hit(query: str, index: Path, options: dict[str, Any]) -> HitLens:
    from ragidx.pipelines.experiments.lens.lens import lens_hit
    from ragidx.pipelines.index import Index

    opened = Index(index, **{name: options[name] for name in (*_PLACES, "device", "dtype")})
    asked = {name: options[name] for name in ("hit", "instruction", "where", "k")}
    return lens_hit(query, opened.searcher, **asked)


def _show_spectrum(index: Path | None, as_json: bool, options: dict[str, Any]) -> None:
    from ragidx.pipelines.experiments.lens.spectrum import spectrum

    out: Path | None = options["out"]
    if out is not None:
        _check_out(out)
    skips = Skips()
    with console.waiting("counting tokens, and encoding a few texts"):
        report = spectrum(
            options["model"],
            corpus=options["corpus"],
            index=index,
            filter=with_values(options).get("filter"),
            group_size=options["tokens"],
            centred=options["centred"],
            revision=options["revision"],
            on_skip=skips.add,
            device=options["device"],
            dtype=options["dtype"],
        )
    if out is not None:
        _write(report, out)
    if as_json:
        console.print_json(report.to_json())
    else:
        lens_tables.print_spectrum(report)
    for reason, count in skips.counts.items():
        if reason not in BY_RULE:
            console.note(f"Skipped: {count:,} x {as_options(reason)}")
    if out is not None:
        console.note(f"Written: {out}")


def _check_out(out: Path) -> None:
    """Refuse, before anything is counted, a file that cannot be written or has an unknown ending."""
    from ragidx.corpora.errors import SpecError
    from ragidx.pipelines.base.pictures import FORMATS, check_plot
    from ragidx.pipelines.base.results import check_folder

    format = out.suffix[1:].lower()
    if format not in (*FORMATS, "json"):
        raise SpecError(
            f"'{out.name}' has no known ending", "name a file that ends in .svg, .png or .json", where="--out"
        )
    check_folder(out.parent, _ELSEWHERE)
    if format != "json":
        check_plot(format)


def _write(report: SpectrumReport, out: Path) -> None:
    from ragidx.pipelines.base.results import write_result
    from ragidx.pipelines.experiments.lens.plot import draw

    if out.suffix.lower() == ".json":
        data = json_text(report.to_json(), indent=2).encode("ascii") + b"\n"
    else:
        data = draw(report, out.suffix[1:].lower())
    write_result(out, data, _ELSEWHERE)
