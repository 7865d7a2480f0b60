"""Office files and books by markitdown; imported where the first such file is read, since loading takes over a second.

path, ending -> Converted, with slides and chapters as its places
"""

from __future__ import annotations

import contextlib
import functools
import html
import importlib
import itertools
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ragidx.corpora.limits import Limits
from ragidx.corpora.readers.office.converter import Converted
from ragidx.corpora.records import Place


class _Magika(ModuleType):
    """Stands for magika, which guesses types, while markitdown is imported: here the ending says the type.

    magika would load onnxruntime, whose threads tell its maker of it. It is imported when it is used: by markitdown's
    own choice of a converter, which a program may ask for, and no reader does.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def _without_magika() -> Iterator[None]:
    if "magika" in sys.modules:
        yield
        return
    sys.modules["magika"] = _Magika("magika")
    try:
        yield
    finally:
        del sys.modules["magika"]


with _without_magika():
    from markitdown import StreamInfo
    from markitdown.converters import DocxConverter, EpubConverter, HtmlConverter, PptxConverter

_KINDS = {".docx": DocxConverter, ".pptx": PptxConverter, ".epub": EpubConverter}
_SLIDE = re.compile(r"<!-- Slide number: (\d{1,9}) -->")
_PROPERTIES_BYTES = 1 << 20


def convert(path: Path, ending: str, limits: Limits) -> Converted:
    """The text of a file and its places."""
    converter, chapters = _converter(ending)
    chapters.found.clear()
    with path.open("rb") as stream:
        text = converter.convert(stream, StreamInfo(extension=ending)).markdown
    places = (Place(start, page=number) for start, number in _pages(text, ending, chapters.found))
    title, author = _properties(path)
    return Converted(text=text, places=tuple(places), title=title, author=author)


class _Chapters(HtmlConverter):
    """Notes the Markdown of each chapter of a book."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def convert(self, *given: Any, **options: Any) -> Any:
        """As the library's."""
        result = super().convert(*given, **options)
        self.found.append(result.markdown.strip())
        return result


@functools.cache
def _converter(ending: str) -> tuple[Any, _Chapters]:
    """The converter of one ending, and where it notes chapters; markitdown's own choice would open addresses, too."""
    converter: Any = _KINDS[ending]()  # type: ignore[no-untyped-call]  # the library is not typed
    converter._html_converter = chapters = _Chapters()
    return converter, chapters


def _properties(path: Path) -> tuple[str, str]:
    """Title and author that an office file names; an .epub names them in its package."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name == "docProps/core.xml" or name.endswith(".opf")]
        data = archive.read(names[0])[:_PROPERTIES_BYTES] if names else b""
    return _property(data, b"title"), _property(data, b"creator")


def _property(data: bytes, tag: bytes) -> str:
    words = re.search(rb"<dc:%s(?:\s[^<>]{0,500})?>([^<]{1,1000})</dc:" % tag, data)
    return "" if words is None else " ".join(html.unescape(words[1].decode("utf-8", "replace")).split())


def _pages(text: str, ending: str, chapters: list[str]) -> list[tuple[int, int]]:
    """Where slides and chapters begin in markitdown's text; what is above the first chapter is of it."""
    if ending == ".pptx":
        return [(found.start(), int(found[1])) for found in _SLIDE.finditer(text)]
    if ending != ".epub" or not chapters or not text.endswith("\n\n".join(chapters)):
        return []
    lengths = [len(chapter) + 2 for chapter in chapters]
    starts = itertools.accumulate(lengths[:-1], initial=len(text) + 2 - sum(lengths))
    return [(start if number > 1 else 0, number) for number, start in enumerate(starts, start=1)]
