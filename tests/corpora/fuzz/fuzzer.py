"""Runs mutated files through the readers, in a child with limits: `python tests/corpora/fuzz/fuzzer.py SECONDS [SEED]`.

Files that are findings are kept in build/fuzz; the run ends with their number as its status, at most 1.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parent))

from seeds import STEPS, Step, mutated, office_seeds, seeds

WAIT_S = 300  # of real time for a file, on a machine that does other things
OFFICE_SHARE = 0.001  # of the files, and some half of the time


class Readers:
    """The child that reads; a new one after each that ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def read(self, ending: str, data: bytes) -> dict[str, Any]:
        """The child's answer on a file of this ending; a fault where it gave none."""
        path = self._folder / f"file{ending}"
        path.write_bytes(data)
        child = self._child or subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._child = child
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{path}\n")
        child.stdin.flush()
        line = child.stdout.readline()
        path.unlink()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        status = child.wait(WAIT_S)
        self._end()
        return {"documents": 0, "rows": 0, "skips": 0, "peak": 0, "fault": f"the reader ended with status {status}"}

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()


def main(seconds: float, seed: int) -> int:
    """Fuzz for some time; 1 if anything was found."""
    chance, kept = random.Random(seed), Path("build/fuzz")
    good, office, end = seeds(), office_seeds(), time.monotonic() + seconds
    runs = findings = peak = 0
    seen: set[str] = set()
    with tempfile.TemporaryDirectory() as folder, Readers(Path(folder)) as readers:
        while time.monotonic() < end:
            ending, data = chance.choice(office if chance.random() < OFFICE_SHARE else good)
            steps = [_step(chance) for _ in range(chance.choice((1, 1, 2, 3, 6)))]
            data = mutated(data, steps)
            answer = readers.read(ending, data)
            runs, peak = runs + 1, max(peak, answer["peak"])
            if answer["fault"]:
                findings += 1
                kept.mkdir(parents=True, exist_ok=True)
                (kept / f"{seed}-{runs}{ending}").write_bytes(data)
                if answer["fault"] not in seen:
                    seen.add(answer["fault"])
                    print(f"{kept}/{seed}-{runs}{ending}: {answer['fault']}")  # noqa: T201
    print(f"{runs} files, {findings} findings, {len(seen)} of them different; peak {peak} MiB; seed {seed}")  # noqa: T201
    return int(findings > 0)


def _step(chance: random.Random) -> Step:
    return chance.choice(STEPS), chance.random(), chance.random(), chance.randrange(1000)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)))
