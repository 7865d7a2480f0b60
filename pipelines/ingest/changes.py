"""What a build does about each document: decided here and nowhere else, in the order of the corpus.

    files, each with its Drafts -> Changes

The first document with an id wins. What a change means for the rows of the index is not known here.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragidx.indexer.digests import DigestTable, digest
from ragidx.indexer.store.lookup import Documents
from ragidx.indexer.store.source_list import PROGRAM
from ragidx.pipelines.ingest.workers.chunks import Draft

if TYPE_CHECKING:
    from ragidx.pipelines.ingest.file_cache import SeenFiles


class Kind(enum.Enum):
    """What is decided about a document."""

    NEW = "new"
    CHANGED = "changed"
    SAME = "same"
    DELETED = "deleted before"  # by hand
    REPEATED = "repeated"  # another document of this build has its id
    TAKEN = "taken"  # a program's document has its id


@dataclass(frozen=True, slots=True)
class Verdict:
    """A document, and what is decided about it."""

    kind: Kind
    draft: Draft

    @property
    def is_cut(self) -> bool:
        """Whether its chunks go into the index."""
        return self.kind in (Kind.NEW, Kind.CHANGED)


class Decisions:
    """Decides about the documents of one build, in order; those of a program come first.

    Args:
        documents: documents of the index; what the build adds may be entered meanwhile.
        read: numbers of the sources that are read: a document of another one keeps its id.
        deleted: ids that were deleted by hand, by the number of their source.
        anew: whether unchanged documents are cut again, too.
        seen: the cache of files; None: every file is read.
    """

    def __init__(
        self,
        documents: Documents,
        read: Collection[int],
        deleted: Mapping[int, Collection[str]],
        *,
        anew: bool = False,
        seen: SeenFiles | None = None,
    ) -> None:
        self._documents, self._read, self._deleted = documents, read, deleted
        self._anew, self._seen = anew, seen
        self._taken = DigestTable()  # with the owner of each

    def changes(self, drafts: Iterable[Draft]) -> Iterator[Verdict]:
        """What becomes of the documents of a file."""
        for draft in drafts:
            kind = self._kind(draft)
            if self._seen is not None and kind in (Kind.DELETED, Kind.REPEATED, Kind.TAKEN):
                self._seen.read_again()  # so that it is counted the next time, too
            yield Verdict(kind, draft)

    def _kind(self, draft: Draft) -> Kind:
        if draft.id in self._deleted.get(draft.owner, ()):
            return Kind.DELETED
        key, had = digest(draft.id), self._documents.owner(draft.id)
        owners = list(self._taken.find(key))
        if not owners and had is not None and had != draft.owner and had not in self._read:
            owners = [had]
        if owners:
            return Kind.TAKEN if PROGRAM in owners else Kind.REPEATED
        if draft.owner and self._seen is not None and not self._seen.takes(key, draft.hash):
            return Kind.REPEATED
        self._taken.add(key, draft.owner)
        if had is None:
            return Kind.NEW
        is_same = had == draft.owner and self._documents.get(draft.id) == draft.hash
        return Kind.SAME if is_same and not self._anew else Kind.CHANGED
