"""Presentations: all that a person reads on the slides, and the count of what is left out.

    path -> Converted, as Markdown, with slides as its places

Shapes come from the top of a slide to its foot, titles first, as headings. Notes and comments follow their slide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar
from xml.etree.ElementTree import Element

from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import Limits
from ragidx.corpora.readers.office.converter import Converted
from ragidx.corpora.readers.office.drawing import Walk
from ragidx.corpora.readers.office.package import Package, about
from ragidx.corpora.readers.office.trees import attribute, local, one_line, relation_id, words_of
from ragidx.corpora.records import paged

_TITLES = ("title", "ctrTitle")
_FRAMES = ("ftr", "hdr", "dt", "sldNum")
_MASTERS = ("/slidelayouts/", "/slidemasters/", "/notesmasters/", "/handoutmasters/")
_BAND = 100_000  # of EMU, 2.8 mm: what is that near is on one height


def convert(path: Path, ending: str, limits: Limits) -> Converted:
    """The text of a .pptx."""
    with Package(path, limits, Tally()) as package:
        walk = _Pptx(package)
        text, places = paged((walk.number, text) for text in package.bounded(walk.slides()))
        said = about(package)
        package.count_masters(*_MASTERS)
        package.count_unopened()
    return Converted(text=text, places=places, about=said, left=package.left)


class _Pptx(Walk):
    blocks_of: ClassVar[frozenset[str]] = Walk.blocks_of | {"sp"}

    def __init__(self, package: Package) -> None:
        super().__init__(package)
        self._main = package.main("ppt/presentation.xml")
        self.number = 0  # of the slide that is read
        self._frames: set[str] = set()  # footers and the like that were read
        self._in_notes = False

    def slides(self) -> Iterator[str]:
        """The text of each slide that has any, in the order of the presentation."""
        with self.within(self._main):
            root = self.package.tree(self._main)
            parts = [self.target(relation_id(each)) for each in root.iter() if local(each) == "sldId"]
            self.leave("defined names", sum(local(each) == "section" for each in root.iter()))
        for self.number, part in enumerate(parts, start=1):
            self.at = f"#page={self.number}"
            if part and (blocks := list(self._slide(part))):
                yield "\n\n".join(blocks)
        self.at = ""

    def _slide(self, part: str) -> Iterator[str]:
        root = self.package.tree(part)
        self.leave("hidden slides", root.get("show") in ("0", "false"))
        with self.within(part):
            yield from self.blocks((root,))
        for kind, target in self.relations_of(part).values():
            if kind == "notesSlide" and self.package.is_new(target):
                self._in_notes = True
                with self.within(target):
                    yield from self.blocks((self.package.tree(target),))
                self._in_notes = False
            elif kind == "comments" and self.package.is_new(target):
                yield from self._comments(self.package.tree(target))

    def _comments(self, root: Element) -> list[str]:
        authors = sum(bool(attribute(each, "authorId")) for each in root.iter() if local(each) in ("cm", "reply"))
        self.leave("authors of comments", authors)
        return self.blocks((root,))

    def found(self, parent: Iterable[Element]) -> Iterator[tuple[str, Element]]:
        """Shapes by their places; a comment before the replies to it."""
        name = local(parent) if isinstance(parent, Element) else ""
        if name in ("spTree", "grpSp"):
            parent = sorted(parent, key=_rank)
        elif name == "cm":
            parent = sorted(parent, key=lambda each: local(each) == "replyLst")
        return super().found(parent)

    def block(self, name: str, node: Element) -> list[str]:
        """The lines of a shape are one block."""
        if name != "sp":
            return super().block(name, node)
        self._loose(node.text)
        kind = _holder(node)
        if kind == "sldNum" or (self._in_notes and kind in _FRAMES):
            self.leave("page numbers" if kind == "sldNum" else "words of master pages", words_of(node))
            return []
        text = "\n".join(self.blocks(node))
        if kind in _FRAMES and text:
            if text in self._frames:
                self.leave("repeated lines", text.count("\n") + 1)
                return []
            self._frames.add(text)
        if kind in _TITLES and text:
            return [f"# {one_line(text)}"]
        return [text] if text else []


def _holder(shape: Element) -> str:
    """For what a shape holds the place, such as `title`; empty where it is free."""
    head = shape[0] if len(shape) else shape
    found = next((each for each in head.iter() if local(each) == "ph"), None)
    return "" if found is None else found.get("type", "obj")


def _rank(shape: Element) -> tuple[int, int, int]:
    """Titles first, then from top to bottom; first of them what has no place of its own, and last footers."""
    holder = _holder(shape) if local(shape) == "sp" else ""
    rank = 0 if holder in _TITLES else 2 if holder in _FRAMES else 1
    off = _place(shape)
    return (rank, 0, 0) if off is None else (rank, _whole(off.get("y", "")) // _BAND, _whole(off.get("x", "")))


def _place(shape: Element) -> Element | None:
    for child in shape:
        name = local(child)
        if name in ("spPr", "grpSpPr", "xfrm"):
            return next((each for each in child.iter() if local(each) == "off"), None)
        if name in ("Choice", "sp", "grpSp", "pic", "graphicFrame"):  # of one of several alternatives
            return _place(child)
    return None


def _whole(text: str) -> int:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 16 else 0
