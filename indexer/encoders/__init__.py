"""Texts to raw vectors: the methods, backbones, pooling, and the kinds of encoder."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragidx.indexer.encoders.embedder import Embedder
    from ragidx.indexer.encoders.protocol import Encoder
else:
    from ragidx.corpora.faces import face

    __getattr__ = face(__name__, {"Embedder": "embedder", "Encoder": "protocol"})

__all__ = ["Embedder", "Encoder"]
