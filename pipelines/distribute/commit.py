"""The commit of a division: all its shards become one new state of the index, by one rename.

    division, n descriptors -> who has a document first -> segments linked beside those of the index -> one commit

The index is locked here and at no time before. It must be in the state that was divided; else nothing is done, and a
new division takes what is finished.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import IndexFormatError, RagidxError
from ragidx.corpora.language import LANGUAGE
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.records import Skip
from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Ints
from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store import Store
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.lookup import Documents
from ragidx.indexer.store.source_list import PROGRAM
from ragidx.indexer.writing import StoreWriter
from ragidx.indexer.writing.vacuum import cleaned_if_refused
from ragidx.pipelines.distribute.checks import DIVISION, as_it_is, check_base, shards_of
from ragidx.pipelines.distribute.descriptor import Descriptor
from ragidx.pipelines.distribute.division import COMMITTED, SHARD, Division, notes_of, remove_stage
from ragidx.pipelines.distribute.division import DIVISION as DIVISION_FILE
from ragidx.pipelines.distribute.shard import documents_of, kind_is
from ragidx.pipelines.distribute.vectors import commit_vectors
from ragidx.pipelines.ingest.build import Before, remove_others
from ragidx.pipelines.ingest.build import commit as commit_build
from ragidx.pipelines.ingest.changes import Kind
from ragidx.pipelines.ingest.corpus import LAYOUTS, CorpusSelection, Reading
from ragidx.pipelines.ingest.file_cache import SeenFiles
from ragidx.pipelines.ingest.ledger import REPEATED, Ledger
from ragidx.pipelines.ingest.report import BuildReport, OnProgress, Progress, Skips


def commit(
    division: Division, descriptors: Sequence[Descriptor] | None = None, *, on_progress: OnProgress | None = None
) -> BuildReport:
    """Make the shards of a division the next state of its index.

    Args:
        division: a division of which all shards are done.
        descriptors: what `build_shard` or `build_vector_shard` gave; None: as they are in the stage, where only those
            of a corpus are.
        on_progress: called while the indexes of merged segments are made.

    Raises:
        SpecError: a shard is missing or of another division, the index is not the one that was divided, or more is
            gone from the corpus than a build may remove.
        CorpusError: no vector was written.
        IndexFormatError: a shard is damaged.
        BusyError: another process writes the index.
        RagidxError: the disk is full; the committed state is what it was.
    """
    with Lock(division.stage):
        with contextlib.suppress(IndexFormatError):  # the writer reports it, or replaces it
            now = committed_or_none(division.index)
            if now is not None and now.notes.get(DIVISION) == division.id:  # a commit was killed before it could end
                _clear(division)
                return as_it_is(division.index, now)
        committed = _committed if division.n else commit_vectors
        report = committed(division, descriptors, Progress(on_progress=on_progress))
        _clear(division)
        return report


def committed_already(stage: Path) -> BuildReport | None:
    """The report of a commit that changes nothing, where the last division of a stage is committed; None where not."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RagidxError):
        if not (stage / DIVISION_FILE).exists():
            index = Path(json.loads((stage / COMMITTED).read_bytes())["index"])
            now = committed_or_none(index)
            return None if now is None else as_it_is(index, now)
    return None


def _clear(division: Division) -> None:
    """Leave a note in the stage for who commits it again, and nothing else."""
    atomic.write_file(division.stage / COMMITTED, json.dumps({"index": str(division.index)}).encode())
    remove_stage(division)


def _committed(division: Division, descriptors: Sequence[Descriptor] | None, progress: Progress) -> BuildReport:
    started = time.perf_counter()
    seed = division.seed()
    shards = shards_of(division, descriptors, seed.manifest.fingerprint)
    selection = CorpusSelection(division.entries, division.names)
    reading = Reading(division.corpus, division.index, division.reading_options(), selection, seed.manifest.notes)
    ledger = Ledger(selection, progress, Skips(reading.options.strict, reading.options.accept))
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
        check_base(division, writer.base)
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
    names = sorted({row.doc_id for row in store.rows(np.searchsorted(store.stored, rows))})
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
