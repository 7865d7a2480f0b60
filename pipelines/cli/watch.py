"""`ragidx build --watch`: one build after each burst of changes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from ragidx.corpora.errors import RagidxError, missing_extra
from ragidx.indexer.store.source_list import STANDARD_INPUT
from ragidx.pipelines.cli import console, interrupts
from ragidx.pipelines.cli.help import error_text
from ragidx.pipelines.ingest.report import BuildReport

_QUIET_MS = 2_500  # a file written less than two seconds before it is read is read again by the next build
_TURN_MS = 500  # between signs that no file has changed


def check_watch(paths: Sequence[str]) -> None:
    """Refuse what cannot be watched.

    Raises:
        click.UsageError: standard input is read once.
        RagidxError: watchfiles is not installed.
    """
    if STANDARD_INPUT in paths:
        raise click.UsageError("standard input is read once, and cannot be watched")
    if importlib.util.find_spec("watchfiles") is None:
        raise missing_extra("`--watch` needs", ["watchfiles"], "watch")


def follow(index: Path, build: Callable[[], BuildReport]) -> None:
    """Build after each burst of changes below the sources of an index, until Ctrl-C.

    What changed before the folders are watched, during a long build say, is built first. A build that fails is
    reported, and the next change builds again.

    Args:
        index: the index folder; changes in it do not count.
        build: brings the index up to date.
    """
    import watchfiles

    from ragidx.pipelines.index import Index

    roots = [entry.root(index) for entry in Index(index).sources()]
    folder = str(index.resolve())

    def counts(_: watchfiles.Change, path: str) -> bool:
        return path != folder and not path.startswith(f"{folder}/")

    bursts = watchfiles.watch(
        *roots,
        watch_filter=counts,
        debounce=60_000,
        step=_QUIET_MS,
        rust_timeout=_TURN_MS,
        yield_on_timeout=True,
        raise_interrupt=True,
    )
    is_watched = False
    for changes in bursts:
        interrupts.check()  # after a build a callback may have swallowed it
        if is_watched and not changes:
            continue
        try:
            _tell(build())
        except RagidxError as fault:
            console.error(f"Error: {error_text(fault)}")
        if not is_watched:
            console.note(f"Watching {', '.join(map(str, roots))}; Ctrl-C ends.")
            is_watched = True


def _tell(r: BuildReport) -> None:
    if r.committed:
        console.note(
            f"Generation {r.generation}: {r.n_added:,} new, {r.n_changed:,} changed, {r.n_removed:,} removed; "
            f"{console.plural(r.n_documents, 'document')}, {r.seconds:.1f} s."
        )
