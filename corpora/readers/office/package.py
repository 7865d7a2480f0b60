"""Office packages: a zip of XML parts, read within bounds, and which of its parts nobody asked for.

    path -> Package -> part -> tree of elements, or elements as they end

Bounds count what is read, never what a header says. A document type is refused, since entities expand; elements nest
to a depth that Python's recursion reads.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from ragidx.corpora.left import Tally
from ragidx.corpora.limits import MIB, Limits, UnreadableError, shown_bytes

_DEPTH = 200
_BLOCK_BYTES = MIB
_DULL = re.compile(  # parts without words that a person sees in the document, by the end of their name
    r"(?:^|/)(?:theme|fontTable|settings|webSettings|styles|stylesWithEffects|presProps|viewProps|tableStyles|app"
    r"|calcChain|\[Content_Types\]|manifest|layout|colors|quickStyle|drawing|style|metadata|printerSettings)\d*\.xml$"
    r"|\.rels$|(?:^|/)(?:slideLayouts|Configurations2|META-INF|Thumbnails|customXml)/|(?:^|/)mimetype$",
    re.IGNORECASE,
)
_EMBEDDED = re.compile(r"(?:embeddings|media|Pictures)/[^/]*\.(?:bin|docx|xlsx|pptx|ole|mp[34]|wav|m4a|mov|avi)$", re.I)
_PICTURE = re.compile(r"\.(?:png|jpe?g|gif|tiff?|bmp|emf|wmf|svg|webp|svm)$", re.IGNORECASE)


class Relation(NamedTuple):
    """What a part refers to: the last word of its kind, and the name of the part; empty where it is outside."""

    kind: str
    target: str


class Package:
    """Parts by name, whatever its case.

    Args:
        path: of the zip.
        limits: `archive_bytes` is of all parts together, `office_text_bytes` of one.
        left: takes what is left out.

    Raises:
        UnreadableError: it is encrypted; while reading: more than the limits.
        zipfile.BadZipFile: it is damaged.
    """

    def __init__(self, path: Path, limits: Limits, left: Tally) -> None:
        self._zip, self._limits, self.left = zipfile.ZipFile(path), limits, left
        members = self._zip.infolist()
        if any(member.flag_bits & 1 for member in members):
            raise UnreadableError("encrypted")
        if len(members) > limits.archive_members:
            raise UnreadableError(f"has more than {limits.archive_members:,} parts")
        self._members = {member.filename.casefold(): member for member in reversed(members)}  # of two, the first
        self._n_bytes = 0
        self._opened: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name.casefold() in self._members

    def names(self) -> list[str]:
        """The names of all parts, as they are written."""
        return [member.filename for member in self._members.values()]

    def blocks(self, name: str) -> Iterator[bytes]:
        """The bytes of a part; nothing where there is none."""
        member = self._members.get(name.casefold())
        if member is None:
            return
        self._opened.add(name.casefold())
        n_read = 0
        with self._zip.open(member) as stream:
            while block := stream.read(_BLOCK_BYTES):
                n_read += len(block)
                self._n_bytes += len(block)
                if n_read > self._limits.office_text_bytes:
                    raise UnreadableError(f"has a part of more than {shown_bytes(self._limits.office_text_bytes)}")
                if self._n_bytes > self._limits.archive_bytes:
                    raise UnreadableError(f"unpacks to more than {shown_bytes(self._limits.archive_bytes)}")
                yield block

    def data(self, name: str) -> bytes:
        """The bytes of a part; empty where there is none."""
        return b"".join(self.blocks(name))

    def tree(self, name: str) -> Element:
        """A part as a tree; an element without anything where there is none, or it is damaged, which is counted."""
        parser = XMLParser(target=_Bounded())
        try:
            for block in self.blocks(name):
                parser.feed(block)
            root: Element = parser.close()
            return root
        except ParseError:
            if name in self:
                self.left.leave("damaged parts", 1)
            return Element("none")

    def relations(self, name: str) -> dict[str, Relation]:
        """What a part refers to, by id."""
        folder, file = posixpath.split(name)
        found = {}
        for each in self.tree(posixpath.join(folder, "_rels", f"{file}.rels")):
            target = "" if each.get("TargetMode") == "External" else _inside(folder, each.get("Target", ""))
            found[each.get("Id", "")] = Relation(each.get("Type", "").rpartition("/")[2], target)
        return found

    def count_unopened(self) -> None:
        """Count what nobody asked for: words of parts that are XML, embedded objects, pictures."""
        for key, member in self._members.items():
            if key in self._opened or member.is_dir() or _DULL.search(member.filename):
                continue
            if key.endswith(".xml"):
                self.left.leave("words of unknown parts", words_of(self.tree(member.filename)), f"#{member.filename}")
            elif _EMBEDDED.search(member.filename):
                self.left.leave("embedded objects")
            elif _PICTURE.search(member.filename):
                self.left.leave("pictures")


class _Bounded(TreeBuilder):
    """A tree without a document type, and of bounded depth."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def start(self, tag: Any, attrs: dict[Any, Any], /) -> Element:
        """Called where an element begins."""
        self._depth += 1
        if self._depth > _DEPTH:
            raise UnreadableError(f"nested deeper than {_DEPTH} elements")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        """Called where an element ends."""
        self._depth -= 1
        return super().end(tag)

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """Called where a document type is declared."""
        raise UnreadableError("a document type is declared")


def _inside(folder: str, target: str) -> str:
    return posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")


def words_of(node: Element) -> int:
    """How many words are in the text of an element and of all below it."""
    return sum(len(text.split()) for text in node.itertext())


def local(node: Element) -> str:
    """The name of an element without its namespace; empty for a comment."""
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""


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


def properties(package: Package, *names: str) -> Mapping[str, str]:
    """The properties in some parts: the words of each element by its name, the first of several."""
    found: dict[str, str] = {}
    for node in _leaves(package.tree(name) for name in names):
        if words := " ".join((node.text or "").split()):
            found.setdefault(attribute(node, "name") or local(node), words)
    return found


def _leaves(roots: Iterable[Element]) -> Iterator[Element]:
    return (node for root in roots for node in root.iter() if not len(node))
