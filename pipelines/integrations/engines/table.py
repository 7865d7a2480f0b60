"""A table of rows in an engine: what each engine has to offer.

A table is what others may hold too: nothing is done to one that has no `AboutTable`, unless it is replaced.
"""

from __future__ import annotations

import re
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from ragidx.corpora.errors import EngineError, IndexFormatError, RagidxError, SpecError
from ragidx.indexer.arrays import slices
from ragidx.pipelines.integrations.engines.layout import DIGEST, NO_FIELDS, AboutTable, schema_of
from ragidx.pipelines.integrations.engines.target import Target

if TYPE_CHECKING:
    from ragidx.indexer.arrays import Bools, Floats
    from ragidx.retriever.where.conditions import Condition

INDEXED = 50_000
"""Rows from which a table gets the engine's approximate index; fewer are compared exactly."""

BLOCK = 1_000
"""Ids in one call."""


class ReplacedError(EngineError):
    """The rows that were opened are gone: others took their place."""

    @classmethod
    def of(cls, target: Target) -> Self:
        """The fault of a target."""
        return cls("its rows were replaced", "open it again", where=target.shown)


class Table(ABC):
    """A table of an engine. Rows are Arrow record batches of `layout.schema_of`, by `AboutTable.columns`.

    Attributes:
        has_words: whether the engine ranks texts by the words of a question.
        words_by: the name of what the engine ranks texts by.
        is_whole: whether the last export to it ended, as far as that can be seen.
        max_dim: the most dimensions that a vector can have.
        max_rows: the most rows of one answer.
        rows_in: the name of what holds the rows, which a replacement may make anew; empty: there is no such table.
    """

    has_words: ClassVar[bool] = False
    words_by: ClassVar[str] = "bm25"
    max_dim: ClassVar[int] = sys.maxsize
    max_rows: ClassVar[int] = sys.maxsize
    is_whole = True
    rows_in = ""
    _unreadable: IndexFormatError | None = None
    _about: AboutTable | None = None

    def __init__(self, target: Target) -> None:
        self.target = target
        with ExitStack() as undone:
            undone.callback(self.close)
            self._reach()
            undone.pop_all()

    def _reach(self) -> None:
        """Connect, and look."""
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Look at the state that is there now: `rows_in` and `_about`."""

    def about(self) -> AboutTable | None:
        """What the table holds; None: there is no such table.

        Raises:
            SpecError: there is a table of this name that has no `AboutTable`.
        """
        if self.rows_in and self._about is None:
            raise self.not_ours()
        return self._about

    def refused(self, rows: Any) -> Mapping[str, Bools]:
        """Which rows of a batch the engine cannot hold, by the reason."""
        return {}

    def check(self, about: AboutTable) -> None:
        """Check that the engine can hold such rows at all.

        Raises:
            SpecError: their dimension is over its limit.
        """
        if about.dim > self.max_dim:
            message = f"its vectors can have {self.max_dim:,} dimensions, and these have {about.dim:,}"
            raise SpecError(message, "build the index with fewer: `dim`", where=self.target.shown)

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
            rows: record batches of the rows to write, which are read once.
            gone: a function that gives the ids of the rows to delete; called when `rows` are read.
            about: what the table holds then; written last.
        """

    def snapshot(self) -> AbstractContextManager[None]:
        """A block in which all that this thread asks is answered from one state, where the engine can do that."""
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
            where: the condition of the rows that are read; None: all rows.
            columns: the columns that are read; None: all.
            ids: a column and values: only rows with one of these values there are read; None: all rows.
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

    def schema(self, columns: Sequence[str] | None = None) -> Any:
        """The Arrow schema of its rows, or of some columns."""
        assert self._about is not None
        whole = schema_of(self._about)
        return whole if columns is None else pa.schema([whole.field(name) for name in columns])

    def read_about(self, data: bytes | None) -> AboutTable | None:
        """The `AboutTable` in bytes; of what cannot be read `not_ours` says why, so that the table can be replaced."""
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
        """What the table holds; None: ragidx did not write it."""
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
        for batch in self.select():
            names = [fields.get(name, name) for name in batch.schema.names]
            own = [
                f"metadata.{name}" if name in NO_FIELDS and name != column else name
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


class Aliased(Table):
    """A table whose name is an alias: of a collection `NAME_<8 hex digits>`, with its `AboutTable` in another.

    A replacement fills a new collection and then moves the alias: whoever opened the table before must `follow`. An
    update is not atomic: a reader sees its rows change one by one, `AboutTable` last; the next one repairs what broke
    off. The single steps are an engine's own. `_asking` makes one line of what it raises, and `ReplacedError` of a
    collection that is gone; `_aliases` has a collection of the name of the table as itself.
    """

    _client: Any = None

    @abstractmethod
    def _connect(self) -> None: ...
    @abstractmethod
    def _asking(self) -> AbstractContextManager[Any]: ...
    @abstractmethod
    def _aliases(self) -> Mapping[str, str]: ...
    @abstractmethod
    def _collections(self) -> Iterable[str]: ...
    @abstractmethod
    def _drop(self, collection: str) -> None: ...
    @abstractmethod
    def _move_alias(self, collection: str, *, is_new: bool) -> None: ...
    @abstractmethod
    def _make(self, collection: str, rows: Iterable[Any], about: AboutTable) -> None: ...
    @abstractmethod
    def _write(self, collection: str, rows: Iterable[Any]) -> None: ...
    @abstractmethod
    def _delete(self, ids: Sequence[str]) -> None: ...
    @abstractmethod
    def _write_about(self, collection: str, about: AboutTable) -> None: ...
    @abstractmethod
    def _stored(self, collection: str) -> bytes | None: ...

    def _open(self) -> None:
        with self._asking():
            rows_in = self._aliases().get(self.target.name, "")
            self._about = self.read_about(self._stored(rows_in)) if rows_in else None
            self.rows_in = rows_in

    def replace(self, rows: Iterable[Any], about: AboutTable) -> None:
        if self._client is None:
            self._connect()
        name, made = self.target.name, f"{self.target.name}_{secrets.token_hex(4)}"
        with self._asking():
            self._make(made, rows, about)
            self._write_about(made, about)
            before = self._aliases().get(name)
            if before == name:  # no alias can have the name of a collection
                self._drop(name)
            self._move_alias(made, is_new=before in (None, name))
            used, own = {*self._aliases().values()}, re.compile(rf"({name}_[0-9a-f]{{8}})_about")
            for match in filter(None, map(own.fullmatch, self._collections())):  # the last, and what broke off
                if match[1] not in used:
                    self._drop(match[1])
                    self._drop(match[0])
        self._open()

    def update(self, rows: Iterable[Any], gone: Callable[[], Sequence[str]], about: AboutTable) -> None:
        with self._asking():
            self._write(self.rows_in, rows)
            for ids in slices(gone(), BLOCK):
                self._delete(ids)
            self._write_about(self.rows_in, about)
        self._open()
