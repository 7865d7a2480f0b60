"""OpenDocument: texts, sheets, slides and drawings, by one walk.

    path -> Converted, with sheets and slides as its places

Headings by their outline level, lists, rows of tables with ` | `. An element that is not known is walked through; what
is left out is named in a table, and counted. Notes, comments and boxes follow the paragraph or row that they are in.
Source: OASIS OpenDocument 1.3, part 3.
"""

from __future__ import annotations

import functools
import itertools
import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element

from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import Limits, UnreadableError
from ragidx.corpora.readers.office.converter import About, Converted, about_of
from ragidx.corpora.readers.office.numbering import BULLET
from ragidx.corpora.readers.office.odf_labels import Labels
from ragidx.corpora.readers.office.package import Lines, Package
from ragidx.corpora.readers.office.trees import attribute, one_line, whole, words_in, words_of
from ragidx.corpora.records import Place

_LEFT: Final = {  # kinds of words, by element
    **dict.fromkeys(("text:tracked-changes", "table:tracked-changes"), "deleted words"),
    **dict.fromkeys(
        (f"text:{of}-index" for of in ("alphabetical", "illustration", "table", "object")), "words of navigation"
    ),
    "text:table-of-content": "words of navigation",
    "text:note-citation": "labels of notes",
    "text:ruby-text": "ruby readings",
    "text:hidden-text": "hidden words",
    "table:content-validations": "words of notices",
    **dict.fromkeys(("svg:title", "svg:desc"), "words of alternative texts"),
    "math:annotation": "field codes",
}
_THINGS: Final = {  # kinds of things, by element
    **dict.fromkeys(("office:scripts", "text:script"), "scripts"),
    **dict.fromkeys(("dc:creator", "meta:creator-initials"), "authors of comments"),
    **dict.fromkeys(("table:named-range", "table:named-expression", "table:database-range"), "defined names"),
    "table:data-pilot-table": "caches of data",
    "drawing:object-ole": "embedded objects",
    "office:binary-data": "pictures",
}
_PAGE_FIELDS = {f"text:{name}" for name in ("page-number", "page-count", "sheet-name", "date", "time", "file-name")}
_BLOCKS = {"text:p", "text:h", "text:list", "text:note-body", "table:table", "office:annotation"}
_GAP_CELLS: Final = 8  # empty cells in a row, which keep the columns of those behind them
_REPEATS: Final = 64  # of a cell with words
_LINES = ":\0"  # a row that has become its text


def convert(path: Path, ending: str, limits: Limits) -> Converted:
    """The text of an OpenDocument file."""
    with Package(path, limits, Tally()) as package:
        if b"encryption-data" in package.data("META-INF/manifest.xml"):
            raise UnreadableError("encrypted")
        walk = _Walk(package, Lines(limits))
        if ending in (".ods", ".ots"):
            text, places = walk.read(package.collapsed("content.xml", "table-row", walk.collapse))
        else:
            text, places = walk.read(package.tree("content.xml"))
        said = _about(package.tree("meta.xml"))
        for name in package.names():
            if name.startswith(("Basic/", "Scripts/", "Dialogs/")):
                package.pass_over(name, "scripts")
        package.count_unopened()
    return Converted(text=text, places=places, about=said, left=package.left)


class _Walk:
    """Elements become blocks of text."""

    def __init__(self, package: Package, budget: Lines) -> None:
        self._package, self._left, self._budget = package, package.left, budget
        self._after: list[str] = []  # blocks that follow the paragraph or the row
        self._n_cells = 0  # that the walk is in, one inside the other
        self._in_master = self._in_chart = False
        self._styles = package.tree("styles.xml")
        self._labels = Labels((), self._left)  # of a sheet, whose rows are read before the styles are known
        self._takes: dict[str, Callable[[Element], list[str]]] = {
            **{"table:table": self._table, "table:table-row": self._row, "text:list": self._list},
            **{"text:list-item": self._item, "drawing:page": self._slide, "drawing:object": self._object},
        }
        self._label = ""  # of the heading that comes next, where it is an item of a list

    def read(self, content: Element) -> tuple[str, tuple[Place, ...]]:
        """The text, and where sheets or slides begin."""
        kinds = next((list(node) for node in content if _name(node) == "office:body"), [])
        if not kinds:
            raise UnreadableError("has no body")
        self._labels = Labels((content, self._styles), self._left)
        hidden = set(_hidden_styles(content))
        blocks, starts = list(dict.fromkeys(self._masters())), []
        main = next((node for node in kinds if _name(node).startswith("office:")), kinds[0])
        for node in (each for kind in kinds for each in (kind if kind is main else (kind,))):
            name = _name(node)
            if name in ("table:table", "drawing:page") and _name(main) != "office:text":
                starts.append(len(blocks))
                kind = "hidden sheets" if name == "table:table" else "hidden slides"
                self._left.leave(kind, int(attribute(node, "style-name") in hidden), f"#page={len(starts)}")
                blocks += [f"## {one_line(attribute(node, 'name'))}"] if name == "table:table" else []
            if name == "drawing:page" and not re.search(r"\d$", attribute(node, "name")):  # a program numbers them
                self._left.leave("defined names", int(bool(attribute(node, "name"))))
            blocks += self._blocks([node])
        offsets = [0, *itertools.accumulate(len(block) + 2 for block in blocks)]
        pages = (Place(offsets[start], page=number) for number, start in enumerate(starts, start=1))
        text = "\n\n".join(blocks)
        return text, tuple(page for page in pages if page.offset < len(text))  # the last slides may be empty

    def collapse(self, row: Element) -> None:
        """Turn a row into its text, so that a large sheet stays small."""
        lines = self._row(row)
        row.clear()
        row.tag, row.text = _LINES[1:], "\n".join(lines)

    def _masters(self) -> Iterator[str]:
        """Headers and footers of pages; other words of a master are to be replaced on its pages."""
        self._in_master = True
        for page in (node for node in self._styles.iter() if _name(node) == "style:master-page"):
            for child in page:
                if _name(child).startswith(("style:header", "style:footer")) and attribute(child, "display") != "false":
                    yield from self._blocks(child)
                else:
                    self._left.leave("words of master pages", words_of(child))
        self._in_master = False

    def _blocks(self, parent: Iterable[Element]) -> list[str]:
        out: list[str] = []
        for child in parent:
            out += self._block(child)
            if tail := one_line(child.tail or ""):
                out.append(tail)
        return out

    def _block(self, node: Element) -> list[str]:
        """The blocks of one element."""
        name = _name(node)
        if name == _LINES:
            return [node.text] if node.text else []
        if name in ("text:p", "text:h"):
            return self._paragraph(node, _level(node) if name == "text:h" else 0)
        return [] if self._leave(node, name) else self._container(node, name)

    def _container(self, node: Element, name: str) -> list[str]:
        """What holds blocks, known or not."""
        if (take := self._takes.get(name)) is not None:
            return take(node)
        own = self._control(node, name) if name.startswith("form:") else one_line(node.text or "")
        return [*filter(None, (own,)), *self._blocks(node)]

    def _table(self, node: Element) -> list[str]:
        """The rows as one block."""
        lines = self._blocks(node)
        return ["\n".join(lines)] if lines else []

    def _list(self, node: Element) -> list[str]:
        with self._labels.inside(node):
            return self._blocks(node)

    def _slide(self, page: Element) -> list[str]:
        """The title of a slide or drawing, then the rest of it in its order."""
        title = [frame for frame in page if attribute(frame, "class") == "title"]
        heading = one_line(" ".join(self._blocks(title)))
        rest = self._blocks([child for child in page if child not in title])
        return [f"# {heading}", *rest] if heading else rest

    def _leave(self, node: Element, name: str) -> bool:
        """Whether an element is left out; if so, it is counted."""
        if name in _THINGS:
            self._left.leave(_THINGS[name])
        elif name in ("text:a", "drawing:a"):  # what it shows is read
            self._left.leave("addresses of links")
            self._left.leave("words of tooltips", len(attribute(node, "title").split()))
            return False
        elif name in _LEFT:
            said = attribute(node, "string-value") if name == "text:hidden-text" else ""
            self._left.leave(_LEFT[name], words_of(node) + len(said.split()))
            if name == "table:content-validations":
                lists = (attribute(each, "condition").partition('is-in-list("')[2] for each in node)
                self._left.leave("choices of forms", sum(each.count('";"') + 1 for each in lists if each))
        elif name == "text:section" and attribute(node, "display") == "none":
            self._left.leave("hidden words", words_of(node))
        elif name.endswith("-source"):  # how an index is made
            self._left.leave("words of navigation", words_of(node))
        elif name in _PAGE_FIELDS and self._in_master:
            self._left.leave("page numbers")
        else:
            return name in ("dc:date", "meta:date-string")  # of comments
        return True

    def _paragraph(self, node: Element, level: int) -> list[str]:
        if self._n_cells:  # what belongs to it follows the row
            return [self._inline(node)]
        held, self._after = self._after, []
        text = self._inline(node).strip()
        if text and level:
            label = self._label or self._labels.heading(node, level)
            text, self._label = " ".join(filter(None, ("#" * level, label, one_line(text)))), ""
        found = [*filter(None, (text,)), *self._after]
        self._after = held
        return found

    def _inline(self, node: Element) -> str:
        if not len(node):
            return _spaced(node.text)
        out = [_spaced(node.text)]
        for child in node:
            name = _name(child)
            if name in ("text:s", "text:tab", "text:line-break"):
                out.append({"text:s": " ", "text:tab": "\t", "text:line-break": "\n"}[name])
            elif self._leave(child, name):
                pass
            elif name in _BLOCKS or (name.startswith("drawing:") and name != "drawing:a"):
                self._after += self._block(child)
            else:
                if name == "text:conditional-text":
                    said = (attribute(child, f"string-value-if-{case}") for case in ("true", "false"))
                    self._left.leave("hidden words", words_in(said))
                elif name == "text:label":
                    self._left.leave("choices of forms")
                out.append(self._inline(child))
            out.append(_spaced(child.tail))
        return "".join(out)

    def _item(self, node: Element) -> list[str]:
        """An item of a list: its first paragraph has the label. One that only holds a list is not counted."""
        stored = next((one_line(child.text or "") for child in node if _name(child) == "text:number"), "")
        children = [child for child in node if _name(child) != "text:number"]
        if not children or _name(children[0]) == "text:list":
            return self._blocks(children)
        label = self._labels.item(node)
        if _name(children[0]) == "text:h":
            self._label = stored or ("" if label == BULLET else label)
            return self._blocks(children)
        lines = self._blocks(children)
        if lines and not (self._n_cells and label == BULLET):
            lines[0] = f"{stored or label} {lines[0]}"
        return lines

    def _row(self, row: Element) -> list[str]:
        """A row as a line, and what follows it: notes, boxes, tables in its cells."""
        outer, self._after = self._after, []
        cells: list[str] = []
        n_empty = 0
        for cell in row:
            n_times = _count(attribute(cell, "number-columns-repeated")) if cell.attrib else 1
            text = self._cell(cell)
            if not text:
                n_empty += n_times
                continue
            cells += [""] * (n_empty if n_empty <= _GAP_CELLS else 0)
            n_empty = 0
            n_shown = min(_REPEATS, n_times)
            self._budget.spend(n_shown * (len(text) + 3))
            cells += [text] * n_shown
            self._left.leave("repeated rows and cells", n_times - n_shown)
        if cells:
            self._left.leave("repeated rows and cells", _count(attribute(row, "number-rows-repeated")) - 1)
        blocks = [" | ".join(cells), *self._after] if cells else self._after
        self._after = outer
        return blocks

    def _cell(self, cell: Element) -> str:
        """The words of a cell; what a merged one covers is not seen."""
        if _name(cell) == "table:covered-table-cell":
            self._left.leave("hidden words", words_of(cell))
            return ""
        if cell.text and not cell.text.isspace():
            self._left.leave("words of unknown elements", len(cell.text.split()))
        if not cell.attrib and len(cell) == 1 and _name(cell[0]) == "text:p" and not len(cell[0]) and not cell[0].tail:
            return one_line(cell[0].text or "")  # most cells
        if self._in_chart and attribute(cell, "value-type") == "float":
            self._left.leave("numbers of charts")
            return ""
        self._n_cells += 1
        paragraphs = []
        for child in cell:
            if _name(child).startswith(("text:", "loext:")):
                paragraphs += self._blocks([child])
            else:
                self._after += self._blocks([child])
        self._n_cells -= 1
        text = one_line(" ".join(paragraphs))
        values = (attribute(cell, f"{kind}value") for kind in ("string-", "date-", "time-", "boolean-", ""))
        text = text or next(filter(None, values), "")
        if cell.attrib and (formula := attribute(cell, "formula")):
            self._left.leave("formulas" if text else "formulas without a value")
            shown = re.sub(r"\[\.?([^\[\]]*)\]", lambda found: found[1].replace(":.", ":"), formula.partition("=")[2])
            text = text or f"={shown}"
        return text

    def _control(self, node: Element, name: str) -> str:
        """Label and value of a form's control; of a list the chosen option."""
        if name in ("form:option", "form:item") and attribute(node, "current-selected") != "true":
            self._left.leave("choices of forms")
            return ""
        value = attribute(node, "current-value") or attribute(node, "value")
        value = value or ("checked" if attribute(node, "current-state") == "checked" else "")
        return one_line(": ".join(filter(None, (attribute(node, "label"), value))))

    def _object(self, node: Element) -> list[str]:
        """A chart, a formula or another document inside this one."""
        if not attribute(node, "href"):
            return self._blocks(node)
        folder = posixpath.normpath(attribute(node, "href"))
        name = f"{folder}/content.xml"
        if name not in self._package:
            self._left.leave("embedded objects")
        if not self._package.is_new(name):
            return []
        for other in ("meta.xml", "styles.xml", "settings.xml"):
            next(self._package.blocks(f"{folder}/{other}"), b"")  # asked for, not read
        root, was_in_chart = self._package.tree(name), self._in_chart
        if _name(root) == "math:math":
            return [text] if (text := one_line(self._formula(root))) else []
        self._in_chart = any(_name(node) == "office:chart" for body in root for node in body)
        blocks = self._blocks([node for node in root if _name(node) == "office:body"])
        self._in_chart = was_in_chart
        return blocks

    def _formula(self, node: Element) -> str:
        """The signs of a formula, each by itself: without spaces a over b is ab."""
        parts = [node.text or ""]
        for child in node:
            if not self._leave(child, _name(child)):
                parts.append(self._formula(child))
            parts.append(child.tail or "")
        return " ".join(parts)


def _about(meta: Element) -> About:
    """What a document says of itself."""
    said: dict[str, list[str]] = defaultdict(list)
    custom: list[tuple[str, str]] = []
    for node in meta.iter():
        if (words := one_line(node.text or "")) and _name(node) == "meta:user-defined":
            custom.append((attribute(node, "name"), words))
        elif words:
            said[_name(node).partition(":")[2]].append(words)
    first = {name: texts[0] for name, texts in said.items()} | {"keywords": ", ".join(said["keyword"])}
    usual = {name: first.get(name, "") for name in ("subject", "keywords", "description")}
    return about_of(first.get("title", ""), first.get("initial-creator") or first.get("creator", ""), custom, usual)


def _hidden_styles(content: Element) -> Iterator[str]:
    """Names of the styles of sheets and slides that are not shown."""
    styles = (node for part in content if _name(part) != "office:body" for node in part)
    for style in (node for node in styles if _name(node) == "style:style"):
        if any(attribute(node, "display") == "false" or attribute(node, "visibility") == "hidden" for node in style):
            yield attribute(style, "name")


def _name(node: Element) -> str:
    """The name of an element with the last word of its namespace: `text:p`."""
    return _short(node.tag)


@functools.lru_cache(maxsize=4096)
def _short(tag: str) -> str:
    space, _, name = tag.rpartition("}")
    if found := re.search(r"xmlns:(\w+)", space):
        return f"{found[1]}:{name}"
    return f"{'math' if 'MathML' in space else 'dc' if 'purl.org/dc' in space else ''}:{name}"


def _level(node: Element) -> int:
    return min(6, _count(attribute(node, "outline-level")))


def _count(text: str) -> int:
    """A number that is at least 1; 1 where there is none."""
    return max(1, whole(text, 1))


def _spaced(text: str | None) -> str:
    """Text in which white space, however it is written, is one space."""
    if not text:
        return ""
    return re.sub(r"\s+", " ", text) if "\n" in text or "  " in text or "\t" in text or "\r" in text else text
