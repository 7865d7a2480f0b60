"""What is asked of an index beside the question: how it is ranked, among which chunks, and what becomes of the hits.

keywords, as a user gives them, and an index -> SearchOptions: checked, and the condition parsed, once for a search,
before anything is encoded for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

import numpy as np

from ragidx.corpora.errors import QueryError, unknown_name
from ragidx.indexer.store.store import Store, check_widths
from ragidx.retriever.fusion import DENSE, FUSIONS, HYBRID, LEXICAL, MODES, WEIGHT, Fusion, Widths, Z

if TYPE_CHECKING:
    from ragidx.retriever.where.conditions import Condition


class WidthKeywords(TypedDict, total=False):
    """How vectors are compared, by name; None: the default."""

    dim: int | None  # compare the first numbers of the vectors only
    rerank_dim: int | None  # compare the best again, by so many numbers
    min_score: float | None  # leave out chunks with a smaller cosine


class RankKeywords(WidthKeywords, total=False):
    """How chunks are ranked for a question, by name: the options of a search for documents."""

    mode: Literal["dense", "lexical", "hybrid"] | None
    weight: float | None  # of the cosine in hybrid search, 0 to 1
    fusion: Literal["z", "rrf"] | None
    min_z: float | None  # leave out chunks with a smaller sum of z-scores
    rerank: Rerank | None  # a model that reads the question with the best passages


class ShapeKeywords(TypedDict, total=False):
    """What becomes of the ranked chunks, by name."""

    per_document: int | None  # hits of one document, at most
    fold: bool  # equal and nearly equal passages become one hit
    mmr: float | None  # how much the score counts against likeness to hits before, 0 to 1
    context: int  # chunks of the document on each side


class VectorKeywords(WidthKeywords, ShapeKeywords, total=False):
    """The options of a search by vectors, by name, without the condition."""


class SearchKeywords(RankKeywords, ShapeKeywords, total=False):
    """The options of a search in words, by name, without the condition."""


class QueryKeywords(SearchKeywords, total=False):
    """All options of a search."""

    k: int
    where: str | None


@dataclass(frozen=True, slots=True)
class Shape:
    """What becomes of the ranked chunks.

    Attributes:
        per_document: hits of one document, at most; None: any number.
        fold: whether equal and nearly equal passages become one hit.
        mmr: maximal marginal relevance over the first hits; None: none.
        context: chunks of the document on each side.
    """

    per_document: int | None = None
    fold: bool = True
    mmr: float | None = None
    context: int = 0


ONE_A_DOCUMENT = Shape(per_document=1, fold=False)
"""Of a search for documents: each counts by its best chunk, and equal texts of two of them are both there."""


@dataclass(frozen=True, slots=True)
class Rerank:
    """A model that reads the best passages with the question, and orders them again.

    Attributes:
        model: a cross-encoder or a decoder: a folder or a hub id.
        top: passages that it reads; never fewer than there are to be hits.
        method: auto, cross-encoder, or the name of a prompt: `reranker_methods`.
    """

    model: str
    top: int = 20
    method: str = "auto"


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The options of a search in one index.

    Attributes:
        k: hits a query, 1 or more.
        where: which rows may be found; None: all.
        widths: how much of a vector is compared.
        mode: of `MODES`.
        fusion: of the two scores in hybrid search.
        min_score: the smallest cosine of a hit; None: any.
        min_z: the smallest sum of z-scores; None: any.
        shape: of the hits.
        rerank: the model that orders the best again; None: none.
    """

    k: int
    where: Condition | None = None
    widths: Widths = field(default_factory=Widths)
    mode: str = DENSE
    fusion: Fusion = field(default_factory=Fusion)
    min_score: float | None = None
    min_z: float | None = None
    shape: Shape = field(default_factory=Shape)
    rerank: Rerank | None = None


def search_options(
    store: Store,
    k: int,
    where: str | None,
    *,
    in_words: bool = False,
    encodes: bool = True,
    **options: Unpack[SearchKeywords],
) -> SearchOptions:
    """The options, for a search in this index.

    Args:
        store: the index.
        k: hits a query.
        where: the condition.
        in_words: whether it is asked in words, not with vectors.
        encodes: whether a model encodes questions for it.
        options: `SearchKeywords`.

    Raises:
        QueryError: a value is unknown or out of range, the condition is wrong, the index has not what an option needs,
            or two options exclude each other.
    """
    for name in options:
        if name not in SearchKeywords.__annotations__:
            raise TypeError(f"search takes no option {name!r}")
    k = _whole("k", k)
    if where is not None and not isinstance(where, str):
        raise QueryError(f"the condition is {where!r}, no text", "write one such as 'year >= 1900'", where="condition")
    condition = None
    if where is not None:
        from ragidx.retriever.where.masks import parse_for

        condition = parse_for(store, where)
    dim, again = options.get("dim"), options.get("rerank_dim")
    widths = Widths(None if dim is None else _whole("dim", dim), None if again is None else _whole("rerank_dim", again))
    check_widths(store.manifest.dim, widths.dim, widths.rerank_dim)
    mode = _mode(store, options.get("mode"), in_words=in_words, encodes=encodes)
    fusion = _fusion(mode, options.get("fusion"), options.get("weight"))
    if mode == LEXICAL and widths.dim is not None:
        raise QueryError("lexical search compares no vectors", "remove it, or search with `mode=hybrid`", where="`dim`")
    min_score, min_z, mmr = options.get("min_score"), options.get("min_z"), options.get("mmr")
    per_document = options.get("per_document")
    if min_z is not None and (mode, fusion.kind) != (HYBRID, Z):
        shown = "rrf gives places, no sums of z-scores" if mode == HYBRID else f"{mode} search has no z-scores"
        raise QueryError(shown, "use `min_score`, which limits the cosine", where="`min_z`")
    return SearchOptions(
        k,
        condition,
        widths,
        mode,
        fusion,
        None if min_score is None else _number("min_score", min_score, -1, 1),
        None if min_z is None else _number("min_z", min_z),
        Shape(
            None if per_document is None else _whole("per_document", per_document),
            _switch("fold", options.get("fold", True)),
            None if mmr is None else _number("mmr", mmr, 0, 1),
            _whole("context", options.get("context", 0), 0),
        ),
        _rerank(k, options.get("rerank"), in_words=in_words),
    )


def _rerank(k: int, asked: Rerank | None, *, in_words: bool) -> Rerank | None:
    """The model that reads the best passages, at least as many as there are to be hits."""
    if asked is None:
        return None
    if not isinstance(asked, Rerank):
        raise QueryError(f"rerank={asked!r} is no Rerank", 'give Rerank("a model")', where="`rerank`")
    if not in_words:
        raise QueryError("a vector has no words that a reranker could read", "ask with a text", where="`rerank`")
    return Rerank(asked.model, max(k, _whole("rerank_top", asked.top)), asked.method)


def _fusion(mode: str, kind: str | None, weight: float | None) -> Fusion:
    """How two scores become one; nothing may be said about it in a search that has one."""
    for name, value in (("weight", weight), ("fusion", kind)):
        if value is not None and mode != HYBRID:
            raise QueryError(f"it is for hybrid search, and this one is {mode}", "remove it", where=f"`{name}`")
    found = _known("fusion", Z if kind is None else kind, FUSIONS)
    return Fusion(found, WEIGHT if weight is None else _number("weight", weight, 0, 1))


def _mode(store: Store, asked: str | None, *, in_words: bool, encodes: bool) -> str:
    """How to search: what was asked for, if the index has it; by default with all that it has."""
    if asked is None:
        if not in_words or store.lexical is None:
            return DENSE
        return HYBRID if encodes else LEXICAL
    mode = _known("mode", asked, MODES)
    if mode != DENSE and not in_words:
        raise QueryError(f"a vector has no words for {mode} search", "ask with a text", where="`mode`")
    if mode != DENSE and store.lexical is None and store.manifest.n_chunks:
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


def _switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise QueryError(f"{name}={value!r} is neither true nor false", "give one of them", where=f"`{name}`")
    return value


def _number(name: str, value: float, least: float = -np.inf, most: float = np.inf) -> float:
    """A number in a range; NaN is in none."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not least <= value <= most:
        limits = f"from {least:g} to {most:g}" if np.isfinite(least) else "a number"
        raise QueryError(f"{name}={value!r} is out of range", f"give {limits}", where=f"`{name}`")
    return float(value)
