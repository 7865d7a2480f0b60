"""A shard: the stages of a build over a part of the corpus, up to an index of its own that the commit takes over.

    division, number -> documents -> chunks -> vectors -> stage/<id>/shards/00003-<host>/ -> 00003.json

What the index has is known by digests alone, so the index is not opened here. A shard that was killed continues from
its journal on the same host; on another one it begins again. Where two have done the same shard, the first counts.
"""

from __future__ import annotations

import io
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.records import OnSkip
from ragidx.corpora.sources import Source
from ragidx.indexer import atomic
from ragidx.indexer.arrays import saved
from ragidx.indexer.digests import DIGEST_BYTES, digest
from ragidx.indexer.store import Store
from ragidx.indexer.store.generations import committed_or_none
from ragidx.pipelines.distribute.descriptor import Descriptor
from ragidx.pipelines.distribute.division import SHARD, Division, same_files, write_descriptor
from ragidx.pipelines.ingest.build import Before, add_documents, changes_of, cutter_of, writer_of
from ragidx.pipelines.ingest.changes import Kind, Verdict
from ragidx.pipelines.ingest.corpus import LAYOUTS, CorpusSelection, OnWalkSkip, Reading
from ragidx.pipelines.ingest.encode import NewVectors
from ragidx.pipelines.ingest.endpoint import check_model, good_journal, run_notes
from ragidx.pipelines.ingest.file_cache import SeenFiles
from ragidx.pipelines.ingest.ledger import Ledger
from ragidx.pipelines.ingest.report import OnProgress, Progress, Skips
from ragidx.pipelines.ingest.resolve import resolve_against
from ragidx.pipelines.ingest.workers.chunks import Draft

DOCUMENTS = "documents"
"""A file of a shard: its documents, by the digests of their ids, in order."""

RUN = ("device", "dtype", "attn", "endpoint", "model", "workers")
"""The options of the machine that a shard is built on."""

_DECIDED = {Kind.NEW: 0, Kind.CHANGED: 1, Kind.SAME: 2}
_DOCUMENT = np.dtype([("document", f"S{DIGEST_BYTES}"), ("owner", "<i4"), ("kind", "u1")])


def build_shard(division: Division, number: int, *, on_progress: OnProgress | None = None, **run: Any) -> Descriptor:
    """Build a shard, or say that it is done.

    Args:
        division: a division that `Division.open` read, on any machine that sees the stage and the corpus.
        number: number of the shard, from 0.
        on_progress: called a few times a second.
        run: `device`, `dtype`, `attn`, `endpoint`, `model` (where it is here) and `workers`, as `ragidx.build` takes
            them.

    Raises:
        CorpusError: a file changed since the corpus was divided.
        SpecError: there is no such shard, or an option is wrong.
        ModelError: the model is not here, or is another.
        BusyError: another process of this host builds the shard.
    """
    if (done := _done(division, number)) is not None:
        return done
    for name in run:
        if name not in RUN:
            raise SpecError(f"a shard takes no option {name}", "name it when you divide", where=f"`{name}`")
    folder = division.shards / f"{number:05d}-{_host()}"
    seed, memory = division.seed(), division.memory(number)
    if memory is not None:
        run["max_memory"] = memory
    resolved = resolve_against(division.reading_options(**run), seed)
    reading = _Part(
        division.corpus,
        division.index,
        resolved.options,
        CorpusSelection(division.entries, division.names),
        seed.manifest.notes,
        division=division,
        number=number,
    )
    progress = Progress(on_progress=on_progress)
    ledger = Ledger(reading.selection, progress, Skips(reading.options.strict, reading.options.accept))
    cutter = cutter_of(resolved, reading, progress)
    before = Before(
        None if division.base is None or division.replaces else seed.manifest,
        sources=(),
        relabels=division.relabels,
        looks_again=division.looks_again,
    )
    with (
        writer_of(resolved, folder, progress, [*division.continued(), *division.earlier(number)]) as writer,
        good_journal(resolved, writer),
    ):
        if not division.replaces:
            writer.known_documents().extend(division.known())
        seen = SeenFiles(folder, reading.read_options, writer.known_documents(), reread=True)
        documents = _Documents()
        changes = documents.noted(changes_of(reading, cutter, before, seen, writer, ledger))
        with NewVectors(resolved, writer, division.fitted(), ledger) as vectors:
            add_documents(changes, cutter, before, writer, vectors, ledger)
        seen.keep()
        seen.write()
        check_model(resolved, writer, every=1)
        writer.blobs[DOCUMENTS] = documents.to_bytes()
        place = [number / division.n, (number + 1) / division.n]
        notes = {SHARD: {"division": division.id, "place": place, **ledger.to_json()}}
        ran = {LAYOUTS: Layouts(reading.layouts.used).to_json(), **run_notes(resolved)}
        manifest = writer.commit({**notes, **ran}, _n_added(ledger), changed=True)
    progress.end()
    return write_descriptor(division, number, folder, manifest)


def _done(division: Division, number: int) -> Descriptor | None:
    """A shard that is done, and whole; what is damaged is removed, to be built anew."""
    division.files(number)  # whether there is such a shard
    done, own = division.descriptor(number), division.shards / f"{number:05d}-{_host()}"
    folder = own if done is None else division.shards / done.folder
    try:
        if done is None and committed_or_none(folder) is None:
            return None
        made = Store.open(folder).manifest
        return done or write_descriptor(division, number, folder, made)  # it was killed before it could say so
    except IndexFormatError:
        atomic.remove(division.shards / f"{number:05d}.json")
        atomic.remove(folder)
        return None


def documents_of(shard: Store) -> NDArray[np.void]:
    """The documents of a shard, in the order of their digests.

    Raises:
        IndexFormatError: they are damaged.
    """
    try:
        return saved(shard.blob(DOCUMENTS), _DOCUMENT)
    except (KeyError, ValueError) as fault:
        raise IndexFormatError("it is no shard", "build it again", where=str(shard.path)) from fault


def kind_is(documents: NDArray[np.void], kind: Kind) -> NDArray[np.bool_]:
    """Marks the documents of which this was decided."""
    found: NDArray[np.bool_] = documents["kind"] == _DECIDED[kind]
    return found


@dataclass(frozen=True)
class _Part(Reading):
    """What a shard reads of a corpus: its files, and of the first one what a program added, where that is cut anew."""

    division: Division | None = None
    number: int = 0

    def sources(self, on_skip: OnWalkSkip = lambda skip, owner: None) -> Iterator[Source]:
        """The files, which must be as they were."""
        assert self.division is not None
        yield from same_files(self.division, self.number)

    def total_bytes(self) -> int:
        """Bytes of the shard's files."""
        assert self.division is not None
        return int(self.division.sizes[self.number])

    def program_drafts(self, on_skip: OnSkip) -> Iterator[Draft]:
        """The documents that a program added; the first shard has them."""
        if not self.number:
            yield from super().program_drafts(on_skip)


class _Documents:
    """Notes what is decided about each document."""

    def __init__(self) -> None:
        self._noted: list[tuple[bytes, int, int]] = []

    def noted(self, changes: Iterable[Verdict]) -> Iterator[Verdict]:
        for change in changes:
            if change.kind in _DECIDED:
                self._noted.append((digest(change.draft.id), change.draft.owner, _DECIDED[change.kind]))
            yield change

    def to_bytes(self) -> bytes:
        """The documents in the order of digests, as `documents_of` reads them."""
        found, file = np.array(self._noted, _DOCUMENT), io.BytesIO()
        np.save(file, found[np.argsort(found["document"], kind="stable")])
        return file.getvalue()


def _n_added(ledger: Ledger) -> int:
    return ledger.total.n_new + ledger.total.n_changed


def _host() -> str:
    """The name of this machine, as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:60] or "host"
