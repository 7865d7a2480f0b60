"""The journal: vectors that are encoded but not committed yet, by text hash, so that a killed build can continue.

vectors (n, dim) are float32 or float16 when added, and float32 when read: rounded to float16, as in an index, or, of a
journal of raw vectors, as they were.

    header   64 bytes: magic "RAGIDXJ1", version u32, dim u32, sha256 of the key (32), crc32 of these 48 (u32), zeros
    record   16 bytes hash, 2 * dim bytes float16 or 4 * dim bytes float32, crc32 of both (u32); all little-endian

The version is 1 with float16 and 2 with float32.

Appends reach the operating system at once (a killed process loses none) but are not synced (a power loss may lose the
last ones). At open the file is cut before the first record whose crc32 is wrong. A file of another key, dim or version
is overwritten. Only the index's lock keeps a second process out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragidx.indexer import atomic
from ragidx.indexer.digests import DIGEST_BYTES, DigestTable, as_digests

MAGIC = b"RAGIDXJ1"
VERSION = 1
RAW_VERSION = 2

_HEAD = struct.Struct("<8sII32s")
_CRC = struct.Struct("<I")
_HEADER_BYTES = 64
_BLOCK_BYTES = 1 << 20


class Journal:
    """Vectors by text hash, in a file that only grows. Use `Journal.open`."""

    def __init__(self, path: Path, handle: int, dim: int, *, raw: bool) -> None:
        self.path = path
        self.dim = dim
        self._handle = handle
        self._type = np.dtype("<f4" if raw else "<f2")
        self._record = DIGEST_BYTES + self._type.itemsize * dim + _CRC.size
        self._count = 0
        self._numbers = DigestTable()

    @staticmethod
    def path_of(folder: Path, key: str) -> Path:
        """The path of the journal of `key`, a fingerprint, in `folder`."""
        return folder / f"{key[:16]}.bin"

    @classmethod
    def open(cls, folder: Path, key: str, dim: int, *, raw: bool = False) -> Journal:
        """The journal of `key` in `folder`, made if there is none; `raw`: of float32.

        Raises:
            RagidxError: the folder or the file cannot be written.
        """
        atomic.make_folder(folder)
        path = cls.path_of(folder, key)
        with atomic.writing(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        journal = cls(path, handle, dim, raw=raw)
        try:
            with atomic.writing(path):
                journal._recover(_header(key, dim, RAW_VERSION if raw else VERSION))
        except BaseException:
            journal.close()
            raise
        return journal

    def __len__(self) -> int:
        """Records, all of them whole."""
        return self._count

    def get(self, hashes: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """The vectors of those hashes that are here."""
        numbers = self._numbers.first(hashes)
        return {key: self._read(int(number)) for key, number in zip(hashes, numbers, strict=True) if number >= 0}

    def append(
        self, hashes: Sequence[bytes], vectors: NDArray[np.float16] | NDArray[np.float32], *, again: bool = False
    ) -> None:
        """Keep vectors; a hash that is here already keeps its vector.

        Args:
            hashes: n of 16 bytes.
            vectors: (n, dim) float32, a row for each hash.
            again: write a record for a hash that is here already, too: a mark for `drop_since`.

        Raises:
            RagidxError: the disk is full or failed; what was kept before is still there.
        """
        if vectors.shape != (len(hashes), self.dim):
            raise ValueError(f"vectors have the shape {vectors.shape}, not ({len(hashes)}, {self.dim})")
        codes = np.ascontiguousarray(vectors, self._type)
        known = self._numbers.first(hashes)
        fresh = {key: row for row, key in enumerate(hashes) if again or known[row] < 0}
        bodies = (key + codes[row].tobytes() for key, row in fresh.items())
        data = b"".join(body + _CRC.pack(zlib.crc32(body)) for body in bodies)
        self._write(data)
        for key, row in fresh.items():
            if known[row] < 0:
                self._numbers.add(key, self._count)
            self._count += 1

    def drop_since(self, key: bytes) -> None:
        """Cut off what came after the last record of a hash, or all where it has none, and close the file."""
        numbers = range(self._count - 1, -1, -1)
        last = next((n for n in numbers if os.pread(self._handle, DIGEST_BYTES, self._offset(n)) == key), -1)
        with atomic.writing(self.path):
            os.ftruncate(self._handle, self._offset(last + 1))
        self.close()

    def close(self) -> None:
        """Close the file and keep it; a second call does nothing."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):  # what did not reach the disk is encoded again: it is only a cache
                os.close(self._handle)
            self._handle = -1

    def _write(self, data: bytes) -> None:
        end = self._offset(self._count)
        with atomic.writing(self.path, len(data)):
            try:
                os.lseek(self._handle, end, os.SEEK_SET)
                atomic.write_all(self._handle, data)
            except OSError:
                os.ftruncate(self._handle, end)  # no half record before the next ones
                raise

    def _offset(self, number: int) -> int:
        return _HEADER_BYTES + number * self._record

    def _read(self, number: int) -> NDArray[np.float32]:
        data = os.pread(self._handle, self._type.itemsize * self.dim, self._offset(number) + DIGEST_BYTES)
        return np.frombuffer(data, self._type).astype(np.float32)

    def _recover(self, header: bytes) -> None:
        """Read what is there, and cut off what is torn; OSErrors are the caller's."""
        if os.pread(self._handle, _HEADER_BYTES, 0) != header:
            os.ftruncate(self._handle, 0)
            os.lseek(self._handle, 0, os.SEEK_SET)
            atomic.write_all(self._handle, header)
            return
        block = max(1, _BLOCK_BYTES // self._record)
        while records := self._whole(os.pread(self._handle, block * self._record, self._offset(self._count))):
            keys = [record[:DIGEST_BYTES] for record in records]
            self._numbers.extend(as_digests(keys), np.arange(self._count, self._count + len(keys)))
            self._count += len(keys)
        os.ftruncate(self._handle, self._offset(self._count))

    def _whole(self, data: bytes) -> list[bytes]:
        """The records at the start of `data`, up to the first that is short or has a wrong crc32."""
        records = []
        for start in range(0, len(data) - self._record + 1, self._record):
            record = data[start : start + self._record]
            if _CRC.pack(zlib.crc32(record[: -_CRC.size])) != record[-_CRC.size :]:
                break
            records.append(record)
        return records


def _header(key: str, dim: int, version: int) -> bytes:
    head = _HEAD.pack(MAGIC, version, dim, hashlib.sha256(key.encode()).digest())
    return (head + _CRC.pack(zlib.crc32(head))).ljust(_HEADER_BYTES, b"\0")
