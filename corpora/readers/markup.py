r"""LaTeX, Org and AsciiDoc as Markdown, by light rules: headings, code, metadata; one Document a file.

    \section{Lakes} | * Lakes | == Lakes -> # Lakes

What is not known stays as it is written; comments and settings are counted. Every line of the text keeps its line in
the file. Formats are told apart by their ending alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ragidx.corpora.left_out import Tally
from ragidx.corpora.readers.fields import check_text
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, Place, Scalar

_COMMENTS, _SETTINGS = "words of comments in sources", "words of settings"

_Lines = Iterable[tuple[int, str]]  # number in the file, from 1, and text

_TEX_LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
_TEX_HEADING = re.compile(rf"[ \t]*\\({'|'.join(_TEX_LEVELS)})\*?(?:\[[^\]\n]{{0,500}}\])?(?=\{{)")
_TEX_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_TEX_HEADING_LINES, _TEX_BRACED_CHARS = 5, 2000
_TEX_MACRO = re.compile(
    r"\\(?:(?:re)?newcommand\*?\{?(\\[A-Za-z]{1,40})\}?|def(\\[A-Za-z]{1,40}))\{([^\\{}#\n]{1,200})\}"
)
_TEX_COMMAND = re.compile(r"(?<!\\)(\\[A-Za-z]{1,40})(?![A-Za-z])(?:\{\})?")
_TEX_COMMENT = re.compile(r"(?<!\\)%.*")
_TEX_CODE = re.compile(r"[ \t]*\\(begin|end)\{(?:verbatim|lstlisting|minted)\*?\}.*")
_TEX_HIDDEN = re.compile(r"[ \t]*\\(begin|end)\{comment\}.*")
_TEX_SHOWN = re.compile(r"[ \t]*\\end\{comment\}.*")
_TEX_DROPPED = re.compile(
    r"[ \t]*\\(?:maketitle|tableofcontents|label\{[^{}]*\}|(?:begin|end)\{(?:document|itemize|enumerate|center|"
    r"abstract|figure|quote)\*?\}(?:\[[^\]]*\])?|(?:title|author|date)\{.*\}|bibliographystyle\{.*\}|bibliography\{.*\}|"
    r"centering|newpage|clearpage|noindent)[ \t]*"
)
_TEX_STYLE = re.compile(
    r"\\(?:textbf|textit|emph|texttt|textsc|textsl|underline|textrm|textsf)\{([^{}\\]*)\}|"
    r"\{\\(?:bf|it|em|sl|tt|sc|rm|sf|bfseries|itshape|ttfamily|scshape)[ \t]+([^{}\\]*)\}"
)
_TEX_STYLES_DEEP = 4  # styles inside others
_TEX_LABEL = re.compile(r"\\label\{[^{}]*\}")
_TEX_ASIDE = re.compile(r"\\thanks\{[^{}]*\}")

_TEX_ACCENTS = {
    **{'"': "\u0308", "'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303", "=": "\u0304", ".": "\u0307"},
    **{"c": "\u0327", "v": "\u030c", "u": "\u0306", "H": "\u030b", "k": "\u0328", "r": "\u030a"},
    **{"b": "\u0331", "d": "\u0323"},
}
_TEX_LETTERS = {
    **{"ss": "ß", "o": "ø", "O": "Ø", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ"},
    **{"aa": "å", "AA": "Å", "l": "ł", "L": "Ł", "i": "ı", "j": "ȷ"},
}
_TEX_LETTER = r"(?:[A-Za-z]|\\[ij](?![A-Za-z]))"
_TEX_SPECIAL = re.compile(  # what is in a formula stays
    r"\\[\\$]|\$[^$]*\$|"
    rf"\\(?:(?P<mark>[\"'`^~=.])[ \t]*|(?P<named>[cvuHkrbd])(?![A-Za-z])[ \t]*)"
    rf"(?:\{{[ \t]*(?P<braced>{_TEX_LETTER})[ \t]*\}}|(?P<bare>{_TEX_LETTER})(?:(?<=[ij])(?<=\\.)[ \t]+)?)|"
    rf"\\(?P<letter>{'|'.join(_TEX_LETTERS)})(?![A-Za-z])(?:\{{\}}|[ \t]+)?"
)
_TEX_ALONE = re.compile(r"(\\[A-Za-z]+\*?)?\{([^\W\d_\x00-\x7f])\}")  # {ö}, and not the argument of a command

_ORG_HEADING = re.compile(r"(\*{1,20})[ \t]+(?:(?:TODO|DONE)[ \t]+)?(?:\[#\w\][ \t]+)?(\S.*)")
_ORG_HIDDEN = re.compile(r"[ \t]*#\+(begin|end)_comment\b.*", re.IGNORECASE)
_ORG_SHOWN = re.compile(r"[ \t]*#\+end_comment\b.*", re.IGNORECASE)
_ORG_TAGS = re.compile(r":[\w@#%:]{1,200}:")
_ORG_KEYWORD = re.compile(r"#\+(\w{1,40}):[ \t]*(.*)")
_ORG_FIELDS = {"title": "title", "author": "author", "date": "date", "language": "language", "filetags": "tags"}
_ORG_BLOCK = re.compile(r"[ \t]*#\+(begin|end)_(src|example)\b[ \t]*([\w+-]{0,40}).*", re.IGNORECASE)
_ORG_DRAWER = re.compile(r"[ \t]*:(PROPERTIES|LOGBOOK|END):[ \t]*", re.IGNORECASE)

_ADOC_HEADING = re.compile(r"(={1,6})[ \t]+(\S.*)")
_ADOC_CLOSE = re.compile(r"={1,6}")
_ADOC_ATTRIBUTE = re.compile(r":(!?[\w-]{1,100}):(?:[ \t]+(.*))?")
_ADOC_FENCE = re.compile(r"(-{4,}|\.{4,}|`{3,})[ \t]*")
_ADOC_SOURCE = re.compile(r"\[(?:source|listing)(?:%[\w,]*)?(?:,[ \t]*([\w+-]{1,40}))?.{0,200}\]")
_ADOC_COMMENT = re.compile(r"//(?!/).*")
_ADOC_HIDDEN = re.compile(r"/{4,}[ \t]*")


def read_tex(file: SourceFile) -> Iterator[Document]:
    """The body of a LaTeX file, without preamble and comments."""
    text, metadata = _text(file), dict[str, Scalar]()
    shown = _TEX_COMMENT.sub("", text)
    begin, n_told = shown.find("\\begin{document}"), 0
    for name in ("title", "author", "date"):
        found = re.search(rf"(?<!\\)\\{name}(?:\[[^\]\n]{{0,500}}\])?(?=\{{)", shown)
        if found and (end := _closing(shown, found.end())):
            inside = _TEX_ASIDE.sub("", shown[found.end() + 1 : end - 1].replace("\\\\", " "))
            told = _plain_tex(re.sub(r"\s*\\and\b", ",", inside))
            if name != "date" or "\\" not in told:  # such as \today
                metadata[name] = told
                n_told += len(told.split()) if end <= begin else 0
    file.leave(_SETTINGS, max(0, len(shown[: max(0, begin)].split()) - n_told))
    _uncommented(text[: max(0, text.find("\\begin{document}"))], file.left)
    yield _document(file, _tex(text, _macros(shown), file.left), metadata)


def read_org(file: SourceFile) -> Iterator[Document]:
    """An Org file; its keywords are metadata."""
    metadata: dict[str, Scalar] = {}
    yield _document(file, list(_org(_text(file), metadata, file.left)), metadata)


def read_adoc(file: SourceFile) -> Iterator[Document]:
    """An AsciiDoc file; the attributes of its header are metadata."""
    metadata: dict[str, Scalar] = {}
    yield _document(file, list(_adoc(_text(file), metadata, file.left)), metadata)


def _text(file: SourceFile) -> str:
    return file.decoded(file.data(file.limits.document_bytes))


def _document(file: SourceFile, lines: _Lines, metadata: dict[str, Scalar]) -> Document:
    """The lines as one text; where the file's lines do not follow one another, there is a place."""
    kept: list[str] = []
    places: list[Place] = []
    offset, expected = 0, 0
    for number, line in lines:
        if not line.strip() and (not kept or not kept[-1].strip()):
            continue
        if number != expected:
            places.append(Place(offset, line=number))
        kept.append(line)
        offset, expected = offset + len(line) + 1, number + 1
    text = "\n".join(kept).rstrip()
    check_text(text)
    inside = tuple(place for place in places if place.offset < len(text))
    return Document(file.doc_id(), text, {k: v for k, v in metadata.items() if v}, True, places=inside)


def _uncommented(text: str, left: Tally) -> str:
    """LaTeX without its comments, which are counted."""
    if "%" not in text:
        return text
    left.leave(_COMMENTS, sum(len(found.lstrip("%").split()) for found in _TEX_COMMENT.findall(text)))
    return _TEX_COMMENT.sub("", text)


def _macros(text: str) -> dict[str, str]:
    """The words of commands that the file defines as words alone, by `\\name`."""
    end = text.find("\\begin{document}")
    return {found[1] or found[2]: found[3] for found in _TEX_MACRO.finditer(text, 0, end if end >= 0 else len(text))}


def _tex(text: str, macros: Mapping[str, str], left: Tally) -> Iterator[tuple[int, str]]:
    begin, end = text.find("\\begin{document}"), text.find("\\end{document}")
    first = 1 + text.count("\n", 0, begin) if begin >= 0 else 1
    body, after = text[max(begin, 0) : end if end >= 0 else len(text)], text[end:] if end >= 0 else ""
    left.leave(_COMMENTS, len(after.partition("}")[2].split()))
    top = next((level for level, name in enumerate(_TEX_LEVELS) if re.search(rf"\\{name}\*?[\[{{]", body)), 0)
    in_code, is_hidden, used = False, False, 0
    lines = body.split("\n")
    last_end = _last(lines, _TEX_SHOWN)
    for place, raw in enumerate(lines):
        number = first + place
        if place < used:  # it was the end of a heading
            continue
        if not in_code and place <= last_end and (mark := _TEX_HIDDEN.fullmatch(raw)):
            is_hidden = mark[1] == "begin" and place < last_end
        elif is_hidden:
            left.leave(_COMMENTS, len(raw.split()))
        elif mark := _TEX_CODE.fullmatch(raw):
            in_code = mark[1] == "begin"
            yield number, "```"
        elif in_code:
            yield number, raw
        else:
            line = _uncommented(raw, left)
            if macros and "\\" in line:
                line = _TEX_COMMAND.sub(lambda used: used[0] if used[1] not in macros else macros[used[1]], line)
            if (line.strip() or not raw.strip()) and not _TEX_DROPPED.fullmatch(line):
                line, used = _whole_heading(line, lines, place)
                yield number, _tex_line(line, top)
    if in_code:
        yield first + body.count("\n") + 1, "```"


def _whole_heading(line: str, lines: Sequence[str], place: int) -> tuple[str, int]:
    """A line, with those that end its heading where it is longer, and the place of the line after them."""
    if heading := _TEX_HEADING.match(line):
        for end in range(place + 1, min(len(lines), place + _TEX_HEADING_LINES) + 1):
            joined = " ".join([line, *(_TEX_COMMENT.sub("", more).strip() for more in lines[place + 1 : end])])
            if _closing(joined, heading.end()):
                return joined, end
    return line, place + 1


def _closing(text: str, start: int) -> int:
    """The place after the brace that closes the one at `start`; 0 where none does."""
    depth = 0
    for brace in _TEX_BRACE.finditer(text, start, start + _TEX_BRACED_CHARS):
        depth += (brace[0] == "{") - (brace[0] == "}")
        if depth == 0:
            return brace.end()
    return 0


def _tex_line(line: str, top: int) -> str:
    line = _TEX_LABEL.sub("", line)
    heading = _TEX_HEADING.match(line)
    if heading and (end := _closing(line, heading.end())):
        level = _TEX_LEVELS.index(heading[1]) - top + 1
        after = _plain_tex(line[end:])
        title = _plain_tex(line[heading.end() + 1 : end - 1])
        return f"{'#' * min(level, 6)} {title}" + (f"\n{after}" if after else "")
    if (item := line.lstrip()).startswith("\\item") and not item[5:6].isalpha():
        line = f"- {item[5:].lstrip()}"
    return _unstyled(line)


def _plain_tex(text: str) -> str:
    return " ".join(_unstyled(text).replace("\\&", "&").replace("~", " ").split())


def _unstyled(text: str) -> str:
    """LaTeX with letters for the commands of letters, and without those of type."""
    text = _TEX_SPECIAL.sub(_letter, text) if "\\" in text else text
    for _ in range(_TEX_STYLES_DEEP):
        before, text = text, _TEX_STYLE.sub(lambda found: found[1] or found[2] or "", text)
        if text == before:
            break
    return _TEX_ALONE.sub(lambda found: found[0] if found[1] else found[2], text)


def _letter(found: re.Match[str]) -> str:
    if letter := found["letter"]:
        return _TEX_LETTERS[letter]
    if mark := found["mark"] or found["named"]:
        base = (found["braced"] or found["bare"]).lstrip("\\")
        return unicodedata.normalize("NFC", base + _TEX_ACCENTS[mark])
    return found[0]


def _org(text: str, metadata: dict[str, Scalar], left: Tally) -> Iterator[tuple[int, str]]:
    in_code, in_drawer, is_hidden, lines = False, False, False, text.split("\n")
    last_end = _last(lines, _ORG_SHOWN)
    for number, line in enumerate(lines, start=1):
        if not in_code and number <= last_end + 1 and (mark := _ORG_HIDDEN.fullmatch(line)):
            is_hidden = mark[1].lower() == "begin" and number <= last_end
        elif is_hidden or (not in_code and line.startswith("# ")):
            left.leave(_COMMENTS, len(line.lstrip("#").split()))
        elif block := _ORG_BLOCK.fullmatch(line):
            in_code = block[1].lower() == "begin"
            yield number, f"```{block[3]}" if in_code else "```"
        elif in_code:
            yield number, line
        elif drawer := _ORG_DRAWER.fullmatch(line):
            in_drawer = drawer[1].upper() != "END"
        elif in_drawer:
            left.leave(_SETTINGS, len(line.split()))
        elif keyword := _ORG_KEYWORD.fullmatch(line):
            if (name := keyword[1].lower()) == "caption":
                yield number, keyword[2]
                continue
            left.leave(_SETTINGS, 0 if name in _ORG_FIELDS else len(keyword[2].split()))
            if name in _ORG_FIELDS:
                value = keyword[2].replace(":", " ") if name == "filetags" else keyword[2]
                metadata.setdefault(_ORG_FIELDS[name], " ".join(value.split()))
        elif heading := _ORG_HEADING.fullmatch(line):
            title = _without_last(heading[2], _ORG_TAGS)
            left.leave(_SETTINGS, len(line.split()) - 1 - len(title.split()))
            yield number, f"{'#' * min(len(heading[1]), 6)} {title}"
        else:
            yield number, line


def _adoc(text: str, metadata: dict[str, Scalar], left: Tally) -> Iterator[tuple[int, str]]:
    fence, language, hidden, in_header, lines = "", "", "", True, text.split("\n")
    last_end = _last(lines, _ADOC_HIDDEN)
    for number, line in enumerate(lines, start=1):
        if fence:
            closes = line.rstrip() == fence
            fence = "" if closes else fence
            yield number, "```" if closes else line
        elif hidden:
            hidden = "" if line.rstrip() == hidden else hidden
            left.leave(_COMMENTS, len(line.split()) if hidden else 0)
        elif number <= last_end and _ADOC_HIDDEN.fullmatch(line):
            hidden = line.rstrip()
        elif mark := _ADOC_FENCE.fullmatch(line):
            fence = mark[1]
            yield number, f"```{language}"
            language = ""
        elif source := _ADOC_SOURCE.fullmatch(line):
            language = source[1] or ""
        elif _ADOC_COMMENT.fullmatch(line):
            left.leave(_COMMENTS, len(line[2:].split()))
        elif in_header and (attribute := _ADOC_ATTRIBUTE.fullmatch(line)):
            is_known = attribute[1] in ("author", "email", "revdate", "description", "keywords", "lang")
            left.leave(_SETTINGS, 0 if is_known else len((attribute[2] or "").split()))
            if is_known:
                metadata.setdefault(attribute[1], (attribute[2] or "").strip())
        elif heading := _ADOC_HEADING.fullmatch(line):
            name = _without_last(heading[2], _ADOC_CLOSE)
            if len(heading[1]) == 1 and in_header:
                metadata.setdefault("title", name)
            yield number, f"{'#' * len(heading[1])} {name}"
        else:
            in_header = in_header and bool(line.strip()) == ("title" in metadata)  # up to a blank line below the title
            yield number, line


def _last(lines: Sequence[str], mark: re.Pattern[str]) -> int:
    """The place of the last line that is this mark; -1: none is. A comment that nothing ends is text."""
    return next((place for place in reversed(range(len(lines))) if mark.fullmatch(lines[place])), -1)


def _without_last(text: str, pattern: re.Pattern[str]) -> str:
    """A heading without its last word, where that is a tag."""
    before, _, last = text.rstrip().rpartition(" ")
    return before.rstrip() if before and pattern.fullmatch(last) else text.rstrip()
