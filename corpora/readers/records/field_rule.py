"""Which fields of a file's records are text: judged by the values of its first records.

    Judge: add(fields) ... -> Layout(text, title, id, times)

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

    strings: int = 0
    others: int = 0  # that are no strings
    codes: int = 0
    times: int = 0  # that have a zone
    chars: int = 0
    words: list[int] = field(default_factory=list)
    distinct: set[int] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)  # of a field that is named like one

    def add(self, text: str) -> None:
        self.codes += is_code(text)
        self.times += zoned_time(text) is not None
        self.chars += len(text)
        self.words.append(n_words(text))
        self.distinct.add(hash(text))

    def is_string(self) -> bool:
        return len(self.words) > self.others

    def is_text(self, n_records: int) -> bool:
        count = len(self.words)
        if not self.is_string() or 2 * self.codes >= count or (len(self.distinct) == 1 and n_records >= 10):
            return False
        varied = len(self.distinct) > 0.05 * count or n_records < 50
        return (varied and statistics.median(self.words) >= 5) or sorted(self.words)[count * 9 // 10] >= 12

    def is_of_times(self) -> bool:
        return not self.others and self.times == len(self.words)


def _is_id_name(path: str) -> bool:
    """Whether a field of the record itself is named like an id.

    >>> [_is_id_name(name) for name in ("ticket_id", "UUID", "orderId", "paid", "owner.id")]
    [True, True, True, False, False]
    """
    return "." not in path and (_ID_NAME.fullmatch(path) or _ID_NAME.fullmatch(path.lower())) is not None


class Judge:
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
                if not isinstance(item, str):
                    seen.others += 1
                else:
                    seen.strings += 1
                    self.n_chars += len(item)
                    if item and not item.isspace():
                        seen.add(item)

    def has_strings(self, name: str) -> bool:
        """Whether some value of a field is a string."""
        return name in self._paths and self._paths[name].strings > 0

    def has_words(self, name: str) -> bool:
        """Whether the values of a field are strings of words, most of them."""
        seen = self._paths.get(name)
        return seen is not None and seen.is_string() and 2 * seen.codes < len(seen.words)

    def layout(self) -> Layout:
        """What the values say."""
        times = tuple(path for path, seen in self._paths.items() if seen.times and seen.is_of_times())
        if self.has_strings(TEXT_FIELDS[0]) or any(map(self.has_words, TEXT_FIELDS)):
            text, title = None, None
        else:
            text, title = self._text()
            if not text and any(map(self.has_strings, TEXT_FIELDS)):
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
        is_little = 2 * sum(self._paths[path].chars for path in text) < self._n_string_chars()
        if (self.n_records == 1 and is_little) or len(text) > MOST_TEXT_FIELDS:
            text = ()
        return text, self._title(text) if text else None

    def _n_string_chars(self) -> int:
        return sum(seen.chars for seen in self._paths.values())

    def _title(self, text: tuple[str, ...]) -> str | None:
        """The field that is named like a title, the one that is nested least."""
        found = [
            (path.count("."), TITLES.index(last), path)
            for path in self._paths
            if "[]" not in path and path not in text and (last := path.rpartition(".")[2].lower()) in TITLES
        ]
        return next((path for _, _, path in sorted(found) if self._paths[path].is_string()), None)
