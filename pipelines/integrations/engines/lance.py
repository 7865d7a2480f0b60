"""LanceDB: a table in a folder or an object store. `AboutTable` is in the metadata of the field `vector`.

LanceDB commits rows and each index by themselves, so what is read is the version that has the tag `ragidx`: it is moved
when all is there. A table that was opened shows the state that it found until it is opened again.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("LANCEDB_LOG", "error")  # it warns of each new table, on stderr

import lancedb
import pyarrow as pa
from lancedb.index import FTS, HnswSq

from ragidx.indexer.arrays import slices
from ragidx.pipelines.integrations.engines.conditions import Sql, nnf
from ragidx.pipelines.integrations.engines.lance_patterns import UntranslatableError, rust
from ragidx.pipelines.integrations.engines.layout import KEY, SCORE, AboutTable, schema_of
from ragidx.pipelines.integrations.engines.table import BLOCK, INDEXED, Table
from ragidx.retriever.rows import VECTOR

if TYPE_CHECKING:
    from ragidx.indexer.arrays import Floats
    from ragidx.retriever.where.conditions import Condition, Literal

_TAG = "ragidx"
_FAULTS = (RuntimeError, OSError, ValueError)


class LanceTable(Table):
    """A table of LanceDB."""

    has_words = True
    _opened: Any = None

    @functools.cached_property
    def _database(self) -> Any:
        return lancedb.connect(self.target.place)

    def _open(self) -> None:
        """Look at the state that is there now."""
        self._opened, self._about, self.rows_in = None, None, ""
        place = self.target.place
        if "://" not in place and not Path(place).exists():  # to connect would make the folder
            return
        with self.target.faults(*_FAULTS):
            if self.target.name not in self._names():
                return
            self._opened, self.rows_in = self._database.open_table(self.target.name), self.target.name
            if (found := _stored(self._opened)) is not None:
                tagged = self._opened.tags.list().get(_TAG)
                self.is_whole = tagged is not None
                self._opened.checkout(self._opened.version if tagged is None else tagged["version"])
                found = _stored(self._opened)
        self._about = self.read_about(found)

    def _latest(self) -> Any:
        """The table to write to. Another state that was begun, and has no tag, is undone."""
        table = self._database.open_table(self.target.name)
        if _stored(table) != _stored(self._opened):
            table.checkout(self._opened.version)
            table.restore()
        return table

    def _show(self, table: Any, about: AboutTable) -> None:
        """Make the indexes that are missing, and let all that was written be read."""
        indexed = {column for one in table.list_indices() for column in one.columns}
        if about.n_rows >= INDEXED and VECTOR not in indexed:
            table.create_index(VECTOR, config=HnswSq(distance_type="dot"))
        if "text" not in indexed:
            table.create_index("text", config=FTS(**_words(about)))
        move = table.tags.update if _TAG in table.tags.list() else table.tags.create
        move(_TAG, table.version)
        table.optimize()  # this makes a version, and old ones with a tag would be in its way
        table.tags.update(_TAG, table.version)

    def _names(self) -> set[str]:
        names, page = set[str](), None
        while page is None or page.page_token:
            page = self._database.list_tables(page_token=None if page is None else page.page_token)
            names.update(page.tables)
        return names

    def replace(self, rows: Iterable[Any], about: AboutTable) -> None:
        schema = _with_about(schema_of(about), about)
        with self.target.faults(*_FAULTS):
            batches = (batch.cast(schema) for batch in rows)
            made = self._database.create_table(
                self.target.name, pa.RecordBatchReader.from_batches(schema, batches), mode="overwrite"
            )
            self._show(made, about)
        self._open()

    def digests(self) -> dict[str, int]:
        with self.target.faults(*_FAULTS):
            self._opened = self._latest()  # an update that broke off may have left rows
        return super().digests()

    def update(self, rows: Iterable[Any], gone: Callable[[], Sequence[str]], about: AboutTable) -> None:
        schema = schema_of(about)
        with self.target.faults(*_FAULTS):
            table = self._latest()
            first = next(iter(rows := iter(rows)), None)
            if first is not None:
                reader = pa.RecordBatchReader.from_batches(schema, itertools.chain([first], rows))
                table.merge_insert("chunk_id").when_matched_update_all().when_not_matched_insert_all().execute(reader)
            for block in slices(gone(), BLOCK):
                table.delete(f"chunk_id IN ({', '.join(map(_text, block))})")
            table.update_field_metadata({"path": VECTOR, "metadata": {KEY: about.to_bytes().decode()}})
            self._show(table, about)
        self._open()

    def nearest(self, vector: Floats, k: int, where: Condition | None) -> Any:
        with self.target.faults(*_FAULTS):
            asked = self._asked(self._opened.search(vector, vector_column_name=VECTOR).distance_type("dot"), where)
            return asked.limit(k).to_arrow().drop_columns(["_distance"])

    def by_words(self, text: str, k: int, where: Condition | None) -> Any:
        with self.target.faults(*_FAULTS):
            found = self._asked(self._opened.search(text, query_type="fts"), where).limit(k).to_arrow()
        return found.rename_columns({"_score": SCORE})

    def select(
        self,
        where: Condition | None = None,
        columns: Sequence[str] | None = None,
        ids: tuple[str, Sequence[str]] | None = None,
    ) -> Iterator[Any]:
        filters = [[self._filter(where)]] if where is not None else [[]]
        if ids is not None:
            column, values = ids
            tests = [f"{column} IN ({', '.join(map(_text, block))})" for block in slices(values, BLOCK)]
            filters = [[*filters[0], test] for test in tests]
        for parts in filters:
            with self.target.faults(*_FAULTS):
                asked = self._opened.search()
                if parts:
                    asked = asked.where(" AND ".join(parts))
                if columns is not None:
                    asked = asked.select(list(columns))
                yield from asked.to_batches(4_096)

    def foreign(self) -> Iterator[Any]:
        if self._opened is not None:
            with self.target.faults(*_FAULTS):
                yield from self._opened.search().to_batches(4_096)

    def count(self, where: Condition | None = None) -> int:
        with self.target.faults(*_FAULTS):
            return int(self._opened.count_rows(None if where is None else self._filter(where)))

    def _asked(self, asked: Any, where: Condition | None) -> Any:
        return asked if where is None else asked.where(self._filter(where), prefilter=True)

    def _filter(self, where: Condition) -> str:
        assert self._about is not None
        return _LanceSql(self._about.columns(), self._about.fields).written(nnf(where))  # it takes long over `NOT NOT`


table = LanceTable


class _LanceSql(Sql):
    """The SQL of DataFusion."""

    engine = "LanceDB"

    def written(self, condition: Condition) -> str:
        # DataFusion makes `x NOT IN (1) OR x NOT IN (2)` true where x is missing. `not` is at the comparisons here, so
        # a comparison that is unknown may as well be false.
        text = super().written(condition)
        tested = condition.parts[0] if condition.op == "not" else condition
        if condition.op not in ("not", "!=") or tested.field is None or tested.op == "is null":
            return text
        return f"({self.name(self.columns[tested.field])} IS NOT NULL AND {text})"

    def name(self, column: str) -> str:
        return f"`{column}`"

    def text(self, value: str) -> str:
        return _text(value)

    def time(self, value: datetime) -> str:
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(' ')}'"  # `%Y` has no leading zeros

    def literal(self, value: Literal) -> str:
        least = not isinstance(value, float) and value == -(2**63)  # which it reads as the negative of a float
        return f"({-(2**63) + 1} - 1)" if least else super().literal(value)

    def is_number(self, column: str) -> str:
        return f"NOT isnan({column})"

    def has_item(self, column: str, item: str) -> str:
        return f"array_has({column}, {item})"

    def text_test(self, test: str, column: str, value: str, field: str) -> str:
        return f"{'starts_with' if test == 'starts with' else test}({column}, {value})"

    def matches(self, column: str, pattern: str, field: str) -> str:
        try:
            found = rust(pattern)
        except UntranslatableError as fault:
            self.cannot(f"matches with {fault}", field)
        # Without a third argument the expression may become a LIKE, where a backslash means something else.
        return f"regexp_like({column}, {_text(f'(?-s:{found})')}, 's')"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _stored(table: Any) -> bytes | None:
    """The `AboutTable` of the version that a table is at."""
    schema = table.schema
    metadata = (schema.field(VECTOR).metadata or {}) if VECTOR in schema.names else {}
    return metadata.get(KEY.encode())


def _with_about(schema: Any, about: AboutTable) -> Any:
    at = schema.get_field_index(VECTOR)
    return schema.set(at, schema.field(at).with_metadata({KEY: about.to_bytes()}))


def _words(about: AboutTable) -> dict[str, Any]:
    """How texts become words: stemmed as those of the index where LanceDB has its language."""
    language = about.stemmer.capitalize()
    known = {"stem": True, "language": language, "remove_stop_words": False} if language in _LANGUAGES else {}
    return known or {"stem": False, "remove_stop_words": False}


_LANGUAGES = {
    *("Arabic", "Danish", "Dutch", "English", "Finnish", "French", "German", "Greek", "Hungarian", "Italian"),
    *("Norwegian", "Portuguese", "Romanian", "Russian", "Spanish", "Swedish", "Tamil", "Turkish"),
}
