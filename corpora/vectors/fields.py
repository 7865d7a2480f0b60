"""Files of vectors with columns: which column has the vectors, the ids, the texts, the metadata.

    Arrow schema -> VectorColumns

A column of vectors is a list, of fixed size or not, of half, float or double; every other column that metadata can hold
becomes metadata. No value is read here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import types

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.readers.fields import TEXT_FIELDS
from ragidx.corpora.readers.records.columnar import kept_columns
from ragidx.corpora.readers.source_file import SourceFile

VECTOR_FIELDS = ("vector", "embedding", "embeddings", "vectors", "emb", "dense")
ID_FIELDS = ("id", "_id", "chunk_id")
DOCUMENT_FIELDS = ("doc_id", "docid")

_SHOWN_FIELDS = 8


@dataclass(frozen=True, slots=True)
class VectorColumns:
    """Which column is what; those of `metadata` sorted by name."""

    vector: str
    id: str | None
    text: str | None
    document: str | None
    metadata: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        return [name for name in (self.vector, self.id, self.text, self.document) if name] + list(self.metadata)

    @classmethod
    def choose(cls, file: SourceFile, schema: Any, vector_field: str | None) -> VectorColumns:
        """Find the columns; those that are none of them and cannot be metadata are skipped.

        Raises:
            CorpusError: a column that is needed, or was named, is missing or of another type.
        """
        kinds = {
            name: schema.field(schema.names.index(name)).type
            for name, count in Counter(schema.names).items()
            if count == 1
        }
        where, said = file.source.name, file.fields
        vector = _vector_column(kinds, vector_field, where)
        text = _named(kinds, said.text, TEXT_FIELDS, is_text, ("texts", "`text_field`"), where)
        own = _named(kinds, said.id, ID_FIELDS, _is_id, ("ids", "`id_field`"), where)
        document = _named(kinds, None, DOCUMENT_FIELDS, _is_id, ("ids", ""), where)
        document = None if document == own else document
        taken = {vector, text, own, document}
        metadata = []
        for name in sorted(kept_columns(file, schema)):
            if name not in taken and is_vectors(kinds[name]):
                file.skip(f"column '{name}': type {kinds[name]}")
            elif name not in taken:
                metadata.append(name)
        return cls(vector, own, text, document, tuple(metadata))


def _vector_column(kinds: Mapping[str, Any], chosen: str | None, where: str) -> str:
    columns = [name for name in kinds if is_vectors(kinds[name])]
    if chosen is None:
        known = [name for name in VECTOR_FIELDS if name in columns]
        if known or len(columns) == 1:
            return (known or columns)[0]
        if columns:
            raise CorpusError(
                f"several columns hold lists of numbers: {_shown(kinds, columns)}",
                "say which one to read with `vector_field`",
                where=where,
            )
    elif chosen in columns:
        return chosen
    what = "no column holds" if chosen is None else f"the column '{chosen}' is missing or holds no"
    raise CorpusError(
        f"{what} vectors (found: {_shown(kinds, kinds)})",
        "vectors are lists of float16, float32 or float64, of one length"
        + (", named by `vector_field`" * bool(columns)),
        where=where,
    )


def _named(
    kinds: Mapping[str, Any],
    chosen: str | None,
    known: Sequence[str],
    fits: Callable[[Any], bool],
    what: tuple[str, str],
    where: str,
) -> str | None:
    """The column that was named, else the first of the known names that has a fitting type, else None."""
    if chosen is None:
        return next((name for name in known if name in kinds and fits(kinds[name])), None)
    if chosen in kinds and fits(kinds[chosen]):
        return chosen
    raise CorpusError(
        f"the column '{chosen}' is missing or holds no {what[0]} (found: {_shown(kinds, kinds)})",
        f"name another with {what[1]}, or drop the option",
        where=where,
    )


def _shown(kinds: Mapping[str, Any], names: Sequence[str] | Mapping[str, Any]) -> str:
    shown = [f"'{name}' {kinds[name]}" for name in list(names)[:_SHOWN_FIELDS]]
    more = f" and {len(names) - _SHOWN_FIELDS} more" if len(names) > _SHOWN_FIELDS else ""
    return (", ".join(shown) or "no column") + more


def _plain(kind: Any) -> Any:
    """The type below extensions and dictionaries."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    return _plain(kind.value_type) if types.is_dictionary(kind) else kind


def is_text(kind: Any) -> bool:
    """Whether a column of this type holds texts."""
    kind = _plain(kind)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_id(kind: Any) -> bool:
    return is_text(kind) or bool(types.is_integer(_plain(kind)))


def is_vectors(kind: Any) -> bool:
    """Whether a column of this type holds vectors."""
    if isinstance(kind, pa.BaseExtensionType):
        return is_vectors(kind.storage_type)
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list and types.is_floating(kind.value_type))
