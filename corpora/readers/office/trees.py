"""Trees of XML parts: without a document type, of bounded depth; names and attributes whatever their namespace.

events of a parser -> elements
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder

from ragidx.corpora.limits import UnreadableError

DEPTH = 200
"""Elements inside one another: Python's recursion reads them."""


class Plain(TreeBuilder):
    """A tree without a document type, built without a call of Python an element."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """Called where a document type is declared."""
        raise UnreadableError("a document type is declared")


class Bounded(Plain):
    """A tree of bounded depth. What ends in an element named `parent` is taken out."""

    def __init__(self, parent: str) -> None:
        super().__init__()
        self.root = Element("none")
        self._open: list[Element] = []
        self._parent, self._taken_out = parent, list[Element]()

    def start(self, tag: Any, attrs: dict[Any, Any], /) -> Element:
        """Called where an element begins."""
        element = super().start(tag, attrs)
        if len(self._open) == DEPTH:
            raise UnreadableError(f"nested deeper than {DEPTH} elements")
        if not self._open:
            self.root = element
        self._open.append(element)
        return element

    def end(self, tag: str, /) -> Element:
        """Called where an element ends."""
        self._open.pop()
        element = super().end(tag)
        if self._parent and self._open and local(above := self._open[-1]) == self._parent:
            del above[-1]
            self._taken_out.append(element)
        return element

    def taken(self) -> Iterator[Element]:
        """What was taken out since the last call."""
        found, self._taken_out = self._taken_out, []
        return iter(found)


class Collapsing(Bounded):
    """A tree of which some elements are handed out as they end, and stay in their place."""

    def __init__(self, wanted: str, take: Callable[[Element], None]) -> None:
        super().__init__("")
        self._wanted, self._take = f"}}{wanted}", take

    def end(self, tag: str, /) -> Element:
        """Called where an element ends."""
        element = super().end(tag)
        if tag.endswith(self._wanted):
            self._take(element)
        return element


def words_of(node: Element) -> int:
    """How many words are in the text of an element and of all below it."""
    return words_in(node.itertext())


def words_in(texts: Iterable[str]) -> int:
    """How many words are in some texts."""
    return sum(len(text.split()) for text in texts)


def one_line(text: str) -> str:
    """A text with single spaces for all its white space."""
    return " ".join(text.split())


def whole(text: str, default: int = 0) -> int:
    """A whole number of at most nine digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


def local(node: Element) -> str:
    """The name of an element without its namespace; empty for a comment."""
    return _without_namespace(node.tag)


@functools.lru_cache(maxsize=4096)
def _without_namespace(tag: object) -> str:
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(node: Element, name: str) -> str:
    """An attribute of any namespace, one without a namespace first; empty where there is none.

    An `r:id` beside an `id` is asked for by `relation_id`.
    """
    if (value := node.get(name)) is not None:
        return value
    return next((value for key, value in node.attrib.items() if key.rpartition("}")[2] == name), "")


def relation_id(node: Element, name: str = "id") -> str:
    """The attribute that names a relation: it has a namespace, which `id` beside it has not."""
    found = (value for key, value in node.attrib.items() if key.startswith("{") and key.rpartition("}")[2] == name)
    return next(found, "")


def rooted(root: Element | None) -> Element:
    """The root of a whole tree, if that is no deeper than may be; an element without anything where there is none."""
    level, depth = [] if root is None else [root], 0
    while level:
        if depth == DEPTH:
            raise UnreadableError(f"nested deeper than {DEPTH} elements")
        level, depth = [child for node in level for child in node], depth + 1
    return Element("none") if root is None else root


def check_open(node: Element | None) -> None:
    """Refuse too many open elements: they are the last ones, each in the other."""
    for _ in range(DEPTH):
        if node is None or not len(node):
            return
        node = node[-1]
    raise UnreadableError(f"nested deeper than {DEPTH} elements")
