"""The commit of a division: all its shards become one new state of the index, by one rename.

    division, n descriptors -> who has a document first -> segments linked beside those of the index -> one commit

The index is locked here and at no time before. It must be in the state that was divided; else nothing is done, and a
new division takes what is finished.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.corpora.language import LANGUAGE
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.records import Skip
from ragidx.corpora.spec import Json
from ragidx.indexer.arrays import Ints
from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.lookup import Documents
from ragidx.indexer.store.manifest import Manifest, files_of
from ragidx.indexer.store.source_list import PROGRAM
from ragidx.indexer.store.store import Store
from ragidx.indexer.writing.vacuum import cleaned_if_refused
from ragidx.indexer.writing.writer import StoreWriter
from ragidx.pipelines.distribute.division import (
    SHARD,
    Descriptor,
    Division,
    manifest_digest,
    notes_of,
    remove_stage,
)
from ragidx.pipelines.distribute.shard import documents_of, kind_is
from ragidx.pipelines.ingest.build import Before, remove_others
from ragidx.pipelines.ingest.build import commit as commit_build
from ragidx.pipelines.ingest.changes import Kind
from ragidx.pipelines.ingest.corpus import LAYOUTS, Reading, Selection
from ragidx.pipelines.ingest.file_cache import SeenFiles
from ragidx.pipelines.ingest.ledger import REPEATED, Ledger
from ragidx.pipelines.ingest.report import BuildReport, OnProgress, Progress, Skips

DIVISION = "division"
"""In the notes of a manifest: the id of the division that made it."""


def commit(
    division: Division, descriptors: Sequence[Descriptor] | None = None, *, on_progress: OnProgress | None = None
) -> BuildReport:
    """Make the shards of a division the next state of its index.

    Args:
        division: of which all shards are done.
        descriptors: what `build_shard` gave; None: as they are in the stage.
        on_progress: called while the indexes of merged segments are made.

    Raises:
        SpecError: a shard is missing or of another division, the index is not the one that was divided, or more is
            gone from the corpus than a build may remove.
        IndexFormatError: a shard is damaged.
        BusyError: another process writes the index.
        RagidxError: the disk is full; the committed state is what it was.
    """
    with Lock(division.stage):
        return _committed(division, descriptors, Progress(on_progress=on_progress))


def _committed(division: Division, descriptors: Sequence[Descriptor] | None, progress: Progress) -> BuildReport:
    started = time.perf_counter()
    with contextlib.suppress(IndexFormatError):  # the writer reports it, or replaces it
        now = committed_or_none(division.index)
        if now is not None and now.notes.get(DIVISION) == division.id:  # a commit was killed before it could end
            remove_stage(division)
            return _as_it_is(division.index, now)
    seed = division.seed()
    shards = _shards(division, descriptors, seed.manifest.fingerprint)
    selection = Selection(division.entries, division.names)
    reading = Reading(division.corpus, division.index, division.reading_options(), selection, seed.manifest.notes)
    ledger = Ledger(selection, progress, Skips(reading.options.strict))
    ledger.take(division.ledger)
    with (
        cleaned_if_refused(division.index),
        StoreWriter(
            division.index,
            spec=seed.manifest.spec,
            fingerprint=seed.manifest.fingerprint,
            dim=seed.manifest.dim,
            index=division.index_options,
            blobs={name: seed.blob(name) for name in seed.manifest.files},
            replace=division.replaces,
            on_stage=progress.derive,
        ) as writer,
    ):
        _check_base(division, writer.base)
        before = Before(
            None if division.replaces else writer.base,
            Before.of(reading, writer.base).sources,
            division.relabels,
            division.looks_again,
        )
        known = writer.known_documents()
        seen = SeenFiles(division.index, reading.read_options, known)
        known.keep_all(division.passed())
        seen.carry(division.passed())
        n_of_program = len(known.of([PROGRAM]))
        repeats = _take(shards, division.passed(), writer, ledger)
        if before.base is not None and not before.relabels and not before.looks_again:
            ledger.sources[PROGRAM].n_same = n_of_program  # each shard saw them
        for store in shards:
            for name, layout in Layouts.from_json(store.manifest.notes.get(LAYOUTS)).known.items():
                reading.layouts.decided(name, layout)
            if not repeats:
                seen.take(store.path, store.manifest.n_documents + len(documents_of(store)))
        gone = remove_others(reading, before, seen, writer, ledger)
        report = commit_build(reading, before, writer, ledger, gone, _ran(division, shards))
        seen.write()
    report.spec, report.n_fitted = IndexSpec.from_json(dict(seed.manifest.spec)), division.n_fitted
    report.device, report.dtype = (_joined(shards, name) for name in ("device", "dtype"))
    report.seconds = time.perf_counter() - started
    progress.end()
    remove_stage(division)
    return report


def _shards(division: Division, descriptors: Sequence[Descriptor] | None, fingerprint: str) -> list[Store]:
    """The shards of a division, checked, in their order."""
    if descriptors is None:
        descriptors = [one for one in map(division.descriptor, range(division.n)) if one is not None]
    given = {one.number: one for one in descriptors}
    if len(given) < len(descriptors):
        raise SpecError("two descriptors are of one shard", "give one of each", where=str(division.stage))
    if missing := [number for number in range(division.n) if number not in given]:
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise SpecError(
            f"{len(missing):,} of {division.n:,} shards are not done: {shown}",
            f"build each: `ragidx build --shard {missing[0]}/{division.n} --stage {division.stage}`",
            where=str(division.stage),
        )
    return [_shard(division, given[number], fingerprint) for number in range(division.n)]


def _shard(division: Division, descriptor: Descriptor, fingerprint: str) -> Store:
    folder, number = division.shards / descriptor.folder, descriptor.number
    if descriptor.division != division.id:
        raise SpecError(f"shard {number} is of another division", "build it again", where=str(folder))
    try:
        store = Store.open(folder)
    except IndexFormatError as fault:
        hint = f"build it again: `ragidx build --shard {number}/{division.n} --stage {division.stage}`"
        raise IndexFormatError(f"shard {number}: {fault.message}", hint, where=fault.where) from fault
    if notes_of(store)["division"] != division.id or store.manifest.fingerprint != fingerprint:
        raise SpecError(f"shard {number} is of another division", "build it again", where=str(folder))
    if manifest_digest(folder) != descriptor.manifest:
        raise IndexFormatError(f"shard {number} is not the one that was built", "build it again", where=str(folder))
    return store


def _check_base(division: Division, base: Manifest | None) -> None:
    """Whether the index is in the state that was divided."""
    if (None if base is None else (base.generation, base.created)) == division.base:
        return
    now = "is gone" if base is None else f"has generation {base.generation} now"
    raise SpecError(
        f"the index {now}: another process wrote it since it was divided",
        "divide again: finished shards lend their vectors",
        where=str(division.index),
    )


def _as_it_is(index: Path, manifest: Manifest) -> BuildReport:
    """The report where all was committed before."""
    report = BuildReport(
        index=str(index),
        spec=IndexSpec.from_json(dict(manifest.spec)),
        dim=manifest.dim,
        generation=manifest.generation,
        n_documents=manifest.n_documents,
        n_unchanged=manifest.n_documents,
        n_chunks=manifest.n_chunks,
        n_chunks_unchanged=manifest.n_chunks,
        index_bytes=sum(entry.bytes for entry in files_of(manifest).values()),
    )
    report.take_index(manifest)
    return report


def _take(shards: Sequence[Store], passed: NDArray[np.bytes_], writer: StoreWriter, ledger: Ledger) -> int:
    """Adopt the segments of shards; of documents with one id the first stays. How many were not the first.

    The documents of files that did not change, `passed`, come before all others.
    """
    each = [documents_of(store) for store in shards]
    every = np.concatenate(each)
    of_shard = np.repeat(np.arange(len(each)), [len(one) for one in each])
    order = np.argsort(every["document"], kind="stable")  # equal ones in the order of the shards
    again = np.isin(every["document"], passed)
    again[order[1:]] |= every["document"][order[1:]] == every["document"][order[:-1]]
    known = writer.known_documents()
    known.keep_all(every["document"][~again & kind_is(every, Kind.SAME)])
    writer.delete_rows(known.pop_all(every["document"][~again & kind_is(every, Kind.CHANGED)]))
    for number, store in enumerate(shards):
        ledger.take(notes_of(store))
        repeated = every[again & (of_shard == number)]
        rows = Documents(store).pop_all(repeated["document"]) if repeated.size else np.zeros(0, np.int64)
        if repeated.size:
            _uncount(store, rows, repeated, ledger)
        if len(rows) < store.n_rows:
            writer.delete_rows(writer.adopt(store) + rows)
    return int(again.sum())


def _uncount(store: Store, rows: Ints, repeated: NDArray[np.void], ledger: Ledger) -> None:
    """Report documents of a shard, with their rows, that are others' as skipped."""
    ledger.n_rows -= len(rows)
    for name, kind in (("n_new", Kind.NEW), ("n_changed", Kind.CHANGED), ("n_same", Kind.SAME)):
        for owner in repeated["owner"][kind_is(repeated, kind)].tolist():
            count = ledger.sources[owner]
            setattr(count, name, getattr(count, name) - 1)
    names = sorted({row.doc_id for row in store.rows(rows)})
    unnamed = [f"a document without chunks of {store.path.name}"] * (len(repeated) - len(names))
    for name in (*names, *unnamed):
        ledger.skips.add(Skip(name, REPEATED))


def _ran(division: Division, shards: Sequence[Store]) -> dict[str, Json]:
    """The notes on where the model ran, and on the division."""
    ran: dict[str, Json] = {DIVISION: division.id, LANGUAGE: division.language}
    for store in shards:
        own = {name: value for name, value in store.manifest.notes.items() if name not in (SHARD, LAYOUTS)}
        ran |= {name: value for name, value in own.items() if value}
    return ran | {name: _joined(shards, name) for name in ("device", "dtype")}


def _joined(shards: Sequence[Store], name: str) -> str:
    found = dict.fromkeys(str(store.manifest.notes.get(name, "")) for store in shards)
    return ",".join(one for one in found if one)
