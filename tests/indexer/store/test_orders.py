"""Forced orders: a reader between every two steps of a writer, and a writer between every two calls of a reader.

A writer's steps are its calls that change the disk (`faults.Disk`): of builds, deletions, rollbacks, compaction, and of
the clean-up after each. A reader's are the calls of functions of `indexer/`, while it opens an index or refreshes an
open one. Of two writers the second is refused, whatever the first is doing.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_operations import OPERATIONS, Reference
from faults import Disk, Step, turns
from hypothesis import given, settings
from hypothesis import strategies as st
from pausing_reader import Found, PausingReader
from states import State, documents_of, state_of

from ragidx.corpora.errors import BusyError
from ragidx.indexer.store import Store
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.manifest import KEPT

pytestmark = pytest.mark.slow

NAMES = tuple(name for name, operation in OPERATIONS.items() if operation.past)


class Beside(Disk):
    """Another process comes between the steps of a writer: `act` is called before some of them."""

    def __init__(self, root: Path, chosen: set[int], act: Callable[[Step], None]) -> None:
        super().__init__(root)
        self._chosen, self._act, self._acts = chosen, act, False

    def _step(self, call: str, path: Path) -> Step:
        return Step(-1, call, path) if self._acts else super()._step(call, path)  # the other's are not the writer's

    def before(self, step: Step) -> None:
        if step.number in self._chosen:
            self._acts = True
            try:
                self._act(step)
            finally:
                self._acts = False


@pytest.fixture(scope="module")
def reader() -> Iterator[PausingReader]:
    with PausingReader() as running:
        yield running


def at_step(reference: Reference, step: Step) -> State:
    """The state that an index is in before a step: the new one from the renaming of the manifest on."""
    assert reference.old is not None
    return reference.new if step.number > reference.commit else reference.old


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_between_two_steps_of_a_writer_sees_one_state(
    name: str, reference: Callable[[str], Reference], kit, tmp_path: Path
) -> None:
    case = reference(name)
    with case.copy(tmp_path / "order") as index:
        held = Store.open(index)
        before, seen = documents_of(held), list[int]()

        def read(step: Step) -> None:
            assert state_of(index) == at_step(case, step), step
            seen.append(Store.open(index, held).manifest.generation)
            with contextlib.suppress(BusyError), Lock(index):
                assert step.path.name == "LOCK", "another writer came in"

        with Beside(index.parent, {step.number for step in turns(case.steps)}, read):
            case.operation.run(kit, index)

        assert state_of(index) == case.new
        assert set(seen) == {case.old.generation, case.new.generation}
        assert seen == sorted(seen)
        assert documents_of(held) == before


@pytest.mark.parametrize("name", NAMES)
@given(refresh=st.booleans(), call=st.floats(0, 1), step=st.floats(0, 1))
@settings(max_examples=20)
def test_a_writer_between_two_calls_of_a_reader(
    name: str,
    refresh: bool,
    call: float,
    step: float,
    reference: Callable[[str], Reference],
    reader: PausingReader,
    kit,
) -> None:
    """The reader stops before a call, the writer comes up to a step or to its end, and the reader goes on to its own.

    `pytest -m hypothesis --hypothesis-profile random` draws other pairs.
    """
    case = reference(name)
    steps, found = turns(case.steps), list[Found]()
    chosen = steps[min(int(step * len(steps)), len(steps) - 1)].number if step < 1 else -1  # at 1: behind the last
    with tempfile.TemporaryDirectory() as folder, case.copy(Path(folder) / "order") as index:
        reader.hold(index)
        before = reader.open(index, refresh=refresh)
        reader.start(index, refresh=refresh, stop=int(call * before.calls))

        with Beside(index.parent, {chosen}, lambda _: found.append(reader.end())):
            case.operation.run(kit, index)
        if chosen < 0:
            found.append(reader.end())

        assert not found[0].error, found[0].error
        assert found[0].documents in (before.documents, documents_of(Store.open(index)))
        assert state_of(index) == case.new


@given(refresh=st.booleans(), call=st.floats(0, 1))
@settings(max_examples=30)
def test_a_reader_whose_files_are_removed_meanwhile_reads_a_later_state(
    refresh: bool, call: float, reader: PausingReader, kit
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        kit.build(index, {"ant": ["an ant"], "bee": ["a bee"]}, index_type="hnsw")
        reader.hold(index)
        before = reader.open(index, refresh=refresh)
        reader.start(index, refresh=refresh, stop=int(call * before.calls))
        states = [{"ant": [f"an ant of {number}"]} for number in range(KEPT + 1)]
        for state in states:
            kit.build(index, state, index_type="hnsw")

        found = reader.end()

        assert not found.error, found.error
        assert found.documents in (before.documents, states[-1])
