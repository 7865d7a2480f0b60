"""Office packages: a zip of XML parts, read within bounds, and which of its parts nobody asked for.

    path -> Package -> part -> tree of elements, or elements as they end

Bounds count what is read, never what a header says. A document type is refused, since entities expand; elements nest
to a depth that Python's recursion reads.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import MIB, NOT_ITS_FORMAT, Limits, UnreadableError, shown_bytes
from ragidx.corpora.readers.office.converter import About, about_of
from ragidx.corpora.readers.office.trees import (
    Bounded,
    Collapsing,
    Plain,
    attribute,
    check_open,
    local,
    one_line,
    rooted,
    words_of,
)

_BLOCK_BYTES = MIB
RATIO_FROM_BYTES = 8 * MIB  # of a part: a million of empty elements takes long, and packs well
_NAME_CHARS = 200  # of a part in a report; a zip holds names of 64 KiB
_DULL = re.compile(  # parts without words that a person sees in the document, by the end of their name
    r"(?:^|/)(?:theme|themeOverride|fontTable|settings|webSettings|styles|stylesWithEffects|presProps|viewProps|app"
    r"|tableStyles|calcChain|\[Content_Types\]|manifest|metadata|printerSettings)\d*\.xml$"
    r"|(?:^|/)charts/(?:style|colors)\d*\.xml$|(?:^|/)diagrams/(?:layout|colors|quickStyle|drawing)\d*\.xml$"
    r"|\.rels$|(?:^|/)(?:slideLayouts|Configurations2|META-INF|_xmlsignatures|Thumbnails|customXml|ink)/|(?:^|/)mimetype$"
    r"|^docProps/thumbnail|\.(?:vml|css|js|plist)$",
    re.IGNORECASE,
)
_EMBEDDED = re.compile(
    r"(?:^|/)embeddings/|(?:media|Pictures|activeX)/[^/]*\.(?:bin|ole|mp[34]|wav|m4a|mov|avi)$"
    r"|\.(?:html?|mht|rtf|txt|docx?|xlsx?|pptx?|odt|ods|odp|pdf|csv|eml|msg|zip)$",
    re.IGNORECASE,
)
_TOOLTIP = re.compile(rb'tooltip="([^"]*)"')
_MACROS = re.compile(r"(?:^|/)vbaProject\.bin$", re.IGNORECASE)
_DAMAGE = (ParseError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, LookupError)
_COMPOUND = b"\xd0\xcf\x11\xe0"  # of the files of Office 97, and of the envelope of encrypted ones
_DETAILS = ("subject", "keywords", "description", "category")
_OF_OFFICE = {"Company": "company", "Manager": "manager"}
_OF_PROGRAMS = re.compile(r"_|MSIP_|ContentType", re.IGNORECASE)  # custom properties that nobody writes by hand
_PICTURE = re.compile(r"\.(?:png|jpe?g|gif|tiff?|bmp|emf|wmf|svg|webp|svm)$", re.IGNORECASE)


class Relation(NamedTuple):
    """What a part refers to: the last word of its kind, and the name of the part; empty where it is outside."""

    kind: str
    target: str


class Package:
    """Parts by name, whatever its case.

    Args:
        path: place of the zip file.
        limits: `archive_bytes` is of all parts together, `office_text_bytes` of one.
        left: tally of what is left out.

    Raises:
        UnreadableError: it is encrypted, or no zip; while reading: more than the limits. A damaged part is read up to
            the damage, and counted.
    """

    def __init__(self, path: Path, limits: Limits, left: Tally) -> None:
        with path.open("rb") as stream:
            if stream.read(len(_COMPOUND)) == _COMPOUND:
                raise UnreadableError("encrypted, or a file of Office 97")
        try:
            self._zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile as fault:
            raise UnreadableError(f"cannot be converted: {NOT_ITS_FORMAT}") from fault
        self._limits, self.left = limits, left
        members = self._zip.infolist()
        if any(member.flag_bits & 1 for member in members):
            raise UnreadableError("encrypted")
        if len(members) > limits.archive_members:
            raise UnreadableError(f"has more than {limits.archive_members:,} parts")
        for member in members:
            member.filename = member.filename.replace("\\", "/")  # as some programs write them
        self._members = {member.filename.casefold(): member for member in reversed(members)}  # of two, the first
        left.leave("damaged parts", len(members) - len(self._members))
        self._n_bytes = 0
        self._opened: set[str] = set()
        self._begun: set[str] = set()

    def __enter__(self) -> Package:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

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
                if n_read > RATIO_FROM_BYTES and n_read > self._limits.unpacked_ratio * member.compress_size:
                    raise UnreadableError(f"expands to more than {self._limits.unpacked_ratio} times its size")
                if n_read > self._limits.office_text_bytes:
                    raise UnreadableError(f"has a part of more than {shown_bytes(self._limits.office_text_bytes)}")
                if self._n_bytes > self._limits.archive_bytes:
                    raise UnreadableError(f"unpacks to more than {shown_bytes(self._limits.archive_bytes)}")
                yield block

    def data(self, name: str) -> bytes:
        """The bytes of a part; empty where there is none."""
        return b"".join(self.blocks(name))

    def tree(self, name: str) -> Element:
        """A part as a tree; an element without anything where there is none."""
        target = Plain()
        for _ in self._fed(name, target):
            check_open(target.close())
        return rooted(target.close())

    def collapsed(self, name: str, wanted: str, take: Callable[[Element], None]) -> Element:
        """The same, but small: each element of a name goes to `take` as it ends, which may empty it."""
        target = Collapsing(wanted, take)
        for _ in self._fed(name, target):
            pass
        return target.root

    def elements(self, name: str, parent: str) -> Iterator[Element]:
        """The elements in one named `parent`, as they end and without what follows; last the rest of the part."""
        target = Bounded(parent)
        for _ in self._fed(name, target):
            yield from target.taken()
        yield from target.taken()
        yield target.root

    def _fed(self, name: str, target: TreeBuilder) -> Iterator[None]:
        """Parse a part, block by block, up to its damage, which is counted."""
        if name not in self:
            return
        parser = XMLParser(target=target)
        try:
            data = self.data(name)  # all of it first: what is too large is refused before it is parsed
            tips = _TOOLTIP.findall(data) if data.count(b"tooltip=") else ()
            self.left.leave("words of tooltips", sum(len(tip.split()) for tip in tips), _place(name))
            for start in range(0, len(data), _BLOCK_BYTES):
                parser.feed(data[start : start + _BLOCK_BYTES])
                yield
            parser.close()
        except _DAMAGE:
            self.left.leave("damaged parts", 1, _place(name))

    def is_new(self, name: str) -> bool:
        """Whether there is such a part, asked for the first time: parts may refer to one another in a circle."""
        key = name.casefold()
        if key not in self._members or key in self._begun:
            return False
        self._begun.add(key)
        return True

    def relations(self, name: str) -> dict[str, Relation]:
        """What a part refers to, by id."""
        folder, file = posixpath.split(name)
        found = {}
        for each in self.tree(posixpath.join(folder, "_rels", f"{file}.rels")):
            target = "" if each.get("TargetMode") == "External" else inside(folder, each.get("Target", ""))
            found[each.get("Id", "")] = Relation(each.get("Type", "").rpartition("/")[2], target)
        return found

    def main(self, default: str) -> str:
        """The part that the package is about.

        Raises:
            UnreadableError: there is none.
        """
        targets = self.relations("").values()
        name = next((each.target for each in targets if each.kind == "officeDocument"), default)
        if not self.is_new(name):
            raise UnreadableError(f"cannot be converted: there is no {default} in it")
        return name

    def bounded(self, blocks: Iterable[str]) -> Iterator[str]:
        """Blocks of text, as long as they are no more than the limit.

        Raises:
            UnreadableError: they are more.
        """
        n_chars = 0
        for block in blocks:
            n_chars += len(block)
            if n_chars > self._limits.office_text_bytes:
                raise UnreadableError(f"converts to more than {shown_bytes(self._limits.office_text_bytes)} of text")
            yield block

    def pass_over(self, name: str, kind: str) -> None:
        """Count a part under a kind of its own, once, instead of opening it."""
        if name in self and name.casefold() not in self._opened:
            self._opened.add(name.casefold())
            self.left.leave(kind)

    def unopened(self) -> list[str]:
        """The names of the parts that nobody asked for."""
        return [member.filename for key, member in self._members.items() if key not in self._opened]

    def count_unopened(self) -> None:
        """Count what nobody asked for: embedded objects, pictures, macros, words of parts that are XML or text."""
        for key, member in self._members.items():
            if key in self._opened or member.is_dir() or _DULL.search(member.filename):
                continue
            if key.endswith(".xml"):
                self.left.leave("words of unknown parts", self.n_words(member.filename), _place(member.filename))
            elif _PICTURE.search(member.filename):
                self.left.leave("pictures")
            elif _EMBEDDED.search(member.filename):
                self.left.leave("embedded objects", 1, _place(member.filename))
            elif _MACROS.search(member.filename):
                self.left.leave("scripts")
            else:
                self.left.leave(
                    "words of unknown parts", self._n_words_of_text(member.filename), _place(member.filename)
                )

    def count_masters(self, *folders: str) -> None:
        """Count the words of what documents or pages are made from: the parts in some folders."""
        for name in self.names():
            if name.lower().endswith(".xml") and any(folder in name.lower() for folder in folders):
                self.left.leave("words of master pages", self.n_words(name))

    def n_words(self, name: str) -> int:
        """How many words are in a part that is not read; one that is refused is damaged, and counted as such."""
        try:
            return words_of(self.tree(name))
        except UnreadableError:
            self.left.leave("damaged parts", 1, _place(name))
            return 0

    def _n_words_of_text(self, name: str) -> int:
        """How many words are in a part of an unknown ending, if it is XML or other text in UTF-8."""
        try:
            data = self.data(name)
            if data.lstrip()[:1] == b"<":
                return self.n_words(name)
            return 0 if b"\0" in data else len(data.decode().split())
        except (*_DAMAGE, UnreadableError):  # also what is no text
            return 0


def _place(name: str) -> str:
    return f"#{name[:_NAME_CHARS]}"


def inside(folder: str, target: str) -> str:
    """The name of a part that a part in a folder refers to."""
    return posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")


def properties(package: Package, *names: str) -> Mapping[str, str]:
    """The properties in some parts: the words of each element by its name, the first of several."""
    found: dict[str, str] = {}
    for node in _named(package.tree(name) for name in names):
        if words := one_line("".join(node.itertext())):
            found.setdefault(attribute(node, "name") or local(node), words)
    return found


def _named(nodes: Iterable[Element]) -> Iterator[Element]:
    """Elements that have a name as an attribute, and those without others in them."""
    for node in nodes:
        if len(node) and not attribute(node, "name"):
            yield from _named(node)
        else:
            yield node


def about(package: Package) -> About:
    """The properties of a document, a workbook or a presentation of Office."""
    targets = {relation.kind: relation.target for relation in package.relations("").values()}
    core = properties(package, targets.get("core-properties", "docProps/core.xml"))
    custom = properties(package, targets.get("custom-properties", "docProps/custom.xml"))
    app = properties(package, targets.get("extended-properties", "docProps/app.xml"))
    usual = {name: core.get(name, "") for name in _DETAILS} | {
        name: app.get(key, "") for key, name in _OF_OFFICE.items()
    }
    by_people = ((name, text) for name, text in custom.items() if not _OF_PROGRAMS.match(name))
    return about_of(core.get("title", ""), core.get("creator", ""), by_people, usual)


class Lines(list[str]):
    """Lines of text, bounded: what a part repeats or refers to often can be more than all of its bytes."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self._limit = self._room = limits.office_text_bytes

    def add(self, line: str) -> None:
        """Another line.

        Raises:
            UnreadableError: they are more than the limit.
        """
        self.spend(len(line) + 1)
        self.append(line)

    def spend(self, n_chars: int) -> None:
        """Note that so many characters more will be written; raises as `add`."""
        self._room -= n_chars
        if self._room < 0:
            raise UnreadableError(f"converts to more than {shown_bytes(self._limit)} of text")
