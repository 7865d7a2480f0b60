"""What goes to Milvus and comes back: the fields of a collection, its rows, conditions on them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymilvus import DataType, Function, FunctionType, MilvusClient

from ragidx.pipelines.integrations.engines.conditions import Sql
from ragidx.pipelines.integrations.engines.layout import as_batch, schema_of, vectors_of
from ragidx.retriever.rows import VECTOR

if TYPE_CHECKING:
    from ragidx.indexer.arrays import Bools
    from ragidx.pipelines.integrations.engines.layout import AboutTable
    from ragidx.retriever.where.conditions import Condition

MAX_TEXT, MAX_ITEMS = 65_535, 4_096
"""Bytes of a text, and items of a list, that Milvus takes."""
WORDS = "_words"
"""The words of the texts, as Milvus counts them; no field has a column that begins with `_`."""

_TYPES = {
    pa.bool_(): DataType.BOOL,
    pa.int64(): DataType.INT64,
    pa.float64(): DataType.DOUBLE,
    pa.large_string(): DataType.VARCHAR,
    pa.timestamp("us"): DataType.INT64,
    pa.large_list(pa.large_string()): DataType.ARRAY,
}


class Expression(Sql):
    """The expressions of Milvus, of conditions with `not` at the leaves: there it can mind the nulls."""

    engine, brackets = "Milvus", "[]"
    signs: ClassVar[Mapping[str, str]] = {}

    def __init__(self, columns: Mapping[str, str], fields: Mapping[str, str], whole: Condition) -> None:
        super().__init__(columns, fields)
        self._with_lists = any(fields[name] == "list" for name in whole.fields)

    def written(self, condition: Condition) -> str:
        if condition.op != "not":
            return super().written(condition)
        [part] = condition.parts
        known = self.always(self.columns[part.field])  # type: ignore[index]  # a leaf has one
        return known if part.op == "is null" else f"({known} and not {super().written(part)})"

    def never(self, column: str) -> str:
        return f"({column} < 0 and {column} > 0)"

    def always(self, column: str) -> str:
        return f"({column} is not null)"

    def name(self, column: str) -> str:
        return column

    def text(self, value: str) -> str:
        return text_of(value)

    def time(self, value: datetime) -> str:
        return str((value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))

    def is_number(self, column: str) -> str:
        return self.always(column)  # no order of Milvus has NaN

    def has_item(self, column: str, item: str) -> str:
        return f"array_contains({column}, {item})"

    def text_test(self, test: str, column: str, value: str, field: str) -> str:
        if "\\\\" in value:  # Milvus Lite reads it as two
            self.cannot("a text with a backslash", field)
        pattern = re.sub("[%_]", r"\\\\\g<0>", value[1:-1])
        if pattern != value[1:-1] and self._with_lists:  # Milvus Lite then knows no escapes
            self.cannot("a text with % or _ beside a list", field)
        return f'({column} like "{"" if test == "starts with" else "%"}{pattern}%")'


def schema_for(about: AboutTable) -> Any:
    """The fields of a collection of rows."""
    schema = MilvusClient.create_schema()
    for field in schema_of(about):
        if field.name == VECTOR:
            schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=about.dim)
            continue
        kind: Any = _TYPES[field.type]
        more: dict[str, Any] = {}
        if kind in (DataType.VARCHAR, DataType.ARRAY):
            more |= {"max_length": MAX_TEXT}
        if kind == DataType.ARRAY:
            more |= {"max_capacity": MAX_ITEMS, "element_type": DataType.VARCHAR}
        more |= {"is_primary": True} if field.name == "chunk_id" else {"nullable": field.nullable}
        more |= {"enable_analyzer": True} if field.name == "text" else {}
        schema.add_field(field.name, kind, **more)
    schema.add_field(WORDS, DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(Function("words", FunctionType.BM25, ["text"], [WORDS]))
    return schema


def rows_over(rows: Any) -> dict[str, Bools]:
    """Which rows of a batch are over a limit of Milvus, by the reason."""
    texts, lists = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    for column in rows.columns:
        if pa.types.is_large_list(column.type):
            lists |= _over(pc.list_value_length(column), MAX_ITEMS)
            items = _over(pc.binary_length(pc.list_flatten(column)), MAX_TEXT)
            texts[pc.list_parent_indices(column).to_numpy()[items]] = True
        elif pa.types.is_large_string(column.type):
            texts |= _over(pc.binary_length(column), MAX_TEXT)
    return {f"a text of more than {MAX_TEXT:,} bytes": texts, f"a list of more than {MAX_ITEMS:,} items": lists}


def _over(sizes: Any, limit: int) -> Any:
    return pc.fill_null(pc.greater(sizes, limit), False).to_numpy(zero_copy_only=False)


def rows_to(batch: Any) -> list[dict[str, Any]]:
    """Rows as the client takes them: times in microseconds, vectors in float32."""
    plain = {
        field.name: (column.cast(pa.int64()) if pa.types.is_timestamp(field.type) else column).to_pylist()
        for field, column in zip(batch.schema, batch.columns, strict=True)
        if field.name != VECTOR
    }
    columns = [*plain.values(), vectors_of(batch).astype(np.float32)]
    return [dict(zip([*plain, VECTOR], row, strict=True)) for row in zip(*columns, strict=True)]


def batch_of(rows: Sequence[Mapping[str, Any]], schema: Any) -> Any:
    """A record batch of rows as the client gives them: the inverse of `rows_to`."""
    return as_batch(schema, lambda field: [row[field.name] for row in rows])


def one_of(column: str, values: Sequence[str]) -> str:
    """The expression that a column has one of these texts."""
    return f"({column} in [{', '.join(map(text_of, values))}])"


_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


def text_of(value: str) -> str:
    """A text as Milvus writes it."""
    return f'"{value.translate(_ESCAPED)}"'
