"""The ledger of a build: what was read and what was decided, by source.

Changes, skips, chunks -> counts, of which progress, the guard against removals, and the report are made.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragidx.corpora.left_out import LOST, Left, LeftCount, LeftCounts, add_left, class_of, left_json, left_of, sum_left
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import Source
from ragidx.corpora.spec import Json
from ragidx.indexer.store.lock import now
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.store.source_list import PROGRAM, SourceEntry
from ragidx.pipelines.ingest.changes import Kind, Verdict
from ragidx.pipelines.ingest.corpus import CorpusSelection, check_removal
from ragidx.pipelines.ingest.removal import Missing, check_folders, is_unreadable
from ragidx.pipelines.ingest.report import Progress, Skips
from ragidx.pipelines.ingest.selection import lost
from ragidx.pipelines.ingest.workers.chunks import Item

REPEATED = "its id is another document's"
"""Why a document is skipped whose id another one had before it in the same build."""
LEFT = "left"
"""In the notes of a manifest: what is left out of documents, by source and kind."""
OF_PROGRAM = "a program's document has its id"

_COUNTS = ("n_files_unopened", "n_deleted_before", "n_empty", "n_truncated", "n_rows", "n_chunks_reused")
ENCODED = ("n_bytes", "n_documents", "n_cut", "n_chunks", "n_encoded", "n_tokens", "seconds")
"""Of progress."""


@dataclass
class Count:
    """Documents of a source."""

    n_new: int = 0
    n_changed: int = 0
    n_same: int = 0
    n_stale: int = 0  # that could not be read this time, and are as before

    @property
    def n_had(self) -> int:
        """Documents that were read, and that the index had."""
        return self.n_changed + self.n_same

    @property
    def n_all(self) -> int:
        """Documents that the source has after the build."""
        return self.n_new + self.n_had + self.n_stale


@dataclass
class Ledger:
    """What a build has done so far.

    Attributes:
        selection: the sources, and which are read.
        progress: how far it is; it counts bytes, documents and chunks.
        skips: documents and files that were skipped.
        sources: documents, by the number of the source; 0: those of a program.
        left: parts of documents that were left out, by the number of the source.
        unreadable: files and folders that could not be read this time, by the number of the source.
        n_files_unopened: files that did not change.
        n_deleted_before: documents that were deleted by hand.
        n_empty, n_truncated: new and changed documents without a chunk, and documents longer than the model reads.
        n_rows, n_chunks_reused: chunks that were added, and those of them whose vector was known.
        unknown: chunks that were added without a vector, since the model does not know their words, by script.
    """

    selection: CorpusSelection
    progress: Progress
    skips: Skips
    sources: defaultdict[int, Count] = field(default_factory=lambda: defaultdict(Count))
    left: defaultdict[int, LeftCounts] = field(default_factory=lambda: defaultdict(dict))
    unreadable: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    n_files_unopened: int = 0
    n_deleted_before: int = 0
    n_empty: int = 0
    n_truncated: int = 0
    n_rows: int = 0
    n_chunks_reused: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    _file: str = ""  # that is being read
    _owner: int = PROGRAM  # of it

    @property
    def total(self) -> Count:
        """Documents of all sources that were read."""
        each = map(dataclasses.astuple, self.sources.values())
        return Count(*map(sum, zip(*each, strict=True))) if self.sources else Count()

    def to_json(self) -> dict[str, Any]:
        """What was counted, for a build that is done in parts; `take` adds it to another ledger."""
        progress = self.progress
        return {
            "sources": {owner: dataclasses.asdict(count) for owner, count in self.sources.items()},
            "unreadable": {owner: sorted(names) for owner, names in self.unreadable.items()},
            "left": {owner: left_json(counts) for owner, counts in self.left.items()},
            "skipped": dict(self.skips.counts),
            "places": self.skips.places,
            "counts": {name: getattr(self, name) for name in _COUNTS},
            "encoded": {name: getattr(progress, name) for name in ENCODED},
            "unknown": dict(self.unknown),
        }

    def take(self, part: Mapping[str, Any]) -> None:
        """Add what another ledger counted, as its `to_json` gives it."""
        for owner, counts in part["sources"].items():
            for name, count in counts.items():
                setattr(self.sources[int(owner)], name, getattr(self.sources[int(owner)], name) + count)
        for owner, left in part["left"].items():
            self.left[int(owner)] = sum_left([self.left[int(owner)], left_of(left)])
            self.skips.lose({kind: one["places"][0] for kind, one in left.items() if class_of(kind) == LOST})
        for owner, names in part["unreadable"].items():
            self.unreadable[int(owner)].update(names)
        for reason, count in part["skipped"].items():
            self.skips.take(reason, count, part["places"].get(reason, ()))
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + part["counts"][name])
        for name in ENCODED:
            setattr(self.progress, name, getattr(self.progress, name) + part["encoded"][name])
        self.unknown.update(part.get("unknown", {}))  # a part of an earlier version has none

    def begin(self, source: Source) -> None:
        """Note which file is read now."""
        self._file, self._owner = source.name, source.owner

    def skip(self, skip: Skip | Left, owner: int | None = None) -> None:
        """Note what was skipped or left out in the file that is read, or skipped in the walk over a source."""
        self.skips.add(skip)
        if isinstance(skip, Left):
            add_left(self.left[self._owner], skip.kind, LeftCount(skip.count, 1, [skip.where]))
        elif is_unreadable(skip.where, skip.reason, self._file):
            self.unreadable[self._owner if owner is None else owner].add(skip.where)

    def pass_over(self, source: Source, n_documents: int) -> None:
        """Note a file that did not change."""
        self.progress.add_bytes(source.size)
        self.n_files_unopened += 1
        self.sources[source.owner].n_same += n_documents
        self._count(n_documents)

    def change(self, change: Verdict) -> None:
        """Note what was decided about a document."""
        if change.kind is Kind.DELETED:
            self.n_deleted_before += 1
            return
        if change.kind in (Kind.REPEATED, Kind.TAKEN):
            self.skips.add(Skip(change.draft.id, REPEATED if change.kind is Kind.REPEATED else OF_PROGRAM))
            return
        of = self.sources[change.draft.owner]
        of.n_new += change.kind is Kind.NEW
        of.n_changed += change.kind is Kind.CHANGED
        of.n_same += change.kind is Kind.SAME
        self.progress.has_new |= change.is_cut
        self._count(1)

    def cut(self, items: Sequence[Item]) -> None:
        """Note the chunks of a new or changed document."""
        self.n_empty += not items
        self.progress.n_cut += len(items)

    def stale(self, counts: Mapping[int, int]) -> None:
        """Note how many documents could not be read this time, by the number of their source."""
        for owner, count in counts.items():
            self.sources[owner].n_stale += count

    def check_none_is_lost(self, before: Sequence[SourceEntry]) -> None:
        """Whether each of several sources that were read still has a document.

        Raises:
            SpecError: one has none, and had some before.
        """
        for entry in before if len(self.selection.entries) > 1 else ():
            if entry.name in self.selection.names and entry.n_documents and not self.sources[entry.number].n_all:
                raise lost(entry.name, f"has no document now, and had {entry.n_documents:,}")

    def check_removal(self, missing: Missing, index: Path) -> None:
        """Whether a build may remove what is gone.

        Raises:
            SpecError: as `corpus.check_removal` and `removal.check_folders`, of one source.
        """
        for entry in self.selection.selected:
            n_removed = missing.n_gone[entry.number]
            where = index if len(self.selection.entries) < 2 else f"{index}: {entry.name}"
            count = self.sources[entry.number]
            n_before = count.n_had + n_removed
            check_removal(n_removed, n_before, where)
            check_folders(missing.folders.get(entry.number, ()), n_before, where, n_new=count.n_new)

    def left_notes(self, base: Manifest | None) -> dict[str, Json]:
        """What is left out of the documents of each source, for the manifest; of one that was not read, as before."""
        noted = {} if base is None else base.notes.get(LEFT)
        before = noted if isinstance(noted, dict) else {}
        read = {str(entry.number): left_json(self.left.get(entry.number, {})) for entry in self.selection.selected}
        numbers = (str(entry.number) for entry in self.selection.entries)
        return {number: read.get(number, before.get(number, {})) for number in numbers}

    def entries(self, before: Sequence[SourceEntry], *, changed: bool) -> list[SourceEntry]:
        """The sources as the manifest lists them; the date of one is that of the last build that changed a document.

        `before` are those that the committed state lists.
        """
        known = {entry.number for entry in before}
        return [
            dataclasses.replace(
                entry,
                n_documents=self.sources[entry.number].n_all,
                built=now() if changed or entry.number not in known else entry.built,
            )
            if entry.name in self.selection.names
            else entry
            for entry in self.selection.entries
        ]

    def _count(self, n_documents: int) -> None:
        self.progress.n_documents += n_documents
        self.progress.tell()


def rules(entries: Sequence[SourceEntry]) -> list[tuple[str, str, list[str], list[str]]]:
    """What of sources is a difference even where no document is: names, places and globs."""
    return [(one.name, one.path, list(one.include), list(one.exclude)) for one in entries]


def left_in(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """What is left out of the documents of an index: class, count, files and first places by kind."""
    noted = manifest.notes.get(LEFT)
    each = noted.values() if isinstance(noted, dict) else ()
    return left_json(sum_left(left_of(counts) for counts in each if isinstance(counts, dict)))
