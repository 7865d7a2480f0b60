"""What an index holds already, read without a change: its documents, and the texts that have vectors.

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
from ragidx.indexer.store.files import JOURNAL
from ragidx.indexer.store.lookup import CommittedVectors, Documents
from ragidx.indexer.writing.journal import Journal
from ragidx.pipelines.ingest.resolve import Resolved
from ragidx.pipelines.ingest.workers.chunks import Item


class Known(contextlib.ExitStack):
    """The index that a build would continue, if there is one; the copy of a journal is removed at the end.

    Args:
        resolved: of the build.
        index: its folder.

    Attributes:
        documents: of the committed state.

    Raises:
        RagidxError: the journal cannot be copied.
    """

    def __init__(self, resolved: Resolved, index: Path) -> None:
        super().__init__()
        self._seen: set[bytes] = set()
        store = resolved.stored
        self.documents = Documents(store)
        self._committed = CommittedVectors(store)
        self._journal = self._journal_of(resolved, index)

    def fresh(self, items: Sequence[Item]) -> list[str]:
        """The texts that have no vector yet, each once, here and in later calls."""
        texts = {item.row.text_hash: item.text for item in items if item.row.text_hash not in self._seen}
        self._seen |= texts.keys()
        keys = list(texts)
        if keys:
            keys = [key for key, is_known in zip(keys, self._committed.known(keys), strict=True) if not is_known]
        if keys and self._journal is not None:
            known = self._journal.get(keys)
            keys = [key for key in keys if key not in known]
        return [texts[key] for key in keys]

    def _journal_of(self, resolved: Resolved, index: Path) -> Journal | None:
        """A copy of the journal that the build would continue."""
        if resolved.wants_a_sample:  # its numbers name the journal, and they are not there yet
            return None
        key = resolved.fingerprint()
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
        journal = Journal.open(place, key, resolved.dim())
        self.callback(journal.close)
        return journal
