"""A server of embeddings on this machine, as tests of endpoints ask it: real sockets, and vectors known beforehand.

A text's vector is the sum of its words' vectors, so it depends on nothing else. `replies` are taken by the requests
that come, one each, before the server answers as it should.
"""

from __future__ import annotations

import functools
import hashlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers

Reply = Callable[["Handler", list[str]], None]


@functools.cache
def _of_word(word: str, width: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(list(hashlib.sha256(f"{seed} {word}".encode()).digest())).standard_normal(width)


def vector_of(text: str, width: int = 16, seed: int = 0) -> NDArray[np.float32]:
    """(width,) float32 of a text: the sum of numbers that follow from each word's hash."""
    rows = [_of_word(word, width, seed) for word in text.lower().split()]
    return np.sum(rows, axis=0, dtype=np.float64).astype(np.float32) if rows else np.zeros(width, np.float32)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    server: EmbeddingServer

    def log_message(self, *_: object) -> None:
        """Keep stderr clean."""

    def do_POST(self) -> None:
        """Answer as `replies` say, else with the vectors."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = message["input"]
        with self.server.lock:
            self.server.messages.append(message)
            self.server.headers.append(dict(self.headers))
            self.server.paths.append(self.path)
            self.server.times.append(time.monotonic())
            reply = self.server.replies.popleft() if self.server.replies else self.server.always
        reply(self, texts)

    def send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_json(self, data: Any, status: int = 200) -> None:
        """JSON, NaN included."""
        self.send(status, json.dumps(data).encode())


class EmbeddingServer(ThreadingHTTPServer):
    """The server; its attributes say what was asked, and decide what is answered.

    Attributes:
        width, seed: of the model; another seed is another model.
        limit: tokens (words) that the model reads of a text; what is behind is cut.
        replies: for the next requests, one each; then `always`.
        messages, headers, paths, times: of the requests.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.width, self.seed, self.limit = 16, 0, 10_000
        self.replies: deque[Reply] = deque()
        self.always: Reply = vectors
        self.messages: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.times: list[float] = []

    def handle_error(self, *_: object) -> None:
        """Clients that went away are part of the tests."""

    @property
    def url(self) -> str:
        """What `--endpoint` takes."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def asked(self) -> list[str]:
        """Every text that was sent, in order."""
        return [text for message in self.messages for text in message["input"]]

    def data(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """The vectors of texts as the protocol has them."""
        cut = [" ".join(text.split()[: self.limit]) for text in texts]
        rows = [vector_of(text, self.width, self.seed).tolist() for text in cut]
        return [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]


def write_tokenizer(folder: Path) -> Path:
    """A tokenizer that counts as the server does: a word is a token."""
    backend = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    path = folder / "tokenizer.json"
    backend.save(str(path))
    return path


def vectors(handler: Handler, texts: list[str]) -> None:
    """As it should be."""
    server = handler.server
    n_tokens = sum(min(len(text.split()), server.limit) for text in texts)
    handler.send_json({"data": server.data(texts), "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens}})


def status(number: int, body: bytes = b"", **headers: str) -> Reply:
    """An answer without vectors; `Retry_After="1"` is a header."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler, _: handler.send(number, body, named)


def changed(change: Callable[[list[dict[str, Any]]], Any]) -> Reply:
    """Vectors, after a change to the list of them."""
    return lambda handler, texts: handler.send_json({"data": change(handler.server.data(texts))})


def after(seconds: float, reply: Reply = vectors) -> Reply:
    """A late answer."""

    def wait(handler: Handler, texts: list[str]) -> None:
        time.sleep(seconds)
        reply(handler, texts)

    return wait


def endless(handler: Handler, _: list[str]) -> None:
    """A body without an end."""
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"[" * (1 << 16))
    except OSError:
        handler.close_connection = True


def dropped(handler: Handler, _: list[str]) -> None:
    """The connection ends in the middle of the body."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    handler.close_connection = True


@contextmanager
def running() -> Iterator[EmbeddingServer]:
    """A server, for the time of the block."""
    with EmbeddingServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
