"""How the records of a file become documents: decided once a file, and kept, or new rows would change the old ones.

    Layout(text, title)      of one file
    Layouts                  of a corpus: those of earlier builds, and those of this one

Which fields they are is decided in `records.field_rule`. What a user chooses (`text_field`) comes before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RULE = 2
"""Of the present version. 1: an index of an older one, whose nested objects stay JSON text where they were."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which fields of a record are what; all others are metadata.

    Args:
        text: paths, in the order of the text; empty: every field, as `name: value` lines.
        title: a path; None: there is none.
        n_records: of the file, that were looked at.
    """

    text: tuple[str, ...] = ()
    title: str | None = None
    n_records: int = field(default=0, compare=False)

    @property
    def is_kept(self) -> bool:
        """Whether later builds read the file by it."""
        return self.n_records != 1

    def to_json(self) -> dict[str, Any]:
        """Text and title."""
        return {"text": list(self.text), "title": self.title}

    @classmethod
    def from_json(cls, data: object) -> Layout | None:
        """The inverse; None if it is no layout."""
        if not isinstance(data, dict) or not isinstance(data.get("text"), list):
            return None
        title = data.get("title")
        text = tuple(name for name in data["text"] if isinstance(name, str))
        return cls(text, title if isinstance(title, str) else None) if len(text) == len(data["text"]) else None


class Layouts:
    """Those of a corpus, by file name.

    Args:
        known: of earlier builds.
        rule: how records are read that have no layout.

    Attributes:
        used: of the files that were read, or passed over because they did not change.
        new: those of `used` that were decided now.
    """

    def __init__(self, known: Mapping[str, Layout] | None = None, rule: int = RULE) -> None:
        self.known = dict(known or {})
        self.rule = rule
        self.used: dict[str, Layout] = {}
        self.new: dict[str, Layout] = {}

    def pass_over(self, name: str) -> None:
        """Keep the layout of a file that is not read."""
        if name in self.known:
            self.used[name] = self.known[name]

    def decided(self, name: str, layout: Layout | None) -> None:
        """Note the layout of a file; None: the names of its fields say enough."""
        if layout is None:
            self.known.pop(name, None)
            return
        self.used[name] = layout
        if self.known.get(name) != layout:
            self.new[name] = layout

    def to_json(self) -> dict[str, Any]:
        """For the notes of a manifest: also of files of sources that were not read.

        The layout of a file with one record is not kept: it follows from the record.
        """
        kept = {name: layout.to_json() for name, layout in sorted((self.known | self.used).items()) if layout.is_kept}
        return {"rule": self.rule, "files": kept}

    @classmethod
    def from_json(cls, data: object) -> Layouts:
        """The inverse; of an index without them, those of an older version."""
        if not isinstance(data, dict) or not isinstance(files := data.get("files"), dict):
            return cls(rule=1)
        found = {name: layout for name, one in files.items() if (layout := Layout.from_json(one)) is not None}
        return cls(found, RULE if data.get("rule") == RULE else 1)
