"""Addresses of servers as messages may show them: without user, password, key and options.

    "postgresql://me:hush@host/db?sslmode=require" -> "postgresql://host/db"
    "postgresql:host=h password=hush" -> "postgresql:host=h password=***"

What cannot be taken apart is not shown at all: a password may be anywhere in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_HEAD = re.compile(r"(?:[\w+.-]+:){0,2}//|[\w+.-]+:|")  # an engine and a scheme
_OBJECT_STORES = ("s3://", "gs://", "az://")  # of which a path may have an @
_HOST = re.compile(r"(?:\[[^\[\]]*\]|[^\s:@\[\]]*)(?::\d*)?")
_PAIR = re.compile(r"\s*(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|(?!')(?:[^\s\\]|\\.)*)(?=\s|$)", re.DOTALL)
PLAIN = {"host", "hostaddr", "port", "dbname", "user", "sslmode", "connect_timeout"}
"""Options that hold no secret."""
_SECRETS = re.compile(
    r"//([^:@]*:.*)@|(?i:password|token|key)\s*=\s*('(?:[^'\\]|\\.)*'?|[^&\s]+)", re.DOTALL
)  # a URL's user and password, or the value of an option


def hidden(text: str) -> str:
    """An address, whole or broken, without what may be secret.

    >>> hidden("qdrant:http://me:a/b#c@host:6333/x?key=d"), hidden("me:hush@host"), hidden("http://me:hush")
    ('qdrant:http://host:6333/x', 'me:host', 'http://***')
    """
    head = _HEAD.match(text)[0]  # type: ignore[index]  # it matches nothing, too
    rest = text[len(head) :]
    if not head.endswith("//"):
        return head + (_hidden_pairs(rest) if "=" in rest else rest.rpartition("@")[2])
    if head.endswith(_OBJECT_STORES) and "@" not in rest.partition("/")[0]:
        return text.partition("?")[0]
    user, _, rest = rest.rpartition("@")
    place = re.split("[?#]", rest)[0]
    is_shown = not set("?=") & set(user) and are_hosts(place.partition("/")[0])  # the @ may be in an option
    return head + (place if is_shown else "***")


def are_hosts(text: str) -> bool:
    """Whether a text is hosts with or without ports, between commas: a port is a number, and there is no @."""
    return all(map(_HOST.fullmatch, text.split(",")))


def pairs_of(text: str) -> list[tuple[str, str]] | None:
    """The pairs of `key=value key='value'`, quotes kept; None where the text is something else."""
    found, at = list[tuple[str, str]](), 0
    while text[at:].strip():
        if (pair := _PAIR.match(text, at)) is None:
            return None
        found.append((pair[1], pair[2]))
        at = pair.end()
    return found


def _hidden_pairs(text: str) -> str:
    pairs = pairs_of(text)
    if pairs is None:
        return "***"
    return " ".join(f"{key}={value if key in PLAIN and '@' not in value else '***'}" for key, value in pairs)


def without_passwords(message: str, arguments: Sequence[str]) -> str:
    """A message that shows no password of an address among the arguments: one may have been given in a wrong place."""
    found = [group for argument in arguments for match in _SECRETS.findall(argument) for group in match if group]
    for secret in sorted(found, key=len, reverse=True):
        for shown in {secret, os.path.normpath(secret), repr(secret)[1:-1], ascii(secret)[1:-1]}:
            message = message.replace(shown, "***")
    return message
