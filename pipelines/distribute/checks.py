"""What a commit looks at first: are all shards there, whole and of its division, and is the index as it was divided?

division, descriptors -> shards, open, in their order
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import Manifest, files_of
from ragidx.pipelines.distribute.descriptor import Descriptor, manifest_digest
from ragidx.pipelines.distribute.division import Division, notes_of
from ragidx.pipelines.ingest.report import BuildReport

DIVISION = "division"
"""In the notes of a manifest: the id of the division that made it."""


def shards_of(division: Division, descriptors: Sequence[Descriptor] | None, fingerprint: str) -> list[Store]:
    """The shards of a division, checked, in the order of their numbers.

    Raises:
        SpecError: one is missing, there twice, or of another division.
        IndexFormatError: one is damaged.
    """
    if descriptors is None:
        if not division.n:
            hint = "give what `build_vector_shard` returned in each task"
            raise SpecError("shards of precomputed vectors are known by their descriptors alone", hint)
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
    return [
        _shard(division, given[number], fingerprint)
        for number in sorted(given)
        if number < division.n or not division.n
    ]


def _shard(division: Division, descriptor: Descriptor, fingerprint: str) -> Store:
    folder, number = division.shards / descriptor.folder, descriptor.number
    again = "write it again" if not division.n else "build it again"
    if descriptor.division != division.id or Path(descriptor.folder).name != descriptor.folder:
        raise SpecError(f"shard {number} is of another division", again, where=str(folder))
    try:
        store = Store.open(folder)
    except IndexFormatError as fault:
        by = f": `ragidx build --shard {number}/{division.n} --stage {division.stage}`" if division.n else ""
        raise IndexFormatError(f"shard {number}: {fault.message}", again + by, where=fault.where) from fault
    if notes_of(store).get("division") != division.id or store.manifest.fingerprint != fingerprint:
        raise SpecError(f"shard {number} is of another division", again, where=str(folder))
    said = (descriptor.manifest, descriptor.n_documents, descriptor.n_chunks)
    if (manifest_digest(folder), store.manifest.n_documents, store.manifest.n_chunks) != said:
        raise IndexFormatError(f"shard {number} is not the one that was built", again, where=str(folder))
    return store


def check_base(division: Division, base: Manifest | None) -> None:
    """Whether the index is in the state that was divided."""
    if (None if base is None else (base.generation, base.created)) == division.base:
        return
    now = "is gone" if base is None else f"has generation {base.generation} now"
    raise SpecError(
        f"the index {now}: another process wrote it since it was divided",
        "divide again: finished shards lend their vectors",
        where=str(division.index),
    )


def as_it_is(index: Path, manifest: Manifest) -> BuildReport:
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
