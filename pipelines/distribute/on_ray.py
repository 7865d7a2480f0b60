"""A build on Ray: the driver divides, actors build the shards, the driver commits. Extra `ray`.

    corpus, index, address -> actors, one for each GPU or else each core -> shards in the stage -> one commit

Ray starts actors, and starts an actor again that was killed, on another node where its own is gone. Texts and vectors
are not sent: a shard reads its own files, and all nodes see the stage. Without an address, Ray runs on this machine and
ends with the build; a program that has started Ray uses its own.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragidx.corpora.addresses import hidden
from ragidx.corpora.errors import BusyError, MachineError, SpecError, first_line, missing_extra
from ragidx.indexer.models.offline import VARIABLES, check_allowed
from ragidx.pipelines.base.resources import usable_cores
from ragidx.pipelines.distribute.commit import commit
from ragidx.pipelines.distribute.descriptor import Descriptor
from ragidx.pipelines.distribute.divide import divide
from ragidx.pipelines.distribute.division import Division
from ragidx.pipelines.distribute.shard import RUN, build_shard
from ragidx.pipelines.ingest.ledger import ENCODED
from ragidx.pipelines.ingest.report import BuildReport, OnProgress, Progress
from ragidx.pipelines.ingest.selection import Corpus

LOCAL = "local"

_SHARDS_AN_ACTOR = 4  # so that a slow one holds up the others by a quarter of its work, at most
_RESTARTS = 3
_POLL_S, _REACH_S, _BUSY_S = 0.5, 5.0, 60.0
_ADDRESS = re.compile(r"(?:ray://)?(?:\[[\da-fA-F:]+\]|[\w.-]+):\d{1,5}")
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # how HTTP/2 begins


def build_on_ray(
    corpus: Corpus,
    index: str | Path = "ragidx-index",
    *,
    address: str | None = None,
    actors: int | None = None,
    stage: str | Path | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> BuildReport:
    """Build the index of a corpus with Ray.

    The same call continues where one was killed: shards that are finished are not built again.

    Args:
        corpus: folder or file as `ragidx.build` takes it, but not standard input; all nodes see it by the same path.
        index: the folder of the index, which only this process writes.
        address: address of a cluster: `auto`, HOST:PORT or ray://HOST:PORT; None: Ray is started here, and ends with
            the build.
        actors: how many; None: one for each GPU of the cluster, or each core where it has none.
        stage: a folder that all nodes see; None, on this machine: one beside the index, removed at the end.
        on_progress: called twice a second, with the progress of all.
        options: options of `ragidx.build`; `workers` are those of an actor.

    Raises:
        SpecError: an option is wrong, or there is no Ray at the address.
        CorpusError: there is no document, or a file changed meanwhile.
        MachineError: an actor was killed again and again.
        RagidxError: the extra `ray` is not installed.
    """
    ray = _ray()
    if actors is not None and (isinstance(actors, bool) or not isinstance(actors, int) or actors < 1):
        raise SpecError(f"{actors!r} is no number of actors", "give one from 1", where="`actors`")
    address = LOCAL if address is None else address
    if address not in (LOCAL, "auto") and not _ADDRESS.fullmatch(address):
        hint = "give auto, HOST:PORT or ray://HOST:PORT, and the corpus before it"
        raise SpecError(f"'{hidden(address)}' is no address of Ray", hint, where="`address`")
    if stage is None and address != LOCAL:
        raise _needs_stage()
    started, folder = time.perf_counter(), Path(index).absolute()
    own = folder.with_name(f"{folder.name}.stage")
    with _connected(address, actors):
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if stage is None and len(nodes) > 1:  # of a program that has started Ray
            raise _needs_stage()
        count, needs = _actors(nodes, actors, options.get("device"))
        division = divide(
            corpus,
            _SHARDS_AN_ACTOR * count,
            own if stage is None else Path(stage).absolute(),
            folder,
            at_most=True,
            on_progress=on_progress,
            **options,
        )
        run = {name: options[name] for name in RUN if options.get(name) is not None}
        run.setdefault("workers", int(needs["num_cpus"]))
        made = _built(division, min(count, division.n), needs, run, Progress(on_progress=on_progress))
    report = commit(division, made, on_progress=on_progress)
    report.seconds = time.perf_counter() - started
    if stage is None:
        shutil.rmtree(own, ignore_errors=True)
    return report


class Builder:
    """An actor: builds one shard after the other, and says meanwhile how far it is."""

    def __init__(self, stage: str, run: Mapping[str, Any]) -> None:
        self._stage, self._run = stage, run
        self._number, self._progress = -1, Progress()

    def build(self, number: int) -> Descriptor:
        """A shard; one that another process of this host still has, whose driver was killed, is waited for."""
        self._number, self._progress = number, Progress()
        until = time.monotonic() + _BUSY_S
        while True:
            try:
                return build_shard(Division.open(self._stage), number, on_progress=self._note, **self._run)
            except BusyError:
                if time.monotonic() > until:
                    raise
                time.sleep(1)

    def counts(self) -> tuple[int, dict[str, float]]:
        """The number of the shard that is built, or was built last, and what is counted of it."""
        return self._number, {name: getattr(self._progress, name) for name in ENCODED}

    def _note(self, progress: Progress) -> None:
        self._progress = progress


def _ray() -> Any:
    """The package, where it is installed."""
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as fault:
        raise missing_extra("a build on Ray needs", ["ray"], "ray") from fault


@contextlib.contextmanager
def _connected(address: str, actors: int | None) -> Iterator[None]:
    """Ray, ready; where the program has not started it, it ends with the block, or is left."""
    ray = _ray()
    if ray.is_initialized():
        yield
        return
    where: dict[str, Any] = {"address": address}
    said: dict[str, str] = {}
    if address == LOCAL:
        where |= {"num_cpus": max(usable_cores(), actors or 1), "include_dashboard": False}
        # Ray reports its use to its maker, and keeps a token in the user's home, unless these are set.
        own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        said = {name: value for name, value in own.items() if name not in os.environ}
    elif address != "auto":
        check_allowed(_host_of(address), where="`address`")
        _check_answers(address)
    else:
        check_allowed(address, where="`address`", shown="a cluster that Ray finds")
    os.environ.update(said)
    try:
        try:
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
        except (Exception, SystemExit) as fault:  # it ends the process where a cluster does not answer
            raise _no_ray(address, first_line(fault).partition(". ")[0]) from fault
        yield
    finally:  # also of what was interrupted while it was starting
        ray.shutdown()
        for name in said:
            del os.environ[name]


def _host_of(address: str) -> str:
    return address.removeprefix("ray://").rpartition(":")[0].strip("[]")


def _check_answers(address: str) -> None:
    """Whether a server of gRPC is at an address, as Ray is: Ray itself tries for minutes."""
    port = int(address.rpartition(":")[2])
    try:
        with socket.create_connection((_host_of(address), port), _REACH_S) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            connection.sendall(_HELLO)
            if connection.recv(9)[3:4] != _HELLO[-6:-5]:
                raise _no_ray(address, "another server answers")
    except (OSError, OverflowError) as fault:
        raise _no_ray(address, first_line(fault)) from fault


def _no_ray(address: str, why: str) -> SpecError:
    hint = "start one with `ray start --head`, or name no address for Ray on this machine"
    return SpecError(f"there is no Ray at {address}: {why}", hint, where="`address`")


def _needs_stage() -> SpecError:
    return SpecError("a cluster needs a stage", "name a folder that all nodes see", where="`stage`")


def _actors(
    nodes: Sequence[Mapping[str, float]], asked: int | None, device: str | None
) -> tuple[int, dict[str, float]]:
    """How many actors, and what each of them needs of a node: a GPU with its share of the cores, or a core."""
    with_gpus = [node for node in nodes if node.get("GPU", 0) >= 1]
    if with_gpus and device != "cpu":
        n_cores = min(int(node.get("CPU", 0) // node["GPU"]) for node in with_gpus)
        count = int(sum(node["GPU"] for node in with_gpus))
        return asked or count, {"num_gpus": 1, "num_cpus": max(1, n_cores)}
    return asked or max(1, int(sum(node.get("CPU", 0) for node in nodes))), {"num_cpus": 1}


def _built(
    division: Division, n_actors: int, needs: Mapping[str, float], run: Mapping[str, Any], progress: Progress
) -> list[Descriptor]:
    """The shards of a division, as they end."""
    ray = _ray()
    env = {name: os.environ[name] for name in VARIABLES if name in os.environ}  # hold for actors, too
    remote = ray.remote(Builder).options(
        **needs,
        max_restarts=_RESTARTS,
        max_task_retries=-1,  # of a node that is gone, each try fails until Ray has noticed
        max_concurrency=2,  # to build, and to say how far it is
        **({"runtime_env": {"env_vars": env}} if env else {}),
    )
    counted = _Counts(division, progress, n_actors)
    todo, made, running = list(range(division.n))[::-1], list[Descriptor](), dict[Any, tuple[Any, int]]()
    idle = [remote.remote(str(division.stage), run) for _ in range(n_actors)]
    started = list(idle)
    try:
        while todo or running:
            while todo and idle:
                actor, number = idle.pop(), todo.pop()
                running[actor.build.remote(number)] = actor, number
            while idle:  # another may wait for its core, since a node is gone
                ray.kill(idle.pop())
            for task in ray.wait(list(running), timeout=_POLL_S)[0]:
                actor, number = running.pop(task)
                made.append(_result(task, number))
                counted.end(number, made[-1])
                idle.append(actor)
            counted.look({number: actor for actor, number in running.values()})
        return made
    finally:
        for actor in started:
            ray.kill(actor)


def _result(task: Any, number: int) -> Descriptor:
    ray = _ray()
    try:
        made: Descriptor = ray.get(task)
        return made
    except ray.exceptions.RayTaskError as fault:
        raise fault.cause from fault
    except ray.exceptions.RayActorError as fault:
        why = f"the actor that builds shard {number} was killed {_RESTARTS + 1} times: {first_line(fault)}"
        hint = "look at its node (is its memory enough?), and run it again: finished shards stay"
        raise MachineError(why, hint) from fault


class _Counts:
    """The progress of all shards."""

    def __init__(self, division: Division, progress: Progress, n_actors: int) -> None:
        self._division, self._progress, self._n_actors = division, progress, n_actors
        self._each = {-1: dict(division.ledger["encoded"])}
        self._asked: dict[int, Any] = {}
        progress.total_bytes = sum(division.sizes) + self._each[-1]["n_bytes"]

    def end(self, number: int, made: Descriptor) -> None:
        """Note a shard that is done."""
        said = self._each.setdefault(number, dict.fromkeys(ENCODED, 0))
        said |= {"n_bytes": self._division.sizes[number], "n_cut": made.n_chunks, "n_chunks": made.n_chunks}
        self._asked.pop(number, None)

    def look(self, running: Mapping[int, Any]) -> None:
        """Take what actors say of their shards; one that was killed says nothing for a while."""
        ray = _ray()
        for number, actor in running.items():
            task = self._asked.setdefault(number, actor.counts.options(max_task_retries=0).remote())
            with contextlib.suppress(ray.exceptions.RayError):
                if ray.wait([task], timeout=0)[0]:
                    del self._asked[number]
                    said, counts = ray.get(task)
                    self._each |= {said: counts} if said == number else {}
        for name in ENCODED:
            total = sum(counts[name] for counts in self._each.values())
            setattr(self._progress, name, total / self._n_actors if name == "seconds" else total)
        self._progress.has_new = self._progress.n_cut > 0
        self._progress.tell()
