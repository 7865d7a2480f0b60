"""PDF to text by pypdfium2, page by page.

    path -> Converted, with pages as its places

Pages are joined by a blank line. Lines that repeat at the top or the foot of most pages are dropped, digits masked.
Where the outline names a line of its page, the line becomes a Markdown heading. Tables are lines, as they are printed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from ragidx.corpora.limits import Limits
from ragidx.corpora.readers.office.converter import Converted
from ragidx.corpora.records import Place

_FRAME_LINES = 2  # at the top and at the foot, where repeated lines are looked for
_FRAME_PAGES = 4  # of fewer pages, a line that repeats may be content
_MOST_OUTLINE = 10_000
_BROKEN_WORD = re.compile("[\ufffe\x02]\r?\n?")  # PDFium's mark of a hyphen at the end of a line
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_NUMBERING = re.compile(r"(?:(?:\d+|[A-Z])(?:\.\d+)*\.?|[IVXLC]+\.)\s+")
_MARKUP = re.compile(r" {0,3}(?:#{1,6}(?=\s|$)|=+\s*$|-+\s*$|```|~~~)")
_NO_TITLE = re.compile(r"untitled|microsoft (?:word|powerpoint|excel) - |\S+\.(?:doc|docx|pdf|dvi|tex|indd|qxd)$", re.I)


def convert(path: Path, ending: str, limits: Limits) -> Converted:
    """The text of a PDF and its places. Beyond the limit for text: a longer text than that, not the whole."""
    with pdfium.PdfDocument(path) as document:
        pages, scanned, damaged = _pages(document, limits.office_text_bytes)
        _drop_frames(pages)
        headings = _mark_headings(pages, document)
        found = document.get_metadata_dict(skip_empty=True)
    parts: list[str] = []
    places, offset = [], 0
    for number, lines in enumerate(pages, start=1):
        part = "\n".join(lines).strip("\n")
        if part:
            places.append(Place(offset, page=number))
            parts.append(part)
            offset += len(part) + 2
    skips = ((scanned, "scanned pages without text"), (damaged, "damaged pages"))
    title = str(found.get("Title", "")).strip()
    return Converted(
        text="\n\n".join(parts),
        places=tuple(places),
        markdown=headings,
        title="" if _NO_TITLE.match(title) else title,
        author=str(found.get("Author", "")).strip(),
        skips=tuple((f"#page={_spans(numbers)}", reason) for numbers, reason in skips if numbers),
    )


def _pages(document: Any, text_bytes: int) -> tuple[list[list[str]], list[int], list[int]]:
    """The lines of each page, and the numbers of those that are pictures alone, and of those that are damaged."""
    pages: list[list[str]] = []
    scanned, damaged = [], []
    size = 0
    for number in range(1, len(document) + 1):
        try:
            text, pictures = _page(document, number - 1)
        except pdfium.PdfiumError:
            text, pictures = "", False
            damaged.append(number)
        if pictures:
            scanned.append(number)
        pages.append([line.rstrip() for line in text.split("\n")])
        size += len(text)
        if size > text_bytes:
            break
    return pages, scanned, damaged


def _page(document: Any, index: int) -> tuple[str, bool]:
    """The text of a page; whether it is pictures without text."""
    page = document[index]
    try:
        textpage = page.get_textpage()
        try:
            raw = textpage.get_text_bounded()
        finally:
            textpage.close()
        text = _CONTROLS.sub("", _BROKEN_WORD.sub("", raw).replace("\r\n", "\n").replace("\r", "\n"))
        if text.strip():
            return text, False
        return "", any(True for _ in page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_IMAGE], max_depth=3))
    finally:
        page.close()


def _drop_frames(pages: Sequence[list[str]]) -> None:
    """Take out running headers and footers, and page numbers."""
    filled = [lines for lines in pages if any(lines)]
    if len(filled) < _FRAME_PAGES:
        return
    for foot in (False, True):
        ends = [_frame(lines, foot=foot) for lines in filled]
        counts = Counter(key for end in ends for key in {key for _, key in end})
        for lines, end in zip(filled, ends, strict=True):
            repeated = {at for at, key in end if 2 * counts[key] > len(filled)}
            if sum(map(bool, lines)) > len(repeated):
                lines[:] = [line for at, line in enumerate(lines) if at not in repeated]


def _frame(lines: Sequence[str], *, foot: bool) -> list[tuple[int, str]]:
    """Places and masked texts of the first or last lines of a page that may be a header or a footer."""
    places = [at for at, line in enumerate(lines) if line.strip()]
    ends = places[-_FRAME_LINES:] if foot else places[:_FRAME_LINES]
    masked = [(at, re.sub(r"\d+", "0", " ".join(lines[at].split()))) for at in ends]
    # Several numbers without a word are a row of a table.
    return [(at, key) for at, key in masked if re.search(r"[^\W\d]", key) or key.count("0") == 1]


def _mark_headings(pages: Sequence[list[str]], document: Any) -> bool:
    """Make headings of the lines that the outline names; whether there are any."""
    marked: dict[tuple[int, int], int] = {}
    for level, title, page in _outline(document):
        if page is None or not 0 <= page < len(pages):
            continue
        wanted = {_key(title), _key(_NUMBERING.sub("", title, count=1))}
        for at, line in enumerate(pages[page]):
            if (page, at) not in marked and {_key(line), _key(_NUMBERING.sub("", line, count=1))} & wanted - {""}:
                marked[page, at] = level
                break
    if not marked:
        return False
    for number, lines in enumerate(pages):
        for at, line in enumerate(lines):
            depth = marked.get((number, at))
            if depth is not None:
                lines[at] = f"{'#' * min(depth + 1, 6)} {line.strip()}"
            elif _MARKUP.match(line):
                lines[at] = f"\\{line.lstrip()}"
    return True


def _outline(document: Any) -> list[tuple[int, str, int | None]]:
    """Level from 0, title, and page from 0, of the entries of the outline; empty where it is damaged."""
    found: list[tuple[int, str, int | None]] = []
    try:
        for entry in document.get_toc():
            target = entry.get_dest()
            found.append((entry.level, entry.get_title(), None if target is None else target.get_index()))
            if len(found) == _MOST_OUTLINE:
                break
    except (pdfium.PdfiumError, UnicodeDecodeError):
        return found
    return found


def _key(text: str) -> str:
    return " ".join(text.casefold().split())


def _spans(numbers: Sequence[int]) -> str:
    """Rising numbers in short.

    >>> _spans([1, 2, 3, 7])
    '1-3,7'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
