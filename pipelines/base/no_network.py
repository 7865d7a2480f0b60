"""Takes the network away from a process, by the kernel: a filter of system calls, seccomp of Linux.

Workers parse what anybody may have written, with many libraries. Python's audit hook, which they have too, sees what
Python calls: not a thread that a library starts in C, as one did that told its maker where it ran. The filter refuses
such calls to every thread, and nothing takes it off again. io_uring is refused, since it connects without a call, and
so is another program. It needs no right. Where there is none, or the kernel forbids it, as some containers do, the
audit hook is alone: `ragidx doctor` says which of the two holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
import sys
import threading

_SECCOMP = {"x86_64": (0xC000003E, 317), "aarch64": (0xC00000B7, 277)}  # as the filter sees it; the call
_REFUSED = {
    # socket, connect, sendto, sendmsg, bind, listen, execve, sendmmsg, execveat, io_uring_setup
    "x86_64": (41, 42, 44, 46, 49, 50, 59, 307, 322, 425),
    # socket, bind, listen, connect, sendto, sendmsg, execve, sendmmsg, execveat, io_uring_setup
    "aarch64": (198, 200, 201, 203, 206, 211, 221, 269, 281, 425),
}
_X32 = 0x40000000  # calls of x86_64 by other numbers begin there
_NO_NEW_PRIVILEGES, _SET_FILTER, _ALL_THREADS = 38, 1, 1
_LOAD, _EQUAL, _AT_LEAST, _GIVE = 0x20, 0x15, 0x35, 0x06  # of classic BPF
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000 | errno.EACCES


def close_network(*, all_threads: bool = True) -> bool:
    """Refuse every connection of this process, or of this thread alone, from now on; whether the kernel does."""
    machine = os.uname().machine if sys.platform == "linux" else ""
    if machine not in _SECCOMP or struct.calcsize("P") != 8:
        return False
    architecture, call = _SECCOMP[machine]
    refused = _REFUSED[machine]
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_GIVE, 0, 0, _FAIL), (_LOAD, 0, 0, 0)]
    steps += [(_EQUAL, len(refused) - n + 1, 0, number) for n, number in enumerate(refused)]
    steps += [(_AT_LEAST, 1, 0, _X32), (_GIVE, 0, 0, _ALLOW), (_GIVE, 0, 0, _FAIL)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return False
    flags = _ALL_THREADS if all_threads else 0
    return bool(libc.syscall(ctypes.c_long(call), ctypes.c_long(_SET_FILTER), ctypes.c_long(flags), program) == 0)


def can_close_network() -> bool:
    """Whether the kernel would: tried in a thread, which ends."""
    refused: list[bool] = []

    def look() -> None:
        if close_network(all_threads=False):
            with contextlib.suppress(PermissionError), socket.socket():
                return
            refused.append(True)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return bool(refused)
