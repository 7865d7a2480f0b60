"""Files in which every place that can hold words has a word of its own: which places there are, and the word of each.

make = FORMATS[".docx"]; make(Places()), make(Places(without="footnote")) -> bytes
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping


def word_of(place: str) -> str:
    """The word of a place, which is in no other.

    >>> word_of("text box")
    'textboxheron'
    """
    return f"{re.sub('[^a-z]', '', place.lower())}heron"


class Places:
    """Gives each place of a file its word; one place can be left out."""

    def __init__(self, without: str = "") -> None:
        self.names: list[str] = []
        self._without = without

    def __call__(self, name: str, around: str = "{}") -> str:
        """What is in a place: its word in `{}`; nothing where the file is made without it."""
        assert name not in self.names, name
        self.names.append(name)
        return "" if name == self._without else around.replace("{}", word_of(name))


def added(data: bytes, parts: Mapping[str, str | bytes]) -> bytes:
    """A zip with more parts."""
    sink = io.BytesIO(data)
    with zipfile.ZipFile(sink, "a") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return sink.getvalue()
