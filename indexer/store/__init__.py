"""An index on disk, as readers see it: manifest, segments, deletions, look-up and checks."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragidx.indexer.store.store import Store
else:
    from ragidx.corpora.faces import face

    __getattr__ = face(__name__, {"Store": "store"})

__all__ = ["Store"]
