"""An upgrade killed at random moments: the index is the old one or the new one, whole, and the end is the same."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ragidx
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify

from ...indexer.states import live_vectors

pytestmark = pytest.mark.slow

KILLS = 10

# As in tests/pipelines/ingest/test_kills.py; after each kill somebody adds a document to the index.
FORKER = """
    import json, os, random, shutil, signal, sys
    from pathlib import Path

    import ragidx
    from ragidx.corpora.records import Document
    from ragidx.indexer.store import Store
    from ragidx.indexer.store.verify import verify
    from ragidx.pipelines.experiments.trials import upgrade as _loaded

    index, kills = sys.argv[1], int(sys.argv[2])
    EVENTS = ("open", "os.rename", "os.remove", "os.link", "os.mkdir")

    def upgrade(place, turn=-1):
        # in a fork that ends at one of the events; its status, and how many there were
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            seen = [0]

            def hook(event, args):
                if event in EVENTS:
                    if seen[0] == turn:
                        os.kill(os.getpid(), signal.SIGKILL)
                    seen[0] += 1

            try:
                sys.addaudithook(hook)
                ragidx.Index(place).upgrade(force=True, filter=ragidx.FilterSpec("truncation", tau=4))
                os.write(send, str(seen[0]).encode())
            finally:
                os._exit(0)
        os.close(send)
        count = os.read(receive, 20)
        os.close(receive)
        return os.waitpid(child, 0)[1], int(count or 0)

    shutil.copytree(index, index + "-whole")
    _, whole = upgrade(index + "-whole")
    rng, told = random.Random(29), []
    for number in range(kills):
        before = Store.open(index).manifest
        status, _ = upgrade(index, rng.randrange(whole))
        after = Store.open(index).manifest
        told.append(
            {
                "killed": os.WIFSIGNALED(status),
                "moved": after.generation - before.generation,
                "width": after.dim,
                "faults": verify(Path(index)),
            }
        )
        if after.dim == 96:
            ragidx.Index(index).rollback(after.generation - 1)
        ragidx.Index(index).add([Document(f"late {number}", f"Number {number} came late.", {})])
    told.append({"killed": os.WIFSIGNALED(upgrade(index)[0])})
    print(json.dumps(told))
"""


def test_kills_of_upgrades_lose_nothing(small_corpus: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    ragidx.build(small_corpus, index)
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKER), str(index), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)

    assert done.returncode == 0, done.stderr
    *told, last = json.loads(done.stdout.splitlines()[-1])
    assert [state["faults"] for state in told] == [[]] * KILLS
    assert all((state["moved"], state["width"]) in ((0, 255), (1, 96)) for state in told)
    assert sum(state["killed"] for state in told) > KILLS // 2
    assert {state["moved"] for state in told if state["killed"]} >= {0}
    assert not last["killed"]
    ragidx.build(small_corpus, tmp_path / "fresh", filter=ragidx.FilterSpec("truncation", tau=4)).add(
        [ragidx.Document(f"late {number}", f"Number {number} came late.", {}) for number in range(KILLS)]
    )
    found, fresh = (
        {key: vector.tobytes() for key, vector in live_vectors(tmp_path / name).items()} for name in ("index", "fresh")
    )
    assert found == fresh
    assert verify(index) == []
    assert not list(index.rglob("*.tmp"))
    assert [path.name for path in (index / "upgrade").iterdir()] == ["LOCK"]
    named = {segment.id for one in ragidx.Index(index).history() for segment in one.segments}
    assert {path.name for path in (index / "segments").iterdir()} == named
    assert Store.open(index).manifest.dim == 96
