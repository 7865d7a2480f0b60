"""How the records of a file become documents: decided once a file, and kept, or new rows would change the old ones.

    Layout(text, title, id, times)      of one file
    Layouts                             of a corpus: those of earlier builds, and those of this one

Which fields they are is decided in `records.field_rule`. What a user chooses (`text_field`, `id_field`) comes before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragidx.corpora.errors import SpecError
from ragidx.corpora.spec import Spec


@dataclass(frozen=True)
class Layout(Spec):
    """Which fields of a record are what; all others are metadata.

    Args:
        text: paths, in the order of the text; empty: every field, as `name: value` lines; None: the field that has one
            of the usual names, or that the user chooses.
        title: a path; None: there is none.
        id: a field whose values are ids, though it has none of the usual names; None: there is none.
        times: paths whose values are ISO times with a zone.
        n_records: number of records of the file that were looked at.
    """

    text: tuple[str, ...] | None = ()
    title: str | None = None
    id: str | None = None
    times: tuple[str, ...] = ()
    n_records: int = field(default=0, compare=False)

    @property
    def is_kept(self) -> bool:
        """Whether later builds read the file by it."""
        return self.n_records != 1


class Layouts:
    """The layouts of a corpus, by file name.

    Args:
        known: layouts of earlier builds.
        on_decided: called with the name and the layout of a file, when that is decided.

    Attributes:
        used: layouts of the files that were read, or passed over because they did not change.
        new: layouts of `used` that were decided now.
    """

    def __init__(
        self,
        known: Mapping[str, Layout] | None = None,
        on_decided: Callable[[str, Layout], None] = lambda name, layout: None,
    ) -> None:
        self.known, self._on_decided = dict(known or {}), on_decided
        self.used: dict[str, Layout] = {}
        self.new: dict[str, Layout] = {}

    def pass_over(self, name: str) -> None:
        """Keep the layout of a file that is not read."""
        if name in self.known:
            self.used[name] = self.known[name]

    def decided(self, name: str, layout: Layout) -> None:
        """Note the layout of a file."""
        self.used[name] = layout
        self._on_decided(name, layout)
        if self.known.get(name) != layout:
            self.new[name] = layout

    def to_json(self) -> dict[str, Any]:
        """The layouts for the notes of a manifest, also of files of sources that were not read.

        The layout of a file with one record is not kept: it follows from the record.
        """
        return {name: layout.to_json() for name, layout in sorted((self.known | self.used).items()) if layout.is_kept}

    @classmethod
    def from_json(cls, data: object) -> Layouts:
        """The inverse; what is no layout is skipped."""
        known: dict[str, Layout] = {}
        for name, one in data.items() if isinstance(data, dict) else ():
            with contextlib.suppress(SpecError):
                known[name] = Layout.from_json(one)
        return cls(known)
