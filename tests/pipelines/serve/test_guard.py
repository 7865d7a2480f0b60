"""Who may ask, on every route, and what is bounded: hosts, other sites, tokens, bodies, slow and many connections."""

from __future__ import annotations

import base64
import contextlib
import gc
import http.client
import json
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragidx.corpora.errors import SpecError
from ragidx.pipelines.serve import guard
from ragidx.pipelines.serve import http_server as serve_server
from ragidx.pipelines.serve.interface import ROUTES
from ragidx.pipelines.serve.routes import Handlers
from ragidx.pipelines.serve.settings import Settings, named, token_from

from ...raising import message_of
from .conftest import TOKEN, Running, running, until

PLACES = [(route.method, route.path.replace("{id}", "mill")) for route in ROUTES]
PLACES += [("GET", path) for path in ("/", "/results.json", "/document?id=mill", "/page.css", "/page.js", "/icon.svg")]
PLACES += [("POST", "/mcp"), ("GET", "/nothing"), ("OPTIONS", "/v1/search")]
HEAD = b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def raw(port: int, request: bytes, seconds: float = 10.0) -> bytes:
    """What comes back for some bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.fixture(scope="module")
def guarded(index: Path) -> Iterator[Running]:
    """A service with a token."""
    with running({"docs": index}, token=TOKEN, allow_hosts=("search.example",)) as found:
        yield found


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_no_place_answers_another_host(served: Running, method: str, path: str) -> None:
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.", "127.0.0.1.evil.example:80", ""):
        answer = served.ask(method, path, {} if method in ("POST", "PUT") else None, {"Host": host})
        assert answer.status == 421, host
        assert "--allow-host" in answer.body["error"]["hint"]


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_one_host_is_named(served: Running, method: str, path: str) -> None:
    head = f"{method} {path} HTTP/1.1\r\nConnection: close\r\n".encode()
    twice = b"Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n"
    for hosts in (b"", twice):
        assert raw(served.port, head + hosts + b"\r\n").split()[1] == b"400"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:99", "[::1]:8411", "LOCALHOST:1"])
def test_the_names_of_this_machine(served: Running, host: str) -> None:
    assert served.ask("GET", "/healthz", headers={"Host": host}).status == 200


def test_a_name_that_was_allowed(guarded: Running) -> None:
    assert guarded.ask("GET", "/healthz", headers={"Host": "search.example"}).status == 200
    assert guarded.ask("GET", "/healthz", headers={"Host": "other.example"}).status == 421


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_no_page_of_another_site_asks(served: Running, method: str, path: str) -> None:
    body = {} if method in ("POST", "PUT") else None
    for origin in ("http://evil.example", "null", "http://localhost:9", "file://"):
        assert served.ask(method, path, body, {"Origin": origin}).status == 403, origin
    for site in ("cross-site", "same-site"):
        assert served.ask(method, path, body, {"Sec-Fetch-Site": site}).status == 403
        navigated = {"Sec-Fetch-Site": site, "Sec-Fetch-Dest": "document"}
        assert served.ask(method, path, body, navigated).status != 403 or method != "GET"


def test_the_page_itself_asks(served: Running) -> None:
    own = {"Origin": served.url, "Sec-Fetch-Site": "same-origin"}
    answer = served.ask("POST", "/v1/search", {"query": "bees"}, own)
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_no_place_but_healthz_answers_without_the_token(guarded: Running, method: str, path: str) -> None:
    if path == "/healthz":  # for probes that hold no secrets: it says nothing
        assert Running(guarded.service, guarded.port).ask(method, path).body == {"status": "ok", "indexes": {}}
        return
    body = {} if method in ("POST", "PUT") else None
    plain = Running(guarded.service, guarded.port)
    basic = base64.b64encode(b"me:" + TOKEN[:-1].encode()).decode()
    for header in (
        "",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Token {TOKEN}",
        "Bearer \xe9",
        f"Basic {basic}",
        "Basic %",
    ):
        answer = plain.ask(method, path, body, {"Authorization": header} if header else {})
        assert answer.status == 401, header
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert plain.ask(method, f"{path}{'&' if '?' in path else '?'}token={TOKEN}", body).status == 401


def test_the_token_as_a_bearer_and_as_a_password(guarded: Running, capfd: pytest.CaptureFixture[str]) -> None:
    assert guarded.search("bees").status == 200
    plain = Running(guarded.service, guarded.port)
    basic = base64.b64encode(f"anyone:{TOKEN}".encode()).decode()
    assert plain.ask("GET", "/", headers={"Authorization": f"Basic {basic}"}).status == 200
    plain.ask("GET", "/", headers={"Authorization": "Bearer wrong-and-secret"})
    assert TOKEN not in (log := capfd.readouterr().err)
    assert "secret" not in log


def test_nothing_is_done_before_the_token(guarded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    async def body(*_: Any) -> bytes:
        done.append("body")
        return b""

    monkeypatch.setattr(guard.Guard, "_body", body)
    monkeypatch.setattr(Handlers, "search", lambda *_: done.append("search"))
    assert Running(guarded.service, guarded.port).search("bees").status == 401
    assert done == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_only_json_is_taken(served: Running, kind: str) -> None:
    assert served.ask("POST", "/v1/search", raw=b'{"query": "bees"}', headers={"Content-Type": kind}).status == 415


def test_no_compressed_body(served: Running) -> None:
    assert served.ask("POST", "/v1/search", raw=b"x", headers={"Content-Encoding": "gzip"}).status == 415


def test_a_body_of_100_mb_is_refused_at_once(served: Running) -> None:
    started = time.monotonic()
    answer = raw(served.port, HEAD + b"Content-Length: 100000000\r\n\r\n" + b"x" * 1000)
    assert (answer.split()[1], b"connection: close" in answer.lower()) == (b"413", True)
    assert time.monotonic() - started < 5


def test_a_body_without_a_length_is_cut_off(served: Running) -> None:
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%s\r\n" % (1 << 16, b"x" * (1 << 16))
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(head)
        with contextlib.suppress(OSError):
            for _ in range(40):
                connection.sendall(chunk)
        assert connection.recv(65536).split()[1] == b"413"


@pytest.mark.slow
def test_a_client_that_sends_a_byte_a_second(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_server, "HEADERS_S", 0.5)
    monkeypatch.setattr(guard, "BODY_S", 0.5)
    with running({"docs": index}) as served:
        started = time.monotonic()
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
            for byte in b"GET / HT":
                try:
                    connection.sendall(bytes([byte]))
                except OSError:
                    break
                time.sleep(0.1)
            assert connection.recv(100) == b""  # closed: its head did not come
        assert raw(served.port, HEAD + b"Content-Length: 9\r\n\r\n").split()[1] == b"408"
        assert time.monotonic() - started < 8
        assert served.search("bees").status == 200


@pytest.mark.slow
def test_a_connection_stays_open_longer_than_a_head_is_waited_for(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the 60 s of most proxies, or one of them sends a request into a connection that is being closed."""
    monkeypatch.setattr(serve_server, "HEADERS_S", 0.4)
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        running({"docs": index}) as served,
        socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection,
    ):
        for _ in range(2):
            connection.sendall(request)
            assert connection.recv(65536).split()[1] == b"200"
            time.sleep(0.8)
        connection.sendall(request + request[:9])  # the next one has begun
        answered = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answered.split()[1] == b"200"
        assert Settings().keep_alive_s > 60


@pytest.mark.slow
def test_a_connection_without_a_request_is_closed_when_that_is_over(index: Path) -> None:
    with running({"docs": index}, keep_alive_s=1) as served:
        answered = raw(served.port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answered.split()[1] == b"200"


def test_nothing_of_a_request_outlives_its_connection(served: Running) -> None:
    """Neither a timer nor a cycle holds it: a collection of all objects may be many thousand requests away."""

    def held() -> list[object]:
        names = ("_Protocol", "RequestResponseCycle", "Request", "RefusedError")
        return [one for one in gc.get_objects() if type(one).__name__ in names]

    before = held()  # by the tests before; as they stay, no number below is one of theirs
    known = set(map(id, before))
    gc.disable()
    try:
        for place in ("/?q=mill", "/v1/documents/mill", "/v1/documents/nothing", "/nothing", "/mcp"):
            served.ask("GET", place)
        for body in ({"query": "mill"}, {"query": "mill", "k": 0}, {"query": "mill", "where": "yaer > 1"}):
            served.ask("POST", "/v1/search", body)
        until(lambda: known.issuperset(map(id, held())), 5)
    finally:
        gc.enable()


@pytest.mark.slow
def test_500_open_connections(served: Running) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(500):
            held.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=10))
        assert served.search("bees").status == 200
        for _ in range(50):
            held.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=10))
        with contextlib.suppress(json.JSONDecodeError, http.client.HTTPException, OSError):
            assert served.search("bees").status == 503
    until(lambda: served.search("bees").status == 200)


def test_too_many_questions_at_once(index: Path) -> None:
    with running({"docs": index}, queue=1) as served:
        served.service._n_working = 1
        answer = served.search("bees")
        served.service._n_working = 0
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert served.ask("GET", "/healthz").status == 200
        assert served.search("bees").status == 200


def test_a_deadline(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running({"docs": index}, deadline_s=0.2) as served:
        state = served.service.indexes["docs"].current
        slow = state.hits
        monkeypatch.setattr(state, "hits", lambda *given: (time.sleep(1), slow(*given))[1])
        answer = served.search("bees")
        assert (answer.status, answer.error) == (503, "it took more than 0.2 s")


def test_a_defect_tells_nothing(
    served: Running, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("/secret/place is broken")

    with monkeypatch.context() as patch:
        patch.setattr(served.service.indexes["docs"].current, "hits", broken)
        answer = served.search("bees")
    assert answer.status == 500
    assert "secret" not in json.dumps(answer.body)
    number = answer.error.rpartition(" ")[2]
    logged = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    assert any(line.get("fault") == number and "/secret/place" in line.get("traceback", "") for line in logged)


def test_the_log_has_one_line_a_request_and_no_question(index: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with running({"docs": index}) as served:
        capfd.readouterr()  # late lines of the tests before: a line follows its answer
        served.search("a secret\r\n\x1b[31mquestion")
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    [line] = [line for line in lines if line["route"] == "/v1/search"]
    assert set(line) == {"time", "method", "route", "status", "ms", "bytes", "client"}


def test_questions_are_logged_where_that_is_asked_for(index: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with running({"docs": index}, log_queries=True) as served:
        capfd.readouterr()
        served.search("a\r\n\x1b[31mquestion")
        served.ask("POST", "/v1/search:batch", {"queries": ["one", "t\x1bwo"]})
    logged = {line["route"]: line["query"] for line in map(json.loads, capfd.readouterr().err.splitlines())}
    assert logged == {"/v1/search": "a [31mquestion", "/v1/search:batch": ["one", "t wo"]}


def test_the_log_of_a_library_is_json_too(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("uvicorn.error")
    handler = guard.LogLines()
    logger.addHandler(handler)
    try:
        raise ValueError("a\nb")
    except ValueError:
        logger.exception("it %s", "failed\n{}")
    finally:
        logger.removeHandler(handler)
    [line] = [line for line in map(json.loads, capfd.readouterr().err.splitlines()) if "logger" in line]
    assert (line["logger"], line["level"], line["message"]) == ("uvicorn.error", "ERROR", "it failed\n{}")
    assert line["traceback"].endswith("ValueError: a\nb\n")


@pytest.mark.slow
def test_a_service_logs_nothing_but_json(index: Path) -> None:
    """What a library logs while it serves, too."""
    program = """
import logging, os, signal, sys, threading
from pathlib import Path
from ragidx.pipelines.serve.http_server import serve
from ragidx.pipelines.serve.settings import Settings

def of_a_library():
    logging.getLogger("a.library").warning("two\\nlines")
    os.kill(os.getpid(), signal.SIGTERM)

serve({"docs": Path(sys.argv[1])}, Settings(port=0), on_start=lambda *_: threading.Timer(1, of_a_library).start())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, str(index)], capture_output=True, text=True, timeout=60, check=True
    )
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert [line["message"] for line in lines if line.get("logger") == "a.library"] == ["two\nlines"]


def test_a_client_that_does_not_read_is_let_go(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_server, "READ_S", 0.3)
    with running({"docs": index}) as served, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", served.port))
        body = json.dumps({"model": "docs", "input": ["bees"] * 256}).encode()
        head = "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for _ in range(20):  # answers of 1.3 MB: more than the buffers of the system hold
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        time.sleep(2)
        n_bytes = 0
        with contextlib.suppress(ConnectionResetError):
            while received := client.recv(1 << 20):
                n_bytes += len(received)
        assert n_bytes < 20_000_000
        until(lambda: b"ragidx_in_flight 0.0" in served.service.metrics.text())
        assert served.search("bees").status == 200


def test_no_file_is_opened_by_an_id(served: Running) -> None:
    opened: list[str] = []
    sys.addaudithook(lambda name, given: opened.append(str(given[0])) if name == "open" else None)
    served.ask("GET", "/v1/documents/../../../../etc/passwd")
    served.ask("GET", "/document?id=../../etc/passwd")
    assert not [path for path in opened if "passwd" in path]


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token": "short"}, "the token has 5 characters"),
        ({"token": "x" * 31}, "the token has 31 characters"),
        ({"token": "x" * 31 + "\u00e9"}, "some that a header cannot hold"),
        ({"allow_hosts": ("search.example:443",)}, "'search.example:443' is no name of a host"),
        ({"allow_hosts": ("http://search.example",)}, "is no name of a host"),
        ({"host": "0.0.0.0"}, "host 0.0.0.0 needs a token"),
        ({"host": "search.example"}, "host search.example needs a token"),
        ({"writable": True}, "`writable` needs a token"),
    ],
)
def test_what_does_not_start(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Settings(**options)


def test_a_token_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert token_from(file) == TOKEN
    monkeypatch.setenv("RAGIDX_TOKEN", 2 * "from-the-environment")
    assert (token_from(None), token_from(file)) == (2 * "from-the-environment", TOKEN)
    monkeypatch.setenv("RAGIDX_TOKEN", "short")
    assert message_of(SpecError, lambda: token_from(None)) == (
        "RAGIDX_TOKEN: the token has 5 characters, or some that a header cannot hold\n"
        "  hint: make one of 32 or more: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
    )
    file.write_text("\n")
    with pytest.raises(SpecError, match="the file is empty"):
        token_from(file)
    with pytest.raises(SpecError, match="cannot be read"):
        token_from(tmp_path / "none")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a=x", "a=y"], "two indexes are called a"),
        (["x/docs", "y/docs"], "two indexes are called docs"),
        (["a b=x"], "'a b' cannot be the name of an index"),
        (["-a=x"], "'-a' cannot be the name of an index"),
    ],
)
def test_names_of_indexes(texts: list[str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        named(texts)


def test_a_folder_with_a_sign_of_equality() -> None:
    assert named(["/data/a=b/docs"]) == {"docs": Path("/data/a=b/docs")}


def test_a_port_in_use(served: Running) -> None:
    with pytest.raises(SpecError, match="cannot listen there: Address already in use") as caught:
        serve_server.listening("127.0.0.1", served.port)
    assert caught.value.where == f"127.0.0.1:{served.port}"


def test_wherever_it_listens_another_host_is_refused(index: Path) -> None:
    with running({"docs": index}, host="0.0.0.0", token=TOKEN) as served:
        assert served.ask("GET", "/healthz", headers={"Host": "evil.example"}).status == 421
        assert served.ask("GET", "/healthz", headers={"Host": "0.0.0.0"}).status == 421
        assert served.ask("GET", "/healthz").status == 200
