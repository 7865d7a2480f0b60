"""Filters of LlamaIndex as conditions of ragidx.

    MetadataFilters, node ids, document ids -> the condition that finds the nodes; None: all are meant

What a filter matches is what `SimpleVectorStore` of LlamaIndex says: where no comparison of ragidx says the same, its
own function is the test in the condition. Filters may be nested, which `SimpleVectorStore` refuses. A comparison that
Python cannot make, `"a" > 1`, is a `QueryError`. In LlamaIndex an answer is true or false: NE and NIN match nodes
without the field, and NOT turns that round; so no condition here is unknown.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce
from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

import ragidx
from ragidx.pipelines.integrations.frameworks.conditions import MOST_DEEP, constant, settled

NODE_ID, REF_DOC_ID, CONTENT, TYPE = "_node_id", "ref_doc_id", "_node_content", "_node_type"
SAME_AS_REF_DOC_ID = ("document_id", "doc_id")  # LlamaIndex writes the same under three names

_O = FilterOperator
_SIGNS = {_O.EQ: operator.eq, _O.GT: operator.gt, _O.GTE: operator.ge, _O.LT: operator.lt, _O.LTE: operator.le}
_EXACT = 2**53  # a column of floats may have rounded whole numbers from here on


def select(
    kinds: Mapping[str, str],
    filters: MetadataFilters | None = None,
    node_ids: Iterable[str] | None = None,
    doc_ids: Iterable[str] | None = None,
) -> ragidx.Condition | None:
    """The condition of nodes that pass the filters and have one of the ids; None: all nodes do.

    Args:
        kinds: the type of each field of the index, by name.
        filters: the filters of LlamaIndex; None: there are none.
        node_ids: ids of the nodes that may be found; an empty list is no node, None any.
        doc_ids: ids of the documents whose nodes may be found; an empty list is no document, None any.

    Raises:
        QueryError: the filters are too deep. What cannot be compared is refused when the condition is asked.
    """
    named = ((NODE_ID, node_ids), (REF_DOC_ID, doc_ids))
    found = [ragidx.field(field).is_in(names) for field, names in named if names is not None]
    if filters is not None and filters.filters:
        found.append(_tree(filters, kinds, 0))
    return reduce(operator.and_, found) if found else None


def content_of(stored: Mapping[str, Any]) -> str:
    """The node of a row, without its text, as JSON.

    Raises:
        IndexFormatError: no store wrote the row.
    """
    content: str | None = stored.get(CONTENT)
    if content is None:
        raise ragidx.IndexFormatError("the index has a row that no RagidxVectorStore wrote", "delete it, or add nodes")
    return content


def _tree(filters: MetadataFilters, kinds: Mapping[str, str], depth: int) -> ragidx.Condition:
    """The nodes that pass; no filters, even none under NOT, are passed by all, as in LlamaIndex."""
    if depth > MOST_DEEP:
        raise ragidx.QueryError(
            f"the filters are more than {MOST_DEEP} deep", "remove what changes nothing", where="`filters`"
        )
    if not filters.filters:
        return constant(True)
    parts = [
        _tree(part, kinds, depth + 1) if isinstance(part, MetadataFilters) else _leaf(part, kinds)
        for part in filters.filters
    ]
    condition = filters.condition or FilterCondition.AND
    whole = reduce(operator.and_ if condition == FilterCondition.AND else operator.or_, parts)
    return ~whole if condition == FilterCondition.NOT else whole


def _leaf(leaf: MetadataFilter, kinds: Mapping[str, str]) -> ragidx.Condition:
    """The nodes that a filter matches."""
    field = REF_DOC_ID if leaf.key in SAME_AS_REF_DOC_ID else leaf.key
    kind = None if field in (CONTENT, NODE_ID) else kinds.get(field)
    values = leaf.value if isinstance(leaf.value, list) else [leaf.value]
    if field not in (REF_DOC_ID, TYPE) and (
        _asks_for_lists(leaf) or (kind == "float" and not all(map(_is_exact, values)))
    ):
        of_node = ragidx.field(CONTENT).passes(lambda content: _answer(leaf, json.loads(content)["metadata"]))
        return settled(CONTENT, of_node, missing=False)
    missing = _answer(leaf, {})
    if kind is None:
        return constant(missing)
    found = _said(leaf, values, field, kind)
    if found is None:
        found = ragidx.field(field).passes(lambda held: _answer(leaf, {leaf.key: held}))
    return settled(field, found, missing=missing)


def _asks_for_lists(leaf: MetadataFilter) -> bool:
    """Whether it compares whole lists: a column has none that are empty."""
    if leaf.operator == _O.ALL:  # an empty list has all of nothing
        return leaf.value in ("", [])
    return isinstance(leaf.value, list) and leaf.operator in (*_SIGNS, _O.NE)


def _is_exact(value: object) -> bool:
    """Whether a number, if it is one, is the same in a column of floats."""
    return not isinstance(value, int | float) or abs(value) < _EXACT


def _said(leaf: MetadataFilter, values: list[Any], name: str, kind: str) -> ragidx.Condition | None:
    """The comparison of ragidx that says the same of nodes that have the field; None: there is none."""
    field, is_text = ragidx.field(name), kind in ("string", "list")
    value: Any = leaf.value
    if not values or kind == "bool" or not all(_is_plain(one, is_text=is_text) for one in values):
        return None
    tests: dict[FilterOperator, Callable[[], ragidx.Condition]] = {}
    if kind != "list" and isinstance(value, list):
        tests = {_O.IN: lambda: field.is_in(value), _O.NIN: lambda: ~field.is_in(value)}
    elif kind != "list":
        tests = {_O.NE: lambda: field != value, **{op: partial(sign, field, value) for op, sign in _SIGNS.items()}}
    if is_text and isinstance(value, list):
        tests[_O.ANY] = lambda: reduce(operator.or_, map(field.contains, value))
        tests[_O.ALL] = lambda: reduce(operator.and_, map(field.contains, value))
    elif is_text:
        tests |= dict.fromkeys((_O.CONTAINS, _O.TEXT_MATCH)[: 1 + (kind == "string")], lambda: field.contains(value))
    return tests[leaf.operator]() if leaf.operator in tests else None


def _is_plain(value: object, *, is_text: bool) -> bool:
    """Whether a value is compared here as in Python, which compares the Unicode form of a text, too."""
    if is_text:
        return isinstance(value, str) and value.isascii()
    return type(value) is int or (type(value) is float and _is_exact(value))


def _answer(leaf: MetadataFilter, metadata: Mapping[str, Any]) -> bool:
    """What LlamaIndex says of one filter."""
    try:
        return build_metadata_filter_fn(lambda _: metadata, MetadataFilters(filters=[leaf]))("")
    except TypeError as fault:
        kind = type(metadata.get(leaf.key)).__name__
        asked = f"the filter {leaf.key!r} {leaf.operator.value} {leaf.value!r}"
        raise ragidx.QueryError(
            f"{asked} cannot be asked of a field of the type {kind}",
            "give it a value of that type, or another operator",
            where="`filters`",
        ) from fault
