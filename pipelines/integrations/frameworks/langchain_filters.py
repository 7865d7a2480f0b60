"""Filters of LangChain as conditions of ragidx. Extra `langchain`, for `ragidx.frameworks.langchain`.

    {"year": {"$gte": 1990}, "lang": "en"} -> (field("year") >= 1990) & (field("lang") == "en"), never unknown

An answer of such a filter is true or false: `$ne` and `$nin` match documents without the field, as in MongoDB, and
`$not` turns any answer round. A value of None is a field that is missing.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, ge, gt, le, lt, or_
from typing import Any

import ragidx
from ragidx.pipelines.integrations.frameworks.conditions import MOST_DEEP, constant, settled

_ORDER = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
_OF_FIELDS = ("$eq", "$ne", *_ORDER, "$in", "$nin", "$exists", "$not")
_OF_FILTERS = ("$and", "$or", "$not")
_BUILT_IN = ("doc_id", "heading", "file.source")  # names that mean something else in a condition


def where_of(
    asked: Mapping[str, Any] | str | ragidx.Condition | None, index: ragidx.Index
) -> str | ragidx.Condition | None:
    """The condition that a filter is; None: there is no filter.

    Args:
        asked: fields with their values or operators; or a condition, which is taken as it is.
        index: the index whose fields are meant. No document has a field that the index does not know.

    Raises:
        QueryError: an operator is unknown, or a value is nothing that can be compared.
    """
    if asked is None or isinstance(asked, str | ragidx.Condition):
        return asked
    if not isinstance(asked, Mapping):
        raise _fault(f"{asked!r:.80} is no filter", 'give a dict, {"year": {"$gte": 1990}}, or a condition')
    return _all_of(asked, index, 0) if asked else None


def _all_of(asked: Any, index: ragidx.Index, depth: int) -> ragidx.Condition:
    """What passes all parts of a filter."""
    if not isinstance(asked, Mapping):
        raise _fault(f"{asked!r:.80} is no filter", 'give a dict, such as {"year": {"$gte": 1990}}')
    if depth > MOST_DEEP:
        raise _fault(f"the filter is more than {MOST_DEEP} deep", "remove what changes nothing")
    return reduce(and_, [_part(name, value, index, depth) for name, value in asked.items()] or [constant(True)])


def _part(name: Any, value: Any, index: ragidx.Index, depth: int) -> ragidx.Condition:
    if not isinstance(name, str):
        raise _fault(f"the field {name!r:.80} is no text", "give the name of a field")
    if name == "$not":
        return ~_all_of(value, index, depth + 1)
    if name in ("$and", "$or"):
        if not isinstance(value, list | tuple) or not value:
            raise _fault(f"{name} is {value!r:.80}, no list of filters", f'give {{"{name}": [filter, filter]}}')
        return reduce(and_ if name == "$and" else or_, [_all_of(part, index, depth + 1) for part in value])
    if name.startswith("$"):
        raise _unknown(name, _OF_FILTERS)
    tests = value if isinstance(value, Mapping) else {"$eq": value}
    if not tests:
        raise _fault(f"the field '{name}' is compared with nothing", 'give a value, or an operator: {"$gte": 1990}')
    return reduce(and_, [_test(name, operator, one, index, depth) for operator, one in tests.items()])


def _test(asked: str, operator: Any, value: Any, index: ragidx.Index, depth: int) -> ragidx.Condition:
    """What passes one operator."""
    if operator not in _OF_FIELDS:
        raise _unknown(str(operator), _OF_FIELDS)
    if operator == "$not":
        return ~_all_of({asked: value}, index, depth + 1)
    name = _name_in(index, asked)
    field = ragidx.field(name or "doc_id")
    if operator == "$exists":
        if not isinstance(value, bool):
            raise _fault(f"$exists of the field '{asked}' is {value!r:.80}", "give true or false")
        there = constant(False) if name is None else ~field.is_null()
        return there if value else ~there
    values = value if operator in ("$in", "$nin") else [value]
    if not isinstance(values, list | tuple | set | frozenset):
        raise _fault(f"{operator} of the field '{asked}' is {value!r:.80}, no list", f'give {{"{operator}": [1, 2]}}')
    wanted = [_checked(asked, one) for one in values if one is not None or operator in _ORDER]
    missing = len(wanted) < len(values)
    found = _ORDER[operator](field, wanted[0]) if operator in _ORDER else field.is_in(wanted)
    found = constant(missing) if name is None else settled(name, found, missing=missing)
    return ~found if operator in ("$ne", "$nin") else found


def _name_in(index: ragidx.Index, field: str) -> str | None:
    """What a condition calls a field of the metadata; None: no document has it."""
    if field in _BUILT_IN and field in (("doc_id",) if index.spec.precomputed is not None else _BUILT_IN):
        fields, name = index.info().schema, f"metadata.{field}"
        while name in fields:  # another field that is called so
            name = f"metadata.{name}"
        return name if field in fields else None
    return field if field in index.schema else None


def _checked(field: str, value: Any) -> Any:
    """A value that a field can be compared with."""
    try:
        ragidx.field("doc_id").is_in([value])
    except ragidx.QueryError as fault:
        hint = "give a text, a number, true, false or a time"
        if isinstance(value, list | tuple | set):
            hint = 'for one of several values give {"$in": [1, 2]}'
        raise _fault(f"the field '{field}' is compared with {value!r:.80}", hint) from fault
    return value


def _unknown(operator: str, known: Sequence[str]) -> ragidx.QueryError:
    near = difflib.get_close_matches(operator, known, n=1)
    guess = f"; did you mean '{near[0]}'?" if near else ""
    return _fault(f"unknown operator '{operator}'{guess}", f"known: {', '.join(known)}")


def _fault(message: str, hint: str) -> ragidx.QueryError:
    return ragidx.QueryError(message, hint, where="`filter`")
