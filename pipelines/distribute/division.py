"""A division: what each shard of a build reads, and all that no shard may decide by itself; its files in the stage.

    `divide` -> stage/division.json
                stage/<id>/seed/            an index without rows: spec, filter, stemmer, layouts, deleted ids
                stage/<id>/parts/00000.json the files of a shard, some of them a part of one
                stage/<id>/known.npy        the documents that the index has; beside it those of files that
                                            did not change, and vectors of a sample that a filter was fitted on
                stage/<id>/shards/00000.json, 00000-<host>/      what `build_shard` makes

No lock is held from here to the commit: a commit finds out whether the index is still the one that was divided.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ragidx
from ragidx.corpora.errors import CorpusError, IndexFormatError, SpecError
from ragidx.corpora.sources import LineSpan, Source
from ragidx.indexer import atomic
from ragidx.indexer.ann.index_types import DEFAULT_OPTIONS, IndexOptions
from ragidx.indexer.arrays import Floats, saved, slices
from ragidx.indexer.digests import DIGEST_BYTES
from ragidx.indexer.json_checks import mapping
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import MANIFEST
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.lookup import DOCUMENT_RECORD
from ragidx.indexer.store.manifest import Manifest, NewerFormatError
from ragidx.indexer.store.source_list import SourceEntry
from ragidx.pipelines.distribute.descriptor import ID, Descriptor, manifest_digest, read_descriptor
from ragidx.pipelines.ingest.options import BuildOptions, build_options

DIVISION = "division.json"
COMMITTED = "committed.json"  # what is left in a stage: which index has its shards
SHARD = "shard"  # in the notes of a shard's manifest
SEED, PARTS, SHARDS = "seed", "parts", "shards"
KNOWN, PASSED, FITTED_KEYS, FITTED = "known.npy", "passed.npy", "fitted.keys.npy", "fitted.npy"

_AGAIN = "divide again: finished shards lend their vectors"
_DIGEST = f"S{DIGEST_BYTES}"
_FORMAT = 2
_LENT_ROWS = 10_000_000  # of which the hashes take 440 MB


@dataclass(frozen=True, kw_only=True)
class Division:
    """A build that is divided. Made by `divide` or `divide_vectors`, read by `open`.

    Attributes:
        stage: the folder that all machines see.
        id: id of this division.
        n: how many shards it has; 0: of precomputed vectors, as many as are written.
        index: the folder that the commit writes.
        corpus: the corpus as it was named, for messages.
        base: generation and time of the state that is continued; None: there is none.
        replaces: whether the new state has only what the shards have.
        relabels, looks_again: whether unchanged documents are cut again, or looked at.
        language: whether documents get the field `language`.
        ragidx: the version that made it.
        options: how files are read, and how the model runs; of precomputed vectors, all options.
        index_options: options of the index after the commit.
        entries, names: the sources of the index after the build, and which of them are read.
        ledger: what the division counted: files that did not change, and what the walk skipped.
        n_fitted: chunks that the filter was fitted on.
        max_memory: bytes that the indexes of all shards may take together; None: no limit.
        sizes: bytes that each shard reads.
        digest: digest of all that the division follows from: of one corpus with the same options it is the same.
        sums: the sha256 of its other files, by their names in its folder.
    """

    stage: Path
    id: str
    index: Path
    base: tuple[int, str] | None
    replaces: bool
    ragidx: str
    options: Mapping[str, Any]
    n: int = 0
    corpus: str = ""
    relabels: bool = False
    looks_again: bool = False
    language: bool = False
    index_options: IndexOptions = DEFAULT_OPTIONS
    entries: tuple[SourceEntry, ...] = ()
    names: tuple[str, ...] = ()
    ledger: Mapping[str, Any] = field(default_factory=dict)
    n_fitted: int = 0
    max_memory: int | None = None
    sizes: Sequence[int] = ()
    digest: str = ""
    sums: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, stage: str | Path) -> Division:
        """The division in a stage.

        Raises:
            SpecError: there is none, it is damaged, or of another version of ragidx.
        """
        path = Path(stage) / DIVISION
        try:
            fields = mapping(json.loads(path.read_bytes()), "")
            if fields.pop("format", None) != _FORMAT:
                raise ValueError("it has another format")
            if fields.get("ragidx") != ragidx.__version__:
                raise SpecError(
                    f"it was divided by ragidx {fields.get('ragidx')}, and this is {ragidx.__version__}",
                    "install the same version on all machines, or divide again",
                    where=str(path),
                )
            if fields.pop("checksum", None) != _checksum(fields):
                raise ValueError("its checksum does not fit the rest")
            base, options = fields.pop("base"), fields.pop("index_options")
            return cls(
                stage=Path(stage),
                index=Path(fields.pop("index")),
                base=None if base is None else (base[0], base[1]),
                index_options=IndexOptions(**options),
                entries=tuple(SourceEntry(**entry) for entry in fields.pop("entries")),
                names=tuple(fields.pop("names")),
                **fields,
            )
        except FileNotFoundError as fault:
            hint = "divide the corpus first: `ragidx build CORPUS --shards N --stage DIR`"
            raise SpecError("there is no division in this folder", hint, where=str(stage)) from fault
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as fault:
            raise SpecError(f"the division cannot be read: {fault}", _AGAIN, where=str(path)) from fault

    def write(self) -> None:
        """Make it the division of its stage; its shards come into a folder of it."""
        atomic.remove(self.stage / COMMITTED)
        for name in (PARTS, SHARDS):  # by which the folder is known
            atomic.make_folder(self.folder / name)
        said = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name != "stage"} | {
            "index": str(self.index),
            "index_options": dataclasses.asdict(self.index_options),
            "entries": [entry.to_json() for entry in self.entries],
        }
        said = json.loads(json.dumps(said)) | {"checksum": _checksum(said), "format": _FORMAT}
        atomic.write_file(self.stage / DIVISION, json.dumps(said, indent=1).encode())

    @property
    def folder(self) -> Path:
        """The folder of all its files but the first."""
        return self.stage / self.id

    @property
    def shards(self) -> Path:
        """The folder of the shards."""
        return self.folder / SHARDS

    def discard(self) -> None:
        """Remove it from its stage, with all its shards, where it will not be committed."""
        with Lock(self.stage):
            remove_stage(self)

    def seed(self) -> Store:
        """The index without rows that every shard continues; there is none of precomputed vectors in a new index."""
        try:
            return Store.open(self.folder / SEED)
        except IndexFormatError as fault:
            raise IndexFormatError(fault.message, _AGAIN, where=fault.where) from fault

    def check(self) -> None:
        """Whether all its files are as they were written.

        Raises:
            SpecError: one is missing or damaged; so do the members that read one.
            IndexFormatError: the index without rows is.
        """
        self.seed()
        for name in self.sums:
            self._whole(name)

    def _whole(self, name: str) -> Path:
        """One of its files, which is as it was written."""
        path = self.folder / name
        try:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == self.sums[name]:
                    return path
            why = "the file is damaged: it is not what the division wrote"
        except OSError as fault:
            why = f"the file cannot be read: {fault.strerror}"
        raise SpecError(why, _AGAIN, where=str(path))

    def known(self) -> NDArray[np.void]:
        """The documents of the index that is continued, as `Documents.records` gives them."""
        return saved(self._whole(KNOWN).read_bytes(), DOCUMENT_RECORD)

    def passed(self) -> NDArray[np.bytes_]:
        """The digests of the documents of files that did not change."""
        return saved(self._whole(PASSED).read_bytes(), _DIGEST)

    def fitted(self) -> dict[bytes, Floats]:
        """The vectors by text hash that the fit of the filter has made already."""
        keys = saved(self._whole(FITTED_KEYS).read_bytes(), _DIGEST)
        vectors = saved(self._whole(FITTED).read_bytes(), "<f4")
        rows = vectors.reshape(len(keys), -1) if len(keys) else ()
        return dict(zip(slices(keys.tobytes(), DIGEST_BYTES), rows, strict=True))

    def files(self, number: int) -> list[Source]:
        """What a shard reads.

        Raises:
            SpecError: there is no such shard.
        """
        if not self.n:
            hint = "write its shards with `build_vector_shard`"
            raise SpecError("the division is of precomputed vectors", hint, where=str(self.stage))
        if not 0 <= number < self.n:
            last = self.n - 1
            raise SpecError(f"there is no shard {number}", f"the shards are 0 to {last}", where=str(self.stage))
        return [
            Source(Path(path), name, size, beir=beir, owner=owner, span=None if span is None else LineSpan(*span))
            for path, name, size, _, beir, owner, span in self._part(number)
        ]

    def times(self, number: int) -> list[int]:
        """When each file of a shard was written last, in ns."""
        return [said[3] for said in self._part(number)]

    def _part(self, number: int) -> list[Any]:
        found: list[Any] = json.loads(self._whole(part_name(number)).read_bytes())
        return found

    def reading_options(self, **run: Any) -> BuildOptions:
        """The options of a shard; `run` are those of the machine it is built on."""
        own = {name: value for name, value in self.options.items() if run.get(name) in (None, "auto")}
        return build_options("build_shard", **{**run, **own, "language": self.language})

    def descriptor(self, number: int) -> Descriptor | None:
        """The descriptor of a shard that is done; None where it is not.

        Raises:
            SpecError: it cannot be read, or is of another division.
        """
        path = self.shards / f"{number:05d}.json"
        try:
            found = read_descriptor(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as fault:
            hint = "remove it, and build the shard again"
            raise SpecError(f"it is no descriptor of a shard: {fault}", hint, where=str(path)) from fault
        if (found.division, found.number) != (self.id, number):
            raise SpecError("it is the descriptor of another shard", "remove it", where=str(path))
        return found

    def memory(self, number: int) -> int | None:
        """Bytes that the indexes of a shard may take: its share of what the index leaves; None: no limit."""
        if self.max_memory is None:
            return None
        return max(1, self.max_memory * self.sizes[number] // max(1, sum(self.sizes)))

    def continued(self) -> list[Store]:
        """The index, whose vectors are taken, where it is continued and can be seen from here."""
        if self.base is None or self.replaces:
            return []
        with contextlib.suppress(IndexFormatError, OSError):
            store = Store.open(self.index)
            if store.manifest.fingerprint == self.seed().manifest.fingerprint:
                return [store]
        return []

    def earlier(self, number: int) -> list[Store]:
        """Shards of earlier divisions in this stage, of the same vectors: those that are nearest in the corpus first.

        What was there may have moved, so all are taken, up to a number of rows: the hashes of these are held in memory.
        What is damaged lends nothing.
        """
        fingerprint, found = self.seed().manifest.fingerprint, list[tuple[float, Store]]()
        others = [folder for folder in _folders(self.stage) if folder != self.folder]
        for path in sorted(path for folder in others for path in (folder / SHARDS).glob("*.json")):
            with contextlib.suppress(IndexFormatError, OSError, ValueError, TypeError, KeyError, RecursionError):
                store = Store.open(path.parent / read_descriptor(path).folder)
                start, end = notes_of(store)["place"]
                if store.manifest.fingerprint == fingerprint:
                    found.append((abs((start + end) / 2 - (number + 0.5) / self.n), store))
        stores = [store for _, store in sorted(found, key=lambda one: one[0])]
        n_before = itertools.accumulate((store.manifest.n_chunks for store in stores), initial=0)
        return [store for store, held in zip(stores, n_before, strict=False) if held < _LENT_ROWS]


def part_name(number: int) -> str:
    """The file of what a shard reads, in the folder of its division."""
    return f"{PARTS}/{number:05d}.json"


def _checksum(said: Mapping[str, Any]) -> str:
    """sha256 of what a division says."""
    return hashlib.sha256(json.dumps(json.loads(json.dumps(said)), sort_keys=True).encode()).hexdigest()


def same_files(division: Division, number: int) -> Iterator[Source]:
    """The files of a shard as they are now.

    Raises:
        CorpusError: one is gone, or is another than when the corpus was divided.
    """
    for source, written in zip(division.files(number), division.times(number), strict=True):
        assert source.path is not None
        try:
            status = source.path.stat()
        except OSError as fault:
            why = f"it cannot be read now: {fault.strerror}"
            raise CorpusError(why, _AGAIN, where=str(source.path)) from fault
        if (status.st_size, status.st_mtime_ns) != (source.size, written):
            raise CorpusError("it changed since the corpus was divided", _AGAIN, where=str(source.path))
        yield dataclasses.replace(source, status=status)


def write_descriptor(division: Division, number: int, folder: Path, manifest: Manifest) -> Descriptor:
    """Note that a shard is done; of two that did it the first counts."""
    made = Descriptor(
        division=division.id,
        number=number,
        folder=folder.name,
        manifest=manifest_digest(folder),
        n_documents=manifest.n_documents,
        n_chunks=manifest.n_chunks,
    )
    if (found := division.descriptor(number)) is not None:
        return found
    atomic.write_file(division.shards / f"{number:05d}.json", json.dumps(dataclasses.asdict(made)).encode())
    return made


def notes_of(store: Store) -> dict[str, Any]:
    """What the manifest of a shard notes of it."""
    found: Any = store.manifest.notes.get(SHARD, {})
    return dict(found)


def base_of(index: Path, *, replaces: bool) -> Manifest | None:
    """The state of an index that is continued or replaced; None: there is none that can be read."""
    try:
        return committed_or_none(index)
    except NewerFormatError:
        raise
    except IndexFormatError:
        if not replaces:
            raise
        return None


@contextlib.contextmanager
def prepared(stage: Path, index: Path, sources: Sequence[tuple[str, Path]] = ()) -> Iterator[None]:
    """Hold the lock of a stage that is free, or has an earlier division of the same index, also an unreadable one.

    Raises:
        SpecError: it is an index, or the stage of another one, or is inside of the index or a source.
        BusyError: another process divides into it, or commits it.
    """
    for what, place in [*sources, ("the index", index)]:
        if stage.resolve().is_relative_to(place.resolve()):
            raise SpecError(f"it is inside of {what}", "name a folder beside it", where=str(stage))
    atomic.make_folder(stage)
    with Lock(stage):
        hint = "name another folder with `stage`"
        if (stage / MANIFEST).exists():
            raise SpecError("it is an index", hint, where=str(stage))
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            held = Path(json.loads((stage / DIVISION).read_bytes())["index"])
            if held.resolve() != index.resolve():
                raise SpecError(f"it has a division of the index {held}", hint, where=str(stage))
        yield


def remove_stage(division: Division) -> None:
    """Remove the division and its shards, and those before it; the folder itself is the user's.

    The lock of the stage is held, and a later division stays.
    """
    with contextlib.suppress(SpecError):
        if Division.open(division.stage).id != division.id:
            atomic.remove(division.folder)
            return
    atomic.remove(division.stage / DIVISION)
    for folder in _folders(division.stage):
        atomic.remove(folder)


def _folders(stage: Path) -> list[Path]:
    """Those of divisions; a stage may hold what is not ours."""
    return sorted(path for path in stage.iterdir() if ID.fullmatch(path.name) and (path / PARTS).is_dir())
