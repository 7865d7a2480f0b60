"""The descriptor of a shard that is done: a small file beside its folder, read as untrusted JSON."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from ragidx.indexer.json_checks import integer, record, string
from ragidx.indexer.store.entries import MAX_BYTES
from ragidx.indexer.store.files import MANIFEST

ID = re.compile(r"[0-9a-f]{16}")
"""Of a division."""


@dataclass(frozen=True, kw_only=True)
class Descriptor:
    """A shard that is done.

    Attributes:
        division: the id of its division.
        number: number of the shard, from 0.
        folder: name of the shard's folder, in the division's folder of shards.
        manifest: sha256 of its manifest, which has the sizes and checksums of all its files.
        n_documents, n_chunks: number of documents and chunks that the shard adds.
    """

    division: str
    number: int
    folder: str
    manifest: str
    n_documents: int
    n_chunks: int


_DESCRIPTOR = record(
    Descriptor,
    division=string(ID.fullmatch),
    number=integer(0, MAX_BYTES),
    folder=string(lambda name: Path(name).name == name),
    manifest=string(bool),
    n_documents=integer(0, MAX_BYTES),
    n_chunks=integer(0, MAX_BYTES),
)


def read_descriptor(path: Path) -> Descriptor:
    """What a file says of a shard; its folder is beside it.

    Raises:
        OSError, ValueError, RecursionError: it cannot be read, or is something else.
    """
    return _DESCRIPTOR(json.loads(path.read_bytes()), "")


def manifest_digest(folder: Path) -> str:
    """sha256 of a shard's manifest."""
    return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
