"""What is asked of an index beside the question: how it is ranked, among which chunks, and what becomes of the hits.

keywords, as a user gives them, and an index -> SearchOptions: checked, and the condition bound, once for a search,
before anything is encoded for it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ragidx.corpora.errors import QueryError, unknown_name
from ragidx.indexer.ann.alone import check_widths
from ragidx.indexer.options import Option, options_of
from ragidx.retriever.keywords import AskKeywords, Rerank, SearchKeywords

if TYPE_CHECKING:
    from ragidx.retriever.rows import Rows
    from ragidx.retriever.where.conditions import Condition

DENSE, LEXICAL, HYBRID = "dense", "lexical", "hybrid"
MODES = (DENSE, LEXICAL, HYBRID)
Z, RRF = "z", "rrf"
FUSIONS = (Z, RRF)
WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The options of a search in one index, as `Index.search` describes them; the condition is bound to it."""

    k: int = 10
    where: Condition | None = None
    mode: str = DENSE
    dim: int | None = None
    rerank_dim: int | None = None
    fusion: str = Z
    weight: float = WEIGHT
    min_score: float | None = None
    min_z: float | None = None
    per_document: int | None = None
    fold: bool = True
    mmr: float | None = None
    context: int = 0
    rerank: Rerank | None = None


def search_options(
    store: Rows,
    *,
    in_words: bool = False,
    encodes: bool = True,
    where: str | Condition | None = None,
    own_weight: float | None = None,
    **asked: Any,
) -> SearchOptions:
    """The options, for a search in this index.

    Args:
        store: the index that is searched.
        in_words: whether the index is asked in words, not with vectors.
        encodes: whether a model encodes questions for it.
        where: the condition, as text or as a value.
        own_weight: weight of the cosine in hybrid search where none is asked for; None: `WEIGHT`.
        asked: the others, unchecked; None: the default.

    Raises:
        QueryError: a value is unknown or out of range, the condition is wrong, the index has not what an option needs,
            or two options exclude each other.
    """
    options = SearchOptions(**asked)
    checked: dict[str, Any] = {"where": _condition(store, where)}
    wholes, numbers = _limits()
    for name, (is_needed, least) in wholes.items():
        if is_needed or getattr(options, name) is not None:
            checked[name] = _whole(name, getattr(options, name), least)
    check_widths(store.manifest.index, store.manifest.dim, checked.get("dim"), checked.get("rerank_dim"))
    mode = _mode(store, asked.get("mode"), in_words=in_words, encodes=encodes)
    for name in ("weight", "fusion"):
        if asked.get(name) is not None and mode != HYBRID:
            raise QueryError(f"it is for hybrid search, and this one is {mode}", "remove it", where=f"`{name}`")
    fusion = _known("fusion", Z if options.fusion is None else options.fusion, FUSIONS)
    if mode == LEXICAL and options.dim is not None:
        raise QueryError("lexical search compares no vectors", "remove it, or search with `mode=hybrid`", where="`dim`")
    if options.min_z is not None and (mode, fusion) != (HYBRID, Z):
        shown = "rrf gives places, no sums of z-scores" if mode == HYBRID else f"{mode} search has no z-scores"
        raise QueryError(shown, "use `min_score`, which limits the cosine", where="`min_z`")
    if not isinstance(options.fold, bool):
        raise QueryError(f"fold={options.fold!r} is neither true nor false", "give one of them", where="`fold`")
    for name in (name for name in numbers if getattr(options, name) is not None):
        checked[name] = _number(name, getattr(options, name), numbers[name])
    if asked.get("weight") is None:
        checked["weight"] = WEIGHT if own_weight is None else own_weight
    checked["rerank"] = _rerank(checked["k"], options.rerank, in_words=in_words)
    return SearchOptions(**asked | {"mode": mode, "fusion": fusion} | checked)


@functools.cache
def _limits() -> tuple[dict[str, tuple[bool, int]], dict[str, Option]]:
    """Of the options that are whole numbers, whether they have to be there, and the least; those that are others."""
    known = options_of(AskKeywords) | options_of(SearchKeywords)
    wholes = {
        name: (kind is int, int(one.least or 0)) for name, (kind, one) in known.items() if kind in (int, int | None)
    }
    return wholes, {name: one for name, (kind, one) in known.items() if kind == float | None}


def _condition(store: Rows, where: str | Condition | None) -> Condition | None:
    if where is None:
        return None
    from ragidx.retriever.where.masks import bind_to

    return bind_to(store, where)


def _rerank(k: int, asked: Rerank | None, *, in_words: bool) -> Rerank | None:
    """The model that reads the best passages, at least as many as there are to be hits."""
    if asked is None:
        return None
    if not isinstance(asked, Rerank):
        raise QueryError(f"rerank={asked!r} is no Rerank", 'give Rerank("a model")', where="`rerank`")
    if not in_words:
        raise QueryError("a vector has no words that a reranker could read", "ask with a text", where="`rerank`")
    return Rerank(asked.model, max(k, _whole("rerank_top", asked.top)), asked.method)


def _mode(store: Rows, asked: str | None, *, in_words: bool, encodes: bool) -> str:
    """How to search: what was asked for, if the index has it; by default with all that it has."""
    if asked is None:
        if not in_words or not store.has_words:
            return DENSE
        return HYBRID if encodes else LEXICAL
    mode = _known("mode", asked, MODES)
    if mode != DENSE and not in_words:
        raise QueryError(f"a vector has no words for {mode} search", "ask with a text", where="`mode`")
    if mode != DENSE and not store.has_words and store.manifest.n_chunks:
        off = store.manifest.index.lexical == "off"
        why = "it was built without one" if off else "it has no texts"
        hint = "build again, which encodes nothing anew" + (", with `lexical=True`" if off else "")
        raise QueryError(
            f"the index has no lexical part: {why}", f"{hint}; or search with `mode=dense`", where=str(store.path)
        )
    return mode


def _known(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        fault = unknown_name(name, str(value), known)
        raise QueryError(fault.message, fault.hint, where=f"`{name}`")
    return value


def _whole(name: str, value: object, least: int = 1) -> int:
    """A whole number; faiss takes no integer of numpy's."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise QueryError(f"{name}={value!r} is not a whole number", f"give {least} or more", where=f"`{name}`")
    if value < least:
        wrong = "asks for no hit" if name == "k" else f"is less than {least}"
        raise QueryError(f"{name}={value} {wrong}", f"give {least} or more", where=f"`{name}`")
    return int(value)


def _number(name: str, value: float, option: Option) -> float:
    """A number in a range; NaN is in none."""
    least = -np.inf if option.least is None else option.least
    most = np.inf if option.most is None else option.most
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not least <= value <= most:
        limits = f"from {least:g} to {most:g}" if np.isfinite(least) else "a number"
        raise QueryError(f"{name}={value!r} is out of range", f"give {limits}", where=f"`{name}`")
    return float(value)
