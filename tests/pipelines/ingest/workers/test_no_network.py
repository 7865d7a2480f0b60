"""Workers cannot connect: the kernel refuses what a library does in C, too, where it filters system calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from worker_corpora import children, read

from ragidx.pipelines.base.no_network import can_close_network

sys.path.append(str(Path(__file__).parents[3] / "corpora" / "fuzz"))
from office_files import docx

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="seccomp is of Linux"),
]
ATTEMPTS = r"""
import ctypes, errno, json, socket, subprocess, sys, threading
from ragidx.pipelines.base.no_network import close_network

libc, tried = ctypes.CDLL(None, use_errno=True), {}
open_before, waits = socket.socket(), threading.Event()


def in_c(name, *arguments):
    ctypes.set_errno(0)
    tried[name] = getattr(libc, name)(*arguments) < 0 and errno.errorcode[ctypes.get_errno()]


def attempts():
    waits.wait()
    in_c("socket", 2, 1, 0)
    in_c("socket", 1, 1, 0)
    in_c("connect", open_before.fileno(), b"\2\0\0\x35\xc0\0\2\1" + bytes(8), 16)
    in_c("sendto", open_before.fileno(), b"x", 1, 0, None, 0)
    in_c("sendmsg", open_before.fileno(), bytes(56), 0)
    in_c("syscall", ctypes.c_long(425), 1, bytes(120))  # io_uring_setup
    try:
        subprocess.run(["true"])
    except PermissionError:
        tried["a process"] = "EACCES"
    one, other = socket.socketpair()  # it leads nowhere
    tried["a pair"] = one.fileno() < 0


before = threading.Thread(target=attempts)  # a library may have started one when it was imported
before.start()
tried["closed"] = close_network()
waits.set()
before.join()
json.dump(tried, sys.stdout)
"""


def n_filters(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Seccomp_filters")))


def test_no_thread_of_a_process_connects_any_more_or_runs_a_program() -> None:
    if not can_close_network():
        pytest.skip("the kernel refuses seccomp here: `ragidx doctor` says so")

    done = subprocess.run([sys.executable, "-c", ATTEMPTS], capture_output=True, text=True, check=True)

    refused = ("socket", "connect", "sendto", "sendmsg", "syscall", "a process")
    assert json.loads(done.stdout) == {"closed": True, "a pair": False} | dict.fromkeys(refused, "EACCES")


def test_a_worker_that_reads_an_office_file_has_the_filter_and_no_onnxruntime(tmp_path: Path) -> None:
    if not can_close_network():
        pytest.skip("the kernel refuses seccomp here: `ragidx doctor` says so")
    (tmp_path / "a.docx").write_bytes(docx("Lakes", "Baikal is deep."))
    seen: list[Any] = []

    def look() -> None:
        for pid in children():
            seen.append(n_filters(pid) - n_filters(os.getpid()))
            seen.append("onnxruntime" in Path(f"/proc/{pid}/maps").read_text())

    found, skips, *_ = read(tmp_path, 1, watch=look)

    assert seen == [1, False]
    assert (len(found), skips) == (1, [])
