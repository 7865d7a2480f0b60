"""Which servers may be asked: with `--offline`, or HF_HUB_OFFLINE in the environment, those of this machine alone."""

from __future__ import annotations

import contextlib
import ipaddress
import os

from ragidx.corpora.errors import SpecError

VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""What `--offline` sets; the first is read here, both are by the libraries that ask a hub."""


def is_offline() -> bool:
    """Whether no network may be used."""
    return os.environ.get(VARIABLES[0], "").upper() in ("1", "ON", "YES", "TRUE")


def is_this_machine(host: str) -> bool:
    """Whether a name or an address is this machine's own, whatever the network is.

    >>> is_this_machine("localhost"), is_this_machine("127.0.0.1"), is_this_machine("api.example")
    (True, True, False)
    """
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def check_allowed(host: str, *, where: str, shown: str = "") -> None:
    """Whether a server may be asked.

    Args:
        host: its name or address.
        where: what named it.
        shown: how it is called in the message; by default its host.

    Raises:
        SpecError: it is another machine, and no network may be used.
    """
    if is_offline() and not is_this_machine(host):
        raise SpecError(
            f"{shown or host} is another machine, and no network may be used",
            "name a server on this machine, or allow the network",
            where=where,
        )
