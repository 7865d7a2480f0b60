"""Files become Documents: which reader reads which ending, and the walk over a whole corpus.

    corpus path -> sources -> Documents, one at a time; skips go to `on_skip`

A reader is a function from a SourceFile to its Documents; it raises `UnreadableError` for a file and calls `file.skip`
for a part of one. Other packages add readers by an entry point of the group `ragidx.readers`, named after the ending.
Chunks, models and vectors are not known here.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TypeAlias

from ragidx.corpora.errors import check_machine
from ragidx.corpora.limits import Limits, ReadOptions, UnreadableError
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.readers.packed import office
from ragidx.corpora.readers.packed.office import OfficeConverter
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, OnSkip, Skip
from ragidx.corpora.sources import Source, sources

__all__ = [
    "ENTRY_POINTS",
    "READERS",
    "Limits",
    "ReadOptions",
    "Reader",
    "SourceFile",
    "UnreadableError",
    "added_endings",
    "documents",
    "read",
]

Reader: TypeAlias = Callable[[SourceFile], Iterator[Document]]

ENTRY_POINTS = "ragidx.readers"

_DEFAULTS = ReadOptions()

_TEXT_ENDINGS = """
    .txt .text .log .tex .bib .org .adoc .xml .yaml .yml .toml .ini .cfg .py .pyi .c .h .cc .cpp .hpp .cs .go .rs .java
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
    ".parquet": "records.columnar:read_parquet",
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "records.columnar:read_arrow"),
    **dict.fromkeys(office.ENDINGS, "text:read_office"),
    **dict.fromkeys(_TEXT_ENDINGS.split(), "text:read_text"),
}
"""Reader by ending, lower case, below `.gz` and `.zst`. Any other file is read as text if it looks like text."""


def documents(
    corpus: Path | str,
    options: ReadOptions = _DEFAULTS,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    indexes: Sequence[str] = (),
    on_skip: OnSkip,
    on_source: Callable[[Source], bool] = lambda source: True,
    layouts: Layouts | None = None,
) -> Iterator[Document]:
    """The Documents of a folder, a file, or standard input (`-`), streaming.

    A BEIR folder (`corpus.jsonl` beside `queries.jsonl` or `qrels/`) is its corpus file alone: ids are the bare `_id`,
    so that qrels and runs fit, and the text is title, space, text, as BEIR joins them.

    Args:
        corpus: a folder, a file, or `-`.
        options: which fields to take, and bounds.
        include: gitignore-style globs; a file is kept if one matches. Not used in a BEIR folder.
        exclude: the same, for what to skip.
        indexes: folders that are skipped as indexes, as in `sources`.
        on_skip: called for each skip.
        on_source: called before a file is read; False: it is skipped without a report.
        layouts: those of earlier builds; takes those of this one.

    Raises:
        CorpusError: there is no such corpus.
        SpecError: a glob is not valid.
    """
    found = sources(corpus, include=include, exclude=exclude, indexes=indexes, beir=True, on_skip=on_skip)
    return _documents(filter(on_source, found), options, on_skip, layouts or Layouts())


def read(
    source: Source, options: ReadOptions = _DEFAULTS, *, on_skip: OnSkip, layouts: Layouts | None = None
) -> Iterator[Document]:
    """The Documents of one file. Its faults are reported, never raised."""
    return _documents(iter([source]), options, on_skip, layouts or Layouts())


def is_structured(name: str) -> bool:
    """Whether a file holds records, so that what a user says of fields is about it."""
    plain = name.lower().removesuffix(".gz").removesuffix(".zst")
    return READERS.get(Path(plain).suffix, "").startswith("records.")


def _documents(found: Iterator[Source], options: ReadOptions, on_skip: OnSkip, layouts: Layouts) -> Iterator[Document]:
    with OfficeConverter(options.limits) as converter:
        for source in found:
            yield from _read(source, options, on_skip, converter, layouts)


def _read(
    source: Source, options: ReadOptions, on_skip: OnSkip, converter: OfficeConverter, layouts: Layouts
) -> Iterator[Document]:
    reported = False

    def report(skip: Skip) -> None:
        nonlocal reported
        reported = True
        on_skip(skip)

    file = SourceFile(source=source, options=options, on_skip=report, office=converter, layouts=layouts)
    try:
        for document in _reader(file)(file):
            reported = True
            yield document
    except UnreadableError as fault:
        check_machine(fault, source.name, source.path)  # a file that is left out leaves the index
        file.skip(str(fault))
    except OSError as fault:
        check_machine(fault, source.name, source.path)
        file.skip(f"cannot be read: {fault.strerror or fault}")
    if not reported:
        file.skip("holds no document")


def _reader(file: SourceFile) -> Reader:
    if file.source.path is None:
        return _function("records.jsonl:read_standard_input")
    if file.ending in READERS:
        return _function(READERS[file.ending])
    added = _added_readers().get(file.ending)
    if added is None:
        return _function("text:read_unknown")
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
