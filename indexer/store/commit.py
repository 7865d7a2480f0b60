"""The one moment of every change: a manifest is written beside the committed one, and then renamed over it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ragidx.indexer import atomic
from ragidx.indexer.atomic import FileEntry
from ragidx.indexer.store.manifest import (
    MANIFEST,
    Manifest,
    blob_path,
    file_entry,
    manifest_bytes,
    numbered_path,
    parse_manifest,
)


def write_blobs(folder: Path, blobs: Mapping[str, bytes]) -> dict[str, FileEntry]:
    """Write the small files that belong to a spec; what the manifest says of them, by name.

    Raises:
        RagidxError: the disk is full or failed.
    """
    entries = {name: file_entry(data) for name, data in blobs.items()}
    for name, entry in entries.items():
        path = folder / blob_path(name, entry)
        atomic.make_folder(path.parent)
        atomic.write_file(path, blobs[name])  # also over one that is there: it may be damaged
    return entries


def commit(folder: Path, manifest: Manifest) -> None:
    """Make a manifest the committed state of an index; all that it names is on the disk already.

    Raises:
        RagidxError: the disk is full or failed; the committed state is what it was, or this one.
    """
    data = manifest_bytes(manifest)
    parse_manifest(data)  # what is committed can be read: a fault shows here, not at the next open
    atomic.write_file(folder / numbered_path(manifest.generation), data)
    atomic.write_file(folder / MANIFEST, data)
