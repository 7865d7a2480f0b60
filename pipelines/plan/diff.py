"""What an index holds already, read without a change: its documents, and the texts that have vectors.

    Document -> unchanged, changed or added;  Items -> those that would go through the model

The committed state is mapped as readers map it. The journal of an interrupted build is read from a copy, since opening
a journal repairs it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ragidx.corpora.errors import RagidxError
from ragidx.corpora.records import Document
from ragidx.indexer.digests import Digests
from ragidx.indexer.store.lookup import CommittedVectors, Documents
from ragidx.indexer.store.manifest import JOURNAL
from ragidx.indexer.writing.journal import Journal
from ragidx.pipelines.ingest.chunks import Item
from ragidx.pipelines.ingest.corpus import document_hash, is_unchanged
from ragidx.pipelines.ingest.resolve import Plan

ADDED, CHANGED, UNCHANGED = "added", "changed", "unchanged"


class Knowledge(contextlib.ExitStack):
    """The index that a build would go on with, if there is one; the copy of a journal is removed at the end.

    Args:
        plan: of the build.
        index: its folder.

    Raises:
        RagidxError: the journal cannot be copied.
    """

    def __init__(self, plan: Plan, index: Path) -> None:
        self._documents = Documents()
        self._seen: set[bytes] = set()
        super().__init__()
        store = plan.stored
        self._committed = None if store is None else CommittedVectors(store.segments, store.dead)
        if store is not None:
            for number, (segment, dead) in enumerate(zip(store.segments, store.dead, strict=True)):
                self._documents.load(number, segment, dead)
        self._journal = self._journal_of(plan, index)

    def of_document(self, document: Document) -> str:
        """Whether a document is added, changed or unchanged."""
        had = self._documents.get(document.id)
        if had is None:
            return ADDED
        self._documents.keep(document.id)
        return UNCHANGED if is_unchanged(had, document_hash(document)) else CHANGED

    def others(self) -> Digests:
        """The digests of the ids of documents of the index that were not asked about, each once."""
        return self._documents.others()

    def fresh(self, items: Sequence[Item]) -> list[Item]:
        """Those whose text has no vector yet, each text once, here and in later calls."""
        texts = {item.row.text_hash: item for item in items if item.row.text_hash not in self._seen}
        self._seen |= texts.keys()
        keys = list(texts)
        if keys and self._committed is not None:
            keys = [key for key, is_known in zip(keys, self._committed.known(keys), strict=True) if not is_known]
        if keys and self._journal is not None:
            known = self._journal.get(keys)
            keys = [key for key in keys if key not in known]
        return [texts[key] for key in keys]

    def _journal_of(self, plan: Plan, index: Path) -> Journal | None:
        """A copy of the journal that the build would go on with."""
        if plan.wants_a_sample:  # its numbers name the journal, and they are not there yet
            return None
        key = plan.fingerprint()
        path = Journal.path_of(index / JOURNAL, key)
        if not path.is_file() or path.is_symlink():
            return None
        place = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="ragidx-plan-")))
        try:
            shutil.copyfile(path, Journal.path_of(place, key))
        except OSError as fault:
            self.close()
            raise RagidxError(
                f"the journal cannot be copied: {fault.strerror}",
                "set TMPDIR to a folder with room for it",
                where=str(path),
            ) from fault
        journal = Journal.open(place, key, plan.dim())
        self.callback(journal.close)
        return journal
