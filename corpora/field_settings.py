"""What a user says of the fields of structured files: `[GLOB=]FIELD[+FIELD]`, the first whose glob fits a file.

    "data/*.csv=description+resolution", "title"  ->  of a file: "description+resolution", "title", or None

Globs are those of `include`. Fields are not known here.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore import GitIgnorePatternError

from ragidx.corpora.errors import SpecError
from ragidx.corpora.limits import ReadOptions


class FieldSettings(NamedTuple):
    """Of one file; None: nothing was said."""

    text: str | None = None  # one path, or several with `+` between them
    id: str | None = None
    records: str | None = None


def settings_of(options: ReadOptions, name: str) -> FieldSettings:
    """What was said of a file."""
    given = (options.text_field, options.id_field, options.records)
    return FieldSettings(*(setting_for(settings, name) for settings in given))


def setting_for(given: str | Sequence[str] | None, name: str) -> str | None:
    """The value of the first setting that fits a file.

    >>> setting_for(("data/*.csv=notes", "body"), "data/a.csv"), setting_for(("data/*.csv=notes", "body"), "b.csv")
    ('notes', 'body')
    """
    for text in (given,) if isinstance(given, str) else given or ():
        glob, value = text.split("=", 1) if "=" in text else ("", text)
        if not glob or _spec(glob).match_file(name):
            return value
    return None


def check_settings(given: str | Sequence[str] | None, option: str, *, glob: bool = False) -> tuple[str, ...] | None:
    """Settings as a tuple; None: there are none.

    Args:
        given: one or several.
        option: its field's name, for messages.
        glob: whether each must name its files.

    Raises:
        SpecError: one has no value, no glob where it must, or a glob that is not valid.
    """
    settings = (given,) if isinstance(given, str) else tuple(given or ())
    for text in settings:
        front, sign, value = text.partition("=")
        shape = "GLOB=PATH" if glob else "[GLOB=]FIELD"
        if (sign and not (front and value)) or not text or (glob and not sign):
            raise SpecError(f"{text!r} is not {shape}", f"write it as {_EXAMPLES[option]}", where=f"`{option}`")
        if sign:
            try:
                _spec(front)
            except GitIgnorePatternError as fault:
                raise SpecError(str(fault).lower(), "write it as in a .gitignore file", where=f"`{option}`") from fault
    return settings or None


_EXAMPLES = {
    "text_field": "description, or 'data/*.csv=description+resolution'",
    "id_field": "ticket_id, or 'data/*.csv=ticket_id'",
    "records": "'policies.json=policies[]'",
}


@functools.lru_cache(maxsize=256)
def _spec(glob: str) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines([glob])
