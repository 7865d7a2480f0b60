"""How a build reads its corpus, and what follows from a document before anything is encoded.

    corpus, index, options -> Sources, Drafts of documents; encoder -> Chunker

A build and a plan read by the same rules, and refuse a corpus without documents in the same words. Nothing is
written here, and no model is loaded.
"""

from __future__ import annotations

import dataclasses
import functools
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.errors import CorpusError, IndexFormatError, SpecError
from ragidx.corpora.language import LANGUAGE
from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.readers.registry import OnRead
from ragidx.corpora.records import Document, OnSkip, Skip
from ragidx.corpora.sources import Source, sources
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.specs import holds_precomputed
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import MANIFEST
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.store.lookup import program_documents
from ragidx.indexer.store.manifest import Manifest, NewerFormatError, OlderFormatError, read_manifest
from ragidx.indexer.store.source_list import SourceEntry, sources_of
from ragidx.pipelines.ingest.options import BuildOptions
from ragidx.pipelines.ingest.report import Progress, Skips
from ragidx.pipelines.ingest.workers.chunks import Cutter, Draft, Item, cut_ahead, program_draft
from ragidx.pipelines.ingest.workers.spread import Spread

if TYPE_CHECKING:
    from ragidx.indexer.encoders import Encoder
    from ragidx.indexer.filters.fitting import DocumentSample

OnWalkSkip: TypeAlias = Callable[[Skip, int], None]
"""Called with what the walk skips, and the number of the source."""

_LOST = "a program's documents cannot be read"
LAYOUTS = "fields"  # in the notes of a manifest

_UNLIMITED = 1 << 30
_GUARDED_FROM = 10  # documents of an index: of fewer, a build may remove most


@dataclass(frozen=True)
class CorpusSelection:
    """What a build reads.

    Attributes:
        entries: the sources of the index after the build.
        names: names of the sources that are read now.
        paths: paths of these sources by name, as they were typed, for messages; empty for one that is gone.
    """

    entries: tuple[SourceEntry, ...]
    names: tuple[str, ...]
    paths: Mapping[str, str | Path] = field(default_factory=dict)

    @property
    def selected(self) -> tuple[SourceEntry, ...]:
        """The sources that are read now."""
        return tuple(entry for entry in self.entries if entry.name in self.names)

    def roots(self, index: Path) -> list[tuple[str | Path, SourceEntry]]:
        """The places of the sources."""
        places = [(self.paths.get(entry.name, entry.root(index)), entry) for entry in self.selected]
        return [(path, entry) for path, entry in places if path != ""]


def sources_at(path: str | Path, entry: SourceEntry, index: Path, on_skip: OnWalkSkip) -> Iterator[Source]:
    """The files of a source that is at this path, named with its prefix; nothing is opened."""

    def skip(found: Skip) -> None:
        on_skip(dataclasses.replace(found, where=f"{entry.prefix}{found.where}"), entry.number)

    found = sources(
        path,
        include=entry.include,
        exclude=entry.exclude,
        indexes=index_in(path, index),
        beir=not entry.prefix,
        on_skip=skip,
    )
    for source in found:
        yield dataclasses.replace(source, name=f"{entry.prefix}{source.name}", owner=entry.number)


@dataclass(frozen=True)
class Reading:
    """A corpus as the options of a build select it.

    Args:
        corpus: a folder, a file, a BEIR folder, or `-` for standard input; as it is named in messages.
        index: the index folder, which is skipped where it is in the corpus.
        options: options of the build.
        selection: the sources of the index, and which of them are read.
        notes: notes of the manifest of the index that is updated; empty where there is none.
    """

    corpus: str | Path
    index: Path
    options: BuildOptions
    selection: CorpusSelection
    notes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def alone(cls, corpus: str | Path, index: Path, options: BuildOptions) -> Reading:
        """A corpus that belongs to no index; `index` is not read where it is in the corpus."""
        entry = SourceEntry(number=0, name="", path="", include=options.include, exclude=options.exclude)
        return cls(corpus, index, options, CorpusSelection((entry,), ("",), {"": corpus}))

    @property
    def read_options(self) -> ReadOptions:
        """What is taken from structured files."""
        o = self.options
        return ReadOptions(text_field=o.text_field, id_field=o.id_field, records=o.records, fields=o.fields)

    @functools.cached_property
    def layouts(self) -> Layouts:
        """How structured files are read: as the index that is updated has it."""
        return Layouts.from_json(self.notes.get(LAYOUTS))

    @property
    def language(self) -> bool:
        """Whether documents get the field `language`: as asked, else as the index that is updated has it."""
        return self._had_language if self.options.language is None else self.options.language

    @property
    def changes_language(self) -> bool:
        """Whether the documents of the index that is updated need other metadata."""
        return self.language != self._had_language

    @property
    def _had_language(self) -> bool:
        return bool(self.notes.get(LANGUAGE))

    def roots(self) -> list[tuple[str | Path, SourceEntry]]:
        """Where the sources are that are read."""
        return self.selection.roots(self.index)

    def sources(self, on_skip: OnWalkSkip = lambda skip, owner: None) -> Iterator[Source]:
        """The files that are read; nothing is opened."""
        for path, entry in self.roots():
            yield from sources_at(path, entry, self.index, on_skip)

    def files(
        self,
        cutter: Cutter | None,
        on_skip: OnSkip,
        on_read: OnRead = lambda n_bytes, n_pages=0: None,
        known: NDArray[np.void] | None = None,
    ) -> Spread:
        """What reads them; the arguments are those of `Spread`."""
        return Spread(
            self.read_options, self.layouts, on_skip, on_read, cutter=cutter, workers=self.options.workers, known=known
        )

    def program_drafts(self, on_skip: OnSkip) -> Iterator[Draft]:
        """The documents of the index that a program added."""
        return map(program_draft, stored_documents(self.index, on_skip, may_lose=self.options.allow_removal))

    def drafts(
        self, cutter: Cutter | None, on_skip: OnSkip, on_read: OnRead = lambda n_bytes, n_pages=0: None
    ) -> Iterator[Draft]:
        """All documents that an index is made of, streaming; the arguments are those of `Spread`."""
        if self.options.rebuild:
            yield from self.program_drafts(on_skip)
        files = self.sources(lambda skip, owner: on_skip(skip))
        for _, drafts in self.files(cutter, on_skip, on_read).drafts(files):
            yield from drafts

    def sample(self, drawn: DocumentSample[Draft], cutter: Cutter, skips: Skips, progress: Progress) -> list[Item]:
        """The chunks of documents with the lowest random keys, whatever the order of files.

        Raises:
            CorpusError: there is no document.
        """
        for draft in self.drafts(None, skips.add):
            drawn.add(draft.id, draft.n_chars, draft)
            progress.tell()
        self.check_something_was_read(drawn.n_added, skips)
        return [item for items in cut_ahead(drawn.items(), cutter) for item in items]

    def total_bytes(self) -> int:
        """What there is to read, by sizes alone; 0 where it is unknown (standard input)."""
        return sum(source.size for source in self.sources())

    def check_something_was_read(self, n_documents: int, skips: Skips) -> None:
        """Whether there is anything to index.

        Raises:
            CorpusError: there is not; the message says what was skipped instead.
        """
        if n_documents:
            return
        is_index = (self.index / MANIFEST).is_file()
        kept = "; the index is unchanged, to empty it use `ragidx delete`" if is_index else ""
        if not skips.counts and not skips.lost:
            hint = f"name a folder with documents{kept}"
            raise CorpusError("the corpus is empty: there is no file in it", hint, where=str(self.corpus))
        raise CorpusError(
            f"the corpus has no readable document ({skips.shown()})",
            f"see `ragidx build --help` for the formats; `include` and `exclude` choose files{kept}",
            where=str(self.corpus),
        )


def stored_documents(index: Path, on_skip: OnSkip, *, may_lose: bool) -> Iterator[Document]:
    """The documents of an index that a program added; none where there is no index, or one of an older format.

    Raises:
        IndexFormatError: they cannot be read. If the build `may_lose` them, that is one skip instead.
    """
    manifest = None
    try:
        manifest = committed_or_none(index)
        if manifest is not None and _n_of_program(manifest, index):
            yield from program_documents(Store.open(index))
    except NewerFormatError:
        raise
    except OlderFormatError:
        return
    except IndexFormatError as fault:
        if manifest is None and _copies_have_none(index):
            return
        if not may_lose:
            hint = "put the file back from a copy, or give `allow_removal=True` to build without these documents"
            raise IndexFormatError(f"{_LOST}: {fault.message}", hint, where=fault.where) from fault
        on_skip(Skip(fault.where, f"{_LOST}: {fault.message}"))


def _n_of_program(manifest: Manifest, index: Path) -> int:
    """How many documents of an index a program added."""
    if holds_precomputed(manifest.spec):
        return 0
    return manifest.n_documents - sum(entry.n_documents for entry in sources_of(manifest.notes, index))


def _copies_have_none(index: Path) -> bool:
    """Whether all copies of manifests say that a program added no document; False where one cannot be read."""
    try:
        copies = [read_manifest(index, path.name) for path in index.glob("manifest.*.json")]
        return bool(copies) and not any(_n_of_program(manifest, index) for manifest in copies)
    except (IndexFormatError, OSError):
        return False


def check_removal(n_removed: int, n_before: int, where: str | Path, noun: str = "documents") -> None:
    """Whether a build may remove what its corpus does not have: one of another corpus would empty the index.

    Raises:
        SpecError: more than half of ten documents or more are removed.
    """
    if n_before >= _GUARDED_FROM and 2 * n_removed > n_before:
        raise SpecError(
            f"this build would remove {n_removed:,} of {n_before:,} {noun}",
            "use another `index` for this corpus, `allow_removal=True` if they are really gone, "
            "or `rebuild=True` to replace the index",
            where=str(where),
        )


def index_in(corpus: str | Path, index: Path) -> tuple[str, ...]:
    """The name of the index below the corpus, as the walk names folders, where it is there; else nothing."""
    folder, own = Path(corpus).resolve(), index.resolve()
    if own == folder or not own.is_relative_to(folder):
        return ()
    return (unicodedata.normalize("NFC", own.relative_to(folder).as_posix()),)


def chunker_of(encoder: Encoder, spec: ChunkSpec) -> Chunker:
    """What cuts documents so that the encoder reads each chunk whole."""
    limit = encoder.text_limit()
    limit = _UNLIMITED if limit is None else limit
    return Chunker(spec, encoder.tokenizer.counter, limit=limit, takes_ids=encoder.takes_ids)
