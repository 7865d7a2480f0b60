"""Who may ask: checked before any work, on every route. And the bounds of a request, its line in the log, its count.

In this order: the Host header (DNS rebinding), Origin and Sec-Fetch-Site (other sites in a browser), the token, the
type and the size of the body and the time it may take to come. A request over the socket of this user needs neither
host nor token: only this user can open it. What goes wrong inside is a 500 with a number; what it was is in the log.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import json
import logging
import secrets
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from starlette.responses import JSONResponse

from ragidx.pipelines.serve.settings import LOOPBACK, Settings
from ragidx.retriever.printing import printable

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ragidx.pipelines.serve.metrics import Metrics

MAX_BODY = 1 << 20
MAX_DOCUMENT_BODY = 16 << 20  # of PUT
BODY_S = 10.0  # in which a body must be here
RETRY = {"Retry-After": "1"}
_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class RefusedError(Exception):
    """A request that is answered with a fault."""

    def __init__(
        self, status: int, message: str, hint: str = "", *, where: str = "", kind: str = "", **headers: str
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.hint, self.where = status, message, hint, where
        self.kind, self.headers = kind or "RequestError", {k.replace("_", "-"): v for k, v in headers.items()}

    def response(self) -> JSONResponse:
        """The answer."""
        body = {"type": self.kind, "message": self.message, "hint": self.hint, "where": self.where}
        return JSONResponse({"error": body}, self.status, headers=self.headers)


class Guard:
    """The outermost layer of the service.

    Args:
        app: the application that answers.
        settings: settings of the service.
        metrics: counters of requests.
    """

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._hosts = {name.lower() for name in (*LOOPBACK, *settings.allow_hosts)}
        if settings.host not in ("0.0.0.0", "::"):
            self._hosts.add(settings.host.lower())
        self._token = settings.token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, let it through, and write its line."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, state = time.perf_counter(), scope.setdefault("state", {})
        sent: dict[str, Any] = {"status": 499, "bytes": 0}  # 499: the client went away

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent["status"] = message["status"]
                names = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in _SAFE if pair[0] not in names)]
            else:
                sent["bytes"] += len(message.get("body", b""))
            await send(message)

        is_read = False
        with self._metrics.in_flight.track_inprogress():
            try:
                self._admit(scope)
                body = await self._body(scope, receive)
                is_read = True
                await self._app(scope, _replayed(body, receive), sending)
            except RefusedError as refused:
                if not is_read and _one(scope["headers"], b"content-length") + _one(
                    scope["headers"], b"transfer-encoding"
                ):
                    refused.headers["Connection"] = "close"  # or all of the body would be read, and dropped
                await refused.response()(scope, receive, sending)
            except Exception:
                if sent["status"] != 499:
                    raise  # the answer has begun
                state["fault"] = secrets.token_hex(6)
                log({"time": _now(), "fault": state["fault"], "traceback": traceback.format_exc()})
                fault = RefusedError(
                    500, f"something went wrong inside: {state['fault']}", "the log has more", kind="InternalError"
                )
                await fault.response()(scope, receive, sending)
            finally:
                self._note(scope, sent, time.perf_counter() - started)

    def _admit(self, scope: Scope) -> None:
        """Whether the request may be answered at all."""
        headers = scope["headers"]
        if not is_local(scope):
            host = self._host(headers)
            self._check_origin(scope, headers, host)
            if self._token and scope["path"] != "/healthz":  # which says nothing, to probes that hold no secrets
                self._check_token(headers)
        if _one(headers, b"content-encoding") not in ("", "identity"):
            raise RefusedError(415, "the body is compressed", "send it as it is")
        for part in ("raw_path", "query_string"):
            try:  # what decodes the address would make one id of all that is no text
                unquote_to_bytes(scope[part]).decode()
            except UnicodeDecodeError:
                hint = "percent-encode ids and questions as UTF-8"
                raise RefusedError(400, "the address is not UTF-8", hint, where="address") from None

    def _host(self, headers: list[tuple[bytes, bytes]]) -> str:
        """The Host header, which must name this service."""
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1:
            raise RefusedError(400, "a request has one Host header")
        host = hosts[0].decode("latin-1").lower()
        name, _, port = host.rpartition(":") if host.rpartition(":")[2].isdigit() else (host, "", "")
        if name.strip("[]") not in self._hosts or (port and not port.isascii()):
            raise RefusedError(
                421,
                "the Host header names none of this service's names",
                "start it with --allow-host NAME, where clients or a proxy call it by that name",
                where="Host",
            )
        return host

    def _check_origin(self, scope: Scope, headers: list[tuple[bytes, bytes]], host: str) -> None:
        """A page of another site may not ask: its requests name their site."""
        origin = _one(headers, b"origin").lower()
        if origin and origin not in (f"http://{host}", f"https://{host}"):
            raise RefusedError(403, "the request comes from a page of another site", where="Origin")
        if _one(headers, b"sec-fetch-site") in ("cross-site", "same-site"):
            is_link = scope["method"] == "GET" and _one(headers, b"sec-fetch-dest") == "document"
            if not is_link:
                raise RefusedError(403, "the request comes from a page of another site", where="Sec-Fetch-Site")

    def _check_token(self, headers: list[tuple[bytes, bytes]]) -> None:
        """The token, as a bearer, or as the password that a browser asks for."""
        kind, _, value = _one(headers, b"authorization").partition(" ")
        borne = value.strip().encode("utf-8", "replace")
        if kind.lower() == "basic":
            try:
                borne = base64.b64decode(borne, validate=True).partition(b":")[2]
            except binascii.Error:
                borne = b""
        if kind.lower() not in ("bearer", "basic") or not hmac.compare_digest(borne, self._token):
            raise RefusedError(
                401,
                "this service needs its token",
                "send Authorization: Bearer TOKEN; a browser asks for it as a password",
                WWW_Authenticate='Bearer realm="ragidx", Basic realm="ragidx"',
            )

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, if it is small enough and comes soon enough."""
        most = MAX_DOCUMENT_BODY if scope["method"] == "PUT" else MAX_BODY
        declared = _one(scope["headers"], b"content-length")
        too_large = RefusedError(413, f"the body has more than {most:,} bytes", "send less at once")
        if declared.isdigit() and int(declared) > most:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "the client went away")
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise RefusedError(408, f"the body took more than {BODY_S:g} s") from None

    def _note(self, scope: Scope, sent: dict[str, Any], seconds: float) -> None:
        """The line of a request, and its count."""
        state = scope["state"]
        route = getattr(scope.get("route"), "path", None) or state.get("route") or "other"
        self._metrics.requests.labels(route, str(sent["status"])).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        line = {
            "time": _now(),
            "method": scope["method"],
            "route": route,
            "status": sent["status"],
            "ms": round(1000 * seconds, 2),
            "bytes": sent["bytes"],
            "client": "socket" if is_local(scope) else (scope.get("client") or ("?",))[0],
        }
        line |= {"fault": state["fault"]} if "fault" in state else {}
        if self._settings.log_queries and "query" in state:
            asked = state["query"]
            line["query"] = printable(asked) if isinstance(asked, str) else [printable(text) for text in asked]
        log(line)


def check_json(scope: Scope) -> None:
    """Whether the body is said to be JSON: a form of another site cannot say so.

    Raises:
        RefusedError: it is not.
    """
    if _one(scope["headers"], b"content-type").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(415, "the body must be JSON", "send Content-Type: application/json")


def is_local(scope: Scope) -> bool:
    """Whether it came over the socket that only this user can open."""
    return bool(scope.get("server")) and scope["server"][1] is None


def log(line: dict[str, Any]) -> None:
    """One line of JSON on stderr, only ASCII: nothing of a request can begin another."""
    with contextlib.suppress(OSError, ValueError):  # nobody may read the log any more
        sys.stderr.write(json.dumps(line) + "\n")
        sys.stderr.flush()


class LogLines(logging.Handler):
    """The log of the libraries, as the same lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        line = {"time": _now(), "logger": record.name, "level": record.levelname, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        log(line)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + "Z"


def _one(headers: list[tuple[bytes, bytes]], wanted: bytes) -> str:
    """The value of a header; of several, all of them; empty where there is none."""
    return ", ".join(value.decode("latin-1") for name, value in headers if name == wanted)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once, then what the connection says."""
    waiting = [body]

    async def receive_again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return receive_again
