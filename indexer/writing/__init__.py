"""An index on disk, as writers make it: journal, segments, merging, commit, history and compaction."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragidx.indexer.writing.writer import StoreWriter
else:
    from ragidx.corpora.faces import face

    __getattr__ = face(__name__, {"StoreWriter": "writer"})

__all__ = ["StoreWriter"]
