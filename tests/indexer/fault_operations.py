"""What the fault tests do to an index: a table of operations, and what an index is before and after one of them.

reference = Reference.of(OPERATIONS["update"], kit, folder)     the operation done once without any fault
state_of(index) in (reference.old, reference.new)               after a fault: one of both, by content
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from faults import Disk, Step
from states import State, state_of

from ragidx.corpora.errors import BusyError
from ragidx.indexer.ann import index_types, moments
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import UPGRADES
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import segment_writer
from ragidx.indexer.writing.adoption import adopt
from ragidx.indexer.writing.history import rollback
from ragidx.indexer.writing.rewrite import compact

if TYPE_CHECKING:
    from conftest import StoreKit

Documents = Mapping[str, list[str]]

BESIDE = f"{UPGRADES}/other"
BLOBS = {"filter.bin": bytes(range(256))}
PAST: tuple[Documents, ...] = (  # what is committed before; the operation's own sweep removes the first of these
    {"ant": ["an ant", "two ants"], "bee": ["a bee"], "cow": ["a cow", "two cows", "three cows"]},
    {"ant": ["an ant", "two ants"], "bee": ["a bee"], "cow": ["a cow", "no cow"]},
    {"ant": ["an ant", "two ants"], "bee": ["one bee", "a hive"], "cow": ["a cow", "no cow"], "elk": ["an elk"]},
)
CHANGED: Documents = {"ant": ["an ant", "two ants"], "bee": ["a swarm"], "cow": ["a cow", "no cow"], "dog": ["a dog"]}
LONG: Documents = {f"long {n}": [f"text {n} {part} " + "word " * 20 for part in range(4)] for n in range(6)}


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of an index.

    Attributes:
        past: what is built before, one generation each.
        change: what is done.
        documents: what the index holds after it.
        options: of the writers, before and after.
        changed: options that the change brings, for the writers after it.
        beside: what an index holds that lies in this one, and was made with these options.
    """

    past: tuple[Documents, ...]
    change: Callable[[StoreKit, Path], object]
    documents: Documents
    options: Mapping[str, Any]
    changed: Mapping[str, Any] = field(default_factory=dict)
    beside: Documents | None = None

    def prepare(self, kit: StoreKit, index: Path) -> None:
        """Commit the past."""
        with small_indexes():
            for documents in self.past:
                kit.build(index, documents, compact=False, **self.options)  # so that rows are dead
            if self.beside is not None:
                for documents in (PAST[0], self.beside):
                    kit.build(index / BESIDE, documents, compact=False, **self.options, **self.changed)

    def run(self, kit: StoreKit, index: Path) -> None:
        """Do it once."""
        with small_indexes():
            self.change(kit, index)

    def follow(self, kit: StoreKit, index: Path) -> Manifest:
        """A build of what the index holds after the operation."""
        with small_indexes():
            return kit.build(index, self.documents, **{**self.options, **self.changed})[0]


@contextlib.contextmanager
def small_indexes() -> Iterator[None]:
    """Segments of two rows get the index and the moments that only large ones get elsewhere."""
    with mock.patch.object(index_types, "MIN_ROWS", 2), mock.patch.object(moments, "_ROWS_A_NUMBER", 0):
        yield


def _builds(
    documents: Documents, past: tuple[Documents, ...] = PAST, replace: bool = False, **options: Any
) -> Operation:
    options = {"blobs": BLOBS} | options
    changes = options | {"replace": True} if replace else options
    return Operation(past, lambda kit, index: kit.build(index, documents, **changes), documents, options)


def _remakes_words(before: str, after: str) -> Operation:
    """A build that finds all documents as they were, and another option of the lexical part."""
    options = {"blobs": BLOBS, "index": IndexOptions("flat", lexical=before)}
    changed = {"index": IndexOptions("flat", lexical=after)}
    return Operation(
        PAST, lambda kit, index: kit.build(index, PAST[2], **{**options, **changed}), PAST[2], options, changed
    )


def _builds_small_segments(kit: StoreKit, index: Path) -> None:
    with mock.patch.object(segment_writer, "MAX_TEXT_BYTES", 1000):
        kit.build(index, LONG, blobs=BLOBS)


def _deletes(kit: StoreKit, index: Path, **options: Any) -> None:
    with kit.writer(index, blobs=BLOBS, **options) as writer:
        for doc_id in ("ant", "elk"):  # a document in a segment of others, and a segment's last one
            writer.delete_document(doc_id)
        writer.commit({}, 2)


LEFT: Documents = {name: PAST[2][name] for name in ("bee", "cow")}


def _adopts(kit: StoreKit, index: Path) -> None:
    with Lock(index):
        adopt(index, Store.open(index / BESIDE), {})


OPERATIONS: Mapping[str, Operation] = {
    "first build": _builds(PAST[0], ()),
    "first build of a graph": _builds(LONG, (), index_type="hnsw"),
    "first build in many segments": Operation((), _builds_small_segments, LONG, {"blobs": BLOBS}),
    "update": _builds(CHANGED),
    "update of a graph": _builds(CHANGED, index_type="hnsw"),
    "delete": Operation(PAST, functools.partial(_deletes, compact=False), LEFT, {"blobs": BLOBS}),
    "delete that drops dead rows": Operation(
        PAST, functools.partial(_deletes, index_type="hnsw"), LEFT, {"blobs": BLOBS, "index_type": "hnsw"}
    ),
    "upgrade": _remakes_words("off", "auto"),
    "another stemmer": _remakes_words("english", "german"),
    "rebuild": _builds(CHANGED, replace=True),
    "rollback": Operation(PAST, lambda _, index: rollback(index, 2), PAST[1], {"blobs": BLOBS}),
    "compact": Operation(PAST, lambda _, index: compact(index), PAST[2], {"blobs": BLOBS}),
    "compact with a graph": Operation(
        PAST, lambda _, index: compact(index), PAST[2], {"blobs": BLOBS, "index_type": "hnsw"}
    ),
    "adoption": Operation(
        PAST,
        _adopts,
        CHANGED,
        {"blobs": BLOBS, "index_type": "hnsw"},
        changed={"dim": 4, "fingerprint": "e" * 64},
        beside=CHANGED,
    ),
}

COMMITS = 30


def documents_at(generation: int) -> Documents:
    """What the index holds in each generation of `makes_many_commits`: every fifth goes two back."""
    if generation % 5 == 0:
        return documents_at(generation - 2)
    return {f"d{n}": [f"text {n} of generation {generation}" if n == generation % 4 else f"text {n}"] for n in range(4)}


def makes_many_commits(kit: StoreKit, index: Path) -> None:
    """Generations 2 to `COMMITS`, one after the other."""
    for generation in range(2, COMMITS + 1):
        if generation % 5 == 0:
            rollback(index, generation - 2)
        else:
            kit.build(index, documents_at(generation))


def adds_in_turn(name: str, kit: StoreKit, index: Path) -> None:
    """Ten commits of one document each; whoever finds another writer waits for its end."""
    for number in range(10):
        rows = kit.rows(f"{name} {number}", [f"text of {name} {number}"])
        while True:
            try:
                with kit.writer(index) as writer:
                    kit.add(writer, rows)
                    writer.commit({}, writer.base.n_documents + 1)
                break
            except BusyError:
                time.sleep(0.001)


TASKS: Mapping[str, Callable[[StoreKit, Path], object]] = {  # what a writer of its own process may be told to do
    **{name: operation.run for name, operation in OPERATIONS.items()},
    "many commits": makes_many_commits,
    "add as Ada": functools.partial(adds_in_turn, "Ada"),
    "add as Bob": functools.partial(adds_in_turn, "Bob"),
}


def tree_of(index: Path) -> dict[str, object]:
    """Every file of an index by its path, with what must be equal wherever the same was built: all but the times.

    The lock names who wrote last; a graph's links follow the order of threads, and how hard a search tries what was
    measured: of these only the name counts.
    """
    files = {path.relative_to(index).as_posix(): path for path in index.rglob("*") if not path.is_dir()}
    folders = {path.relative_to(index).as_posix(): None for path in index.glob("segments/*")}
    return folders | {name: _comparable(name, path) for name, path in sorted(files.items())}


def _comparable(name: str, path: Path) -> object:
    if name == "LOCK" or name.endswith("/ann.faiss"):
        return None
    if not name.endswith(".json"):
        return path.read_bytes()
    manifest = json.loads(path.read_bytes())
    for segment in manifest["segments"]:
        segment["files"].pop("ann.faiss", None)
        segment.pop("ann", None)
    return {key: value for key, value in manifest.items() if key not in ("created", "checksum")}


@dataclass(frozen=True, slots=True)
class Reference:
    """An operation done without a fault: the index before it, both states, all files after it, and each step."""

    operation: Operation
    before: Path  # the folder that the index lies in; the index itself is missing before a first build
    old: State | None
    new: State
    tree: Mapping[str, object]
    steps: tuple[Step, ...]
    seconds: float

    @classmethod
    def of(cls, operation: Operation, kit: StoreKit, folder: Path) -> Reference:
        """Prepare the index in `folder`, and do the operation on a copy of it."""
        before = folder / "before"
        before.mkdir()
        operation.prepare(kit, before / "index")
        old = state_of(before / "index") if operation.past else None
        shutil.copytree(before, folder / "after")
        index = folder / "after" / "index"
        start = time.perf_counter()
        with Disk(folder / "after") as disk:
            operation.run(kit, index)
        seconds = time.perf_counter() - start
        assert (verify(before / "index") if operation.past else []) == verify(index) == []
        return cls(operation, before, old, state_of(index), tree_of(index), tuple(disk.steps), seconds)

    @property
    def commit(self) -> int:
        """The step that makes the new state visible."""
        return next(s.number for s in self.steps if s.call in ("rename", "replace") and s.path.name == "manifest.json")

    @property
    def folder_synced(self) -> int:
        """The step that makes the new state last."""
        return next(step.number for step in self.steps[self.commit :] if step.call == "fsync")

    @property
    def writes(self) -> int:
        """How many steps are writes."""
        return sum(step.call == "write" for step in self.steps)

    @contextlib.contextmanager
    def copy(self, folder: Path) -> Iterator[Path]:
        """The index as it is before the operation, in `folder`, which is removed at the end."""
        shutil.copytree(self.before, folder)
        yield folder / "index"
        shutil.rmtree(folder)
