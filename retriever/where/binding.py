"""A condition, as text or as a value, becomes one of an index: its fields are there, its values have their types.

    'year >= 1990' | field("year") >= 1990, and a schema -> Condition whose values are as the columns hold them

A mistake is reported before anything is read: of a text with its place, of a value with its field. A time becomes a
`datetime` in UTC, `contains` of a list the op `has item`, which is true where one of its items is the text, whole.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from ragidx.corpora.errors import QueryError
from ragidx.corpora.records import with_nfc
from ragidx.retriever.where.conditions import Condition, Literal, shown_value
from ragidx.retriever.where.parser import condition, fault_at

MAX_DEPTH = 1_000

_KINDS = {
    "bool": "a truth value",
    "int": "a number",
    "float": "a number",
    "string": "text",
    "list": "a list of texts",
    "timestamp": "a time",
}
_WRITTEN_AS = {"list": "string", "timestamp": "string"}  # what a value that is compared with the field is written as
_LIST_HINT = "use contains, with one whole item; in, is null or is not null"
_TIME_HINT = 'write it as "2024", "2024-01-31" or "2024-01-31T12:00:00"; without a zone it is in UTC'
_TYPE_HINTS = {
    "timestamp": _TIME_HINT,
    "string": 'write it in quotes: "{}"',
    "list": 'write it in quotes: "{}"',
    "bool": "compare it with true or false",
}


def bind(where: str | Condition, schema: Mapping[str, str]) -> Condition:
    """The condition about an index.

    Args:
        where: a text in the language of `ragidx.retriever.where.parser`, or a value, at most 1,000 deep.
        schema: field -> "bool", "int", "float", "string", "list" or "timestamp", built-in fields included.

    Raises:
        QueryError: it is no condition, names an unknown field, or compares it with a value of another type. Of a text,
            the message shows the place.

    >>> bind("YEAR_ >= 1900", {"YEAR_": "int"})
    <ragidx.Condition YEAR_ >= 1900>
    """
    tree = condition(where)
    if tree.depth > MAX_DEPTH:
        hint = "of many conditions take one by is_in, or join all by the same sign"
        raise QueryError(f"the condition is more than {MAX_DEPTH:,} deep", hint, where="condition")
    return tree.fold(lambda node, parts: _bound(node, parts, schema))


def _bound(node: Condition, parts: list[Condition], schema: Mapping[str, str]) -> Condition:
    if parts:
        return Condition(node.op, parts=tuple(parts))
    op, field, kind = node.op, _known(node, schema), schema[str(node.field)]
    if op in ("is null", "passes"):
        return node
    if op in ("starts with", "contains", "matches"):
        _check_text_test(node, kind)
    elif kind == "list" and op != "in":
        raise _fault(node, "sign", f"{op} does not apply to {field!r}, a list of texts", _LIST_HINT)
    elif kind == "bool" and op not in ("==", "!=", "in"):
        raise _fault(node, "sign", f"{op} does not apply to {field!r}, a truth value", "use == or !=")
    values = tuple(_literal(node, number, kind) for number in range(len(node.values)))
    if kind == "list":
        items = tuple(Condition("has item", field, (value,)) for value in values)
        return items[0] if len(items) == 1 else Condition("or", parts=items)
    if op == "matches":
        _check_pattern(node, str(values[0]))
    return _in_both_forms(Condition(op, field, values))


def _known(node: Condition, schema: Mapping[str, str]) -> str:
    name = str(node.field)
    if name not in schema:
        known = sorted(schema)
        near = difflib.get_close_matches(name, known, n=1)
        guess = f"; did you mean {near[0]!r}?" if near else ""
        hint = f"fields: {', '.join(known[:30])}{f' and {len(known) - 30} more' if len(known) > 30 else ''}"
        raise _fault(node, "field", f"unknown field {name!r}{guess}", hint)
    return name


def _check_text_test(node: Condition, kind: str) -> None:
    if kind == "list" and node.op != "contains":
        raise _fault(node, "sign", f"{node.op} does not apply to {node.field!r}, a list of texts", _LIST_HINT)
    if kind not in ("string", "list"):
        message = f"{node.op} reads text, and {node.field!r} is {_KINDS[kind]}"
        raise _fault(node, "sign", message, "use == != < <= > >= or in")


def _check_pattern(node: Condition, pattern: str) -> None:
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as fault:
        reason = str(fault).removeprefix("Invalid regular expression: ")
        hint = "write it in RE2's syntax, which has no backreferences and no lookaround"
        raise _fault(node, 0, f"the regular expression is broken: {reason}", hint) from fault


def _literal(node: Condition, number: int, kind: str) -> Literal:
    """A value in the type that the column has."""
    value, typed, field = node.values[number], _typed(node, number), node.field
    if kind == "timestamp" and isinstance(value, str | datetime):
        return _time(node, number)
    written = "bool" if isinstance(value, bool) else "float" if isinstance(value, int | float) else "string"
    if isinstance(value, datetime) or _KINDS[written] != _KINDS[_WRITTEN_AS.get(kind, kind)]:
        of = _KINDS["timestamp" if isinstance(value, datetime) else written]
        hint = _TYPE_HINTS.get(kind, "compare it with a number, without quotes")
        raise _fault(node, number, f"{field!r} is {_KINDS[kind]}, and {typed} is {of}", hint.replace("{}", typed))
    if kind != "float":
        return value
    try:
        near = float(value)
    except OverflowError as fault:
        raise _fault(node, number, f"{typed:.100} is out of range", "the field holds 64-bit numbers") from fault
    if near != value:
        message = f"{field!r} has fractions, and rounds whole numbers past 2**53: none of its values is {typed}"
        raise _fault(node, number, message, f"the nearest that it can hold is {near!r}")
    return near


def _time(node: Condition, number: int) -> datetime:
    value = node.values[number]
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(_whole_date(str(value)))
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError) as fault:
        message = f"{node.field!r} is a time, and {_typed(node, number)} is none in ISO form"
        raise _fault(node, number, message, _TIME_HINT) from fault


def _whole_date(text: str) -> str:
    """A year or a month is its first day."""
    return text + "-01-01"[len(text) - 4 :] if re.fullmatch(r"\d{4}(-\d\d)?", text, re.ASCII) else text


def _in_both_forms(one: Condition) -> Condition:
    """A comparison that is true of a text's Unicode form NFC as well, for engines, which compare what they hold."""
    values = tuple(with_nfc(value for value in one.values if isinstance(value, str)))
    if set(values) <= set(one.values):
        return one
    if one.op == "!=":
        return ~Condition("in", one.field, values)
    if one.op in ("==", "in"):
        return Condition("in", one.field, values)
    if one.op in ("starts with", "contains"):
        return Condition("or", parts=tuple(Condition(one.op, one.field, (value,)) for value in values))
    return one


def _typed(node: Condition, number: int) -> str:
    """A value as it was written."""
    return shown_value(node.values[number]) if node.place is None else node.place.values[number][1]


def _fault(node: Condition, at: str | int, message: str, hint: str) -> QueryError:
    """The message, with the place in the text, or with the field."""
    if (place := node.place) is None:
        return QueryError(message, hint, where=f"condition, field {node.field!r:.80}")
    where = place.field if at == "field" else place.sign if isinstance(at, str) else place.values[at][0]
    return fault_at(place.text, where, message, hint)
