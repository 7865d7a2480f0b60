"""Runs in the watched tree: commands one after the other in this process, then a service, an agent, and imports.

python driver.py WORK: what is in WORK/steps.json -> the last line of stdout, JSON: [what, status, stderr] of each
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ragidx.pipelines.cli.main import main


def command(*args: str) -> list[Any]:
    """A command, in this process."""
    said, printed = io.StringIO(), io.TextIOWrapper(io.BytesIO())
    status: Any = None
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
        try:
            main(list(args))
        except SystemExit as left:
            status = left.code
    return [" ".join(args), status, said.getvalue()[-600:]]


def command_in(folder: str, *args: str) -> list[Any]:
    """A command that writes where it is run."""
    with contextlib.chdir(folder):
        return command(*args)


def service(index: str) -> list[Any]:
    """`ragidx serve`: a page, a question over HTTP and one by `ragidx query`, which asks it through its socket."""
    running = subprocess.Popen(
        [sys.executable, "-m", "ragidx", "serve", "--index", index, "--port", os.environ["PORT"]],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    while "http://" not in (line := running.stderr.readline()):
        if running.poll() is not None:
            return ["serve", running.returncode, line]
    statuses = []
    body = json.dumps({"query": "who signed the lease?"})
    asked = [("GET", "/", None), ("GET", "/v1/info", None), ("POST", "/v1/search", body), ("GET", "/metrics", None)]
    while asked:
        method, path, data = asked.pop(0)
        connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]), timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            answer = connection.getresponse()
            answer.read()
        if answer.status == 503:  # the index is being opened
            time.sleep(0.05)
            asked.insert(0, (method, path, data))
        else:
            statuses.append(answer.status)
    by_socket = command("query", "who signed the lease?", "--index", index)
    running.send_signal(signal.SIGTERM)
    said = running.communicate(timeout=60)[1]
    return ["serve", [statuses, by_socket[1], running.returncode], "" if "/v1/search" in said else said[-600:]]


def agent(index: str) -> list[Any]:
    """`ragidx mcp`: an agent that calls its tools."""
    calls = [
        (
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
        ),
        ("tools/list", {}),
        ("tools/call", {"name": "describe", "arguments": {}}),
        ("tools/call", {"name": "search", "arguments": {"query": "who signed the lease?"}}),
    ]
    running = subprocess.Popen(
        [sys.executable, "-m", "ragidx", "mcp", "--index", index],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdin is not None
    assert running.stdout is not None
    answered = 0
    for number, (method, params) in enumerate(calls):
        running.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
        if number == 0:
            running.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        running.stdin.flush()
        answered += "result" in json.loads(running.stdout.readline())
    said = running.communicate(timeout=60)[1]
    return ["mcp", [answered, running.returncode], said[-600:]]


def imported(module: str) -> list[Any]:
    """A module; what is not installed is said by its name."""
    try:
        importlib.import_module(module)
    except ImportError as fault:
        return [f"import {module}", fault.name, ""]
    except Exception as fault:  # noqa: BLE001 - a module of ragidx names the extra
        return [f"import {module}", str(fault), ""]
    return [f"import {module}", 0, ""]


if __name__ == "__main__":
    work = Path(sys.argv[1])
    steps = json.loads((work / "steps.json").read_text())
    done = [globals()[kind](*args) for kind, *args in steps]
    sys.stdout.write(json.dumps(done))
