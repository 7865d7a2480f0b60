"""The files of an index: their names, and the generation in a name. `docs/store.md` lists their bytes.

    manifest.json, manifest.<generation>.json, LOCK, sources.cache
    segments/<generation>-<number>/    vectors.faiss, chunks.arrow    in every segment
                                       ann.faiss                      in a segment with a faster index
                                       lexical-<generation>.arrow     where the index has a lexical part
                                       moments-<generation>.bin       there too, in a segment of many rows
    deletions/<generation>.arrow       the dead rows of a generation
    files/<sha256[:16]>-<name>         what belongs to the spec
    journal/                           see `ragidx.indexer.writing.journal`
    upgrade/<fingerprint[:16]>/        an index that is to take the place of this one, and a lock

A file that a manifest names never changes, so each name has the generation that wrote it, or a checksum. Narrower
copies of vectors, which no manifest names, are in `ragidx.indexer.ann.prefixes`.
"""

from __future__ import annotations

import re

from ragidx.indexer.atomic import FileEntry

MANIFEST = "manifest.json"
LOCK = "LOCK"  # see `ragidx.indexer.store.lock`
FILE_CACHE = "sources.cache"  # a build's notes on its files; not part of any committed state

SEGMENTS = "segments"
DELETIONS = "deletions"
FILES = "files"
JOURNAL = "journal"
UPGRADES = "upgrade"
PARTS = (SEGMENTS, DELETIONS, FILES, JOURNAL)  # the folders of an index

VECTORS = "vectors.faiss"
CHUNKS = "chunks.arrow"
ANN = "ann.faiss"
LEXICAL = "lexical"
MOMENTS = "moments"

DELETED_FILE = "deleted.json"
"""The ids of documents or rows that `delete` removed, as sorted JSON; beside the files of the spec."""

_GENERATION = "([0-9]{8,16})"
_NAMES = {
    MANIFEST: re.compile(r"manifest\.([1-9][0-9]{0,15})\.json"),
    SEGMENTS: re.compile(rf"{_GENERATION}-[0-9]{{4,9}}"),
    DELETIONS: re.compile(rf"{_GENERATION}\.arrow"),
    LEXICAL: re.compile(rf"lexical-{_GENERATION}\.arrow"),
    MOMENTS: re.compile(rf"moments-{_GENERATION}\.bin"),
}
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_BLOB = re.compile(r"[0-9a-f]{16}-[A-Za-z0-9][A-Za-z0-9._-]*")


def generation_of(kind: str, name: str) -> int | None:
    """The generation that wrote a file; None where no file of this kind has such a name.

    >>> generation_of(SEGMENTS, "00000003-0001"), generation_of(MANIFEST, "manifest.json")
    (3, None)
    """
    found = _NAMES[kind].fullmatch(name)
    return None if found is None else int(found[1])


def numbered_path(generation: int) -> str:
    """The name of a generation's own copy of its manifest."""
    return f"manifest.{generation}.json"


def segment_id(generation: int, number: int) -> str:
    """The id of the `number`-th new segment of a generation, which is the name of its folder."""
    return f"{generation:08d}-{number:04d}"


def lexical_name(generation: int) -> str:
    """The name of the postings that a generation writes."""
    return f"{LEXICAL}-{generation:08d}.arrow"


def moments_name(generation: int) -> str:
    """The name of the moments that a generation writes."""
    return f"{MOMENTS}-{generation:08d}.bin"


def deletions_path(generation: int) -> str:
    """The path of the dead rows of a generation in the index."""
    return f"{DELETIONS}/{generation:08d}.arrow"


def blob_path(name: str, entry: FileEntry) -> str:
    """The path in the index of a file that belongs to the spec."""
    return f"{FILES}/{entry.sha256[:16]}-{name}"


def is_file_name(name: str) -> bool:
    """Whether a file that belongs to the spec may have this name: a plain base name."""
    return _FILE_NAME.fullmatch(name) is not None


def is_blob(name: str) -> bool:
    """Whether a file in `files` is one that belongs to a spec."""
    return _BLOB.fullmatch(name) is not None
