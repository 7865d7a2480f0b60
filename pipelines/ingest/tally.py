"""How many documents each source has, counted while they are read, and the list of sources that follows."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ragidx.indexer.store.lock import now
from ragidx.indexer.store.source_list import SourceEntry, owner_of
from ragidx.pipelines.ingest.corpus import check_removal
from ragidx.pipelines.ingest.selection import Selection, lost


class Tally:
    """The documents of each source.

    Args:
        selection: the sources, and which are read.

    Attributes:
        n_read: documents by source, of those that are read.
        n_kept: of them, those that the index had.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self.n_read, self.n_kept = Counter[str](), Counter[str]()

    def source_of(self, name: str) -> str:
        """The name of the source of a file or a document."""
        owner = owner_of(self._selection.entries, name)
        return "" if owner is None else owner.name

    def check_none_is_lost(self, before: Sequence[SourceEntry]) -> None:
        """Whether each of several sources that were read still has a document.

        Raises:
            SpecError: one has none, and had some before.
        """
        for entry in before if len(self._selection.entries) > 1 else ():
            if entry.name in self._selection.names and entry.n_documents and not self.n_read[entry.name]:
                raise lost(entry.name, f"has no document now, and had {entry.n_documents:,}")

    def check_removal(self, gone: Mapping[str, int], index: Path) -> None:
        """Whether a build may remove these documents, by source; `n_kept` are those beside them.

        Raises:
            SpecError: as `corpus.check_removal`.
        """
        for name, n_removed in gone.items():
            where = index if len(self._selection.entries) < 2 else f"{index}: {name}"
            check_removal(n_removed, self.n_kept[name] + n_removed, where)

    def entries(self, before: Sequence[SourceEntry], *, changed: bool) -> list[SourceEntry]:
        """The sources as the manifest lists them; the date of one is that of the last build that changed something.

        Args:
            before: those that the committed state lists.
            changed: whether this build adds, changes or removes a document.
        """
        known = {entry.name for entry in before}
        return [
            dataclasses.replace(
                entry,
                n_documents=self.n_read[entry.name],
                built=now() if changed or entry.name not in known else entry.built,
            )
            if entry.name in self._selection.names
            else entry
            for entry in self._selection.entries
        ]


def rules(entries: Sequence[SourceEntry]) -> list[tuple[str, str, list[str], list[str]]]:
    """What of sources is a difference even where no document is: names, places and globs."""
    return [(one.name, one.path, list(one.include), list(one.exclude)) for one in entries]
