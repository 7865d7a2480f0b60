"""A table of rows in an engine: what each engine has to offer, and the target that names one.

    lancedb:DIR[#NAME]    postgresql://HOST/DATABASE[#NAME]    qdrant:DIR or URL[#NAME]    milvus:FILE or URL[#NAME]

A table is what others may hold too: nothing is done to one that has no `AboutTable`, unless it is replaced.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import urlsplit

from ragidx.corpora.addresses import PLAIN, are_hosts, hidden, pairs_of
from ragidx.corpora.errors import EngineError, IndexFormatError, RagidxError, SpecError, missing_extra, unknown_name
from ragidx.indexer.models.offline import check_allowed, is_offline
from ragidx.pipelines.integrations.engines.about import AboutTable
from ragidx.pipelines.integrations.engines.columns import DIGEST, FIXED
from ragidx.retriever.rows import VECTOR

if TYPE_CHECKING:
    from ragidx.indexer.arrays import Bools, Floats
    from ragidx.retriever.where.conditions import Condition

INDEXED = 50_000
"""Rows from which a table gets the engine's approximate index; fewer are compared exactly."""

_DEFAULT_NAME = "ragidx"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")


@dataclass(frozen=True)
class Target:
    """A table, by its engine, the place of that, and its name.

    Attributes:
        engine: lancedb, postgresql, qdrant or milvus.
        place: a path or a URL; it may hold a password, and is never shown.
        name: of the table.
        shown: all of it, without what is secret.
    """

    engine: str
    place: str = field(repr=False)
    name: str
    shown: str

    @classmethod
    def parse(cls, text: str, *, to_read: bool = False) -> Self:
        """The target that a text names.

        Args:
            text: as above.
            to_read: whether it may be one that is only read.

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


class ReplacedError(EngineError):
    """The rows that were opened are gone: others took their place."""

    @classmethod
    def of(cls, target: Target) -> Self:
        """The fault of a target."""
        return cls("its rows were replaced", "open it again", where=target.shown)


class Table(ABC):
    """A table of an engine. Rows are Arrow record batches of `columns.schema_of`, by `AboutTable.columns`.

    Attributes:
        has_words: whether the engine ranks texts by the words of a question.
        words_by: what it ranks them by.
        is_whole: whether the last export to it ended, as far as that can be seen.
        max_rows: of one answer.
        rows_in: what holds the rows, where a replacement of the same state makes another and removes this one.
    """

    has_words: ClassVar[bool] = False
    words_by: ClassVar[str] = "bm25"
    max_rows: ClassVar[int] = sys.maxsize
    is_whole = True
    rows_in = ""
    _unreadable: IndexFormatError | None = None
    _about: AboutTable | None = None
    target: Target

    @abstractmethod
    def _open(self) -> None:
        """Look at the state that is there now."""

    @abstractmethod
    def about(self) -> AboutTable | None:
        """What it holds; None: there is no such table.

        Raises:
            SpecError: there is a table of this name that has no `AboutTable`.
        """

    def refused(self, rows: Any) -> Mapping[str, Bools]:
        """Which rows of a batch the engine cannot hold, by the reason."""
        return {}

    def check(self, about: AboutTable) -> None:
        """Whether the engine can hold such rows at all.

        Raises:
            SpecError: their dimension is over its limit.
        """
        return

    @abstractmethod
    def replace(self, rows: Iterable[Any], about: AboutTable) -> None:
        """Put these rows in place of all that it holds; a reader sees the old ones or the new ones."""

    def digests(self) -> dict[str, int]:
        """The digest of each row, by its `chunk_id`."""
        found: dict[str, int] = {}
        for batch in self.select(columns=["chunk_id", DIGEST]):
            found.update(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
        return found

    @abstractmethod
    def update(self, rows: Iterable[Any], gone: Callable[[], Sequence[str]], about: AboutTable) -> None:
        """Add these rows, or put them in place of those with the same `chunk_id`.

        Args:
            rows: to read once.
            gone: the ids of the rows to delete; asked when `rows` are read.
            about: what it holds then; written last.
        """

    def snapshot(self) -> AbstractContextManager[None]:
        """What is asked within, by this thread, is answered from one state; where the engine can do that."""
        return nullcontext()

    @abstractmethod
    def nearest(self, vector: Floats, k: int, where: Condition | None) -> Any:
        """The k rows with the best cosine with a vector (dim,) of length 1, as a table with the vectors.

        Cosines are computed again of these: an engine may round, and some give none.

        Raises:
            QueryError: the engine cannot express the condition.
        """

    def by_words(self, text: str, k: int, where: Condition | None) -> Any:
        """The k best rows by the engine's own full-text search, with `SCORE`; only where it `has_words`."""
        raise NotImplementedError

    @abstractmethod
    def select(
        self,
        where: Condition | None = None,
        columns: Sequence[str] | None = None,
        ids: tuple[str, Sequence[str]] | None = None,
    ) -> Iterator[Any]:
        """Rows as record batches, in no order.

        Args:
            where: those that fulfil it.
            columns: of these columns; None: all.
            ids: a column and values: rows that have one of these there.
        """

    @abstractmethod
    def count(self, where: Condition | None = None) -> int:
        """How many rows fulfil a condition."""

    def follow(self) -> None:
        """Look at the rows that took the place of those that were opened.

        Raises:
            EngineError: their vectors or columns are others.
        """
        before = self._about
        self._open()
        if (now := self.about()) is None or before is None or not now.has_shape_of(before):
            self._about = before
            raise ReplacedError.of(self.target)

    def read_about(self, data: bytes | None) -> AboutTable | None:
        """What bytes say; of those that cannot be read `not_ours` says why, so that the table can be replaced."""
        self._unreadable = None
        try:
            return None if data is None else AboutTable.from_bytes(data, self.target.shown)
        except IndexFormatError as fault:
            self._unreadable = fault
            return None

    def not_ours(self, message: str = "it is a table that ragidx did not write") -> RagidxError:
        """The fault of a table that has no `AboutTable`, or one that does not fit."""
        if self._unreadable is not None:
            return self._unreadable
        hint = "name another table: TARGET#NAME, or replace it: `ragidx export --replace`"
        return SpecError(message, hint, where=self.target.shown)

    def known(self) -> AboutTable | None:
        """What it holds; None: ragidx did not write it."""
        try:
            return self.about()
        except SpecError:
            return None

    def read(self) -> Iterator[Any]:
        """All rows as record batches, whoever wrote them; of an index, with the names that its fields have."""
        about = self.known()
        if about is None:
            yield from self.foreign()
            return
        fields = {column: field for field, column in about.own_columns().items()}
        clashes = {*FIXED, DIGEST, VECTOR}
        for batch in self.select():
            names = [fields.get(name, name) for name in batch.schema.names]
            own = [
                f"metadata.{name}" if name in clashes and name != column else name
                for name, column in zip(names, batch.schema.names, strict=True)
            ]
            yield batch.rename_columns(own)

    def foreign(self) -> Iterator[Any]:
        """The rows of a table that ragidx did not write, as record batches; nothing where there is no table.

        Raises:
            SpecError: such tables of this engine are not read.
        """
        try:
            self.about()
        except SpecError:
            message = f"ragidx did not write it, and reads no tables of others from {self.target.engine}"
            raise SpecError(message, "write its rows to Parquet, and build of that", where=self.target.shown) from None
        return iter(())

    def close(self) -> None:
        """Release the connection."""
        return


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
