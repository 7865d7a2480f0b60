"""What `compact`, `shrink` and `reindex` print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragidx.pipelines.cli import console, describe

if TYPE_CHECKING:
    from ragidx.pipelines.maintain.rewrite import ReshapeReport


def tell(report: ReshapeReport, *, as_json: bool) -> None:
    """The report on stdout."""
    if as_json:
        console.print_json(report.to_json())
        return
    r = report
    unchanged = "" if r.committed else ", unchanged"
    rows = [
        ("index", f"{r.index} (generation {r.generation}{unchanged})"),
        ("holds", f"{console.plural(r.n_chunks, 'chunk')} in {console.plural(r.n_segments, 'segment')}"),
        ("vectors", f"{r.dim} numbers, {describe.searched(r.index_type, r.segment_types, r.recall)}"),
    ]
    if r.committed:
        dropped = f", {console.plural(r.n_dropped, 'dead row')} dropped" if r.n_dropped else ""
        rows.append(("rewritten", console.plural(r.n_rewritten, "segment") + dropped))
    rows.append(("size", f"{console.n_bytes(r.bytes_after)}, before {console.n_bytes(r.bytes_before)}"))
    if r.folder_bytes > 1.1 * r.bytes_after:
        from ragidx.indexer.store.manifest import KEPT

        rows.append(
            (
                "folder",
                f"{console.n_bytes(r.folder_bytes)}: the last {KEPT} generations are kept for `ragidx rollback`; "
                "each commit removes the oldest",
            )
        )
    console.print_fields(rows)
