"""`ragidx compact`, `shrink` and `reindex`: stored vectors are rewritten, and nothing is encoded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ragidx.pipelines.cli import console, describe
from ragidx.pipelines.cli.help import GroupedCommand
from ragidx.pipelines.cli.keywords import keyword_options
from ragidx.pipelines.cli.options import index_option, json_option, quiet_option
from ragidx.pipelines.cli.progress import ProgressLine
from ragidx.retriever.keywords import AnnKeywords

if TYPE_CHECKING:
    from ragidx.indexer.ann.tuning import OnStage
    from ragidx.pipelines.maintain.rewrite import ReshapeReport


@click.command("compact", cls=GroupedCommand)
@click.option(
    "--all", "everything", is_flag=True, help="Rewrite all segments, not only small ones and those with dead rows."
)
@index_option
@quiet_option
@json_option
def compact(everything: bool, index: Path, as_json: bool) -> None:
    """Merge the small segments of an index, and drop deleted rows. Queries keep working meanwhile.

    \b
        ragidx compact

    Segments below 64 MiB of vectors are merged; segments with more than a tenth of dead rows are rewritten. Rows are
    copied block by block; only the search structure of a large segment is made in memory. It is one commit, which
    `ragidx rollback` undoes.
    """
    from ragidx.pipelines.maintain.rewrite import compact

    _run(lambda on_stage: compact(index, everything=everything, on_stage=on_stage), as_json=as_json)


@click.command("shrink", cls=GroupedCommand)
@click.option("--dim", type=int, required=True, metavar="N", help="Keep the first N dimensions of each vector.")
@index_option
@quiet_option
@json_option
def shrink(dim: int, index: Path, as_json: bool) -> None:
    """Make an index narrower in one commit, without encoding again. `ragidx rollback` undoes it.

    \b
        ragidx query "why were pigeons chased out of an antenna?" --dim 64     try it first: changes nothing
        ragidx shrink --dim 64
    """
    from ragidx.pipelines.maintain.rewrite import shrink

    _run(lambda on_stage: shrink(index, dim=dim, on_stage=on_stage), as_json=as_json)


@click.command("reindex", cls=GroupedCommand)
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--dim", type=int, metavar="N", help="Keep the first N dimensions of each vector [default: all].")
@keyword_options(AnnKeywords)
@index_option
@quiet_option
@json_option
def reindex(target: Path, index: Path, as_json: bool, **options: Any) -> None:
    """Make a new index in DIR from the vectors of an index: narrower, or of another type. Nothing is encoded.

    \b
        ragidx reindex small-index --dim 112

    Options that are not named keep the old index's values. The old index is only read.

    \b
        ragidx reindex fast-index --index-type hnsw --target-recall 0.98
    """
    from ragidx.pipelines.maintain.rewrite import reindex

    _run(lambda on_stage: reindex(index, target, on_stage=on_stage, **options), as_json=as_json)


def _run(rewrite: Callable[[OnStage], ReshapeReport], *, as_json: bool) -> None:
    """Rewrite, with progress, and print the report on stdout."""
    with ProgressLine(as_json=as_json) as line:
        r = rewrite(line.on_stage)
    if as_json:
        console.print_json(r.to_json())
        return
    unchanged = "" if r.committed else ", unchanged"
    rows = [
        ("index", f"{r.index} (generation {r.generation}{unchanged})"),
        ("holds", f"{console.plural(r.n_chunks, 'chunk')} in {console.plural(r.n_segments, 'segment')}"),
        ("vectors", f"{r.dim} dimensions, {describe.searched(r.index_type, r.segment_types, r.recall)}"),
    ]
    if r.committed:
        dropped = f", {console.plural(r.n_dropped, 'dead row')} dropped" if r.n_dropped else ""
        rows.append(("rewritten", console.plural(r.n_rewritten, "segment") + dropped))
    rows.append(("size", f"{console.n_bytes(r.bytes_after)}, before {console.n_bytes(r.bytes_before)}"))
    if r.folder_bytes > 1.1 * r.bytes_after:
        from ragidx.indexer.store.manifest import KEPT

        kept = f"the last {KEPT} generations are kept for `ragidx rollback`; each commit removes the oldest"
        rows.append(("folder", f"{console.n_bytes(r.folder_bytes)}: {kept}"))
    console.print_fields(rows)
