"""What a target keeps beside the rows: how the vectors were made, and of which state of the index they are.

Questions can be encoded by it alone: it has the spec, and the files that belong to it, a filter for example.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.models.address import KEPT_AS
from ragidx.indexer.specs import holds_precomputed
from ragidx.indexer.store.files import DELETED_FILE, is_file_name
from ragidx.pipelines.integrations.engines.columns import FIXED, columns_for
from ragidx.retriever.rows import Rows
from ragidx.retriever.where.masks import schema_of

KEY = "ragidx"
"""Under which a target has it."""

_FORMAT = 1


@dataclass(frozen=True)
class AboutTable:
    """What is known of the rows of a target.

    Attributes:
        spec: how the vectors were made, as the manifest has it.
        fingerprint: of it: vectors of different fingerprints are never mixed.
        generation, created: the state of the index.
        dim: numbers of a vector.
        fields: that a condition can name, with their kinds.
        files: that belong to the spec, by name.
        n_rows, n_documents: of the index.
        stemmer: of the words of the index; empty where it has none.
        notes: what else belongs to the model: where its server is.
    """

    spec: Mapping[str, Any]
    fingerprint: str
    generation: int
    created: str
    dim: int
    fields: Mapping[str, str]
    files: Mapping[str, bytes]
    n_rows: int = 0
    n_documents: int = 0
    stemmer: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Rows) -> Self:
        """Of the state of an index."""
        manifest = store.manifest
        return cls(
            spec=dict(manifest.spec),
            fingerprint=manifest.fingerprint,
            generation=manifest.generation,
            created=manifest.created,
            dim=manifest.dim,
            fields=schema_of(store),
            files={name: store.blob(name) for name in manifest.files if name != DELETED_FILE},
            n_rows=manifest.n_chunks,
            n_documents=manifest.n_documents,
            stemmer="" if manifest.lexical is None else manifest.lexical.stemmer,
            notes={name: manifest.notes[name] for name in (KEPT_AS,) if name in manifest.notes},
        )

    def columns(self) -> dict[str, str]:
        """The column of each field that a condition can name."""
        return columns_for(self.fields, ("doc_id",) if holds_precomputed(self.spec) else ("doc_id", "heading"))

    def own_columns(self) -> dict[str, str]:
        """The columns of the metadata, by the names of the fields."""
        return {name: column for name, column in self.columns().items() if column not in FIXED}

    def to_bytes(self) -> bytes:
        """As JSON."""
        files = {name: base64.b64encode(data).decode() for name, data in self.files.items()}
        return json.dumps({"format": _FORMAT, **asdict(self), "files": files}).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """The inverse.

        Raises:
            IndexFormatError: it is damaged, or of a later version.
        """
        try:
            said = json.loads(data)
            if said.pop("format") != _FORMAT:
                raise ValueError("it is of another version of ragidx")
            files = {name: base64.b64decode(text) for name, text in said.pop("files").items()}
            if not all(map(is_file_name, files)) or not isinstance(said["dim"], int):
                raise ValueError("it is damaged")
            return cls(**said, files=files)
        except (ValueError, TypeError, KeyError, AttributeError) as fault:
            hint = "export again, with `replace=True`"
            raise IndexFormatError(f"what it says of its vectors cannot be read: {fault}", hint, where=where) from fault

    def has_shape_of(self, other: Self) -> bool:
        """Whether both have vectors of one model, and the same fields."""
        return (self.fingerprint, self.dim, self.fields) == (other.fingerprint, other.dim, other.fields)

    def is_of(self, other: Self) -> bool:
        """Whether both are of one state."""
        return (self.fingerprint, self.generation, self.created) == (other.fingerprint, other.generation, other.created)
