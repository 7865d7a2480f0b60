"""HTTP to the server of a model: a JSON body there, the JSON of its answer back, with retries.

urllib3 has the connections. What is added here: one request has a deadline and its answer a size, all threads wait
where the server asks for it, and a wait can be ended, which `urllib3.Retry` has none of. Nothing follows a redirect:
texts and keys go to the address that was named and to no other. Proxies of the environment are not used. What the JSON
means is known in `ragidx.indexer.encoders.endpoint`.
"""

from __future__ import annotations

import contextlib
import email.utils
import functools
import json
import logging
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from urllib3 import Timeout, connection_from_url
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, ReadTimeoutError

from ragidx.corpora.errors import ModelError, SpecError, first_line
from ragidx.indexer.models.address import KEYS, Address, api_key

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_PAUSED = frozenset({429, 503})  # the server has too much to do: no request is sent before its time is up
_OF_TEXT = frozenset({400, 413, 422})
_KEPT = 8  # connections, at most
_PART_BYTES = 1 << 18  # of an answer, that are read at once
_WORDS = 200  # of a server, in a message

log = logging.getLogger("ragidx.indexer")


@dataclass(frozen=True)
class Patience:
    """How long a request may take, and how often it is tried; seconds.

    Attributes:
        connect_s: until the connection is made.
        answer_s: until the whole answer is there.
        attempts: of a request.
        paused_attempts: of one that is refused because the server has too much to do: a limit a minute has to pass.
        wait_s: before the second attempt; twice as long before each further one, and longer if the server asks for it.
        most_s: the longest wait, also one that the server asks for.
        silent_s: until it is said that a server is waited for which has never answered.
    """

    connect_s: float = 10.0
    answer_s: float = 120.0
    attempts: int = 6
    paused_attempts: int = 9
    wait_s: float = 0.5
    most_s: float = 300.0
    silent_s: float = 5.0


PATIENCE = Patience()


class RefusedTextError(ModelError):
    """The server refuses what is asked, as it may do with texts that are too many or too long."""


class Calls:
    """Requests that belong together: `end` stops their retries, `stop` their waiting for answers, too."""

    def __init__(self) -> None:
        self.ending = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def end(self) -> None:
        """Try nothing again."""
        self.ending.set()

    def stop(self) -> None:
        """Let go of what is under way, at once."""
        self.end()
        with self._lock:
            for one in self._open:
                _shut(one)

    @contextlib.contextmanager
    def waiting(self, wire: socket.socket) -> Iterator[None]:
        """While an answer is waited for."""
        with self._lock:
            self._open.add(wire)
            if self.ending.is_set():
                _shut(wire)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(wire)


_THREAD = threading.local()  # `begin`: what the request of a thread does with its connection


class _Connection(HTTPConnection):
    def request(self, *args: Any, **options: Any) -> None:
        if self.is_closed:
            self.connect()
        _THREAD.begin(self.sock)
        super().request(*args, **options)


class _SecureConnection(_Connection, HTTPSConnection):
    pass


@dataclass
class RequestCounts:
    """What was sent: requests that were answered, and those that were sent once more."""

    n_requests: int = 0
    n_retries: int = 0


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class Client:
    """Requests to one address. Threads may share it.

    Args:
        address: of the endpoint.
        patience: how long requests may take; None: `PATIENCE`.

    Raises:
        SpecError: no network may be used (`--offline`), or the key of the environment cannot be sent.
    """

    def __init__(self, address: Address, patience: Patience | None = None) -> None:
        self.address, self.counts = address, RequestCounts()
        self._patience = PATIENCE if patience is None else patience
        if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE") and not address.is_loopback:
            raise SpecError(
                f"{address.place} is another machine, and no network may be used",
                "name a server on this machine, or allow the network",
                where="`endpoint`",
            )
        self._key = api_key(address)
        seconds = Timeout(connect=self._patience.connect_s, read=self._patience.answer_s)
        self._pool = connection_from_url(address.url, timeout=seconds, retries=False, maxsize=_KEPT)
        self._pool.ConnectionCls = _SecureConnection if self._pool.scheme == "https" else _Connection
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._has_answered = self._is_told = False

    def post(self, message: Mapping[str, Any], most_bytes: int, calls: Calls) -> Any:
        """The JSON of the answer.

        Args:
            message: that is sent.
            most_bytes: of an answer.
            calls: that it belongs to.

        Raises:
            RefusedTextError: the server refuses it, which another message may change.
            ModelError: no answer after all attempts, or none that can be used; the message has no key.
        """
        body, wait = json.dumps(message).encode("ascii"), self._patience.wait_s
        attempts = {False: 0, True: 0}  # by whether the server had too much to do
        while True:
            self._wait_for_turn(calls)
            silent_s = self._patience.answer_s if self._has_answered else self._patience.silent_s
            with _unless_over(silent_s, self._tell_silence):
                fault, asked, is_paused = self._attempt(body, most_bytes, calls)
            if isinstance(fault, _Answer):
                return self._json(fault)
            attempts[is_paused] += 1
            n_attempts = sum(attempts.values())
            tried = f" ({n_attempts} attempts)" if n_attempts > 1 else ""
            most = self._patience.paused_attempts if is_paused else self._patience.attempts
            if attempts[is_paused] >= most or calls.ending.is_set():
                raise self._error(f"{fault}{tried}", "look at the server, and go on by running it again")
            if asked > self._patience.most_s:
                raise self._error(f"{fault}, and asks to wait for {asked:,.0f} s", "run it again then")
            delay = max(asked, wait * random.uniform(0.75, 1.25))
            wait = min(2 * wait, self._patience.most_s)
            with self._lock:
                self.counts.n_retries += 1
            calls.ending.wait(delay)

    def _tell_silence(self) -> None:
        """Say once that an answer is waited for, and how long at most."""
        with self._lock:
            told, self._is_told = self._is_told, True
        if not told:
            minutes = self._patience.attempts * self._patience.answer_s / 60
            log.warning("%s: no answer yet; it is waited for, %.0f minutes at most", self.address.url, minutes)

    def _attempt(self, body: bytes, most_bytes: int, calls: Calls) -> tuple[_Answer | str, float, bool]:
        """The answer; else what went wrong, where another attempt may help, how long the server asks to wait, and
        whether it has too much to do.
        """
        try:
            answer = self._exchange(body, most_bytes, calls)
        except (OSError, HTTPError) as fault:
            cause = _cause(fault)
            if isinstance(cause, ssl.SSLCertVerificationError):
                words = f"its certificate is not trusted: {cause.verify_message}"
                raise self._error(words, "name a server that is") from fault
            reason = "does not answer: " + self._reason(cause)
            if not self._has_answered and isinstance(cause, ConnectionRefusedError | socket.gaierror):
                raise self._error(reason, "start the server, or name another with `endpoint`") from fault
            return reason, 0.0, False
        self._has_answered = True
        with self._lock:
            self.counts.n_requests += answer.status == 200
        if answer.status == 200:
            return answer, 0.0, False
        if answer.status not in _AGAIN:
            raise self._refusal(answer)
        asked = _retry_after(answer.headers.get("retry-after", ""))
        is_paused = answer.status in _PAUSED
        if is_paused and asked <= self._patience.most_s:
            with self._lock:
                self._not_before = max(self._not_before, time.monotonic() + asked)
        return f"answers with status {answer.status}{self._said(answer)}", asked, is_paused

    def _wait_for_turn(self, calls: Calls) -> None:
        while (rest := self._not_before - time.monotonic()) > 0 and not calls.ending.wait(rest):
            pass

    def _exchange(self, body: bytes, most_bytes: int, calls: Calls, *, again: bool = False) -> _Answer:
        """One request; once more where the server has closed a connection that was kept."""
        late = threading.Event()
        try:
            with contextlib.ExitStack() as until_over:
                _THREAD.begin = functools.partial(self._bound, calls, late, until_over)
                answer = self._send(body, most_bytes)
        except (OSError, HTTPError) as fault:
            if late.is_set():
                raise TimeoutError from fault
            if again or calls.ending.is_set() or not isinstance(_cause(fault), ConnectionResetError | BrokenPipeError):
                raise
            return self._exchange(body, most_bytes, calls, again=True)
        if late.is_set():  # an answer without a length ends where its connection does
            raise TimeoutError
        return answer

    def _bound(
        self, calls: Calls, late: threading.Event, until_over: contextlib.ExitStack, wire: socket.socket
    ) -> None:
        """Let the deadline and `calls` end what is under way; a byte now and then does not stop the clock."""

        def give_up() -> None:
            late.set()
            _shut(wire)

        until_over.enter_context(_unless_over(self._patience.answer_s, give_up))
        until_over.enter_context(calls.waiting(wire))

    def _send(self, body: bytes, most_bytes: int) -> _Answer:
        asked = {"redirect": False, "preload_content": False, "decode_content": False}
        path = urlsplit(self.address.url).path
        with contextlib.closing(self._pool.urlopen("POST", path, body, self._headers(), **asked)) as answer:
            data = bytearray()
            for part in answer.stream(_PART_BYTES):
                data += part
                if len(data) > most_bytes:
                    raise self._error(f"the answer is longer than {most_bytes:,} bytes", "look at the server")
            return _Answer(answer.status, answer.headers, bytes(data))

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "ragidx"}
        return headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {})

    def _json(self, answer: _Answer) -> Any:
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError) as fault:
            shown = ascii(self.hidden(answer.body.decode("utf-8", "replace"))[:40])
            raise self._error(
                f"the answer is no JSON: {shown}", "name the address of its API, which often ends in /v1"
            ) from fault

    def _refusal(self, answer: _Answer) -> ModelError:
        """The error for a status that stays."""
        status = answer.status
        if 300 <= status < 400:
            to = ascii(self.hidden(answer.headers.get("location", "")))[:_WORDS]
            return self._error(
                f"it redirects to {to}, and no redirect is followed",
                "name that address with `endpoint`, if texts may go there",
            )
        if status in (401, 403):
            return self._error(*self._about_key(status))
        said = f"status {status}{self._said(answer)}"
        if status in _OF_TEXT:
            return RefusedTextError(said, "", where=self.address.url)
        hint = "check the address and the name of the model" if status in (404, 405) else "look at the server"
        return self._error(f"it refuses the request: {said}", hint)

    def _about_key(self, status: int) -> tuple[str, str]:
        if self._key:
            return f"it refuses the key of the environment (status {status})", f"put the right key into {KEYS[0]}"
        if not self.address.named:
            return (
                f"it asks for a key (status {status}), and an address that an index keeps gets none",
                f"name it: `endpoint={self.address.url}`",
            )
        return f"it asks for a key (status {status})", f"put the key into the environment variable {KEYS[0]}"

    def _said(self, answer: _Answer) -> str:
        """What the server says of its refusal, in one line, without the key."""
        try:
            found: Any = json.loads(answer.body)
            for name in ("error", "message"):
                found = found[name] if isinstance(found, dict) and name in found else found
        except (ValueError, RecursionError):
            found = answer.body.decode("utf-8", "replace")
        words = " ".join(str(found).split())
        shown = "".join(character if character.isprintable() else "?" for character in self.hidden(words))
        return f": {shown[:_WORDS]}" if shown else ""

    def _reason(self, fault: BaseException) -> str:
        if isinstance(fault, ConnectTimeoutError):
            return f"no connection within {self._patience.connect_s:g} s"
        if isinstance(fault, ReadTimeoutError) or (isinstance(fault, TimeoutError) and not fault.strerror):
            return f"no answer within {self._patience.answer_s:g} s"
        if isinstance(fault, OSError) and fault.strerror:
            return fault.strerror
        return self.hidden(first_line(fault))

    def hidden(self, text: str) -> str:
        """A text of the server, without the key that was sent to it."""
        return text.replace(self._key, "***") if self._key else text

    def _error(self, message: str, hint: str) -> ModelError:
        return ModelError(message, hint, where=self.address.url)


def _retry_after(value: str) -> float:
    """Seconds that a server asks for, as a number or as a date; 0 where it says nothing of use.

    >>> _retry_after("1.5"), _retry_after("soon"), _retry_after("Thu, 01 Jan 1970 00:00:00 GMT")
    (1.5, 0.0, 0.0)
    """
    with contextlib.suppress(ValueError):
        seconds = float(value)
        return seconds if seconds >= 0 else 0.0
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return 0.0


@contextlib.contextmanager
def _unless_over(seconds: float, do: Callable[[], None]) -> Iterator[None]:
    """Do something after some seconds, unless the block is over before."""
    clock = threading.Timer(seconds, do)
    clock.daemon = True
    clock.start()
    try:
        yield
    finally:
        clock.cancel()


def _cause(fault: BaseException) -> BaseException:
    """What the system said, where urllib3 has wrapped it; timeouts are urllib3's own."""
    wrapped = (fault.__cause__, *fault.args[-1:]) if isinstance(fault, HTTPError) else ()
    return next((one for one in wrapped if isinstance(one, OSError) and not isinstance(one, TimeoutError)), fault)


def _shut(connection: socket.socket) -> None:
    """End a connection under whoever waits for it."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not TLS's own, which first drops what reads it
