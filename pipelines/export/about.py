"""What a target keeps beside the rows: how the vectors were made, and of which state of the index they are.

Questions can be encoded by it alone: it has the spec, and the files that belong to it, a filter for example.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.store.store import Store
from ragidx.pipelines.ingest.removal import DELETED_FILE

KEY = "ragidx"
"""Under which a target has it."""

_FORMAT = 1


@dataclass(frozen=True)
class About:
    """What is known of the rows of a target.

    Attributes:
        spec: how the vectors were made, as the manifest has it.
        fingerprint: of it: vectors of different fingerprints are never mixed.
        generation, created: the state of the index.
        dim: numbers of a vector.
        fields: of the metadata, with their kinds.
        files: that belong to the spec, by name.
    """

    spec: Mapping[str, Any]
    fingerprint: str
    generation: int
    created: str
    dim: int
    fields: Mapping[str, str]
    files: Mapping[str, bytes]

    @classmethod
    def of(cls, store: Store) -> Self:
        """Of the state of an index."""
        manifest = store.manifest
        return cls(
            spec=dict(manifest.spec),
            fingerprint=manifest.fingerprint,
            generation=manifest.generation,
            created=manifest.created,
            dim=manifest.dim,
            fields=dict(manifest.schema),
            files={name: store.blob(name) for name in manifest.files if name != DELETED_FILE},
        )

    def to_bytes(self) -> bytes:
        """As JSON."""
        files = {name: base64.b64encode(data).decode() for name, data in self.files.items()}
        return json.dumps({"format": _FORMAT, **vars(self), "files": files}).encode()

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
            return cls(**said, files=files)
        except (ValueError, TypeError, KeyError, AttributeError) as fault:
            hint = "export again, with `replace=True`"
            raise IndexFormatError(f"what it says of its vectors cannot be read: {fault}", hint, where=where) from fault

    def is_of(self, other: Self) -> bool:
        """Whether both are of one state."""
        return (self.fingerprint, self.generation, self.created) == (other.fingerprint, other.generation, other.created)
