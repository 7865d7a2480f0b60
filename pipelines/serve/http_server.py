"""The server: the application, the port, the sockets of this user, and an end that lets what runs be finished."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import re
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from uvicorn.protocols.http.h11_impl import H11Protocol

from ragidx.corpora.errors import SpecError
from ragidx.pipelines.serve.guard import RETRY, Guard, LogLines, RefusedError, check_json, log
from ragidx.pipelines.serve.interface import ROUTES
from ragidx.pipelines.serve.page import Page
from ragidx.pipelines.serve.routes import Handlers, endpoint
from ragidx.pipelines.serve.served_index import Pools, Served, run
from ragidx.pipelines.serve.service import Service
from ragidx.pipelines.serve.settings import Settings
from ragidx.pipelines.serve.sockets import offered
from ragidx.retriever.models import HERE, ModelPlace

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HEADERS_S = 10.0  # in which the head of a request must be here
READ_S = 60.0  # in which a client must take an answer
END_S = 10  # for requests that run when the service ends
BACKLOG = 1024  # connections that wait to be accepted
CONNECTIONS = 512  # open at once; those beyond get 503


def application(
    indexes: Mapping[str, Path | str], settings: Settings, place: ModelPlace = HERE
) -> tuple[ASGIApp, Service]:
    """The application of a service, with its lifespan, and the service.

    Args:
        indexes: folders, or targets of engines, by name.
        settings: settings of the service.
        place: where the models of the indexes are.
    """
    pools = Pools()
    served = {name: Served(name, path, pools, place, rerank=settings.rerank) for name, path in indexes.items()}
    service = Service(served, settings, pools)
    handlers = Handlers(service)
    by_path: dict[str, dict[str, Callable[[Request], Awaitable[Response]]]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, {})[route.method] = endpoint(handlers, route)
    routes = [_resource(path.replace("{id}", "{id:path}"), methods) for path, methods in by_path.items()]
    page = Page(service)
    routes += [_resource(path, {"GET": do}) for path, do in page.routes().items()]
    agents = _Agents(service)
    routes.append(Route("/mcp", agents, methods=None))

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        watching = [asyncio.create_task(_watched(one)) for one in served.values()]
        watching.append(asyncio.create_task(agents.run()))
        yield
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        pools.close()

    router = Router(routes, redirect_slashes=False, lifespan=lifespan, default=_unknown)
    return Guard(router, settings, service.metrics), service


async def _watched(served: Served) -> None:
    """Watch an index; each new problem is a line of the log."""
    watching, said = asyncio.create_task(served.watch()), ""
    try:
        while not watching.done():
            if served.problem != said:
                said = served.problem
                log({"index": served.name, "problem": said or "none"})
            await asyncio.sleep(0.5)
    finally:
        watching.cancel()


async def _unknown(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        raise RefusedError(404, "there is no such place", "/openapi.json describes all")


def _resource(path: str, methods: dict[str, Callable[[Request], Awaitable[Response]]]) -> Route:
    """A path with all that can be done there; another method is answered with those that there are."""

    async def do(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" and "GET" in methods else request.method
        if method not in methods:
            allowed = ", ".join(sorted(methods))
            raise RefusedError(405, f"it takes {allowed}", Allow=allowed)
        if method in ("POST", "PUT"):
            check_json(request.scope)
        return await methods[method](request)

    return _AnyMethod(path, do)


class _AnyMethod(Route):
    """A route that all methods reach."""

    def __init__(self, path: str, do: Callable[[Request], Awaitable[Response]]) -> None:
        super().__init__(path, do, methods=["GET"])
        self.methods = set()  # of a path that is known each method is answered by `do`
        ends = self.path_regex.pattern.removesuffix("$") + r"\Z"  # `$` also matches before a line end of an id
        self.path_regex = re.compile(ends, re.DOTALL)


class _Agents:
    """`/mcp`, whose library is imported when the service runs, and not before it listens."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._ready = asyncio.Event()
        self._app: ASGIApp | None = None

    async def run(self) -> None:
        """Hold the sessions open until the service ends."""

        def load() -> Any:
            from ragidx.pipelines.serve import agents

            return agents

        try:
            module = await run(self._service.pools.reading, load)
            app, manager = module.over_http(self._service)
            async with manager.run():
                self._app = app
                self._ready.set()
                await asyncio.Event().wait()
        except Exception as fault:  # noqa: BLE001 - the other routes answer without it
            log({"problem": f"/mcp cannot be used: {type(fault).__name__}: {fault}"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["route"] = "/mcp"
        if scope["method"] != "POST":
            raise RefusedError(405, "it takes POST", Allow="POST")
        check_json(scope)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._service.settings.deadline_s):
                await self._ready.wait()
        if self._app is None:
            raise RefusedError(
                503, "it is not ready", "ask again; the service's log may say why", kind="BusyError", **RETRY
            )
        await self._app(scope, receive, send)


class _Protocol(H11Protocol):
    """A connection that is idle for as long as it may be; a head that has begun, and the reader of an answer, are
    waited for some seconds.
    """

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()  # of the first request

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        if self.conn.their_state is h11.IDLE:
            self._wait_for_head()
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()  # waits until a next request begins, which can be there in part
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()

    def _wait_for_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(HEADERS_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._head is not None:
            self._head.cancel()
        self._head = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(READ_S, self.transport.abort)  # to close would wait for the reader

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.cancel()


class _Server(uvicorn.Server):
    """A server that ends with status 0 when it is asked to; the second time at once."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop, numbers = asyncio.get_running_loop(), [signal.SIGINT, signal.SIGTERM]
        if threading.current_thread() is not threading.main_thread():  # where no signal can be taken
            numbers = []

        def end() -> None:
            self.force_exit, self.should_exit = self.should_exit, True

        for number in numbers:
            loop.add_signal_handler(number, end)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


def listening(host: str, port: int) -> socket.socket:
    """The port, bound.

    Raises:
        SpecError: it is in use, or is not of this machine.
    """
    try:
        [family, *_], *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with contextlib.ExitStack() as held:
            # the protocol by name: without it asyncio leaves Nagle on, which costs 40 ms an answer
            bound = held.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, port))
            bound.listen(BACKLOG)  # from now on a client waits for the first answer, and is not refused
            held.pop_all()
    except OSError as fault:
        hint = "choose another with `port`; 0 takes any that is free"
        raise SpecError(f"cannot listen there: {fault.strerror or fault}", hint, where=f"{host}:{port}") from fault
    return bound


def serve(
    indexes: Mapping[str, Path | str],
    settings: Settings,
    place: ModelPlace = HERE,
    *,
    on_start: Callable[[str, list[str]], None] | None = None,
) -> None:
    """Serve indexes until the process is asked to end.

    Args:
        indexes: folders, or targets of engines, by name.
        settings: settings of the service.
        place: where the models are.
        on_start: called with the address, and the names of the indexes that `ragidx query` reaches through a socket.

    Raises:
        SpecError: the port cannot be had.
    """
    with contextlib.suppress(OSError, RuntimeError):  # where there is no stderr
        faulthandler.enable()  # a file of an index that is truncated ends the process by a signal
    bound = listening(settings.host, settings.port)
    app, service = application(indexes, settings, place)
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(bound)]
        for name, path in indexes.items():
            is_same = place == HERE and isinstance(path, Path)  # or `ragidx query` alone would differ
            own = held.enter_context(offered(Path(path))) if is_same else None
            if own is not None:
                sockets.append(own)
                service.sockets[own.getsockname()] = name
        host, port = bound.getsockname()[:2]
        if on_start is not None:
            shown = f"[{host}]" if ":" in host else host
            on_start(f"http://{shown}:{port}", sorted(service.sockets.values()))
        logging.basicConfig(handlers=[LogLines()], level=logging.WARNING, force=True)
        with contextlib.suppress(KeyboardInterrupt):
            server_of(app, settings).run(sockets=sockets)


def server_of(app: ASGIApp, settings: Settings) -> uvicorn.Server:
    """What runs an application, with the bounds of connections."""
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=END_S,
    )
    return _Server(config)
