"""The one moment of every change: a manifest is written beside the committed one, and then renamed over it."""

from __future__ import annotations

from pathlib import Path

from ragidx.indexer import atomic
from ragidx.indexer.manifest import MANIFEST, Manifest, manifest_bytes, numbered_path, parse_manifest


def commit(folder: Path, manifest: Manifest) -> None:
    """Make a manifest the committed state of an index; all that it names is on the disk already.

    Raises:
        RagidxError: the disk is full or failed; the committed state is what it was, or this one.
    """
    data = manifest_bytes(manifest)
    parse_manifest(data)  # what is committed can be read: a fault shows here, not at the next open
    atomic.write_file(folder / numbered_path(manifest.generation), data)
    atomic.write_file(folder / MANIFEST, data)
