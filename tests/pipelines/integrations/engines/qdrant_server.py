"""A server that speaks Qdrant's HTTP, as far as `ragidx` asks it, over the client's local mode.

No package has the real one: what it does to rows is not tested here, but what goes over the wire is, and how it fails.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from qdrant_client import QdrantClient, models

Route = Callable[[QdrantClient, str, Any], Any]


def _create(client: QdrantClient, name: str, body: Any) -> bool:
    return client.create_collection(name, models.VectorParams(**body["vectors"]))


def _index(client: QdrantClient, name: str, body: Any) -> Any:
    assert not client.count(name).count, "indexes come before points"
    models.CreateFieldIndex(**body)
    return {"operation_id": 0, "status": "completed"}


def _query(client: QdrantClient, name: str, body: Any) -> Any:
    asked = models.QueryRequest(**body)
    return client.query_points(name, asked.query, query_filter=asked.filter, limit=asked.limit or 10, with_vectors=True)


def _scroll(client: QdrantClient, name: str, body: Any) -> Any:
    asked = models.ScrollRequest(**body)
    points, offset = client.scroll(
        name,
        asked.filter,
        limit=asked.limit or 10,
        offset=asked.offset,
        with_payload=True if asked.with_payload is None else asked.with_payload,
        with_vectors=asked.with_vector or False,
    )
    return {"points": points, "next_page_offset": offset}


def _delete(client: QdrantClient, name: str, body: Any) -> Any:
    of = models.PointIdsList if "points" in body else models.FilterSelector
    return client.delete(name, of(**body))


def _aliases(client: QdrantClient, name: str, body: Any) -> bool:
    return client.update_collection_aliases(models.ChangeAliasesOperation(**body).actions)


ROUTES: list[tuple[str, str, Route]] = [
    ("GET", "/collections", lambda client, name, body: client.get_collections()),
    ("GET", "/aliases", lambda client, name, body: client.get_aliases()),
    ("POST", "/collections/aliases", _aliases),
    ("GET", "/collections/(.+)/exists", lambda client, name, body: {"exists": client.collection_exists(name)}),
    ("PUT", "/collections/(.+)/index", _index),
    (
        "PUT",
        "/collections/(.+)/points",
        lambda client, name, body: client.upsert(name, models.PointsList(**body).points),
    ),
    ("POST", "/collections/(.+)/points/query", _query),
    ("POST", "/collections/(.+)/points/scroll", _scroll),
    ("POST", "/collections/(.+)/points/delete", _delete),
    (
        "POST",
        "/collections/(.+)/points/count",
        lambda client, name, body: client.count(name, models.CountRequest(**body).filter),
    ),
    ("GET", "/collections/(.+)", lambda client, name, body: client.get_collection(name)),
    ("PUT", "/collections/(.+)", _create),
    ("DELETE", "/collections/(.+)", lambda client, name, body: client.delete_collection(name)),
]


@contextmanager
def qdrant_server(key: str = "", version: str = "1.20.0", fails_at: str = " ") -> Iterator[str]:
    """Its URL; it hangs up at a path that has `fails_at` in it."""
    client = QdrantClient(":memory:")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
            path = urlsplit(self.path).path
            if fails_at in path:
                self.close_connection = True
                return
            if path == "/":
                self.send(200, {"title": "qdrant", "version": version})
            elif key and self.headers["api-key"] != key:
                self.send(401, "Must provide an API key or an Authorization bearer token")
            else:
                found = (
                    (match.groups(), route)
                    for method, pattern, route in ROUTES
                    if method == self.command and (match := re.fullmatch(pattern, path))
                )
                groups, route = next(found)
                try:
                    self.send(200, {"result": route(client, *(groups or ("",)), body), "status": "ok", "time": 0.0})
                except ValueError as fault:
                    self.send(404, {"status": {"error": f"Not found: {fault}"}, "time": 0.0})

        def send(self, status: int, answer: Any) -> None:
            text = json.dumps(answer, default=lambda value: value.model_dump(mode="json")).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        client.close()
