"""Documents of Word: all that a person reads in one, and the count of what is left out.

    path -> Converted, as Markdown

Headers are above the text and footers below it, each once. Notes and comments follow the paragraph that refers to
them, text boxes and charts the one that holds them. Headings and labels are those of the styles (`numbering`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import Limits
from ragidx.corpora.readers.office.converter import Converted
from ragidx.corpora.readers.office.drawing import Walk
from ragidx.corpora.readers.office.numbering import BULLET, Style, Styles, is_on, list_of, outline_level
from ragidx.corpora.readers.office.package import Package, about
from ragidx.corpora.readers.office.trees import attribute, local, words_of

_NOTES = {"footnoteReference": "footnotes", "endnoteReference": "endnotes", "commentReference": "comments"}
_RULES = ("separator", "continuationSeparator", "continuationNotice")


def convert(path: Path, ending: str, limits: Limits) -> Converted:
    """The text of a .docx."""
    with Package(path, limits, Tally()) as package:
        text = joined(package.bounded(_Docx(package).text()))
        said = about(package)
        package.count_masters("/glossary/")
        package.count_unopened()
    return Converted(text=text, about=said, left=package.left)


def joined(blocks: Iterator[str]) -> str:
    """Blocks with a blank line between them, but between items of a list."""
    parts: list[str] = []
    was_item = False
    for block in blocks:
        is_item = block.startswith(f"{BULLET} ")
        parts += ["\n" if is_item and was_item else "\n\n", block]
        was_item = is_item
    return "".join(parts[1:])


class _Docx(Walk):
    def __init__(self, package: Package) -> None:
        super().__init__(package)
        self._main = package.main("word/document.xml")
        parts = dict(reversed([*self.relations_of(self._main).values()]))
        self._styles = Styles(
            package.tree(parts.get("styles", "")), package.tree(parts.get("numbering", "")), package.left
        )
        self._note_parts = {kind: parts.get(part, "") for kind, part in _NOTES.items()}
        self._notes: dict[str, dict[str, Element]] = {kind: {} for kind in _NOTES}
        for kind, part in self._note_parts.items():
            for number, note in enumerate(package.tree(part)):
                key = attribute(note, "id")
                self._notes[kind][f"{key} {number}" if key in self._notes[kind] else key] = note
        self._style = Style()  # of the paragraph that is read

    def text(self) -> Iterator[str]:
        """The blocks of the document."""
        yield from self._frames("header")
        with self.within(self._main):
            for element in self.package.elements(self._main, "body"):
                yield from self.blocks((element,))
        for kind, notes in self._notes.items():  # those that nothing refers to
            for key in list(notes):
                yield from self.note(kind, key)
        yield from self._frames("footer")

    def _frames(self, kind: str) -> Iterator[str]:
        """Headers or footers, each text once: sections repeat them."""
        targets = dict.fromkeys(each.target for each in self.relations_of(self._main).values() if each.kind == kind)
        seen: set[str] = set()
        for part in targets:
            if part == self._main or part not in self.package:
                self.leave("damaged parts")
                continue
            with self.within(part):
                blocks = self.blocks((self.package.tree(part),))
            text = "\n".join(blocks)
            if text in seen:
                self.leave("repeated lines", text.count("\n") + 1)
            elif text:
                seen.add(text)
                yield from blocks

    def note(self, kind: str, key: str) -> list[str]:
        """A footnote, an endnote or a comment, where it is first referred to."""
        note = self._notes[kind].pop(key, None)
        if note is None:
            return []
        if attribute(note, "type") in _RULES:
            self.leave("words of master pages", words_of(note))
            return []
        held, self._after = self._after, []
        self.leave("authors of comments", bool(attribute(note, "author")))
        with self.within(self._note_parts[kind]):
            found = self.blocks((note,))
        self._after = held
        return found

    def is_hidden(self, run: Element) -> bool:
        """Whether a run is hidden: by its own property, else by its style, else by that of its paragraph."""
        if not len(run) or local(run[0]) != "rPr":
            return self._style.is_hidden
        said = is_on(run[0], "vanish")
        if said is not None:
            return said
        style = next((attribute(each, "val") for each in run[0] if local(each) == "rStyle"), "")
        return self._style.is_hidden or bool(style and self._styles.style(style).is_hidden)

    def paragraph(self, node: Element) -> str:
        """As a heading or an item of a list, with its label."""
        held = self._style
        heading, label = self._look(node[0] if len(node) and local(node[0]) == "pPr" else ())
        text = self.inline(node)
        self._style = held
        if not text:
            return ""
        if heading:
            return " ".join(["#" * heading, *(label.split() if label != BULLET else ()), *text.split()])
        return f"{label} {text}" if label else text

    def _look(self, properties: Element | Sequence[Element]) -> tuple[int, str]:
        """Level of the heading and label of a paragraph; counts its number."""
        key, list_id, is_gone = "", "", False
        depth: int | None = None
        heading: int | None = None
        for each in properties:
            match local(each):
                case "pStyle":
                    key = attribute(each, "val")
                case "numPr":
                    list_id, depth = list_of(each)
                case "outlineLvl":
                    heading = outline_level(each)
                case "rPr":
                    is_gone = any(local(mark) in ("del", "moveFrom") for mark in each)
        self._style = style = self._styles.style(key)
        linked = key if not list_id and depth is None else ""
        if depth is None:
            depth = 0 if list_id else style.depth
        label = "" if is_gone else self._styles.label(list_id or style.list_id, depth, linked)
        return style.heading if heading is None else heading, label
