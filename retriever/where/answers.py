"""Which rows of a table pass a condition, whose literals have the types of the fields.

a condition, pyarrow.Table with one column a field -> (rows,) bool

Three-valued logic, as in SQL: a comparison with a missing value (null) is unknown, `not` of unknown is unknown, `and`
is false and `or` true where one side says so already; a row passes where the whole is true. So `not year > 5` leaves
out rows without a year, and `year is null` finds them. A column that a table does not have is null in every row.
Texts are compared in Unicode form NFC.
"""

from __future__ import annotations

import math
import operator
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ragidx.retriever.where.conditions import Condition, Literal

TEXT_TESTS: dict[str, Callable[[Any, str], Any]] = {
    "starts with": pc.starts_with,
    "contains": pc.match_substring,
    "matches": pc.match_substring_regex,  # RE2: linear in the text, anywhere in it
}
COMPARISONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], bool]]] = {
    "<": (pc.less, operator.lt),
    "<=": (pc.less_equal, operator.le),
    ">": (pc.greater, operator.gt),
    ">=": (pc.greater_equal, operator.ge),
    "==": (pc.equal, operator.eq),
    "!=": (pc.not_equal, operator.ne),
}
"""Of a column with a value, and of two numbers."""

_INT64 = range(-(2**63), 2**63)
_BLOCK = 1 << 18  # rows


def mask(condition: Condition, table: pa.Table) -> NDArray[np.bool_]:
    """(rows,) True where a row passes a condition that was bound to the table's types; unknown is False."""
    found = [np.zeros(0, np.bool_)]
    for start in range(0, table.num_rows, _BLOCK):  # the answers of all parts are held at once
        block = table.slice(start, _BLOCK)
        known = pc.fill_null(condition.fold(lambda node, inner: _answer(node, inner, block)), False)  # noqa: B023
        found.append(known.to_numpy(zero_copy_only=False))
    return np.concatenate(found)


def _answer(node: Condition, inner: list[Any], table: pa.Table) -> Any:
    """A Boolean array of pyarrow with a null where the answer is unknown."""
    if node.op == "not":
        return pc.invert(inner[0])
    if node.parts:
        return reduce(pc.and_kleene if node.op == "and" else pc.or_kleene, inner)
    like = node.values[0] if node.values and node.op != "has item" else None
    column = _column(table, node.field, like)
    if node.test is not None:
        return _passing(column, node.test)
    values = [unicodedata.normalize("NFC", value) if isinstance(value, str) else value for value in node.values]
    return _tested(column, node.op, values)


def _passing(column: Any, test: Callable[[Any], bool]) -> Any:
    """Where the value passes a test in Python, which sees equal values once."""
    column = column.combine_chunks()
    if pa.types.is_large_list(column.type):
        return pa.array([None if one is None else bool(test(one)) for one in column.to_pylist()], pa.bool_())
    encoded = column.dictionary_encode()
    answers = [bool(test(one)) for one in encoded.dictionary.to_pylist()]
    return pa.array(answers, pa.bool_()).take(encoded.indices)


def _tested(column: Any, op: str, values: Sequence[Literal]) -> Any:
    if op == "is null":
        return pc.is_null(column)
    if any(isinstance(value, str) and not value.isascii() for value in values) and op != "has item":
        column = pc.utf8_normalize(column, "NFC")  # ASCII is the same in every form
    if op == "in":
        return _is_one_of(column, values)
    if op == "has item":
        return _has_item(column, values[0])
    if op in TEXT_TESTS:
        return TEXT_TESTS[op](column, str(values[0]))
    return _compared(column, op, values[0])


def _compared(column: Any, op: str, value: Literal) -> Any:
    """`column op value`; numbers are compared exactly, whatever their types."""
    if not pa.types.is_integer(column.type):
        return COMPARISONS[op][0](column, pa.scalar(value, _type_of(value)))
    op, bound = whole(op, value)
    if bound not in _INT64:  # every row is on the same side of it
        return _if_known(column, pa.scalar(COMPARISONS[op][1](0, bound)))
    return COMPARISONS[op][0](column, pa.scalar(bound, pa.int64()))


def _is_one_of(column: Any, values: Sequence[Literal]) -> Any:
    """Where it is one of the values, all of one type."""
    if pa.types.is_integer(column.type):
        values = [bound for value in values if (bound := whole("==", value)[1]) in _INT64]
    found = pa.array(values, column.type)
    if pa.types.is_floating(column.type):  # `is_in` compares bits, and + 0.0 makes -0.0 the other zero
        column, found = pc.add(column, 0.0), pc.add(found, 0.0)
    return _if_known(column, pc.is_in(column, value_set=found))


def _has_item(column: Any, item: Literal) -> Any:
    """Where one of the items of a list is this text."""
    if not pa.types.is_large_list(column.type):  # the table does not have it
        return column
    lists = column.combine_chunks()
    found = pc.list_parent_indices(lists).filter(pc.equal(pc.utf8_normalize(pc.list_flatten(lists), "NFC"), item))
    rows = np.zeros(len(lists), np.bool_)
    rows[found.to_numpy()] = True
    return _if_known(lists, pa.array(rows))


def whole(op: str, value: Literal) -> tuple[str, int]:
    """The comparison of whole numbers that says the same; a bound outside of int64 where it is never or always true."""
    assert not isinstance(value, str | datetime)  # the column holds numbers
    if not isinstance(value, float) or value.is_integer():
        return op, int(value)
    if op in ("==", "!="):
        return op, _INT64.stop
    return ("<=" if op in ("<", "<=") else ">"), math.floor(value)


def _if_known(column: Any, answer: Any) -> Any:
    return pc.if_else(pc.is_valid(column), answer, pa.scalar(None, pa.bool_()))


def _column(table: pa.Table, field: str | None, like: Literal | None) -> Any:
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
