"""Subtitles: the words of a .srt or .vtt as running text, without times and markup; one Document a file.

    cue -> a line; a pause or another speaker begins a paragraph; every line knows its line in the file

A line that repeats the one before, as rolling captions do, is counted, and so are words outside of cues.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from ragidx.corpora.left_out import Tally
from ragidx.corpora.readers.fields import check_text
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, Place

_PAUSE_S = 3.0
_TIME = r"(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}")
_SPEAKER = re.compile(r"<v(?:\.[^\s>]{0,100})?[ \t]{1,9}([^>]{1,200})>")
_COMMENT = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)\b(.*)")
_MARKUP = re.compile(r"<[^<>]{0,200}>|\{\\[^{}]{0,200}\}")


def read_subtitles(file: SourceFile) -> Iterator[Document]:
    """The words of the cues."""
    parts: list[str] = []
    places: list[Place] = []
    offset, before, ended, speaker = 0, "", 0.0, ""
    for number, line, start, end in _lines(file.decoded(file.data(file.limits.document_bytes)), file.left):
        named = _SPEAKER.search(line)
        words = " ".join(html.unescape(_MARKUP.sub("", line)).replace("\0", "").split())
        if not words or words == before:
            file.leave("repeated lines", bool(words), f":{number}")
            ended = end
            continue
        who = named[1].strip() if named else speaker
        gap = "" if not parts else "\n" if start - ended <= _PAUSE_S and who == speaker else "\n\n"
        shown = gap + (f"{who}: {words}" if named and (who != speaker or not parts) else words)
        places.append(Place(offset + len(gap), line=number))
        parts.append(shown)
        offset += len(shown)
        before, ended, speaker = words, end, who
    text = "".join(parts)
    check_text(text)
    yield Document(file.doc_id(), text, places=tuple(places))


def _lines(text: str, left: Tally) -> Iterator[tuple[int, str, float, float]]:
    """Number, text, and seconds of begin and end of each line of a cue; words elsewhere are counted."""
    times: tuple[float, float] | None = None
    outside = ""  # the last line outside of cues: the name of one, where times follow
    is_comment = False
    for number, line in enumerate(text.split("\n"), start=1):
        if found := _TIMES.match(line):
            times, outside, is_comment = (_seconds(found.groups()[:4]), _seconds(found.groups()[4:])), "", False
        elif times is not None and line.strip():
            yield number, line, *times
        else:
            left.leave("words of unknown elements", len(outside.split()), f":{number - 1}")
            said = _COMMENT.fullmatch(line)
            is_comment = bool(line.strip()) and (is_comment or said is not None)
            left.leave("words of comments in sources", len((said[1] if said else line).split()) if is_comment else 0)
            times, outside = None, "" if is_comment else line
    left.leave("words of unknown elements", len(outside.split()))


def _seconds(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return 3600 * int(hours) + 60 * int(minutes) + int(seconds) + float(f"0.{fraction}")
