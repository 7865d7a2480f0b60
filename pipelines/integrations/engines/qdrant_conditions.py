"""Conditions as filters of Qdrant, which do not know unknown: each passes the rows of which the condition is true.

So the opposite of a comparison is that it is not true, and that there is a value. Ranges compare floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qdrant_client import models

from ragidx.pipelines.integrations.engines.conditions import FilterDialect
from ragidx.retriever.where.answers import COMPARISONS, whole
from ragidx.retriever.where.conditions import Condition, Literal

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

    from ragidx.pipelines.integrations.engines.layout import AboutTable

_INT64 = range(-(2**63), 2**63)
_FLOAT_BITS = 53  # of an integer that is compared as a float
_HAS_TEXT_TESTS = (1, 20)  # the version of the server


class Filters(FilterDialect):
    """Writes filters for the columns of a table."""

    engine = "Qdrant"

    def __init__(self, about: AboutTable, client: QdrantClient) -> None:
        super().__init__(about.columns(), about.fields)
        self._client = client

    def written(self, condition: Condition) -> Any:
        """The filter of a condition that has `not` before comparisons alone."""
        op, field, values = condition.op, condition.field, condition.values
        if op == "!=":
            condition = Condition("not", parts=(Condition("==", field, values),))
        if condition.op == "not":
            [part] = condition.parts
            return models.Filter(must_not=[self.written(part), self._null(part.field)])
        if condition.parts:
            parts = [self.written(part) for part in condition.parts]
            return models.Filter(must=parts) if op == "and" else models.Filter(should=parts)
        if op == "is null":
            return self._null(field)
        if op in ("==", "in", "has item"):
            return self._equal(str(field), values)
        if op in ("starts with", "contains", "matches"):
            return self._text_test(op, str(field), str(values[0]))
        return self._ordered(op, str(field), values[0])

    def _null(self, field: str | None) -> Any:
        key = models.PayloadField(key=self.columns[str(field)])
        if self.fields[str(field)] == "list":
            return models.IsNullCondition(is_null=key)
        return models.IsEmptyCondition(is_empty=key)

    def _equal(self, field: str, values: Sequence[Literal]) -> Any:
        """Whether it is one of the values, or has one as an item."""
        key, kind = self.columns[field], self.fields[field]
        if kind == "int":
            values = [bound for value in values if (bound := whole("==", value)[1]) in _INT64]
        if kind in ("int", "string", "list"):
            return is_one_of(key, values)
        if kind == "bool":
            matches: list[Any] = [models.MatchValue(value=bool(value)) for value in values]
            return models.Filter(should=[models.FieldCondition(key=key, match=match) for match in matches])
        return models.Filter(should=[_range(key, kind, gte=value, lte=value) for value in values])

    def _ordered(self, op: str, field: str, value: Literal) -> Any:
        key, kind = self.columns[field], self.fields[field]
        if isinstance(value, str):
            self.cannot(f"{op} of text", field)
        if kind == "int":
            op, value = whole(op, value)
            if value not in _INT64:
                known = models.Filter(must_not=[self._null(field)])
                return known if COMPARISONS[op][1](0, value) else is_one_of(key, [])
            if abs(value) >= 1 << _FLOAT_BITS:
                self.cannot(f"{op} of an integer past {_FLOAT_BITS} bits", field)
        return _range(key, kind, **{{"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}[op]: value})

    def _text_test(self, test: str, field: str, text: str) -> Any:
        """A test byte by byte. `MatchText` compares words, in older versions parts of words."""
        version = tuple(map(int, self._client.info().version.split(".")[:2]))
        if test == "matches" or version < _HAS_TEXT_TESTS:
            self.cannot(test, field)
        match = models.MatchPrefix(prefix=text) if test == "starts with" else models.MatchSubstring(substring=text)
        return models.FieldCondition(key=self.columns[field], match=match)


def is_one_of(key: str, values: Sequence[Any]) -> Any:
    """Whether a text or an integer is one of the values, or a list has one as an item."""
    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))


def _range(key: str, kind: str, **bounds: Any) -> Any:
    made = models.DatetimeRange(**bounds) if kind == "timestamp" else models.Range(**bounds)
    return models.FieldCondition(key=key, range=made)
