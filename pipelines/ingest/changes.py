"""What a build does about each document: decided here and nowhere else, in the order of the corpus.

    files, each with its Drafts -> Changes

The first document with an id wins. What a change means for the rows of the index is not known here.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragidx.indexer.digests import DigestTable, digest
from ragidx.indexer.store.lookup import Documents
from ragidx.pipelines.ingest.workers.chunks import Draft

if TYPE_CHECKING:
    from ragidx.pipelines.ingest.file_cache import SeenFiles


class Kind(enum.Enum):
    """What is decided about a document."""

    NEW = "new"
    CHANGED = "changed"
    SAME = "same"
    KEPT_OUT = "kept out"  # it was deleted by hand
    REPEATED = "repeated"  # another document of this build has its id
    TAKEN = "taken"  # a program's document has its id


@dataclass(frozen=True, slots=True)
class Change:
    """A document, and what is decided about it."""

    kind: Kind
    draft: Draft

    @property
    def is_cut(self) -> bool:
        """Whether its chunks go into the index."""
        return self.kind in (Kind.NEW, Kind.CHANGED)


class Decisions:
    """Decides about the documents of one build, in order.

    Args:
        documents: of the index; what the build adds may be entered meanwhile.
        deleted: ids that were deleted by hand.
        anew: whether unchanged documents are cut again, too.
        seen: the cache of files; None: every file is read.
        taken: ids of a program's documents that the build writes again.
    """

    def __init__(
        self,
        documents: Documents,
        deleted: Collection[str],
        *,
        anew: bool = False,
        seen: SeenFiles | None = None,
        taken: Collection[str] = (),
    ) -> None:
        self._documents, self._deleted, self._anew, self._seen = documents, deleted, anew, seen
        self._of_program = taken
        self._taken = DigestTable()

    def changes(self, drafts: Iterator[Draft]) -> Iterator[Change]:
        """What becomes of the documents of a file."""
        for draft in drafts:
            kind = self._kind(draft)
            if self._seen is not None and kind in (Kind.KEPT_OUT, Kind.REPEATED, Kind.TAKEN):
                self._seen.read_again()  # so that it is counted the next time, too
            yield Change(kind, draft)

    def _kind(self, draft: Draft) -> Kind:
        if draft.id in self._deleted:
            return Kind.KEPT_OUT
        if draft.id in self._of_program or self._documents.is_of_program(draft.id):
            return Kind.TAKEN
        key, had = digest(draft.id), self._documents.get(draft.id)
        if self._taken.find(key) or (self._seen is not None and not self._seen.takes(key, draft.hash)):
            return Kind.REPEATED
        self._taken.add(key, 0)
        if had is None:
            return Kind.NEW
        return Kind.SAME if had == draft.hash and not self._anew else Kind.CHANGED
