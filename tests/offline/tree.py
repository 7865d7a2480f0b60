"""All that is run under watch, in one process tree, and what was seen of it."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .watching import Seen, Watch, missing, run_alone

HERE = Path(__file__).parent
NAMES = "/var/run/nscd/socket"  # the C library asks there for the names of users, before it reads a file


@dataclass(frozen=True)
class Tree:
    """What commands, a service, an agent and imports did.

    Attributes:
        done: of each what it was, its status, and what it said on stderr.
        seen: what it tried and may not; None: it was not watched, but had no network.
        work: the folders: `home` and `cwd` of the user, `tmp`, and `out`, where it was told to write.
    """

    done: Sequence[tuple[str, Any, str]]
    seen: Sequence[Seen] | None
    work: Path

    @classmethod
    def run(
        cls,
        work: Path,
        places: Mapping[str, Path | str],
        commands: str,
        modules: Sequence[str],
        *,
        served: str = "mini",
        writes: Sequence[Path] = (),
        asks: str = "",
    ) -> Tree:
        """Run the commands, each a line, then serve the index of this name and import the modules.

        Args:
            work: an empty folder.
            places: what stands in braces in the commands, beside `out`.
            commands: lines.
            modules: to import.
            served: an index in `out`.
            writes: folders that a command was told of, which its library writes to.
            asks: how the address begins of a server that a command was told of.
        """
        for name in ("home", "cwd", "tmp", "out"):
            (work / name).mkdir()
        out = str(work / "out")
        lines = (line.format(out=out, **places) for line in commands.strip().splitlines())
        steps = [["command", *shlex.split(line)] for line in lines]
        steps += [["command_in", out, "init"], ["service", f"{out}/{served}"], ["agent", f"{out}/{served}"]]
        steps += [["imported", name] for name in modules]
        (work / "steps.json").write_text(json.dumps(steps))
        port = _free_port()
        cache = work / "home" / ".cache"
        may_write = [work / "out", work / "tmp", cache / "ragidx", *writes]

        def may(seen: Seen) -> bool:
            if seen.kind == "write":
                return _may_write(seen, may_write, cache)
            return _may_ask(seen, work, port) or (asks != "" and seen.what.startswith(asks))

        watch = Watch(may)
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "LANG")}
        own = {
            **{
                "HOME": str(work / "home"),
                "XDG_CACHE_HOME": str(work / "home" / ".cache"),
                "TMPDIR": str(work / "tmp"),
            },
            **{"PORT": str(port), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
            "HAYSTACK_TELEMETRY_ENABLED": "False",  # docs/haystack.md: it writes a file when it is imported
        }
        run = run_alone if missing() else watch.run
        ended = run([sys.executable, str(HERE / "driver.py"), str(work)], env=kept | own, cwd=work / "cwd")
        assert ended.returncode == 0, ended.stderr
        done = [tuple(step) for step in json.loads(ended.stdout.splitlines()[-1])]
        return cls(done, None if missing() else watch.seen, work)


def _may_write(seen: Seen, places: Sequence[Path], cache: Path) -> bool:
    """In these folders; what the kernel keeps in memory: a process's own files, named semaphores, the null device."""
    in_memory = (f"/proc/{seen.pid}/", "/dev/shm/sem.", "/dev/null")
    return seen.what == str(cache) or f"{seen.what}/".startswith((*(f"{place}/" for place in places), *in_memory))


def _may_ask(seen: Seen, work: Path, port: int) -> bool:
    """Its own sockets, the service of this test, and a server that the process runs itself, on this machine."""
    if seen.what.startswith("unix:"):
        return seen.what.startswith(f"unix:{work}/tmp/") or seen.what == f"unix:{NAMES}"
    return seen.port == port or (seen.port is not None and seen.is_to_itself)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
