"""Files become Drafts: documents with their hash, in the order of the files, cut when somebody asks for it.

    Sources, options, Cutter -> (Source, its Drafts), one file after the other

What the index holds is not known here, nor which documents are wanted.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass

from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.readers.registry import read_file
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, OnSkip, plain
from ragidx.corpora.sources import Source
from ragidx.indexer.digests import digest
from ragidx.pipelines.ingest.workers.chunks import Cutter, Draft


def _never(source: Source) -> bool:
    return False


@dataclass(frozen=True)
class Files:
    """Reads files in this process.

    Args:
        options: which fields are taken, and bounds.
        layouts: of earlier builds; takes those of this one.
        cutter: of the drafts.
        on_skip: called for each skip, while the drafts of its file are iterated.
        on_read: called with the bytes that were read since its last call, in all the sizes of the files.
    """

    options: ReadOptions
    layouts: Layouts
    cutter: Cutter
    on_skip: OnSkip
    on_read: Callable[[int], None] = lambda n_bytes: None

    def drafts(
        self, sources: Iterable[Source], is_known: Callable[[Source], bool] = _never
    ) -> Iterator[tuple[Source, Generator[Draft]]]:
        """Each file with its drafts; one whose drafts are not iterated is not opened.

        Args:
            sources: the files.
            is_known: whether a file will probably not be asked for its drafts; here nothing is read ahead.
        """
        for source in sources:
            yield source, self.of(source)

    def of(self, source: Source) -> Generator[Draft]:
        """The drafts of a file."""
        file = SourceFile(source=source, options=self.options, on_skip=self.on_skip, layouts=self.layouts)
        for document in read_file(file, self.on_read):
            doc_hash = document_hash(document)
            n_chars = 0 if document.text.isspace() else len(document.text)
            cut = functools.partial(self.cutter.cut, document, doc_hash, source.owner)
            yield Draft(document.id, doc_hash, n_chars, cut, source.owner)


def document_hash(document: Document) -> bytes:
    """Of everything a document's rows hold: two documents with the same one are cut alike."""
    metadata = json.dumps(plain(document.metadata), sort_keys=True, default=str)
    place = "" if document.line in (None, 1) else f"{document.line}\0"
    place += f"{json.dumps(document.places)}\0" if document.places else ""
    place += f"{document.heading}\0" if document.heading else ""
    return digest(f"{place}{document.markdown}\0{metadata}\0{document.text}")
