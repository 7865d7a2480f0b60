"""Which fields of a file's records are text: judged by the values of its first records.

    FieldJudge: add(fields) ... -> Layout(text, title, id, times)

A string field is text if most of its values are no codes (identifiers, URLs, addresses, dates), and they have words:
5 or more in the median, and not always the same few, or 12 or more in every tenth. Nothing is text: every field is,
as lines. Of a file with one record the fields that are text must also hold half of its characters, or it is more like a
configuration, of which every line counts.

The id is the first field that is named like one and has another value in each record. A field whose strings all are ISO
times with a zone holds times.
"""

from __future__ import annotations

import re
import statistics
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field

from ragidx.corpora.readers.fields import ID_FIELDS, TEXT_FIELDS, zoned_time
from ragidx.corpora.readers.layouts import Layout
from ragidx.corpora.readers.records.paths import leaves

SAMPLE_RECORDS = 1_000
SAMPLE_CHARS = 4 << 20
MOST_TEXT_FIELDS = 16  # where there are more, the names are data themselves
TITLES = ("title", "name", "subject", "heading", "question")

_MAX_PATHS = 10_000
_USUAL = frozenset({*TEXT_FIELDS, *ID_FIELDS})
_ID_NAME = re.compile(r"(?:.*[_\- ])?(?:id|uid|uuid|guid|key|pk)|.*[a-z](?:ID|Id)", re.ASCII | re.DOTALL)
_CODE = re.compile(
    r"""[\w:.\-/+=]{1,64}                                      # an identifier, a number, a path
      | [a-z][a-z0-9+.-]*://\S+ | www\.\S+                    # a URL
      | [^\s@]+@[^\s@]+                                       # a mail address
      | \d{4}-\d\d-\d\d(?:[ T][\d:.,]+\s?\S{0,6})? | \d{1,2}[./]\d{1,2}[./]\d{2,4}(?:\s[\d:]+)?   # a date""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_WORDLESS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def is_code(text: str) -> bool:
    """Whether a value is an identifier, a number, a URL, an address or a date.

    >>> [is_code(text) for text in ("NET-17", "https://a.org/b?c", "2024-01-31 12:00", "Oslo", "two words")]
    [True, True, True, True, False]
    """
    return _CODE.fullmatch(text.strip()) is not None


def n_words(text: str) -> int:
    """Words between white space; of scripts without any, two characters count as one.

    >>> n_words("The river rises"), n_words("東京タワーに行く")
    (3, 4)
    """
    return max(len(text.split()), len(_WORDLESS.findall(text)) // 2)


@dataclass(slots=True)
class _Seen:
    """The values at one path."""

    strings: list[str] = field(default_factory=list)
    n_others: int = 0  # that are no strings
    ids: set[str] = field(default_factory=set)  # of a field that is named like one

    @property
    def filled(self) -> list[str]:
        return [text for text in self.strings if text and not text.isspace()]

    def is_string(self) -> bool:
        return len(self.filled) > self.n_others

    def has_words(self) -> bool:
        filled = self.filled
        return self.is_string() and 2 * sum(map(is_code, filled)) < len(filled)

    def is_text(self, n_records: int) -> bool:
        filled = self.filled
        n_distinct = len(set(filled))
        if not self.has_words() or (n_distinct == 1 and n_records >= 10):
            return False
        words = sorted(map(n_words, filled))
        varied = n_distinct > 0.05 * len(words) or n_records < 50
        return (varied and statistics.median(words) >= 5) or words[len(words) * 9 // 10] >= 12

    def is_of_times(self) -> bool:
        filled = self.filled
        return bool(filled) and not self.n_others and all(zoned_time(text) is not None for text in filled)


def _is_id_name(path: str) -> bool:
    """Whether a field of the record itself is named like an id.

    >>> [_is_id_name(name) for name in ("ticket_id", "UUID", "orderId", "paid", "owner.id")]
    [True, True, True, False, False]
    """
    return "." not in path and (_ID_NAME.fullmatch(path) or _ID_NAME.fullmatch(path.lower())) is not None


class FieldJudge:
    """Takes the first records of a file, and says which fields are what."""

    def __init__(self) -> None:
        self._paths: dict[str, _Seen] = {}
        self.n_records = 0
        self.n_chars = 0

    @property
    def is_full(self) -> bool:
        """Whether it has seen enough."""
        return self.n_records >= SAMPLE_RECORDS or self.n_chars >= SAMPLE_CHARS

    def add(self, fields: Mapping[str, object]) -> None:
        """One record."""
        self.n_records += 1
        for path, value in leaves(fields):
            self.n_chars += 8
            name, items = (f"{path}[]", value) if isinstance(value, list | tuple) else (path, (value,))
            if name.endswith("content[].text"):  # the parts of a turn
                name = name.removesuffix("[].text")
            seen = self._paths.get(name)
            if seen is None:
                if len(self._paths) >= _MAX_PATHS and name not in _USUAL:
                    continue
                seen = self._paths[name] = _Seen()
            if _is_id_name(name) and (isinstance(value, int) or (isinstance(value, str) and is_code(value))):
                seen.ids.add(unicodedata.normalize("NFC", str(value)))
            for item in items:
                if isinstance(item, str):
                    seen.strings.append(item)
                    self.n_chars += len(item)
                else:
                    seen.n_others += 1

    def layout(self) -> Layout:
        """What the values say."""
        times = tuple(path for path, seen in self._paths.items() if seen.is_of_times())
        usual = {name: self._paths[name] for name in TEXT_FIELDS if name in self._paths}
        text: tuple[str, ...] | None = None
        title: str | None = None
        if not any(seen.strings if name == TEXT_FIELDS[0] else seen.has_words() for name, seen in usual.items()):
            text, title = self._text()
            if not text and any(seen.strings for seen in usual.values()):
                text = None
        return Layout(text, title, self._id(), times, self.n_records)

    def _id(self) -> str | None:
        """The field whose values are ids; None: there is none, or one with a usual name."""
        if self.n_records < 2 or not self._paths.keys().isdisjoint(ID_FIELDS):
            return None
        return next((path for path, seen in self._paths.items() if len(seen.ids) == self.n_records), None)

    def _text(self) -> tuple[tuple[str, ...], str | None]:
        """Text and title; no text: all fields are."""
        text = tuple(path for path, seen in self._paths.items() if seen.is_text(self.n_records))
        chars = {path: sum(map(len, seen.filled)) for path, seen in self._paths.items()}
        is_little = 2 * sum(chars[path] for path in text) < sum(chars.values())
        if (self.n_records == 1 and is_little) or len(text) > MOST_TEXT_FIELDS:
            text = ()
        return text, self._title(text) if text else None

    def _title(self, text: tuple[str, ...]) -> str | None:
        """The field that is named like a title, the one that is nested least."""
        found = [
            (path.count("."), TITLES.index(last), path)
            for path in self._paths
            if "[]" not in path and path not in text and (last := path.rpartition(".")[2].lower()) in TITLES
        ]
        return next((path for _, _, path in sorted(found) if self._paths[path].is_string()), None)
