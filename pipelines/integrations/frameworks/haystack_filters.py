"""Haystack's filters as conditions of ragidx, with the same answers. For `ragidx.frameworks.haystack`.

    filters -> checked -> a condition that is never unknown

Haystack knows two truth values: what is missing equals None, so `!=`, `not in` and NOT find it. Where ragidx compares
in another way (dates that are written as text, values of several types), Haystack's own function is the test in the
condition.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import and_, or_
from typing import Any, TypeVar

from haystack import Document
from haystack.errors import FilterError
from haystack.utils.filters import COMPARISON_OPERATORS, LOGICAL_OPERATORS, document_matches_filter

import ragidx
from ragidx.pipelines.integrations.frameworks.conditions import MOST_DEEP, constant

T = TypeVar("T")

_ORDERED: dict[str, Callable[[Any, Any], ragidx.Condition]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_BUILT_IN = ("doc_id", "heading", "file.source")  # what every chunk has: in a condition they mean that
_OF_DOCUMENTS = ("id", "content", "blob", "meta", "score", "embedding", "sparse_embedding")  # of Haystack's
_EXACT = 2**53  # up to here a float is every whole number


@dataclass(frozen=True, slots=True)
class Column:
    """A field of an index that holds what a name of a filter means, of some documents or of all.

    Args:
        name: the name of the field in the schema.
        kind: the kind of the field: bool, int, float, string, list or timestamp.
        empty: what the index holds in place of a missing value; None: nothing.
        read: a function that makes of what the index holds what a document has; None: it is the same.
    """

    name: str
    kind: str
    empty: str | None = None
    read: Callable[[Any], Any] | None = None

    @property
    def missing(self) -> ragidx.Condition:
        """The condition of documents that have no value."""
        field = ragidx.field(self.name)
        return field.is_null() if self.empty is None else field.is_null() | (field == self.empty)


Columns = Callable[[dict[str, Any]], Sequence[Column] | ragidx.Condition]
"""Where the values are that a comparison asks for, those of a document in one column at most; or, where they are in
none, what finds the same. It may raise `FilterError`."""


def condition(filters: dict[str, Any], columns: Columns) -> ragidx.Condition:
    """The condition that finds the same as filters.

    Raises:
        FilterError: the filters are malformed. What cannot be compared is refused when the condition is asked.
    """
    check(filters)
    return _translated(filters, columns)


def own_field(name: str, schema: dict[str, str]) -> str | None:
    """How a condition calls the field of the documents' own metadata; None: they have none of that name."""
    if name in _BUILT_IN:
        name = f"metadata.{name}"
    return name if name in schema else None


def columns_of_texts(schema: dict[str, str]) -> Columns:
    """Where the values of a comparison are in an index of texts: in what documents have in their meta."""

    def columns(filters: dict[str, Any]) -> list[Column]:
        name = filters["field"]
        asked = name.removeprefix("meta.")
        if (own := own_field(asked, schema)) is not None and (asked != name or name not in _OF_DOCUMENTS):
            return [Column(own, schema[own], read=_iso if schema[own] == "timestamp" else None)]
        if asked == "source":
            return [Column("doc_id", "string")]
        if asked in ("heading", "file.source") and asked in schema:
            return [Column(asked, schema[asked], empty="" if asked == "heading" else None)]
        raise FilterError(
            f"the index has no field '{asked}' that a filter can ask for; there are "
            f"{', '.join(sorted({*schema, 'source'} - {'doc_id'}))}"
        )

    return columns


def check(filters: Any, depth: int = 0) -> None:
    """Check that filters are well-formed.

    Raises:
        FilterError: they are not; before any document is looked at.
    """
    if not isinstance(filters, dict):
        raise FilterError(f"a filter is a dict, not {filters!r:.80}")
    if depth > MOST_DEEP:
        raise FilterError(f"the filter is more than {MOST_DEEP} deep")
    is_comparison = "field" in filters
    for key in ("operator", "value" if is_comparison else "conditions"):
        if key not in filters:
            raise FilterError(f"'{key}' key missing in {filters!r:.200}")
    known = COMPARISON_OPERATORS if is_comparison else LOGICAL_OPERATORS
    operator = filters["operator"]
    if not isinstance(operator, str) or operator not in known:
        raise FilterError(f"unknown operator {operator!r:.80}; there are {', '.join(sorted(known))}")
    if is_comparison:
        return _check_comparison(filters["field"], operator, filters["value"])
    if not isinstance(filters["conditions"], list):
        raise FilterError(f"'conditions' is a list, not {filters['conditions']!r:.80}")
    for part in filters["conditions"]:
        check(part, depth + 1)
    return None


def matches(filters: dict[str, Any], document: Document) -> bool:
    """Whether Haystack finds a document by filters.

    Raises:
        FilterError: a value of the document cannot be compared with that of the filter.
    """
    try:
        return bool(document_matches_filter(filters, document))
    except (TypeError, OverflowError) as fault:
        raise FilterError(f"document '{document.id}': {fault}") from fault


def at_one_state(index: ragidx.Index, read: Callable[[], T]) -> T:
    """What `read` makes of an index, all of it of one committed state: another thread may show a newer one."""
    while True:
        before = index.generation
        found = read()
        if index.generation == before:
            return found


def _check_comparison(field: object, operator: str, value: object) -> None:
    if not isinstance(field, str):
        raise FilterError(f"'field' is a text, not {field!r:.80}")
    if operator in ("in", "not in") and not isinstance(value, list):
        raise FilterError(f"the value of '{operator}' is a list, not {value!r:.80}")
    if operator not in _ORDERED or value is None or isinstance(value, bool | int | float | datetime):
        return
    if not isinstance(value, str) or not _is_date(value):
        raise FilterError(f"'{operator}' compares numbers and ISO dates, and {value!r:.80} is neither")


def _translated(filters: dict[str, Any], columns: Columns) -> ragidx.Condition:
    if "field" in filters:
        return _comparison(filters, columns)
    parts = [_translated(part, columns) for part in filters["conditions"]]
    if filters["operator"] == "OR":
        return reduce(or_, parts or [constant(False)])
    whole = reduce(and_, parts or [constant(True)])
    return ~whole if filters["operator"] == "NOT" else whole


def _comparison(filters: dict[str, Any], columns: Columns) -> ragidx.Condition:
    sign, value = filters["operator"], filters["value"]
    if sign in ("!=", "not in"):  # what they negate is never unknown
        return ~_comparison({**filters, "operator": "==" if sign == "!=" else "in"}, columns)
    places = columns(filters)
    if isinstance(places, ragidx.Condition):
        return places
    found = [~column.missing & _held(column, sign, value) for column in places]
    if _one_holds(sign, None, value):
        found.append(reduce(and_, [column.missing for column in places] or [constant(True)]))
    return reduce(or_, found or [constant(False)])


def _held(column: Column, sign: str, value: Any) -> ragidx.Condition:
    """Where the value of a column fulfils a comparison, for values that are there."""
    field, kind, read = ragidx.field(column.name), column.kind, column.read
    if sign in _ORDERED and value is not None and (read is None or kind == "timestamp"):
        if isinstance(value, str | datetime) != (kind in ("string", "timestamp")) or kind == "list":
            raise FilterError(f"'{sign}' cannot compare '{field.name}', which is of type {kind}, to {value!r}")
        if kind == "timestamp":
            return _ORDERED[sign](field, value if isinstance(value, datetime) else datetime.fromisoformat(value))
    wanted = value if sign == "in" else [value]
    if read is None and all(_is_plain(one, kind) for one in wanted) and (kind != "string" or sign not in _ORDERED):
        return _ORDERED[sign](field, value) if sign in _ORDERED else field.is_in(wanted)
    return field.passes(lambda held: _one_holds(sign, held if read is None else read(held), value))


def _is_plain(value: object, kind: str) -> bool:
    """Whether ragidx compares a value as Haystack does, which reads dates, and takes no Unicode forms together."""
    if kind == "string":
        return isinstance(value, str) and value.isascii() and not _may_be_date(value)
    return kind in ("int", "float") and type(value) in (int, float) and abs(value) <= _EXACT  # type: ignore[arg-type]


def _one_holds(operator: str, held: Any, value: Any) -> bool:
    """What Haystack says of one value."""
    filters = {"field": "meta.value", "operator": operator, "value": value}
    return matches(filters, Document(id="of the index", meta={"value": held}))


def _may_be_date(value: object) -> bool:
    """Whether Haystack, asked what equals a value, may read it as a date: a time, or text that begins as one."""
    return isinstance(value, datetime) or (isinstance(value, str) and bool(re.match(r"\d{4}-\d\d-\d\d", value)))


def _is_date(value: object) -> bool:
    """Whether it is a time, or a text that is one in ISO form."""
    if isinstance(value, datetime):
        return True
    if not isinstance(value, str):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _iso(time: datetime) -> str:
    """A time of a column as a document has it."""
    return time.replace(tzinfo=UTC).isoformat()
