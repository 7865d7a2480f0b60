r"""Rich Text Format: the words of a .rtf, its title and its author; one Document a file.

    {\rtf1 ... \b bold\b0\par} -> "bold\n"

One pass over the control words; fonts, styles, pictures and fields' codes are left out, and so is formatting. Bytes are
read in the code page that the file names. Source: Rich Text Format Specification 1.9.1.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers.fields import check_text
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document

_TOKEN = re.compile(
    rb"\\([A-Za-z]{1,32})(-?[0-9]{1,10})?[ ]?|\\'([0-9A-Fa-f]{2})|\\([^A-Za-z])|([{}])|[\r\n]+|([^\\{}\r\n]+)|.",
    re.DOTALL,
)
_MOST_GROUPS = 10_000  # inside one another
_SKIPPED = frozenset(
    b"""annotation atnauthor atndate atnid author bkmkend bkmkstart buptim category colortbl comment company creatim
    datastore doccomm fldinst fonttbl footer footerf footerl footerr filetbl generator header headerf headerl headerr
    info keywords latentstyles listoverridetable listtable manager nonshppict objdata operator pict printim private
    revtbl revtim rsidtbl stylesheet subject themedata title userprops xmlnstbl xe tc""".split()
)
_KEPT = {b"title": "title", b"author": "author"}  # of the group `info`
_BREAKS = {b"par": "\n\n", b"line": "\n", b"sect": "\n\n", b"page": "\n\n", b"row": "\n", b"cell": " | ", b"tab": "\t"}
_SIGNS = {
    b"emdash": "\u2014", b"endash": "\u2013", b"bullet": "\u2022", b"lquote": "\u2018", b"rquote": "\u2019",
    b"ldblquote": "\u201c", b"rdblquote": "\u201d",
}  # fmt: skip
_ESCAPED = {b"~": "\u00a0", b"_": "-", b"\n": "\n\n", b"\r": "\n\n", b"\\": "\\", b"{": "{", b"}": "}"}
_BLANK = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class _Group:
    sink: str  # "text", "title", "author"; "": the words are left out
    after_unicode: int = 1  # bytes that stand for a character after `\u`


def read_rtf(file: SourceFile) -> Iterator[Document]:
    """The words of the file."""
    data = bytes(file.data(file.limits.document_bytes))
    if not data.lstrip().startswith(b"{\\rtf"):
        raise UnreadableError("not an RTF file")
    found = _words(data)
    lines = (line.strip() for line in found.pop("text").replace("\0", "").split("\n"))
    text = _BLANK.sub("\n\n", "\n".join(lines)).strip()
    check_text(text)
    metadata = {name: words for name, value in found.items() if (words := " ".join(value.split()))}
    yield Document(file.doc_id(), text, metadata)


def _words(data: bytes) -> dict[str, str]:
    """Text, title and author."""
    words = _Words()
    at = 0
    while token := _TOKEN.match(data, at):
        at = token.end()
        word, number, byte, sign, bracket, plain = token.groups()
        if byte:
            words.byte(bytes.fromhex(byte.decode()))
        elif plain:
            words.plain(plain)
        elif bracket:
            words.bracket(bracket)
        elif sign:
            words.sign(sign)
        elif word == b"bin" and number:
            at += max(0, int(number))
        elif word:
            words.control(word, None if number is None else int(number))
    words.flush()
    joined = {name: "".join(parts) for name, parts in words.sinks.items()}
    return {name: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for name, text in joined.items()}


class _Words:
    """What the tokens of a file come to."""

    def __init__(self) -> None:
        self.sinks: dict[str, list[str]] = {"text": [], "title": [], "author": []}
        self._stack: list[_Group] = []
        self._group = _Group("text")
        self._codec = "cp1252"
        self._left = 0  # bytes that stand for a character that was given by `\\u`
        self._raw = bytearray()  # of the code page, not yet decoded: a character may have two

    def flush(self, after: str = "") -> None:
        """Decode the bytes so far, and put a text behind them."""
        if self._group.sink:
            self.sinks[self._group.sink].append(self._raw.decode(self._codec, "ignore") + after)
        self._raw.clear()

    def byte(self, value: bytes) -> None:
        """A byte in hex."""
        if self._left:
            self._left -= 1
        else:
            self._raw += value

    def plain(self, value: bytes) -> None:
        """Bytes as they are."""
        self._raw += value[self._left :]
        self._left = max(0, self._left - len(value))

    def bracket(self, value: bytes) -> None:
        """A group begins or ends."""
        self.flush()
        self._left = 0
        if value == b"}":
            self._group = self._stack.pop() if self._stack else self._group
        elif len(self._stack) == _MOST_GROUPS:
            raise UnreadableError("nested too deep")
        else:
            self._stack.append(self._group)

    def sign(self, value: bytes) -> None:
        """A backslash and a sign."""
        if value == b"*":  # the group is for programs that know it
            self.flush()
            self._group = _Group("")
        else:
            self.flush(_ESCAPED.get(value, ""))

    def control(self, word: bytes, number: int | None) -> None:
        """A control word."""
        self.flush(_BREAKS.get(word) or _SIGNS.get(word, ""))
        if word == b"u" and number is not None:
            self.flush(_character(number))
            self._left = self._group.after_unicode
        elif word == b"uc" and number is not None:
            self._group = replace(self._group, after_unicode=min(8, max(0, number)))
        elif word == b"ansicpg" and number is not None:
            self._codec = _codec(f"cp{number}")
        elif word in _SKIPPED:
            self._group = _Group(_KEPT.get(word, ""))


def _character(number: int) -> str:
    """A UTF-16 code, which may be negative; surrogates are joined at the end."""
    code = number & 0xFFFF if number < 0x10000 else number
    return chr(code) if 0 < code < 0x110000 else ""


def _codec(name: str) -> str:
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return "cp1252"
    return found if re.fullmatch(r"cp\d+|utf-8|gb\w+|big5\w*", found) else "cp1252"
