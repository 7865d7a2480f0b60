"""Jupyter notebooks: Markdown cells as they are, code in fences, results as text; one Document a notebook.

    JSON -> Markdown; a cell is a page, counted from 1

Pictures are skipped. What a cell printed is cut at 2,000 characters; of an error its name and message stay. A cell
that is no cell is skipped and reported, and the others are read. Versions 3 and 4 of the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ragidx.corpora.headings import first_heading
from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers.fields import check_text
from ragidx.corpora.readers.records.jsonl import loaded
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, Place, Scalar

_OUTPUT_CHARS = 2000
_DATA_URI = re.compile(r"\(data:[\w.+-]{1,40}/[^()\s]*\)")
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_PICTURE = re.compile(r"<[\w.]*Figure size [^<>\n]*>")
_TICKS = re.compile("`{3,}")
_LANGUAGE = re.compile(r"[\w+#-]{1,20}")


def read_notebook(file: SourceFile) -> Iterator[Document]:
    """The cells of a notebook."""
    notebook = _mapping(loaded(file.decoded(file.data(file.limits.json_bytes)), file.skip))
    metadata = _mapping(notebook.get("metadata"))
    language = _language(metadata)
    parts: list[str] = []
    places: list[Place] = []
    offset = 0
    for number, cell in enumerate(_cells(notebook), start=1):
        try:
            part = _cell(_mapping(cell), language)
        except UnreadableError as fault:
            file.skip(str(fault), f"#cell={number}")
            continue
        if part:
            places.append(Place(offset, page=number))
            parts.append(part)
            offset += len(part) + 2
    text = "\n\n".join(parts)
    check_text(text)
    title = _clean(str(metadata.get("title") or "")) or first_heading(text)
    found: dict[str, Scalar] = {"title": title, "author": _author(metadata)}
    yield Document(
        file.doc_id(), text, {name: value for name, value in found.items() if value}, True, places=tuple(places)
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _cells(notebook: Mapping[str, Any]) -> list[Any]:
    sheets = notebook.get("worksheets")  # of version 3
    holders = [notebook, *(map(_mapping, sheets) if isinstance(sheets, list) else ())]
    lists = [cells for holder in holders if isinstance(cells := holder.get("cells"), list)]
    if not lists:
        raise UnreadableError("not a notebook: it has no cells")
    return [cell for cells in lists for cell in cells]


def _language(metadata: Mapping[str, Any]) -> str:
    for holder, name in (("language_info", "name"), ("kernelspec", "language")):
        found = _mapping(metadata.get(holder)).get(name)
        if isinstance(found, str) and _LANGUAGE.fullmatch(found):
            return found
    return "python"


def _author(metadata: Mapping[str, Any]) -> str:
    authors = metadata.get("authors")
    names = [_mapping(author).get("name") for author in authors] if isinstance(authors, list) else []
    return _clean(", ".join(name for name in names if isinstance(name, str)))


def _cell(cell: Mapping[str, Any], language: str) -> str:
    """A cell as Markdown; empty where there is nothing in it."""
    source = _text(cell.get("source", cell.get("input")))
    if source is None:
        raise UnreadableError("a cell without text")
    kind = cell.get("cell_type")
    if kind == "code":
        shown = [_fenced(source, language)] if source.strip() else []
        outputs = cell.get("outputs")
        results = "\n".join(filter(None, map(_output, outputs if isinstance(outputs, list) else [])))
        if results.strip():
            cut = "..." if len(results) > _OUTPUT_CHARS else ""
            shown.append(_fenced(results[:_OUTPUT_CHARS].rstrip() + cut, ""))
        return "\n\n".join(shown)
    if kind == "heading":  # of version 3
        level = cell.get("level")
        return f"{'#' * level if isinstance(level, int) and 1 <= level <= 6 else '#'} {' '.join(source.split())}"
    return _DATA_URI.sub("()", source).strip()


def _output(output: object) -> str:
    """What a cell printed or gave, as text."""
    fields = _mapping(output)
    if "ename" in fields or "evalue" in fields:
        return _clean(f"{_text(fields.get('ename')) or ''}: {_text(fields.get('evalue')) or ''}")
    data = _mapping(fields.get("data"))
    for value in (fields.get("text"), data.get("text/plain"), data.get("text/markdown")):
        if text := _text(value):
            return _PICTURE.sub("", text).rstrip()
    return ""


def _text(value: object) -> str | None:
    """A string, or a list of them."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "".join(value)
    return _clean(value) if isinstance(value, str) else None


def _clean(text: str) -> str:
    plain = _CONTROLS.sub("", _ANSI.sub("", text)).replace("\r\n", "\n").replace("\r", "\n")
    return plain.encode("utf-8", "replace").decode()


def _fenced(text: str, language: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"
