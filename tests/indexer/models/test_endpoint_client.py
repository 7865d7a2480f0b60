"""Requests to a server that fails in every way: what is tried again, what is not, and what the error says."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.models.address import Address, address_of
from ragidx.indexer.models.endpoint_client import Calls, EndpointClient, Patience, RefusedTextError

from ...embedding_server import EmbeddingServer, Handler, Reply, after, dropped, endless, running, status, vectors
from ...raising import message_of

QUICK = Patience(connect_s=1, answer_s=5, attempts=3, wait_s=0.01, most_s=2)
KEY = "sk-s3cret-0123456789"


def ask(server: EmbeddingServer, patience: Patience = QUICK, calls: Calls | None = None) -> Any:
    client = EndpointClient(address_of(server.url), patience)
    return client.post({"model": "m", "input": ["a b"]}, 10_000, calls or Calls())


def error_of(server: EmbeddingServer, *replies: Reply, patience: Patience = QUICK) -> str:
    server.replies.extend(replies)
    return message_of(ModelError, lambda: ask(server, patience)).replace(f"{server.url}/embeddings", "URL")


@pytest.fixture
def other() -> Iterator[EmbeddingServer]:
    with running() as served:
        yield served


def test_a_request_is_answered_over_one_connection(server: EmbeddingServer) -> None:
    client = EndpointClient(address_of(server.url), QUICK)

    for _ in range(3):
        assert client.post({"model": "m", "input": ["a b"]}, 10_000, Calls())["usage"]["prompt_tokens"] == 2

    assert server.messages == [{"model": "m", "input": ["a b"]}] * 3
    assert server.paths == ["/v1/embeddings"] * 3
    assert "Authorization" not in server.headers[0]
    assert (client.n_requests, client.n_retries) == (3, 0)


@pytest.mark.parametrize("number", [408, 429, 500, 502, 503, 504, 529])
def test_what_may_pass_is_tried_again(server: EmbeddingServer, number: int) -> None:
    server.replies.extend([status(number), status(number)])

    assert ask(server)["data"]
    assert len(server.messages) == 3


def closed(handler: Handler, _: list[str]) -> None:
    """The connection ends without an answer."""
    handler.close_connection = True


@pytest.mark.parametrize("reply", [dropped, closed])
def test_a_broken_connection_is_tried_again_the_first_time_at_once(server: EmbeddingServer, reply: Reply) -> None:
    server.replies.append(reply)
    assert ask(server, Patience(wait_s=60, answer_s=5))["data"]
    assert server.times[1] - server.times[0] < 5

    server.replies.extend([reply, reply])
    assert ask(server)["data"]


def test_a_connection_that_the_server_closed_meanwhile_is_no_failure(server: EmbeddingServer) -> None:
    def closing(handler: Handler, texts: list[str]) -> None:
        vectors(handler, texts)
        handler.close_connection = True  # and does not say so

    server.replies.append(closing)
    client = EndpointClient(
        address_of(server.url), Patience(attempts=2, wait_s=60)
    )  # it may be noticed only by sending

    for _ in range(2):
        assert client.post({"model": "m", "input": ["a"]}, 10_000, Calls())["data"]


def test_attempts_have_an_end(server: EmbeddingServer) -> None:
    fault = error_of(server, *[status(500, b'{"error": {"message": "out of\\nmemory"}}')] * 3)

    assert fault == (
        "URL: answers with status 500: out of memory (3 attempts)\n  hint: look at the server, then run it again"
    )
    assert len(server.messages) == 3


@pytest.mark.slow
def test_waits_grow_and_a_server_that_names_one_is_obeyed(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies.extend([status(429, Retry_After="1"), status(503)])
    calls = Calls()
    waits = list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        time.sleep(seconds)

    with monkeypatch.context() as patched:
        patched.setattr(calls.ending, "wait", wait)
        ask(server, calls=calls)

    assert waits[0] == 1
    assert 0.75 * 2 * QUICK.wait_s <= waits[-1] <= 1.25 * 2 * QUICK.wait_s


@pytest.mark.slow
def test_a_wait_may_be_named_by_a_date(server: EmbeddingServer) -> None:
    at = datetime.now(UTC) + timedelta(seconds=2)  # in whole seconds
    server.replies.append(status(429, Retry_After=format_datetime(at, usegmt=True)))

    ask(server, Patience(wait_s=0.01, most_s=3))

    assert server.times[1] - server.times[0] > 0.5


@pytest.mark.slow
def test_all_threads_wait_while_the_server_rests(server: EmbeddingServer) -> None:
    server.replies.append(status(429, Retry_After="1"))
    client = EndpointClient(address_of(server.url), QUICK)
    message, calls = {"model": "m", "input": ["a"]}, Calls()
    first = threading.Thread(target=client.post, args=(message, 10_000, calls))
    first.start()
    while not client.n_retries:
        time.sleep(0.005)

    client.post(message, 10_000, calls)
    first.join()

    assert min(server.times[1:]) - server.times[0] >= 1


def test_a_wait_that_is_too_long_is_an_error(server: EmbeddingServer) -> None:
    assert error_of(server, status(429, Retry_After="3600")) == (
        "URL: answers with status 429, and asks to wait for 3,600 s\n  hint: run it again then"
    )


@pytest.mark.slow
def test_a_slow_server_is_given_up(server: EmbeddingServer) -> None:
    slow = Patience(answer_s=0.1, attempts=2, wait_s=0.01)

    assert error_of(server, after(0.5), after(0.5), patience=slow) == (
        "URL: does not answer: no answer within 0.1 s (2 attempts)\n  hint: look at the server, then run it again"
    )


def test_it_is_said_once_that_a_silent_server_is_waited_for(
    server: EmbeddingServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.always = after(0.2)

    error_of(server, patience=dataclasses.replace(QUICK, answer_s=0.05, silent_s=0.02))
    ask(server, dataclasses.replace(QUICK, silent_s=10))

    assert [record.getMessage() for record in caplog.records if record.name == "ragidx.indexer"] == [
        f"{server.url}/embeddings: no answer yet; it is waited for, 0 minutes at most"
    ]


@pytest.mark.slow
def test_a_byte_now_and_then_does_not_keep_a_request_alive(server: EmbeddingServer) -> None:
    n_written = 0

    def drip(handler: Handler, _: list[str]) -> None:
        nonlocal n_written
        handler.send_response(200)
        handler.end_headers()
        for n_written in range(400):  # noqa: B007  # until the client has closed the connection
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)

    fault = error_of(server, drip, patience=Patience(answer_s=0.2, attempts=1))

    assert "no answer within 0.2 s" in fault
    assert n_written < 399


def test_an_endless_answer_is_bounded(server: EmbeddingServer) -> None:
    assert error_of(server, endless) == "URL: the answer is longer than 10,000 bytes\n  hint: look at the server"
    assert len(server.messages) == 1


def test_a_server_that_is_down_is_told_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1/embeddings"

    assert message_of(ModelError, lambda: EndpointClient(Address(url)).post({}, 10, Calls())) == (
        f"{url}: does not answer: Connection refused\n  hint: start the server, or name another with `endpoint`"
    )


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            status(200, b"<!doctype html><title>Hello</title>"),
            "URL: the answer is no JSON: '<!doctype html><title>Hello</title>'\n"
            "  hint: name the address of its API, which often ends in /v1",
        ),
        (
            status(200, b"[" * 9000),
            f"URL: the answer is no JSON: '{'[' * 40}'\n  hint: name the address of its API, which often ends in /v1",
        ),
        (
            status(404, b'{"error": {"message": "model \\"m\\" not found, try pulling it first"}}'),
            'URL: it refuses the request: status 404: model "m" not found, try pulling it first\n'
            "  hint: check the address and the name of the model",
        ),
        (
            status(405, b""),
            "URL: it refuses the request: status 405\n  hint: check the address and the name of the model",
        ),
        (
            status(418, b"\x1b[31mtea\x07"),
            "URL: it refuses the request: status 418: ?[31mtea?\n  hint: look at the server",
        ),
        (
            status(401),
            "URL: it asks for a key (status 401)\n  hint: put the key into the environment variable RAGIDX_API_KEY",
        ),
        (status(413, b"too large"), "URL: status 413: too large"),
    ],
)
def test_what_stays_wrong_is_told_at_once(server: EmbeddingServer, reply: Reply, said: str) -> None:
    assert error_of(server, reply) == said
    assert len(server.messages) == 1


def test_a_refused_text_can_be_told_apart(server: EmbeddingServer) -> None:
    server.replies.append(status(422, b'{"error": "too many", "error_type": "Validation"}'))

    with pytest.raises(RefusedTextError, match="status 422: too many"):
        ask(server)


@pytest.mark.parametrize("number", [401, 403])
def test_a_wrong_key_is_told_and_not_shown(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("RAGIDX_API_KEY", KEY)

    fault = error_of(server, status(number, f"Incorrect API key provided: {KEY}".encode()))

    assert fault == (
        f"URL: it refuses the key of the environment (status {number})\n  hint: put the right key into RAGIDX_API_KEY"
    )
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "reply",
    [
        status(500, f"what is {KEY}?".encode()),
        status(400, f'{{"message": "bad {KEY}"}}'.encode()),
        status(200, f"{KEY} is no JSON".encode()),
        status(200, f"{'x' * 30}{KEY}".encode()),
        status(302, Location=f"http://127.0.0.1:1/{KEY}"),
        status(307, Location=f"/{'x' * 190}{KEY}"),
    ],
)
def test_a_key_that_the_server_repeats_is_not_shown(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch, reply: Reply
) -> None:
    monkeypatch.setenv("RAGIDX_API_KEY", KEY)

    fault = error_of(server, *[reply] * 3)

    assert "***" in fault
    assert KEY[:4] not in fault


@pytest.mark.parametrize("number", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(
    server: EmbeddingServer, other: EmbeddingServer, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("RAGIDX_API_KEY", KEY)

    fault = error_of(server, status(number, Location=other.url))

    assert fault == (
        f"URL: it redirects to '{other.url}', and no redirect is followed\n"
        "  hint: name that address with `endpoint`, if texts may go there"
    )
    assert not other.messages


def test_an_address_that_an_index_keeps_gets_no_key(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGIDX_API_KEY", KEY)
    server.replies.append(status(401))
    url = f"{server.url}/embeddings"

    said = message_of(
        ModelError, lambda: EndpointClient(Address(url, named=False), QUICK).post({"input": []}, 10_000, Calls())
    )

    assert said == (
        f"{url}: it asks for a key (status 401), and an address that an index keeps gets none\n"
        f"  hint: name it: `endpoint={url}`"
    )
    assert "Authorization" not in server.headers[0]


def test_offline_asks_this_machine_alone(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert ask(server)["data"]

    assert message_of(SpecError, lambda: EndpointClient(address_of("https://api.example/v1"))) == (
        "`endpoint`: api.example is another machine, and no network may be used\n"
        "  hint: name a server on this machine, or allow the network"
    )


@pytest.mark.slow
def test_what_is_under_way_can_be_stopped(server: EmbeddingServer) -> None:
    released, calls = threading.Event(), Calls()
    server.always = lambda *_: released.wait(60) and None
    threading.Timer(0.1, calls.stop).start()

    with pytest.raises(ModelError, match=r"does not answer: (?!no answer)"):
        ask(server, dataclasses.replace(QUICK, answer_s=30), calls)

    released.set()
