"""Workbooks: sheets in their order, rows of cells as a person sees them, and what is around the cells.

    path -> Converted, with sheets as its places

A row is a line, its cells between ` | `; rows without a cell are left out. Comments follow their row; headers and
footers, text boxes and charts their sheet. Nothing is guessed from the cells: text stays text, and `cell_formats` shows
numbers. Source: ECMA-376, part 1, 18.
"""

from __future__ import annotations

import functools
import html
import itertools
import re
import string
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import Limits
from ragidx.corpora.readers.office.cell_formats import BUILT_IN, Formatter, formatter, plain
from ragidx.corpora.readers.office.converter import Converted
from ragidx.corpora.readers.office.package import Lines, Package, Relation, about
from ragidx.corpora.readers.office.trees import attribute, local, one_line, relation_id, whole, words_in, words_of
from ragidx.corpora.records import Place

_GAP_CELLS: Final = 8  # empty cells in a row, which keep the columns of those behind them
_COLUMNS = 16_384
_CACHES = re.compile(r"(?:^|/)(?:pivotCache|externalLinks|slicer|timeline|model|queryTable|connections)", re.IGNORECASE)
_PAGE_CODE = re.compile(r'&(?:[LCRPNDTAFZGBIUESXYHO]|"[^"]*"|\d+|K[0-9A-F+-]{5,6})', re.IGNORECASE)
_LABEL = re.compile(rb"<v:textbox\b[^>]*>(.{0,100000}?)</v:textbox>", re.DOTALL)
_CHOICES = re.compile(r'"(?:[^"]|"")*"')
_WITHOUT_WORDS = {"sqref", "from", "to", "pos", "ext", "formatCode"}  # places and sizes
_NUMBERS = {"numCache", "numLit", "numDim"}
_NAMES = {"strCache", "strLit", "lvl", "dlblRangeCache"}  # of series and categories


def convert(path: Path, ending: str, limits: Limits) -> Converted:
    """The text of a workbook."""
    with Package(path, limits, Tally()) as package:
        text, places = _Book(package, limits).read()
        said = about(package)
        for name in package.names():
            if _CACHES.search(name):
                package.pass_over(name, "caches of data")
        package.count_unopened()
    return Converted(text=text, places=places, about=said, left=package.left)


class _Book:
    """A workbook while it is read."""

    def __init__(self, package: Package, limits: Limits) -> None:
        self._package, self._left, self.lines = package, package.left, Lines(limits)
        name = package.main("xl/workbook.xml")
        self._book, self._relations = package.tree(name), package.relations(name)
        self._strings: list[str] = []
        self._formats: list[Formatter] = []

    def read(self) -> tuple[str, tuple[Place, ...]]:
        """The text, and where sheets begin."""
        for kind, name in self._relations.values():
            if kind == "sharedStrings":
                self._strings += [one_line(self.rich(node)) for node in self._package.elements(name, "sst")]
            elif kind == "styles":
                self._formats = list(_formats(self._package.tree(name), from_1904=_from_1904(self._book)))
        starts = []
        for number, sheet in enumerate((node for node in self._book.iter() if local(node) == "sheet"), start=1):
            starts.append((len(self.lines), number))
            self._sheet(sheet, number)
            self.lines.add("")
        self._left.leave("defined names", sum(local(node) == "definedName" for node in self._book.iter()))
        offsets = [0, *itertools.accumulate(len(line) + 1 for line in self.lines)]
        places = tuple(Place(offsets[line], page=number) for line, number in starts)
        return "\n".join(self.lines).rstrip("\n"), places

    def _sheet(self, sheet: Element, number: int) -> None:
        self.lines.add(f"## {one_line(sheet.get('name', ''))}")
        self._left.leave("hidden sheets", int(sheet.get("state", "visible") != "visible"), f"#page={number}")
        name = self._relations.get(relation_id(sheet), Relation("", "")).target
        if name not in self._package:
            self._left.leave("damaged parts", 1, f"#page={number}")
        if not self._package.is_new(name):
            return
        relations = self._package.relations(name)
        root = self._rows(self._package.elements(name, "sheetData"), self._comments(relations))
        self._around(root)
        self._left.leave("addresses of links", sum(local(node) == "hyperlink" for node in root.iter()))
        for kind, part in relations.values():
            if kind == "drawing":
                self._drawing(part)
            elif kind == "vmlDrawing":
                self._labels(part)
            elif kind == "table":
                tree = self._package.tree(part)
                self._left.leave("defined names")
                self._left.leave("formulas", sum(bool(words_of(node)) for node in tree.iter() if not len(node)))

    def write(self, *lines: str) -> None:
        """Write lines, each with single spaces."""
        for line in lines:
            if words := one_line(line):
                self.lines.add(words)

    # Cells.

    def _rows(self, rows: Iterable[Element], comments: dict[int, list[str]]) -> Element:
        """Write the rows of a sheet, with the comments on them.

        Returns:
            the last element, which is the rest of the sheet.
        """
        begins: list[tuple[int, int]] = []  # (line, column of the first cell)
        number, last = 0, Element("none")
        for element in rows:
            before, last = last, element
            for row in self._through((before,), "row"):
                number = whole(row.get("r", ""), number + 1)
                first, cells = self._row(row)
                if cells:
                    begins.append((len(self.lines), first))
                    self.lines.add(" | ".join(cells))
                self.write(*comments.pop(number, ()))
        for lines in comments.values():  # of rows that are not there
            self.write(*lines)
        left = min((first for _, first in begins), default=0)
        for line, first in begins:
            self.lines[line] = " | " * (first - left if first - left <= _GAP_CELLS else 0) + self.lines[line]
        return last

    def _through(self, nodes: Iterable[Element], name: str) -> Iterator[Element]:
        """The elements of a name, also those in others, whose own words are counted."""
        for node in nodes:
            if local(node) == name:
                yield node
            else:
                self._left.leave("words of unknown elements", len((node.text or "").split()))
                yield from self._through(node, name)

    def _row(self, row: Element) -> tuple[int, list[str]]:
        """The column of the first cell that holds something, and the cells from there."""
        cells: list[str] = []
        first = column = behind = 0
        for cell in self._through(row, "c"):
            column = _column_of(cell.get("r", "").rstrip("0123456789")) or column + 1
            if text := self.cell(cell):
                gap = column - behind - 1 if cells else 0
                cells += ["" for _ in range(gap if gap <= _GAP_CELLS else 0)]
                cells.append(text)
                first, behind = first or column, column
        return first, cells

    def rich(self, node: Element) -> str:
        """The text of runs, without readings."""
        out = []
        for child in node:
            if local(child) == "rPh":
                self._left.leave("ruby readings", words_of(child))
            else:
                out += [child.text or "" if local(child) == "t" or (child.text or "").strip() else "", self.rich(child)]
        return "".join(out)

    def cell(self, node: Element) -> str:
        """What is seen in a cell."""
        kind, value, formula, inline = node.get("t", "n"), None, None, ""
        for child in node:
            name = local(child)
            if name == "v":
                value = child.text or ""
            elif name == "f":
                formula = child.text or ""
            else:  # `is`, and whatever else holds text
                inline += f" {child.text or ''}{self.rich(child)}"
        if formula is not None and not value and (value is None or kind != "str"):
            self._left.leave("formulas without a value")
            return one_line(f"={formula} {inline}" if formula else inline)
        if formula is not None:
            self._left.leave("formulas", int(bool(formula)))
        text = self._value(kind, value or "", node.get("s", ""))
        return one_line(f"{text} {inline}") if inline else text

    def _value(self, kind: str, value: str, style: str) -> str:
        if not value:
            return ""
        if kind == "s":
            at = whole(value, len(self._strings))
            return self._strings[at] if at < len(self._strings) else ""
        if kind == "b":
            return {"1": "TRUE", "0": "FALSE"}.get(value, one_line(value))
        if kind == "d":
            return one_line(value.replace("T00:00:00", "").replace("T", " "))
        if kind in ("str", "e", "inlineStr"):
            return one_line(value)
        at = whole(style)
        return self._formats[at](value.strip()) if at < len(self._formats) else plain(value.strip())

    # Around the cells.

    def _around(self, root: Element) -> None:
        """Headers and footers; what else has words in the part of a sheet is a rule, or not known."""
        for node in root.iter():
            name, text = local(node), node.text or ""
            self._left.leave("words of unknown parts", len((node.tail or "").split()))
            if name == "dataValidation":
                said = (attribute(node, key) for key in ("promptTitle", "prompt", "errorTitle", "error"))
                self._left.leave("words of notices", words_in(said))
            elif not text.strip() or name in _WITHOUT_WORDS:
                continue
            elif re.fullmatch(r"(?:odd|even|first)(?:Header|Footer)", name):
                self.write(_PAGE_CODE.sub(" ", text.replace("&&", "&\0")).replace("&\0", "&"))
            elif name in ("formula1", "f") and _CHOICES.fullmatch(text):
                self._left.leave("choices of forms", text.count(",") + 1)
            elif name in ("formula", "formula1", "formula2", "f"):
                self._left.leave("formulas")
            else:
                self._left.leave("words of unknown parts", len(text.split()))

    def _comments(self, relations: Mapping[str, Relation]) -> dict[int, list[str]]:
        """The lines of comments by row. A thread replaces the comment that repeats it for programs without threads."""
        found: dict[str, list[str]] = defaultdict(list)
        for wanted in ("threadedComment", "comments"):
            threads = set(found)
            for name in (name for kind, name in relations.values() if kind == wanted):
                for node in self._package.tree(name).iter():
                    if local(node) not in ("comment", "threadedComment") or node.get("ref", "") in threads:
                        continue
                    found[node.get("ref", "")].append(self.rich(node))
                    self._left.leave("authors of comments", int("authorId" in node.attrib or "personId" in node.attrib))
        rows: dict[int, list[str]] = defaultdict(list)
        for place, lines in found.items():
            rows[whole(place.lstrip(f"{string.ascii_uppercase}$"))] += lines
        return rows

    def _labels(self, name: str) -> None:
        """Labels of form controls, in a part that is not always well-formed."""
        for label in _LABEL.findall(self._package.data(name)):
            self.write(html.unescape(re.sub(r"<[^>]*>", " ", label.decode("utf-8", "replace"))))

    def _drawing(self, name: str, *, is_chart: bool = False) -> None:
        if not self._package.is_new(name):
            return
        relations = self._package.relations(name)
        self._left.leave("addresses of links", sum(one.kind == "hyperlink" for one in relations.values()))
        lines = [line for line in self._drawn(self._package.tree(name)) if line]
        once = list(dict.fromkeys(lines)) if is_chart else lines  # each series repeats the categories
        self._left.leave("repeated lines", len(lines) - len(once))
        self.write(*once)
        for kind, part in relations.values():
            if kind in ("chart", "chartEx", "diagramData", "chartUserShapes"):
                self._drawing(part, is_chart=kind.startswith("chart"))

    def _drawn(self, node: Element) -> Iterator[str]:
        """The lines of shapes, charts and diagrams: paragraphs, names of series and categories."""
        for child in _alternatives(node):
            name = local(child)
            if name == "p":
                yield one_line(_runs(child))
            elif name in _NUMBERS:
                self._left.leave(
                    "numbers of charts", sum(local(each) in ("v", "pt") and not len(each) for each in child.iter())
                )
            elif name in _NAMES:
                points = self._through(child, "pt")
                yield " | ".join(filter(None, (one_line("".join(point.itertext())) for point in points)))
            elif name in ("f", "formula"):
                self._left.leave("formulas")
            elif name not in _WITHOUT_WORDS:
                said = (child.get("descr", ""), child.get("title", "")) if name == "cNvPr" else ()
                self._left.leave("words of alternative texts", words_in(said))
                yield one_line(child.text or "")
                yield from self._drawn(child)


@functools.lru_cache(maxsize=_COLUMNS)
def _column_of(letters: str) -> int:
    """The number of a column, from 1; 0: it is none.

    >>> _column_of("A"), _column_of("XFD"), _column_of(""), _column_of("AAAA"), _column_of("É")
    (1, 16384, 0, 0, 0)
    """
    if len(letters) > 3 or not all("A" <= letter <= "Z" for letter in letters):
        return 0
    return functools.reduce(lambda column, letter: 26 * column + ord(letter) - 64, letters, 0)


def _from_1904(book: Element) -> bool:
    return any(node.get("date1904") in ("1", "true") for node in book if local(node) == "workbookPr")


def _formats(styles: Element, *, from_1904: bool) -> Iterator[Formatter]:
    """How numbers are shown, by style."""
    own = {node.get("numFmtId", ""): node.get("formatCode", "") for node in styles.iter() if local(node) == "numFmt"}
    for style in (node for part in styles if local(part) == "cellXfs" for node in part):
        key = style.get("numFmtId", "")
        yield formatter(own.get(key, BUILT_IN.get(whole(key), "")), from_1904=from_1904)


def _alternatives(node: Element) -> Iterator[Element]:
    """The children of an element; of alternatives, which say the same for several programs, the first."""
    for child in node:
        if local(child) != "AlternateContent":
            yield child
        elif len(child):
            yield from _alternatives(child[0])


def _runs(paragraph: Element) -> str:
    """The words of a paragraph."""
    out = []
    for child in _alternatives(paragraph):
        out.append(" " if local(child) in ("br", "tab") else child.text or "")
        out.append(_runs(child))
    return "".join(out)
