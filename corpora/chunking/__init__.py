"""Documents become chunks: pieces with token counts, levels of the places between them, and what packs them."""

from ragidx.corpora.chunking.chunker import Chunker
from ragidx.corpora.chunking.pieces import ID_DTYPE, Counter

__all__ = ["ID_DTYPE", "Chunker", "Counter"]
