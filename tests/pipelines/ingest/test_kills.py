"""Builds with a real model, killed twenty times at random moments: what stands is whole, and the end is the same."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

import ragidx

from ...indexer.states import live_vectors

pytestmark = pytest.mark.slow

KILLS = 20

# The libraries are loaded once; each build runs in a fork of this process, which is killed where it opens, renames or
# removes a file, at one of as many places as a whole build has.
FORKER = """
    import json, os, random, signal, sys
    import torch
    import ragidx
    from ragidx.indexer.store import Store
    from ragidx.indexer.store.verify import verify
    from ragidx.pipelines.ingest import build as _loaded

    corpus, index, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    EVENTS = ("open", "os.rename", "os.remove")

    def forked(work):
        child = os.fork()
        if child == 0:
            try:
                work()
            finally:
                os._exit(0)
        return child

    def builds(place):
        return lambda: ragidx.build(corpus, place, chunks=ragidx.ChunkSpec(size=48))

    def counted():
        # events of a whole build
        receive, send = os.pipe()
        turns = []

        def work():
            sys.addaudithook(lambda event, args: turns.append(event) if event in EVENTS else None)
            builds(index + "-whole")()
            os.write(send, str(len(turns)).encode())

        os.waitpid(forked(work), 0)
        return int(os.read(receive, 20))

    def killed(turn):
        # a build that ends at one of these
        turns = iter(range(turn, -1, -1))

        def work():
            sys.addaudithook(
                lambda event, args: (
                    os.kill(os.getpid(), signal.SIGKILL) if event in EVENTS and next(turns, 1) == 0 else None
                )
            )
            builds(index)()

        return forked(work)

    whole = counted()
    rng = random.Random(20251122)
    told = []
    for number in range(kills):
        _, status = os.waitpid(killed(rng.randrange(whole)), 0)
        there = os.path.exists(os.path.join(index, "manifest.json"))
        store = Store.open(index) if there else None
        told.append(
            {
                "killed": os.WIFSIGNALED(status),
                "chunks": None if store is None else store.manifest.n_chunks,
                "faults": [] if store is None else verify(store.path),
            }
        )
        with open(os.path.join(corpus, f"late-{number}.txt"), "w") as file:
            file.write(f"Lodging number {number} has a garden of {number * 7 + 3} roses, tended by gardener {number}.")
    os.waitpid(forked(builds(index)), 0)
    print(json.dumps(told))
"""


def test_twenty_kills_of_builds_lose_nothing(small_corpus, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKER)]
    done = subprocess.run(
        [*command, str(small_corpus), str(tmp_path / "index"), str(KILLS)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [state["faults"] for state in told] == [[]] * KILLS
    assert sum(state["killed"] for state in told) > KILLS // 2
    ragidx.build(small_corpus, tmp_path / "undisturbed", chunks=ragidx.ChunkSpec(size=48))
    found, undisturbed = (
        {key: vector.tobytes() for key, vector in live_vectors(tmp_path / name).items()}
        for name in ("index", "undisturbed")
    )
    assert found == undisturbed
    assert not list((tmp_path / "index").rglob("*.tmp"))
    assert not list((tmp_path / "index" / "journal").glob("*.bin"))
