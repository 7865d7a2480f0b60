"""A file layer that counts, fails, tears or forgets: what stands between the store and the disk in the fault tests.

    with Disk(root) as disk: ...                              counts; disk.steps tells every call on files below `root`
    with Failing(root, at=7, code=errno.ENOSPC): ...          the 7th call fails
    with Killed(root, at=7, power=True): ...                  the process ends before the 7th call, as in a power loss

The layer takes the place of the functions of `os`, which is all that the store writes with: `Disk.written` says
where the last byte of each file was put, so that a test can compare it with what lies on the disk. Reads pass by, but
for those that `Unreadable` fails.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from ragidx.corpora.errors import RagidxError

PATCHED = (
    "open",
    "write",
    "fsync",
    "close",
    "ftruncate",
    "mkdir",
    "rmdir",
    "unlink",
    "remove",
    "rename",
    "replace",
    "link",
)
WRITABLE = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True, slots=True)
class Step:
    """One call on a file or folder below the root; `path` is the one it changes, of a renaming the target."""

    number: int
    call: str
    path: Path


def turns(steps: Sequence[Step]) -> list[Step]:
    """The first and the last of each run of the same calls on a file; between them it is only some bytes longer."""
    runs = [list(run) for _, run in itertools.groupby(steps, key=lambda step: (step.call, step.path))]
    return [step for run in runs for step in dict.fromkeys((run[0], run[-1]))]


class Disk:
    """The functions of `os` that change a disk, counted while the block runs. What else happens, subclasses say.

    A step is a call that opens for writing or a folder to sync it, or changes anything below `root`. Handles that
    were opened before the block, or only for reading, are not looked at.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self.steps: list[Step] = []
        self.written: dict[Path, int] = {}  # where the last byte was put, by the path at which the file lies now
        self.memory = Memory()
        self._handles: dict[int, Path] = {}
        self._real: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> Self:
        self._real = {name: getattr(os, name) for name in PATCHED}
        for name in PATCHED:
            setattr(os, name, getattr(self, f"_{name}"))
        return self

    def __exit__(self, *_: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def before(self, step: Step) -> None:
        """Called before each step; what it raises is what the caller of `os` sees."""

    def before_read(self, path: Path) -> None:
        """Called before a file is opened to be read only."""

    def portion(self, step: Step, size: int) -> int:
        """How many of `size` bytes one write takes."""
        return size

    def after_write(self, step: Step) -> None:
        """Called after each write."""

    def _step(self, call: str, path: Path) -> Step:
        step = Step(len(self.steps), call, path)
        self.steps.append(step)
        self.before(step)
        return step

    def _path(self, path: Any, dir_fd: int | None) -> Path | None:
        """The path if it is ours; below `root`, or in a folder that was opened there."""
        if dir_fd is not None:
            return self._handles[dir_fd] / os.fsdecode(path) if dir_fd in self._handles else None
        if isinstance(path, int):
            return None
        found = Path(os.path.realpath(Path(os.fsdecode(path)).parent), Path(os.fsdecode(path)).name)
        return found if found == self.root or self.root in found.parents else None

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        ours = self._path(path, dir_fd)
        if ours is None:
            return self._real["open"](path, flags, mode, dir_fd=dir_fd)
        is_new = bool(flags & os.O_CREAT) and not os.path.lexists(ours)
        if flags & (WRITABLE | os.O_DIRECTORY):
            self._step("open", ours)
        else:
            self.before_read(ours)
        handle = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        if flags & WRITABLE or ours.is_dir():
            self._handles[handle] = ours
        if flags & WRITABLE:
            self.memory.opened(ours, is_new=is_new)
        return handle

    def _write(self, handle: int, data: Any) -> int:
        path = self._handles.get(handle)
        if path is None:
            return self._real["write"](handle, data)
        step = self._step("write", path)
        count = self._real["write"](handle, memoryview(data)[: self.portion(step, len(data))])
        self.written[path] = max(self.written.get(path, 0), os.lseek(handle, 0, os.SEEK_CUR))
        self.after_write(step)
        return count

    def _fsync(self, handle: int) -> None:
        if handle in self._handles:
            self._step("fsync", self._handles[handle])
        self._real["fsync"](handle)
        if handle in self._handles:
            self.memory.synced(self._handles[handle])

    def _close(self, handle: int) -> None:
        path = self._handles.pop(handle, None)
        if path is not None and not path.is_dir():
            try:
                self._step("close", path)
            except OSError:
                self._real["close"](handle)  # as Linux does: the handle is gone, whatever close(2) says
                raise
        self._real["close"](handle)

    def _ftruncate(self, handle: int, length: int) -> None:
        if handle in self._handles:
            self._step("ftruncate", self._handles[handle])
        self._real["ftruncate"](handle, length)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        ours = self._path(path, dir_fd)
        if ours is not None:
            self._step("mkdir", ours)
        self._real["mkdir"](path, mode, dir_fd=dir_fd)
        if ours is not None:
            self.memory.made(ours)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._removal("rmdir", path, dir_fd)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._removal("unlink", path, dir_fd)

    def _remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._removal("remove", path, dir_fd)

    def _removal(self, call: str, path: Any, dir_fd: int | None) -> None:
        ours = self._path(path, dir_fd)
        if ours is not None:
            self._step(call, ours)
        self._real[call](path, dir_fd=dir_fd)
        if ours is not None:
            self.written.pop(ours, None)
            self.memory.removed(ours)

    def _rename(self, source: Any, target: Any, **folders: Any) -> None:
        self._renaming("rename", source, target, folders)

    def _replace(self, source: Any, target: Any, **folders: Any) -> None:
        self._renaming("replace", source, target, folders)

    def _link(self, source: Any, target: Any, **more: Any) -> None:
        ours = self._path(target, None)
        if ours is None or ours.parent == self.memory.keeps_old:
            self._real["link"](source, target, **more)
            return
        self._step("link", ours)
        self._real["link"](source, target, **more)
        self.written[ours] = Path(source).stat().st_size  # it comes with its bytes
        self.memory.made(ours)

    def _renaming(self, call: str, source: Any, target: Any, folders: dict[str, Any]) -> None:
        before, after = self._path(source, folders.get("src_dir_fd")), self._path(target, folders.get("dst_dir_fd"))
        if before is None or after is None:
            self._real[call](source, target, **folders)
            return
        self._step(call, after)
        self.memory.renames(before, after)
        self._real[call](source, target, **folders)
        if before in self.written:
            self.written[after] = self.written.pop(before)


class Memory:
    """What a disk has been told and need not remember yet: bytes before fsync, names before the fsync of their folder.

    Removals are taken to last at once and everything else not, which is the worst order a file system may choose.
    """

    def __init__(self) -> None:
        self._kept_bytes: dict[Path, int] = {}  # of files that were opened for writing: what surely stays
        self._names: list[tuple[Path, Path | None, Path | None]] = []  # path, its earlier name, a copy of what it was
        self._copies = 0
        self.keeps_old: Path | None = None  # a folder for such copies; None: nothing is ever lost

    def opened(self, path: Path, *, is_new: bool) -> None:
        self._kept_bytes.setdefault(path, path.stat().st_size)
        if is_new:
            self.made(path)

    def made(self, path: Path) -> None:
        self._names.append((path, None, None))

    def removed(self, path: Path) -> None:
        self._kept_bytes.pop(path, None)
        self._names = [name for name in self._names if name[0] != path]

    def renames(self, source: Path, target: Path) -> None:
        copy = None
        if self.keeps_old is not None and target.exists():
            self._copies += 1
            copy = self.keeps_old / f"{os.getpid()}-{self._copies}"
            copy.hardlink_to(target)
        self._kept_bytes[target] = self._kept_bytes.pop(source, 0)
        self._names.append((target, source, copy))

    def synced(self, path: Path) -> None:
        if path.is_dir():
            self._names = [name for name in self._names if name[0].parent != path]
        else:
            self._kept_bytes[path] = path.stat().st_size

    def lose(self, rng: random.Random) -> None:
        """Forget what was never synced: all of it, or each thing by the toss of a coin. Uses the real `os`."""
        share = rng.choice([1.0, 0.5])
        for path, kept in self._kept_bytes.items():
            if path.is_file() and path.stat().st_size > kept and rng.random() < share:
                size = path.stat().st_size
                os.truncate(path, kept)
                if rng.random() < 0.5:
                    os.truncate(path, size)  # some file systems remember the length, and zeros
        for path, source, copy in reversed(self._names):
            if rng.random() >= share or not os.path.lexists(path):
                continue
            if source is None:
                self._forget(path)
                continue
            path.rename(source)
            if copy is not None:
                copy.rename(path)

    def _forget(self, path: Path) -> None:
        if not path.is_dir():
            path.unlink()
            return
        for inner in path.iterdir():
            self._forget(inner)
        path.rmdir()


class Killed(Disk):
    """The process ends before step `at`: with SIGKILL, which it cannot meet.

    Args:
        root: the files below it are looked at.
        at: number of the step, or with `torn` of the write.
        torn: this share of the bytes of that write arrives before the end; None: none of them.
        lose: what was not synced is lost as well, by this seed; None: the system goes on and loses nothing.
    """

    def __init__(self, root: Path, at: int, torn: float | None = None, lose: int | None = None) -> None:
        super().__init__(root)
        self._at, self._torn, self._lose = at, torn, lose
        self._writes = 0
        if lose is not None:
            self.memory.keeps_old = self.root / "old"
            self.memory.keeps_old.mkdir(exist_ok=True)

    def before(self, step: Step) -> None:
        if self._torn is None and step.number == self._at:
            self._end()

    def portion(self, step: Step, size: int) -> int:
        return size if self._torn is None or self._writes != self._at else int(size * self._torn)

    def after_write(self, step: Step) -> None:
        if self._torn is not None and self._writes == self._at:
            self._end()
        self._writes += 1

    def _end(self) -> None:
        if self._lose is not None:
            self.__exit__()
            self.memory.lose(random.Random(self._lose))
        os.kill(os.getpid(), signal.SIGKILL)


class Failing(Disk):
    """Step `at` fails with an errno, and with `lasting` every later one that would put something on the disk.

    A write that fails puts `torn` of its bytes on the disk first, by a write that is merely short. A disk that is full
    still removes and closes files.
    """

    def __init__(self, root: Path, at: int, code: int, *, lasting: bool = False, torn: float = 0.0) -> None:
        super().__init__(root)
        self._at, self._code, self._lasting, self._torn = at, code, lasting, torn
        self._was_short = False
        self.failures: list[Step] = []

    def before(self, step: Step) -> None:
        if step.number == self._at and step.call == "write" and self._torn:
            return  # `portion` makes it short, and the next one fails
        is_due = step.number == self._at + self._was_short
        if is_due or (self.failures and self._lasting and step.call not in ("unlink", "remove", "rmdir", "close")):
            self._fail(step)

    def portion(self, step: Step, size: int) -> int:
        if not self._torn or step.number != self._at:
            return size
        if size < 2:
            self._fail(step)
        self._was_short = True
        return max(1, int(size * self._torn))

    def _fail(self, step: Step) -> NoReturn:
        self.failures.append(step)
        raise OSError(self._code, os.strerror(self._code), os.fspath(step.path))


class Unreadable(Disk):
    """One file cannot be opened to be read, as where a disk has lost the place of it for a time."""

    def __init__(self, root: Path, path: Path, code: int) -> None:
        super().__init__(root)
        self._lost, self._code = Path(os.path.realpath(path)), code

    def before_read(self, path: Path) -> None:
        if path == self._lost:
            raise OSError(self._code, os.strerror(self._code), os.fspath(path))


class Short(Disk):
    """Every write takes some of the bytes it is given, at least one."""

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root)
        self._rng = random.Random(seed)

    def portion(self, step: Step, size: int) -> int:
        return self._rng.randint(1, size) if size else 0


def error_of(run: Callable[[], object]) -> RagidxError | None:
    """What an operation told when it ended; None if it went through."""
    try:
        run()
    except RagidxError as fault:
        return fault
    return None
