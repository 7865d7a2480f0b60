"""Archives: the files in a .zip or .tar, each read by the reader of its own ending.

    bytes -> members -> Documents named `a.zip/docs/x.md`

Members are streamed, never written under their names. Only regular ones are read, and no archive in an archive. Bounds
count the bytes that are read, whatever the headers say; a damaged member never loses the others.
"""

from __future__ import annotations

import io
import lzma
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ragidx.corpora.errors import lone_surrogate, printable
from ragidx.corpora.limits import RATIO_FROM_BYTES, Limits, UnreadableError, shown_bytes
from ragidx.corpora.readers.registry import member_documents
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document

_REST = ": the rest is skipped"
_MOST_NAME = 4096
_SHOWN_CHARS = 100  # of a name that no member is read by
_FAULTS = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error, EOFError),
    *(ValueError, LookupError, OverflowError, RecursionError),  # of headers that no program writes
    *(NotImplementedError, RuntimeError),  # of methods and passwords
)
"""What zipfile and tarfile raise of a file."""


def read_zip(file: SourceFile) -> Iterator[Document]:
    """The documents of a .zip."""
    _refuse_inside(file)
    with file.path() as path, _opened(path) as archive:
        budget, names = _Budget(file.limits, path.stat().st_size), _Names(file)
        for info in archive.infolist():
            reason = _zip_fault(info)
            if (name := names.take(info.filename, reason, is_folder=info.filename.endswith("/"))) is None:
                continue
            try:
                member = archive.open(info)
            except _FAULTS as fault:
                file.skip(_damaged(fault), f"/{name}")
                continue
            with member, io.BufferedReader(_Counted(member, budget)) as counted:
                yield from member_documents(file, name, counted, info.file_size)
            if budget.reason:
                return


def read_tar(file: SourceFile) -> Iterator[Document]:
    """The documents of a .tar, which is read once from its beginning to its end."""
    _refuse_inside(file)
    with file.stream() as stream:
        budget = _Budget(file.limits, file.source.size)
        counted = _Counted(stream, budget)
        try:
            with tarfile.TarFile.open(fileobj=counted, mode="r|", tarinfo=_Header) as archive:
                yield from _tar_members(file, archive, budget)
        except _FAULTS as fault:
            raise UnreadableError(f"{_damaged(fault)}{_REST}") from fault


def member_name(raw: str) -> str:
    """The name of a member below its archive, as the walk would name it.

    Raises:
        UnreadableError: there is no such name.

    >>> member_name("./docs\\\\a.md"), member_name("/etc/hosts")
    ('docs/a.md', 'etc/hosts')
    """
    if lone_surrogate(raw) is not None:
        raise UnreadableError("its name is not UTF-8")
    if len(raw) > _MOST_NAME:
        raise UnreadableError(f"its name has more than {_MOST_NAME:,} characters")
    parts = [part for part in unicodedata.normalize("NFC", raw).replace("\\", "/").split("/") if part not in ("", ".")]
    if ".." in parts or not parts:
        raise UnreadableError("its name leads out of the archive")
    if any(part.startswith(".") or part == "__MACOSX" for part in parts):
        raise UnreadableError("hidden")
    return "/".join(parts)


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (*_FAULTS, OSError) as fault:
        raise UnreadableError(_damaged(fault)) from fault


def _damaged(fault: BaseException) -> str:
    """The reason for skipping what raised a fault of a library."""
    if isinstance(fault, RecursionError):
        return "damaged: headers nested too deep"
    if isinstance(fault, NotImplementedError):
        return "packed by a method that is not read"
    return f"damaged: {fault}" if str(fault) else f"damaged: {type(fault).__name__}"


def _refuse_inside(file: SourceFile) -> None:
    if file.depth:
        raise UnreadableError("an archive inside another file")


def _tar_members(file: SourceFile, archive: tarfile.TarFile, budget: _Budget) -> Iterator[Document]:
    names = _Names(file)
    while not budget.reason and (info := archive.next()) is not None:
        reason = "" if info.isreg() and not info.issparse() else "not a regular file"
        if (name := names.take(info.name, reason, is_folder=info.isdir())) is None:
            continue
        member = archive.extractfile(info)
        assert member is not None  # of a regular one
        counted = io.BufferedReader(_Counted(member, None))
        yield from member_documents(file, name, counted, info.size)


_BROKEN_HEADERS = (
    tarfile.TruncatedHeaderError,  # type: ignore[attr-defined]  # typeshed leaves them out
    tarfile.InvalidHeaderError,  # type: ignore[attr-defined]
)


class _Header(tarfile.TarInfo):
    """A header; tarfile alone takes a broken one for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> _Header:
        try:
            return super().fromtarfile(tarfile_)
        except _BROKEN_HEADERS as fault:
            raise tarfile.ReadError(str(fault)) from fault


class _Names:
    """The names of an archive's members, counted, each once."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._taken: set[str] = set()
        self._count = 0

    def take(self, raw: str, reason: str, *, is_folder: bool) -> str | None:
        """The name of a member that is read; None: it is a folder, or skipped and reported.

        Raises:
            UnreadableError: the archive has too many members.
        """
        self._count += 1
        if self._count > self._file.limits.archive_members:
            raise UnreadableError(f"an archive of more than {self._file.limits.archive_members:,} files{_REST}")
        if is_folder:
            return None
        try:
            name = member_name(raw)
        except UnreadableError as fault:
            shown = printable(raw if len(raw) <= _SHOWN_CHARS else f"{raw[:_SHOWN_CHARS]}...")
            self._file.skip(str(fault), f"/{shown}")
            return None
        if name in self._taken:
            reason = "another member has the same name"
        self._taken.add(name)
        if reason:
            self._file.skip(reason, f"/{name}")
            return None
        return name


class _Budget:
    """What an archive may unpack to."""

    def __init__(self, limits: Limits, packed_bytes: int) -> None:
        self._limits = limits
        self._packed_bytes = max(1, packed_bytes)
        self._count = 0
        self.reason = ""  # why nothing more is read; empty: more may be

    def spend(self, count: int) -> None:
        """Count bytes that were read.

        Raises:
            UnreadableError: they are too many.
        """
        limits = self._limits
        self._count += count
        if self._count > limits.archive_bytes:
            self.reason = f"expands to more than {shown_bytes(limits.archive_bytes)}"
        elif self._count > max(RATIO_FROM_BYTES, limits.archive_ratio * self._packed_bytes):
            self.reason = f"expands to more than {limits.archive_ratio} times its size"
        if self.reason:
            self.reason = self.reason.removesuffix(_REST) + _REST
            raise UnreadableError(self.reason)


class _Counted(io.RawIOBase):
    """Bytes of a member or of an archive, counted; faults of the libraries become reasons."""

    def __init__(self, inner: IO[bytes], budget: _Budget | None) -> None:
        self._inner = inner
        self._budget = budget
        self._count = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._count

    def readinto(self, buffer: Any) -> int:
        try:
            block = self._inner.read(len(buffer))
        except _FAULTS as fault:
            raise UnreadableError(_damaged(fault)) from fault
        except OSError as fault:
            if fault.errno is not None:
                raise
            raise UnreadableError(_damaged(fault)) from fault  # bz2's
        self._count += len(block)
        if self._budget is not None:
            self._budget.spend(len(block))
        buffer[: len(block)] = block
        return len(block)


def _zip_fault(info: zipfile.ZipInfo) -> str:
    """Why a member is not read; empty if it is."""
    if info.flag_bits & 0x1:
        return "encrypted"
    kind = info.external_attr >> 28  # of the mode of Unix; 0: of another system
    return "" if kind in (0, 0o10) else "not a regular file"
