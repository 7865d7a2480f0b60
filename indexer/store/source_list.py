"""The sources of an index: the folders and files that its documents come from, as the notes of the manifest list them.

    notes["sources"] = [{number, name, path, prefix, n_documents, built, include, exclude}, ...]

The rows of a document have the number of its source in the column `owner`, or 0 where a program added it. Only that
says whose a document is. Ids begin with the prefix of their source so that two sources seldom have the same ones: that
of the first source of an index is empty, so its ids are bare; those of a source `papers` that was added later begin
with `papers/`. Paths are relative to the index folder, so
that an index that moves together with its sources still finds them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ragidx.corpora.errors import IndexFormatError
from ragidx.corpora.spec import Json

SOURCES = "sources"
PROGRAM = 0
"""The owner of documents that a program added."""
STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """A source of an index.

    Attributes:
        number: number of the source, from 1, unique in the index.
        name: unique in the index.
        path: relative to the index folder, `-` for standard input.
        prefix: what its documents' ids begin with: empty, or `name/`.
        n_documents: number of its documents when it was built last.
        built: time of its last build, UTC, as the manifest's `created`; empty where it is not known.
        include: globs of the files that are read, as `build` was given them.
        exclude: globs of the files that are skipped.
    """

    number: int
    name: str
    path: str
    prefix: str = ""
    n_documents: int = 0
    built: str = ""
    include: Sequence[str] = field(default=())
    exclude: Sequence[str] = field(default=())

    def root(self, index: Path) -> Path:
        """The place of the source."""
        return Path(self.path) if self.path == STANDARD_INPUT else Path(os.path.normpath(index.resolve() / self.path))

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON types."""
        return asdict(self) | {"include": list(self.include), "exclude": list(self.exclude)}


def source_name(path: str | Path) -> str:
    """The name of a source that is given none: a folder's own, a file's without its ending."""
    if str(path) == STANDARD_INPUT:
        return STANDARD_INPUT
    real = Path(path).resolve()
    return real.stem if real.is_file() else real.name or "root"


def stored_path(path: str | Path, index: Path) -> str:
    """A root as the manifest has it."""
    return STANDARD_INPUT if str(path) == STANDARD_INPUT else os.path.relpath(Path(path).resolve(), index.resolve())


def sources_of(notes: Mapping[str, Json], where: Path) -> tuple[SourceEntry, ...]:
    """The sources that the notes of a manifest list.

    Args:
        notes: notes of the manifest.
        where: the index, for messages.

    Raises:
        IndexFormatError: the list is damaged.
    """
    try:
        entries = tuple(_entry(item) for item in notes.get(SOURCES, ()))  # type: ignore[union-attr]  # what is no list is refused below
        for field_name in ("number", "name", "prefix"):
            if len({getattr(entry, field_name) for entry in entries}) < len(entries):
                raise ValueError(f"two sources have the same {field_name}")
    except (TypeError, ValueError, KeyError) as fault:
        hint = "copy the newest manifest.<number>.json over manifest.json, or build again with `rebuild=True`"
        raise IndexFormatError(f"the list of sources is damaged: {fault}", hint, where=str(where)) from fault
    return entries


def free_number(entries: Iterable[SourceEntry]) -> int:
    """The number of the next source."""
    return 1 + max((entry.number for entry in entries), default=PROGRAM)


def _entry(item: Any) -> SourceEntry:
    entry = SourceEntry(**item)
    texts = (entry.name, entry.path, entry.prefix, entry.built, *entry.include, *entry.exclude)
    is_list = isinstance(entry.include, list) and isinstance(entry.exclude, list)
    if not is_list or not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise ValueError("a field is not text")
    if not entry.name or not entry.path or entry.prefix not in ("", f"{entry.name}/"):
        raise ValueError(f"{entry.name!a} has the prefix {entry.prefix!a} and the path {entry.path!a}")
    if not isinstance(entry.n_documents, int) or entry.n_documents < 0:
        raise ValueError(f"{entry.n_documents!a} documents")
    if type(entry.number) is not int or not 0 < entry.number < 1 << 31:
        raise ValueError(f"{entry.name!a} has the number {entry.number!a}")
    return entry
