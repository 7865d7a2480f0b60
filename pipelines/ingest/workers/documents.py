"""Documents of files, whole, for whoever wants their texts and no chunks.

Sources -> Documents; formats whose parsers a hostile file can break are read by a worker, as in a build
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.records import Document, OnSkip
from ragidx.corpora.sources import Source
from ragidx.pipelines.ingest.workers.spread import Spread


def documents(found: Iterable[Source], on_skip: OnSkip) -> Iterator[Document]:
    """The documents of files, in their order."""
    for _, drafts in Spread(ReadOptions(), Layouts(), on_skip, workers=1).drafts(found):
        for draft in drafts:
            assert draft.document is not None  # nobody cuts it
            yield draft.document
