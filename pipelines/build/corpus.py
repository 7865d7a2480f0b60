"""How a build reads its corpus, and what follows from a document before anything is encoded.

    corpus, index, options -> Sources, Documents; encoder -> Chunker; items -> those that the model does not read whole

A build and a forecast read by the same rules, and refuse a corpus without documents in the same words. Nothing is
written here, and no model is loaded.
"""

from __future__ import annotations

import functools
import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.errors import CorpusError, SpecError, is_panic, panics_of
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.readers.registry import ReadOptions, documents
from ragidx.corpora.records import Document, OnSkip, plain
from ragidx.corpora.sources import Source, sources
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.digests import digest
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.store.manifest import MANIFEST
from ragidx.pipelines.build.chunks import Item
from ragidx.pipelines.build.options import BuildOptions
from ragidx.pipelines.build.report import Skips

if TYPE_CHECKING:
    from ragidx.indexer.encoders.protocol import Encoder

LAYOUTS = "fields"  # in the notes of a manifest

_UNLIMITED = 1 << 30
_GUARDED_FROM = 10  # documents of an index: of fewer, a build may remove most


def _every(source: Source) -> bool:
    return True


@dataclass(frozen=True)
class Reading:
    """A corpus as the options of a build select it.

    Args:
        corpus: a folder, a file, a BEIR folder, or `-` for standard input.
        index: the index folder, which is skipped where it is in the corpus.
        options: of the build.
    """

    corpus: str | Path
    index: Path
    options: BuildOptions

    @property
    def read_options(self) -> ReadOptions:
        """What is taken from structured files."""
        o = self.options
        return ReadOptions(text_field=o.text_field, id_field=o.id_field, records=o.records)

    @functools.cached_property
    def layouts(self) -> Layouts:
        """How structured files are read: as the index that is updated has it."""
        manifest = None if self.options.rebuild else committed_or_none(self.index)
        return Layouts() if manifest is None else Layouts.from_json(manifest.notes.get(LAYOUTS))

    def sources(self, on_skip: OnSkip) -> Iterator[Source]:
        """The files that are read; nothing is opened."""
        o = self.options
        own = index_in(self.corpus, self.index)
        return sources(self.corpus, include=o.include, exclude=o.exclude, indexes=own, beir=True, on_skip=on_skip)

    def documents(self, on_skip: OnSkip, on_source: Callable[[Source], bool] = _every) -> Iterator[Document]:
        """The Documents, streaming; of the files that `on_source` accepts."""
        return documents(
            self.corpus,
            self.read_options,
            include=self.options.include,
            exclude=self.options.exclude,
            indexes=index_in(self.corpus, self.index),
            on_skip=on_skip,
            on_source=on_source,
            layouts=self.layouts,
        )

    def total_bytes(self) -> int:
        """What there is to read, by sizes alone; 0 where it is unknown (standard input)."""
        if str(self.corpus) == "-":
            return 0
        return sum(source.size for source in self.sources(lambda _: None))

    def check_something_was_read(self, n_documents: int, skips: Skips) -> None:
        """Whether there is anything to index.

        Raises:
            CorpusError: there is not; the message says what was skipped instead.
        """
        if n_documents:
            return
        is_index = (self.index / MANIFEST).is_file()
        kept = "; the index is unchanged, to empty it use `ragidx delete`" if is_index else ""
        if not skips.total():
            hint = f"name a folder with documents{kept}"
            raise CorpusError("the corpus is empty: there is no file in it", hint, where=str(self.corpus))
        raise CorpusError(
            f"the corpus has no readable document ({skips.shown()})",
            f"see `ragidx build --help` for the formats; `include` and `exclude` choose files{kept}",
            where=str(self.corpus),
        )


def check_removal(n_removed: int, n_before: int, index: Path, noun: str = "documents") -> None:
    """Whether a build may remove what its corpus does not have: one of another corpus would empty the index.

    Args:
        n_removed: documents that are only in the index.
        n_before: documents that the index has.
        index: its folder.
        noun: what is counted.

    Raises:
        SpecError: they are more than half of an index of ten documents or more.
    """
    if n_before >= _GUARDED_FROM and 2 * n_removed > n_before:
        raise SpecError(
            f"this build would remove {n_removed:,} of {n_before:,} {noun}",
            "use another `index` for this corpus, `allow_removal=True` if they are really gone, "
            "or `rebuild=True` to replace the index",
            where=str(index),
        )


def index_in(corpus: str | Path, index: Path) -> tuple[str, ...]:
    """The name of the index below the corpus, as the walk names folders, where it is there; else nothing."""
    folder, own = Path(corpus).resolve(), index.resolve()
    if own == folder or not own.is_relative_to(folder):
        return ()
    return (unicodedata.normalize("NFC", own.relative_to(folder).as_posix()),)


def document_hash(document: Document) -> bytes:
    """Of everything a document's rows hold."""
    metadata = json.dumps(plain(document.metadata), sort_keys=True, default=str)
    place = "" if document.line in (None, 1) else f"{document.line}\0"  # as older versions had it
    heading = f"{document.heading}\0" if document.heading else ""  # likewise
    return digest(f"{place}{heading}{document.markdown}\0{metadata}\0{document.text}")


def chunker_of(encoder: Encoder, spec: ChunkSpec) -> Chunker:
    """What cuts documents so that the encoder reads each chunk whole."""
    limit = encoder.text_limit()
    return Chunker(spec, encoder.tokenizer.texts, limit=_UNLIMITED if limit is None else limit)


def too_long(items: Sequence[Item], encoder: Encoder, spec: ChunkSpec) -> list[Item]:
    """Whole documents may be longer than the model reads; chunks never are, the chunker sees to that."""
    limit = encoder.text_limit()
    if spec.size is not None or limit is None:
        return []
    tokenizer, heads = encoder.tokenizer, []
    for item in items:
        with panics_of("tokenizers", item.row.doc_id):
            heads.append(tokenizer.head(item.text, limit))
    try:
        lengths = tokenizer.ids(heads)
    except BaseException as fault:
        if is_panic(fault):  # of which text it does not say
            for item, head in zip(items, heads, strict=True):
                with panics_of("tokenizers", item.row.doc_id):
                    tokenizer.ids([head])
        raise
    return [item for item, ids in zip(items, lengths, strict=True) if len(ids) > limit]
