"""HTML: the readable text of a page as Markdown, its title and its `<meta name>` values.

    bytes -> Document(name, text, metadata, markdown=True)

Headings become `#` lines, list entries `- ` lines, table rows lines with ` | `, `<pre>` a fenced block; every other
block is a paragraph. What `html_rules` finds is dropped; links and emphasis become plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers.fields import check_text, from_text
from ragidx.corpora.readers.html_rules import readable, walk
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, Scalar

_PARAGRAPH_TAGS = """
    address article blockquote body details dialog div dl fieldset figcaption figure footer form header hr main ol p
    section summary table ul
"""
_LINE_TAGS = "br caption dd dt legend li optgroup option tbody tfoot thead tr"
_PREFIXES = {f"h{level}": f"{'#' * level} " for level in range(1, 7)} | {"li": "- "}
_GAPS = dict.fromkeys([*_PARAGRAPH_TAGS.split(), *_PREFIXES], "\n\n") | dict.fromkeys(_LINE_TAGS.split(), "\n")

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
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
    data = file.data(file.limits.document_bytes)
    declared = _CHARSET.search(data, 0, 4096)
    html = file.decoded(data, declared[1].decode() if declared else "")
    tree = parsed(html)
    text = page_text(tree)
    check_text(text)
    yield Document(file.doc_id(), text, page_metadata(tree), markdown=True)


def parsed(html: str) -> LexborHTMLParser:
    """A page as a tree.

    Raises:
        UnreadableError: there is no memory for it.
    """
    try:
        return LexborHTMLParser(html)
    except SelectolaxError as fault:
        raise UnreadableError(f"cannot be parsed: {fault}") from fault


def page_text(tree: LexborHTMLParser) -> str:
    """The readable text of a page, as Markdown."""
    if tree.body is None:
        return ""
    root, dropped = readable(tree.body)
    writer = _Writer()
    for node, begins in walk(root, dropped):
        if begins:
            writer.enter(node)
        else:
            writer.leave(node)
    return writer.text()


def page_metadata(tree: LexborHTMLParser) -> dict[str, Scalar]:
    """`<title>` and the `<meta name content>` that describe the text, typed; values of one name are joined."""
    found: dict[str, list[str]] = {}
    for node in tree.css("meta[name][content]"):
        name = (node.attributes.get("name") or "").strip()
        content = (node.attributes.get("content") or "").strip()
        if content and _META_NAME.fullmatch(name) and not _NOT_METADATA.fullmatch(name):
            found.setdefault(name, []).append(content)
    metadata = {name: from_text("; ".join(values)) for name, values in found.items()}
    title = tree.css_first("title")
    if title is not None and (words := _SPACES.sub(" ", title.text()).strip()):
        metadata["title"] = words
    return metadata


class _Writer:
    """Collects the text of a walk: runs of white space are one space, blocks are apart."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._gap = ""  # between the last word and the next: "", " ", a newline or a blank line
        self._prefix = ""  # of the line that begins: "# " or "- "
        self._pre = 0

    def enter(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if node.is_text_node:
            self._write(node.text_content or "")
        elif tag == "pre":
            self._break("\n\n")
            self._write("```\n", exactly=True)
            self._pre += 1
        elif tag in ("td", "th"):
            in_line = bool(self._parts) and not self._prefix
            self._gap = " | " if self._gap in ("", " ") and in_line else self._gap
        elif tag in _GAPS:
            self._break(_GAPS[tag], _PREFIXES.get(tag, ""))

    def leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if tag == "pre":
            self._pre -= 1
            ends = self._parts and self._parts[-1].endswith("\n")
            self._write("```" if ends else "\n```", exactly=True)
            self._break("\n\n")
        elif tag in _GAPS and tag != "br":
            self._break(_GAPS[tag])

    def text(self) -> str:
        """All of it, with one newline at the end."""
        text = "".join(self._parts)
        return f"{text}\n" if text else ""

    def _break(self, gap: str, prefix: str = "") -> None:
        """A new line or paragraph begins; the widest of several gaps counts, an empty prefix keeps one that waits."""
        if self._pre:
            self._write("\n", exactly=True)
            return
        if gap.count("\n") >= self._gap.count("\n"):
            self._gap = gap
        self._prefix = prefix or ("" if gap == "\n\n" and not prefix and self._prefix.startswith("#") else self._prefix)

    def _write(self, text: str, *, exactly: bool = False) -> None:
        if self._pre or exactly:
            words, trailing = text, ""
        else:
            words = _SPACES.sub(" ", text)
            if words.startswith(" ") and not self._gap:
                self._gap = " "
            trailing = " " if words.endswith(" ") else ""
            words = words.strip(" ")
        if not words:
            return
        if self._parts:
            self._parts.append(self._gap)
        self._parts += [self._prefix, words]
        self._gap, self._prefix = trailing, ""
