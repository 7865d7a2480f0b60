"""Haystack's filters as conditions of ragidx, with the same answers. For `ragidx.frameworks.haystack`.

    filters -> checked -> a condition; or `UnsayableError`, where the language of conditions cannot say the same

Haystack knows two truth values: what is missing equals None, so `!=`, `not in` and NOT find it. A comparison becomes
one that is never unknown, by `is null`. Where Haystack compares dates that are written as text, the values that the
index has are compared by Haystack's own function, and the condition names the ranges of text that they make.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from haystack import Document
from haystack.errors import FilterError
from haystack.utils.filters import COMPARISON_OPERATORS, LOGICAL_OPERATORS, document_matches_filter

import ragidx
from ragidx.pipelines.integrations.frameworks.conditions import MAX_CHARS, lists, quoted, shown

T = TypeVar("T")

ALL, NONE = "doc_id is not null", "doc_id is null"  # every document has an id
_ORDERED = (">", ">=", "<", "<=")
_MAX_DEPTH = 20  # a condition may have 50 brackets; callers put more beside it
_BUILT_IN = ("doc_id", "heading", "file.source")  # what every chunk has: in a condition they mean that
_OF_DOCUMENTS = ("id", "content", "blob", "meta", "score", "embedding", "sparse_embedding")  # of Haystack's
_EXACT = 2**53  # up to here a float is every whole number


class UnsayableError(FilterError):
    """A filter that no condition says; the message names why."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an index as a condition asks for it.

    Args:
        name: in the schema.
        kind: bool, int, float, string, list or timestamp.
        empty: what the index holds in place of a missing value; None: nothing.
    """

    name: str
    kind: str
    empty: str | None = None

    @property
    def missing(self) -> str:
        """Where a document has no value."""
        return f"{shown(self.name)} {'is null' if self.empty is None else '== ' + quoted(self.empty)}"

    @property
    def present(self) -> str:
        """Where it has one."""
        return f"{shown(self.name)} {'is not null' if self.empty is None else '!= ' + quoted(self.empty)}"


Fields = Callable[[str], Field | None]
"""The field that a name of a filter means; None: no document has it. It may raise `FilterError`."""


def condition(filters: dict[str, Any], fields: Fields, index: ragidx.Index) -> str:
    """The condition that finds the same as filters.

    Raises:
        FilterError: the filters are malformed.
        UnsayableError: no condition finds the same.
    """
    check(filters)
    text = _Translation(fields, index).of(filters, 0)
    if len(text) > MAX_CHARS:
        raise UnsayableError(
            f"the filter needs a condition of {len(text):,} characters; at most {MAX_CHARS:,} are read"
        )
    return text


def own_field(name: str, schema: dict[str, str]) -> str | None:
    """How a condition calls the field of the documents' own metadata; None: they have none of that name."""
    if name in _BUILT_IN:
        name = f"metadata.{name}"
    return name if name in schema else None


def fields_of_texts(schema: dict[str, str]) -> Fields:
    """What a name of a filter is in an index of texts: what documents have in their meta."""

    def field(name: str) -> Field | None:
        asked = name.removeprefix("meta.")
        if (own := own_field(asked, schema)) is not None and (asked != name or name not in _OF_DOCUMENTS):
            return Field(own, schema[own])
        if asked == "source":
            return Field("doc_id", "string")
        if asked in ("heading", "file.source") and asked in schema:
            return Field(asked, schema[asked], empty="" if asked == "heading" else None)
        raise FilterError(
            f"the index has no field '{asked}' that a filter can ask for; there are "
            f"{', '.join(sorted({*schema, 'source'} - {'doc_id'}))}"
        )

    return field


def check(filters: Any, depth: int = 0) -> None:
    """Whether filters are well-formed.

    Raises:
        FilterError: they are not; before any document is looked at.
    """
    if not isinstance(filters, dict):
        raise FilterError(f"a filter is a dict, not {filters!r:.80}")
    if depth > 100:
        raise FilterError("the filter is more than 100 deep")
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


class _Translation:
    """Of filters that were checked."""

    def __init__(self, fields: Fields, index: ragidx.Index) -> None:
        self._fields, self._index = fields, index

    def of(self, filters: dict[str, Any], depth: int) -> str:
        if depth > _MAX_DEPTH:
            raise UnsayableError(f"the filter is more than {_MAX_DEPTH} deep")
        if "field" in filters:
            return self._comparison(filters["field"], filters["operator"], filters["value"])
        parts = [self.of(part, depth + 1) for part in filters["conditions"]]
        if filters["operator"] == "OR":
            return f"({' or '.join(parts or [NONE])})"
        whole = f"({' and '.join(parts or [ALL])})"
        return f"not {whole}" if filters["operator"] == "NOT" else whole

    def _comparison(self, name: str, operator: str, value: Any) -> str:
        if operator in ("!=", "not in"):  # what they negate is never unknown
            return f"not {self._comparison(name, '==' if operator == '!=' else 'in', value)}"
        field = self._fields(name)
        if field is None:
            return f"({ALL if _one_holds(operator, None, value) else NONE})"
        wanted = value if operator == "in" else [value]
        if operator not in _ORDERED:
            found = self._members(field, wanted)
            return f"({field.missing} or {found})" if None in wanted else f"({field.present} and {found})"
        found = NONE if value is None else self._in_order(field, operator, value)
        return f"({field.present} and {found})"

    def _members(self, field: Field, wanted: Sequence[Any]) -> str:
        """Where a value equals one of those wanted, for values that are there."""
        if any(not isinstance(one, bool | int | float | str | datetime | list | dict | None) for one in wanted):
            raise UnsayableError(f"'{field.name}': no condition compares {wanted!r:.80}")
        if field.kind == "list":
            if any(isinstance(one, list) for one in wanted):
                raise UnsayableError(f"'{field.name}' holds lists, and no condition compares whole lists")
            return NONE
        if field.kind == "bool":
            return _either(field, [truth for truth in (True, False) if truth in wanted])
        if field.kind == "timestamp":
            return _is_in(field, [quoted(_utc(one)) for one in wanted if _may_be_date(one)])
        if field.kind == "string":
            if any(_may_be_date(one) for one in wanted):
                return self._ranges(field, "in", list(wanted))
            return _is_in(field, [quoted(one) for one in wanted if isinstance(one, str) and _is_unicode(one)])
        numbers = [one for one in wanted if isinstance(one, bool | int | float) and math.isfinite(_near(one))]
        return _is_in(field, [_number(field, one) for one in numbers if abs(one) < 2**63 or field.kind == "float"])

    def _in_order(self, field: Field, operator: str, value: Any) -> str:
        """Where a value is before or after another, for values that are there."""
        is_time = isinstance(value, str | datetime)
        if is_time != (field.kind in ("string", "timestamp")) or field.kind == "list":
            raise FilterError(
                f"'{operator}' cannot compare '{field.name}', which is of type {field.kind}, to {value!r}"
            )
        name = shown(field.name)
        if field.kind == "string":
            return self._ranges(field, operator, value)
        if field.kind == "timestamp":
            return f"{name} {operator} {quoted(_utc(value))}"
        if field.kind == "bool":
            return _either(field, [truth for truth in (True, False) if _one_holds(operator, truth, value)])
        if not math.isfinite(_near(value)) or (field.kind == "int" and abs(value) >= 2**63):
            return f"({ALL if _one_holds(operator, 0, value) else NONE})"
        return f"{name} {operator} {_number(field, value)}"

    def _ranges(self, field: Field, operator: str, value: Any) -> str:
        """Where Haystack finds the text that the field holds, as ranges of text, which go by code points here too."""
        every = self._index.values(field.name, limit=self._index.info().n_chunks + 1)
        texts = sorted(text for text, _ in every if isinstance(text, str) and text != field.empty)
        name, found = shown(field.name), []
        for is_found, run in itertools.groupby(texts, key=lambda text: _one_holds(operator, text, value)):
            first, *others = run
            if is_found and others:
                found.append(f"{name} >= {quoted(first)} and {name} <= {quoted(others[-1])}")
            elif is_found:
                found.append(f"{name} == {quoted(first)}")
        return f"({' or '.join(found or [NONE])})"


def _one_holds(operator: str, held: Any, value: Any) -> bool:
    """What Haystack says of one value."""
    filters = {"field": "meta.value", "operator": operator, "value": value}
    return matches(filters, Document(id="of the index", meta={"value": held}))


def _either(field: Field, truths: Iterable[bool]) -> str:
    return _is_in(field, [str(truth).lower() for truth in truths])


def _is_in(field: Field, literals: Sequence[str]) -> str:
    """Where a field is one of some values, at most 1,000 in a list."""
    return f"({' or '.join(lists(field.name, literals) or [NONE])})"


def _number(field: Field, value: float) -> str:
    """A literal; a float holds a large whole number only nearly."""
    if field.kind == "float" and isinstance(value, int) and abs(value) > _EXACT:
        raise UnsayableError(f"'{field.name}' holds fractions, and no condition compares them to {value} exactly")
    return str(int(value)) if isinstance(value, bool | int) else float.__repr__(float(value))


def _near(value: float) -> float:
    """As a float; a whole number may be too large for one, and is finite."""
    return 0.0 if isinstance(value, int) else value


def _is_unicode(text: str) -> bool:
    """Whether an index can hold the text at all: half of a surrogate pair it cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


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


def _utc(value: str | datetime) -> str:
    """A time in full ISO form; without a zone it is in UTC, as an index has it and Haystack reads it beside others."""
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError as fault:
        raise UnsayableError(f"no condition compares times to {value!r:.80}") from fault
    return (time.replace(tzinfo=UTC) if time.tzinfo is None else time).isoformat()
