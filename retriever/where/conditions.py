"""Conditions on metadata: a tree that says for each row of a table whether it passes.

pyarrow.Table, one column a field -> (rows,) bool. What builds the tree from text, and binds literals to the fields'
types, is `ragidx.retriever.where.parser`.

Three-valued logic, as in SQL: a comparison with a missing value (null) is unknown, `not` of unknown is unknown, `and`
is false and `or` true where one side says so already; a row passes where the whole is true. So `not year > 5` leaves
out rows without a year, and `year is null` finds them. A column that a table does not have is null in every row.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Literal: TypeAlias = bool | int | float | str | datetime

TEXT_TESTS: dict[str, Callable[[Any, str], Any]] = {
    "starts with": pc.starts_with,
    "contains": pc.match_substring,
    "matches": pc.match_substring_regex,  # RE2: linear in the text, anywhere in it
}

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_KERNELS = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal", "==": "equal", "!=": "not_equal"}
_INT64 = range(-(2**63), 2**63)


class Condition(ABC):
    """A node of the tree, equal by value."""

    __slots__ = ()

    @property
    @abstractmethod
    def fields(self) -> frozenset[str]:
        """The fields that the condition reads."""

    def mask(self, table: pa.Table) -> NDArray[np.bool_]:
        """(rows,) True where the row passes; unknown is False."""
        known = pc.fill_null(self._answer(table), False)
        rows: NDArray[np.bool_] = known.to_numpy(zero_copy_only=False) if table.num_rows else np.zeros(0, np.bool_)
        return rows

    @abstractmethod
    def _answer(self, table: pa.Table) -> Any:
        """A Boolean array of pyarrow with a null where the answer is unknown."""


@dataclass(frozen=True, slots=True)
class _OfField(Condition):
    field: str

    @property
    def fields(self) -> frozenset[str]:
        """The one field."""
        return frozenset([self.field])


@dataclass(frozen=True, slots=True)
class _OfParts(Condition):
    parts: tuple[Condition, ...]

    @property
    def fields(self) -> frozenset[str]:
        """Those of all parts."""
        return frozenset().union(*(part.fields for part in self.parts))


@dataclass(frozen=True, slots=True)
class Compare(_OfField):
    """`field op value`; numbers are compared exactly, whatever their types."""

    op: str
    value: Literal

    def _answer(self, table: pa.Table) -> Any:
        column = _column(table, self.field, self.value)
        if not pa.types.is_integer(column.type):
            return pc.call_function(_KERNELS[self.op], [column, pa.scalar(self.value, _type_of(self.value))])
        op, bound = _whole(self.op, self.value)
        if bound not in _INT64:  # every row is on the same side of it
            return _if_known(column, pa.scalar(_ORDER[op](0, bound)))
        return pc.call_function(_KERNELS[op], [column, pa.scalar(bound, pa.int64())])


@dataclass(frozen=True, slots=True)
class OneOf(_OfField):
    """`field in (a, b, ...)`."""

    values: tuple[Literal, ...]

    def _answer(self, table: pa.Table) -> Any:
        column = _column(table, self.field, self.values[0])
        values: list[Literal] = list(self.values)
        if pa.types.is_integer(column.type):
            values = [bound for value in self.values if (bound := _whole("==", value)[1]) in _INT64]
        return _if_known(column, pc.is_in(column, value_set=pa.array(values, column.type)))


@dataclass(frozen=True, slots=True)
class IsNull(_OfField):
    """`field is null`: never unknown."""

    def _answer(self, table: pa.Table) -> Any:
        return pc.is_null(_column(table, self.field, None))


@dataclass(frozen=True, slots=True)
class TextTest(_OfField):
    """`field starts with "x"`, `contains`, `matches` (a regular expression of RE2, found anywhere)."""

    test: str
    text: str

    def _answer(self, table: pa.Table) -> Any:
        return TEXT_TESTS[self.test](_column(table, self.field, self.text), self.text)


@dataclass(frozen=True, slots=True)
class HasItem(_OfField):
    """`field contains "x"` of a list: one of its items is the text, whole."""

    item: str

    def _answer(self, table: pa.Table) -> Any:
        if self.field not in table.column_names:
            return pa.nulls(table.num_rows, pa.bool_())
        column = table.column(self.field).combine_chunks()
        found = pc.list_parent_indices(column).filter(pc.equal(pc.list_flatten(column), self.item))
        rows = np.zeros(len(column), np.bool_)
        rows[found.to_numpy()] = True
        return _if_known(column, pa.array(rows))


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """`not inner`; unknown stays unknown."""

    inner: Condition

    @property
    def fields(self) -> frozenset[str]:
        """Those of the inner condition."""
        return self.inner.fields

    def _answer(self, table: pa.Table) -> Any:
        return pc.invert(self.inner._answer(table))


@dataclass(frozen=True, slots=True)
class And(_OfParts):
    """`a and b and ...`."""

    def _answer(self, table: pa.Table) -> Any:
        return reduce(pc.and_kleene, (part._answer(table) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Or(_OfParts):
    """`a or b or ...`."""

    def _answer(self, table: pa.Table) -> Any:
        return reduce(pc.or_kleene, (part._answer(table) for part in self.parts))


def _whole(op: str, value: Literal) -> tuple[str, int]:
    """The comparison of whole numbers that says the same; a bound outside of int64 where it is never or always true."""
    assert not isinstance(value, str | datetime)  # the column holds numbers
    if not isinstance(value, float) or value.is_integer():
        return op, int(value)
    if op in ("==", "!="):
        return op, _INT64.stop
    return ("<=" if op in ("<", "<=") else ">"), math.floor(value)


def _if_known(column: Any, answer: Any) -> Any:
    return pc.if_else(pc.is_valid(column), answer, pa.scalar(None, pa.bool_()))


def _column(table: pa.Table, field: str, like: Literal | None) -> Any:
    """The column in a type that compares with `like`; integers are int64, and there are no dictionaries."""
    if field not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, _type_of(like))])
    column = table.column(field)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if isinstance(like, str):
        return column.cast(pa.large_string())
    if isinstance(like, datetime):
        return column.cast(pa.timestamp("us"))
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.float64()) if pa.types.is_floating(column.type) else column


def _type_of(value: Literal | None) -> Any:
    if value is None or isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, str):
        return pa.large_string()
    if isinstance(value, datetime):
        return pa.timestamp("us")
    return pa.float64() if isinstance(value, float) else pa.int64()
