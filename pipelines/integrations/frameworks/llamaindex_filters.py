"""Filters of LlamaIndex as conditions of ragidx, and evaluated node by node where no condition says the same.

    MetadataFilters, node ids, document ids -> Selection: a condition, and what of it is left to look at in Python

What a filter matches is what `SimpleVectorStore` of LlamaIndex says, and its leaves are evaluated by LlamaIndex itself
in Python. Filters may be nested, which `SimpleVectorStore` refuses. A comparison that Python cannot make, `"a" > 1`, is
a `QueryError`.

In LlamaIndex an answer is true or false: NE and NIN match nodes without the field, and NOT turns that round. An answer
of a condition may be unknown, too. So NOT is pushed down to the comparisons here, and each says what becomes of nodes
without the field.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

import ragidx
from ragidx.pipelines.integrations.frameworks.conditions import MAX_CHARS, lists, quoted, shown

NODE_ID, REF_DOC_ID, CONTENT, TYPE = "_node_id", "ref_doc_id", "_node_content", "_node_type"
SAME_AS_REF_DOC_ID = ("document_id", "doc_id")  # LlamaIndex writes the same under three names

Found: TypeAlias = str | bool | None
"""A condition; or whether all nodes match, or none; or None: no condition says it."""

_O = FilterOperator
_NOT_EQUAL = (_O.NE, _O.NIN)  # they match nodes without the field
_ORDER = (_O.GT, _O.GTE, _O.LT, _O.LTE)
_SAMPLES: dict[str, tuple[Any, ...]] = {
    "bool": (True, False),
    "int": (0,),
    "float": (0.0,),
    "string": ("",),
    "list": ([""],),
}
_MAX_DEPTH = 20  # brackets of a condition go twice as deep
_EXACT = 2**53  # a column of floats may have rounded whole numbers from here on


@dataclass(frozen=True)
class Selection:
    """Which nodes are meant.

    Attributes:
        nothing: no node is.
        where: a condition that all of them fulfil; None: all nodes do.
        tests: of a node's metadata; those that fulfil the condition and pass all tests are meant.
    """

    nothing: bool = False
    where: str | None = None
    tests: tuple[Callable[[Mapping[str, Any]], bool], ...] = ()

    def has(self, stored: Mapping[str, Any]) -> bool:
        """Whether a row that fulfils the condition is meant."""
        if not self.tests:
            return True
        metadata = _filtered(stored)
        return all(test(metadata) for test in self.tests)


def select(
    kinds: Mapping[str, str],
    filters: MetadataFilters | None = None,
    node_ids: Iterable[str] | None = None,
    doc_ids: Iterable[str] | None = None,
) -> Selection:
    """The nodes that pass the filters and have one of the ids; None: any.

    Args:
        kinds: what type each field of the index has.
        filters: of LlamaIndex.
        node_ids: of nodes; an empty list is none of them.
        doc_ids: of the documents that nodes are of; likewise.

    Raises:
        QueryError: a filter compares what cannot be compared.
    """
    conditions, tests = list[str](), list[Callable[[Mapping[str, Any]], bool]]()
    size = 0
    for found, test in _parts(kinds, filters, node_ids, doc_ids):
        if found is False:
            return Selection(nothing=True)
        if isinstance(found, str) and size + len(found) + 10 <= MAX_CHARS:
            conditions.append(f"({found})")
            size += len(found) + 10
        elif found is not True:
            tests.append(test)
    return Selection(where=" and ".join(conditions) or None, tests=tuple(tests))


def content_of(stored: Mapping[str, Any]) -> str:
    """The node of a row, without its text, as JSON.

    Raises:
        IndexFormatError: no store wrote the row.
    """
    content: str | None = stored.get(CONTENT)
    if content is None:
        raise ragidx.IndexFormatError("the index has a row that no RagidxVectorStore wrote", "delete it, or add nodes")
    return content


def _filtered(stored: Mapping[str, Any]) -> dict[str, Any]:
    """What filters see of a row: the node's own metadata, and what LlamaIndex adds to it."""
    content, ref_doc_id = json.loads(content_of(stored)), stored[REF_DOC_ID]
    added = {TYPE: stored[TYPE], REF_DOC_ID: ref_doc_id, **dict.fromkeys(SAME_AS_REF_DOC_ID, ref_doc_id)}
    return {**content["metadata"], **added, NODE_ID: content["id_"]}


def _parts(
    kinds: Mapping[str, str],
    filters: MetadataFilters | None,
    node_ids: Iterable[str] | None,
    doc_ids: Iterable[str] | None,
) -> Iterator[tuple[Found, Callable[[Mapping[str, Any]], bool]]]:
    """What all has to hold: as a condition, if there is one, and as a test."""
    for field, names in ((NODE_ID, node_ids), (REF_DOC_ID, doc_ids)):
        if names is not None:
            wanted = list(names)
            yield _is_in(field, wanted), _named(field, frozenset(wanted))
    if filters is not None:
        yield _tree(filters, kinds, True, 0), lambda metadata: _passes(filters, metadata)


def _named(field: str, names: frozenset[str]) -> Callable[[Mapping[str, Any]], bool]:
    return lambda metadata: metadata[field] in names


# -- in Python -------------------------------------------------------------------------------------------------------


def _passes(filters: MetadataFilters, metadata: Mapping[str, Any]) -> bool:
    """Whether a node passes; no filters, even none under NOT, are passed by all, as in LlamaIndex."""
    if not filters.filters:
        return True
    answers = [
        _passes(part, metadata) if isinstance(part, MetadataFilters) else _answer(part, metadata)
        for part in filters.filters
    ]
    condition = filters.condition or FilterCondition.AND
    if condition == FilterCondition.AND:
        return all(answers)
    return any(answers) == (condition == FilterCondition.OR)


def _answer(leaf: MetadataFilter, metadata: Mapping[str, Any]) -> bool:
    """What LlamaIndex says of one filter."""
    try:
        return build_metadata_filter_fn(lambda _: metadata, MetadataFilters(filters=[leaf]))("")
    except TypeError as fault:
        kind = type(metadata.get(leaf.key)).__name__
        raise _incomparable(leaf, kind) from fault


def _incomparable(leaf: MetadataFilter, kind: str) -> ragidx.QueryError:
    return ragidx.QueryError(
        f"the filter {leaf.key!r} {leaf.operator.value} {leaf.value!r} cannot be asked of a field of the type {kind}",
        "give it a value of that type, or another operator",
        where="`filters`",
    )


# -- as conditions ---------------------------------------------------------------------------------------------------


def _tree(filters: MetadataFilters, kinds: Mapping[str, str], wanted: bool, depth: int) -> Found:
    """The nodes that pass, or that do not where `wanted` is False."""
    if not filters.filters:
        return wanted
    if depth > _MAX_DEPTH:
        return None
    condition = filters.condition or FilterCondition.AND
    inner = wanted if condition != FilterCondition.NOT else not wanted
    parts = [
        _tree(part, kinds, inner, depth + 1) if isinstance(part, MetadataFilters) else _leaf(part, kinds, inner)
        for part in filters.filters
    ]
    return _joined(parts, "or" if (condition == FilterCondition.OR) == wanted else "and")


def _joined(parts: Sequence[Found], word: str) -> Found:
    """All of the parts, or one of them."""
    decides = word == "or"  # what one part that says so makes of the whole
    if any(part is None for part in parts):
        return None
    if any(part is decides for part in parts):
        return decides
    texts = [part for part in parts if isinstance(part, str)]
    if not texts:
        return not decides
    return texts[0] if len(texts) == 1 else f" {word} ".join(f"({text})" for text in texts)


def _leaf(leaf: MetadataFilter, kinds: Mapping[str, str], wanted: bool) -> Found:
    """The nodes that a filter matches, or does not."""
    field = REF_DOC_ID if leaf.key in SAME_AS_REF_DOC_ID else leaf.key
    kind = None if field in (CONTENT, NODE_ID) else kinds.get(field)
    is_empty = leaf.operator == _O.IS_EMPTY
    without = (is_empty or leaf.operator in _NOT_EQUAL) == wanted  # whether nodes without the field are meant
    if _asks_for_lists(leaf):
        return None
    if kind is None:
        return without
    found = _with_field(leaf.operator, leaf.value, field, kind, leaf)
    if found is None:
        return None
    name = shown(field)
    if isinstance(found, bool):
        present: Found = f"{name} is not null" if found == wanted else False
    else:
        present = found if wanted else f"not ({found})"
    if present == f"{name} is not null" and without:
        return True
    return _joined([present, f"{name} is null" if without else False], "or")


def _asks_for_lists(leaf: MetadataFilter) -> bool:
    """Whether it compares whole lists; an index has no empty ones, and no condition compares lists."""
    if leaf.operator == _O.ALL:  # an empty list has all of nothing
        return leaf.value in ("", [])
    return isinstance(leaf.value, list) and leaf.operator in (_O.EQ, _O.NE, *_ORDER)


def _with_field(operator: FilterOperator, value: Any, field: str, kind: str, leaf: MetadataFilter) -> Found:
    """Which of the nodes that have the field match; none of them has an empty list."""
    try:
        answers = [_answer(leaf, {leaf.key: sample}) for sample in _SAMPLES[kind]]
    except ragidx.QueryError as fault:
        raise _incomparable(leaf, kind) from fault.__cause__
    if kind == "bool":
        yes, no = answers
        return yes if yes == no else f"{shown(field)} == {'true' if yes else 'false'}"
    if operator in (_O.IS_EMPTY, _O.EQ, _O.NE, *_ORDER):
        return _compared(operator, value, field, kind)
    if operator in (_O.IN, _O.NIN):
        return _listed(operator, value, field, kind)
    return _held(operator, value, field)


def _compared(operator: FilterOperator, value: Any, field: str, kind: str) -> Found:
    """`value` compared with numbers or texts."""
    name = shown(field)
    if operator == _O.IS_EMPTY:
        return f'{name} == ""' if kind == "string" else False
    if operator in _ORDER:
        return _unless_rounded([value], kind, f"{name} {operator.value} {_literal(value, kind)}")
    equal: Found = f"{name} == {_literal(value, kind)}" if _is_of(value, kind) else False
    return _unless_rounded([value], kind, _turned(equal, operator == _O.NE))


def _listed(operator: FilterOperator, value: Any, field: str, kind: str) -> Found:
    """Whether the field is one of the values."""
    if isinstance(value, str):  # a part of it, to LlamaIndex
        return None
    same = [one for one in value if _is_of(one, kind)]
    return _unless_rounded(same, kind, _turned(_is_in(field, same, kind), operator == _O.NIN))


def _held(operator: FilterOperator, value: Any, field: str) -> Found:
    """Whether a text or a list has the value, or the values, in it; in a list there are texts alone."""
    name = shown(field)
    if operator in (_O.ALL, _O.ANY):
        has = [f"{name} contains {quoted(one)}" if isinstance(one, str) else False for one in value]
        return _joined(has, "and" if operator == _O.ALL else "or")
    if operator == _O.TEXT_MATCH_INSENSITIVE:
        return None if (pattern := _any_case(value)) is None else f"{name} matches {quoted(pattern)}"
    return f"{name} contains {quoted(value)}" if isinstance(value, str) else False


def _turned(found: Found, turns: bool) -> Found:
    if not turns or found is None:
        return found
    return not found if isinstance(found, bool) else f"not ({found})"


def _is_of(value: Any, kind: str) -> bool:
    """Whether it may equal a value of the kind."""
    return isinstance(value, str) if kind == "string" else kind in ("int", "float") and isinstance(value, int | float)


def _unless_rounded(values: Iterable[Any], kind: str, found: Found) -> Found:
    """None where a condition cannot have the number, or the column may not have it exactly."""
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            return None
        if kind == "float" and isinstance(value, int | float) and abs(value) >= _EXACT:
            return None
        if isinstance(value, int) and abs(value) >= 2**64:
            return None
    return found


def _is_in(field: str, values: Sequence[Any], kind: str = "string") -> Found:
    return _joined(lists(field, [_literal(value, kind) for value in values]), "or")


def _any_case(value: str) -> str | None:
    """A regular expression for `value.lower() in text.lower()`; None: it is not ASCII, and Python's rules are its own.

    `(?i)` of a regular expression is another thing: it takes the long s for an s. Of other characters the Kelvin sign
    becomes a k, and the dotted capital I an i with a dot after it.
    """
    if not value.isascii():
        return None
    parts = [f"[{one}{one.upper()}]" if one.isalpha() else re.escape(one) for one in value.lower()]
    parts = [part.replace("[k", "[k\N{KELVIN SIGN}") for part in parts]
    if parts and parts[-1] == "[iI]":
        parts[-1] = "[iI\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}]"
    return "".join(parts)


def _literal(value: Any, kind: str) -> str:
    return quoted(value) if kind == "string" else repr(value)
