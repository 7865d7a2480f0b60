"""A file becomes Drafts: its documents, each with its hash, cut by nobody yet.

What the index holds is not known here, nor which documents are wanted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.readers.registry import OnRead, read_file
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, OnSkip
from ragidx.corpora.sources import Source
from ragidx.corpora.whole_documents import values_to_json
from ragidx.indexer.digests import digest
from ragidx.pipelines.ingest.workers.chunks import Draft


def drafts_of(
    source: Source,
    options: ReadOptions,
    layouts: Layouts,
    on_skip: OnSkip,
    on_read: OnRead,
    tesseract: Callable[[bytes, str], str] | None = None,
) -> Iterator[Draft]:
    """Read a file in this process; the arguments are those of `Spread` and `SourceFile`."""
    file = SourceFile(source=source, options=options, on_skip=on_skip, layouts=layouts, tesseract=tesseract)
    for document in read_file(file, on_read):
        n_chars = 0 if document.text.isspace() else len(document.text)
        yield Draft(document.id, document_hash(document), n_chars, source.owner, document)


def document_hash(document: Document) -> bytes:
    """The hash of everything that a document's rows hold: two documents with the same one are cut alike."""
    metadata = json.dumps(values_to_json(document.metadata), sort_keys=True, default=str)
    place = "" if document.line in (None, 1) else f"{document.line}\0"
    place += f"{json.dumps(document.places)}\0" if document.places else ""
    place += f"{document.heading}\0" if document.heading else ""
    return digest(f"{place}{document.markdown}\0{metadata}\0{document.text}")
