"""Documents of files, whole, for whoever wants their texts and no chunks.

Sources -> Documents; formats whose parsers a hostile file can break are read by a worker, as in a build
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.records import Document, OnSkip
from ragidx.corpora.sources import Source
from ragidx.pipelines.ingest.workers.chunks import Cutter, Item
from ragidx.pipelines.ingest.workers.spread import Spread


class Uncut(Cutter):
    """Leaves documents as they are.

    Attributes:
        documents: those that were to be cut.
    """

    def __init__(self) -> None:
        super().__init__(_no_chunker, ahead=False)
        self.documents: list[Document] = []

    def cut(self, document: Document, doc_hash: bytes, owner: int = 0) -> list[Item]:
        """No chunk."""
        self.documents.append(document)
        return []


def _no_chunker() -> Chunker:
    raise AssertionError


def documents(found: Iterable[Source], on_skip: OnSkip) -> Iterator[Document]:
    """The documents of files, in their order."""
    cutter = Uncut()
    for _, drafts in Spread(ReadOptions(), Layouts(), cutter, on_skip, workers=1).drafts(found):
        for draft in drafts:
            draft.cut()
            yield cutter.documents.pop()
