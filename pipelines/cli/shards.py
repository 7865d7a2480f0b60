"""`ragidx build` on many machines: `--shards N` divides, `--shard I/N` builds one, `--commit DIR` joins them.

`--ray` does all three on Ray.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ragidx.pipelines.cli import console, interrupts
from ragidx.pipelines.cli.build_report import tell_report
from ragidx.pipelines.cli.options import typed_options
from ragidx.pipelines.cli.progress import ProgressLine

if TYPE_CHECKING:
    from ragidx.pipelines.distribute.division import Division
    from ragidx.pipelines.ingest.report import BuildReport

F = TypeVar("F", bound=Callable[..., Any])

_MERGED_BYTES = 64 << 20  # as `ragidx.indexer.writing.merging` has it, which no --help needs
_VERBS = ("shards", "shard", "commit", "ray")
OPTIONS = (*_VERBS, "stage", "actors")
_OF_ALL = ("quiet", "as_json", "offline")
_OF_SHARD = {"shard", "stage", "device", "dtype", "attn", "endpoint", "model", "workers", *_OF_ALL}
_OF_COMMIT = {"commit", *_OF_ALL}
_NOT_OF_SHARDS = {"vectors", "vector_field", "questions", "plan", "watch"}
_FOLDER = click.Path(path_type=Path, file_okay=False)


def shard_options(command: F) -> F:
    """The options of a build on many machines."""
    for option in (
        click.option(
            "--commit", type=_FOLDER, metavar="DIR", help="Make the shards of a stage the index, all at once."
        ),
        click.option(
            "--actors", type=int, metavar="N", help="Of --ray [default: one for each GPU, else for each core]."
        ),
        click.option(
            "--ray",
            is_flag=False,
            flag_value="local",
            metavar="[ADDRESS]",
            help="Build in shards on Ray: auto, HOST:PORT or ray://HOST:PORT [default: Ray on this machine].",
        ),
        click.option(
            "--stage",
            type=_FOLDER,
            metavar="DIR",
            help="The folder of --shards, --shard and --ray; all machines see it.",
        ),
        click.option("--shard", metavar="I/N", help="Build one shard of a --stage, I from 0."),
        click.option("--shards", type=int, metavar="N", help="Divide the build into N shards, for many machines."),
    ):
        command = option(command)
    return command


def is_asked(flat: Mapping[str, Any]) -> bool:
    """Whether a build is one of the steps of a build on many machines.

    Raises:
        click.UsageError: options that exclude each other, or one is missing.
    """
    verbs = [name for name in _VERBS if flat[name] is not None]
    if flat["actors"] is not None and flat["ray"] is None:
        raise click.UsageError("--actors is for --ray")
    if not verbs:
        if flat["stage"] is not None:
            raise click.UsageError("--stage is for --shards N, --shard I/N or --ray")
        return False
    if len(verbs) > 1:
        raise click.UsageError(f"--{verbs[0]} and --{verbs[1]} exclude each other")
    typed, verb = typed_options(), verbs[0]
    if verb in ("shards", "shard") and flat["stage"] is None:
        raise click.UsageError(f"--{verb} needs --stage DIR, a folder that all machines see")
    may = {"shard": _OF_SHARD, "commit": _OF_COMMIT}.get(verb)
    for name, option in typed.items():
        if name in _NOT_OF_SHARDS or (may is not None and name not in may):
            raise click.UsageError(
                f"{option} does not go with --{verb}" + ("" if may is None else ": name it with --shards")
            )
    if may is not None and flat["corpus"]:
        raise click.UsageError(f"--{verb} takes no CORPUS: the division in the stage has it")
    return True


def run(
    flat: Mapping[str, Any],
    corpus: Sequence[str] | Mapping[str, str | Mapping[str, Any]],
    index: Path,
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """One of the three steps, or all."""
    if flat["ray"] is not None:
        _on_ray(flat, corpus, index, options, as_json=as_json)
    elif flat["shards"] is not None:
        _divide(corpus, index, flat["stage"], flat["shards"], options, as_json=as_json)
    elif flat["shard"] is not None:
        _shard(flat["shard"], flat["stage"], options, as_json=as_json)
    else:
        _commit(flat["commit"], as_json=as_json)


def _divide(
    corpus: Sequence[str] | Mapping[str, str | Mapping[str, Any]],
    index: Path,
    stage: Path,
    n: int,
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    from ragidx.pipelines.distribute import divide

    with interrupts.reported(lambda: interrupts.START_AGAIN), ProgressLine(as_json=as_json) as line:
        division = divide(corpus or None, n, stage, index, on_progress=line.callback, **options)
    if as_json:
        console.print_json(_of_division(division))
        return
    sizes = division.sizes
    console.print_fields(
        [
            ("index", str(index)),
            ("stage", str(stage)),
            ("shards", f"{division.n:,}, of {console.n_bytes(min(sizes))} to {console.n_bytes(max(sizes))} to read"),
            ("next", f"ragidx build --shard I/{division.n} --stage {stage}, for each I from 0 to {division.n - 1}"),
            ("then", f"ragidx build --commit {stage}"),
        ]
    )
    if division.n > 1 and sum(sizes) < division.n * _MERGED_BYTES:
        console.note(
            f"note: shards that small gain little: {console.n_bytes(_MERGED_BYTES)} and more is what a shard is for"
        )


def _of_division(division: Division) -> dict[str, Any]:
    return {
        "stage": str(division.stage),
        "id": division.id,
        "index": str(division.index),
        "n_shards": division.n,
        "bytes": list(division.sizes),
        "n_files_unopened": division.ledger["counts"]["n_files_unopened"],
    }


def _shard(text: str, stage: Path, options: Mapping[str, Any], *, as_json: bool) -> None:
    from ragidx.pipelines.distribute import Division, build_shard
    from ragidx.pipelines.distribute.shard import RUN

    found = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
    if found is None:
        raise click.BadParameter(f"'{text[:20]}' is not I/N, such as 0/8", param_hint="--shard")
    number, n = int(found[1]), int(found[2])
    division = Division.open(stage)
    if n != division.n:
        raise click.BadParameter(f"the stage has {division.n} shards, not {n}", param_hint="--shard")
    taken = {name: options[name] for name in RUN if options.get(name)}
    line = ProgressLine(as_json=as_json)
    with interrupts.reported(lambda: interrupts.CONTINUES), line:
        made = build_shard(division, number, on_progress=line.callback, **taken)
    if as_json:
        console.print_json(dataclasses.asdict(made))
    else:
        added = f"{console.plural(made.n_documents, 'document')}, {console.plural(made.n_chunks, 'chunk')}"
        console.print_fields([("shard", f"{number} of {n}"), ("adds", added)])


def _on_ray(
    flat: Mapping[str, Any],
    corpus: Sequence[str] | Mapping[str, str | Mapping[str, Any]],
    index: Path,
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    from ragidx.pipelines.distribute import build_on_ray

    line = ProgressLine(as_json=as_json)
    where = {"address": flat["ray"], "actors": flat["actors"], "stage": flat["stage"]}
    with (
        interrupts.reported(lambda: interrupts.CONTINUES),
        line,
        contextlib.redirect_stdout(sys.stderr),  # Ray tells there of actors that were killed
    ):
        report = build_on_ray(corpus or None, index, **where, on_progress=line.callback, **options)
    _tell(report, as_json=as_json)


def _commit(stage: Path, *, as_json: bool) -> None:
    from ragidx.pipelines.distribute import Division, commit
    from ragidx.pipelines.distribute.commit import committed_already

    if (report := committed_already(stage)) is not None:
        console.note(f"{stage}: committed already.")
        return _tell(report, as_json=as_json)
    line = ProgressLine(as_json=as_json)
    with interrupts.reported(lambda: interrupts.START_AGAIN), line:
        report = commit(Division.open(stage), on_progress=line.callback)
    _tell(report, as_json=as_json)


def _tell(report: BuildReport, *, as_json: bool) -> None:
    if (path := Path(report.index)).is_relative_to(Path.cwd()):  # the division has it in full
        report = dataclasses.replace(report, index=str(path.relative_to(Path.cwd())))
    tell_report(report, as_json=as_json)
