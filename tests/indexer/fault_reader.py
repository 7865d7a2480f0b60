"""A process that reads an index which is made to harm, so that a test can see how it ends.

    python fault_reader.py INDEX FILE < edits          one edit a line, JSON; one answer a line, JSON

An edit is {"at": offset, "put": hex} or {"cut": length} or {"whole": hex}, made to the original FILE. Size and
checksum in the manifest are made to fit, as whoever means harm would. Then everything is read that a reader, a writer
and `verify` read. The answer: "read", or the text of the one IndexFormatError. Any other end is a defect: a
traceback, and exit status 1. Memory is limited, so that a length that is believed shows.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
from pathlib import Path

import numpy as np
from conftest import StoreKit
from states import words_of

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import read_manifest
from ragidx.indexer.store.verify import verify

MEMORY_BYTES = 4 << 30


def canonical(data: object) -> bytes:
    """JSON as a manifest is written, without its checksum and line feed."""
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def flip(path: Path, place: int | None = None) -> None:
    """Change a bit of a file: the last one of its byte in the middle, or of another."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.write_bytes(content)


def plant(index: Path, name: str, content: bytes) -> None:
    """Put `content` at the path `name` of an index, with size and checksum in the manifest that fit it.

    Postings name the texts that they were made of: with other columns the manifest has none.
    """
    (index / name).write_bytes(content)
    data = json.loads((index / "manifest.json").read_bytes())
    entry = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    folder, _, rest = name.partition("/")
    if folder == "segments":
        segment = next(segment for segment in data["segments"] if rest.startswith(segment["id"]))
        segment["files"][rest.split("/")[1]] = entry
    else:
        data["deletions"] = entry
    if name.endswith("chunks.arrow"):
        data["lexical"] = None
        for segment in data["segments"]:
            own = segment["files"].items()
            segment["files"] = {file: one for file, one in own if not file.startswith(("lexical-", "moments-"))}
    sign(index, data)


def sign(index: Path, data: dict[str, object]) -> None:
    """Write a manifest with the checksum that fits it."""
    rest = {name: value for name, value in data.items() if name != "checksum"}
    checksum = hashlib.sha256(canonical(rest)).hexdigest()
    (index / "manifest.json").write_bytes(canonical(rest | {"checksum": checksum}) + b"\n")


def read_all(index: Path) -> None:
    """Read what a search, a condition, a build and `verify` read."""
    lines = verify(index)
    assert all(": " in line for line in lines)
    store = Store.open(index)
    found = store.search(np.eye(store.manifest.dim, dtype=np.float32)[:2], 3)
    store.rows([row for rows in found.rows for row in rows])
    for segment in store.segments:
        segment.columns(["doc_id", *(f"meta.{name}" for name in store.manifest.schema)])
        segment.rows(range(segment.entry.rows))
        if segment.moments is not None:
            segment.moments.spread(np.eye(store.manifest.dim, dtype=np.float32))
    words_of(store)
    kit = StoreKit()
    with kit.writer(index, dim=store.manifest.dim, index=store.manifest.index) as writer:
        writer.known_documents()
        writer.reuse([kit.hash("text")])


def edited(whole: bytes, edit: dict[str, object]) -> bytes:
    if "whole" in edit:
        return bytes.fromhex(str(edit["whole"]))
    if "cut" in edit:
        return whole[: int(str(edit["cut"]))]
    at, put = int(str(edit["at"])), bytes.fromhex(str(edit["put"]))
    return whole[:at] + put + whole[at + len(put) :]


def main(index: Path, name: str) -> None:
    """Answer every edit of stdin."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    whole = (index / name).read_bytes()
    manifest = (index / "manifest.json").read_bytes()
    for line in sys.stdin:
        edit = json.loads(line)
        content = edited(whole, edit)
        if name == "manifest.json":
            (index / name).write_bytes(content)
        else:
            plant(index, name, content)
        try:
            read_manifest(index)
            read_all(index)
        except IndexFormatError as fault:
            answer = str(fault)
        else:
            answer = "read"
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        (index / name).write_bytes(whole)
        (index / "manifest.json").write_bytes(manifest)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
