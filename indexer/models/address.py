"""Where the server of a model is, and who gets the key of the environment.

What the user types -> `Address`. An index keeps the address that its vectors came from, and an index is not trusted: of
such an address only this machine is asked, and it gets no key.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from ragidx.corpora.addresses import hidden
from ragidx.corpora.errors import SpecError
from ragidx.indexer.models.offline import is_this_machine

NAMED_IN = "RAGIDX_ENDPOINT"  # the variable of the environment
KEYS = ("RAGIDX_API_KEY", "OPENAI_API_KEY")  # variables of the environment, the first that is set
KEPT_AS = "endpoint"  # in the notes of a manifest
CANARY_FILE = "canary.f32"  # in an index: the vector of a text of ours, of length 1, float32 little-endian


@dataclass(frozen=True)
class Address:
    """Where an endpoint is."""

    url: str  # whole, with `/embeddings` at its end
    named: bool = True  # by the user in this run; one that an index keeps gets no key

    @property
    def place(self) -> str:
        """Host and port."""
        return urlsplit(self.url).netloc

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine."""
        return is_this_machine(urlsplit(self.url).hostname or "")


def address_of(endpoint: str) -> Address:
    """The address that a user means.

    >>> address_of("http://127.0.0.1:11434").url, address_of("https://api.example/v1/").url
    ('http://127.0.0.1:11434/v1/embeddings', 'https://api.example/v1/embeddings')

    Raises:
        SpecError: it is no address of HTTP, or has more than host, port and path.
    """
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # as a connection does: an empty or too long part of a name is an error
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https") or not endpoint.isascii() or not endpoint.isprintable():
        shown = hidden(endpoint) if set("@=") & set(endpoint) else endpoint
        raise SpecError(
            f"{ascii(shown)[:80]} is no address of a server",
            "write it as `endpoint=http://127.0.0.1:11434/v1`",
            where="`endpoint`",
        )
    if parts.username is not None or parts.query or parts.fragment or " " in endpoint:
        raise SpecError(  # not shown: it may hold a key
            "the address has more than host, port and path",
            f"put a key into the environment variable {KEYS[0]}, and nothing into the address",
            where="`endpoint`",
        )
    path = parts.path.rstrip("/") or "/v1"
    path += "" if path.endswith("/embeddings") else "/embeddings"
    return Address(f"{parts.scheme}://{parts.netloc}{path}")


def chosen_address(named: str | None, kept: object, model: str) -> Address:
    """The address that is named, here or in the environment, else the one that an index keeps in its notes.

    The index is not trusted: of its addresses only this machine is asked.

    Raises:
        SpecError: there is none, or that of the index is another machine.
    """
    named = named or os.environ.get(NAMED_IN)
    if named:
        return address_of(named)
    if not isinstance(kept, str):
        raise SpecError(
            f"'{model}' is a model of a server, and no server is named",
            "name it, such as `endpoint=http://127.0.0.1:11434/v1`",
            where="`endpoint`",
        )
    address = dataclasses.replace(address_of(kept), named=False)
    if not address.is_loopback:
        raise SpecError(
            f"the index was made with the endpoint {address.url}, which is another machine",
            f"name it, if texts may go there: `endpoint={address.url}`",
            where="`endpoint`",
        )
    return address


def api_key(address: Address) -> str:
    """The key for an address; empty for none.

    Raises:
        SpecError: a header cannot hold it; the message does not show it.
    """
    private = address.is_loopback or address.url.startswith("https:")
    found = ((name, os.environ.get(name, "").strip()) for name in KEYS if name == KEYS[0] or private)
    name, key = next(((name, key) for name, key in found if key), ("", ""))
    if not address.named:
        return ""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise SpecError("the key has characters that no key has", "set it again", where=name)
    return key
