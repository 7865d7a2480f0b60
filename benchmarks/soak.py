"""A service for an hour: `python benchmarks/soak.py [MINUTES]`, or `make soak`.

Three clients ask by every mode, with and without conditions; one adds a document, asks for its only word, replaces it,
deletes it, and asks again; a build of another process changes files of the index's source once in half a minute, and
compacts after every tenth. Of memory, handles, files and bytes the medians of the second and of the last sixth of the
time are compared: the memory of the service may have grown by a tenth, the handles by two, the folder by a half.

Ends with 1 where something grew, an answer was wrong, or a request failed; what it saw is in build/soak.jsonl. Adds a
row to figures.jsonl.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from figures import record

import ragidx
from ragidx.pipelines.cli.demo import sample_corpus

TOKEN = "of-the-soak-" + "0" * 32
QUESTIONS = ("who signed the lease?", "a bridge of steel", "wasps", "how deep is the harbour", "Größe", "E24")
WHERE = (None, None, 'file.name contains "1"', "file.size > 1000")
SEED = 5
SAMPLE_S = 5.0
ALLOWED = {"MiB": 1.1, "handles": 1.0, "files": 1.5, "bytes": 1.5}  # times as much; of handles two more


class Soak:
    """The clients; `wrong` has what was not as it should be, `done` what was done how often."""

    def __init__(self, folder: Path, port: int, server: int) -> None:
        self.wrong: list[str] = []
        self.done: Counter[str] = Counter()
        self.ended = threading.Event()
        self._folder, self._port, self._server = folder, port, server

    def client(self) -> ragidx.Client:
        """Another client."""
        return ragidx.Client(f"http://127.0.0.1:{self._port}", token=TOKEN)

    def until_ended(self, act: Callable[[int], None]) -> threading.Thread:
        """A thread that does it again and again; one error is noted, and ends all."""

        def run() -> None:
            try:
                for number in itertools.count():
                    if self.ended.is_set():
                        return
                    act(number)
            except Exception as fault:  # noqa: BLE001 -- it is reported, and ends the run
                self.wrong.append(repr(fault))
                self.ended.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def asks(self, seed: int) -> Callable[[int], None]:
        """Questions."""
        rng, client = random.Random(seed), self.client()

        def act(_: int) -> None:
            mode, where = rng.choice(("hybrid", "dense", "lexical")), rng.choice(WHERE)
            client.search(rng.choice(QUESTIONS), k=rng.choice((1, 10, 50)), mode=mode, where=where)
            self.done["questions"] += 1

        return act

    def changes(self) -> Callable[[int], None]:
        """A document that comes, changes and goes."""
        client = self.client()

        def act(number: int) -> None:
            name, word = f"note {number}", f"zq{number}x"
            for text in (f"A note about {word}.", f"It says {word} twice, {word}."):
                client.add(ragidx.Document(name, text, {"added": number}))
                hits = client.search(word, k=1, mode="lexical")
                self.check([hit.text for hit in hits] == [text], f"{name} is not found")
            if number % 3:
                client.delete(name)
                self.check(not client.search(word, k=1, mode="lexical"), f"{name} is found after its end")
            self.done["changes"] += 1

        return act

    def builds(self) -> Callable[[int], None]:
        """Builds of another process."""

        def act(number: int) -> None:
            (self._folder / "docs" / f"{number % 7}.md").write_text(f"# Number {number}\n\nBuilt {number} times.\n")
            command = ["compact"] if number % 10 == 9 else ["build", "--quiet"]
            index = ["--index", str(self._folder / "index")]
            done = subprocess.run(
                [sys.executable, "-m", "ragidx", *command, *index], capture_output=True, text=True, check=False
            )
            self.check(not done.returncode or "is being written by" in done.stderr, done.stderr)
            self.done["builds"] += 1
            self.ended.wait(30)

        return act

    def check(self, held: bool, what: str) -> None:
        """Note what did not hold."""
        if not held:
            self.wrong.append(what)

    def sample(self) -> dict[str, float]:
        """What the service and the index take now."""
        status = Path(f"/proc/{self._server}/status").read_text()
        files = [path for path in (self._folder / "index").rglob("*") if path.is_file()]
        sizes = []
        for path in files:
            try:
                sizes.append(path.stat().st_size)
            except FileNotFoundError:  # removed meanwhile
                continue
        resident = re.search(r"VmRSS:\s+(\d+)", status)
        assert resident is not None
        return {
            "MiB": int(resident[1]) / 1024,
            "handles": len(list(Path(f"/proc/{self._server}/fd").iterdir())),
            "files": len(sizes),
            "bytes": sum(sizes),
        }


def sixths(samples: list[dict[str, float]]) -> dict[str, list[int]]:
    """The medians of the second and of the last sixth, by what is bounded."""
    sixth = max(1, len(samples) // 6)
    parts = samples[sixth : 2 * sixth], samples[-sixth:]
    return {name: [round(statistics.median(one[name] for one in part)) for part in parts] for name in ALLOWED}


def main(minutes: float) -> int:
    """Run it; the status."""
    out = Path("build")
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "docs").mkdir()
        for number, path in enumerate(sorted(sample_corpus().rglob("*.md"))):
            (folder / "docs" / f"of {number}.md").write_text(path.read_text("utf-8"))
        ragidx.build(folder / "docs", folder / "index").close()
        command = [sys.executable, "-m", "ragidx", "serve", "--index", str(folder / "index"), "--port", "0"]
        own = os.environ | {"RAGIDX_TOKEN": TOKEN}
        with subprocess.Popen([*command, "--writable"], stderr=subprocess.PIPE, text=True, env=own) as server:
            assert server.stderr is not None
            port = re.search(r":(\d+)  ", server.stderr.readline())
            assert port is not None
            threading.Thread(target=server.stderr.read, daemon=True).start()
            soak, samples = Soak(folder, int(port[1]), server.pid), list[dict[str, float]]()
            while not soak.client().info()["indexes"][0]["ready"]:
                time.sleep(0.1)
            acts = [*(soak.asks(SEED + number) for number in range(3)), soak.changes(), soak.builds()]
            threads = [soak.until_ended(act) for act in acts]
            until = time.monotonic() + 60 * minutes
            with (out / "soak.jsonl").open("w") as log:
                while time.monotonic() < until and not soak.ended.wait(SAMPLE_S):
                    samples.append(soak.sample() | dict(soak.done))
                    log.write(json.dumps(samples[-1]) + "\n")
            soak.ended.set()
            for thread in threads:
                thread.join()
            server.terminate()
    for line in soak.wrong[:20]:
        print(f"wrong: {line}")
    if len(samples) < 6:
        return 1
    found = sixths(samples)
    grown = [name for name, (early, late) in found.items() if late > early * ALLOWED[name] + 2 * (name == "handles")]
    record("soak", {**soak.done, **found, "wrong": len(soak.wrong), "grown": grown}, minutes=minutes)
    return bool(grown or soak.wrong)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60))
