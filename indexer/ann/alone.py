"""Codes alone: an index whose segments keep no vectors beside their codes, and what it therefore refuses.

Which codes can stand for vectors; each use of stored vectors that is refused, by its name, with what to do.
"""

from __future__ import annotations

from ragidx.corpora.errors import QueryError, SpecError
from ragidx.indexer.ann.index_types import INDEX_TYPES, IndexOptions, Recipe

_AGAIN = "build again without `codes_only` and with `rebuild=True`"
_DECODED = "ask for the decoded ones with `decoded=True`"

_REFUSED: dict[str, tuple[str, str, type[QueryError | SpecError]]] = {
    "dim": ("codes hold all dimensions of a vector together", f"leave it out, or {_AGAIN}", QueryError),
    "rerank_dim": ("codes hold all dimensions of a vector together", f"leave it out, or {_AGAIN}", QueryError),
    "shrink": ("codes hold all dimensions of a vector together", f"{_AGAIN} and a smaller `dim`", SpecError),
    "evaluate": ("widths and types are made of the vectors", f"name the corpus in its place, or {_AGAIN}", SpecError),
    "reindex": ("another type, width or recall is made of the vectors", _AGAIN, SpecError),
    "target_recall": ("it is measured against the vectors", f"leave it out, or {_AGAIN}", SpecError),
    "adapt": ("a map is learnt from the vectors", _AGAIN, SpecError),
    "export": ("a target holds vectors", f"{_DECODED}, or {_AGAIN}", SpecError),
    "vectors": ("vectors are not stored", f"{_DECODED}, or {_AGAIN}", QueryError),
}
"""Use -> why it is refused, what to do, and the error's class."""


def check_has_vectors(options: IndexOptions, use: str, where: str = "") -> None:
    """Check that an index may be used in a way that needs its vectors, a name of the table above.

    Raises:
        QueryError, SpecError: it keeps codes alone.
    """
    if options.codes_only:
        reason, hint, kind = _REFUSED[use]
        raise kind(f"an index of codes alone has no `{use}`: {reason}", hint, where=where)


def check_widths(options: IndexOptions, stored: int, dim: int | None, rerank_dim: int | None) -> None:
    """Check the widths of a search in an index of `stored` dimensions.

    Raises:
        QueryError: the index keeps codes alone, a width is out of range, or the two do not fit together.
    """
    from ragidx.indexer import normalize  # with NumPy, which the help of a command does not load

    for name, width in (("dim", dim), ("rerank_dim", rerank_dim)):
        if width is not None:
            check_has_vectors(options, name, f"`{name}`")
    normalize.check_widths(stored, dim, rerank_dim)


def check_decodable(index_type: str) -> None:
    """Check that the codes of an index type, a name or a factory string, can stand for the vectors.

    Raises:
        SpecError: they cannot; the message says why.
    """
    recipe = None if index_type in INDEX_TYPES else Recipe.parse(index_type)
    reason = _NO_CODES.get(index_type) if recipe is None else _reason(recipe)
    if reason is not None:
        raise SpecError(
            f"index type {index_type} cannot be all that is kept of the vectors: {reason}",
            "take pq4, ivfpq4, sq8, ivfpq or rabitq, or build without `codes_only`",
            where="`codes_only`",
        )


_NO_CODES = {
    "flat": "it has no codes",
    "hnsw": "a graph has no codes",
    "ivf": "its lists hold the vectors in float16",
}


def _reason(recipe: Recipe) -> str | None:
    """Why the codes of a recipe cannot be decoded; FAISS 1.15 reads only the first bit of those of RaBitQ."""
    if recipe.links is not None:
        return _NO_CODES["hnsw"]
    if recipe.code == "SQfp16":
        return _NO_CODES["ivf"]
    if recipe.code.startswith("RaBitQ") and recipe.code[6:].isdigit():
        return f"{recipe.code} is not decoded as it was coded"
    if recipe.code == "RaBitQfs" and recipe.lists is not None:
        return "lists of RaBitQfs are not decoded as they were coded"
    if recipe.rotate and recipe.in_registers:
        return "codes in registers are not turned back"
    return None
