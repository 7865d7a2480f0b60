"""Jupyter notebooks: Markdown cells as they are, code in fences, results as text; one Document a notebook.

    JSON -> Markdown; a cell is a page, counted from 1

Of a result the plain text is taken, or, where that names an object only, its Markdown, page, LaTeX or JSON. Pictures,
scripts, values of widgets, and what only a program shows, such as a chart, are counted. What a cell printed is cut at
2,000 characters; of an error its name and message stay. A cell that is no cell is skipped and reported, and the others
are read. Versions 3 and 4 of the format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ragidx.corpora.headings import first_heading
from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers.fields import check_text
from ragidx.corpora.readers.records.jsonl import loaded
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, paged

_OUTPUT_CHARS = 2000
_DATA_URI = re.compile(r"\(data:[\w.+-]{1,40}/[^()\s]*\)")
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_PICTURE = re.compile(r"<[\w.]*Figure size [^<>\n]*>")
_OBJECT = re.compile(r"\s*<[^<>]*(?: at 0x[0-9a-fA-F]+| object)>\s*")
_UNREAD = ("application/vnd.", "application/x-", "application/pdf", "application/geo+json", "audio/", "video/")
_SCRIPTS = ("application/javascript", "text/javascript")
_TRIED = ("text/plain", "text/html", "text/javascript")
_TICKS = re.compile("`{3,}")
_LANGUAGE = re.compile(r"[\w+#-]{1,20}")


def read_notebook(file: SourceFile) -> Iterator[Document]:
    """The cells of a notebook."""
    notebook = _mapping(loaded(file.decoded(file.data(file.limits.json_bytes)), file.skip))
    metadata = _mapping(notebook.get("metadata"))
    text, places = paged(_numbered(file, notebook, _language(metadata)))
    widgets = _mapping(metadata.get("widgets")).values()
    file.leave("values of widgets", sum(len(_mapping(_mapping(each).get("state"))) for each in widgets))
    check_text(text)
    title = _clean(str(metadata.get("title") or "")) or first_heading(text)
    fields = {"title": title, "author": _author(metadata)}
    yield Document(file.doc_id(), text, {name: value for name, value in fields.items() if value}, True, places=places)


def _numbered(file: SourceFile, notebook: Mapping[str, Any], language: str) -> Iterator[tuple[int, str]]:
    """Each cell as Markdown, with its number; what is no cell is skipped."""
    for number, cell in enumerate(_cells(notebook), start=1):
        try:
            yield number, _cell(file, _mapping(cell), language, f"#cell={number}")
        except UnreadableError as fault:
            file.skip(str(fault), f"#cell={number}")


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


def _cell(file: SourceFile, cell: Mapping[str, Any], language: str, at: str) -> str:
    """A cell as Markdown; empty where there is nothing in it."""
    source = "" if cell.get("source", ...) is None else _text(cell.get("source", cell.get("input")))
    if source is None:
        raise UnreadableError("a cell without text")
    kind, tags = cell.get("cell_type"), _mapping(cell.get("metadata")).get("tags")
    file.leave("tags of cells", len(tags) if isinstance(tags, list) else 0, at)
    if kind == "code":
        shown = [_fenced(source, language)] if source.strip() else []
        outputs = cell.get("outputs")
        each = [_output(file, output, at) for output in (outputs if isinstance(outputs, list) else [])]
        results = "\n".join(filter(None, each))
        if results.strip():
            cut = "..." if len(results) > _OUTPUT_CHARS else ""
            file.leave("words of long results", len(results[_OUTPUT_CHARS:].split()), at)
            shown.append(_fenced(results[:_OUTPUT_CHARS].rstrip() + cut, ""))
        return "\n\n".join(shown)
    if kind == "heading":  # of version 3
        level = cell.get("level")
        return f"{'#' * level if isinstance(level, int) and 1 <= level <= 6 else '#'} {' '.join(source.split())}"
    source, n_pictures = _DATA_URI.subn("()", source)
    attached = _mapping(cell.get("attachments")).values()
    file.leave("pictures", n_pictures + sum(any(map(_is_picture, _mapping(each))) for each in attached), at)
    return source.strip()


def _output(file: SourceFile, output: object, at: str) -> str:
    """What a cell printed or gave, as text."""
    fields = _mapping(output)
    if "ename" in fields or "evalue" in fields:
        file.leave("tracebacks", bool(fields.get("traceback")), at)
        return _clean(f"{_text(fields.get('ename')) or ''}: {_text(fields.get('evalue')) or ''}")
    data = _mapping(fields.get("data"))
    file.leave("pictures", any(map(_is_picture, data)), at)
    file.leave("scripts", any(kind in data for kind in _SCRIPTS), at)
    text = _text(fields.get("text")) or _text(data.get("text/plain")) or ""
    if not text or _OBJECT.fullmatch(text):
        text = _rich(file, data) or text
        if not text or _OBJECT.fullmatch(text):
            file.leave("embedded objects", any(kind.startswith(_UNREAD) for kind in data), at)
    return _PICTURE.sub("", text).rstrip()


def _rich(file: SourceFile, data: Mapping[str, Any]) -> str:
    """The text of a result that has no plain text of its own; empty where there is none."""
    if text := _text(data.get("text/markdown")):
        return text
    if html := _text(data.get("text/html")):
        from ragidx.corpora.readers.html_page import page_text, parsed  # few notebooks have such results

        if text := page_text(parsed(html, file.left), file.left).strip():
            return text
    others = (_text(value) for kind, value in data.items() if kind.startswith("text/") and kind not in _TRIED)
    if text := next(filter(None, others), None):  # LaTeX, tables
        return text
    value = data.get("application/json")
    return "" if value is None else _clean(json.dumps(value, ensure_ascii=False))


def _is_picture(kind: str) -> bool:
    return kind.startswith("image/")


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
