"""A zip file, opened: its directory is bounded, since zipfile reads all of it at once."""

from __future__ import annotations

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragidx.corpora.limits import MIB, UnreadableError, shown_bytes

FAULTS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError),
    *(ValueError, LookupError, OverflowError, RecursionError),  # of headers that no program writes
    *(NotImplementedError, RuntimeError),  # of methods and passwords
)
"""What zipfile raises of a file."""

_DIRECTORY_BYTES = 16 * MIB


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive, whose directory has been read.

    Raises:
        UnreadableError: it is damaged, no zip file, or its directory is too large.
        OSError: it cannot be opened.
    """
    with _Bounded(io.FileIO(path)) as stream:
        try:
            archive = zipfile.ZipFile(stream)
        except (*FAULTS, OSError) as fault:
            raise UnreadableError(damaged(fault)) from fault
        with archive:
            yield archive


def damaged(fault: BaseException) -> str:
    """The reason for skipping what raised a fault of a library."""
    if isinstance(fault, RecursionError):
        return "damaged: headers nested too deep"
    if isinstance(fault, NotImplementedError):
        return "packed by a method that is not read"
    return f"damaged: {fault}" if str(fault) else f"damaged: {type(fault).__name__}"


class _Bounded(io.BufferedReader):
    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _DIRECTORY_BYTES:
            raise UnreadableError(f"a directory of more than {shown_bytes(_DIRECTORY_BYTES)}")
        return super().read(size)
