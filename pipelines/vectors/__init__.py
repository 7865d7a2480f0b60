"""Precomputed vectors into an index: RowWriter, build_vectors, and the model that answers questions."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragidx.pipelines.vectors.build import build_vectors
    from ragidx.pipelines.vectors.writer import RowWriter
else:
    from ragidx.corpora.faces import face

    __getattr__ = face(__name__, {"RowWriter": "writer", "build_vectors": "build"})

__all__ = ["RowWriter", "build_vectors"]
