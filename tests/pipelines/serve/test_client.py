"""`ragidx.Client`, and `ragidx query` through the socket of a service: the same output, and alone wherever it must."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import BusyError, QueryError, RagidxError
from ragidx.pipelines.index import Index
from ragidx.pipelines.serve import client
from ragidx.pipelines.serve import http_server as serve_server
from ragidx.pipelines.serve.sockets import offered

from ..conftest import Done
from .conftest import TOKEN, Running, running, until

Run = Callable[..., Done]


def test_parts_of_a_document_and_what_is_served(served: Running, index: Path) -> None:
    remote = ragidx.Client(served.url)
    [mill] = Index(index).get(["mill"])
    assert remote.document("mill") == ragidx.Document("mill", mill.text, mill.metadata)
    assert remote.document("mill", start=4, end=7).text == "old"
    assert remote.info()["indexes"][0]["name"] == "docs"


def test_it_changes_documents_and_each_call_may_name_an_index(index: Path, tmp_path: Path) -> None:
    shutil.copytree(index, tmp_path / "other")
    with running({"docs": index, "other": tmp_path / "other"}, writable=True, token=TOKEN) as served:
        remote = ragidx.Client(served.url, token=TOKEN, index="docs")
        faq = ragidx.Document("faq/1 ü", "# A lease\n\nIt ends.", {"year": 1999, "tags": ["a", "b"]}, markdown=True)

        generation = remote.add(faq, index="other")

        with Index(tmp_path / "other") as other:
            assert (other.get([faq.id]), other.generation) == ([faq], generation)
        assert remote.document(faq.id, index="other").text == faq.text
        assert faq.id in [hit.doc_id for hit in remote.search("a lease", index="other")]
        assert faq.id not in [hit.doc_id for hit in remote.search("a lease")]
        with pytest.raises(QueryError, match="no such document"):
            remote.document(faq.id)
        assert remote.delete(faq.id, index="other") == generation + 1
        with pytest.raises(QueryError, match="no such document"):
            remote.delete(faq.id, index="other")


def test_a_number_that_json_lacks_is_refused_before_it_is_sent(served: Running) -> None:
    asked = ragidx.Client(served.url)

    for ask in (
        lambda: asked.add(ragidx.Document("a", "A text.", {"x": float("nan")})),
        lambda: asked.search_vectors([[float("inf")]]),
    ):
        with pytest.raises(QueryError, match="a number is not finite"):
            ask()


def test_its_errors_are_those_of_an_index(served: Running) -> None:
    remote = ragidx.Client(served.url)
    with pytest.raises(QueryError, match="no such document"):
        remote.document("nothing")
    with pytest.raises(QueryError, match="there is no such index"):
        ragidx.Client(served.url, index="other").search("bees")
    served.service._n_working = 10_000
    with pytest.raises(BusyError, match="too many requests"):
        remote.search("bees")
    served.service._n_working = 0


def test_a_service_that_is_not_there_or_asks_for_a_token(index: Path) -> None:
    with running({"docs": index}, token=TOKEN) as served:
        with pytest.raises(RagidxError, match="this service needs its token"):
            ragidx.Client(served.url).search("bees")
        assert ragidx.Client(served.url, token=TOKEN).search("bees")[0].doc_id == "bees"
    with pytest.raises(RagidxError, match=r"no answer: .*refused") as caught:
        ragidx.Client(served.url).search("bees")
    assert caught.value.hint == "start a service with `ragidx serve`"
    for address in ("localhost:8411", "http://localhost:99999", "http://localhost:x", "http://[::1", "http://a:0"):
        with pytest.raises(RagidxError, match="it is not the address of a service"):
            ragidx.Client(address)


def test_it_imports_nothing_of_the_service_and_no_numpy() -> None:
    script = (
        "import ragidx, sys; ragidx.Client('http://127.0.0.1:1'); print([n for n in ('numpy', 'pyarrow', 'starlette', "
    )
    script += "'ragidx.pipelines.serve.service', 'ragidx.pipelines.index') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# -- the socket -------------------------------------------------------------------------------------------------------


@pytest.fixture
def runtime(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of this user for sockets, with a short path."""
    folder = Path("/tmp" if os.name == "posix" else ".") / f"rx{os.getpid()}"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def listening(index: Path) -> Iterator[list[str]]:
    """A service with a socket, and the routes that were asked for."""
    settings = serve_server.Settings(port=0)
    app, service = serve_server.application({"own": index}, settings)
    asked: list[str] = []

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            asked.append(scope["path"])
        await app(scope, receive, send)

    with offered(index) as own:
        assert own is not None
        service.sockets[own.getsockname()] = "own"
        server = serve_server.server_of(counted, settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [own]})
        thread.start()
        until(lambda: all(one.is_loaded for one in service.indexes.values()))
        try:
            yield asked
        finally:
            server.should_exit = True
            thread.join(30)


QUESTIONS = [
    ("query", "the mill"),
    ("query", "the mill", "-k", "2", "--json"),
    ("query", "the mill", "--full", "--where", "year < 1900", "--per-document", "1"),
    ("query", "signed the lease", "--mode", "lexical", "--context", "1", "--no-fold"),
    ("query", "the mill", "--dim", "16", "--min-score", "0.05", "--mmr", "0.5", "--mode", "dense"),
    ("query", "zzz qqq", "--mode", "lexical"),
    ("query", "zzz qqq", "--mode", "lexical", "--json"),
    ("query", "the mill", "--where", "yaer == 1"),
    ("query", "   "),
]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", QUESTIONS, ids=" ".join)
def test_the_output_is_the_same(runtime: Path, own_index: Path, run: Run, arguments: tuple[str, ...]) -> None:
    alone = run(*arguments, "--index", str(own_index))
    with listening(own_index) as asked:
        through = run(*arguments, "--index", str(own_index))
        own = "".join(line for line in through.err.splitlines(keepends=True) if not line.startswith("{"))
        assert through._replace(err=own) == alone  # the log of the service is on the same stream here
        assert asked == ["/v1/search"]
    assert run(*arguments, "--index", str(own_index)) == alone


@pytest.mark.slow
def test_a_question_through_it_loads_neither_numpy_nor_pyarrow(runtime: Path, own_index: Path) -> None:
    script = (
        "import sys; from ragidx.pipelines.cli.main import main\n"
        "try: main(['query', 'the mill', '-k', '4', '--index', sys.argv[1]])\n"
        "except SystemExit: pass\n"
        "print([n for n in ('numpy', 'pyarrow', 'faiss', 'torch') if n in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, str(own_index)]
    with listening(own_index):
        through = subprocess.run(command, capture_output=True, text=True, check=True)
    alone = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (through.stderr, through.stdout) == ("[]\n", alone.stdout)
    assert "numpy" in alone.stderr


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--show=year", "--questions=model", "--device=cpu", "--model=mini", "-k=1001"])
def test_what_a_service_cannot_do_is_done_alone(runtime: Path, own_index: Path, run: Run, option: str) -> None:
    name, value = option.split("=")
    with listening(own_index) as asked:
        done = run("query", "the mill", "--index", str(own_index), name, value)
        assert done.status == 0
        assert asked == (["/v1/search"] if name == "-k" else [])


def test_a_service_of_the_index_before_it_was_made_anew_is_not_asked(runtime: Path, own_index: Path) -> None:
    with listening(own_index):
        manifest = own_index / "manifest.json"
        text = json.loads(manifest.read_text()) | {"created": "2020-01-31T12:00:00Z"}
        kept = manifest.read_bytes()
        manifest.write_text(json.dumps(text))
        assert client.through_socket(own_index, {"query": "bees"}) is None
        manifest.write_bytes(kept)


@pytest.mark.slow
def test_a_service_that_runs_the_model_in_its_own_way_offers_no_socket(runtime: Path, own_index: Path) -> None:
    command = [sys.executable, "-m", "ragidx", "serve", "--port", "0", "--index", str(own_index), "--dtype", "float32"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr is not None
        first, second = started.stderr.readline(), started.stderr.readline()
        started.kill()
    assert "auth: none (loopback)" in first
    assert second == "`ragidx query` does not ask this service for own: it runs the model in its own way.\n"


def test_an_answer_that_is_no_answer_of_a_service() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def reply() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b'HTTP/1.1 502 Bad\r\nContent-Length: 17\r\n\r\n{"error": "gone"}')

        thread = threading.Thread(target=reply)
        thread.start()
        with pytest.raises(RagidxError, match=r"^gone"):
            ragidx.Client(f"http://127.0.0.1:{other.getsockname()[1]}").search("bees")
        thread.join()


def test_a_service_that_is_behind_is_not_asked(runtime: Path, own_index: Path) -> None:
    with listening(own_index):
        answer = client.through_socket(own_index, {"query": "bees"})
        assert answer is not None
        manifest = own_index / "manifest.json"
        text = json.loads(manifest.read_text())
        text["generation"] += 1
        kept = manifest.read_bytes()
        manifest.write_text(json.dumps(text))
        assert client.through_socket(own_index, {"query": "bees"}) is None
        manifest.write_bytes(kept)
        again = client.through_socket(own_index, {"query": "bees"})
        assert again is not None
        assert again["hits"] == answer["hits"]


def test_the_socket_is_this_users_alone(runtime: Path, own_index: Path) -> None:
    with listening(own_index):
        path = client.socket_path(own_index)
        assert path is not None
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        link = own_index.parent / "link"
        link.symlink_to(own_index)
        assert client.socket_path(link) == path
    assert not path.exists()


def test_a_socket_that_others_could_have_made_is_not_asked(runtime: Path, own_index: Path) -> None:
    with listening(own_index):
        path = client.socket_path(own_index)
        assert path is not None
        path.parent.chmod(0o755)
        assert client.through_socket(own_index, {"query": "bees"}) is None
        path.parent.chmod(0o700)
        assert client.through_socket(own_index, {"query": "bees"}) is not None
        if os.getuid() == 0:
            os.lchown(path, 12345, -1)
            assert client.through_socket(own_index, {"query": "bees"}) is None


def test_a_folder_that_others_can_open_gets_no_socket(runtime: Path, own_index: Path) -> None:
    (runtime / "ragidx").mkdir(mode=0o755)
    with offered(own_index) as own:
        assert own is None


def test_two_services_of_one_index(runtime: Path, own_index: Path) -> None:
    with listening(own_index), offered(own_index) as second:
        assert second is None
    with offered(own_index) as third:
        assert third is not None


def test_a_socket_that_a_kill_left(runtime: Path, own_index: Path) -> None:
    path = client.socket_path(own_index)
    assert path is not None
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert client.through_socket(own_index, {"query": "bees"}) is None
    with listening(own_index):
        assert client.through_socket(own_index, {"query": "bees"}) is not None


def test_a_service_that_takes_no_connection_is_not_waited_for(runtime: Path, own_index: Path) -> None:
    with offered(own_index) as bound, contextlib.ExitStack() as held:
        assert bound is not None
        bound.listen(0)
        with contextlib.suppress(BlockingIOError):  # until no more can wait
            while True:
                waiting = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                waiting.setblocking(False)
                waiting.connect(bound.getsockname())
        started = time.monotonic()
        assert client.through_socket(own_index, {"query": "bees"}) is None
        assert time.monotonic() - started < 30  # an answer is waited for longer


def test_a_service_that_hangs_is_named_and_not_waited_for(
    runtime: Path, own_index: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run("query", "the mill", "-k", "2", "--json", "--index", str(own_index))
    assert client.WAIT_S <= 10
    monkeypatch.setattr(client, "PATIENCE_S", 0.1)
    monkeypatch.setattr(client, "WAIT_S", 0.2)
    with offered(own_index) as bound:  # connections are taken, and nobody answers
        assert bound is not None
        done = run("query", "the mill", "-k", "2", "--json", "--index", str(own_index))
    said = "The service of this index does not answer. After 0.2 s it is not waited for.\n"
    assert done == alone._replace(err=said + alone.err)


def test_a_path_that_is_too_long(own_index: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * 100)))
    assert client.socket_path(own_index) is None
    with offered(own_index) as own:
        assert own is None
    assert client.through_socket(own_index, {"query": "bees"}) is None


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n\r\nnot json", b"\x00\xff", b"HTTP/1.1 200 OK\r\n\r\n[]"])
def test_what_is_no_service_is_not_believed(runtime: Path, own_index: Path, answer: bytes) -> None:
    path = client.socket_path(own_index)
    assert path is not None
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()

        def reply() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        assert client.through_socket(own_index, {"query": "bees"}) is None
        thread.join()
