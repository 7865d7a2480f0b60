"""Books (.epub): the pages of the reading order by the page reader, each with its place.

    bytes -> Document, with the files of the reading order as its pages

What the package says of the book (authors, subjects, description ...) is above the first page. Files that the order
leaves out are counted, and so is the list of contents, which repeats the headings.
"""

from __future__ import annotations

import posixpath
import re
import urllib.parse
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element

from selectolax.lexbor import LexborHTMLParser

from ragidx.corpora.errors import check_machine, first_line
from ragidx.corpora.headings import first_heading
from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers.fields import check_text
from ragidx.corpora.readers.html_page import page_html, page_text, parsed
from ragidx.corpora.readers.html_rules import NAVIGATION, n_words
from ragidx.corpora.readers.office.package import Package, inside
from ragidx.corpora.readers.office.trees import attribute, local
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, paged

_CONTAINER = "META-INF/container.xml"
_ABOUT = ("creator", "contributor", "subject", "description", "publisher", "date", "rights")
_ELEMENT = re.compile(r"<[^<>]*>")
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)  # what is raised of one part
_PAGES = re.compile(r"\.(?:x?html?|svg)$", re.IGNORECASE)


def read_epub(file: SourceFile) -> Iterator[Document]:
    """A book."""
    with file.path() as path:
        try:
            found = _document(Package(path, file.limits, file.left), file)
        except (*_DAMAGED, OSError, ValueError) as fault:
            check_machine(fault, file.source.name)
            raise UnreadableError(f"cannot be converted: {type(fault).__name__}: {first_line(fault)}") from fault
    check_text(found.text)
    yield found


def _document(package: Package, file: SourceFile) -> Document:
    root = package.tree(_CONTAINER)
    files = [attribute(node, "full-path") for node in root.iter() if local(node) == "rootfile"]
    if not files:
        raise UnreadableError("not a book: its container names no package")
    book, whole = package.tree(files[0]), file.fields.html == "whole"
    about = _about(book)
    above = [f"{name}: {value}" for name in _ABOUT for value in about.get(name, ())]
    texts = package.bounded(_pages(package, _order(package, book, files[0]), "\n".join(above), whole=whole))
    text, places = paged(enumerate(texts, start=1))
    _count_rest(package, book)
    title = next(iter(about.get("title", ())), "") or first_heading(text)
    fields = {"title": title, "author": "; ".join(about.get("creator", ()))}
    metadata = {name: value for name, value in fields.items() if value}
    return Document(file.doc_id(), text, metadata, markdown=True, places=places)


def _pages(package: Package, names: Iterable[str], above: str, *, whole: bool) -> Iterator[str]:
    """The text of each part, of the first that has one below what is above the book."""
    for number, name in enumerate(names, start=1):
        if (text := _page(package, name, number, whole=whole)) and above:
            text, above = f"{above}\n\n{text}", ""
        yield text


def _about(book: Element) -> dict[str, list[str]]:
    """What the package says of the book, by name."""
    found: dict[str, list[str]] = {}
    for node in book.iter():
        if "purl.org/dc/" in str(node.tag) and (words := _ELEMENT.sub(" ", "".join(node.itertext())).split()):
            found.setdefault(local(node), []).append(" ".join(words))
    return found


def _order(package: Package, book: Element, name: str) -> Iterator[str]:
    """The parts of the reading order, each once."""
    folder = posixpath.dirname(name)
    items = {node.get("id", ""): node for node in book.iter() if local(node) == "item"}
    seen: set[str] = set()
    for node in book.iter():
        item = items.get(node.get("idref", "")) if local(node) == "itemref" else None
        if item is None:
            continue
        target = item.get("href", "").partition("#")[0]
        # Addresses are quoted, and some makers quote the names in the zip, too.
        names = (inside(folder, each) for each in (urllib.parse.unquote(target), target))
        part = next((each for each in names if each in package), "")
        if not part:
            package.left.leave("damaged parts", 1)
        elif part not in seen:
            seen.add(part)
            yield part


def _page(package: Package, name: str, number: int, *, whole: bool) -> str:
    """The text of a part; empty where it cannot be read, which is counted."""
    left, at = Tally(), f"#page={number}"
    tree = _tree(package, name, left, at)
    text = page_text(tree, left, whole=whole) if tree is not None else ""
    title = tree.css_first("head > title") if tree is not None else None
    if title is not None and " ".join(title.text().split()) not in text:
        left.leave("titles in properties")
    package.left.take(left, at)
    return text.strip()


def _tree(package: Package, name: str, left: Tally, at: str) -> LexborHTMLParser | None:
    """A part as a page; None where it cannot be read, which is counted.

    Raises:
        UnreadableError: it is more than the bounds allow.
    """
    try:
        data = package.data(name)
    except _DAMAGED:
        package.left.leave("damaged parts", 1, at)
        return None
    try:
        return parsed(page_html(data, is_xml=True), left)
    except UnreadableError:
        package.left.leave("damaged parts", 1, at)
        return None


def _count_rest(package: Package, book: Element) -> None:
    """Count the words of pages that the order leaves out, and what else is in the zip."""
    contents = {item.get("href", "") for item in book.iter() if "nav" in (item.get("properties") or "").split()}
    for name in package.unopened():
        if not (is_contents := name.lower().endswith(".ncx")) and not _PAGES.search(name):
            continue
        if (tree := _tree(package, name, Tally(), f"#{name}")) is None:
            continue
        tree.strip_tags(["script", "style", "head"])
        is_contents = is_contents or any(name.endswith(href) for href in contents if href)
        count = n_words(tree.body) if tree.body is not None else 0
        package.left.leave(NAVIGATION if is_contents else "words of unknown parts", count, f"#{name}")
    package.count_unopened()
