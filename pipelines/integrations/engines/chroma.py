"""Chroma: a collection is only read, as it has no half precision, and no missing values in its metadata.

chroma:DIR    chroma:http://HOST:8000
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it may load onnxruntime, which tells its maker of it

import chromadb
from chromadb.config import Settings
from chromadb.errors import ChromaError, NotFoundError

from ragidx.corpora.errors import SpecError
from ragidx.pipelines.integrations.engines.layout import batches_of, beside
from ragidx.pipelines.integrations.engines.target import Target

_BLOCK = 1_000


class ChromaCollection:
    """A collection of Chroma, to read.

    Raises:
        SpecError: there is no Chroma in the folder, or no such collection.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        own = Settings(anonymized_telemetry=False)
        with target.faults(ChromaError, OSError, ValueError):
            try:
                if "://" in target.place:
                    parts = urlsplit(target.place)
                    client = chromadb.HttpClient(
                        parts.hostname or "", parts.port or 8000, ssl=parts.scheme == "https", settings=own
                    )
                elif (Path(target.place) / "chroma.sqlite3").is_file():
                    client = chromadb.PersistentClient(target.place, own)
                else:
                    raise SpecError("there is no Chroma", "name its folder", where=target.shown)
                self._collection = client.get_collection(target.name, embedding_function=None)
            except NotFoundError:
                hint = "name another: chroma:DIR#NAME"
                raise SpecError("there is no such collection", hint, where=target.shown) from None

    def known(self) -> None:
        """None: ragidx wrote no collection of Chroma."""

    def read(self) -> Iterator[Any]:
        """All rows as record batches."""
        rows = list[dict[str, Any]]()
        with self.target.faults(ChromaError, OSError, ValueError):
            while True:
                found = self._collection.get(
                    limit=_BLOCK, offset=len(rows), include=["embeddings", "documents", "metadatas"]
                )
                columns = (found[name] for name in ("ids", "embeddings", "documents", "metadatas"))
                block = [
                    beside(metadata or {}, {"id": name, "vector": vector, "text": text})
                    for name, vector, text, metadata in zip(*columns, strict=True)
                ]
                rows += block
                if len(block) < _BLOCK:
                    break
        yield from batches_of(rows)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


table = ChromaCollection
