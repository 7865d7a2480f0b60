"""An index with every kind of file, small enough to change each byte: two segments, metadata, a blob, a journal."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from fault_operations import small_indexes

if TYPE_CHECKING:
    from conftest import StoreKit

SEED = 20_250_131
SEGMENT = "segments/00000001-0000"
READ = (  # every file that the committed state consists of
    "manifest.json",
    f"{SEGMENT}/vectors.faiss",
    f"{SEGMENT}/ann.faiss",
    f"{SEGMENT}/chunks.arrow",
    f"{SEGMENT}/lexical-00000001.arrow",
    f"{SEGMENT}/moments-00000001.bin",
    "segments/00000002-0000/vectors.faiss",
    "segments/00000002-0000/ann.faiss",
    "segments/00000002-0000/chunks.arrow",
    "segments/00000002-0000/lexical-00000002.arrow",
    "segments/00000002-0000/moments-00000002.bin",
    "deletions/00000002.arrow",
    "files/filter.bin",
)
KEPT = ("manifest.1.json", "manifest.2.json")  # what an earlier state is gone back to with, and a manifest mended with
NOT_READ = ("LOCK", "journal/ffffffffffffffff.bin")
BLOBS = {"filter.bin": bytes(range(64))}
DOCUMENTS = {f"d{n}": [f"text {n} {part}" for part in range(3)] for n in range(8)}


def make_index(kit: StoreKit, path: Path) -> None:
    """Two commits, the second with a deletion, and a writer that ended without a third."""
    options = {"index_type": "hnsw", "blobs": BLOBS}
    with small_indexes():
        with kit.writer(path, **options) as writer:
            for number, (doc_id, texts) in enumerate(DOCUMENTS.items()):
                metadata = {"year": 1900 + number, "title": f"the title {number}", "old": number < 4}
                kit.add(writer, kit.rows(doc_id, texts, **metadata))
            writer.commit({}, len(DOCUMENTS))
        with kit.writer(path, **options) as writer:
            writer.delete_document("d0")
            kit.add(writer, kit.rows("new", ["one", "two"]))
            writer.commit({}, len(DOCUMENTS))
        with kit.writer(path, **options) as writer:
            kit.add(writer, kit.rows("later", ["encoded, not committed"]))


def path_of(index: Path, name: str) -> Path:
    """Where a file of `READ`, `KEPT` or `NOT_READ` lies."""
    return next(index.glob("files/*-filter.bin")) if name == "files/filter.bin" else index / name


def offsets(size: int, name: str, most: int) -> list[int]:
    """The first and the last byte, and others up to `most`; all of them where there are no more."""
    if size <= most:
        return list(range(size))
    return sorted({0, size - 1, *random.Random(f"{SEED}-{name}").sample(range(size), most - 2)})
