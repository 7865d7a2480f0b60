"""OpenDocument text to Markdown.

    path -> Converted

Headings by their outline level, paragraphs, lists, rows of tables with ` | `. A document type, which no office program
writes, is refused: it can expand without bounds.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder, XMLParser

from ragidx.corpora.limits import Limits
from ragidx.corpora.readers.office.converter import Converted

_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_DC = "{http://purl.org/dc/elements/1.1/}"
_META = "{urn:oasis:names:tc:opendocument:xmlns:meta:1.0}"
_SKIPPED = {f"{_TEXT}note-citation", f"{_TEXT}tracked-changes", f"{_OFFICE}annotation", f"{_TEXT}sequence-decls"}
_SPACES = {f"{_TEXT}s": " ", f"{_TEXT}tab": "\t", f"{_TEXT}line-break": "\n"}


def convert(path: Path, ending: str, limits: Limits) -> Converted:
    """The text of an .odt."""
    with zipfile.ZipFile(path) as archive:
        if any(member.flag_bits & 1 for member in archive.infolist()):
            raise ValueError("encrypted")
        body = _parsed(archive.read("content.xml")).find(f"{_OFFICE}body")
        meta = _parsed(archive.read("meta.xml")) if "meta.xml" in archive.namelist() else Element("none")
    if body is None:
        raise ValueError("no body")
    author = meta.findtext(f".//{_META}initial-creator") or meta.findtext(f".//{_DC}creator") or ""
    title = (meta.findtext(f".//{_DC}title") or "").strip()
    return Converted(text="\n\n".join(filter(None, _blocks(body))), title=title, author=author.strip())


def _parsed(data: bytes) -> Element:
    parser = XMLParser(target=_Plain())
    parser.feed(data)
    root: Element = parser.close()
    return root


class _Plain(TreeBuilder):
    """A tree without a document type."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """Called where a document type is declared."""
        raise ValueError("a document type is declared")


def _blocks(node: Element, prefix: str = "") -> Iterator[str]:
    """The blocks of Markdown in an element, some of them empty; those of a list begin with `prefix`."""
    for child in node:
        if child.tag in _SKIPPED:
            continue
        if child.tag == f"{_TEXT}h":
            yield _block("#" * _level(child), _inline(child))
        elif child.tag == f"{_TEXT}p":
            yield _block(prefix, _inline(child))
        elif child.tag == f"{_TABLE}table-row":
            cells = [cell for cell in child if cell.tag == f"{_TABLE}table-cell"]
            yield _block("", " | ".join(" ".join(_inline(cell).split()) for cell in cells))
        else:
            yield from _blocks(child, "-" if child.tag == f"{_TEXT}list-item" else prefix)


def _block(prefix: str, text: str) -> str:
    words = text.strip()
    return f"{prefix} {words}".lstrip() if words else ""


def _level(node: Element) -> int:
    value = node.get(f"{_TEXT}outline-level", "1")
    return min(6, max(1, int(value))) if value.isascii() and value.isdigit() and len(value) < 4 else 1


def _inline(node: Element) -> str:
    parts = [node.text or ""]
    for child in node:
        if child.tag in _SPACES:
            parts.append(_SPACES[child.tag])
        elif child.tag not in _SKIPPED:
            parts.append(_inline(child))
            if child.tag in (f"{_TEXT}p", f"{_TEXT}note"):
                parts.append(" ")
        parts.append(child.tail or "")
    return "".join(parts)
