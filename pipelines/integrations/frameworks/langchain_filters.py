"""Filters of LangChain as conditions of ragidx. Extra `langchain`, for `ragidx.frameworks.langchain`.

    {"year": {"$gte": 1990}, "lang": "en"} -> '`year` >= 1990 and `lang` in ("en")'

An answer of such a filter is true or false: `$ne` and `$nin` match documents without the field, as in MongoDB, and
`$not` turns any answer round. An answer of a condition may be unknown, too. So `$not` is pushed down to the
comparisons, and each says what becomes of documents without the field. A value of None is a field that is missing.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import ragidx
from ragidx.pipelines.integrations.frameworks.conditions import lists, quoted, shown

_ORDER = {"$gt": (">", "<="), "$gte": (">=", "<"), "$lt": ("<", ">="), "$lte": ("<=", ">")}  # and what is not so
_OF_FIELDS = ("$eq", "$ne", *_ORDER, "$in", "$nin", "$exists", "$not")
_OF_FILTERS = ("$and", "$or", "$not")
_BUILT_IN = ("doc_id", "heading", "file.source")  # names that mean something else in a condition
_ALL, _NONE = "doc_id is not null", "doc_id is null"  # every document has an id


def where_of(asked: Mapping[str, Any] | str | None, index: ragidx.Index) -> str | None:
    """The condition that a filter is; None: there is no filter.

    Args:
        asked: fields with their values or operators; or a condition, which is taken as it is.
        index: whose fields are meant. No document has a field that the index does not know.

    Raises:
        QueryError: an operator is unknown, or a value is nothing that can be compared.
    """
    if asked is None or isinstance(asked, str):
        return asked
    if not isinstance(asked, Mapping):
        raise _fault(f"{asked!r:.80} is no filter", 'give a dict, {"year": {"$gte": 1990}}, or a condition as text')
    return _all_of(asked, index, True) if asked else None


def _all_of(asked: Any, index: ragidx.Index, wanted: bool) -> str:
    """What passes all parts of a filter; or, where `wanted` is False, what does not."""
    if not isinstance(asked, Mapping):
        raise _fault(f"{asked!r:.80} is no filter", 'give a dict, such as {"year": {"$gte": 1990}}')
    parts = [_part(name, value, index, wanted) for name, value in asked.items()]
    return _joined(parts, wanted) if parts else _constant(wanted)


def _part(name: Any, value: Any, index: ragidx.Index, wanted: bool) -> str:
    if not isinstance(name, str):
        raise _fault(f"the field {name!r:.80} is no text", "give the name of a field")
    if name == "$not":
        return _all_of(value, index, not wanted)
    if name in ("$and", "$or"):
        if not isinstance(value, list | tuple) or not value:
            raise _fault(f"{name} is {value!r:.80}, no list of filters", f'give {{"{name}": [filter, filter]}}')
        return _joined([_all_of(part, index, wanted) for part in value], (name == "$and") == wanted)
    if name.startswith("$"):
        raise _unknown(name, _OF_FILTERS)
    tests = value if isinstance(value, Mapping) else {"$eq": value}
    if not tests:
        raise _fault(f"the field '{name}' is compared with nothing", 'give a value, or an operator: {"$gte": 1990}')
    return _joined([_test(name, operator, one, index, wanted) for operator, one in tests.items()], wanted)


def _test(field: str, operator: Any, value: Any, index: ragidx.Index, wanted: bool) -> str:
    """What passes one operator, or does not."""
    if operator not in _OF_FIELDS:
        raise _unknown(str(operator), _OF_FIELDS)
    if operator == "$not":
        return _part(field, value, index, not wanted)
    name = _name_in(index, field)
    if operator == "$exists":
        if not isinstance(value, bool):
            raise _fault(f"$exists of the field '{field}' is {value!r:.80}", "give true or false")
        is_there = value == wanted
        return _constant(not is_there) if name is None else f"{shown(name)} is {'not ' if is_there else ''}null"
    if operator in _ORDER:
        return _ordered(name, operator, _literal(field, value), wanted)
    values = value if operator in ("$in", "$nin") else [value]
    if not isinstance(values, list | tuple | set | frozenset):
        raise _fault(f"{operator} of the field '{field}' is {value!r:.80}, no list", f'give {{"{operator}": [1, 2]}}')
    literals = [_literal(field, one) for one in values if one is not None]
    is_in = wanted == (operator in ("$eq", "$in"))
    has_none = len(literals) < len(values)
    if name is None:
        return _constant(has_none == is_in)
    return _contained(name, index.schema[name], literals, has_none, is_in)


def _ordered(name: str | None, operator: str, literal: str, wanted: bool) -> str:
    """Where a field is more or less than a value, or is not."""
    if name is None:
        return _constant(not wanted)
    sign, opposite = _ORDER[operator]
    field = shown(name)
    return f"{field} {sign} {literal}" if wanted else f"({field} {opposite} {literal} or {field} is null)"


def _contained(field: str, kind: str, literals: Sequence[str], has_none: bool, is_in: bool) -> str:
    """Where a field is one of the values, or is none; a list of texts, where one of its items is."""
    name, sign = shown(field), "" if is_in else "not "
    if kind == "list":
        tests = [f"{sign}{name} contains {literal}" for literal in literals]
    else:
        tests = lists(field, literals, sign=f"{sign}in")
    if is_in:
        return _joined([*tests, f"{name} is null"] if has_none else tests, False) if tests or has_none else _NONE
    if has_none:
        return _joined([*tests, f"{name} is not null"], True)
    return f"({_joined(tests, True)} or {name} is null)" if tests else _ALL


def _joined(parts: Sequence[str], by_and: bool) -> str:
    return parts[0] if len(parts) == 1 else f"({(' and ' if by_and else ' or ').join(parts)})"


def _constant(answer: bool) -> str:
    return _ALL if answer else _NONE


def _name_in(index: ragidx.Index, field: str) -> str | None:
    """What a condition calls a field of the metadata; None: no document has it."""
    if field in _BUILT_IN and field in (("doc_id",) if index.spec.precomputed is not None else _BUILT_IN):
        fields, name = index.info().schema, f"metadata.{field}"
        while name in fields:  # another field that is called so
            name = f"metadata.{name}"
        return name if field in fields else None
    return field if field in index.schema else None


def _literal(field: str, value: Any) -> str:
    """A value, as a condition has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float) and math.isfinite(value):
        return repr(float(value))
    if isinstance(value, str | datetime):
        return quoted(value if isinstance(value, str) else value.isoformat())
    hint = "give a text, a number, true, false or a time"
    if isinstance(value, list | tuple | set):
        hint = 'for one of several values give {"$in": [1, 2]}'
    raise _fault(f"the field '{field}' is compared with {value!r:.80}", hint)


def _unknown(operator: str, known: Sequence[str]) -> ragidx.QueryError:
    near = difflib.get_close_matches(operator, known, n=1)
    guess = f"; did you mean '{near[0]}'?" if near else ""
    return _fault(f"unknown operator '{operator}'{guess}", f"known: {', '.join(known)}")


def _fault(message: str, hint: str) -> ragidx.QueryError:
    return ragidx.QueryError(message, hint, where="`filter`")
