"""A service that runs: a real server on a port of this machine, in a thread, over a tiny index."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ragidx
from ragidx.pipelines.index import Index

for _name in ("starlette", "uvicorn", "mcp", "prometheus_client"):
    pytest.importorskip(_name, reason="the extra `serve` is not installed")

from ragidx.pipelines.serve import http_server as serve_server  # noqa: E402
from ragidx.pipelines.serve.service import Service  # noqa: E402
from ragidx.pipelines.serve.settings import Settings  # noqa: E402

TOKEN = "t0ken-" + "x" * 32
TEXTS = {
    "mill": (
        "The old mill ground wheat by the river.\n\nIts wheel turned in spring.",
        {"year": 1790, "subject": "history"},
    ),
    "tower": ("A concrete tower carries antennas for radio.", {"year": 1958, "subject": "buildings"}),
    "bees": (
        "Bees dance to tell where flowers are.",
        {"year": 1946, "subject": "biology", "tags": ["insects", "maths"]},
    ),
    "lease": ("The lease of the mill was signed by Anna Smith.", {"year": 1840, "subject": "law"}),
}


class Answer(NamedTuple):
    """What a service answered."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def error(self) -> str:
        """The message of a failure."""
        return str(self.body["error"]["message"])


class Running:
    """A service that runs."""

    def __init__(self, service: Service, port: int, token: str = "") -> None:
        self.service, self.port, self.token = service, port, token
        self.url = f"http://127.0.0.1:{port}"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        raw: bytes | None = None,
    ) -> Answer:
        """One request on a connection of its own."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if data is not None or method in ("POST", "PUT") else {}
        sent |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request(method, path, data, {**sent, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
        kind, names = answer.headers.get_content_type(), {k.lower(): v for k, v in answer.headers.items()}
        return Answer(answer.status, json.loads(text) if kind == "application/json" else text.decode(), names)

    def search(self, query: str, **options: Any) -> Answer:
        """POST /v1/search."""
        return self.ask("POST", "/v1/search", {"query": query, **options})


@contextlib.contextmanager
def running(indexes: Mapping[str, Path | str], *, wait: bool = True, **settings: Any) -> Iterator[Running]:
    """A service of some indexes; by default its indexes are open."""
    options = Settings(port=0, **settings)
    app, service = serve_server.application(indexes, options)
    bound = serve_server.listening("127.0.0.1", 0)
    server = serve_server.server_of(app, options)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    found = Running(service, bound.getsockname()[1], options.token)
    try:
        until(lambda: server.started)
        if wait:
            until(lambda: all(one.is_loaded for one in service.indexes.values()))
        yield found
    finally:
        server.should_exit = True
        thread.join(30)
        bound.close()
        assert not thread.is_alive()


def until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something to hold."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def make_index(path: Path) -> Path:
    """A tiny index of a program's documents."""
    with Index.create(path) as index:
        index.add([ragidx.Document(name, text, metadata) for name, (text, metadata) in TEXTS.items()])
    return path


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that no test changes."""
    return make_index(tmp_path_factory.mktemp("served") / "docs")


@pytest.fixture(scope="package")
def served(index: Path) -> Iterator[Running]:
    """A service that no test changes, without a token."""
    with running({"docs": index}) as found:
        yield found


@pytest.fixture
def own_index(tmp_path: Path) -> Path:
    """An index for one test."""
    return make_index(tmp_path / "own")


@pytest.fixture
def writable(own_index: Path) -> Iterator[Running]:
    """A service that writes an index of one test."""
    with running({"own": own_index}, writable=True, token=TOKEN) as found:
        yield found
