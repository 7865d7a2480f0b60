"""HTML: the readable text of a page as Markdown, its title and its `<meta name>` values.

    bytes -> Document(name, text, metadata, markdown=True)

Headings become `#` lines, list entries `- ` lines, table rows lines with ` | `, `<pre>` a fenced block; every other
block is a paragraph, and a space in a cell of a table. What `html_rules` finds is left out and counted; links and
emphasis become plain text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Set

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers.decoding import OnGuess, decode
from ragidx.corpora.readers.fields import check_text, from_text
from ragidx.corpora.readers.html_bounds import VOID_TAGS, flattened
from ragidx.corpora.readers.html_rules import AROUND, Rules, is_notice, n_words, rules_of
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, Scalar

_PARAGRAPH_TAGS = """
    address article aside blockquote body center details dialog div dl fieldset figcaption figure footer form
    foreignObject header hgroup hr main menu nav ol p search section summary svg table textarea ul
"""
_LINE_TAGS = "br caption dd dt legend li optgroup option tbody tfoot thead tr"
_SPACE_TAGS = "button img input label mi mn mo ms mtext output select text tspan"
_PREFIXES = {f"h{level}": f"{'#' * level} " for level in range(1, 7)} | {"li": "- "}
_GAPS = {
    **dict.fromkeys([*_PARAGRAPH_TAGS.split(), *_PREFIXES], "\n\n"),
    **dict.fromkeys(_LINE_TAGS.split(), "\n"),
    **dict.fromkeys(_SPACE_TAGS.split(), " "),
}
_CELLS = frozenset({"td", "th"})
_BLOCK_TAGS = ("h1", "h2", "h3", "h4", "h5", "h6", "table", "pre", "form")
_BLOCKS_CSS = ", ".join(f"{cell} {tag}" for cell in ("td", "th") for tag in _BLOCK_TAGS)
_ENTRIES_CSS = ", ".join(f"{cell} {tag}" for cell in ("td", "th") for tag in ("li", "p"))
_MOST_ENTRIES = 3  # of a cell that is a part of a line
_LEAST_MAIN = 0.25
_MOST_LARGE = 100  # elements named as notices that are none: those in one another are counted again and again
_NOT_WRITTEN = re.compile("[\u00ad\u200b]")  # where a line may be broken: words are found without

_CHARSET = re.compile(
    rb"<(?:meta[^>]{0,200}?charset|\?xml[^>]{0,200}?encoding)\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE
)
_SELF_CLOSED = re.compile(r"<([A-Za-z][\w:-]*+)([^<>]*?)/>")
_META_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
_NOT_METADATA = re.compile(
    r"viewport|generator|robots|\w*bot|theme-color|color-scheme|format-detection|referrer|application-name|handheldfriendly"
    r"|mobileoptimized|charset|content-type|(?:msapplication|apple|twitter|og|fb|csrf|mobile-web-app)\b.*|.*-verification"
    r"|.*csrf.*",
    re.IGNORECASE,
)
_SPACES = re.compile(r"[ \t\n\r\f]+")


def read_html(file: SourceFile) -> Iterator[Document]:
    """The text of the page."""
    data, said = file.data(file.limits.document_bytes), file.fields.encoding or ""
    html = page_html(data, is_xml=file.ending == ".xhtml", said=said, on_guess=file.guessed)
    tree = parsed(html, file.left)
    metadata = page_metadata(tree)
    text = page_text(tree, file.left, whole=file.fields.html == "whole")
    check_text(text)
    yield Document(file.doc_id(), text, metadata, markdown=True)


def page_html(data: bytes | bytearray, *, is_xml: bool, said: str = "", on_guess: OnGuess = lambda name: None) -> str:
    """The markup of a page. In XML any element may end where it begins (`<title/>`), in HTML few do.

    `said` and `on_guess` are those of `decode`.

    Raises:
        UnreadableError: as `decode`.
    """
    declared = _CHARSET.search(data, 0, 4096)
    html = decode(data, declared=declared[1].decode() if declared else "", said=said, on_guess=on_guess)
    return _SELF_CLOSED.sub(_closed, html) if is_xml and "/>" in html else html


def _closed(found: re.Match[str]) -> str:
    return found[0] if found[1].lower() in VOID_TAGS else f"<{found[1]}{found[2]}></{found[1]}>"


def parsed(html: str, left: Tally | None = None) -> LexborHTMLParser:
    """A page as a tree; `left` takes that it has no structure, if it had too much.

    Raises:
        UnreadableError: there is no memory for it.
    """
    flat = flattened(html)
    if flat is not None and left is not None:
        left.leave("pages without structure")
    try:
        return LexborHTMLParser(html if flat is None else flat)
    except SelectolaxError as fault:
        raise UnreadableError(f"cannot be parsed: {fault}") from fault


def page_text(tree: LexborHTMLParser, left: Tally | None = None, *, whole: bool = False) -> str:
    """The readable text of a page, as Markdown. What is around the only main part goes if that has 25 % of the words.

    Args:
        tree: the page; scripts are cut out of it.
        left: tally of what is left out.
        whole: navigation, notices and what is around the main part are text.
    """
    left = Tally() if left is None else left
    body = tree.body
    if body is None:
        return ""
    rules = rules_of(tree, body, left, whole=whole)
    writer = _Writer(rules, _cells_of_blocks(body), left)
    writer.walk(body)
    start, end = writer.main
    if start < end:
        words, all_words = writer.n_words(start, end), writer.n_words()
        if words >= _LEAST_MAIN * all_words:
            left.leave(AROUND, all_words - words)
            return writer.text(start, end)
    return writer.text()


def _cells_of_blocks(body: LexborNode) -> Set[int]:
    """The cells that lay out a page: what is in them keeps its lines, as in one that is alone in its row."""
    cell_of: dict[int, int] = {}  # the next cell around an element; 0: none
    outer: dict[int, int] = {}  # the same of a cell
    blocks = [_cell_around(node, cell_of, outer) for node in body.css(_BLOCKS_CSS)]
    counts = Counter(_cell_around(node, cell_of, outer) for node in body.css(_ENTRIES_CSS))
    waiting = [*blocks, *(cell for cell, count in counts.items() if count > _MOST_ENTRIES)]
    found: set[int] = set()
    while waiting:
        if (cell := waiting.pop()) and cell not in found:
            found.add(cell)
            waiting.append(outer[cell])
    return found


def _cell_around(node: LexborNode, cell_of: dict[int, int], outer: dict[int, int]) -> int:
    passed: list[int] = []
    cell, cells, at = 0, list[int](), node.parent
    while at is not None:
        mem_id = at.mem_id
        if mem_id in cell_of:
            cell = cell_of[mem_id]
            break
        passed.append(mem_id)
        cells.append(at.tag in _CELLS)
        at = at.parent
    for mem_id, is_cell in zip(reversed(passed), reversed(cells), strict=True):
        if is_cell:
            outer[mem_id], cell = cell, mem_id
        cell_of[mem_id] = cell
    return cell


def page_metadata(tree: LexborHTMLParser) -> dict[str, Scalar]:
    """`<title>` and the `<meta name content>` that describe the text, typed; values of one name are joined."""
    found: dict[str, list[str]] = {}
    for node in tree.css("meta[name][content]"):
        name = (node.attributes.get("name") or "").strip()
        content = (node.attributes.get("content") or "").strip()
        if content and _META_NAME.fullmatch(name) and not _NOT_METADATA.fullmatch(name):
            found.setdefault(name, []).append(content)
    metadata = {name: from_text("; ".join(values)) for name, values in found.items()}
    title = tree.css_first("title:not(svg title)")  # that of a drawing is a tooltip
    if title is not None and (words := _SPACES.sub(" ", title.text()).strip()):
        metadata["title"] = words
    return metadata


class _Writer:
    """Collects the text of a walk: runs of white space are one space, blocks are apart.

    Args:
        rules: rules of the page.
        cells_of_blocks: table cells in which a block is more than a space.
        left: tally of what is passed over.
    """

    def __init__(self, rules: Rules, cells_of_blocks: Set[int], left: Tally) -> None:
        self.main = (0, 0)  # where its parts are
        self._rules, self._cells_of_blocks, self._left = rules, cells_of_blocks, left
        self._parts: list[str] = []  # gap, prefix and words in turns
        self._gap = ""  # between the last word and the next: "", " ", a newline or a blank line
        self._prefix = ""  # of the line that begins: "# " or "- "
        self._pre = 0
        self._cells: list[bool] = []  # of those that are open: whether it is a part of a line

    def walk(self, root: LexborNode) -> None:
        """Write what is in an element."""
        dropped, main, root_id = self._rules.dropped, self._rules.main, root.mem_id
        named, n_large = self._rules.named, 0
        opened: list[str] = []
        depth_of_main = -1
        node = root.first_child
        while node is not None:
            mem_id = node.mem_id
            kind = dropped.get(mem_id)
            if mem_id in named and kind is None and n_large < _MOST_LARGE:
                kind = named[mem_id] if is_notice(node, self._rules.few) else None
                n_large += kind is None
            if kind is not None:
                self._left.leave(kind, n_words(node))
            elif node.is_text_node:
                self._write(node.text_content or "")
            else:
                if mem_id == main:
                    depth_of_main, self.main = len(opened), (len(self._parts), 0)
                tag = node.tag or ""
                self._enter(tag, node)
                opened.append(tag)
                if (child := node.first_child) is not None:
                    node = child
                    continue
                self._leave(opened.pop())
            while (follower := node.next) is None:
                node = node.parent
                if node is None or node.mem_id == root_id:
                    return
                self._leave(opened.pop())
                if len(opened) == depth_of_main:
                    depth_of_main, self.main = -1, (self.main[0], len(self._parts))
            node = follower

    def _enter(self, tag: str, node: LexborNode) -> None:
        if tag in _GAPS:
            self._break(_GAPS[tag], _PREFIXES.get(tag, ""))
        elif tag in _CELLS:
            in_line = bool(self._parts) and not self._prefix
            self._gap = " | " if self._gap in ("", " ") and in_line else self._gap
            self._cells.append(node.mem_id not in self._cells_of_blocks and not _is_alone(node))
        elif tag == "pre":
            self._break("\n\n")
            self._write("```\n", exactly=True)
            self._pre += 1

    def _leave(self, tag: str) -> None:
        if tag in _GAPS:
            if tag != "br":
                self._break(_GAPS[tag])
        elif tag in _CELLS:
            self._cells.pop()
        elif tag == "pre":
            self._pre -= 1
            ends = self._parts and self._parts[-1].endswith("\n")
            self._write("```" if ends else "\n```", exactly=True)
            self._break("\n\n")

    def n_words(self, start: int = 0, end: int | None = None) -> int:
        """How many words were written between two positions."""
        return sum(len(words.split()) for words in self._parts[start + 2 : end : 3])

    def text(self, start: int = 0, end: int | None = None) -> str:
        """What was written between two positions, with one newline at the end."""
        text = _NOT_WRITTEN.sub("", "".join(self._parts[start + 1 : end]))
        return f"{text}\n" if text else ""

    def _break(self, gap: str, prefix: str = "") -> None:
        """A new line or paragraph begins; the widest of several gaps counts, an empty prefix keeps one that waits."""
        if self._pre:
            self._write("\n" if gap != " " else "", exactly=True)
            return
        if gap == " " or (self._cells and self._cells[-1]):
            self._gap = self._gap or " "
            return
        if gap.count("\n") >= self._gap.count("\n"):
            self._gap = gap
        self._prefix = prefix or ("" if gap == "\n\n" and not prefix and self._prefix.startswith("#") else self._prefix)

    def _write(self, text: str, *, exactly: bool = False) -> None:
        if self._pre or exactly:
            words, trailing = text, ""
        else:
            if text.isspace():
                self._gap = self._gap or " "
                return
            words = _SPACES.sub(" ", text)
            if words.startswith(" ") and not self._gap:
                self._gap = " "
            trailing = " " if words.endswith(" ") else ""
            words = words.strip(" ")
        if not words:
            return
        self._parts += [self._gap, self._prefix, words]
        self._gap, self._prefix = trailing, ""


def _is_alone(cell: LexborNode) -> bool:
    """Whether a cell is the only one of its row."""
    before, after = cell.prev, cell.next
    while before is not None and before.is_text_node:
        before = before.prev
    while after is not None and after.is_text_node:
        after = after.next
    return before is None and after is None
