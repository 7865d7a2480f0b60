"""Which servers may be asked: with `--offline`, or HF_HUB_OFFLINE in the environment, those of this machine alone."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket

from ragidx.corpora.errors import SpecError

VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""What `--offline` sets; the first is read here, both are by the libraries that ask a hub."""


def is_offline() -> bool:
    """Whether no network may be used."""
    return os.environ.get(VARIABLES[0], "").upper() in ("1", "ON", "YES", "TRUE")


def is_this_machine(host: str) -> bool:
    """Whether a name or an address is this machine's own, whatever the network is.

    An address is its own if a socket of it can be bound here, which asks nobody.

    >>> is_this_machine("localhost"), is_this_machine("127.0.0.1"), is_this_machine("api.example")
    (True, True, False)
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET) as own,
    ):
        own.bind((host, 0))
        return not address.is_unspecified
    return address.is_loopback


def check_allowed(host: str, *, where: str, shown: str = "") -> None:
    """Whether a server may be asked.

    Args:
        host: name or address of the server.
        where: what named it.
        shown: name of the server in the message; by default its host.

    Raises:
        SpecError: it is another machine, and no network may be used.
    """
    if is_offline() and not is_this_machine(host):
        raise SpecError(
            f"{shown or host} is another machine, and no network may be used",
            "name a server on this machine, or allow the network",
            where=where,
        )
