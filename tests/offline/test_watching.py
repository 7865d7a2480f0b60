"""What watches sees each attempt: of Python, of a thread that C starts, of a child; and what is written elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .watching import Watch, missing, run_alone

pytestmark = pytest.mark.slow


@pytest.fixture
def _watched() -> None:
    if missing():
        pytest.skip(f"needs {missing()}")


ATTEMPTS = r"""
import contextlib, ctypes, os, socket, subprocess, sys, threading

tcp, udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
tcp6 = socket.socket(socket.AF_INET6)
in_c = ctypes.CDLL(None).connect
address = b"\2\0\1\xbb" + socket.inet_aton("192.0.2.1") + bytes(8)
thread = threading.Thread(target=in_c, args=(tcp.fileno(), address, 16))  # no audit hook of Python sees it
thread.start()
thread.join()
for attempt in (
    lambda: socket.create_connection(("192.0.2.2", 443)),
    lambda: udp.sendto(b"x", ("192.0.2.3", 53)),
    lambda: udp.sendmsg([b"x"], [], 0, ("192.0.2.4", 53)),
    lambda: tcp6.connect(("2001:db8::5", 80)),
    lambda: open("written", "w"),
    lambda: os.mkdir("made"),
    lambda: os.rename(sys.argv[1], "moved"),
    lambda: open(sys.argv[1]).read(),
):
    with contextlib.suppress(OSError):
        attempt()
child = "import socket; socket.socket().connect_ex(('192.0.2.6', 22))"
subprocess.run([sys.executable, "-I", "-S", "-c", child], check=True)
"""


@pytest.mark.usefixtures("_watched")
def test_attempts_are_seen_and_refused(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("x")
    watch = Watch(lambda seen: seen.what == "/dev/null")

    done = watch.run([sys.executable, "-I", "-S", "-c", ATTEMPTS, str(tmp_path / "here")], cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    connects = [*(f"192.0.2.{n}:{port}" for n, port in ((1, 443), (2, 443), (3, 53), (4, 53))), "[2001:db8::5]:80"]
    assert [seen.what for seen in watch.seen if seen.kind == "connect"] == [*connects, "192.0.2.6:22"]
    assert [seen.what for seen in watch.seen if seen.kind == "write"] == [
        str(tmp_path / name) for name in ("written", "made", "moved")
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


@pytest.mark.usefixtures("_watched")
def test_a_server_of_its_own_is_told_from_another_on_this_machine(tmp_path: Path) -> None:
    code = (
        "import socket, sys\n"
        "own = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(own.getsockname())\n"
        "try:\n    socket.create_connection(('127.0.0.1', 9))\n"
        "except PermissionError:\n    sys.exit(7)"
    )
    watch = Watch(lambda seen: seen.kind == "connect" and seen.is_to_itself)

    assert watch.run([sys.executable, "-I", "-S", "-c", code]).returncode == 7
    assert [seen.what for seen in watch.seen] == ["127.0.0.1:9"]


def test_a_process_alone_has_loopback_and_nothing_else(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, socket\n"
        "own = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(own.getsockname())\n"
        "pathlib.Path('written').touch()\n"
        "print(os.getuid(), [name for _, name in socket.if_nameindex()])\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.3', 53))"
    )
    try:
        done = run_alone([sys.executable, "-I", "-S", "-c", code], cwd=tmp_path)
    except (AttributeError, subprocess.SubprocessError):
        pytest.skip("needs namespaces of users and networks")

    assert done.stdout.split()[0] == str(os.getuid())
    assert "'lo'" in done.stdout
    assert done.stderr.endswith("OSError: [Errno 101] Network is unreachable\n")
    assert (tmp_path / "written").stat().st_uid == os.getuid()
