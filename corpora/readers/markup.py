r"""LaTeX, Org and AsciiDoc as Markdown, by light rules: headings, code, metadata; one Document a file.

    \section{Lakes} | * Lakes | == Lakes -> # Lakes

What is not known stays as it is written. Every line of the text keeps its line in the file. Formats are told apart by
their ending alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ragidx.corpora.readers.decoding import decode
from ragidx.corpora.readers.fields import check_text
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, Place, Scalar

_Lines = Iterable[tuple[int, str]]  # number in the file, from 1, and text

_TEX_LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
_TEX_HEADING = re.compile(rf"[ \t]*\\({'|'.join(_TEX_LEVELS)})\*?(?:\[[^\]\n]{{0,500}}\])?\{{(.*)\}}[ \t]*(.*)")
_TEX_COMMENT = re.compile(r"(?<!\\)%.*")
_TEX_CODE = re.compile(r"[ \t]*\\(begin|end)\{(?:verbatim|lstlisting|minted)\*?\}.*")
_TEX_DROPPED = re.compile(
    r"[ \t]*\\(?:maketitle|tableofcontents|label\{[^{}]*\}|(?:begin|end)\{(?:document|itemize|enumerate|center|"
    r"abstract|figure|quote)\*?\}(?:\[[^\]]*\])?|(?:title|author|date)\{.*\}|bibliographystyle\{.*\}|bibliography\{.*\}|"
    r"centering|newpage|clearpage|noindent)[ \t]*"
)
_TEX_STYLE = re.compile(r"\\(?:textbf|textit|emph|texttt|textsc|underline|textrm|textsf)\{([^{}\\]*)\}")
_TEX_LABEL = re.compile(r"\\label\{[^{}]*\}")

_ORG_HEADING = re.compile(r"(\*{1,20})[ \t]+(?:(?:TODO|DONE)[ \t]+)?(\S.*)")
_ORG_TAGS = re.compile(r":[\w@#%:]{1,200}:")
_ORG_KEYWORD = re.compile(r"#\+(\w{1,40}):[ \t]*(.*)")
_ORG_BLOCK = re.compile(r"[ \t]*#\+(begin|end)_(src|example)\b[ \t]*([\w+-]{0,40}).*", re.IGNORECASE)
_ORG_DRAWER = re.compile(r"[ \t]*:(PROPERTIES|LOGBOOK|END):[ \t]*", re.IGNORECASE)

_ADOC_HEADING = re.compile(r"(={1,6})[ \t]+(\S.*)")
_ADOC_CLOSE = re.compile(r"={1,6}")
_ADOC_ATTRIBUTE = re.compile(r":(!?[\w-]{1,100}):(?:[ \t]+(.*))?")
_ADOC_FENCE = re.compile(r"(-{4,}|\.{4,}|`{3,})[ \t]*")
_ADOC_SOURCE = re.compile(r"\[(?:source|listing)(?:%[\w,]*)?(?:,[ \t]*([\w+-]{1,40}))?.{0,200}\]")
_ADOC_COMMENT = re.compile(r"//(?!/).*")


def read_tex(file: SourceFile) -> Iterator[Document]:
    """The body of a LaTeX file, without preamble and comments."""
    text, metadata = _text(file), dict[str, Scalar]()
    for name in ("title", "author"):
        if found := re.search(rf"^[ \t]*\\{name}\{{(.*?)\}}[ \t]*$", text, re.MULTILINE):
            metadata[name] = _plain_tex(found[1].replace("\\\\", " "))
    yield _document(file, _tex(text), metadata)


def read_org(file: SourceFile) -> Iterator[Document]:
    """An Org file; its keywords are metadata."""
    metadata: dict[str, Scalar] = {}
    yield _document(file, list(_org(_text(file), metadata)), metadata)


def read_adoc(file: SourceFile) -> Iterator[Document]:
    """An AsciiDoc file; the attributes of its header are metadata."""
    metadata: dict[str, Scalar] = {}
    yield _document(file, list(_adoc(_text(file), metadata)), metadata)


def _text(file: SourceFile) -> str:
    return decode(file.data(file.limits.document_bytes))


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


def _tex(text: str) -> Iterator[tuple[int, str]]:
    begin, end = text.find("\\begin{document}"), text.find("\\end{document}")
    first = 1 + text.count("\n", 0, begin) if begin >= 0 else 1
    body = text[max(begin, 0) : end if end >= 0 else len(text)]
    top = next((level for level, name in enumerate(_TEX_LEVELS) if re.search(rf"\\{name}\*?[\[{{]", body)), 0)
    in_code = False
    for number, raw in enumerate(body.split("\n"), start=first):
        if mark := _TEX_CODE.fullmatch(raw):
            in_code = mark[1] == "begin"
            yield number, "```"
        elif in_code:
            yield number, raw
        else:
            line = _TEX_COMMENT.sub("", raw)
            if (line.strip() or not raw.strip()) and not _TEX_DROPPED.fullmatch(line):
                yield number, _tex_line(line, top)
    if in_code:
        yield first + body.count("\n") + 1, "```"


def _tex_line(line: str, top: int) -> str:
    line = _TEX_LABEL.sub("", line)
    if heading := _TEX_HEADING.fullmatch(line):
        level = _TEX_LEVELS.index(heading[1]) - top + 1
        after = _plain_tex(heading[3])
        return f"{'#' * min(level, 6)} {_plain_tex(heading[2])}" + (f"\n{after}" if after else "")
    if (item := line.lstrip()).startswith("\\item") and not item[5:6].isalpha():
        line = f"- {item[5:].lstrip()}"
    return _TEX_STYLE.sub(r"\1", line)


def _plain_tex(text: str) -> str:
    return " ".join(_TEX_STYLE.sub(r"\1", text).replace("\\&", "&").replace("~", " ").split())


def _org(text: str, metadata: dict[str, Scalar]) -> Iterator[tuple[int, str]]:
    in_code, in_drawer = False, False
    for number, line in enumerate(text.split("\n"), start=1):
        if block := _ORG_BLOCK.fullmatch(line):
            in_code = block[1].lower() == "begin"
            yield number, f"```{block[3]}" if in_code else "```"
        elif in_code:
            yield number, line
        elif drawer := _ORG_DRAWER.fullmatch(line):
            in_drawer = drawer[1].upper() != "END"
        elif in_drawer or line.startswith("# "):
            continue
        elif keyword := _ORG_KEYWORD.fullmatch(line):
            if keyword[1].lower() in ("title", "author", "date", "language"):
                metadata.setdefault(keyword[1].lower(), keyword[2].strip())
        elif heading := _ORG_HEADING.fullmatch(line):
            yield number, f"{'#' * min(len(heading[1]), 6)} {_without_last(heading[2], _ORG_TAGS)}"
        else:
            yield number, line


def _adoc(text: str, metadata: dict[str, Scalar]) -> Iterator[tuple[int, str]]:
    fence, language, in_header = "", "", True
    for number, line in enumerate(text.split("\n"), start=1):
        if fence:
            closes = line.rstrip() == fence
            fence = "" if closes else fence
            yield number, "```" if closes else line
        elif mark := _ADOC_FENCE.fullmatch(line):
            fence = mark[1]
            yield number, f"```{language}"
            language = ""
        elif source := _ADOC_SOURCE.fullmatch(line):
            language = source[1] or ""
        elif _ADOC_COMMENT.fullmatch(line):
            continue
        elif in_header and (attribute := _ADOC_ATTRIBUTE.fullmatch(line)):
            if attribute[1] in ("author", "email", "revdate", "description", "keywords", "lang"):
                metadata.setdefault(attribute[1], (attribute[2] or "").strip())
        elif heading := _ADOC_HEADING.fullmatch(line):
            name = _without_last(heading[2], _ADOC_CLOSE)
            if len(heading[1]) == 1 and in_header:
                metadata.setdefault("title", name)
            yield number, f"{'#' * len(heading[1])} {name}"
        else:
            in_header = in_header and bool(line.strip()) == ("title" in metadata)  # up to a blank line below the title
            yield number, line


def _without_last(text: str, pattern: re.Pattern[str]) -> str:
    """A heading without its last word, where that is a tag."""
    before, _, last = text.rstrip().rpartition(" ")
    return before.rstrip() if before and pattern.fullmatch(last) else text.rstrip()
