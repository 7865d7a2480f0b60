"""Build: a corpus becomes an index, incrementally by content.

files -> Documents -> Chunks -> vectors -> rows -> one commit. A file that did not change is not opened; a document
whose content is known is not cut; a chunk whose text is known is not encoded. Every batch goes to the writer's journal
as soon as it is there: a build that is killed loses the batch in flight, and the next one goes on. Nothing is visible
before the commit at the end. A filter that is fitted on the corpus reads it once more, before.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.language import LANGUAGE
from ragidx.corpora.records import Document, Skip
from ragidx.corpora.sources import BY_RULE, Source
from ragidx.indexer.arrays import Floats
from ragidx.indexer.digests import as_digests, digest
from ragidx.indexer.store.manifest import files_of
from ragidx.indexer.store.source_list import SOURCES, SourceEntry, sources_of
from ragidx.indexer.store.store import Store
from ragidx.indexer.writing.vacuum import cleaned_if_refused
from ragidx.indexer.writing.writer import StoreWriter
from ragidx.pipelines.ingest.choose_layer import with_layer
from ragidx.pipelines.ingest.chunks import Cutter, Item
from ragidx.pipelines.ingest.corpus import (
    CUT_HERE,
    LAYOUTS,
    Reading,
    chunker_of,
    document_hash,
    is_unchanged,
    too_long,
)
from ragidx.pipelines.ingest.distributed import embedder_of
from ragidx.pipelines.ingest.encode import encode, windows, with_vector
from ragidx.pipelines.ingest.endpoint import check_model, check_uncut, forget_sample, good_journal, run_notes
from ragidx.pipelines.ingest.file_cache import REPEATED, SeenFiles
from ragidx.pipelines.ingest.options import BuildKeywords, build_options
from ragidx.pipelines.ingest.removal import DELETED_FILE, SHOWN, deleted_ids, is_unreadable, missing
from ragidx.pipelines.ingest.report import (
    INDEXING,
    BuildReport,
    OnProgress,
    Progress,
    Skips,
    StrictError,
    Teller,
    doing,
    n_truncated,
)
from ragidx.pipelines.ingest.resolve import Plan, make_plan
from ragidx.pipelines.ingest.selection import Corpus, Selection, added, as_paths, reading_of, with_globs
from ragidx.pipelines.ingest.tally import Tally, rules

if TYPE_CHECKING:
    from ragidx.indexer.encoders.embedder import Embedder
    from ragidx.indexer.store.lookup import Documents


def build(
    corpus: Corpus = None,
    index: str | Path = "ragidx-index",
    *,
    on_progress: OnProgress | None = None,
    **options: Unpack[BuildKeywords],
) -> BuildReport:
    """Make or update the index of a corpus.

    Args:
        corpus: a folder, a file, a BEIR folder, or `-` for standard input; or several folders and files, the sources of
            the index; or these by name. Of an index that exists: those of its sources that are read; None: all.
        index: the index folder.
        on_progress: called a few times a second.
        options: `BuildKeywords`: model, method, pooling, tau, dim, filter, chunk_size, device, strict ...
            An option that is not given is what the index was built with, else the model's preset, else the default.

    Returns:
        What was done, and what was skipped.

    Raises:
        RagidxError: of the subclass that says what to do; the committed state is then what it was.
    """
    asked, folder, started = build_options(**options), Path(index), time.perf_counter()
    asked, scores = with_layer(corpus, folder, asked, on_progress)
    plan = make_plan(folder, asked)
    build = _Build(plan, *reading_of(corpus, folder, asked, plan.stored), on_progress)
    build.report.layer_scores = scores
    return build.run(started)


def add(
    paths: str | Path | Sequence[str | Path],
    index: str | Path = "ragidx-index",
    *,
    name: str | None = None,
    on_progress: OnProgress | None = None,
    **options: Unpack[BuildKeywords],
) -> BuildReport:
    """Put folders or files beside the sources of an index: they alone are read and encoded, in one commit.

    Args:
        paths: of the new sources.
        index: the index folder.
        name: of the one new source; its documents' ids begin with it. None: the folder's own.
        on_progress: called a few times a second.
        options: as for `build`.

    Raises:
        RagidxError: of the subclass that says what to do; the committed state is then what it was.
    """
    asked, folder, started = build_options("add", **options), Path(index), time.perf_counter()
    plan = make_plan(folder, asked)
    selection = added(as_paths(paths), folder, plan.stored or Store.open(folder), name)
    selection = with_globs(selection, asked.include, asked.exclude)
    reading = Reading(", ".join(map(str, as_paths(paths))), folder, asked, selection.roots(folder))
    return _Build(plan, reading, selection, on_progress).run(started)


class _Build:
    """One run of `build`; its state is what the steps share."""

    def __init__(self, plan: Plan, reading: Reading, selection: Selection, on_progress: OnProgress | None) -> None:
        self.plan, self.reading = plan, reading
        self.corpus, self.index, self.options = reading.corpus, reading.index, reading.options
        self.selection, self._tally = selection, Tally(selection)
        self.report = BuildReport(index=str(self.index))
        self.progress, self.skips = Progress(), Skips(self.options.strict)
        self._tell = Teller(on_progress, self.progress)
        self._fitted: dict[bytes, Floats] = {}  # vectors of the sample the filter was fitted on
        self._name, self._unreadable = "", set[str]()  # the file that is read; files that cannot be

    def run(self, started: float) -> BuildReport:
        """The whole build; `started` is when it was asked for, by the clock of `time.perf_counter`."""
        self._started = started
        self.reading.check_language()
        if self.plan.wants_a_sample:
            self._fit()
        with cleaned_if_refused(self.index), self._writer() as writer, good_journal(self.plan, writer):
            self.writer = writer
            known = writer.known_documents()
            had = writer.base is not None and not self.options.rebuild
            self._cut_before = n_truncated(writer.base) if had else 0
            self._looks_again = self.options.strict and self._cut_before > 0
            self._deleted = deleted_ids(self.plan.blobs().get(DELETED_FILE))
            self._relabels = had and self.reading.changes_language
            reread = self.options.reread or self._looks_again or self._relabels
            self._seen = SeenFiles(self.index, self.reading.read_options, known, reread=reread)
            with contextlib.ExitStack() as self._open:
                for window in windows(self._items(known)):
                    self._index(window)
            base, r = writer.base, self.report
            before = () if base is None else sources_of(base.notes, self.index, base.n_documents)
            self._tally.check_none_is_lost(before if had and not self.options.allow_removal else ())
            if not self.options.allow_removal or len(self.selection.entries) == 1:
                self.reading.check_something_was_read(r.n_documents + r.n_deleted_before, self.skips)
            self._seen.keep()
            if had:
                self._remove_others(known)
            if self.plan.spec.chunk.size is not None:
                self.report.n_cut_before = known.count_hashed_otherwise(CUT_HERE)
            entries = self._tally.entries(before, changed=bool(r.n_added or r.n_changed or r.n_removed))
            r.n_documents = sum(entry.n_documents for entry in entries)
            changed = self._relabels or (had and rules(before) != rules(entries))
            check_model(self.plan, writer, every=1)
            manifest = writer.commit(self._notes(entries), r.n_documents, changed=changed)
            self.report.committed = writer.base is None or manifest.generation != writer.base.generation
            self._seen.write()
            forget_sample(self.plan, self.index)
            self.report.take_fields(self.reading.layouts, writer.fields, self.options.fields.get("title", ()))
        self._finish()
        return self.report

    def _remove_others(self, known: Documents) -> None:
        """Delete the documents that the sources do not have any more."""
        r, unseen = self.report, known.others()
        if not len(unseen):
            return
        entries, names = self.selection.entries, self.selection.names
        found = missing(Store.open(self.index), unseen, entries, names, self._unreadable)
        if not self.options.allow_removal:
            self._tally.check_removal(found.by_source, self.index)
        known.keep_all(found.kept())
        self._seen.carry(as_digests([digest(name) for name in found.elsewhere]))
        for doc_id in found.stale:
            self._tally.n_read[self._tally.source_of(doc_id)] += 1
        r.n_unreadable, r.unreadable, r.removed = len(found.stale), found.stale[:SHOWN], found.gone[:SHOWN]
        r.n_removed = self.writer.delete_others()

    # -- reading ------------------------------------------------------------------------------------------------

    def _begin(self, source: Source) -> bool:
        """Whether a file has to be read; one that did not change is still the documents that the index has."""
        self._name = source.name
        passed = self._seen.passes(source, self._left_out)
        if passed:
            self.progress.add_bytes(source.size)
            self.reading.layouts.pass_over(source.name)
            self.report.n_unopened += 1
            self._count(source.name, passed)
            self._keep(source.name, passed)
        elif not self.progress.total_bytes:  # what is all known is through before anyone could look at a bar
            self.progress.total_bytes = self.reading.total_bytes()
        return not passed

    def _count(self, name: str, n_documents: int) -> None:
        self._tally.n_read[self._tally.source_of(name)] += n_documents
        self.report.n_documents += n_documents
        self.progress.n_documents += n_documents
        self._tell()

    def _keep(self, name: str, n_documents: int) -> None:
        self._tally.n_kept[self._tally.source_of(name)] += n_documents
        self.report.n_unchanged += n_documents

    def _skipped(self, skip: Skip) -> None:
        """Of the file that is being read."""
        self._left_out(skip)
        if skip.reason not in BY_RULE:  # a hidden member of an archive is counted when it is read
            self._seen.skipped(skip)

    def _left_out(self, skip: Skip) -> None:
        """Of a file, or in the walk."""
        self.skips.add(skip)
        if is_unreadable(skip.where, skip.reason, self._name):
            self._unreadable.add(skip.where)

    # -- the filter, where it is fitted ---------------------------------------------------------------------------

    def _fit(self) -> None:
        """Fit the filter on a sample of the corpus, before anything of the corpus is stored."""
        from ragidx.pipelines.ingest.fit_filter import check_fit, draw, fit_filter

        check_fit(self.plan, self.corpus, self.index)
        self.progress.total_bytes = self.reading.total_bytes()
        self.progress.stage = f"fitting filter {self.plan.spec.filter.name}"
        self._tell(at_once=True)
        drawn = draw(self.reading.documents(self.skips.add), self.plan.spec, self._tell)
        self.reading.check_something_was_read(len(drawn), self.skips)
        self.skips = Skips(self.options.strict)  # what was skipped is reported when the corpus is indexed
        fitted = fit_filter(self.plan, drawn, self._chunker(), self.index, self.progress, self._tell)
        self.report.n_fitted, self._fitted = fitted.n, fitted.vectors
        self.progress.stage = INDEXING
        self._tell(at_once=True)

    # -- chunks and vectors ---------------------------------------------------------------------------------------

    def _items(self, known: Documents) -> Iterator[Item]:
        """The chunks of documents that are new or changed."""
        for document in self.reading.documents(self._skipped, self._begin, self._left_out, self.progress.add_bytes):
            for items in self._take(document, known.get(document.id)):
                yield from self._counted(items)
        for items in self._cutter.drain() if "_cutter" in vars(self) else ():
            yield from self._counted(items)

    def _take(self, document: Document, had: bytes | None) -> Iterable[list[Item]]:
        """Begin to cut a document that is new or changed; gives the items of documents that are cut by now."""
        doc_hash = document_hash(document)
        if document.id in self._deleted:
            self.report.n_deleted_before += 1
            self._seen.read_again()  # so that it is counted next time, too
            return ()
        if had is not None and is_unchanged(had, doc_hash) and not self._relabels:
            doc_hash = had  # it says which chunker cut the document
        if not self._seen.document(document.id, doc_hash):
            self._left_out(Skip(document.id, REPEATED))
            self._seen.read_again()
            return ()
        self._count(document.id, 1)
        if had == doc_hash and not self._relabels:
            self._keep(document.id, 1)
            self.writer.keep_document(document.id)
            if self._looks_again:
                self._check_whole(document)
            return ()
        if had is not None:
            self.writer.delete_document(document.id)
            self.report.n_changed += 1
            self._tally.n_kept[self._tally.source_of(document.id)] += 1
        else:
            self.report.n_added += 1
        self.progress.has_new = True
        return self._cutter.submit(document, doc_hash)

    def _counted(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items of a document."""
        self.report.n_empty += not items
        self.progress.n_cut += len(items)
        return items

    @functools.cached_property
    def _cutter(self) -> Cutter:
        return self._open.enter_context(Cutter(self._chunker(), self.reading.language_finder()))

    def _chunker(self) -> Chunker:
        with doing("loading the model", self.progress, self._tell):
            return chunker_of(self.plan.encoder, self.plan.spec.chunk)

    def _index(self, window: Sequence[Item]) -> None:
        """Encode what has no vector yet, and give the window's rows to the writer in their order."""
        self._count_truncated(window)
        done = self.progress.n_chunks + len(window)
        vectors = self.writer.reuse(list({item.row.text_hash for item in window}))
        missing = {key: item for item in window if (key := item.row.text_hash) not in vectors}
        vectors |= (fitted := {key: self._fitted.pop(key) for key in missing if key in self._fitted})
        vectors |= self._encode([item for key, item in missing.items() if key not in fitted])
        items = with_vector(window, vectors, self.skips)
        for start in range(0, len(items), 256):
            part = [item.row for item in items[start : start + 256]]
            self.writer.add(part, np.stack([vectors[row.text_hash] for row in part]))
        self.report.n_chunks += len(items)
        self.report.n_reused += len(items) - sum(key in vectors for key in missing)  # less what is zero
        self.progress.n_chunks = done
        self._tell()

    def _encode(self, items: Sequence[Item]) -> dict[bytes, Floats]:
        """Vectors by text hash; each batch is in the journal before the next is encoded."""
        found: dict[bytes, Floats] = {}
        if not items:
            return found
        for keys, vectors in encode(items, self._embedder, self.progress, self._tell):
            self.writer.remember(keys, vectors)
            found |= zip(keys, vectors, strict=True)
            self.progress.n_chunks += len(keys)
            check_model(self.plan, self.writer)
            check_uncut(self.plan, strict=self.options.strict)
        return found

    @functools.cached_property
    def _embedder(self) -> Embedder:
        return self._open.enter_context(embedder_of(self.plan))

    def _check_whole(self, document: Document) -> None:
        """Whether a document that is known was indexed whole; a build that was not strict may have cut it."""
        with Cutter(self._chunker()) as cutter:
            for items in (*cutter.submit(document, b""), *cutter.drain()):
                self._count_truncated(items)

    def _count_truncated(self, items: Sequence[Item]) -> None:
        found = too_long(items, self.plan.encoder, self.plan.spec.chunk)
        self.report.n_truncated += len(found)
        if found and self.options.strict:
            raise StrictError(
                f"the document has more than the {self.plan.encoder.text_limit()} tokens that the model reads",
                "cut documents with `chunk_size`, or build without `strict=True`",
                where=found[0].row.doc_id,
            )

    def _writer(self) -> StoreWriter:
        return StoreWriter(
            self.index,
            spec=self.plan.spec.to_json(),
            fingerprint=self.plan.fingerprint(),
            dim=self.plan.dim(),
            index=self.plan.index_options(),
            blobs=self.plan.blobs(),
            replace=self.options.rebuild,
            on_stage=self._deriving,
        )

    def _deriving(self, recipe: str, rows: int, done: int) -> None:
        self.progress.derive(recipe, rows, done)
        self._tell()

    def _notes(self, entries: Sequence[SourceEntry]) -> dict[str, Any]:
        """What the manifest keeps of this build."""
        return {
            "corpus": str(self.corpus),
            SOURCES: [entry.to_json() for entry in entries],
            "skipped": dict(self.skips.counts),
            LAYOUTS: self.reading.layouts.to_json(),
            LANGUAGE: self.reading.language,
            # of the index, at most: some of those before may be gone, unless each was looked at again
            "truncated": self.report.n_truncated + (0 if self._looks_again else self._cut_before),
            **run_notes(self.plan),
        }

    def _finish(self) -> None:
        r, store = self.report, Store.open(self.index)
        r.spec, r.dim = self.plan.spec, store.manifest.dim
        r.n_chunks_unchanged = store.manifest.n_chunks - r.n_chunks  # what was cut here, so far
        r.generation, r.n_chunks = store.manifest.generation, store.manifest.n_chunks
        r.take_index(store.manifest)
        r.skipped, r.skipped_places = dict(self.skips.counts), self.skips.places
        r.index_bytes = sum(entry.bytes for entry in files_of(store.manifest).values())
        if (encoder := self.plan.loaded) is not None:
            r.device, r.dtype, r.endpoint = self.plan.device, encoder.dtype, encoder.usage
        r.n_encoded, r.n_tokens = self.progress.n_encoded, self.progress.n_tokens
        r.encode_seconds, r.seconds = self.progress.seconds, time.perf_counter() - self._started
        self.progress.total_bytes = self.progress.total_bytes or self.progress.n_bytes
        self.progress.last = True
        self._tell(at_once=True)
