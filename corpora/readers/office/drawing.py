"""What documents and slides of Office share: the text of a paragraph, rows of tables, text boxes, charts, diagrams.

    element -> blocks of text

Elements are known by their names, whatever their namespace. One that is not known is a wrapper: it is walked through,
so that nothing is lost to it. What is left out is left out by its name, and counted.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar
from xml.etree.ElementTree import Element

from ragidx.corpora.readers.office.charts import chart_lines
from ragidx.corpora.readers.office.package import Package, Relation
from ragidx.corpora.readers.office.trees import attribute, local, one_line, relation_id, whole, words_in, words_of

_LOOKS = """
    pPr rPr tblPrEx tcPr trPr sectPr tblGrid spPr grpSpPr bodyPr lstStyle style extLst timing transition txPr
    tableStyleId posOffset align pctWidth pctHeight pctPosHOffset pctPosVOffset LinkType LockedField FieldCodes binData
    fldData from to
"""
_LAYOUT = frozenset(_LOOKS.split())  # how a thing looks: no words
_COUNTED = {
    **dict.fromkeys(("del", "delText", "moveFrom"), "deleted words"),
    **dict.fromkeys(("instrText", "delInstrText"), "field codes"),
    "rt": "ruby readings",
}
_MAY_BE_COUNTED = frozenset({*_COUNTED, "r", "fld"})
_TEXTS = frozenset({"t", "text"})
_MARKS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "softHyphen": ""}
_SPACED = frozenset({"num", "den", "sup", "sub", "deg", "lim", "fName", "e", "oMath"})  # else a over b is ab
_NOTES = frozenset({"footnoteReference", "endnoteReference", "commentReference"})
_BLOCKS = frozenset({"p", "tbl", "tr", "tc", "altChunk"})
_RUNS = "r hyperlink fldSimple smartTag bdo dir ruby fld oMath drawing pict object chart relIds textpath sym ffData"
_INLINE = frozenset(_RUNS.split()).union(_MARKS, _NOTES, _TEXTS)
_VML = "shape rect roundrect oval line polyline curve arc image group"
_ALTERNATIVES = {
    **dict.fromkeys(("docPr", "cNvPr"), ("descr", "title")),
    **dict.fromkeys(_VML.split(), ("alt",)),
    **dict.fromkeys(("tblCaption", "tblDescription"), ("val",)),
}
_TOOLTIPS = frozenset({"alias", "helpText", "statusText"})
_HAVE_THEIR_OWN = {*_TOOLTIPS, *_ALTERNATIVES, "chart", "relIds", "textpath", "listItem", "sym", "ddList", "textInput"}
_SPOKEN_BY = 10_000  # elements of an alternative: those inside one another must not be searched whole again and again
_SPEAKING = _TEXTS | {"chart", "relIds", "textpath", "sym"}
_MOST_COLUMNS = 63  # that a cell of a document spans
_SYMBOLS = dict(zip(range(0xF041, 0xF05B), "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", strict=True))
_SYMBOLS |= dict(zip(range(0xF061, 0xF07B), "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True))
_SYMBOLS |= {0xF0A3: "≤", 0xF0B0: "°", 0xF0B1: "±", 0xF0B3: "≥", 0xF0B4: "×", 0xF0B8: "÷", 0xF0B9: "≠", 0xF0A5: "∞"}
_SPACES = re.compile(" {2,}")


class Walk:
    """Walks through the parts of a package; what it leaves out goes to the tally of the package."""

    blocks_of: ClassVar[frozenset[str]] = _BLOCKS
    """Elements that become blocks of their own."""

    def __init__(self, package: Package) -> None:
        self.package, self.left = package, package.left
        self.at = ""  # the place of what is counted
        self._relations: Mapping[str, Relation] = {}
        self._related: dict[str, Mapping[str, Relation]] = {}
        self._after: list[str] = []  # what follows the paragraph: boxes, charts, notes

    def leave(self, kind: str, count: int = 1) -> None:
        """Count what is left out, here."""
        self.left.leave(kind, count, self.at)

    def relations_of(self, part: str) -> Mapping[str, Relation]:
        """What a part refers to; its links are counted, once."""
        if part not in self._related:
            self._related[part] = found = self.package.relations(part)
            self.leave("addresses of links", sum(each.kind == "hyperlink" for each in found.values()))
        return self._related[part]

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        """A block in which ids of relations are those of a part."""
        held, self._relations = self._relations, self.relations_of(part)
        yield
        self._relations = held

    def target(self, key: str) -> str:
        """The part that an id means, the first time it is asked for; empty where there is none, or it was read."""
        relation = self._relations.get(key)
        return relation.target if relation is not None and self.package.is_new(relation.target) else ""

    def blocks(self, parent: Iterable[Element]) -> list[str]:
        """The blocks of text of some elements: paragraphs, tables, what they hold."""
        return [block for name, child in self.found(parent) for block in self.block(name, child)]

    def found(self, parent: Iterable[Element]) -> Iterator[tuple[str, Element]]:
        """The elements with text in some elements, through wrappers, with their names."""
        for child in parent:
            name = local(child)
            if name in self.blocks_of:
                self._loose(child.tail)
                yield name, child
            elif name in _INLINE and not (name in _TEXTS and len(child)):
                yield name, child
            else:
                self._loose(child.tail)
                if name in _LAYOUT:
                    continue
                if name in _COUNTED:
                    self.leave(_COUNTED[name], words_of(child))
                elif name == "AlternateContent":
                    yield from self.found(_alternative(child))
                else:
                    self._pass_through(name, child)
                    yield from self.found(child)

    def block(self, name: str, node: Element) -> list[str]:
        """The blocks of text of an element that `found` gave."""
        if name in ("tbl", "tr"):
            self._loose(node.text)
        if name == "tbl":
            lines = [line for inner, child in self.found(node) for line in self.block(inner, child)]
            return ["\n".join(lines)] if lines else []
        if name == "tr":
            return self._row(node)
        if name == "altChunk":
            return self._chunk(self.target(relation_id(node)))
        outer, self._after = self._after, []
        text = self._cell(node) if name == "tc" else self._line(name, node)
        blocks = [text, *self._after] if text else self._after
        self._after = outer
        return blocks

    def paragraph(self, node: Element) -> str:
        """The text of a paragraph; what follows it is in `_after`."""
        return self.inline(node)

    def note(self, kind: str, key: str) -> list[str]:
        """The blocks of a note that is referred to."""
        return []

    def is_hidden(self, run: Element) -> bool:
        """Whether a run is not shown."""
        return False

    def inline(self, nodes: Iterable[Element]) -> str:
        """The text in some elements, as of one paragraph."""
        out: list[str] = []
        self._inline(nodes, out)
        text = "".join(out).strip()
        return _SPACES.sub(" ", text) if "  " in text else text

    def _inline(self, nodes: Iterable[Element], out: list[str]) -> None:
        for child in nodes:
            name = local(child)
            if child.tail is not None:
                self._loose(child.tail)
            if name in _TEXTS and not len(child):
                text = child.text or ""
                out.append(text.replace("\n", " ") if "\n" in text else text)
            elif name in _LAYOUT:
                continue
            elif name in _MAY_BE_COUNTED and (kind := self._kind_of(name, child)):
                self.leave(kind, words_of(child))
            elif name in _MARKS:
                out.append(_MARKS[name])
            elif name in self.blocks_of:
                self._after += self.block(name, child)
            elif name == "AlternateContent":
                self._inline(_alternative(child), out)
            elif name in _NOTES:
                self._after += self.note(name, attribute(child, "id"))
            elif name in _SPACED:
                self._loose(child.text)
                out.append(" ")
                self._inline(child, out)
                out.append(" ")
            else:
                self._pass_through(name, child, out)
                self._inline(child, out)

    def _kind_of(self, name: str, node: Element) -> str:
        """As what an element is left out; empty where it is not."""
        if name == "r":
            return "hidden words" if self.is_hidden(node) else ""
        if name == "fld":
            return "page numbers" if attribute(node, "type") == "slidenum" else ""
        return _COUNTED[name]

    def _pass_through(self, name: str, node: Element, out: list[str] | None = None) -> None:
        """Read, or count, what an element has of its own; what is in it is not looked at."""
        self._loose(node.text)
        if name not in _HAVE_THEIR_OWN:
            return
        if name in _ALTERNATIVES:
            self.leave("words of alternative texts", words_in(attribute(node, each) for each in _ALTERNATIVES[name]))
        elif name == "chart" and (key := relation_id(node)):
            self._after += self._chart(self.target(key))
        elif name == "relIds":
            self._after += self._diagram(self.target(relation_id(node, "dm")))
        elif name == "textpath":
            self._after += filter(None, [attribute(node, "string")])
        elif name in _TOOLTIPS:
            self.leave("words of tooltips", len(attribute(node, "val").split()))
        elif name == "textInput":
            defaults = (attribute(each, "val") for each in node if local(each) == "default")
            self.leave("words of form fields", words_in(defaults))
        elif name == "listItem":
            self.leave("choices of forms")
        elif name == "sym" and out is not None:
            out.append(self._symbol(node))
        elif name == "ddList" and out is not None:
            out.append(self._chosen(node))

    def _loose(self, text: str | None) -> None:
        """Count text where no text is expected."""
        if text and not text.isspace():
            self.leave("words of unknown elements", len(text.split()))

    def _line(self, name: str, node: Element) -> str:
        if name != "p":
            return self.inline((node,))
        self._loose(node.text)
        return self.paragraph(node)

    def _row(self, row: Element) -> list[str]:
        """A row as one line; what hangs on its cells follows it."""
        held, self._after = self._after, []
        cells: list[str] = []
        for name, child in self.found(row):
            if name == "tc":
                cells.append(self._cell(child))
                cells += [""] * _further_columns(child)
            else:
                self._after += self.block(name, child)
        while cells and not cells[-1]:
            cells.pop()
        found = [" | ".join(cells).strip(), *self._after] if cells else self._after
        self._after = held
        return found

    def _cell(self, cell: Element) -> str:
        """The paragraphs of a cell as one line; tables in it follow the row."""
        self._loose(cell.text)
        texts: list[str] = []
        for name, child in self.found(cell):
            if name in ("tbl", "tr", "altChunk"):
                self._after += self.block(name, child)
            else:
                texts.append(self._line(name, child))
        return one_line(" ".join(texts))

    def _chart(self, part: str) -> list[str]:
        if not part:
            return []
        lines = chart_lines(self.package.tree(part), self.left)
        drawn: list[str] = []
        for kind, target in self.relations_of(part).values():
            if kind == "package":
                self.package.pass_over(target, "workbooks of charts")
            elif kind == "chartUserShapes" and self.package.is_new(target):
                drawn += self.blocks((self.package.tree(target),))
        return [*filter(None, ["\n".join(lines)]), *drawn]

    def _diagram(self, part: str) -> list[str]:
        return ["\n".join(lines)] if part and (lines := self.blocks((self.package.tree(part),))) else []

    def _chunk(self, part: str) -> list[str]:
        """A page of HTML, or a text, that is part of a document."""
        if not part.lower().endswith((".html", ".htm", ".xhtml", ".txt")):
            return []  # counted, as all that is not opened
        text = self.package.data(part).decode("utf-8", "replace")
        return [*filter(None, [text.strip() if part.lower().endswith(".txt") else _bare(text)])]

    def _symbol(self, node: Element) -> str:
        code = attribute(node, "char")
        number = int(code, 16) if re.fullmatch("[0-9A-Fa-f]{1,5}", code) else 0
        if attribute(node, "font") == "Symbol" and (0xF000 | number) in _SYMBOLS:
            return _SYMBOLS[0xF000 | number]
        if 0x20 < number < 0xD800 or 0xF900 <= number < 0xFFFE:
            return chr(number)
        self.leave("symbols of fonts")
        return ""

    def _chosen(self, node: Element) -> str:
        """What is chosen of a list of a form."""
        entries = [attribute(each, "val") for each in node if local(each) == "listEntry"]
        chosen = next((attribute(each, "val") for each in node if local(each) == "result"), "0")
        self.leave("choices of forms", len(entries))
        at = whole(chosen, len(entries))
        return entries[at] if at < len(entries) else ""


def _alternative(node: Element) -> Element:
    """One of the alternatives, since all show the same: the first that has text near its start, else the first."""
    choices = [child for child in node if local(child) in ("Choice", "Fallback")]
    for child in choices:
        if any(local(each) in _SPEAKING for each in itertools.islice(child.iter(), _SPOKEN_BY)):
            return child
    return choices[0] if choices else Element("none")


def _further_columns(cell: Element) -> int:
    """How many columns a cell of a document spans, beside its own."""
    for each in cell[0] if len(cell) and local(cell[0]) == "tcPr" else ():
        if local(each) == "gridSpan":
            return min(_MOST_COLUMNS, max(0, whole(attribute(each, "val")) - 1))
    return 0


def _bare(page: str) -> str:
    """The words of a page of HTML.

    >>> _bare("<p>A &lt; <!--x-->b<style>p {}</style><br>c")
    'A < b c'
    """
    out, silent = [page.partition("<")[0]], ""
    for each in re.findall("<([^<]*)", page):
        tag, _, text = each.partition(">")
        name = re.split(r"[\s/]", tag.lower().lstrip("/"), maxsplit=1)[0]
        if tag.startswith("!--"):
            text = each.partition("-->")[2]
        elif name in ("script", "style"):
            silent = "" if tag.startswith("/") else name
        if text and not silent:
            out.append(text)
    return html.unescape(one_line(" ".join(out)))
