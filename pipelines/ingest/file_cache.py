"""Which files of a corpus need not be read again: those that a build has read, and that did not change since.

    Source (name, size, times, inode) -> the digests and hashes of its documents, as they were read, and its Skips

Kept beside the index, in `sources.cache`. It is asked, never believed: a file is passed over only while the index holds
all its documents with the same hashes, so a cache that is lost, old or damaged costs time, never a wrong answer. What
makes a file another one is what git looks at: size, time of the last write, time of the last change of the inode (which
no program can set), inode and device. A file that was touched in the last two seconds before it was read is not
noted: a later write could have the same time; nor is one of which something was skipped that the next reading may
take, such as a member that could not be opened. A file that took too long is noted, and not tried again. One write goes
unseen, here as in git: through a memory mapping that was written through before and not flushed since, which sets no
time again; `reread` finds it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import ragidx
from ragidx.corpora.errors import RagidxError
from ragidx.corpora.left_out import UNKNOWN_SCRIPT, Left
from ragidx.corpora.limits import Limits, ReadOptions
from ragidx.corpora.readers.registry import added_endings, said_of_fields, said_of_scans
from ragidx.corpora.records import OnSkip, Skip
from ragidx.corpora.sources import NO_PICTURE_TEXT, Source
from ragidx.indexer import atomic
from ragidx.indexer.digests import DIGEST_BYTES, Digests, DigestTable, digest
from ragidx.indexer.store.files import FILE_CACHE
from ragidx.indexer.store.lookup import Documents
from ragidx.indexer.store.manifest import read_regular
from ragidx.pipelines.ingest.report import SPENT

_RECORD = np.dtype([("source", "S16"), ("document", "S16"), ("hash", "V16")])  # those of a source are together
_FORMAT = 5  # rises where readers give other documents, so that files are opened again
READING = (
    *("chardet", "faster-paddle", "pathspec", "pillow", "py3langid", "pyarrow", "pypdfium2", "python-oxmsg", "pyyaml"),
    "selectolax",
)
"""Packages by which documents are read."""
_SETTLED_NS = 2_000_000_000  # the coarsest clock of a file system that is in use (FAT)
_SPARE_RECORDS = 65_536
_MOST_SKIPS = 100_000  # that are noted in a build; files with later ones are read again
_SKIP_BYTES = 128 << 20  # of all that are noted, as JSON
_SCANS = {"pages read by OCR", "pages without Unicode", "scanned pages", UNKNOWN_SCRIPT, NO_PICTURE_TEXT}
_IN_VAIN = (*SPENT, UNKNOWN_SCRIPT, NO_PICTURE_TEXT)  # what was found out about a file without a document, at length
_PASSING = (  # reasons that are not of the bytes of a file
    *("cannot be read", "cannot be converted", "needs the extra", "needs more than", "needs a Python"),
    *("a defect", "the reader"),
)


class SeenFiles:
    """The files of one build, beside those of the one before.

    `documents` are those of the committed state. With other limits or readers, and with `reread`, every file is read;
    with `retry`, those that took too long.
    """

    def __init__(
        self,
        index: Path,
        options: ReadOptions,
        documents: Documents,
        *,
        reread: bool = False,
        retry: bool = False,
    ) -> None:
        self._path = index / FILE_CACHE
        self._documents = documents
        self._options = options
        self._rules = _rules_of(options.limits)
        self._old, self._old_skips = self._read(self._path, 2 * len(documents) + _SPARE_RECORDS)
        self._records = np.frombuffer(self._old, _RECORD)
        self._same = documents.match(self._records["document"], self._records["hash"]) & (not reread)
        self._retries = retry or reread
        self._passed = np.zeros(len(self._records), np.bool_)
        self._next = 0  # the walk has an order: after a file's records come those of the next file
        self._new, self._new_skips = bytearray(), dict[str, list[list[Any]]]()  # by the source's digest, in hex
        self._added = added_endings()
        self._source: Source | None = None  # that is being read; None: it is not to be noted
        self._begun = 0
        self._read_here: list[bytes] = []
        self._skipped_here: list[list[Any]] = []  # after the file's name, reason or kind, count of what is left out
        self._n_skips = 0

    def passes(self, source: Source, on_skip: OnSkip) -> int | None:
        """How many documents of the index a file still is, whose skips are repeated; None: it has to be read.

        Files come one after another.
        """
        self._settle()
        for key in self._keys(source):
            if (places := self._known(key)) or self._was_given_up(key):
                break
        else:
            self._source, self._begun = source, time.time_ns()
            return None
        start, end = places.start, places.stop
        self._next = end or self._next
        self._passed[start:end] = True
        self._new += self._old[start * _RECORD.itemsize : end * _RECORD.itemsize]
        self._keep_skips([key])
        for at, reason, count in self._old_skips.get(key.hex(), []):
            where = f"{source.name}{at}"
            on_skip(Left(where, reason, count) if count else Skip(where, reason))
        return end - start

    def is_known(self, source: Source) -> bool:
        """Whether `passes` will pass over a file, unless a document read before its turn has one of its ids."""
        return any(self._known(key) or self._was_given_up(key) for key in self._keys(source))

    def takes(self, key: bytes, doc_hash: bytes) -> bool:
        """Note a document of the file that is being read, by its digest; False: a file passed over has its id.

        A file that is still to come, and has it too, is then read, and reported.
        """
        known = self._by_document.find(key)
        if self._passed[known].any():
            return False
        self._same[known] = False
        self._read_here.append(key + doc_hash)
        return True

    def skipped(self, skip: Skip | Left) -> None:
        """Note what was skipped of the file that is being read, or left out."""
        self._n_skips += 1
        reason, count = (skip.kind, skip.count) if isinstance(skip, Left) else (skip.reason, 0)
        may_pass = reason.startswith(_PASSING) and not reason.startswith(SPENT)
        if may_pass or self._n_skips > _MOST_SKIPS:
            self._source = None
        if self._source is not None:
            self._skipped_here.append([skip.where.removeprefix(self._source.name), reason, count])

    def read_again(self) -> None:
        """Read this file the next time, too: what is skipped of it depends on more than its bytes."""
        self._source = None

    def keep(self) -> None:
        """Keep the documents of all files that were passed over; at the end, before the others are deleted."""
        self._settle()
        self._documents.keep_all(self.passed)

    def carry(self, documents: Digests) -> None:
        """Note the files of these documents as before: they were not looked at."""
        carried = self._records[np.isin(self._records["document"], documents) & ~self._passed]
        self._new += carried.tobytes()
        self._keep_skips(key.ljust(DIGEST_BYTES, b"\0") for key in np.unique(carried["source"]).tolist())

    @property
    def passed(self) -> Digests:
        """The digests of the documents of all files that were passed over."""
        return self._records["document"][self._passed]

    def take(self, folder: Path, n_documents: int) -> None:
        """Note what a build of so many documents into another folder has noted, of files that this one did not read."""
        records, skips = self._read(folder / FILE_CACHE, n_documents + _SPARE_RECORDS)
        self._new += records
        self._new_skips |= skips

    def write(self) -> None:
        """Leave the cache for the next build, where it differs. A full disk is not an error here."""
        if self._new == self._old and self._new_skips == self._old_skips:
            return
        body = len(self._new).to_bytes(8, "little") + self._new + json.dumps(self._new_skips).encode()
        with contextlib.suppress(RagidxError):
            atomic.write_file(self._path, _digest_of(self._rules, body) + body)

    def _settle(self) -> None:
        """The file that was read is through: note it, if it may be passed over the next time."""
        source, found, skips = self._source, self._read_here, self._skipped_here
        self._source, self._read_here, self._skipped_here = None, [], []
        is_scan = any(reason in _SCANS for _, reason, _ in skips)
        if source is None or source.status is None or not (key := self._key(source, is_scan=is_scan)):
            return
        if max(source.status.st_mtime_ns, source.status.st_ctime_ns) < self._begun - _SETTLED_NS:
            self._new += b"".join(key + record for record in found)
            if skips and (found or any(reason.startswith(_IN_VAIN) for _, reason, _ in skips)):
                self._new_skips[key.hex()] = skips

    def _keep_skips(self, keys: Iterable[bytes]) -> None:
        """Note what was skipped of files that were not read."""
        names = (key.hex() for key in keys)
        self._new_skips |= {name: self._old_skips[name] for name in names if name in self._old_skips}

    def _keys(self, source: Source) -> Iterator[bytes]:
        """What a file may be known by."""
        return (self._key(source, is_scan=is_scan) for is_scan in (False, True))

    def _key(self, source: Source, *, is_scan: bool) -> bytes:
        """What a file is known by; empty: it is never known: standard input, a part, or read by what others wrote.

        What is said of text recognition is part of it where the file has scanned pages.
        """
        s = source.status
        if s is None or source.span is not None or source.name.lower().endswith(self._added):
            return b""
        times = f"{s.st_mtime_ns} {s.st_ctime_ns}"
        said = said_of_fields(source, self._options)  # other words, and the files that they are about are read again
        said += f"\0{said_of_scans(source, self._options)}" if is_scan else ""
        return digest(f"{source.name}\0{s.st_size} {times} {s.st_ino} {s.st_dev} {source.beir}{said}")

    def _known(self, key: bytes) -> range:
        """The records of a source, where the index holds all its documents; else none."""
        start = end = self._place(key)
        while start >= 0 and self._key_at(end) == key:
            end += 1
        return range(start, end) if start < end and self._same[start:end].all() else range(0)

    def _was_given_up(self, key: bytes) -> bool:
        """Whether a file without a document took too long, or was read in vain, and is not tried again."""
        skips = () if self._retries or not key else self._old_skips.get(key.hex(), ())
        return any(reason.startswith(_IN_VAIN) for _, reason, _ in skips) and self._place(key) < 0

    def _place(self, key: bytes) -> int:
        """The first record of a source, -1 where it has none."""
        if not key:
            return -1
        if self._key_at(self._next) == key:
            return self._next
        return min(self._table.find(key), default=-1)

    def _key_at(self, place: int) -> bytes:
        start = place * _RECORD.itemsize
        return self._old[start : start + DIGEST_BYTES]

    @functools.cached_property
    def _table(self) -> DigestTable:
        return self._table_of("source")

    @functools.cached_property
    def _by_document(self) -> DigestTable:
        return self._table_of("document")

    def _table_of(self, field: str) -> DigestTable:
        """The places of records, by one of their digests."""
        table = DigestTable()
        table.extend(self._records[field], np.arange(len(self._records)))
        return table

    def _read(self, path: Path, most: int) -> tuple[bytes, dict[str, list[list[Any]]]]:
        """The records and the skips; empty where the file is missing, damaged, of other rules, or no such file."""
        try:
            data = read_regular(path, DIGEST_BYTES + 8 + most * _RECORD.itemsize + _SKIP_BYTES)
        except (OSError, ValueError):
            return b"", {}
        body = data[DIGEST_BYTES:]
        if data[:DIGEST_BYTES] != _digest_of(self._rules, body):
            return b"", {}
        end = 8 + int.from_bytes(body[:8], "little")
        return body[8:end], json.loads(body[end:])


def _digest_of(rules: bytes, body: bytes) -> bytes:
    return hashlib.sha256(rules + body).digest()[:DIGEST_BYTES]


@functools.cache
def _rules_of(limits: Limits) -> bytes:
    """What else the documents of a file depend on: bounds, and the version of whatever reads it."""
    versions = {}
    for name in READING:
        with contextlib.suppress(metadata.PackageNotFoundError):  # an extra that is not installed
            versions[name] = metadata.version(name)
    return digest(json.dumps([_FORMAT, ragidx.__version__, dataclasses.asdict(limits), versions]))
