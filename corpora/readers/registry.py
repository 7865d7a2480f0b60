"""Files become Documents: which reader reads which ending, and the walk over a whole corpus.

    corpus path -> sources -> Documents, one at a time; skips go to `on_skip`

A reader is a function from a SourceFile to its Documents; it raises `UnreadableError` for a file, calls `file.skip` for
a part of one and `file.leave` for what it leaves out of a document. Other packages add readers by an entry point of the
group `ragidx.readers`, named after the ending.
Chunks, models and vectors are not known here.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeAlias

from ragidx.corpora.errors import RagidxError, check_machine, first_line
from ragidx.corpora.left_out import Left
from ragidx.corpora.limits import ReadOptions, UnreadableError
from ragidx.corpora.readers.encoded import without_runs
from ragidx.corpora.readers.fields import NO_TEXT
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.readers.mail_lines import HEAD_BYTES, mail_ending
from ragidx.corpora.readers.office.converter import ENDINGS as OFFICE_ENDINGS
from ragidx.corpora.readers.office.converter import PICTURES, SCANS
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import OF_FILE, Document, OnSkip, Scalar, Skip
from ragidx.corpora.sources import EMPTY, Source, sources

Reader: TypeAlias = Callable[[SourceFile], Iterator[Document]]

OnRead: TypeAlias = Callable[..., None]
"""Called with bytes, and perhaps pages."""

ENTRY_POINTS = "ragidx.readers"

_DEFAULTS = ReadOptions()

_TEXT_ENDINGS = """
    .txt .text .log .bib .xml .yaml .yml .toml .ini .cfg .py .pyi .c .h .cc .cpp .hpp .cs .go .rs .java
    .kt .scala .swift .js .jsx .mjs .ts .tsx .rb .php .pl .lua .r .jl .hs .ml .ex .erl .clj .sh .bash .sql .css .scss
"""

# Module and function, so that the libraries of a format are imported when a corpus has a file of it.
READERS: dict[str, str] = {
    **dict.fromkeys((".md", ".markdown"), "text:read_markdown"),
    ".rst": "text:read_rst",
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html_page:read_html"),
    **dict.fromkeys((".jsonl", ".ndjson"), "records.jsonl:read_json_lines"),
    ".json": "records.jsonl:read_json",
    **dict.fromkeys((".csv", ".tsv"), "records.delimited:read_csv"),
    **dict.fromkeys((".parquet", ".arrow", ".feather", ".ipc"), "records.columnar:read_columns"),
    **dict.fromkeys(OFFICE_ENDINGS, "text:read_office"),
    ".ipynb": "records.notebook:read_notebook",
    ".eml": "packed.mail:read_eml",
    ".mbox": "packed.mail:read_mbox",
    ".msg": "packed.outlook:read_msg",
    ".epub": "packed.epub:read_epub",
    **dict.fromkeys((".srt", ".vtt"), "packed.subtitles:read_subtitles"),
    ".zip": "packed.archive:read_zip",
    ".tar": "packed.archive:read_tar",
    ".tex": "markup:read_tex",
    ".org": "markup:read_org",
    **dict.fromkeys((".adoc", ".asciidoc"), "markup:read_adoc"),
    **dict.fromkeys(_TEXT_ENDINGS.split(), "text:read_text"),
}
"""Reader by ending, lower case, below `.gz` and the like. Any other file is read as text if it looks like text.

What is read as text is mail where its first lines are the header of a message.
"""

_UNKNOWN = "text:read_unknown"
_MAY_BE_MAIL = frozenset({_UNKNOWN, "text:read_text"})
_PLAIN = frozenset(
    {
        *(*_MAY_BE_MAIL, "text:read_markdown", "text:read_rst"),
        *("records.jsonl:read_json_lines", "records.jsonl:read_json", "records.delimited:read_csv"),
        *("markup:read_tex", "markup:read_org", "markup:read_adoc", "packed.subtitles:read_subtitles"),
    }
)

_PACKED = ("packed.archive:", "packed.mail:", "packed.outlook:")


def documents(
    corpus: Path | str,
    options: ReadOptions = _DEFAULTS,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    on_skip: OnSkip,
    layouts: Layouts | None = None,
) -> Iterator[Document]:
    """The Documents of a folder, a file, or standard input (`-`), streaming; all are read in this process.

    A BEIR folder (`corpus.jsonl` or, as of ir_datasets, `docs.jsonl` or `docs.tsv` beside `queries` or `qrels`) is its
    corpus file alone: ids are the bare `_id` or `doc_id`, so that qrels and runs fit, and the text is title, space,
    text, as BEIR joins them.

    Args:
        corpus: a folder, a file, or `-`.
        options: options of reading: which fields to take, and bounds.
        include: gitignore-style globs; a file is kept if one matches. Not used in a BEIR folder.
        exclude: the same, for what to skip.
        on_skip: called for each skip.
        layouts: layouts of earlier builds; those of this one are added.

    Raises:
        CorpusError: there is no such corpus.
        SpecError: a glob is not valid.
    """
    layouts = layouts or Layouts()
    for source in sources(corpus, include=include, exclude=exclude, beir=True, on_skip=on_skip):
        yield from read_file(SourceFile(source=source, options=options, on_skip=on_skip, layouts=layouts))


def member_documents(
    outer: SourceFile, name: str, stream: BufferedReader[Any], size: int, *, record: str = ""
) -> Iterator[Document]:
    """The Documents of a file inside another, `outer`. Its faults are reported, never raised.

    Args:
        outer: an archive or a mail.
        name: name of the member, as `member_name` gives it.
        stream: bytes of the member, read once.
        size: size of the member in bytes.
        record: the record of `outer` that has the member: `#5`.
    """
    source = Source(None, f"{outer.source.name}{record}/{name}", size, status=outer.source.status)
    yield from _read(
        SourceFile(
            source=source,
            options=outer.options,
            on_skip=outer.on_skip,
            layouts=outer.layouts,
            tesseract=outer.tesseract,
            on_page=lambda share: outer.on_page(0.0),
            member=stream,
            depth=outer.depth + 1,
        )
    )


def said_of_fields(source: Source, options: ReadOptions) -> str:
    """What the user says of how a file is read, or of any file where it holds others; empty: nothing is about it."""
    file = _unread(source, options)
    place = READERS.get(file.ending, _UNKNOWN)
    if place.startswith("records."):
        own = file.fields._replace(ocr=None)
        return str(tuple(own)) if any(own) else ""
    if place in ("html_page:read_html", "packed.epub:read_epub"):
        return " ".join(filter(None, (file.fields.html, file.fields.encoding)))
    others = (item for item in options.fields.items() if item[0] != "ocr")
    said = (options.text_field, options.id_field, options.records, *others)
    may_hold = place.startswith(_PACKED) or place in _MAY_BE_MAIL  # a mail has attachments
    return str(said) if may_hold and any(said) else file.fields.encoding or ""


def said_of_scans(source: Source, options: ReadOptions) -> str:
    """What the user says of how the scanned pages of a file are read, or of any that it holds."""
    return str(options.fields.get("ocr") if is_packed(source) else _unread(source, options).fields.ocr)


def read_file(file: SourceFile, on_read: OnRead = lambda n_bytes, n_pages=0: None) -> Iterator[Document]:
    """The Documents of one file. Its faults are reported, never raised.

    `on_read` is called with the bytes that were read since its last call, in all the size of the file, and after each
    page that text recognition has read with 1.
    """
    n_read, size = 0, file.source.n_bytes

    def on_page(share: float) -> None:
        nonlocal n_read
        more = max(0, int(share * size) - n_read)
        n_read += more
        on_read(more, 1)

    file.on_page = on_page
    for document in _read(file):
        more = min(file.position, size) - n_read
        if more > 0:
            n_read += more
            on_read(more)
        yield document
    on_read(size - n_read)


def is_plain(source: Source) -> bool:
    """Whether a file is text that this package reads line by line: its parser can neither crash nor grow."""
    file = _unread(source, _DEFAULTS)
    return file.packing is None and (file.ending in _added_readers() or _unread_place(file) in _PLAIN)


def may_be_scanned(source: Source, options: ReadOptions) -> bool:
    """Whether text recognition may read pages of a file."""
    file = _unread(source, options)
    return file.fields.ocr is not None and (file.ending in SCANS or is_packed(source))


def is_streamed(source: Source) -> bool:
    """Whether a file is read record by record, however large it is."""
    place = READERS.get(_unread(source, _DEFAULTS).ending)
    return place in ("records.jsonl:read_json_lines", "records.delimited:read_csv")


def is_lines(source: Source, options: ReadOptions) -> bool:
    """Whether a file is JSON Lines of which a part can be read by itself, with a record a line."""
    file = _unread(source, options)
    reader = "" if file.ending in _added_readers() else READERS.get(file.ending)
    return reader == "records.jsonl:read_json_lines" and not file.packing and file.fields.records is None


def is_packed(source: Source) -> bool:
    """Whether a file holds others."""
    return _unread_place(_unread(source, _DEFAULTS)).startswith(_PACKED)


def is_named_packed(name: str) -> bool:
    """Whether a file of this name holds others."""
    return READERS.get(_unread(Source(None, name, 0), _DEFAULTS).ending, "").startswith(_PACKED)


def is_known(name: str, options: ReadOptions) -> bool:
    """Whether files of this name have a reader, pictures where they are to be read."""
    file = _unread(Source(None, name, 0), options)
    return file.ending in _added_readers() or (
        file.ending in READERS and not (file.ending in PICTURES and file.fields.ocr is None)
    )


def _unread(source: Source, options: ReadOptions) -> SourceFile:
    return SourceFile(source=source, options=options, on_skip=lambda skip: None)


def _read(file: SourceFile) -> Iterator[Document]:
    source, on_skip, reported = file.source, file.on_skip, False

    def report(found: Skip | Left) -> None:
        nonlocal reported
        reported = True
        on_skip(found)

    file.on_skip = report
    if source.path is not None and not source.size:
        file.skip(EMPTY)
        return
    try:
        read = _reader(file)
        fields = file.file_fields()  # now that it is known what it is
        for given in read(file):
            reported = True
            document, n_runs = (given, 0) if source.beir else without_runs(given)  # a collection's stay as they are
            file.leave("runs of encoded data", n_runs)
            if n_runs and not document.text.strip():
                file.skip("encoded data alone", document.id.removeprefix(source.name))
                continue
            yield document if document.file else _with_file(document, {**fields, **file.read_by_ocr})
    except UnreadableError as fault:
        check_machine(fault, source.name)  # the documents of a skipped file leave the index
        if str(fault) != NO_TEXT or not file.left.is_loss:  # that counts, and may be accepted
            file.skip(str(fault))
    except OSError as fault:
        check_machine(fault, source.name)
        file.skip(f"cannot be read: {fault.strerror or fault}")
    except RagidxError:
        raise
    except Exception as fault:  # noqa: BLE001  # whatever else a reader raises is a defect, which ends no build
        check_machine(fault, source.name)
        file.skip(f"a defect in its reader: {type(fault).__name__}: {first_line(fault)}")
    if not reported and source.span is None and not file.left.is_loss:
        file.skip("holds no document")
    if not file.left and reported and file.ending in _added_readers() and file.ending not in READERS:
        file.leave("files read by other packages")
    file.report_left()


def _with_file(document: Document, fields: Mapping[str, Scalar]) -> Document:
    """The document with the fields of its file; its own of these names are renamed."""
    metadata = document.metadata
    if not metadata.keys().isdisjoint(OF_FILE):
        metadata = {f"metadata.{name}" if name in OF_FILE else name: value for name, value in metadata.items()}
    return dataclasses.replace(document, metadata=metadata, file=fields)


def _place(file: SourceFile) -> str:
    """Which reader of this package reads a file, by its ending, or by its first lines.

    Raises:
        OSError, UnreadableError: those cannot be read.
    """
    place = READERS.get(file.ending, _UNKNOWN)
    if place in _MAY_BE_MAIL and (ending := mail_ending(file.head(HEAD_BYTES))):
        # What is behind the last dot of `1700000000.M1P1.host` is no ending.
        file.ending, place = ending, READERS[ending]
    return place


def _unread_place(file: SourceFile) -> str:
    """The same of a file that may be one that cannot be read: its reader says so."""
    try:
        return _place(file)
    except (OSError, UnreadableError):
        return _UNKNOWN


def _reader(file: SourceFile) -> Reader:
    if file.source.path is None and file.member is None:
        return _function("records.jsonl:read_standard_input")
    added = None if file.ending in READERS else _added_readers().get(file.ending)
    if added is None:
        return _function(_place(file))
    try:
        reader: Reader = added.load()
    except (ImportError, AttributeError) as fault:
        raise UnreadableError(f"the reader '{added.value}' cannot be loaded: {fault}") from fault
    return reader


def _function(place: str) -> Reader:
    module, name = place.split(":")
    reader: Reader = getattr(importlib.import_module(f"ragidx.corpora.readers.{module}"), name)
    return reader


def added_endings() -> tuple[str, ...]:
    """The endings, lower case, of readers in other packages."""
    return tuple(ending for ending in _added_readers() if ending not in READERS)


@functools.cache
def _added_readers() -> dict[str, EntryPoint]:
    """Readers in other packages, by ending; ragidx's own cannot be replaced."""
    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value), reverse=True)
    return {f".{point.name.lstrip('.').lower()}": point for point in found}
