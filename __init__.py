"""ragidx: a folder of documents becomes a vector index, encoded by the decoder language model you already have.

    ragidx.build("corpus/", "index/")
    ragidx.Retriever.open("index/").search("who signed the lease?")
    ragidx.build_vectors("vectors.parquet", "own/"); ragidx.IndexReader.open("own/").search(queries)

Names are loaded when they are first used: `import ragidx` imports none of torch, transformers and faiss.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragidx.corpora.errors import RagidxError
    from ragidx.corpora.records import Chunk, Document
    from ragidx.indexer.encoders.load import load_encoder
    from ragidx.indexer.filters.filter import EmbedFilter
    from ragidx.pipelines.ingest.build import add, build
    from ragidx.pipelines.maintain.sources import remove, sources
    from ragidx.pipelines.vectors.build import build_vectors
    from ragidx.pipelines.vectors.writer import IndexWriter
    from ragidx.retriever.hit import Hit
    from ragidx.retriever.reader import IndexReader
    from ragidx.retriever.retriever import Retriever

__version__ = "0.1.0"

__all__ = [
    "Chunk",
    "Document",
    "EmbedFilter",
    "Hit",
    "IndexReader",
    "IndexWriter",
    "RagidxError",
    "Retriever",
    "add",
    "build",
    "build_vectors",
    "load_encoder",
    "remove",
    "sources",
]

_HOMES = {
    "Chunk": "corpora.records",
    "Document": "corpora.records",
    "EmbedFilter": "indexer.filters.filter",
    "Hit": "retriever.hit",
    "IndexReader": "retriever.reader",
    "IndexWriter": "pipelines.vectors.writer",
    "RagidxError": "corpora.errors",
    "Retriever": "retriever.retriever",
    "add": "pipelines.ingest.build",
    "build": "pipelines.ingest.build",
    "build_vectors": "pipelines.vectors.build",
    "load_encoder": "indexer.encoders.load",
    "remove": "pipelines.maintain.sources",
    "sources": "pipelines.maintain.sources",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ragidx' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ragidx.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
