"""Build: a corpus becomes an index, incrementally by content.

    files -> Drafts of documents -> Changes -> chunks -> vectors -> rows -> one commit

A file that did not change is not opened; a document whose content is known is not cut; a chunk whose text is known is
not encoded. Every batch goes to the writer's journal at once: a build that is killed loses the batch in flight, and the
next one continues. Nothing is visible before the commit at the end. A filter that is fitted on the corpus reads it once
more, before. Each stage is a module of its own; this one joins them.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.errors import SpecError
from ragidx.corpora.language import LANGUAGE, check_language
from ragidx.corpora.left_out import Left, left_json, sum_left
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import BY_RULE, NO_PICTURE_TEXT
from ragidx.corpora.spec import Json
from ragidx.indexer.digests import as_digests, digest
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import DELETED_FILE
from ragidx.indexer.store.lookup import Documents
from ragidx.indexer.store.manifest import Manifest, files_of
from ragidx.indexer.store.source_list import PROGRAM, SOURCES, SourceEntry, sources_of
from ragidx.indexer.writing import StoreWriter
from ragidx.indexer.writing.live_kinds import mixed_fields
from ragidx.indexer.writing.vacuum import cleaned_if_refused
from ragidx.pipelines.ingest.changes import Decisions, Kind, Verdict
from ragidx.pipelines.ingest.corpus import LAYOUTS, Reading, check_removal, chunker_of
from ragidx.pipelines.ingest.encode import NewVectors, windows
from ragidx.pipelines.ingest.endpoint import check_model, forget_sample, good_journal, run_notes
from ragidx.pipelines.ingest.file_cache import SeenFiles
from ragidx.pipelines.ingest.fit_filter import fit_on_corpus
from ragidx.pipelines.ingest.ledger import LEFT, Ledger, rules
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.ingest.removal import (
    SHOWN,
    Missing,
    check_folders,
    check_none_is_stale,
    deleted_ids,
    is_unreadable,
    missing,
    take_deletions,
)
from ragidx.pipelines.ingest.report import BuildReport, OnProgress, Progress, Skips, n_truncated
from ragidx.pipelines.ingest.resolve import Resolved, resolve
from ragidx.pipelines.ingest.selection import Corpus, added, reading_of
from ragidx.pipelines.ingest.workers.chunks import Cutter, Draft, Item, cut_ahead
from ragidx.pipelines.ingest.workers.words import make_pieces


def build(
    corpus: Corpus = None,
    index: str | Path = "ragidx-index",
    *,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> BuildReport:
    """Make or update the index of a corpus; arguments and errors are those of `ragidx.build`."""
    asked, folder, started = build_options(**options), Path(index), time.perf_counter()
    resolved = resolve(folder, asked)
    return _run(resolved, reading_of(corpus, folder, asked, resolved.stored), on_progress, started)


def add(
    paths: str | Path | Sequence[str | Path],
    index: str | Path = "ragidx-index",
    *,
    name: str | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> BuildReport:
    """Put folders or files beside the sources of an index; arguments and errors are those of `Index.add_source`."""
    asked, folder, started = build_options("add", **options), Path(index), time.perf_counter()
    resolved = resolve(folder, asked)
    reading = added(paths, folder, asked, resolved.stored or Store.open(folder), name)
    return _run(resolved, reading, on_progress, started)


def build_beside(index: Path, folder: Path, *, on_progress: OnProgress | None = None, **options: Any) -> BuildReport:
    """Make or update in `folder` what is to take the place of an index: its documents, with other options.

    Its sources are read, and what a program added; what was deleted stays out. The index is only read, and needs no
    lock. The paths of sources are relative to it.

    Raises:
        CorpusError: documents of the index are of files that cannot be read now; where a walk shows it, before anything
            is encoded.
        SpecError: more of the index is gone than a build may remove; and as `build`.
    """
    asked, started = build_options("upgrade", **options), time.perf_counter()
    live, resolved = Store.open(index), resolve(folder, asked)
    reading = reading_of(None, index, dataclasses.replace(asked, rebuild=True), live)
    _check_readable(reading, live)
    return _run(resolved, reading, on_progress, started, folder, live)


def _run(
    resolved: Resolved,
    reading: Reading,
    on_progress: OnProgress | None,
    started: float,
    folder: Path | None = None,
    live: Store | None = None,
) -> BuildReport:
    """The whole build; `started` is when it was asked for, by the clock of `time.perf_counter`.

    With `folder`, it is written to, and what it holds is to take the place of `live`, the index that is read.
    """
    progress, index, options = Progress(on_progress=on_progress), folder or reading.index, reading.options
    ledger = Ledger(reading.selection, progress, Skips(options.strict, options.accept))
    cutter = cutter_of(resolved, reading, progress)
    n_fitted, fitted = fit_on_corpus(resolved, reading, cutter, ledger, index) if resolved.wants_a_sample else (0, {})
    with cleaned_if_refused(index), writer_of(resolved, index, progress) as writer, good_journal(resolved, writer):
        if live is not None:
            take_deletions(live, writer)
        before = Before.of(reading, writer.base)
        reread = options.reread or before.looks_again or before.relabels
        seen = SeenFiles(index, reading.read_options, writer.known_documents(), reread=reread, retry=options.retry)
        changes = changes_of(reading, cutter, before, seen, writer, ledger)
        with NewVectors(resolved, writer, fitted, ledger) as vectors:
            add_documents(changes, cutter, before, writer, vectors, ledger)
        seen.keep()
        gone = remove_others(reading, before, seen, writer, ledger)
        if live is not None:
            _check_carried(live, writer.known_documents(), ledger, reading)
        check_model(resolved, writer, every=1)
        report = commit(reading, before, writer, ledger, gone, run_notes(resolved))
        seen.write()
        forget_sample(resolved, index)
        report.spec, report.n_fitted, report.mean_cosines = resolved.spec, n_fitted, resolved.anisotropy.means()
        if resolved.loaded is not None:
            report.device, report.dtype = resolved.device, resolved.loaded.dtype
            report.endpoint = resolved.loaded.usage
    report.seconds = time.perf_counter() - started
    progress.end()
    return report


def cutter_of(resolved: Resolved, reading: Reading, progress: Progress) -> Cutter:
    """What cuts the documents of a build; the model is loaded when the first one is cut."""
    if reading.language:
        check_language()

    def make_chunker() -> Chunker:
        with progress.while_doing("loading the model"):
            return chunker_of(resolved.encoder, resolved.spec.chunk)

    return Cutter(make_chunker, language=reading.language)


def add_documents(
    changes: Iterator[Verdict], cutter: Cutter, before: Before, writer: StoreWriter, vectors: NewVectors, ledger: Ledger
) -> None:
    """Cut and encode what is new or changed, and give its rows to the writer."""
    drafts = _new_drafts(changes, cutter, before, writer, vectors)
    for window in windows(_counted(drafts, cutter, ledger)):
        vectors.add(window)
    ledger.progress.tell(at_once=True)  # all is encoded, however lately it was last told


def commit(
    reading: Reading, before: Before, writer: StoreWriter, ledger: Ledger, gone: Missing, ran: Mapping[str, Json]
) -> BuildReport:
    """Commit what the writer has, and report it; `ran` are the notes on where the model ran."""
    total = ledger.total
    entries = ledger.entries(before.sources, changed=bool(total.n_new or total.n_changed or gone.gone))
    notes = {**_notes(reading, before, entries, ledger), **ran}
    changed = before.relabels or (before.base is not None and rules(before.sources) != rules(entries))
    n_documents = sum(entry.n_documents for entry in entries) + ledger.sources[PROGRAM].n_all
    manifest = writer.commit(notes, n_documents, changed=changed)
    report = _report(writer.path, manifest, ledger, gone)
    report.committed = writer.base is None or manifest.generation != writer.base.generation
    mixed = mixed_fields(Store.open(writer.path, writer.store))
    report.take_fields(reading.layouts, writer.fields, mixed, reading.options.fields.get("title", ()))
    return report


@dataclass(frozen=True)
class Before:
    """What a build finds of an index."""

    base: Manifest | None  # that it updates
    sources: Sequence[SourceEntry]
    relabels: bool  # whether all documents get other metadata
    looks_again: bool  # whether it is looked at unchanged documents, too: the build is strict, and one may be cut

    @classmethod
    def of(cls, reading: Reading, committed: Manifest | None) -> Self:
        """What it finds of a committed state, if there is one."""
        base = None if reading.options.rebuild else committed
        return cls(
            base,
            sources=() if committed is None else sources_of(committed.notes, reading.index),
            relabels=base is not None and reading.changes_language,
            looks_again=reading.options.strict and n_truncated(base) > 0,
        )


def changes_of(
    reading: Reading, cutter: Cutter, before: Before, seen: SeenFiles, writer: StoreWriter, ledger: Ledger
) -> Iterator[Verdict]:
    """What is decided about each document, those of a program first; a file that did not change is not opened."""

    def skip(skip: Skip | Left) -> None:
        ledger.skip(skip)
        # hidden members of archives count when they are read
        if isinstance(skip, Left) or skip.reason not in BY_RULE - {NO_PICTURE_TEXT}:
            seen.skipped(skip)

    deleted = deleted_ids(writer.blobs.get(DELETED_FILE))
    read = [entry.number for entry in ledger.selection.selected]
    decisions = Decisions(writer.known_documents(), read, deleted, anew=before.relabels, seen=seen)
    anew = before.relabels or before.looks_again or before.base is None
    if anew or reading.options.rebuild:
        for change in decisions.changes(reading.program_drafts(ledger.skip)):
            ledger.change(change)
            yield change
    else:
        ledger.sources[PROGRAM].n_same = len(writer.known_documents().of([PROGRAM]))
    known = None if anew else writer.known_documents().records()
    files = reading.files(cutter, skip, ledger.progress.add_bytes, known)
    for source, drafts in files.drafts(reading.sources(ledger.skip), seen.is_known):
        ledger.begin(source)
        if (n_documents := seen.passes(source, ledger.skip)) is not None:
            reading.layouts.pass_over(source.name)
            ledger.pass_over(source, n_documents)
            continue
        if not ledger.progress.total_bytes:  # what is all known is through before anyone could look at a bar
            ledger.progress.total_bytes = reading.total_bytes()
        for change in decisions.changes(drafts):
            ledger.change(change)
            yield change


def _new_drafts(
    changes: Iterator[Verdict], cutter: Cutter, before: Before, writer: StoreWriter, vectors: NewVectors
) -> Iterator[Draft]:
    """The documents that are cut; what the index has of the others stays, what it has of these does not."""
    for change in changes:
        if change.kind is Kind.SAME:
            writer.known_documents().keep(change.draft.id)
            if before.looks_again:  # a build that was not strict may have cut it
                vectors.count_truncated(cutter.cut(change.draft))
        elif change.kind is Kind.CHANGED:
            writer.delete_document(change.draft.id)
        if change.is_cut:
            yield change.draft


def _counted(drafts: Iterator[Draft], cutter: Cutter, ledger: Ledger) -> Iterator[Item]:
    for items in cut_ahead(drafts, cutter):
        ledger.cut(items)
        yield from items


def remove_others(reading: Reading, before: Before, seen: SeenFiles, writer: StoreWriter, ledger: Ledger) -> Missing:
    """Delete the documents that the sources do not have any more, and say which.

    Raises:
        RagidxError: nothing was read, or more is gone than a build may remove.
    """
    guarded, index = not reading.options.allow_removal, reading.index
    if before.base is not None and guarded:
        ledger.check_none_is_lost(before.sources)
    if ledger.selection.names and (guarded or len(ledger.selection.entries) == 1):
        n_read = ledger.total.n_all - ledger.sources[PROGRAM].n_all + ledger.n_deleted_before
        reading.check_something_was_read(n_read, ledger.skips)
    known, names = writer.known_documents(), ledger.selection.names
    elsewhere = known.of([entry.number for entry in ledger.selection.entries if entry.name not in names])
    known.keep_all(elsewhere)
    seen.carry(elsewhere)
    if writer.store is None or not len(known.others()):
        return Missing()
    gone = missing(writer.store, known, ledger.unreadable, reading.roots())
    if guarded:
        ledger.check_removal(gone, index)
    known.keep_all(as_digests([digest(name) for name in gone.stale]))
    ledger.stale(gone.n_stale)
    writer.delete_others()
    return gone


def _check_readable(reading: Reading, live: Store) -> None:
    """Whether the files of an index's documents can be read, as far as a walk shows it.

    Raises:
        CorpusError: one cannot.
    """
    unreadable = defaultdict[int, set[str]](set)

    def note(skip: Skip, owner: int) -> None:
        if is_unreadable(skip.where, skip.reason, ""):
            unreadable[owner].add(skip.where)

    for source in reading.sources(note):
        if source.path is not None and not os.access(source.path, os.R_OK):
            unreadable[source.owner].add(source.name)
    check_none_is_stale(missing(live, Documents(live), unreadable).stale)


def _check_carried(live: Store, documents: Documents, ledger: Ledger, reading: Reading) -> None:
    """Whether an index may be replaced by one that has these documents.

    Raises:
        CorpusError: files that could not be read had some of the others.
        SpecError: most are gone, or all of a folder.
    """
    of_live = Documents(live)
    of_live.keep_all(documents.of([PROGRAM, *(entry.number for entry in ledger.selection.entries)]))
    found = missing(live, of_live, ledger.unreadable, reading.roots())
    check_none_is_stale(found.stale)
    n_before = live.manifest.n_documents
    try:
        check_removal(len(found.gone), n_before, live.path)
        check_folders(found.largest_folders, n_before, live.path)
    except SpecError as fault:
        raise SpecError(fault.message, "`ragidx build` brings the index up to date first", where=fault.where) from fault


def writer_of(resolved: Resolved, index: Path, progress: Progress, others: Sequence[Store] = ()) -> StoreWriter:
    """What writes a build into a folder; vectors of `others` are taken, too."""
    writer = StoreWriter(
        index,
        spec=resolved.spec.to_json(),
        fingerprint=resolved.fingerprint(),
        dim=resolved.dim(),
        index=resolved.index_options(),
        blobs=resolved.blobs(),
        replace=resolved.options.rebuild,
        others=others,
        on_stage=progress.derive,
        make_pieces=functools.partial(make_pieces, resolved.options.workers),
    )
    writer.compacts = resolved.options.compact is not False
    return writer


def _notes(reading: Reading, before: Before, entries: Sequence[SourceEntry], ledger: Ledger) -> dict[str, Any]:
    """What the manifest keeps of this build."""
    return {
        "corpus": str(reading.corpus),
        SOURCES: [entry.to_json() for entry in entries],
        "skipped": dict(ledger.skips.counts),
        LEFT: ledger.left_notes(before.base),
        LAYOUTS: reading.layouts.to_json(),
        LANGUAGE: reading.language,
        # of the index, at most: some of those before may be gone, unless each was looked at again
        "truncated": ledger.n_truncated + (0 if before.looks_again else n_truncated(before.base)),
    }


def _report(index: Path, manifest: Manifest, ledger: Ledger, gone: Missing) -> BuildReport:
    progress, total = ledger.progress, ledger.total
    report = BuildReport(
        index=str(index),
        dim=manifest.dim,
        generation=manifest.generation,
        n_documents=manifest.n_documents,
        n_chunks=manifest.n_chunks,
        n_added=total.n_new,
        n_changed=total.n_changed,
        n_unchanged=total.n_same,
        n_files_unopened=ledger.n_files_unopened,
        n_removed=len(gone.gone),
        n_unreadable=len(gone.stale),
        n_deleted_before=ledger.n_deleted_before,
        removed=gone.gone[:SHOWN],
        unreadable=gone.stale[:SHOWN],
        removed_folders={one.name: one.n_documents for one in gone.largest_folders},
        n_encoded=progress.n_encoded,
        n_chunks_reused=ledger.n_chunks_reused,
        n_chunks_unchanged=manifest.n_chunks - ledger.n_rows,
        n_tokens=progress.n_tokens,
        n_truncated=ledger.n_truncated,
        n_empty=ledger.n_empty,
        skipped=dict(ledger.skips.counts),
        skipped_places=ledger.skips.places,
        left=left_json(sum_left(ledger.left.values())),
        encode_seconds=progress.seconds,
        index_bytes=sum(entry.bytes for entry in files_of(manifest).values()),
    )
    report.take_index(manifest, ledger.unknown)
    return report
