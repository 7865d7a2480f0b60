"""What a reader leaves out of a document that it read: so many of a kind, in one closed table.

    SourceFile.leave("deleted words", 12, at="#page=3") -> Left(where, kind, count)

A skip says that a file or a record is not read. What is left out is counted in the report of a build: what is lost or
guessed by kind, what rules leave out in one line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ragidx.corpora.errors import SpecError, unknown_name

LOST: Final = "lost"
"""Words that a person sees, and the reader does not take: `strict` ends at them, unless the kind is accepted."""
GUESS: Final = "guess"
"""What was read, by a guess that may be wrong."""
RULE: Final = "by rule"
"""What no reader is meant to take."""
UNKNOWN: Final = "not known"
"""Readers of other packages may have left something out, and have not said so."""

UNKNOWN_SCRIPT: Final = "scanned pages, script not known"
"""Pages of which an engine of text recognition makes letters of another script."""

_KINDS: Final = {
    LOST: """
        attached files, attachments of unknown kinds, damaged parts, embedded objects, encrypted parts,
        pages without Unicode, scanned pages, texts cut at a bound, words of unknown elements,
        words of unknown parts
    """,
    GUESS: """
        columns of numbers and text, formulas without a value, front matter that is no YAML, guessed encodings,
        guessed separators, hidden sheets, hidden slides, labels of unknown forms, lines above a table,
        pages read by OCR, pages without structure, ragged rows, unclosed quotes
    """,
    RULE: """
        addresses of links, alternatives of mails, authors of comments, caches of data, choices of forms,
        defined names, deleted words, delivery reports, ends of long titles, field codes, fields of mails, formulas,
        formulas in other notations, hidden words, labels of notes, numbers of charts, page numbers, pictures,
        repeated lines, repeated rows and cells, ruby readings, runs of encoded data, scripts, signatures,
        symbols of fonts, tags of cells, templates, titles in properties, tracebacks, values of widgets,
        words around the main part, words of alternative texts, words of comments in sources, words of fallbacks,
        words of form fields, words of long results, words of master pages, words of navigation, words of notices,
        words of settings, words of tooltips, workbooks of charts
    """,
    UNKNOWN: "files read by other packages",
}
KINDS: Final[Mapping[str, str]] = {
    kind: of for of, kinds in _KINDS.items() for kind in " ".join(kinds.split()).split(", ")
} | {UNKNOWN_SCRIPT: LOST}
"""The class of each kind. A kind that a reader of another package makes up is lost."""

_PLACES = 5

CLASSES: Final = (LOST, GUESS, UNKNOWN, RULE)
"""In the order in which a report lists them."""


def class_of(kind: str) -> str:
    """The class of a kind."""
    return KINDS.get(kind, LOST)


def check_kind(kind: str) -> None:
    """Whether a kind may be accepted.

    Raises:
        SpecError: it is unknown, or nothing of the kind is lost.
    """
    if kind not in KINDS:
        raise unknown_name("kind of what is lost", kind, [name for name, of in KINDS.items() if of == LOST])
    if KINDS[kind] != LOST:
        message = f"'{kind}' are no loss ({KINDS[kind]}): `strict` does not end at them"
        raise SpecError(message, "accept nothing for them")


@dataclass(frozen=True, slots=True)
class Left:
    """What of one kind was left out of a file."""

    where: str  # the file's path below the corpus root, with the first place in it where there is one
    kind: str
    count: int  # words where the kind is words, else things


class Tally(dict[str, tuple[int, str]]):
    """Counts by kind, each with its first place."""

    def leave(self, kind: str, count: int = 1, at: str = "") -> None:
        """Count what is left out; `at` is a place in the file, such as `#page=3`. None is not counted."""
        if count:
            n_before, first = self.get(kind, (0, at))
            self[kind] = (n_before + count, first)

    @property
    def is_loss(self) -> bool:
        """Whether any of it is lost, but by damage."""
        return any(class_of(kind) == LOST for kind in self if kind != "damaged parts")

    def take(self, other: Mapping[str, tuple[int, str]], at: str = "") -> None:
        """Count what another tally has, too; `at`: all of it is in one place."""
        for kind, (count, place) in other.items():
            self.leave(kind, count, at or place)


@dataclass
class LeftCount:
    """What was left out of one kind: how much, of how many files, and the first places, one a file."""

    count: int = 0
    files: int = 0
    places: list[str] = field(default_factory=list)


LeftCounts: TypeAlias = dict[str, LeftCount]
"""By kind."""


def add_left(counts: LeftCounts, kind: str, more: LeftCount) -> None:
    """Add to the counts of a kind."""
    one = counts.setdefault(kind, LeftCount())
    one.count, one.files = one.count + more.count, one.files + more.files
    one.places = [*one.places, *more.places][:_PLACES]


def sum_left(each: Iterable[LeftCounts]) -> LeftCounts:
    """The sum of several sources' counts."""
    total: LeftCounts = {}
    for counts in each:
        for kind, one in counts.items():
            add_left(total, kind, one)
    return total


def left_json(counts: LeftCounts) -> dict[str, Any]:
    """Counts as the report and the manifest have them, each with its class."""
    order = sorted(counts, key=lambda kind: (CLASSES.index(class_of(kind)), kind))
    return {kind: {"class": class_of(kind), **dataclasses.asdict(counts[kind])} for kind in order}


def left_of(data: Mapping[str, Any]) -> LeftCounts:
    """The inverse of `left_json`."""
    return {kind: LeftCount(one["count"], one["files"], one["places"]) for kind, one in data.items()}
