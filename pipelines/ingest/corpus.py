"""How a build reads its corpus, and what follows from a document before anything is encoded.

    corpus, index, options -> Sources, Documents; encoder -> Chunker; items -> those that the model does not read whole

A build and a forecast read by the same rules, and refuse a corpus without documents in the same words. Nothing is
written here, and no model is loaded.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.errors import CorpusError, SpecError, is_panic, panics_of
from ragidx.corpora.language import LANGUAGE, check_language, language_finder
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.readers.registry import ReadOptions, read_all
from ragidx.corpora.records import Document, OnSkip, Skip, plain
from ragidx.corpora.sources import Source, sources
from ragidx.corpora.spec import CHUNKER, ChunkSpec
from ragidx.indexer.digests import digest
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.store.manifest import MANIFEST
from ragidx.pipelines.ingest.chunks import Item
from ragidx.pipelines.ingest.options import BuildOptions
from ragidx.pipelines.ingest.removal import TAKEN
from ragidx.pipelines.ingest.report import Skips

if TYPE_CHECKING:
    from ragidx.indexer.encoders.protocol import Encoder

CUT_HERE = digest(CHUNKER)[:4]
"""The end of a document's hash that was cut by the chunker of this version."""
LAYOUTS = "fields"  # in the notes of a manifest

_UNLIMITED = 1 << 30
_GUARDED_FROM = 10  # documents of an index: of fewer, a build may remove most


def _every(source: Source) -> bool:
    return True


@dataclass(frozen=True)
class Root:
    """A folder or file that a build reads.

    Args:
        path: a folder, a file, a BEIR folder, or `-` for standard input.
        prefix: what the ids of its documents begin with.
        include: globs, as in `sources`.
        exclude: the same.
        taken: prefixes of other sources, with which no path here may begin.
    """

    path: str | Path
    prefix: str = ""
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    taken: Sequence[str] = ()

    def sources(self, index: Path, on_skip: OnSkip) -> Iterator[Source]:
        """The files that are read, named with the prefix; nothing is opened."""
        found = sources(
            self.path,
            include=self.include,
            exclude=self.exclude,
            indexes=index_in(self.path, index),
            beir=not self.prefix,
            on_skip=lambda skip: on_skip(dataclasses.replace(skip, where=f"{self.prefix}{skip.where}")),
        )
        for source in found:
            if source.name.startswith(tuple(self.taken)):
                on_skip(Skip(source.name, TAKEN))
            else:
                yield dataclasses.replace(source, name=f"{self.prefix}{source.name}")


@dataclass(frozen=True)
class Reading:
    """A corpus as the options of a build select it.

    Args:
        corpus: a folder, a file, a BEIR folder, or `-` for standard input; as it is named in messages.
        index: the index folder, which is skipped where it is in the corpus.
        options: of the build.
        roots: where the corpus is several sources; else `corpus` is the only one.
    """

    corpus: str | Path
    index: Path
    options: BuildOptions
    roots: Sequence[Root] = ()

    @property
    def read_options(self) -> ReadOptions:
        """What is taken from structured files."""
        o = self.options
        return ReadOptions(text_field=o.text_field, id_field=o.id_field, records=o.records, fields=o.fields)

    @functools.cached_property
    def layouts(self) -> Layouts:
        """How structured files are read: as the index that is updated has it."""
        return Layouts() if self._stored is None else Layouts.from_json(self._stored.get(LAYOUTS))

    @property
    def language(self) -> bool:
        """Whether documents get the field `language`: as asked, else as the index that is updated has it."""
        return self._had_language if self.options.language is None else self.options.language

    def check_language(self) -> None:
        """Whether languages can be named here, if they are to be.

        Raises:
            RagidxError: py3langid is not installed.
        """
        if self.language:
            check_language()

    def language_finder(self) -> Callable[[str], str | None] | None:
        """What names the language of a text, if documents get that field."""
        return language_finder() if self.language else None

    @property
    def changes_language(self) -> bool:
        """Whether the documents of the index that is updated need other metadata."""
        return self.language != self._had_language

    @property
    def _had_language(self) -> bool:
        return bool((self._stored or {}).get(LANGUAGE))

    @functools.cached_property
    def _stored(self) -> Mapping[str, Any] | None:
        """The notes of the index that is updated; None where there is none."""
        manifest = None if self.options.rebuild else committed_or_none(self.index)
        return None if manifest is None else manifest.notes

    def sources(self, on_skip: OnSkip) -> Iterator[Source]:
        """The files that are read; nothing is opened."""
        alone = Root(self.corpus, include=self.options.include, exclude=self.options.exclude)
        for root in self.roots or [alone]:
            yield from root.sources(self.index, on_skip)

    def documents(
        self,
        on_skip: OnSkip,
        on_source: Callable[[Source], bool] = _every,
        on_walk: OnSkip | None = None,
        on_read: Callable[[int], None] = lambda n_bytes: None,
    ) -> Iterator[Document]:
        """The Documents, streaming; of the files that `on_source` accepts. `on_walk`: for skips of the walk; `on_read`:
        as in `read_all`.
        """
        found = filter(on_source, self.sources(on_walk or on_skip))
        return read_all(found, self.read_options, on_skip=on_skip, on_read=on_read, layouts=self.layouts)

    def total_bytes(self) -> int:
        """What there is to read, by sizes alone; 0 where it is unknown (standard input)."""
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


def check_removal(n_removed: int, n_before: int, where: str | Path, noun: str = "documents") -> None:
    """Whether a build may remove what its corpus does not have: one of another corpus would empty the index.

    Args:
        n_removed: documents that are only in the index.
        n_before: documents that the index has.
        where: the index, or the source in it.
        noun: what is counted.

    Raises:
        SpecError: they are more than half of an index of ten documents or more.
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


def document_hash(document: Document) -> bytes:
    """Of everything a document's rows hold; its last bytes say which chunker cut them."""
    metadata = json.dumps(plain(document.metadata), sort_keys=True, default=str)
    place = "" if document.line in (None, 1) else f"{document.line}\0"  # as older versions had it, as the next two
    place += f"{json.dumps(document.places)}\0" if document.places else ""
    place += f"{document.heading}\0" if document.heading else ""
    return digest(f"{place}{document.markdown}\0{metadata}\0{document.text}")[: -len(CUT_HERE)] + CUT_HERE


def is_unchanged(had: bytes | None, doc_hash: bytes) -> bool:
    """Whether two hashes are of the same document, whatever cut it."""
    return had is not None and had[: -len(CUT_HERE)] == doc_hash[: -len(CUT_HERE)]


def chunker_of(encoder: Encoder, spec: ChunkSpec) -> Chunker:
    """What cuts documents so that the encoder reads each chunk whole."""
    limit = encoder.text_limit()
    return Chunker(spec, encoder.tokenizer.counter, limit=_UNLIMITED if limit is None else limit)


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
