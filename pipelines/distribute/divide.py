"""Dividing a build: what the index has, a filter that is fitted, and the files of each shard are written to a stage.

    corpus, n, stage, index, options -> Division

A file that did not change since the index was built is in no part. The index is only read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ragidx
from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.corpora.language import LANGUAGE
from ragidx.corpora.limits import MIB
from ragidx.corpora.sources import Source
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Floats
from ragidx.indexer.digests import as_digests
from ragidx.indexer.store.lookup import Documents
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.store.source_list import STANDARD_INPUT
from ragidx.indexer.writing import StoreWriter
from ragidx.indexer.writing.merging import memory_bytes
from ragidx.indexer.writing.vacuum import check_folder
from ragidx.pipelines.distribute.division import (
    FITTED,
    FITTED_KEYS,
    KNOWN,
    PARTS,
    PASSED,
    SEED,
    Division,
    base_of,
    part_name,
    prepared,
)
from ragidx.pipelines.distribute.parts import parts_of, stemmer_of
from ragidx.pipelines.ingest.build import Before, cutter_of
from ragidx.pipelines.ingest.corpus import LAYOUTS, Reading
from ragidx.pipelines.ingest.endpoint import run_notes
from ragidx.pipelines.ingest.file_cache import SeenFiles
from ragidx.pipelines.ingest.fit_filter import fit_on_corpus
from ragidx.pipelines.ingest.ledger import Ledger
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.ingest.report import OnProgress, Progress, Skips
from ragidx.pipelines.ingest.resolve import Resolved, resolve
from ragidx.pipelines.ingest.selection import Corpus, reading_of

MAX_SHARDS = 99_999

_READING = (
    "text_field",
    "id_field",
    "records",
    "fields",
    "strict",
    "accept",
    "reread",
    "allow_removal",
    "dtype",
    "attn",
)


def divide(
    corpus: Corpus,
    n: int,
    stage: str | Path,
    index: str | Path = "ragidx-index",
    *,
    at_most: bool = False,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> Division:
    """Divide the build of a corpus into `n` shards of about as many bytes.

    What an index has already is known to the shards: an unchanged file is not opened, an unchanged document not
    encoded. A filter that is fitted on the corpus is fitted here.

    Args:
        corpus: folder or file as `ragidx.build` takes it, but not standard input.
        n: shards, from 1.
        stage: a folder that all machines see by this path; made if it is missing. Finished shards of an earlier
            division in it lend their vectors.
        index: the folder of the index. It is only read.
        at_most: whether a small corpus may get fewer shards: one for each file, and for each MiB of large ones, is
            enough.
        on_progress: called a few times a second.
        options: options of `ragidx.build`.

    Raises:
        SpecError: an option is wrong, or the stage is that of another index.
        CorpusError: there is no document.
    """
    build, folder, stage = build_options("divide", **options), Path(index), Path(stage)
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_SHARDS:
        raise SpecError(f"{n!r} is no number of shards", f"give one from 1 to {MAX_SHARDS:,}", where="`shards`")
    check_folder(folder)
    resolved = resolve(folder, build)
    reading = reading_of(corpus, folder, build, resolved.stored)
    if any(entry.path == STANDARD_INPUT for entry in reading.selection.selected):
        raise SpecError("standard input cannot be divided", "write it to a file", where="-")
    places = [(f"the source '{entry.name}'", Path(root)) for root, entry in reading.selection.roots(folder)]
    with prepared(stage, folder, places):
        return _divided(n, stage, resolved, reading, Progress(on_progress=on_progress), at_most=at_most)


def _divided(
    n: int, stage: Path, resolved: Resolved, reading: Reading, progress: Progress, *, at_most: bool
) -> Division:
    options, stored = reading.options, resolved.stored
    committed = base_of(reading.index, replaces=options.rebuild) if stored is None else stored.manifest
    before = Before.of(reading, committed)
    ledger = Ledger(reading.selection, progress, Skips(options.strict))
    cutter = cutter_of(resolved, reading, progress)
    known = Documents(resolved.stored)
    reread = options.reread or before.looks_again or before.relabels
    seen = SeenFiles(reading.index, reading.read_options, known, reread=reread, retry=options.retry)
    sources = list(_changed(reading, seen, ledger))
    seen.keep()
    id_ = secrets.token_hex(8)
    n = min(n, max(1, sum(1 + source.size // MIB for source in sources))) if at_most else n
    parts = parts_of(sources, n, reading)
    digest = _digest(parts, resolved, reading, committed)
    with contextlib.suppress(SpecError, IndexFormatError):  # there is none, or it cannot be read
        if (earlier := Division.open(stage)).digest == digest:
            earlier.check()
            progress.end()
            return earlier
    n_fitted, fitted = 0, dict[bytes, Floats]()
    if resolved.wants_a_sample:
        n_fitted, fitted = fit_on_corpus(resolved, reading, cutter, ledger, stage / id_ / SEED)
    elif not sources and committed is None:
        reading.check_something_was_read(0, ledger.skips)
    language = stemmer_of(resolved, reading, sources)
    index_options, left = resolved.index_options(), None
    if index_options.max_memory is not None:
        taken = [] if resolved.stored is None else resolved.stored.manifest.segments
        left = max(0, index_options.max_memory - sum(map(memory_bytes, taken)))
    with StoreWriter(
        stage / id_ / SEED,
        spec=resolved.spec.to_json(),
        fingerprint=resolved.fingerprint(),
        dim=resolved.dim(),
        index=dataclasses.replace(index_options, lexical=language, max_memory=None),
        blobs=resolved.blobs(),
    ) as writer:
        notes = {LAYOUTS: reading.layouts.to_json(), LANGUAGE: reading.language, **run_notes(resolved)}
        writer.commit(notes, 0, changed=True)
    arrays = {
        KNOWN: known.records(),
        PASSED: seen.passed,
        FITTED_KEYS: as_digests(list(fitted)),
        FITTED: np.array(list(fitted.values()), np.float32).reshape(len(fitted), resolved.dim()),
    }
    sums = _write(stage / id_, parts, arrays)
    division = Division(
        stage=stage,
        id=id_,
        n=n,
        index=reading.index.absolute(),
        corpus=str(reading.corpus),
        base=None if committed is None else (committed.generation, committed.created),
        replaces=options.rebuild,
        relabels=before.relabels,
        looks_again=before.looks_again,
        language=reading.language,
        ragidx=ragidx.__version__,
        options={name: getattr(options, name) for name in _READING},
        index_options=index_options,
        entries=reading.selection.entries,
        names=reading.selection.names,
        ledger=ledger.to_json(),
        n_fitted=n_fitted,
        max_memory=left,
        sizes=[sum(piece.n_bytes for piece in part) for part in parts],
        digest=digest,
        sums=sums,
    )
    division.write()
    progress.end()
    return division


def _changed(reading: Reading, seen: SeenFiles, ledger: Ledger) -> Iterator[Source]:
    """The files that are read; the others are counted."""
    for source in reading.sources(ledger.skip):
        ledger.begin(source)
        if (n_documents := seen.passes(source, ledger.skip)) is not None:
            reading.layouts.pass_over(source.name)
            ledger.pass_over(source, n_documents)
        else:
            yield source


def _digest(parts: Sequence[Sequence[Source]], resolved: Resolved, reading: Reading, committed: Manifest | None) -> str:
    """Of all that a division follows from, before a filter is fitted."""
    asked = reading.options
    said = {
        "parts": [_files(part) for part in parts],
        "base": None if committed is None else [committed.generation, committed.created],
        "spec": resolved.spec.to_json(),
        "index": dataclasses.asdict(resolved.index_options()),
        "sources": [entry.to_json() for entry in reading.selection.entries],
        "options": [getattr(asked, name) for name in (*_READING, "language", "restore", "rebuild", "endpoint")],
        "names": reading.selection.names,
    }
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _files(part: Sequence[Source]) -> list[list[Any]]:
    """The files of a shard, as `Division.files` and `times` read them."""
    return [
        [
            *(str(source.path.absolute()), source.name, source.size),
            *(source.status.st_mtime_ns, source.beir, source.owner, source.span),
        ]
        for source in part
        if source.path is not None and source.status is not None
    ]


def _write(folder: Path, parts: Sequence[Sequence[Source]], arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """The sha256 of each file that is written, by its name."""
    atomic.make_folder(folder / PARTS)
    sums = {}
    for number, part in enumerate(parts):
        name = part_name(number)
        sums[name] = atomic.write_file(folder / name, json.dumps(_files(part)).encode()).sha256
    for name, array in arrays.items():
        with atomic.create(folder / name) as file:
            np.save(file, array)
        sums[name] = file.entry.sha256
    return sums
