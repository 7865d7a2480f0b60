"""Runs of encoded data in a text, which no person reads: base64 and hexadecimal digits; and code that no person wrote.

    Document -> Document without the runs, and how many there were

A run is long, and looks like nothing else: base64 has 200 characters or more of all three kinds (capitals, small
letters, digits) without a space, or five equal lines of 60 to 76 and what follows; hexadecimal 160 digits or more. A
URL, a hash, a sequence of bases, an identifier and words of scripts without spaces are no runs. Newlines stay, so that
lines keep their numbers.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from ragidx.corpora.records import Document

_HEX = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{160,}+(?![0-9A-Za-z])|(?<![0-9A-Za-z])[0-9A-F]{160,}+(?![0-9A-Za-z])")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/=_.:%&?#-])[A-Za-z0-9+/]{200,}+={0,2}(?![A-Za-z0-9+/=_.:%&?#-])")
_DATA_URI = re.compile(r"(?<=;base64,)[A-Za-z0-9+/]{60,}+={0,2}")
_LINE = "[A-Za-z0-9+/]{60,76}\n"
_BLOCK = re.compile(rf"^{_LINE}(?:{_LINE}){{4,}}+(?:[A-Za-z0-9+/]{{1,76}}={{0,2}}$)?", re.MULTILINE)
_HEX_BLOCK = re.compile(r"^(?:[0-9a-fA-F]{60,80}\n){5,}+(?:[0-9a-fA-F]{1,80}$)?", re.MULTILINE)
_RUNS = (_DATA_URI, _BASE64, _BLOCK, _HEX, _HEX_BLOCK)
_LETTERS = bytes(ord("A") if re.match("[A-Za-z0-9+/]", chr(code)) else ord(" ") for code in range(256))
_LONG = b"A" * 60  # every run holds one: a word of these letters
_WORD = re.compile(r"[a-z]{12}|[A-Z]{12}")  # words, or one letter again and again

_COMMENT = r"^[ \t]*(?://|#|/?\*|--|;|<!--|\"\"\")[^\n]{0,200}"
_SAYS = r"\bgenerated\b[^\n]{0,200}\bdo not edit\b|@generated\b"
_GENERATED = re.compile(f"{_COMMENT}(?:{_SAYS})", re.IGNORECASE | re.MULTILINE)
_HEAD_CHARS = 2_000
_MINIFIED = frozenset({".js", ".mjs", ".css"})
_MINIFIED_CHARS, _MINIFIED_LINE = 5_000, 500
_PROSE = frozenset({".txt", ".text", ".log", ".bib", ".xml", ".yaml", ".yml", ".toml", ".ini", ".cfg", ""})


def without_runs(document: Document) -> tuple[Document, int]:
    """The document without runs of encoded data, and how many there were."""
    text = document.text
    spans: list[tuple[int, int]] = []
    for start, end in _lines_with_long_words(text):
        for pattern in _RUNS:
            spans += [run.span() for run in pattern.finditer(text, start, end) if _is_encoded(run[0])]
    if not spans:
        return document, 0
    parts, cuts, end = list[str](), list[tuple[int, int, int]](), 0
    for start, stop in sorted(spans):
        if start < end:  # a part of the run before
            continue
        newlines = "\n" * text.count("\n", start, stop)
        parts += [text[end:start], newlines]
        cuts.append((start, stop, len(newlines)))
        end = stop
    shorter = "".join([*parts, text[end:]])
    places = [place._replace(offset=_moved(place.offset, cuts)) for place in document.places]
    inside = tuple(place for place in places if place.offset < len(shorter))
    return dataclasses.replace(document, text=shorter, places=inside), len(cuts)


def _lines_with_long_words(text: str) -> Iterator[tuple[int, int]]:
    """From where to where a text has lines with words long enough for a run, and the line after each.

    The patterns are tried there alone: over a whole text they take as long as all the rest of reading it.
    """
    letters = text.encode("ascii", "replace").translate(_LETTERS)
    found = letters.find(_LONG)
    while found >= 0:
        start, end = text.rfind("\n", 0, found) + 1, found
        while 0 <= found <= end:  # a block's last line may be short
            line = text.find("\n", found)
            end = text.find("\n", line + 1) if line >= 0 else -1
            end = end if end >= 0 else len(text)
            found = letters.find(_LONG, line) if line >= 0 else -1
        yield start, end


def _moved(offset: int, cuts: list[tuple[int, int, int]]) -> int:
    """Where a character is after the runs from `start` to `stop` have become so many newlines."""
    return offset - sum(max(0, min(offset, stop) - start - n_lines) for start, stop, n_lines in cuts if start < offset)


def _is_encoded(run: str) -> bool:
    """Whether a run has what words, sequences and rules of one sign have not."""
    digits = sum(map(str.isdigit, run))
    if set(run) <= set("0123456789abcdefABCDEF\n"):
        if {len(line) for line in run.split("\n") if line} == {64}:
            return False  # a list of checksums
        return len(run) // 10 < digits < len(run) and len(set(run)) > 8  # numbers alone are numbers
    mixed = re.search("[a-z]", run) and re.search("[A-Z]", run) and digits > len(run) // 50
    return bool(mixed) and len(_WORD.findall(run)) <= len(run) // 200 and run.count("/") < len(run) // 12


def is_not_written(text: str, ending: str) -> str:
    """Why code is nothing that a person wrote; empty: it may be, or it is no code."""
    if ending in _PROSE:
        return ""
    if _GENERATED.search(text, 0, _HEAD_CHARS):
        return "generated code"
    if ending in _MINIFIED and len(text) > _MINIFIED_CHARS and len(text) > _MINIFIED_LINE * (1 + text.count("\n")):
        return "minified code"
    return ""
