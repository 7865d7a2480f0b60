r"""Rich Text Format: the words of a .rtf with those of headers, notes, comments and boxes, and what it says of itself.

    path -> Converted

Groups are gone through unless their name is known to hold no words of the document; those are counted by kind. Notes,
comments and boxes follow the paragraph in which they stand, a header comes once, a row of a table is a line. Bytes are
decoded by the code page of their font. Depth is bounded.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import Limits, UnreadableError
from ragidx.corpora.readers.office.converter import Converted, about_of
from ragidx.corpora.readers.office.trees import one_line

_DEPTH = 1_000
_TOKEN = re.compile(
    r"\\(?P<word>[A-Za-z]{1,32})(?P<number>-?[0-9]{1,10})? ?|\\'(?P<hex>[0-9A-Fa-f]{2})|\\(?P<symbol>[^A-Za-z])"
    r"|(?P<brace>[{}])|[\r\n]+|(?P<text>[^\\{}\r\n]+)|\\",
    re.DOTALL,
)
_CODE_PAGE = re.compile(r"\\ansicpg(\d{1,5})")
_FONT = re.compile(r"\{\\f(\d{1,5})(?![0-9])(\\[^{};]{0,200}| [^{};]{0,200};)")
_CHARSET, _PAGE = re.compile(r"\\fcharset(\d{1,3})"), re.compile(r"\\cpg(\d{1,5})")
_CHARSETS = {
    **{77: "mac_roman", 128: "cp932", 129: "cp949", 134: "gb18030", 136: "big5hkscs", 161: "cp1253", 162: "cp1254"},
    **{163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250"},
    **{254: "cp437", 255: "cp850"},
}

_NAMES = """
    background bkmkend bkmkstart bliptag blipuid colorschememapping colortbl datafield datastore defchp defpap docvar
    ebcend ebcstart factoidname falt fchars filetbl fname fontemb fontfile fonttbl formfield ftncn ftnsep ftnsepc
    aftncn aftnsep aftnsepc g generator gridtbl hlinkbase htmltag keycode latentstyles lchars levelnumbers leveltext
    list listlevel listname listoverride listoverridetable listpicture liststylename listtable lsdlockedexcept macpict
    mmathPr nesttableprops nonesttables objalias objclass objdata objname objsect objtime oldcprops oldpprops oldtprops
    oldsprops panose passwordhash pgp pgptbl picprop pict pn pnseclvl private propname protend protstart
    protusertbl rsidtbl revtbl shppict shprslt nonshppict sn sp staticval stylesheet svb tblstylepr template themedata
    upr userprops wgrffmtfilter windowcaption writereservation writereservhash xmlattrname xmlattrvalue xmlnstbl
    atnref atrfend atrfstart blipproperties atndate atntime atnparent creatim revtim printim buptim info
"""
_NO_WORDS = frozenset(_NAMES.split())
_THINGS = {"objdata": "embedded objects", "pict": "pictures"}
_WORDS = {
    **dict.fromkeys(("atnauthor", "atnid"), "authors of comments"),
    **{"fldinst": "field codes", "*": "words of unknown parts"},
    **{kind: kind for kind in ("hidden words", "deleted words")},
}
_ALT_TEXTS = ("wzDescription", "wzName")
_RUNNING = frozenset(f"{place}{which}" for place in ("header", "footer") for which in ("", "l", "r", "f"))
_ASIDE = frozenset({"annotation", "footnote", "shptxt", *_RUNNING})
_LABELS = ("listtext", "pntext")
_INSIDE = frozenset({*_ASIDE, *_LABELS, "shpinst", "result", "fldrslt", "ud"})  # known, also where marked by \*
_FIELDS = {"doccomm": "comments"}
_FIELDS |= {name: name for name in ("title", "author", "subject", "keywords", "category", "company", "manager")}
_MARKS = {
    **{"tab": "\t", "line": "\n", "emdash": "—", "endash": "–", "lquote": "‘", "rquote": "’", "ldblquote": "“"},
    **{"rdblquote": "”", "bullet": "•", "emspace": " ", "enspace": " ", "qmspace": " ", "zwnj": "", "zwj": ""},
}
_SYMBOLS = {"~": "\u00a0", "_": "-"}
_SPACES, _BLANK = re.compile(r"(?<=\S) {2,}"), re.compile(r"\n{3,}")


@dataclass(slots=True)
class _Group:
    """What holds inside of a group."""

    codec: str
    gone: str = ""  # the name of the destination whose words are no text; "": they are
    after: int = 1  # characters that stand for one of \u, behind it
    hidden: str = ""  # the kind of words that are not shown
    out: list[str] = field(default_factory=list)  # where its text goes
    aside: str = ""  # the destination that began here, and has an `out` of its own


def convert(path: Path, ending: str, limits: Limits) -> Converted:
    """The text of a .rtf."""
    source = path.read_bytes().decode("latin-1")  # bytes that are not ASCII are of a code page, mostly in hex
    if not source.lstrip().startswith("{\\rtf"):
        raise UnreadableError("not an RTF file")
    reader = _Reader(source)
    reader.read()
    lines = (_SPACES.sub(" ", line.strip()).strip(" |\t") for line in reader.text().replace("\0", "").split("\n"))
    text = _BLANK.sub("\n\n", "\n".join(lines)).strip()
    said = {_FIELDS[name]: one_line("".join(parts)) for name, parts in reader.fields.items()}
    custom = ((one_line("".join(name)), one_line("".join(value))) for name, value in reader.custom)
    about = about_of(said.pop("title", ""), said.pop("author", ""), custom, said)
    return Converted(text=text, markdown=reader.has_headings, about=about, left=reader.left)


class _Reader:
    """Goes through the tokens of a file.

    Attributes:
        left: tally of what is not in the text.
        fields: what the file says of itself, by the names of its groups.
        custom: names and values of custom properties.
        has_headings: whether a paragraph is one.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        page = _CODE_PAGE.search(source)
        self._codec = _codec(f"cp{page[1]}" if page else "mac_roman" if source.startswith("{\\rtf1\\mac") else "cp1252")
        self._fonts: dict[int, str] = {}
        for font in _FONT.finditer(source, max(0, source.find("{\\fonttbl"))):
            self._fonts.setdefault(int(font[1]), self._font_codec(font[2]))
        self._body: list[str] = []
        self._stack: list[_Group] = []
        self._now = _Group(self._codec, out=self._body)
        self._bytes = bytearray()
        self._high = 0  # the first half of a pair of \u
        self._skip = 0
        self._star = self._in_table = False
        self._level, self._at_start = 9, True  # of the paragraph
        self._is_alt_text = False
        self._waiting: list[str] = []  # notes and boxes of this paragraph
        self._seen: set[str] = set()  # headers
        self.left = Tally()
        self.fields: dict[str, list[str]] = {}
        self.custom: list[tuple[list[str], list[str]]] = []
        self.has_headings = False

    def text(self) -> str:
        """All of it."""
        return "".join([*self._body, "\n\n", *self._waiting])

    def read(self) -> None:
        """Go through all tokens."""
        place = 0
        while token := _TOKEN.match(self._source, place):
            place = token.end()
            word, number, hexed, symbol, brace, text = token.groups()
            if hexed is not None:
                self._byte(int(hexed, 16))
            elif text is not None:
                self._run(text)
            elif symbol is not None and symbol in "\\{}":
                self._run(symbol)
            elif word == "bin":
                place += max(0, int(number or 0))
                self.left.leave("damaged parts", place > len(self._source))
            else:
                self._flush()
                if word:
                    self._control(word, None if number is None else int(number))
                else:
                    self._mark(brace or symbol or "")
        self._flush()
        while self._stack:
            self._close()

    def _mark(self, mark: str) -> None:
        if mark == "{":
            self._open()
        elif mark == "}":
            self._close()
        elif mark == "*":
            self._star = True
        elif mark in ("\n", "\r"):  # behind a backslash, as macOS writes a paragraph
            self._paragraph()
        else:
            self._write(_SYMBOLS.get(mark, ""))

    def _open(self) -> None:
        if len(self._stack) >= _DEPTH:
            raise UnreadableError(f"groups inside one another, {_DEPTH:,} deep")
        self._stack.append(self._now)
        self._now = replace(self._now, aside="")
        self._star = False
        self._skip = 0

    def _close(self) -> None:
        if not self._stack:
            return
        ended, self._now = self._now, self._stack.pop()
        self._star, self._skip = False, 0
        if not ended.aside:
            return
        text = "".join(ended.out).strip(" \t\n|")
        if ended.aside in _LABELS:
            label = text if any(letter.isalnum() for letter in text) else "-"
            self._write(f"{label} " if text else "")
        elif ended.aside not in _RUNNING:
            self._waiting.append(f"{text}\n\n")
        elif text in self._seen:  # another section has it, too
            self.left.leave("repeated lines", text.count("\n") + 1)
        else:
            self._seen.add(text)
            self._body.append(f"{text}\n\n")

    def _control(self, word: str, number: int | None) -> None:
        is_marked, self._star = self._star, False
        if self._now.gone:
            self._inside_gone(word)
        elif word == "u" and number is not None:
            self._unicode(number % 65536)
        elif word in _MARKS:
            self._write(_MARKS[word])
        elif word in ("par", "sect", "page"):
            self._paragraph()
        elif word in ("cell", "nestcell"):
            self._write(" | ")
        elif word in ("row", "nestrow"):
            self._end_of_row()
        elif not self._begins(word, is_marked):
            self._format(word, number)

    def _inside_gone(self, word: str) -> None:
        """A word inside of a group that is no text, but may hold some."""
        now = self._now
        if word == "ud" and now.gone == "upr":
            now.gone = ""
        elif now.gone == "info" and word in _FIELDS:
            now.gone, now.out = "", self.fields.setdefault(word, [])
        elif now.gone == "userprops" and word == "propname":
            self.custom.append(([], []))
            now.gone, now.out = "", self.custom[-1][0]
        elif now.gone == "userprops" and word == "staticval" and self.custom:
            now.gone, now.out = "", self.custom[-1][1]
        elif word in ("sn", "sv"):  # a property of a shape: its name, its value
            now.gone = word

    def _begins(self, word: str, is_marked: bool) -> bool:
        """Whether a word is the name of a group, which begins."""
        now = self._now
        if word in _ASIDE or word in _LABELS:
            now.aside, now.out = word, []
        elif word in _NO_WORDS or word in _WORDS or word in _THINGS:
            now.gone = word
            self.left.leave(_THINGS.get(word, ""), word in _THINGS)
        elif is_marked and word not in _INSIDE:
            now.gone = "*"
        else:
            return False
        return True

    def _format(self, word: str, number: int | None) -> None:
        now = self._now
        if word == "uc" and number is not None:
            now.after = min(max(number, 0), 8)
        elif word == "f" and number is not None:
            now.codec = self._fonts.get(number, self._codec)
        elif word == "v":
            now.hidden = "" if number == 0 else "hidden words"
        elif word == "deleted":
            now.hidden = "" if number == 0 else "deleted words"
        elif word == "plain":
            now.hidden, now.codec = "", self._codec
        elif word == "pard":
            self._in_table, self._level = False, 9
        elif word == "intbl":
            self._in_table = True
        elif word == "outlinelevel" and number is not None:
            self._level = number

    def _paragraph(self) -> None:
        if self._now.gone or self._now.hidden:
            return
        if self._in_table:
            self._now.out.append(" ")
            return
        self._now.out.append("\n\n")
        if self._now.out is self._body:
            self._at_start = True
            self._body += self._waiting
            self._waiting.clear()

    def _end_of_row(self) -> None:
        if self._now.out is not self._body:
            self._now.out.append("\n")
            return
        self._body += ["\n", *self._waiting]
        self._waiting.clear()

    def _unicode(self, code: int) -> None:
        self._skip = 0
        if 0xD800 <= code < 0xDC00:
            self._high = code
        else:
            if self._high and 0xDC00 <= code < 0xE000:
                code = 0x10000 + ((self._high - 0xD800) << 10) + code - 0xDC00
            self._high = 0
            self._write("\ufffd" if 0xD800 <= code < 0xE000 else chr(code))
        self._skip = self._now.after

    def _byte(self, code: int) -> None:
        if self._skip:
            self._skip -= 1
        else:
            self._bytes.append(code)

    def _run(self, text: str) -> None:
        cut = min(self._skip, len(text))
        self._skip -= cut
        if text := text[cut:]:
            self._bytes += text.encode("latin-1")  # behind a first half of a character in hex there may be a letter

    def _flush(self) -> None:
        if self._bytes:
            text = self._bytes.decode(self._now.codec, "replace")
            self._bytes.clear()
            self._write(text)

    def _write(self, text: str) -> None:
        now = self._now
        if not text:
            return
        if now.gone or now.hidden:
            self._leave(now.hidden or now.gone, text)
            return
        if now.out is self._body and text.strip():
            if self._at_start and self._level < 6:
                text, self.has_headings = f"{'#' * (self._level + 1)} {text.lstrip()}", True
            self._at_start = False
        now.out.append(text)

    def _leave(self, gone: str, text: str) -> None:
        """Count words that are not in the text."""
        kind = "words of alternative texts" if gone == "sv" and self._is_alt_text else _WORDS.get(gone, "")
        if gone == "sn":
            self._is_alt_text = text.strip() in _ALT_TEXTS
        elif kind:
            self.left.leave(kind, sum(any(map(str.isalnum, word)) for word in text.split()))

    def _font_codec(self, attributes: str) -> str:
        charset, page = _CHARSET.search(attributes), _PAGE.search(attributes)
        return _codec(f"cp{page[1]}") if page else _CHARSETS.get(int(charset[1]) if charset else 0, self._codec)


def _codec(name: str) -> str:
    """A codec; that of Western Europe where the name is of none."""
    try:
        return codecs.lookup({"cp936": "gb18030", "cp10000": "mac_roman", "cp65001": "utf-8"}.get(name, name)).name
    except LookupError:
        return "cp1252"
