"""LaTeX, Org, AsciiDoc, RTF and OpenDocument: known text in, known text out, with title, author and lines."""

from __future__ import annotations

import pytest

from ragidx.corpora.records import Document

from ..conftest import ReadBytes
from ..fuzz.office_files import zipped

TEX = r"""\documentclass{article}
\title{Lakes of the \emph{world}}
\author{Ada Byron}
\begin{document}
\maketitle
\section{Deep ones}\label{sec:deep}
Baikal is \textbf{deep}. % really
% nothing
It is 50\% ice.

\subsection*{Code}
\begin{verbatim}
% kept
\end{verbatim}
\begin{itemize}
  \item cold
\end{itemize}
\end{document}
after
"""
ORG = """#+TITLE: Lakes
#+AUTHOR: Ada Byron
# a comment

* TODO Deep ones   :lake:water:
:PROPERTIES:
:ID: 5
:END:
Baikal is deep.
#+BEGIN_SRC python -n
* not a heading
#+END_SRC
** Long ones
"""
ADOC = """= Lakes
Ada Byron
:author: Ada Byron
:toc:

// a comment
== Deep ones ==
Baikal is deep.

[source,python]
----
== not a heading
----
"""


def lines_of(document: Document) -> list[tuple[int | None, str]]:
    """Each line that is not blank, and its line in the file."""
    starts, offset = [], 0
    for line in document.text.split("\n"):
        starts += [(offset, line)] if line.strip() else []
        offset += len(line) + 1
    positions = document.positions(start for start, _ in starts)
    return [(number, line) for (number, _), (_, line) in zip(positions, starts, strict=True)]


def test_latex_loses_its_preamble_and_comments_and_keeps_its_lines(read_bytes: ReadBytes) -> None:
    (document,) = read_bytes("a.tex", TEX).documents

    assert document.metadata == {"title": "Lakes of the world", "author": "Ada Byron"}
    assert lines_of(document) == [
        (6, "# Deep ones"),
        (7, "Baikal is deep. "),
        (9, "It is 50\\% ice."),
        (11, "## Code"),
        (12, "```"),
        (13, "% kept"),
        (14, "```"),
        (16, "- cold"),
    ]


def test_org_headings_and_blocks_become_markdown(read_bytes: ReadBytes) -> None:
    (document,) = read_bytes("a.org", ORG).documents

    assert document.metadata == {"title": "Lakes", "author": "Ada Byron"}
    assert lines_of(document) == [
        (5, "# Deep ones"),
        (9, "Baikal is deep."),
        (10, "```python"),
        (11, "* not a heading"),
        (12, "```"),
        (13, "## Long ones"),
    ]


def test_asciidoc_headings_and_listings_become_markdown(read_bytes: ReadBytes) -> None:
    (document,) = read_bytes("a.adoc", ADOC).documents

    assert document.metadata == {"title": "Lakes", "author": "Ada Byron"}
    assert lines_of(document) == [
        (1, "# Lakes"),
        (2, "Ada Byron"),
        (7, "## Deep ones"),
        (8, "Baikal is deep."),
        (11, "```python"),
        (12, "== not a heading"),
        (13, "```"),
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (r"\section{Method} The {\bf lamp} is lit.", "# Method\nThe lamp is lit."),
        (r"\section[Short]{The {\em big} \textbf{and \emph{bigger}} one} \{x\}", "# The big and bigger one\n\\{x\\}"),
        (r"\section{Of \{sets\} and $x_{i}$}", r"# Of \{sets\} and $x_{i}$"),
        ("\\section{A heading\n  of % two lines\n  three} It\ngoes on.", "# A heading of three\nIt\ngoes on."),
        ("\\section{Not closed\n\nA paragraph.", "\\section{Not closed\n\nA paragraph."),
    ],
)
def test_a_heading_of_latex_ends_at_its_own_brace(line: str, text: str, read_bytes: ReadBytes) -> None:
    assert read_bytes("a.tex", line).texts == [text]


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tex", "One.\n\\begin{comment}\nTwo.\n\\section{Three}\n\\end{comment}\nFour."),
        ("a.org", "One.\n#+BEGIN_COMMENT\nTwo.\n* Three\n#+END_COMMENT\nFour."),
        ("a.adoc", "One.\n////\nTwo.\n== Three\n////\nFour."),
    ],
)
def test_a_comment_is_dropped_where_it_ends(name: str, text: str, escaped: bool, read_bytes: ReadBytes) -> None:
    text = "\n".join([*text.split("\n")[:-2], "Four."]) if escaped else text

    (document,) = read_bytes(name, text).documents

    assert ("Two" in document.text, "Four" in document.text) == (escaped, True)
    assert lines_of(document)[-1] == (len(text.split("\n")), "Four.")


LETTERS = {
    r"G\"odel, G\"{o}del, G{\"o}del, G{\"{o}}del": "Gödel, Gödel, Gödel, Gödel",
    r"\'ecole \`a la na\"{\i}ve \'\i le \^ile": "école à la naïve íle île",
    r"Erd\H{o}s, Fran\c cois, Fran\c{c}ois, \v{S}koda, \v Skoda": "Erdős, François, François, Škoda, Škoda",
    r"\~nandu \u{g} \=a \.z \k{a} \r{a} \b{o} \d{s}": "ñandu ğ ā ż ą å o̱ ṣ",
    r"Stra\ss e, Stra{\ss}e, \AA ngstr\"om, \L{}\'od\'z": "Straße, Straße, Ångström, Łódź",
    r"S\o ren \ae\oe\O": "Søren æœØ",
    r"\emph{\"o} and \textbf{\'A}": "ö and Á",
    r"$\d x$, \$5, \cite{o}, \beta, \ref{b}, \url{b}, \item": r"$\d x$, \$5, \cite{o}, \beta, \ref{b}, \url{b}, \item",
    r"a \\ \"u": r"a \\ ü",
}


@pytest.mark.parametrize(("tex", "text"), LETTERS.items())
def test_accents_of_latex_are_letters(tex: str, text: str, read_bytes: ReadBytes) -> None:
    data = f"\\section{{{tex}}}\n{tex}\n\\begin{{verbatim}}\n{tex}\n\\end{{verbatim}}"

    assert read_bytes("a.tex", data).texts == [f"# {text}\n{text}\n```\n{tex}\n```"]


def test_title_and_authors_of_latex_may_have_several_lines(read_bytes: ReadBytes) -> None:
    data = '\\title[Short]{The {\\it deep}\n  lakes}\n\\author{Kurt G\\"odel\\thanks{Wien} \\and\n Ada Byron}\n\nText.'

    (document,) = read_bytes("a.tex", data).documents

    assert document.metadata == {"title": "The deep lakes", "author": "Kurt Gödel, Ada Byron"}


def test_the_priority_of_an_org_heading_is_no_part_of_it(read_bytes: ReadBytes) -> None:
    assert read_bytes("a.org", "* TODO [#A] Deep ones :lake:\n* [#x]y").texts == ["# Deep ones\n# [#x]y"]


OFFICE = "urn:oasis:names:tc:opendocument:xmlns"
CONTENT = f"""<?xml version="1.0"?>
<office:document-content xmlns:office="{OFFICE}:office:1.0" xmlns:text="{OFFICE}:text:1.0"
 xmlns:table="{OFFICE}:table:1.0"><office:body><office:text>
<text:h text:outline-level="2">Deep <text:span>ones</text:span></text:h>
<text:p>Baikal<text:s/>is<text:line-break/>deep.<text:note><text:note-citation>1</text:note-citation></text:note></text:p>
<text:list><text:list-item><text:p>cold</text:p></text:list-item></text:list>
<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell>
<table:table-cell><text:p>b</text:p></table:table-cell></table:table-row></table:table>
</office:text></office:body></office:document-content>"""
META = f"""<office:document-meta xmlns:office="{OFFICE}:office:1.0" xmlns:dc="http://purl.org/dc/elements/1.1/">
<office:meta><dc:title>Lakes</dc:title><dc:creator>Ada Byron</dc:creator></office:meta></office:document-meta>"""


def odt(content: str, **more: str) -> bytes:
    return zipped({"content.xml": content, **more})


def test_opendocument_gives_headings_lists_rows_title_and_author(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.odt", odt(CONTENT, **{"meta.xml": META}))

    assert found.reasons == []
    (document,) = found.documents
    assert document.text == "## Deep ones\n\nBaikal is\ndeep.\n\n- cold\n\na | b"
    assert document.metadata == {"title": "Lakes", "author": "Ada Byron"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no archive", "cannot be converted: damaged, or of another format than its ending says"),
        (odt("<a><b></a>"), "has no body"),
        (odt("<a/>"), "has no body"),
        (
            odt('<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'),
            "a document type is declared",
        ),
        (odt(CONTENT.replace("cold", "<a>" * 100_000 + "</a>" * 100_000)), "nested deeper than 200 elements"),
    ],
    ids=["no archive", "broken", "empty", "entities", "deep"],
)
def test_a_broken_opendocument_file_is_skipped(read_bytes: ReadBytes, data: bytes, reason: str) -> None:
    assert read_bytes("a.odt", data).reasons == [("a.odt", reason)]


LONG = [
    "* = \\section{",
    "\\item ",
    " ",
    "}",
    "* a" + " " * 50,
    "\\label{",
    ":",
    "=",
    "`",
    "$",
    "{\\'a",
    "\\' ",
    "\n////",
]


@pytest.mark.parametrize("name", ["a.tex", "a.org", "a.adoc"])
@pytest.mark.parametrize("line", LONG)
def test_long_lines_take_linear_time(read_bytes: ReadBytes, name: str, line: str) -> None:
    assert read_bytes(name, "== x\n* " + line * 40_000 + "x").documents  # quadratic time would be minutes


def test_commands_that_a_latex_file_defines_as_words_are_words(read_bytes: ReadBytes) -> None:
    text = (
        "\\newcommand{\\ferry}{Night Heron}\\def\\pier{Pier 4}\\renewcommand\\two[2]{#1}% \\newcommand{\\no}{x}\n"
        "\\title{The ferry}\\author{Ada}\n\\begin{document}\nThe \\ferry{} and \\pier, \\ferryman{} \\no\n"
        "\\begin{verbatim}\n\\ferry\n\\end{verbatim}\n\\end{document}\n"
    )

    (document,) = read_bytes("a.tex", text).documents

    assert document.text == "The Night Heron and Pier 4, \\ferryman{} \\no\n```\n\\ferry\n```"
    assert document.metadata == {"title": "The ferry", "author": "Ada"}


def test_captions_and_tags_of_an_org_file_are_kept(read_bytes: ReadBytes) -> None:
    (document,) = read_bytes(
        "a.org", "#+TITLE: Ferries\n#+FILETAGS: :night:day:\n#+CAPTION: Two ferries\n| a | b |\n"
    ).documents

    assert document.text == "Two ferries\n| a | b |"
    assert document.metadata == {"title": "Ferries", "tags": "night day"}


@pytest.mark.parametrize(
    ("name", "text", "words", "kinds"),
    [
        (
            "a.tex",
            "% draft one\n\\documentclass{article}\n\\title{Lakes} \\date{12 May}\n\\begin{document}\n"
            "Deep. % really so\n\\begin{comment}\nnot yet\n\\end{comment}\n\\begin{verbatim}\n% kept\n\\end{verbatim}\n"
            "\\end{document}\nold words here",
            "Deep. ``` % kept ```",
            {"words of comments in sources": 9, "words of settings": 1},
        ),
        ("b.tex", "Deep 5 \\% % of all\n", "Deep 5 \\%", {"words of comments in sources": 2}),
        (
            "a.org",
            "#+TITLE: Lakes\n#+OPTIONS: toc nil\n* TODO [#A] Deep :work:\n:PROPERTIES:\n:CLIENT: Bell\n:END:\n"
            "# not so\n#+begin_comment\nnor so\n#+end_comment\n#+begin_src\n# kept\n#+end_src\n",
            "# Deep ``` # kept ```",
            {"words of comments in sources": 4, "words of settings": 7},
        ),
        (
            "a.adoc",
            "= Lakes\n:author: Ada\n:client: Bell Ltd\n\n// not so\n////\nnor so\n////\nDeep.\n",
            "# Lakes Deep.",
            {"words of comments in sources": 4, "words of settings": 2},
        ),
    ],
    ids=["LaTeX", "no preamble", "Org", "AsciiDoc"],
)
def test_comments_and_settings_are_counted(
    name: str, text: str, words: str, kinds: dict[str, int], read_bytes: ReadBytes
) -> None:
    found = read_bytes(name, text)

    assert [each.split() for each in found.texts] == [words.split()]
    assert found.kinds == kinds


def test_a_date_of_latex_in_words_is_metadata(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.tex", "\\date{12 May 2026}\n\\begin{document}Deep.\\end{document}")
    today = read_bytes("b.tex", "\\date{\\today}\n\\begin{document}Deep.\\end{document}")

    assert (found.documents[0].metadata, found.kinds) == ({"date": "12 May 2026"}, {})
    assert (today.documents[0].metadata, today.kinds) == ({}, {"words of settings": 1})
