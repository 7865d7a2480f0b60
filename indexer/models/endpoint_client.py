"""HTTP to the server of a model: a JSON body there, the JSON of its answer back, with retries.

urllib3 has the connections and reads the answers. What is added here: a request has a deadline and its answer a size,
all threads wait where the server asks for it, and a wait can be ended. No redirect is followed: texts and keys go to
the address that was named and to no other. Proxies of the environment are not used. What the JSON means is known in
`ragidx.indexer.encoders.endpoint`.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import json
import logging
import queue
import random
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from urllib3 import HTTPResponse, Retry
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, InvalidHeader, ProtocolError, ReadTimeoutError

from ragidx.corpora.errors import ModelError, first_line
from ragidx.indexer.models.address import KEYS, Address, api_key
from ragidx.indexer.models.offline import check_allowed

_BUSY = frozenset({429, 503})  # the server has too much to do: no request is sent before its time is up
_PASSING = _BUSY | {408, 425, 500, 502, 504, 529}
_OF_TEXT = frozenset({400, 413, 422})
_CONNECTIONS = 8  # at most, so many requests are under way at once
_PART_BYTES = 1 << 18  # of an answer, that are read at once
_SHOWN = 200  # characters of a server's message

log = logging.getLogger("ragidx.indexer")


@dataclass(frozen=True)
class Patience:
    """How long a request may take, in seconds, and how often it is tried."""

    connect_s: float = 10.0  # until the connection is made
    answer_s: float = 120.0  # until the whole answer is there
    attempts: int = 8  # with their waits two minutes, so that a limit per minute passes
    wait_s: float = 1.0  # before the second attempt; twice as long before each further one
    most_s: float = 300.0  # the longest wait that a server may ask for
    silent_s: float = 5.0  # until a server that has never answered is named on stderr


PATIENCE = Patience()


class RefusedTextError(ModelError):
    """The server refuses what is asked, as it may do with texts that are too many or too long."""


class _PassingError(Exception):
    """A failure that another attempt may mend; `asked_s`: how long the server asks to wait before it."""

    def __init__(self, reason: str, asked_s: float = 0.0) -> None:
        super().__init__(reason)
        self.asked_s = asked_s


class Calls:
    """Requests that belong together. Once `ending` is set, none is tried again."""

    def __init__(self) -> None:
        self.ending = threading.Event()
        self._waiting: set[socket.socket] = set()

    def stop(self) -> None:
        """End what is under way, at once."""
        self.ending.set()
        for wire in list(self._waiting):
            _shut(wire)

    @contextlib.contextmanager
    def waiting(self, wire: socket.socket, most_s: float) -> Iterator[None]:
        """While an answer is waited for, `most_s` seconds at most: a byte now and then does not stop the clock."""
        self._waiting.add(wire)
        if self.ending.is_set():  # `stop` may not have seen it
            _shut(wire)
        try:
            with _after(most_s, functools.partial(_shut, wire)):
                yield
        finally:
            self._waiting.discard(wire)


class EndpointClient:
    """Requests to one address. Threads may share it.

    Raises:
        SpecError: no network may be used (`--offline`), or the key of the environment cannot be sent.
    """

    def __init__(self, address: Address, patience: Patience | None = None) -> None:
        self.address, self._patience = address, PATIENCE if patience is None else patience
        check_allowed(urlsplit(address.url).hostname or "", where="`endpoint`", shown=address.place)
        self._key = api_key(address)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "ragidx"}
        if self._key:
            self._headers["Authorization"] = f"Bearer {self._key}"
        parts = urlsplit(address.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connections = queue.LifoQueue[HTTPConnection]()
        for _ in range(_CONNECTIONS):
            connection = kind(parts.hostname or "", parts.port)
            self._connections.put(connection)
            weakref.finalize(self, connection.close)
        self._path = parts.path
        self.n_requests = self.n_retries = 0  # requests that were answered, and that were sent once more
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._has_answered = False

    def post(self, message: Mapping[str, Any], most_bytes: int, calls: Calls) -> Any:
        """The JSON of the answer, of `most_bytes` at most.

        Raises:
            RefusedTextError: the server refuses it, which another message may change.
            ModelError: no answer after all attempts, or none that can be used; the message has no key.
        """
        body, wait_s = json.dumps(message).encode("ascii"), self._patience.wait_s
        with _after(self._patience.silent_s, self._name_silent_server):
            for attempt in itertools.count(1):
                while (rest_s := self._not_before - time.monotonic()) > 0 and not calls.ending.wait(rest_s):
                    pass
                try:
                    return self._answer(body, most_bytes, calls)
                except _PassingError as fault:
                    if attempt == self._patience.attempts or calls.ending.is_set():
                        tried = f" ({attempt} attempts)" if attempt > 1 else ""
                        raise self._error(f"{fault}{tried}", "look at the server, then run it again") from fault
                    if fault.asked_s > self._patience.most_s:
                        reason = f"{fault}, and asks to wait for {fault.asked_s:,.0f} s"
                        raise self._error(reason, "run it again then") from fault
                    delay_s = max(fault.asked_s, wait_s * random.uniform(0.75, 1.25))
                    if attempt == 1 and isinstance(fault.__cause__, ConnectionError | ProtocolError):
                        delay_s = 0.0  # the server closed the connection, maybe since it was idle
                with self._lock:
                    self.n_retries += 1
                calls.ending.wait(delay_s)
                wait_s *= 2

    def _answer(self, body: bytes, most_bytes: int, calls: Calls) -> Any:
        """The JSON of the answer to one request.

        Raises:
            _PassingError: another attempt may help.
            ModelError: none will.
        """
        try:
            answer, data = self._exchange(body, most_bytes, calls)
        except ssl.SSLCertVerificationError as fault:
            message = f"its certificate is not trusted: {fault.verify_message}"
            raise self._error(message, "name a server that is") from fault
        except (OSError, HTTPError, http.client.HTTPException) as fault:
            reason = f"does not answer: {self._reason(fault)}"
            is_down = isinstance(fault.__cause__, ConnectionRefusedError | socket.gaierror)
            if is_down and not self._has_answered:
                raise self._error(reason, "start the server, or name another with `endpoint`") from fault
            raise _PassingError(reason) from fault
        self._has_answered = True
        if answer.status not in _PASSING | {200}:
            raise self._refusal(answer, data)
        asked_s = _retry_after(answer.headers.get("retry-after", ""))
        with self._lock:
            self.n_requests += answer.status == 200
            if answer.status in _BUSY and asked_s <= self._patience.most_s:
                self._not_before = max(self._not_before, time.monotonic() + asked_s)
        if answer.status != 200:
            raise _PassingError(f"answers with status {answer.status}{self._said(data)}", asked_s)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as fault:
            shown = ascii(self.hidden(data.decode("utf-8", "replace"))[:40])
            hint = "name the address of its API, which often ends in /v1"
            raise self._error(f"the answer is no JSON: {shown}", hint) from fault

    def _exchange(self, body: bytes, most_bytes: int, calls: Calls) -> tuple[HTTPResponse, bytes]:
        """One request: the head of its answer, and the whole body."""
        most_s, data = self._patience.answer_s, bytearray()
        connection = self._connections.get()
        try:
            if not connection.is_connected:
                connection.close()
                connection.timeout = self._patience.connect_s
                connection.connect()
            connection.timeout, started = most_s, time.monotonic()
            try:
                with calls.waiting(connection.sock, most_s):
                    connection.request("POST", self._path, body, self._headers, preload_content=False)
                    with contextlib.closing(connection.getresponse()) as answer:
                        for part in answer.stream(_PART_BYTES, decode_content=False):
                            data += part
                            if len(data) > most_bytes:
                                message = f"the answer is longer than {most_bytes:,} bytes"
                                raise self._error(message, "look at the server")
            finally:
                if time.monotonic() - started >= most_s:  # also of an answer without a length, which ends then
                    raise TimeoutError
        except BaseException:
            connection.close()
            raise
        finally:
            self._connections.put(connection)
        return answer, bytes(data)

    def _name_silent_server(self) -> None:
        if not self._has_answered:
            minutes = self._patience.attempts * self._patience.answer_s / 60
            log.warning("%s: no answer yet; it is waited for, %.0f minutes at most", self.address.url, minutes)

    def _refusal(self, answer: HTTPResponse, data: bytes) -> ModelError:
        """The error for a status that stays."""
        status, name_it = answer.status, "name that address with `endpoint`, if texts may go there"
        if 300 <= status < 400:
            to = ascii(self.hidden(answer.headers.get("location", "")))[:_SHOWN]
            return self._error(f"it redirects to {to}, and no redirect is followed", name_it)
        if status in (401, 403):
            return self._error(*self._about_key(status))
        said = f"status {status}{self._said(data)}"
        if status in _OF_TEXT:
            return RefusedTextError(said, "", where=self.address.url)
        hint = "check the address and the name of the model" if status in (404, 405) else "look at the server"
        return self._error(f"it refuses the request: {said}", hint)

    def _about_key(self, status: int) -> tuple[str, str]:
        if self._key:
            return f"it refuses the key of the environment (status {status})", f"put the right key into {KEYS[0]}"
        message = f"it asks for a key (status {status})"
        if self.address.named:
            return message, f"put the key into the environment variable {KEYS[0]}"
        return f"{message}, and an address that an index keeps gets none", f"name it: `endpoint={self.address.url}`"

    def _said(self, data: bytes) -> str:
        """What the server says of its refusal, in one line, without the key."""
        try:
            found: Any = json.loads(data)
            for name in ("error", "message"):
                found = found[name] if isinstance(found, dict) and name in found else found
        except (ValueError, RecursionError):
            found = data.decode("utf-8", "replace")
        line = " ".join(self.hidden(str(found)).split())
        shown = "".join(character if character.isprintable() else "?" for character in line)
        return f": {shown[:_SHOWN]}" if shown else ""

    def _reason(self, fault: BaseException) -> str:
        for error in (fault.__cause__, fault):
            if isinstance(error, OSError) and error.strerror:
                return error.strerror
        if isinstance(fault, ConnectTimeoutError):
            return f"no connection within {self._patience.connect_s:g} s"
        if isinstance(fault, TimeoutError | ReadTimeoutError):
            return f"no answer within {self._patience.answer_s:g} s"
        return self.hidden(first_line(fault))

    def hidden(self, text: str) -> str:
        """A text of the server, without the key that was sent to it."""
        return text.replace(self._key, "***") if self._key else text

    def _error(self, message: str, hint: str) -> ModelError:
        return ModelError(message, hint, where=self.address.url)


def _retry_after(value: str) -> float:
    """Seconds that a server asks for, as a whole number or as a date; 0 where it says nothing of use.

    >>> _retry_after("15"), _retry_after("soon"), _retry_after("Thu, 01 Jan 1970 00:00:00 GMT")
    (15, 0.0, 0)
    """
    with contextlib.suppress(InvalidHeader, ValueError, OverflowError):
        return Retry().parse_retry_after(value)
    return 0.0


@contextlib.contextmanager
def _after(seconds: float, do: Callable[[], None]) -> Iterator[None]:
    """Do something after some seconds, unless the block is over before."""
    clock = threading.Timer(seconds, do)
    clock.daemon = True
    clock.start()
    try:
        yield
    finally:
        clock.cancel()


def _shut(wire: socket.socket) -> None:
    """End a connection under whoever waits for it."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(wire, socket.SHUT_RDWR)  # not TLS's own, which first drops what reads it
