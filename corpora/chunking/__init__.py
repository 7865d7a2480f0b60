"""Documents become chunks: pieces with token counts, levels of the places between them, and what packs them."""

from ragidx.corpora.chunking.chunker import Chunker

__all__ = ["Chunker"]
