"""Writing to disk: the one place through which the store creates, syncs, renames and removes files.

    with create(path) as file: file.write(...)      a new file, synced when the block ends, removed when it fails
    write_file(path, data)                          the same under a temporary name, then renamed over `path`

Every failure of the operating system becomes a RagidxError that names the path and what to do (`writing`). Errors of
reading are not translated here: the reader knows what a bad file means.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import RagidxError, check_machine

TEMPORARY = ".tmp"

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM}


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file in a manifest: its length in bytes and its sha256 (hex)."""

    bytes: int
    sha256: str

    def to_json(self) -> dict[str, int | str]:
        """Both fields."""
        return {"bytes": self.bytes, "sha256": self.sha256}


@contextlib.contextmanager
def writing(path: Path, size: int = 0) -> Iterator[None]:
    """Turn the OSErrors of the block into a RagidxError about `path`; `size` is the bytes wanted, 0 if unknown.

    Raises:
        RagidxError: the disk is full, read-only or closed to this user, or failed.
        MachineError: no more files can be opened, or there is no memory left.
    """
    try:
        yield
    except OSError as fault:
        check_machine(fault, path)
        reason = os.strerror(fault.errno) if fault.errno else str(fault)
        raise RagidxError(f"cannot write: {reason}", _hint(fault.errno, size), where=str(path)) from fault


class NewFile(io.RawIOBase):
    """A file that did not exist before, hashed while it is written. FAISS and Arrow write into it as well.

    At its start `head` bytes are reserved for content that is known only at the end; `put_head` writes them.
    """

    def __init__(self, path: Path, *, head: int = 0) -> None:
        self.path = path
        with writing(path):
            self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._bytes = 0
        self._sha256 = hashlib.sha256()
        self._headless = head > 0
        if head:
            try:
                self.write(bytes(head))
            except BaseException:
                self.close()
                raise

    @property
    def entry(self) -> FileEntry:
        """Length and sha256 of what was written so far."""
        return FileEntry(self._bytes, self._sha256.hexdigest())

    def write(self, data: Any) -> int:
        """Write all of `data`, in as many system calls as needed."""
        view = memoryview(data).cast("B")
        with writing(self.path, view.nbytes):
            write_all(self._handle, view)
        if not self._headless:
            self._sha256.update(view)
        self._bytes += view.nbytes
        return view.nbytes

    def put_head(self, data: bytes) -> None:
        """Write the reserved bytes at the start, and hash the whole file."""
        with writing(self.path, len(data)):
            os.lseek(self._handle, 0, os.SEEK_SET)
            write_all(self._handle, data)
        with writing(self.path), self.path.open("rb") as written:
            while block := written.read(1 << 20):
                self._sha256.update(block)

    def writable(self) -> bool:
        """True: this is what Arrow asks before it writes."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._bytes

    def sync(self) -> None:
        """Return when the bytes are on the disk."""
        with writing(self.path, self._bytes):
            os.fsync(self._handle)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if not self.closed:
            super().close()
            with writing(self.path):
                os.close(self._handle)


@contextlib.contextmanager
def create(path: Path) -> Iterator[NewFile]:
    """A new file at `path`, synced at the end of the block; removed if the block or the sync fails."""
    file = NewFile(path)
    try:
        with file:
            yield file
            file.sync()
    except BaseException:
        with contextlib.suppress(OSError):  # the first failure is the one to report
            path.unlink()
        raise


def write_file(path: Path, data: bytes | Callable[[NewFile], None]) -> FileEntry:
    """Write `data`, or what the function writes, to `path` in one step: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{unique()}{TEMPORARY}")
    with create(temporary) as file:
        if isinstance(data, bytes):
            file.write(data)
        else:
            data(file)
    try:
        replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return file.entry


@contextlib.contextmanager
def temporary_room(
    path: Path,
    folder: str = "the temporary folder",
    hint: str = "free some space, or name a folder with room: TMPDIR=DIR ragidx ...",
) -> Iterator[None]:
    """What cannot be written inside the block is in no index of the user's: the hint names another folder.

    Raises:
        RagidxError: in place of an OSError, or of an error about an index.
    """
    try:
        with writing(path):
            yield
    except RagidxError as fault:
        if type(fault) is not RagidxError or not isinstance(fault.__cause__, OSError):  # not of `writing`
            raise
        raise RagidxError(f"{folder}: {fault.message}", hint, where=fault.where) from fault


def unique() -> str:
    """A part of a temporary file's name that no other process or thread uses."""
    return f"{os.getpid()}-{secrets.token_hex(4)}"


def replace(source: Path, target: Path) -> None:
    """Rename `source` over `target` and make the renaming last."""
    with writing(target):
        source.replace(target)
    sync_folder(target.parent)


def write_all(handle: int, data: memoryview | bytes) -> None:
    """write(2) until all is written; the caller handles OSErrors."""
    view = memoryview(data)
    while view.nbytes:
        view = view[os.write(handle, view) :]


def make_folder(path: Path) -> None:
    """Create `path` and what is missing above it, and make their names last; an existing folder is left as it is.

    Whether the name of an existing one lasts is not known: who made it may have been killed before its sync.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with writing(folder):
            folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Make the names in the folder `path` last: without this a new file may be gone after a power loss."""
    with writing(path):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove(path: Path) -> bool:
    """Remove a file, or a folder with all in it; links are removed, never followed. False if it cannot be removed.

    Nothing depends on a removal: the next writer removes what is left.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove the empty ones of these folders; what cannot be removed stays."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _hint(code: int | None, size: int) -> str:
    if code in FULL:
        wanted = f" ({size:,} bytes were to be written)" if size else ""
        return f"free some space{wanted}, or choose another folder with `index`"
    if code in _CLOSED:
        return "make the folder writable, or choose another one with `index`"
    return "look at the disk, or choose another folder with `index`"
