"""Conditions in the languages of engines.

    Condition -> negation at the leaves -> the text of an engine

`not` is pushed down to the comparisons (De Morgan holds where a missing value makes a comparison unknown), so an engine
needs `is null` and plain comparisons alone. What an engine cannot express is refused by name, and never dropped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, NoReturn

from ragidx.corpora.errors import QueryError
from ragidx.retriever.where.answers import TEXT_TESTS
from ragidx.retriever.where.conditions import Condition, Literal

NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_INT64 = range(-(2**63), 2**63)


def nnf(condition: Condition, *, negate: bool = False) -> Condition:
    """The same condition, with `not` directly before comparisons that have no opposite, and nowhere else."""
    if condition.op == "not":
        return nnf(condition.parts[0], negate=not negate)
    if condition.parts:
        op = {"and": "or", "or": "and"}[condition.op] if negate else condition.op
        return Condition(op, parts=tuple(nnf(part, negate=negate) for part in condition.parts))
    if not negate:
        return condition
    return Condition("not", parts=(condition,))


class FilterDialect:
    """Writes a condition for an engine.

    Args:
        columns: the column of each field.
        fields: the kind of each field.
    """

    engine = ""

    def __init__(self, columns: Mapping[str, str], fields: Mapping[str, str]) -> None:
        self.columns, self.fields = columns, fields

    def cannot(self, what: str, field: str | None) -> NoReturn:
        """Refuse a comparison.

        Raises:
            QueryError: always.
        """
        raise QueryError(
            f"{self.engine} cannot compare {field!r} by {what}",
            "write the condition in another way, or ask the index",
            where="condition",
        )


class Sql(FilterDialect, ABC):
    """SQL, which has the three values of our logic itself: `not` of unknown is unknown.

    Attributes:
        signs: the engine's signs of comparisons that it writes in another way, by ours.
        brackets: the two brackets around a list of values.
    """

    signs: ClassVar[Mapping[str, str]] = {"==": "=", "!=": "<>"}
    brackets = "()"

    def written(self, condition: Condition) -> str:
        """The condition as an expression in brackets."""
        if condition.op == "not":
            return f"(NOT {self.written(condition.parts[0])})"
        if condition.parts:
            return f"({f' {condition.op.upper()} '.join(map(self.written, condition.parts))})"
        return self._comparison(condition)

    def _comparison(self, condition: Condition) -> str:
        assert condition.field is not None
        column, kind = self.name(self.columns[condition.field]), self.fields[condition.field]
        if condition.op == "is null":
            return f"({column} IS NULL)"
        if condition.op == "in":
            zeros = (0.0, -0.0) if kind == "float" and 0 in condition.values else ()  # Milvus Lite tells them apart
            texts = [text for value in (*condition.values, *zeros) if (text := self._value(value, kind)) is not None]
            if not texts:
                return self.never(column)
            return f"({column} IN {', '.join(texts).join(self.brackets)})"
        if condition.op == "has item":
            return self.has_item(column, self.literal(condition.values[0]))
        if condition.op in TEXT_TESTS:
            value, field = condition.values[0], condition.field
            return (
                self.matches(column, str(value), field)
                if condition.op == "matches"
                else self.text_test(condition.op, column, self.literal(value), field)
            )
        return self._compared(column, condition.op, condition.values[0], kind)

    def _compared(self, column: str, op: str, value: Literal, kind: str) -> str:
        if kind == "int" and isinstance(value, float | int) and not isinstance(value, bool):
            never, always = self.never(column), self.always(column)
            if isinstance(value, float) and not value.is_integer():
                if op in ("==", "!="):
                    return never if op == "==" else always
                op, value = ("<=" if op in ("<", "<=") else ">"), math.floor(value)
            value = int(value)
            if value not in _INT64:
                return always if ((op in ("<", "<=")) == (value > 0) and op != "==") or op == "!=" else never
        compared = f"{column} {self.signs.get(op, op)} {self.literal(value)}"
        # Databases order NaN above all numbers; to us no comparison but != is true of it.
        return f"({compared} AND {self.is_number(column)})" if kind == "float" and op[0] == ">" else f"({compared})"

    def _value(self, value: Literal, kind: str) -> str | None:
        """One of a list; None: no integer is equal to it."""
        if kind == "int" and isinstance(value, int | float):
            if (isinstance(value, float) and not value.is_integer()) or int(value) not in _INT64:
                return None
            value = int(value)
        return self.literal(value)

    def literal(self, value: Literal) -> str:
        """A value as SQL writes it."""
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, datetime):
            return self.time(value)
        if isinstance(value, str):
            return self.text(value)
        return repr(value)

    def never(self, column: str) -> str:
        """False, or unknown where a column of numbers is null."""
        return f"({column} <> {column})"

    def always(self, column: str) -> str:
        """True, or unknown where a column of numbers is null."""
        return f"({column} = {column})"

    @abstractmethod
    def name(self, column: str) -> str:
        """A column as the engine writes it."""

    @abstractmethod
    def text(self, value: str) -> str:
        """A text as the engine writes it."""

    @abstractmethod
    def time(self, value: datetime) -> str:
        """A time as the engine writes it."""

    def is_number(self, column: str) -> str:
        """Whether a column of fractions is not NaN."""
        return f"{column} <> 'NaN'"

    @abstractmethod
    def has_item(self, column: str, item: str) -> str:
        """Whether a list has an item; unknown where it is null."""

    @abstractmethod
    def text_test(self, test: str, column: str, value: str, field: str) -> str:
        """`starts with` or `contains`; unknown where it is null."""

    def matches(self, column: str, pattern: str, field: str) -> str:
        """A regular expression of RE2; unknown where it is null. Most engines have other ones."""
        self.cannot("matches", field)
