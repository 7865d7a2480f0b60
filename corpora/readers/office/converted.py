"""What the library of a format makes of a file."""

from __future__ import annotations

from dataclasses import dataclass

from ragidx.corpora.records import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What a file became: its text, as Markdown or plain, with its places, and what of it was skipped, and why."""

    text: str
    markdown: bool = True
    title: str = ""
    author: str = ""
    places: tuple[Place, ...] = ()
    skips: tuple[tuple[str, str], ...] = ()  # (after the file's name, reason)
