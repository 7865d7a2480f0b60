"""A process tree under a filter of system calls: each connection that it tries, and each file that it writes, is seen.

    watch = Watch(may=lambda seen: ...)
    watch.run([sys.executable, "-m", "ragidx", ...])
    watch.seen  # [Seen("connect", "192.0.2.1:443", "python -m ragidx ...")]

The kernel stops at these calls and asks here (seccomp's user notification, Linux 5.5), whoever calls: Python, a
library's own threads, a child. Nothing is installed for it, and no right is needed. What may not be is refused with
EACCES. The filter is that of a thread that only starts the command, so the tests' own process keeps none. In the tree
no process can set a filter of its own, as workers do: it would refuse before this one sees.

Where the kernel, or the container, refuses the filter, `run_alone` runs a command where this machine's loopback is the
only network: what needs another fails, and nothing is seen.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import ipaddress
import os
import platform
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

_X86_64 = {
    **{"open": 2, "creat": 85, "openat": 257, "openat2": 437, "truncate": 76, "mkdir": 83, "mkdirat": 258},
    **{"rename": 82, "renameat": 264, "renameat2": 316, "link": 86, "linkat": 265, "symlink": 88, "symlinkat": 266},
    **{"mknod": 133, "mknodat": 259, "connect": 42, "sendto": 44, "sendmsg": 46, "sendmmsg": 307},
    **{"seccomp": 317, "prctl": 157, "io_uring_setup": 425},
}
_AARCH64 = {
    **{"openat": 56, "openat2": 437, "truncate": 45, "mkdirat": 34, "renameat": 38, "renameat2": 276, "linkat": 37},
    **{"symlinkat": 36, "mknodat": 33, "connect": 203, "sendto": 206, "sendmsg": 211, "sendmmsg": 269},
    **{"seccomp": 277, "prctl": 167, "io_uring_setup": 425},
}
_ARCHITECTURES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}
_PATHS = {  # the arguments that are the folder, or None, and the path that is written
    **{"open": (None, 0), "creat": (None, 0), "openat": (0, 1), "openat2": (0, 1), "truncate": (None, 0)},
    **{"mkdir": (None, 0), "mkdirat": (0, 1), "rename": (None, 1), "renameat": (2, 3), "renameat2": (2, 3)},
    **{"link": (None, 1), "linkat": (2, 3), "symlink": (None, 1), "symlinkat": (1, 2)},
    **{"mknod": (None, 0), "mknodat": (0, 1)},
}
_FLAGS = {"open": 1, "openat": 2}  # the argument that says whether a file is written
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_REFUSED = ("seccomp", "io_uring_setup")  # io_uring opens and connects without a call

_ALLOW, _NOTIFY, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101
_CONTINUE, _NEW_LISTENER = 1, 8
_NO_NEW_PRIVS, _SET_SECCOMP = 38, 22
_AT_FDCWD = -100
_NEW_USER_AND_NETWORK, _SET_INTERFACE, _UP = 0x10000000 | 0x40000000, 0x8914, 1


@dataclass(frozen=True)
class Seen:
    """What a process tried: to connect or send to an address, or to write a path."""

    kind: Literal["connect", "write"]
    what: str
    by: str

    pid: int = field(compare=False)

    @property
    def port(self) -> int | None:
        """Of this machine's own address; None for all else."""
        host, _, port = self.what.rpartition(":")
        with contextlib.suppress(ValueError):
            found = ipaddress.ip_address(host.strip("[]"))
            mapped = getattr(found, "ipv4_mapped", None) or found
            return int(port) if self.kind == "connect" and mapped.is_loopback else None
        return None

    @property
    def is_to_itself(self) -> bool:
        """Whether a process asks a server that it runs itself, at an address of this machine."""
        opened = set()
        for number in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                opened.add(str(number.readlink()))
        lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()]
        listening = {
            f"socket:[{line[9]}]" for line in lines if line[3] == "0A" and line[1].endswith(f":{self.port:04X}")
        }
        return bool(opened & listening)


@dataclass
class Watch:
    """A command is run here and watched; what may not be is in `seen`, and was refused."""

    may: Callable[[Seen], bool]
    seen: list[Seen] = field(default_factory=list)

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run`, with the text of what the command and its children say; all of them have ended then."""
        done: list[subprocess.CompletedProcess[str] | BaseException] = []
        listener: list[int] = []
        ready = threading.Event()

        def start() -> None:
            try:
                listener.append(_listener())
                ready.set()
                done.append(subprocess.run(command, capture_output=True, text=True, check=False, **options))
            except BaseException as fault:  # noqa: BLE001 - raised in the thread that waits
                done.append(fault)
            finally:
                ready.set()

        thread = threading.Thread(target=start)
        thread.start()
        ready.wait()
        for number in listener:
            with contextlib.closing(os.fdopen(number, "rb", buffering=0)):
                self._answer_all(number)
        thread.join()
        if isinstance(done[0], BaseException):
            raise done[0]
        return done[0]

    def _answer_all(self, listener: int) -> None:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        while not poll.poll()[0][1] & select.POLLHUP:  # the last process is gone
            with contextlib.suppress(FileNotFoundError, InterruptedError):  # a process went away meanwhile
                asked = bytearray(80)
                fcntl.ioctl(listener, _RECEIVE, asked)
                number, pid, _, call, _, _, *arguments = struct.unpack("=QIIiIQ6Q", asked)
                asks = list(_seen(pid, _name_of(call), arguments))
                allowed = all(map(self._allows, asks))
                said = (0, _CONTINUE) if allowed else (-errno.EACCES, 0)
                fcntl.ioctl(listener, _ANSWER, bytearray(struct.pack("=QqiI", number, 0, *said)))

    def _allows(self, seen: Seen) -> bool:
        if self.may(seen):
            return True
        self.seen.append(seen)
        return False


def missing() -> str:
    """What this system lacks for it; empty: nothing."""
    if sys.platform != "linux" or platform.machine() not in _ARCHITECTURES:
        return "seccomp of Linux, x86_64 or aarch64"
    refused: list[str] = []

    def look() -> None:  # in a thread, with which the filter ends
        try:
            os.close(_listener())
        except OSError as fault:
            refused.append(f"a filter of system calls, but {fault}")

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return "".join(refused)


def run_alone(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """As `Watch.run`, in namespaces of its own, as the same user, where loopback is the only network.

    Raises:
        subprocess.SubprocessError: the kernel refuses these, too.
    """
    user = os.getuid()

    def leave() -> None:
        if ctypes.CDLL(None).unshare(_NEW_USER_AND_NETWORK) != 0:
            raise OSError("no namespaces")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, _SET_INTERFACE, struct.pack("16sH22x", b"lo", _UP))

    return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=leave, **options)


# -- the filter ----------------------------------------------------------------------------------------------------


def _listener() -> int:
    """Set the filter for this thread and its children; what is asked comes there."""
    code = _program()
    program = ctypes.create_string_buffer(code)
    head = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    number = _ARCHITECTURES[platform.machine()][1]["seccomp"]
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or (found := libc.syscall(number, 1, _NEW_LISTENER, head)) < 0:
        why = os.strerror(ctypes.get_errno())
        raise OSError(f"this kernel, or what this process runs in, refuses it: {why}")
    return int(found)


def _program() -> bytes:
    """The filter in BPF: calls that write a path or connect are asked about."""
    architecture, numbers = _ARCHITECTURES[platform.machine()]
    load, equal, any_of, least, give = 0x20, 0x15, 0x45, 0x35, 0x06
    steps = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, _ERRNO | errno.ENOSYS), (load, 0, 0, 0)]
    steps += [(least, 0, 1, 0x40000000), (give, 0, 0, _ERRNO | errno.ENOSYS)]  # x32
    for name, number in numbers.items():
        if name in _FLAGS:
            asked = [(load, 0, 0, 16 + 8 * _FLAGS[name]), (any_of, 0, 1, _WRITES), (give, 0, 0, _NOTIFY)]
            asked += [(give, 0, 0, _ALLOW)]
        elif name == "prctl":
            asked = [(load, 0, 0, 16), (equal, 0, 1, _SET_SECCOMP), (give, 0, 0, _ERRNO | errno.EINVAL)]
            asked += [(give, 0, 0, _ALLOW)]
        else:
            asked = [(give, 0, 0, _ERRNO | errno.ENOSYS if name in _REFUSED else _NOTIFY)]
        steps += [(equal, 0, len(asked), number), *asked]
    steps.append((give, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _name_of(call: int) -> str:
    return next(name for name, number in _ARCHITECTURES[platform.machine()][1].items() if number == call)


# -- what a call means ---------------------------------------------------------------------------------------------


def _seen(pid: int, call: str, arguments: Sequence[int]) -> Iterator[Seen]:
    """What a process asks for: nothing, where it opens to read, or sends on what is connected."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        if call in _PATHS:
            if call == "openat2" and not _number(memory, arguments[2], "Q") & _WRITES:
                return
            yield Seen("write", _path(pid, memory, arguments, *_PATHS[call]), _command(pid), pid)
            return
        for place, length in _addresses(memory, call, arguments):
            if place and (what := _address(_bytes(memory, place, min(length, 128)))):
                yield Seen("connect", what, _command(pid), pid)


def _addresses(memory: Any, call: str, arguments: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where the addresses of a call are, with their lengths."""
    if call == "connect":
        yield arguments[1], arguments[2]
    elif call == "sendto":
        yield arguments[4], arguments[5]
    else:  # msghdr begins with the address and its length; of sendmmsg there are several
        for at in range(arguments[2] if call == "sendmmsg" else 1):
            place = arguments[1] + 64 * at
            yield _number(memory, place, "Q"), _number(memory, place + 8, "I")


def _address(data: bytes) -> str:
    """HOST:PORT, or the path of a socket; empty for what stays in the kernel."""
    match int.from_bytes(data[:2], sys.byteorder):
        case 1:
            return "unix:" + data[2:].split(b"\0" if data[2:3] != b"\0" else b"never")[0].decode("utf-8", "replace")
        case 2:
            return f"{ipaddress.ip_address(data[4:8])}:{int.from_bytes(data[2:4], 'big')}"
        case 10:
            return f"[{ipaddress.ip_address(data[8:24])}]:{int.from_bytes(data[2:4], 'big')}"
        case 0 | 16:  # none, which ends a connection; netlink
            return ""
    return f"family {int.from_bytes(data[:2], sys.byteorder)}"


def _path(pid: int, memory: Any, arguments: Sequence[int], folder: int | None, path: int) -> str:
    name = os.fsdecode(_bytes(memory, arguments[path], 4096).split(b"\0")[0])
    number = _AT_FDCWD if folder is None else ctypes.c_int32(arguments[folder]).value
    if not name.startswith("/"):
        where = "cwd" if number == _AT_FDCWD else f"fd/{number}"
        name = f"{Path(f'/proc/{pid}/{where}').readlink()}/{name}"
    if name.startswith("/proc/self/"):
        name = name.replace("self", str(pid), 1)
    head, tail = os.path.split(os.path.normpath(name))
    return f"{os.path.realpath(head).rstrip('/')}/{tail}"


def _bytes(memory: Any, place: int, length: int) -> bytes:
    """Up to so many bytes: fewer where a page ends that another does not follow."""
    data = b""
    while len(data) < length:
        size = min(length - len(data), 4096 - (place + len(data)) % 4096)
        memory.seek(place + len(data))
        try:
            more = memory.read(size)
        except OSError:
            break
        data += more
        if not more or (b"\0" in more and length == 4096):
            break
    return data


def _number(memory: Any, place: int, kind: str) -> int:
    return int(struct.unpack(kind, _bytes(memory, place, struct.calcsize(kind)))[0])


def _command(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
        return " ".join(os.fsdecode(file.read()).split("\0"))[:300].strip()
    return "?"
