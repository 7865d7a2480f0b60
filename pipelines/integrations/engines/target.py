"""The target that names a table of an engine.

lancedb:DIR[#NAME]    postgresql://HOST/DATABASE[#NAME]    qdrant:DIR or URL[#NAME]    milvus:FILE or URL[#NAME]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from ragidx.corpora.addresses import PLAIN, are_hosts, hidden, pairs_of
from ragidx.corpora.errors import EngineError, SpecError, missing_extra, unknown_name
from ragidx.indexer.models.offline import check_allowed, is_offline

if TYPE_CHECKING:
    from ragidx.pipelines.integrations.engines.table import Table

_DEFAULT_NAME = "ragidx"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")


@dataclass(frozen=True)
class Target:
    """A table, by its engine, the place of that, and its name.

    Attributes:
        engine: lancedb, postgresql, qdrant or milvus.
        place: a path or a URL; it may hold a password, and is never shown.
        name: the name of the table.
        shown: the whole target as text, without what is secret.
    """

    engine: str
    place: str = field(repr=False)
    name: str
    shown: str

    @classmethod
    def parse(cls, text: str, *, to_read: bool = False) -> Self:
        """The target that a text names.

        Args:
            text: the target, as the head of this module shows it.
            to_read: whether an engine that is only read may be named.

        Raises:
            SpecError: there is no such engine, it is no URL, or a table cannot have that name.
        """
        engine, _, place = text.partition(":")
        place, name = _split(place, is_address=(is_address := _is_address(engine, place)))
        known = [name for name in ENGINES if to_read or name not in READ_ONLY]
        if engine not in known or not place:
            fault = unknown_name("engine", engine if engine.isidentifier() else "", known)
            raise SpecError(fault.message, f"name one as {', '.join(EXAMPLES)}", where=hidden(text))
        if engine == "postgresql" and place.startswith("//"):
            place = f"postgresql:{place}"
        if is_address:
            _check_address(engine, place, has_name=bool(name))
        shown = place if place.startswith("postgresql:") else f"{engine}:{place}"
        shown, name = hidden(shown) if is_address else shown, name or _DEFAULT_NAME
        if _NAME.fullmatch(name) is None:
            hint = "name it by up to 48 letters, digits and _, a letter first"
            raise SpecError(f"no table can have the name {name[:60]!r}", hint, where=shown)
        return cls(engine, place, name, f"{shown}#{name}")

    def open(self) -> Table:
        """The table, which need not exist.

        Raises:
            SpecError: it is on another machine, and no network may be used.
            EngineError: the engine does not answer, or its package is not installed.
        """
        module, package = ENGINES[self.engine]
        try:
            engine = import_module(f"ragidx.pipelines.integrations.engines.{module}")
            if is_offline():
                for host in engine.hosts(self) if self.engine == "postgresql" else self._hosts():
                    check_allowed(host, where=self.shown)
            return engine.table(self)  # type: ignore[no-any-return]
        except ModuleNotFoundError as fault:
            if (fault.name or "").startswith("ragidx"):
                raise
            raise missing_extra(f"a target of {self.engine}", [package], self.engine) from fault

    def _hosts(self) -> list[str]:
        """The server that a URL names; an object store is another machine, whatever its name."""
        scheme, mark, _ = self.place.partition("://")
        if not mark or scheme == "file":
            return []
        return [f"{scheme}://" if self.engine == "lancedb" else urlsplit(self.place).hostname or ""]

    @contextmanager
    def faults(self, *of_engine: type[Exception]) -> Iterator[None]:
        """Turn what an engine raises into one line, without what was raised: that may hold a key."""
        try:
            yield
        except of_engine as fault:
            said = " ".join(str(fault).split()) or type(fault).__name__
            hint = "look at the engine: whether it runs, and what this user may do there"
            error = EngineError(said[:500], hint, where=self.shown)
            try:
                raise error from None
            finally:
                error.__context__ = None


ENGINES: Mapping[str, tuple[str, str]] = {
    "lancedb": ("lance", "lancedb"),
    "postgresql": ("postgres", "psycopg"),
    "qdrant": ("qdrant", "qdrant-client"),
    "milvus": ("milvus", "pymilvus"),
    "chroma": ("chroma", "chromadb"),
}
"""The module of each engine, and the package it needs."""
READ_ONLY = {"chroma"}
"""Of these, those whose tables are only read."""
EXAMPLES = ("lancedb:DIR", "postgresql://HOST/DATABASE", "qdrant:URL", "milvus:URL")


def is_target(text: str) -> bool:
    """Whether a text names an engine, and no folder."""
    return text.partition(":")[0] in ENGINES


def _is_address(engine: str, place: str) -> bool:
    """Whether a place is that of a server, or looks like one: then it may hold a password."""
    return engine == "postgresql" or re.match(r"(\w+:)?//|[^/\\]*:.*@", place, re.DOTALL) is not None


def _split(text: str, *, is_address: bool) -> tuple[str, str]:
    """The place, and the name after the last #; in an address a # may be in a password."""
    place, sign, name = text.rpartition("#")
    in_password = r"[@=]" if "//" in text else r"[@=\s'\"\\]"
    return (text, "") if not sign or (is_address and re.search(in_password, name)) else (place, name)


def _check_address(engine: str, place: str, *, has_name: bool) -> None:
    """Whether a password in an address can only be what it is: an engine's messages show what it takes for a host.

    Raises:
        SpecError: it is no URL; the message shows nothing of it.
    """
    head, sign, rest = place.partition("//")
    is_url = bool(sign) and "=" not in head
    pairs = pairs_of(place) or []
    if not is_url:
        is_one = engine == "postgresql" and bool(pairs)
    elif head.endswith(("s3:", "gs:", "az:")):
        return
    else:
        user, _, rest = rest.rpartition("@")
        is_one = not set("@/") & set(user) and are_hosts(re.split("[/?#]", rest)[0])
        try:
            urlsplit(place)
        except ValueError:
            is_one = False
    if not is_one:
        hint = f"name one as {', '.join(EXAMPLES)}; in a password write @ as %40, / as %2F, # as %23 and % as %25"
        raise SpecError("it is no URL", hint, where=engine)
    if is_url:
        key, _, value = rest.rpartition("&")[2].partition("=")
        is_end = key in PLAIN and bool(value)
    else:
        key, value = pairs[-1]
        is_end = key in PLAIN or value.startswith("'")
    if has_name and not is_end and re.search(r"(?i)(password|token|key|secret)\s*=", rest if is_url else place):
        hint = "write the password before another option, so that it does not end at the name of the table"
        raise SpecError("a # stands right behind a password, and may belong to it", hint, where=engine)
