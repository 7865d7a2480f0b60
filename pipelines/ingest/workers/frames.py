"""Messages between a build and its workers: a header of JSON and a body of bytes, with their lengths in front.

    8 bytes: length of the header, length of the body (little-endian, 32 bits each) · header · body

Nothing is unpickled: a worker parses files that anyone may have written. Lengths are checked before memory is taken.
"""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from ragidx.corpora import errors
from ragidx.corpora.errors import RagidxError
from ragidx.corpora.limits import GIB, MIB

HEADER_BYTES = 64 * MIB
BODY_BYTES = 2 * GIB

_LENGTHS = struct.Struct("<II")


class FrameError(Exception):
    """What came is no message."""


def packed(header: dict[str, Any], body: bytes = b"") -> list[bytes]:
    """A message as its parts, to be written one after another."""
    head = json.dumps(header, separators=(",", ":")).encode()
    return [_LENGTHS.pack(len(head), len(body)) + head, body]


def over_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Stdin and stdout of a process that speaks in messages, not buffered and buffered; what is printed is stderr's."""
    stdin, out = os.fdopen(0, "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=MIB)
    os.dup2(2, 1)
    return stdin, out


def of_error(fault: RagidxError) -> dict[str, Any]:
    """The message of an error that the other side is to raise."""
    return {"kind": "error", "error": [type(fault).__name__, fault.message, fault.hint, fault.where]}


def error_in(header: Mapping[str, Any]) -> RagidxError:
    """The inverse."""
    name, message, hint, where = map(str, header["error"])
    kind = getattr(errors, name, None)
    kind = kind if isinstance(kind, type) and issubclass(kind, RagidxError) else RagidxError
    return kind(message, hint, where=where)


def write(stream: BinaryIO, header: dict[str, Any], body: bytes = b"", *, flush: bool = True) -> None:
    """Write a message; without `flush` it may wait for the next one."""
    for part in packed(header, body):
        stream.write(part)
    if flush:
        stream.flush()


def nested(body: bytes) -> tuple[dict[str, Any], bytes]:
    """The message that is the body of another.

    Raises:
        FrameError: it is none.
    """
    try:
        return read(reader(io.BytesIO(body)))
    except EOFError as fault:
        raise FrameError("a message that is cut short") from fault


def read(exactly: Callable[[int], bytes | bytearray]) -> tuple[dict[str, Any], bytes]:
    """The next message.

    Args:
        exactly: function that gives as many bytes as it is asked for, or raises EOFError.

    Raises:
        EOFError: the other side has closed the pipe.
        FrameError: a length is too large, or the header is no JSON object.
    """
    n_header, n_body = _LENGTHS.unpack(exactly(_LENGTHS.size))
    if n_header > HEADER_BYTES or n_body > BODY_BYTES:
        raise FrameError(f"a message of {n_header} and {n_body} bytes")
    try:
        header = json.loads(bytes(exactly(n_header)))
    except (ValueError, RecursionError) as fault:
        raise FrameError(f"a header that is no JSON: {fault}") from fault
    if not isinstance(header, dict):
        raise FrameError("a header that is no object")
    return header, bytes(exactly(n_body)) if n_body else b""


def reader(stream: BinaryIO) -> Callable[[int], bytes]:
    """What reads exactly so many bytes of a stream."""

    def exactly(count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            block = stream.read(count - len(data))
            if not block:
                raise EOFError
            data += block
        return bytes(data)

    return exactly
