"""A process that runs commands of ragidx, each in a fork of its own, and prints what they left behind, as JSON.

It is started in a situation, such as that of another user, which is then that of the commands, and of what they import.
The first argument is JSON: `import`, modules that several commands need, and `commands`, each with its arguments. Of
`serve` the health and a question are asked, of `mcp` a question; a sweep times a few searches, not hundreds.
"""

from __future__ import annotations

import atexit
import http.client
import importlib
import json
import os
import re
import signal
import sys
import threading

QUESTION = "who signed the lease of the house?"
_CALLS = (
    {"id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/call", "params": {"name": "search", "arguments": {"query": QUESTION}}},
)  # fmt: skip


def _run(arguments: list[str]) -> None:
    """The command, and what runs at the end of a process, but for taking down what was imported."""
    from ragidx.__main__ import main

    sys.argv = ["ragidx", *arguments]
    try:
        main()
    except SystemExit as left:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(left.code or 0))


class Child:
    """A fork that runs a command and ends as a process of its own does; `out` and `err` fill up meanwhile."""

    def __init__(self, arguments: list[str]) -> None:
        pipes = [os.pipe() for _ in range(3)]
        self.pid = os.fork()
        mine = [pipe[number == 0] for number, pipe in enumerate(pipes)]
        its = [pipe[number != 0] for number, pipe in enumerate(pipes)]
        if not self.pid:
            for number, handle in enumerate(its):
                os.dup2(handle, number)
            os.closerange(min(mine), max(its) + 1)
            _run(arguments)
        for handle in its:
            os.close(handle)
        self.stdin, self.out, self.err = mine[0], bytearray(), bytearray()
        self._said = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=pair) for pair in ((mine[1], self.out), (mine[2], self.err))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, handle: int, into: bytearray) -> None:
        while data := os.read(handle, 1 << 16):
            with self._said:
                into += data
                self._said.notify_all()
        os.close(handle)
        with self._said:
            self._readers.remove(threading.current_thread())
            self._said.notify_all()

    def wait_for(self, pattern: bytes) -> re.Match[bytes] | None:
        """The first match in either output; None where the command ends without one."""
        with self._said:
            while (found := re.search(pattern, self.out) or re.search(pattern, self.err)) is None and self._readers:
                self._said.wait()
        return found

    def done(self) -> tuple[int, str, str]:
        """Status, standard output and standard error, at its end."""
        os.close(self.stdin)
        self.wait_for(rb"(?!)")
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return status, self.out.decode("utf-8", "replace"), self.err.decode("utf-8", "replace")


def served(child: Child) -> tuple[int, str, str]:
    """A service that is asked, and ended by SIGTERM; what it answered comes first in the output."""
    answers = []
    if (line := child.wait_for(rb"http://127\.0\.0\.1:(\d+)")) is not None:
        asked = json.dumps({"query": QUESTION})
        for method, route, body in (("GET", "/healthz", None), ("POST", "/v1/search", asked)):
            headers = {"Content-Type": "application/json"} if body else {}
            while True:
                connection = http.client.HTTPConnection("127.0.0.1", int(line[1]))
                connection.request(method, route, body, headers)
                answer = connection.getresponse()
                said = answer.read().decode()
                connection.close()
                if "the index is being opened" not in said:
                    break
            answers.append(f"{answer.status} {said}\n")
        os.kill(child.pid, signal.SIGTERM)
    status, out, err = child.done()
    return status, "".join(answers) + out, err


def talked(child: Child) -> tuple[int, str, str]:
    """A server for an agent that is asked on standard input."""
    for call in _CALLS:
        os.write(child.stdin, json.dumps({"jsonrpc": "2.0"} | call).encode() + b"\n")
    child.wait_for(rb'"id":\s*2')
    return child.done()


def run(commands: dict[str, list[str]]) -> dict[str, tuple[int, str, str]]:
    """What each command left behind, one after the other."""
    how = {"serve": served, "mcp": talked}
    found = {}
    for name, arguments in commands.items():
        found[name] = how.get(name, Child.done)(Child([*name.split(), *arguments]))
    return found


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    for module in ("ragidx.pipelines.cli.main", *wanted["import"]):
        importlib.import_module(module)
    cells = importlib.import_module("ragidx.pipelines.experiments.evaluate.cells")
    for name in ("_SINGLE_CALLS", "_BATCH_CALLS", "_LEAST_CALLS"):
        setattr(cells, name, 2)
    sys.stdout.write(json.dumps(run(wanted["commands"])))
