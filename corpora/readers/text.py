"""Plain text, Markdown, reStructuredText, and office files once they are Markdown: one Document a file.

    text -> Document(name, text, metadata)

Markdown: front matter becomes metadata and leaves the text; the title is its `title`, else the first heading.
reStructuredText: the field list at the top or right below the title becomes metadata; the title is the first section's.
The rest of the text is unchanged but for newlines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ragidx.corpora.headings import first_heading
from ragidx.corpora.limits import UnreadableError, read_all
from ragidx.corpora.readers.decoding import is_text
from ragidx.corpora.readers.encoded import is_not_written
from ragidx.corpora.readers.fields import check_text, from_text, from_value, metadata_of
from ragidx.corpora.readers.front_matter import front_matter
from ragidx.corpora.readers.office.converter import SCANS, convert, unread
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, Scalar

if TYPE_CHECKING:
    from ragidx.corpora.readers.ocr.pages import Scans

_TOP_CHARS = 1 << 16  # field lists are looked for here
_SNIFFED_BYTES = 1 << 13

_MARKS = r"([!-/:-@\[-`{-~])"
_RST_BLANK = re.compile(r"(?:\.\.(?:[ \t].*)?\n(?:[ \t].*\n)*|[ \t]*\n)*")  # comments, labels and directives, too
_RST_FIELDS = re.compile(r"(?::[^\s:][^:\n]{0,99}:(?:[ \t].*)?(?:\n[ \t]+\S.*)*(?:\n|\Z))+")
_RST_FIELD = re.compile(r"^:([^\s:][^:\n]{0,99}):(.*(?:\n[ \t].*)*)", re.MULTILINE)
_RST_OVERLINED = re.compile(rf"({_MARKS}\2{{2,}})[ \t]*\n(?P<title>[^\S\n]*\S.*)\n\1[ \t]*(?:\n|\Z)")
_RST_UNDERLINED = re.compile(rf"(?!{_MARKS}\1{{2,}}[ \t]*\n)(?P<title>\S.*)\n{_MARKS}\3{{2,}}[ \t]*(?:\n|\Z)")


def read_text(file: SourceFile) -> Iterator[Document]:
    """The file's text, unless it is code that no person wrote."""
    text = file.decoded(file.data(file.limits.document_bytes))
    if reason := is_not_written(text, file.ending):
        raise UnreadableError(reason)
    yield _document(file, text, {}, text)


def read_unknown(file: SourceFile) -> Iterator[Document]:
    """A file with an unknown ending: its text if its first bytes look like text."""
    with file.stream() as stream:  # once: a member of an archive cannot be read twice
        sample = stream.read(_SNIFFED_BYTES)
        if not file.fields.encoding and not is_text(sample):
            raise UnreadableError(unread(file.ending))
        text = file.decoded(read_all(stream, file.limits.document_bytes, sample))
    yield _document(file, text, {}, text)


def read_markdown(file: SourceFile) -> Iterator[Document]:
    """The text below the front matter."""
    text = file.decoded(file.data(file.limits.document_bytes))
    fields, body, is_guess = front_matter(text)
    file.leave("front matter that is no YAML", is_guess)
    metadata = metadata_of(fields, lambda _, value: from_value(value), file.skip)
    if "title" not in metadata and (title := first_heading(body)):
        metadata["title"] = title
    yield _document(file, body, metadata, text, markdown=True)


def read_rst(file: SourceFile) -> Iterator[Document]:
    """The text without its field list."""
    text = file.decoded(file.data(file.limits.document_bytes))
    title, fields, body = docinfo(text)
    metadata = {name: value for name, raw in fields.items() if (value := from_text(raw)) is not None}
    if title:
        metadata.setdefault("title", title)
    yield _document(file, body, metadata, text)


def read_office(file: SourceFile) -> Iterator[Document]:
    """A PDF or office file."""
    scans = scans_of(file)
    with file.path() as path:
        found = convert(path, file.ending, file.limits, scans)
    file.read_by_ocr = {} if scans is None else scans.fields
    for where, reason in found.skips:
        file.skip(reason, where)
    file.left.take(found.left)
    check_text(found.text)
    title, author, said = found.about
    heading = first_heading(found.text) if file.ending in (".docx", ".docm", ".dotx", ".dotm") else ""
    if heading and title not in ("", heading):
        file.leave("titles in properties")
    fields = {**said, "title": heading or title, "author": author}
    metadata = metadata_of(fields, lambda _, value: from_value(value or None), file.skip)
    yield Document(file.doc_id(), found.text, metadata, found.markdown, places=found.places)


def scans_of(file: SourceFile) -> Scans | None:
    """What reads the scanned pages of a file; None: they are not read."""
    if file.fields.ocr is None or file.ending not in SCANS:
        return None
    from ragidx.corpora.readers.ocr.engines import tesseract
    from ragidx.corpora.readers.ocr.pages import Scans

    return Scans(file.fields.ocr, file.limits, file.tesseract or tesseract, file.on_page)


def _document(
    file: SourceFile, text: str, metadata: Mapping[str, Scalar], whole: str, *, markdown: bool = False
) -> Document:
    """The document; `whole` is the text of the file. Its lines are counted where `text` is the end of it."""
    check_text(text)
    line = 1 + whole.count("\n", 0, len(whole) - len(text)) if whole.endswith(text) else None
    return Document(file.doc_id(), text, metadata, markdown, line)


def docinfo(text: str) -> tuple[str, dict[str, str], str]:
    r"""Title, field list and the text without that list, of a reStructuredText document.

    >>> docinfo("Pulsars\n=======\n\n:year: 1967\n\nA star.\n")
    ('Pulsars', {'year': '1967'}, 'Pulsars\n=======\n\nA star.\n')
    """
    at = _behind_blank(text, 0)
    found = _RST_FIELDS.match(text, at, _TOP_CHARS)
    at = _behind_blank(text, found.end()) if found else at
    title = _RST_OVERLINED.match(text, at, _TOP_CHARS) or _RST_UNDERLINED.match(text, at, _TOP_CHARS)
    if title and not found:
        found = _RST_FIELDS.match(text, _behind_blank(text, title.end()), _TOP_CHARS)
    name = title["title"].strip() if title else ""
    if not found:
        return name, {}, text
    fields: dict[str, str] = {}
    for field in _RST_FIELD.finditer(found[0]):
        fields.setdefault(field[1], " ".join(field[2].split()))
    return name, fields, text[: found.start()] + text[found.end() :].lstrip("\n")


def _behind_blank(text: str, at: int) -> int:
    found = _RST_BLANK.match(text, at, _TOP_CHARS)
    return found.end() if found else at
