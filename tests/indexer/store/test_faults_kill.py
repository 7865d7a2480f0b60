"""Writers killed with SIGKILL at seeded points of every operation: between two calls, inside one, and by a power loss.

After each, the index opens as the state before or after, to the bit; a following build ends as if nothing had happened.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_operations import OPERATIONS, Reference, tree_of
from fault_writers import Order, Writers
from faults import Disk, turns
from states import State, state_of

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.store.verify import verify

pytestmark = pytest.mark.slow

SEED = 20_250_131
POINTS = 320
PARTS = 20
NAMES = tuple(OPERATIONS)
NOT_BUILT = (
    "there is no such folder",
    "it is not an index: manifest.json is missing",  # killed before the lock was there
    "the index is not built yet: nothing was committed",
)


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    with Writers() as running:
        yield running


def first_order(number: int, name: str, reference: Reference, root: Path) -> Order:
    """Where the writer of one point ends; it follows from the seed and the number of the point."""
    rng = random.Random(f"{SEED}-{number}")
    (kind,) = rng.choices(["step", "torn", "power", "time"], [9, 4, 5, 2])
    step = rng.choice(turns(reference.steps)).number
    if kind == "step":
        return Order(name, str(root), at=step)
    if kind == "torn":
        return Order(name, str(root), at=rng.randrange(reference.writes), torn=rng.choice([0.5, rng.random()]))
    if kind == "power":
        return Order(name, str(root), at=step, lose=rng.randrange(2**32))
    return Order(name, str(root), after_s=rng.uniform(0, 1.5 * reference.seconds))


def expected_states(order: Order, reference: Reference) -> list[State | None]:
    """The states that an index may be in after the first kill: one, wherever the point itself decides it."""
    if order.at is None:
        return [reference.old, reference.new]
    writes = [step.number for step in reference.steps if step.call == "write"]
    step = order.at if order.torn is None else writes[order.at]
    if step <= reference.commit:
        return [reference.old]
    if order.lose is not None and step <= reference.folder_synced:
        return [reference.old, reference.new]
    return [reference.new]


def state_or_none(index: Path) -> State | None:
    """The state of an index that is whole; None where nothing was committed yet, and the message says so."""
    try:
        state = state_of(index)
    except IndexFormatError as fault:
        if fault.message not in NOT_BUILT:
            raise
        return None
    assert verify(index) == []
    return state


def kill_and_finish(number: int, name: str, reference: Reference, writers: Writers, kit, root: Path) -> None:
    """One point: the writer is killed, some writers that try again as well, and then one may finish."""
    rng = random.Random(f"{SEED}-{number}-again")
    order = first_order(number, name, reference, root)
    try:
        with reference.copy(root) as index:
            outcome = writers.run(order)
            assert outcome.killed or order.at is None
            assert outcome.error == ""
            state = state_or_none(index)
            assert state in expected_states(order, reference)
            while state == reference.old and rng.random() < 0.2:
                order = Order(name, str(root), at=rng.randrange(len(reference.steps)), lose=rng.choice([None, number]))
                assert writers.run(order).error == ""
                state = state_or_none(index)
                assert state in (reference.old, reference.new)
            if state == reference.old:
                reference.operation.run(kit, index)
            else:
                reference.operation.follow(kit, index)
            assert state_or_none(index) == reference.new
            assert tree_of(index) == reference.tree
    except BaseException as fault:
        fault.add_note(f"seed {SEED}, point {number}: {order}")
        raise


@pytest.mark.parametrize("part", range(PARTS))
def test_hundreds_of_kills_lose_nothing_and_leave_nothing(part, reference, writers, kit, root):
    for number in range(part, POINTS, PARTS):
        name = NAMES[number // PARTS % len(NAMES)]
        kill_and_finish(number, name, reference(name), writers, kit, root)


@pytest.mark.parametrize("name", NAMES)
def test_the_kills_around_the_commit_fall_on_its_two_sides(name, reference, writers, root):
    before, after = reference(name).commit, reference(name).commit + 1
    states = []
    for step in (before, after):
        with reference(name).copy(root) as index:
            assert writers.run(Order(name, str(root), at=step)).killed
            states.append(state_or_none(index))

    assert states == [reference(name).old, reference(name).new]


@pytest.mark.parametrize("name", NAMES)
def test_a_power_loss_right_after_the_commit_loses_no_file_of_the_new_state(name, reference, writers, root):
    """The renaming may be lost, and the old state is there; where it is not, every file that it names is."""
    for seed in range(8):
        with reference(name).copy(root) as index:
            assert writers.run(Order(name, str(root), at=reference(name).commit + 1, lose=seed)).killed
            assert state_or_none(index) in (reference(name).old, reference(name).new), seed


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_of_the_store_goes_through_the_layer_that_is_tested(name, reference, kit, root):
    with reference(name).copy(root) as index:
        before = {path: path.read_bytes() for path in index.rglob("*") if path.is_file()}

        with Disk(root) as disk:
            OPERATIONS[name].run(kit, index)

        written = {path: path.stat().st_size for path in index.rglob("*") if path.is_file()}
        written = {path: size for path, size in written.items() if before.get(path) != path.read_bytes()}
        assert len(written) >= 3
        assert {path: disk.written.get(path) for path in written} == written


@pytest.mark.parametrize(("mutant", "power"), [("never syncs", True), ("writes in place", False)])
def test_a_store_that_was_careless_would_be_found(mutant, power, reference, writers, root):
    """The harness itself: with a defect in the writer, some point ends in neither state."""
    update = reference("update")

    def is_whole(step: int) -> bool:
        with update.copy(root) as index:
            writers.run(Order("update", str(root), at=step, lose=step if power else None, mutant=mutant))
            try:
                return state_or_none(index) in (update.old, update.new)
            except IndexFormatError:
                return False

    assert not all(map(is_whole, reversed(range(40, update.folder_synced))))  # near the commit, where it matters


def test_a_folder_that_a_killed_writer_made_is_made_to_last_by_the_next(reference, writers, kit, root):
    first = reference("first build")
    made = next(step.number for step in first.steps if step.call == "mkdir")
    with first.copy(root) as index:
        assert writers.run(Order("first build", str(root), at=made + 1)).killed
        assert index.is_dir()

        with Disk(root) as disk:
            first.operation.run(kit, index)

    assert (root, "fsync") in [(step.path, step.call) for step in disk.steps]
