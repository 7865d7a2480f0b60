"""PDF to text by pypdfium2, page by page.

    path -> Converted, with pages as its places

Pages are joined by a blank line. Lines that are equal at the top or the foot of most pages stay once. Where the outline
names a line of its page, the line becomes a Markdown heading. Values of fields and notes are at the end of their page.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import Limits
from ragidx.corpora.readers.office.converter import Converted, about_of
from ragidx.corpora.readers.pdf.forms import notes, open_forms
from ragidx.corpora.readers.pdf.frames import drop_frames
from ragidx.corpora.readers.pdf.tables import APART, page_lines, strokes
from ragidx.corpora.readers.pdf.text import characters, is_unmapped, main_turn, pieces
from ragidx.corpora.records import paged

_SAID = ("Title", "Author", "Subject", "Keywords")
_MOST_OUTLINE = 10_000
_DEEPEST = 1_000  # levels of the outline
_HALVES = re.compile("[\ud800-\udfff]")
_NUMBERING = re.compile(r"(?:(?:\d+|[A-Z])(?:\.\d+)*\.?|[IVXLC]+\.)\s+")
_MARKUP = re.compile(r" {0,3}(?:#{1,6}(?=\s|$)|=+\s*$|-+\s*$|```|~~~)")


def convert(path: Path, ending: str, limits: Limits, scans: Any = None) -> Converted:
    """The text of a PDF and its places. Beyond the limit for text: a longer text than that, not the whole.

    `scans` reads scanned pages: an `ocr.pages.Scans`, which has the layout of pages from here.
    """
    left = Tally()
    with pdfium.PdfDocument(path) as document:
        left.leave("attached files", document.count_attachments())
        left.leave("scripts", max(0, pdfium_c.FPDFDoc_GetJavaScriptActionCount(document)))
        with open_forms(document, left) as form:
            pages, notes_of, damaged = _pages(document, form, limits.office_text_bytes, left, scans)
        drop_frames(pages, left)
        pages = [
            [*(line.replace(APART, " ") for line in lines), *more] for lines, more in zip(pages, notes_of, strict=True)
        ]
        headings = _mark_headings(pages, document, left)
        said = document.get_metadata_dict(skip_empty=True)
    text, places = paged((number, "\n".join(lines).strip("\n")) for number, lines in enumerate(pages, start=1))
    title, author, subject, keywords = (str(said.get(name, "")).strip() for name in _SAID)
    usual = {"subject": subject, "keywords": keywords}
    return Converted(
        text=text,
        places=places,
        markdown=headings,
        about=about_of(title, author, (), usual),
        skips=((f"#page={_spans(damaged)}", "damaged pages"),) if damaged else (),
        left=left,
    )


def _pages(
    document: Any, form: Any, text_bytes: int, left: Tally, scans: Any
) -> tuple[list[list[str]], list[list[str]], list[int]]:
    """Lines and notes of each page, and the numbers of those that are damaged."""
    pages: list[list[str]] = []
    notes_of: list[list[str]] = []
    damaged, size = [], 0
    for number in range(1, len(document) + 1):
        pages.append([])
        notes_of.append([])
        try:
            with contextlib.closing(document[number - 1]) as page:
                lines = _page(page, left, f"#page={number}", scans is not None)
                if lines is None and scans is not None:
                    lines = _scanned(page, left, number, len(document), scans)
                pages[-1] = lines or []
                notes_of[-1] = notes(form, page, left, f"#page={number}")
        except pdfium.PdfiumError:
            damaged.append(number)
        size += sum(len(line) + 1 for line in (*pages[-1], *notes_of[-1]))
        if size > text_bytes:
            break
    return pages, notes_of, damaged


def _page(page: Any, left: Tally, at: str, may_scan: bool) -> list[str] | None:
    """The lines of a page; None: text recognition is to read it. Else one that is pictures without text is counted."""
    textpage = page.get_textpage()
    try:
        text = characters(textpage)
        turn = main_turn(textpage, text)
        if 90 * turn != page.get_rotation():  # PDFium finds lines by the page as it is shown
            page.set_rotation(90 * turn)
            textpage.close()
            textpage = page.get_textpage()
            text = characters(textpage)
        if not text.strip("\0 \r\n\t"):
            pictures = page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_IMAGE], max_depth=3)
            is_scan = any(True for _ in pictures)
            if is_scan and may_scan:
                return None
            left.leave("scanned pages", int(is_scan), at)
            return []
        if is_unmapped(textpage, text):
            if may_scan:
                return None
            left.leave("pages without Unicode", 1, at)
            return []
        drawn = strokes(page)
        return [_whole(line) for line in page_lines(pieces(textpage, text, drawn), drawn)]
    finally:
        textpage.close()


def _scanned(page: Any, left: Tally, number: int, n_pages: int, scans: Any) -> list[str]:
    """The lines of a page by text recognition."""

    def draw() -> Any:
        return page.render(scale=scans.scale(*page.get_size()), grayscale=True, may_draw_forms=False).to_pil()

    lines: list[str] = scans.lines(draw, left, f"#page={number}", number / n_pages)
    return lines


def _whole(line: str) -> str:
    """A line, with one character for each above U+FFFF that is given as two."""
    return line.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore") if _HALVES.search(line) else line


def _mark_headings(pages: Sequence[list[str]], document: Any, left: Tally) -> bool:
    """Make headings of the lines that the outline names; whether there are any. Other entries are counted."""
    marked: dict[tuple[int, int], int] = {}
    for level, title, page in _outline(document, left):
        if page is None or not 0 <= page < len(pages):
            left.leave("words of navigation", len(title.split()))
            continue
        wanted = {_key(title), _key(_NUMBERING.sub("", title, count=1))}
        for at, line in enumerate(pages[page]):
            if (page, at) not in marked and {_key(line), _key(_NUMBERING.sub("", line, count=1))} & wanted - {""}:
                marked[page, at] = level
                break
        else:
            left.leave("words of navigation", len(title.split()))
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


def _outline(document: Any, left: Tally) -> list[tuple[int, str, int | None]]:
    """Level from 0, title, and page from 0, of the entries of the outline; a damaged one or a circle is counted.

    As `document.get_toc()`, which warns in the log.
    """
    entries: list[tuple[int, str, int | None]] = []
    seen: set[int] = set()
    waiting = [(pdfium_c.FPDFBookmark_GetFirstChild(document, None), 0)]
    while waiting:
        raw, level = waiting.pop()
        if not raw:
            continue
        address = ctypes.addressof(raw.contents)
        if address in seen:
            left.leave("damaged parts")
            continue
        if len(seen) == _MOST_OUTLINE or level == _DEEPEST:
            left.leave("texts cut at a bound")
            break
        seen.add(address)
        waiting.append((pdfium_c.FPDFBookmark_GetNextSibling(document, raw), level))
        waiting.append((pdfium_c.FPDFBookmark_GetFirstChild(document, raw), level + 1))
        try:
            entry = pdfium.PdfBookmark(raw, document, level)
            target = entry.get_dest()
            entries.append((level, entry.get_title(), None if target is None else target.get_index()))
        except (pdfium.PdfiumError, UnicodeDecodeError):
            left.leave("damaged parts")
    return entries


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
