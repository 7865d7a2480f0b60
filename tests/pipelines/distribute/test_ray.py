"""Builds on Ray, with a real cluster on this machine: actors, a node and the driver are killed, and nothing differs."""

from __future__ import annotations

import contextlib
import http.server
import importlib
import itertools
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.corpora.errors import BusyError, CorpusError, MachineError, RagidxError, SpecError
from ragidx.indexer.store import Store
from ragidx.pipelines import distribute
from ragidx.pipelines.distribute import Division, on_ray
from ragidx.pipelines.ingest.report import Progress

from ..conftest import Done
from .conftest import WORDS, content, lines, same, write

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # Ray's, of its own options


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """The package; its tokens would be written into the home folder, and what it counts sent elsewhere."""
    ray = pytest.importorskip("ray", reason="needs the extra 'ray'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield ray


@pytest.fixture(scope="module")
def cluster(ray: Any) -> Iterator[Any]:
    """A head with one core."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "object_store_memory": 80_000_000,
            "include_dashboard": False,
            "_system_config": {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300},
        },
    )
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of which a shard takes a second."""
    texts = [" ".join(np.random.default_rng(n).choice(WORDS, 60)) for n in range(200)]
    files = {f"{n}.jsonl": lines({"text": f"{n} {m} {text}"} for m, text in enumerate(texts)) for n in range(6)}
    return write(tmp_path_factory.mktemp("ray") / "corpus", files)


@pytest.fixture(scope="module")
def expected(corpus: Path) -> Path:
    """The index of one machine."""
    ragidx.build(corpus, corpus.with_name("expected"))
    return corpus.with_name("expected")


@pytest.fixture
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "_POLL_S", 0.02)


class Once:
    """`on_progress` that does something as soon as a shard is being built, and notes the progress."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self.seen: list[tuple[int, int]] = []
        self._act: Callable[[], None] | None = act

    def __call__(self, progress: Progress) -> None:
        if progress.total_bytes:
            self.seen.append((progress.n_bytes, progress.total_bytes))
        if progress.n_chunks and self._act is not None:
            act, self._act = self._act, None
            act()


@pytest.mark.parametrize(
    ("nodes", "asked", "device", "expected"),
    [
        ([{"CPU": 4}, {"CPU": 2}], None, None, (6, {"num_cpus": 1})),
        ([{"CPU": 4}], 9, None, (9, {"num_cpus": 1})),
        ([{"CPU": 16, "GPU": 4}, {"CPU": 8, "GPU": 1}], None, None, (5, {"num_gpus": 1, "num_cpus": 4})),
        ([{"CPU": 2, "GPU": 4}], None, "cuda", (4, {"num_gpus": 1, "num_cpus": 1})),
        ([{"CPU": 16, "GPU": 4}], 2, None, (2, {"num_gpus": 1, "num_cpus": 4})),
        ([{"CPU": 16, "GPU": 4}], None, "cpu", (16, {"num_cpus": 1})),
        ([{}], None, None, (1, {"num_cpus": 1})),
    ],
)
def test_an_actor_has_a_gpu_or_a_core(
    nodes: list[dict[str, float]], asked: int | None, device: str | None, expected: tuple[int, dict[str, float]]
) -> None:
    assert on_ray._actors(nodes, asked, device) == expected


@pytest.mark.usefixtures("_looks_often")
def test_it_is_the_index_of_one_machine(cluster: Any, corpus: Path, expected: Path, tmp_path: Path) -> None:
    told = Once()
    report = distribute.build_on_ray(
        corpus, tmp_path / "index", address=cluster.address, actors=1, stage=tmp_path / "stage", on_progress=told
    )
    same(expected, tmp_path / "index")
    assert (report.n_added, report.n_encoded) == (1200, 1200)
    assert {total for _, total in told.seen} == {sum(path.stat().st_size for path in corpus.iterdir())}
    assert all(before <= after for (before, _), (after, _) in itertools.pairwise(told.seen))
    assert len({done for done, _ in told.seen}) > 4
    assert sorted(path.name for path in (tmp_path / "stage").iterdir()) == ["LOCK", "committed.json"]


@pytest.mark.usefixtures("_looks_often")
def test_an_actor_that_is_killed_is_started_again(cluster: Any, corpus: Path, expected: Path, tmp_path: Path) -> None:
    psutil = pytest.importorskip("psutil")
    killed = []

    def builders() -> list[Any]:
        raylet = psutil.Process(cluster.head_node.all_processes["raylet"][0].process.pid)
        return [one for one in raylet.children(recursive=True) if "Builder" in "".join(one.cmdline()[:1])]

    def kill() -> None:
        for one in builders():
            killed.append(one.pid)
            one.send_signal(signal.SIGKILL)

    report = distribute.build_on_ray(
        corpus, tmp_path / "index", address=cluster.address, actors=1, stage=tmp_path / "stage", on_progress=Once(kill)
    )
    assert len(killed) == 1
    same(expected, tmp_path / "index")
    assert report.n_added == 1200


@pytest.mark.usefixtures("_looks_often")
def test_a_node_that_is_removed(cluster: Any, corpus: Path, expected: Path, tmp_path: Path) -> None:
    """Its actor waits for a core until the other one has nothing to do."""
    node = cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    removed = list[bool]()

    def remove() -> None:
        cluster.remove_node(node, allow_graceful=False)
        removed.append(node not in cluster.list_all_nodes())

    report = distribute.build_on_ray(
        corpus, tmp_path / "index", address=cluster.address, stage=tmp_path / "stage", on_progress=Once(remove)
    )
    assert removed == [True]
    same(expected, tmp_path / "index")
    assert report.n_added == 1200


@pytest.mark.usefixtures("_looks_often")
def test_a_driver_that_is_killed(cluster: Any, corpus: Path, expected: Path, tmp_path: Path) -> None:
    """The same command takes what is finished."""
    stage, index = tmp_path / "stage", tmp_path / "index"
    options = ["--ray", cluster.address, "--actors", "1", "--stage", stage, "--index", index]
    with subprocess.Popen([sys.executable, "-m", "ragidx", "build", corpus, *options, "--quiet"]) as driver:
        while not (done := list(stage.glob("*/shards/*.json"))):
            assert driver.poll() is None
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
    before = {path: path.stat().st_mtime_ns for path in done}
    division = Division.open(stage)
    again: list[str] = []

    def look() -> None:
        again.append(Division.open(stage).id)
        assert {path: path.stat().st_mtime_ns for path in done} == before

    report = distribute.build_on_ray(
        corpus, index, address=cluster.address, actors=1, stage=stage, on_progress=Once(look)
    )
    assert again == [division.id]
    same(expected, index)
    assert report.n_added == 1200


def test_ray_on_this_machine(ray: Any, folder: Path, run: Callable[..., Done]) -> None:
    write(folder / "docs", {f"{word}.txt": f"About the {word}." for word in WORDS})
    ragidx.build(folder / "docs", folder / "one")
    done = run("build", "docs", "--ray", "--actors", "2")
    assert done.status == 0, done.err
    assert "index      ragidx-index (generation 1)" in done.out
    assert "documents  12: 12 new, 0 changed, 0 unchanged" in done.out
    same(folder / "one", folder / "ragidx-index")
    assert sorted(path.name for path in folder.iterdir()) == ["docs", "one", "ragidx-index"]
    assert not ray.is_initialized()


def test_an_error_of_a_shard_is_the_error_of_the_build(cluster: Any, corpus: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "docs", {"a.jsonl": lines([{"id": "x", "text": "a"}, {"id": "x", "text": "b"}])})
    options: dict[str, Any] = {"address": cluster.address, "actors": 1, "stage": tmp_path / "stage", "strict": True}
    with pytest.raises(RagidxError, match="skipped: its id was seen before in this file") as caught:
        distribute.build_on_ray(source, tmp_path / "index", **options)
    assert type(caught.value).__name__ == "StrictError"
    assert not (tmp_path / "index").exists()


def test_a_shard_that_kills_its_actor_each_time(cluster: Any, corpus: Path, tmp_path: Path, ray: Any) -> None:
    class Deadly(on_ray.Builder):
        def build(self, number: int) -> Any:
            os.kill(os.getpid(), signal.SIGKILL)

    division = distribute.divide(corpus, 1, tmp_path / "stage", tmp_path / "index")
    with pytest.MonkeyPatch.context() as patch, on_ray._connected(cluster.address, 1):
        patch.setattr(on_ray, "Builder", Deadly)
        patch.setattr(on_ray, "_RESTARTS", 1)
        with pytest.raises(MachineError, match="the actor that builds shard 0 was killed 2 times"):
            on_ray._built(division, 1, {"num_cpus": 1}, {}, Progress())


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("docs/", "'docs/' is no address of Ray"),
        ("127.0.0.1:1", "there is no Ray at 127.0.0.1:1: "),
        ("ray://127.0.0.1:1", "there is no Ray at ray://127.0.0.1:1: "),
        ("127.0.0.1:99999", "there is no Ray at 127.0.0.1:99999: "),
        ("HTTP", "there is no Ray at 127.0.0.1:.*: another server answers"),
    ],
)
def test_an_address_where_no_ray_is(ray: Any, tmp_path: Path, address: str, message: str) -> None:
    started = time.monotonic()
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}" if address == "HTTP" else address
        with contextlib.redirect_stderr(None), pytest.raises(SpecError, match=message):
            distribute.build_on_ray("docs/", tmp_path / "index", address=address, stage=tmp_path / "stage")
        server.shutdown()
    assert time.monotonic() - started < 6
    assert not (tmp_path / "stage").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["docs", "--actors", "2"], "--actors is for --ray"),
        (["docs", "--ray", "--actors", "0"], "--actors: 0 is no number of actors"),
        (["docs", "--ray", "auto"], "--stage: a cluster needs a stage"),
        (["--ray", "docs"], "--ray: 'docs' is no address of Ray"),
        (["docs", "--ray", "--shards", "2", "--stage", "s"], "--shards and --ray exclude each other"),
        (["docs", "--watch", "--ray"], "--watch does not go with --ray"),
    ],
)
def test_options_that_are_refused(ray: Any, run: Callable[..., Done], arguments: list[str], message: str) -> None:
    done = run("build", *arguments)
    assert done.status == 2
    assert message in done.err


@pytest.fixture
def connected(ray: Any, cluster: Any) -> Iterator[Any]:
    """`ray.data`, of a program that has started Ray."""
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    data = importlib.import_module("ray.data")
    data.DataContext.get_current().enable_progress_bars = False
    yield data
    ray.shutdown()


def vectors(batch: dict[str, Any]) -> dict[str, Any]:
    """Rows of these numbers, with vectors in half precision, of which two have one id."""
    numbers = batch["id"]
    rows = np.stack([np.random.default_rng(n).standard_normal(8) for n in numbers]).astype("f2")
    ids, texts = np.array([f"r{n % 99}" for n in numbers]), np.array([f"text {n}" for n in numbers])
    return {"id": ids, "vector": rows, "text": texts, "doc_id": [f"d{n % 7}" for n in numbers], "year": numbers}


def test_a_dataset_becomes_an_index(connected: Any, tmp_path: Path) -> None:
    """As one build of a file with these rows; a write task that is killed is run again, and counts once."""
    from ragidx.frameworks.ray import Datasink

    class Dying(Datasink):
        def write(self, blocks: Any, ctx: Any) -> Any:
            made, mark = super().write(blocks, ctx), tmp_path / "killed"
            if ctx.task_idx == 1 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return made

    sink = Dying(tmp_path / "index", made_by="a test")
    importlib.import_module("ray.cloudpickle").register_pickle_by_value(sys.modules[__name__])
    connected.range(100, override_num_blocks=4).map_batches(vectors).write_datasink(sink)
    assert (tmp_path / "killed").exists()
    rows = vectors({"id": np.arange(100)})
    pq.write_table(pa.table(rows | {"vector": list(rows["vector"])}), tmp_path / "rows.parquet")
    expected = ragidx.build(vectors=str(tmp_path / "rows.parquet"), index=tmp_path / "one", made_by="a test").report
    assert content(tmp_path / "index") == content(tmp_path / "one")
    assert Store.open(tmp_path / "index").manifest.schema == Store.open(tmp_path / "one").manifest.schema
    assert sink.report is not None
    assert sink.report.skipped == expected.skipped == {"the id was seen before": 1}
    assert (sink.report.n_documents, sink.report.n_chunks, sink.report.model) == (7, 99, "a test")
    assert not (tmp_path / "index.stage").exists()


def test_a_write_that_fails_leaves_the_index_as_it_was(connected: Any, tmp_path: Path) -> None:
    from ragidx.frameworks.ray import Datasink

    connected.from_items([{"id": "a", "vector": [1.0, 2.0]}]).write_datasink(Datasink(tmp_path / "index"))
    before = content(tmp_path / "index")
    wrong = connected.from_items([{"id": f"r{n}", "vector": [1.0] * 3} for n in range(4)])
    with pytest.raises(RagidxError, match="vectors have 2 dimensions in the index, 3 now"):
        wrong.write_datasink(Datasink(tmp_path / "index", stage=tmp_path / "stage"))
    with pytest.raises(CorpusError, match="no task has written a vector"):
        connected.from_items([]).write_datasink(Datasink(tmp_path / "index"))
    assert content(tmp_path / "index") == before
    assert sorted(path.name for path in (tmp_path / "stage").iterdir()) == ["LOCK"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "stage"]


def test_ray_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RagidxError, match="a build on Ray needs ray, which is not installed"):
        distribute.build_on_ray("docs/", tmp_path / "index")


def test_an_error_pickles() -> None:
    fault = BusyError("another process", "wait", where="index")
    again = pickle.loads(pickle.dumps(fault))
    assert (type(again), str(again), again.args) == (BusyError, str(fault), fault.args)
