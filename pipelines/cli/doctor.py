"""`ragidx doctor`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from ragidx.pipelines.cli import console, describe
from ragidx.pipelines.cli.help import GroupedCommand, as_options
from ragidx.pipelines.cli.options import json_option, offline_option, path_option
from ragidx.pipelines.cli.vector_options import encoder_options, encoding_options, instruction_option
from ragidx.pipelines.doctor import Check, DoctorReport
from ragidx.pipelines.doctor.report import UnknownChunks, UnknownScript


@click.command("doctor", cls=GroupedCommand)
@encoder_options
@instruction_option
@encoding_options
@path_option("--index", "DIR", "Say which chunks of this index its model does not know, and which models here do.")
@offline_option
@json_option
def command(as_json: bool, model: str | None, index: Path | None, **options: Any) -> int:
    """Check this machine; with --model, check that the model runs as its method needs.

    \b
        ragidx doctor

    The checks: attention runs in the requested direction; a text has the same vector alone and in a batch, in float32
    and in the number format of a build; the model has the head that its default filter reads. Of a decoder it says how
    much its states change where attention runs both ways. Of a model of a server: it answers, and a text has one
    vector. Exit status 1 if one fails.

    \b
        ragidx doctor --model Qwen/Qwen2.5-0.5B --method llm2vec
        ragidx doctor --index ragidx-index
    """
    from ragidx.pipelines.doctor import examine

    with console.waiting("examining this machine" if model is None else f"loading {model} and checking it"):
        found = examine(model, index=index, **options)
    findings = tuple(dataclasses.replace(finding, hint=as_options(finding.hint)) for finding in found.findings)
    checks = tuple(dataclasses.replace(check, hint=as_options(check.hint)) for check in found.checks)
    report = dataclasses.replace(found, findings=findings, checks=checks)
    if as_json:
        console.print_json(report.to_json())
    else:
        _tell(report)
    return 1 if report.n_failed else 0


# Other commands use `mini` by default; this one uses no model.
_model = next(option for option in command.params if option.name == "model")
_model.help = f"Check this model too: {(_model.help or '').replace(' (bundled, the default)', '')}"


def _tell(report: DoctorReport) -> None:
    """Findings, each with its hint below it, then checks."""
    rows: list[list[str]] = []
    for finding in report.findings:
        rows.append([finding.status, finding.name, finding.value])
        if finding.hint:
            rows.append(["", "", f"-> {finding.hint}"])
    console.print_table(["status", "what", "found"], rows)
    if report.chunks is not None:
        click.echo()
        _tell_chunks(report.chunks)
    if report.model is None or report.encoder is None:
        return
    click.echo()
    console.print_fields(
        [
            ("model", report.model),
            ("encoder", describe.encoder(report.encoder)),
            ("a build here", f"{report.device}, {report.dtype}" if report.device else "not possible"),
        ]
    )
    click.echo()
    console.print_table(
        ["status", "check", "in", "worst", "limit", "what to do"],
        [[c.status, c.name, c.dtype, *_numbers(c), c.hint] for c in report.checks],
    )
    run = sum(check.status != "not applicable" for check in report.checks)
    failed = f"{report.n_failed} of {console.plural(run, 'check')} failed"
    click.echo(f"\n{failed}." if report.n_failed else f"\n{console.plural(run, 'check')} passed.")


def _tell_chunks(c: UnknownChunks) -> None:
    """Chunks by script, and what is to be done about those that the model does not know."""
    if not c.n_examined:
        click.echo(f"{c.index}: what its model knows cannot be seen here.")
        return
    of = "" if c.n_examined == c.n_chunks else f" of {c.n_chunks:,}"
    console.print_fields([("index", c.index), ("model", c.model), ("examined", f"{c.n_examined:,}{of} chunks")])
    console.print_table(
        ["script", "chunks", "unknown", "share", "known by"],
        [
            [one.script, f"{one.n_chunks:,}", f"{one.n_unknown:,}", f"{one.n_unknown / one.n_chunks:.1%}", _known(one)]
            for one in c.scripts
        ],
    )
    if not c.n_unknown:
        return
    click.echo(f"Chunks that {c.model} does not know are found by their words alone.")
    if not any(one.known_by for one in c.scripts):
        click.echo("No model here knows them: a multilingual one does, as a folder or a hub id.")
    if c.n_unknown > c.n_zeros and c.n_examined == c.n_chunks:
        count = console.plural(c.n_unknown - c.n_zeros, "chunk")
        click.echo(f"{count} of them still have a vector, of an earlier version: `ragidx build --rebuild` drops it.")


def _known(script: UnknownScript) -> str:
    return "-" if not script.n_unknown else ", ".join(script.known_by) or "no model here"


def _numbers(check: Check) -> tuple[str, str]:
    """The worst difference, and its limit."""
    if check.difference is None or check.limit is None:
        return "-", "-"
    return f"{check.difference:.1e}", f"<= {check.limit:.0e}"
