"""`ragidx.Client`: a service over HTTP, with the names of `ragidx.Index`; and the socket by which `ragidx query` asks.

    client = ragidx.Client("http://127.0.0.1:8411", token=...)
    for hit in client.search("who signed the lease?", k=5):
        print(hit.rank, hit.doc_id, hit.text)

Imports the standard library alone, nothing of the service and no NumPy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ragidx.corpora.addresses import hidden
from ragidx.corpora.errors import BusyError, QueryError, RagidxError
from ragidx.corpora.records import Document
from ragidx.retriever.hit import DocumentSpan, Hit, Hits
from ragidx.retriever.where.conditions import Condition

_PATH_BYTES = 104  # of a socket, on every system
PATIENCE_S, WAIT_S = 1.0, 5.0  # for a service that hangs: then something is said, then it is not waited for
_KINDS = {"QueryError": QueryError, "BusyError": BusyError}


class Client:
    """A service. Each call opens a connection of its own, so it is safe to use from several threads.

    Args:
        url: address of the service.
        token: token that the service asks for.
        index: name of the index, where the service has several; None: the only one. `index=` of a call names another.
        timeout: seconds for an answer.

    Every call raises `QueryError` where the question is at fault, `BusyError` where the service says to ask again, and
    `RagidxError` where there is no service, or it refuses the token.
    """

    def __init__(self, url: str, *, token: str = "", index: str | None = None, timeout: float = 60.0) -> None:
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            raise RagidxError("it is not the address of a service", "such as http://127.0.0.1:8411", where=hidden(url))
        if not (token.isascii() and token.isprintable()):
            raise RagidxError("the token has characters that a header cannot hold", "set it again", where="`token`")
        self._url, self._parts, self._index, self._timeout = hidden(url), parts, index, timeout
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def search(self, query: str, k: int = 10, *, where: str | Condition | None = None, **options: Any) -> Hits:
        """As `Index.search`; `rerank` is true or false: the service has the model."""
        return answer_of(self._ask("POST", "/v1/search", {"query": query, "k": k, "where": _written(where), **options}))

    def search_batch(
        self, queries: Sequence[str], k: int = 10, *, where: str | Condition | None = None, **options: Any
    ) -> list[Hits]:
        """As `Index.search_batch`."""
        asked = {"queries": list(queries), "k": k, "where": _written(where), **options}
        return [answer_of(answer) for answer in self._ask("POST", "/v1/search:batch", asked)["answers"]]

    def search_vectors(
        self, vectors: Sequence[Sequence[float]], k: int = 10, *, where: str | Condition | None = None, **options: Any
    ) -> list[Hits]:
        """As `Index.search_vectors`, for lists of numbers."""
        rows = [list(map(float, vector)) for vector in vectors]
        asked = {"vectors": rows, "k": k, "where": _written(where), **options}
        return [answer_of(answer) for answer in self._ask("POST", "/v1/vector", asked)["answers"]]

    def document(
        self, doc_id: str, *, start: int | None = None, end: int | None = None, index: str | None = None
    ) -> Document:
        """One of those that `Index.get` gives: its id, text and metadata; times in metadata are text in ISO form.

        Args:
            doc_id: id of the document.
            start: the first character of the text that is asked for; None: of all.
            end: the character behind the last; None: to the end.
            index: name of the index, where the service has several, for this call; every member takes it.
        """
        found = self._ask("GET", _path_of(doc_id), query={"start": start, "end": end, "index": index})
        return Document(found["id"], found["text"], found["metadata"])

    def add(self, document: Document, *, index: str | None = None) -> int:
        """Add a document, or replace that of the same id; the generation that has it. The service is `--writable`.

        Its id, text, metadata and `markdown` are sent; a heading is not. Times in metadata become text in ISO form.
        """
        body = {"text": document.text, "metadata": dict(document.metadata), "markdown": document.markdown}
        return int(self._ask("PUT", _path_of(document.id), body, {"index": index})["generation"])

    def delete(self, doc_id: str, *, index: str | None = None) -> int:
        """Delete a document; the generation that no longer has it. The service is `--writable`."""
        return int(self._ask("DELETE", _path_of(doc_id), query={"index": index})["generation"])

    def info(self) -> dict[str, Any]:
        """What is served."""
        return self._ask("GET", "/v1/info")

    def _ask(self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        import http.client
        from urllib.parse import urlencode

        named = {} if self._index is None else {"index": self._index}
        params = {name: value for name, value in (query or {}).items() if value is not None}
        if query is None:  # the body names the index
            body = None if body is None else {**named, **body}
        else:
            params = {**named, **params}
        target = self._parts.path.rstrip("/") + path + (f"?{urlencode(params)}" if params else "")
        try:
            data = None if body is None else json.dumps(body, allow_nan=False, default=datetime.isoformat).encode()
        except ValueError as fault:
            raise QueryError("a number is not finite", "leave it out: JSON has none", where=path) from fault
        headers = self._headers if data is None else {**self._headers, "Content-Type": "application/json"}
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout)
        try:
            with contextlib.closing(connection):
                connection.request(method, target, data, headers)
                received = connection.getresponse()
                answer: dict[str, Any] = dict(json.loads(received.read()))
        except (OSError, http.client.HTTPException, ValueError, TypeError) as fault:
            message = f"no answer: {fault or type(fault).__name__}"
            raise RagidxError(message, "start a service with `ragidx serve`", where=self._url) from fault
        if received.status == 200:
            return answer
        error = answer.get("error")
        error = error if isinstance(error, dict) else {"message": str(error)} if error else {}
        of = _KINDS.get(error.get("type", ""), RagidxError)
        message = error.get("message", f"status {received.status}")
        raise of(message, error.get("hint", ""), where=error.get("where", ""))


def _path_of(doc_id: str) -> str:
    from urllib.parse import quote

    return f"/v1/documents/{quote(doc_id, safe='')}"


def socket_path(index: Path) -> Path | None:
    """Where the service of an index listens for its user, by the index's real path; None where it would be too long."""
    if not hasattr(socket, "AF_UNIX"):
        return None
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "ragidx" if runtime else Path(os.environ.get("TMPDIR") or "/tmp", f"ragidx-{os.getuid()}")
    digest = hashlib.sha256(os.fsencode(os.path.realpath(index))).hexdigest()[:24]
    path = folder / f"{digest}.sock"
    return path if len(os.fsencode(path)) < _PATH_BYTES else None


def is_own(path: Path) -> bool:
    """Whether a socket, and the folder that it is in, are this user's, and no other user can open them."""
    try:
        folder, found = path.parent.lstat(), path.lstat()
    except OSError:
        return False
    own = folder.st_uid == found.st_uid == os.getuid()
    return own and stat.S_ISDIR(folder.st_mode) and not folder.st_mode & 0o077 and stat.S_ISSOCK(found.st_mode)


def through_socket(
    index: Path, body: Mapping[str, Any], on_wait: Callable[[], None] = lambda: None
) -> dict[str, Any] | None:
    """What the service of an index answers to a search; None where there is none, it is of another user, is behind the
    committed state, refuses, or does not answer for `WAIT_S`. After the first second `on_wait` is called.
    """
    path = socket_path(index)
    if path is None or not is_own(path):
        return None
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        status, answer = _over_socket(path, body, on_wait)
        committed = json.loads((index / "manifest.json").read_bytes())
        if status == 200 and all(answer[name] == committed[name] for name in ("generation", "created")):
            return answer
    return None


def _written(where: str | Condition | None) -> str | None:
    """A condition as a request has it."""
    return str(where) if isinstance(where, Condition) else where


def answer_of(found: Mapping[str, Any]) -> Hits:
    """The hits of a question, with their notes; times in metadata are text in ISO form."""
    fields = [{name: value for name, value in hit.items() if name != "passage"} for hit in found["hits"]]
    hits = (Hit(**hit | {"also": tuple(DocumentSpan(**span) for span in hit["also"])}) for hit in fields)
    return Hits(hits, notes=found.get("notes", ()))


def _over_socket(path: Path, body: Mapping[str, Any], on_wait: Callable[[], None]) -> tuple[int, dict[str, Any]]:
    """The status and the answer of one search; by hand, since `http.client` takes longer to import than this takes."""
    data = json.dumps(body, allow_nan=False).encode()
    head = "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(path))  # refused at once where no more can wait
        connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        try:
            received = connection.recv(1 << 16)
        except TimeoutError:
            on_wait()
            connection.settimeout(WAIT_S - PATIENCE_S)
            received = connection.recv(1 << 16)
        received += b"".join(iter(lambda: connection.recv(1 << 16), b""))
    first, _, rest = received.partition(b"\r\n\r\n")
    return int(first.split(b" ", 2)[1]), json.loads(rest)
