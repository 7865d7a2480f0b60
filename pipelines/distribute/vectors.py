"""Shards of precomputed vectors: each task writes its rows as one, and the commit makes all of them the index.

    division = divide_vectors("stage/", "index/")                      at the driver
    build_vector_shard(division, number, tables) -> Descriptor         in each task; the division pickles
    commit(division, descriptors)                                      at the driver

The index then holds what `ragidx.build(vectors=...)` of one file with all rows makes of it. How many tasks there are is
not known before. A task that is run again writes into a folder of its own: of shards that no descriptor names nothing
is taken.
"""

from __future__ import annotations

import dataclasses
import itertools
import secrets
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ragidx
from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import Source
from ragidx.corpora.vectors.columnar import read_tables
from ragidx.indexer import atomic
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.store import Store
from ragidx.indexer.writing import StoreWriter
from ragidx.indexer.writing.vacuum import check_folder, cleaned_if_refused
from ragidx.pipelines.distribute.checks import DIVISION, check_base, shards_of
from ragidx.pipelines.distribute.descriptor import Descriptor, manifest_digest
from ragidx.pipelines.distribute.division import (
    SEED,
    SHARD,
    Division,
    base_of,
    notes_of,
    prepared,
)
from ragidx.pipelines.ingest.corpus import check_removal
from ragidx.pipelines.ingest.options import INDEX_OPTIONS, build_options, check_names, index_options
from ragidx.pipelines.ingest.report import BuildReport, Progress, Skips
from ragidx.pipelines.vectors import RowWriter
from ragidx.pipelines.vectors.build import finish
from ragidx.pipelines.vectors.spec import spec_of_vectors
from ragidx.pipelines.vectors.writer import DELETED, SEEN_BEFORE

_OPTIONS = (*INDEX_OPTIONS, "text_field", "id_field", "strict", "allow_removal", "rebuild", "restore")
_KEPT = (*INDEX_OPTIONS, "text_field", "id_field", "strict", "allow_removal", "restore")


def divide_vectors(
    stage: str | Path,
    index: str | Path = "ragidx-index",
    *,
    vector_field: str | None = None,
    made_by: str = "",
    **options: Any,
) -> Division:
    """Begin a build of precomputed vectors that many tasks have.

    Args:
        stage: a folder that all tasks see by this path; made if it is missing.
        index: the folder of the index. It is only read. Make it with `Index.create(index, dim=...)` before, where a
            model encodes questions for it.
        vector_field: the column of the vectors; None: the one with a known name, else the only one.
        made_by: what made the vectors, for whoever reads the index.
        options: `text_field`, `id_field`, `strict`, `allow_removal`, `rebuild`, `restore`, and `index_type`,
            `target_recall`, `max_memory`, `stemmer` and `lexical`, as `ragidx.build` takes them.

    Raises:
        SpecError: an option is wrong, the index holds something else, or the stage is that of another index.
    """
    check_names("divide_vectors", options, _OPTIONS)
    build, folder, stage = build_options("divide_vectors", **options), Path(index), Path(stage)
    check_folder(folder)
    base = base_of(folder, replaces=build.rebuild)
    old = None if build.rebuild else base
    spec = spec_of_vectors(
        old, 1 if old is None else old.dim, index_type=build.index_type, made_by=made_by, where=str(folder)
    )
    stored = IndexOptions() if old is None else old.index
    named = {name: getattr(build, name) for name in INDEX_OPTIONS}
    wanted = index_options(stored, None if old is None else old.dim, **named | {"index_type": spec.index_type})
    division = Division(
        stage=stage,
        id=secrets.token_hex(8),
        index=folder.absolute(),
        base=None if base is None else (base.generation, base.created),
        replaces=build.rebuild,
        ragidx=ragidx.__version__,
        options={"vector_field": vector_field, "made_by": made_by} | {name: getattr(build, name) for name in _KEPT},
        index_options=wanted,
    )
    with prepared(stage, folder):
        division.write()
        if old is not None:
            store = Store.open(folder)
            words = (
                wanted.lexical if old.lexical is None or old.index.lexical != wanted.lexical else old.lexical.stemmer
            )
            with StoreWriter(
                division.folder / SEED,
                spec=spec.to_json(),
                fingerprint=spec.fingerprint(),
                dim=old.dim,
                index=dataclasses.replace(wanted, lexical=words, max_memory=None),
                blobs={name: store.blob(name) for name in store.manifest.files},
            ) as writer:
                writer.commit({}, 0, changed=True)
    return division


def build_vector_shard(division: Division, number: int, tables: Iterable[Any]) -> Descriptor:
    """Write the rows of a task as a shard.

    Args:
        division: a division that `divide_vectors` made.
        number: number of the task, from 0: rows with one id are resolved in the order of these numbers, the first
            stays.
        tables: Arrow tables or record batches, with the columns of a file of precomputed vectors, and ids.

    Raises:
        CorpusError: a column is missing, or the vectors have another width than those before.
        SpecError: the vectors have another width than those of the index.
        StrictError: a row is skipped, and the build is strict.
        RagidxError: the disk is full.
    """
    if not isinstance(number, int) or number < 0:
        raise SpecError(f"{number!r} is no number of a task", "give one from 0", where="`number`")
    if division.n:
        hint = "build its shards with `build_shard`"
        raise SpecError("the division is of a corpus", hint, where=str(division.stage))
    said, skips = division.options, Skips(division.options["strict"])
    folder = division.shards / f"{number:05d}-{secrets.token_hex(8)}"
    own = {name: said[name] for name in INDEX_OPTIONS if name != "max_memory"}
    file = SourceFile(
        source=Source(None, f"shard {number}", 0),
        options=ReadOptions(said["text_field"], said["id_field"]),
        on_skip=skips.add,
    )
    batches = read_tables(tables, file, said["vector_field"])
    first = next(batches, None)
    dim, n_deleted = 1 if first is None else first.vectors.shape[1], 0
    try:
        if (division.folder / SEED).exists():
            shutil.copytree(division.folder / SEED, folder)
            dim, own = (Store.open(folder).manifest.dim if first is None else dim), {}
        with RowWriter(folder, dim, made_by=said["made_by"], restore=said["restore"], **own) as writer:
            for batch in itertools.chain([] if first is None else [first], batches):
                faults = writer.add_sound(batch)
                n_deleted += sum(why == DELETED for why in faults.values())
                for row in sorted(row for row in faults if faults[row] != DELETED):
                    skips.add(Skip(batch.where(row), f"{faults[row]}: '{batch.ids[row]}'"))
            notes: dict[str, Any] = {"division": division.id, "n_deleted_before": n_deleted}
            notes |= {"skipped": dict(skips.counts), "places": skips.places}
            manifest = writer.commit({SHARD: notes}, changed=True)
    except BaseException:
        atomic.remove(folder)
        raise
    return Descriptor(
        division=division.id,
        number=number,
        folder=folder.name,
        manifest=manifest_digest(folder),
        n_documents=manifest.n_documents,
        n_chunks=manifest.n_chunks,
    )


def commit_vectors(division: Division, descriptors: Sequence[Descriptor] | None, progress: Progress) -> BuildReport:
    """As `commit`, which holds the lock of the stage."""
    started, said = time.perf_counter(), division.options
    old = None if division.replaces else base_of(division.index, replaces=False)
    spec = spec_of_vectors(old, 1 if old is None else old.dim, made_by=said["made_by"], index_type=said["index_type"])
    shards = shards_of(division, descriptors, spec.fingerprint())
    widths = {store.manifest.dim: store.path.name for store in shards if store.n_rows}
    if len(widths) > 1:
        each = ", ".join(f"{width:,} in {name}" for width, name in sorted(widths.items()))
        raise SpecError(
            f"the vectors have several widths: {each}", "write those of one model", where=str(division.stage)
        )
    dim = next(iter(widths), 1 if old is None else old.dim)
    report, skips = BuildReport(index=str(division.index)), Skips(said["strict"])
    own = {name: said[name] for name in INDEX_OPTIONS}
    with (
        cleaned_if_refused(division.index),
        RowWriter(
            division.index, dim, made_by=said["made_by"], replace=division.replaces, restore=said["restore"], **own
        ) as writer,
    ):
        check_base(division, writer.base)
        for store in shards:
            notes = notes_of(store)
            for reason, count in notes["skipped"].items():
                skips.take(reason, count, notes["places"][reason])
            report.n_deleted_before += notes["n_deleted_before"]
            for name in writer.adopt(store):
                skips.add(
                    Skip(f"shard {store.path.name.partition('-')[0].lstrip('0') or 0}", f"{SEEN_BEFORE}: '{name}'")
                )
        if not widths and not report.n_deleted_before:
            why = f" ({skips.shown()})" if skips.counts else ""
            raise CorpusError(f"no task has written a vector{why}", "look at what the tasks read", where=report.index)
        if old is not None and not said["allow_removal"]:
            check_removal(writer.count_others(), old.n_chunks, division.index, "rows")
        writer.delete_others()
        manifest = writer.commit({"corpus": "", "skipped": dict(skips.counts), DIVISION: division.id})
    finish(report, writer, manifest, old, dim)
    report.skipped, report.skipped_places = dict(skips.counts), skips.places
    report.seconds = time.perf_counter() - started
    progress.end()
    return report
