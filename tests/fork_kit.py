"""A script that forks, in a process of its own: the test process may have threads, and must not fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_KIT = """
import os, signal, sys, time

def in_child(check):
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if check() else 1)
        except BaseException as fault:
            print(repr(fault), flush=True)
            os._exit(2)
    end = time.monotonic() + 40
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return {0: "same", 1: "other"}.get(os.waitstatus_to_exitcode(status), "failed")
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"
"""


def run_forking(script: str, folder: Path) -> str:
    """What a script prints that calls `in_child(check)`, run in `folder` with two threads for each library.

    `in_child` forks, and is `same` where `check()` is true in the child, `other` where it is not, `hangs` after 40 s.
    """
    path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"OMP_NUM_THREADS": "2", "PYTHONPATH": path}
    command = [sys.executable, "-c", _KIT + script]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return done.stdout if done.returncode == 0 else done.stdout + done.stderr
