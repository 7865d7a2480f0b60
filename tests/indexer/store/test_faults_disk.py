"""A disk that is full or fails at each call in turn: one error that names the file, one of both states, no trace."""

from __future__ import annotations

import errno
import random
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from fault_operations import OPERATIONS, Reference, tree_of
from faults import Failing, Short, Step, error_of, turns
from states import State, state_of

from ragidx.corpora.errors import IndexFormatError, RagidxError
from ragidx.indexer.atomic import TEMPORARY
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify

pytestmark = pytest.mark.slow

NAMES = tuple(OPERATIONS)
TOLD = {
    errno.ENOSPC: (
        r"No space left on device\n"
        r"  hint: free some space( \([0-9,]+ bytes were to be written\))?, or choose another folder with `index`"
    ),
    errno.EIO: r"Input/output error\n  hint: look at the disk, or choose another folder with `index`",
}


def without_journal(tree: dict[str, object]) -> dict[str, object]:
    """The files of an index, less what an interrupted build leaves on purpose."""
    return {name: content for name, content in tree.items() if not name.startswith(("journal", "LOCK"))}


def is_told(step: Step) -> bool:
    """Whether a failure of this step ends the operation. Of a removal nothing depends on it, for the next writer
    removes what is left; of closing the lock or the journal neither: the lock is free, the journal is a cache.
    """
    is_close = step.call == "close" and (step.path.name == "LOCK" or step.path.parent.name == "journal")
    return step.call not in ("unlink", "remove", "rmdir") and not is_close


def fail_and_finish(reference: Reference, disk: Failing, kit, root: Path) -> None:
    """The operation on a disk that fails; then on the same one when it is well again."""
    try:
        with reference.copy(root) as index:
            with disk:
                caught = error_of(lambda: reference.operation.run(kit, index))
            assert disk.failures
            check_told(disk, caught)
            if caught is None or disk.failures[0].number > reference.commit:
                assert state_of(index) == reference.new
                reference.operation.follow(kit, index)
            else:
                check_nothing_happened(reference, index)
                reference.operation.run(kit, index)
            assert tree_of(index) == reference.tree
            check_state(index, reference.new, reference.tree)
    except BaseException as fault:
        fault.add_note(f"failures: {disk.failures}")
        raise


def check_told(disk: Failing, caught: RagidxError | None) -> None:
    """One error, about the first failure that something depends on; none, if there is no such failure."""
    failed = next((step for step in disk.failures if is_told(step)), None)
    if failed is None:
        assert caught is None
        return
    assert caught is not None, "the operation went on as if nothing had failed"
    cause = caught.__cause__
    assert isinstance(cause, OSError)
    assert re.fullmatch(rf"{re.escape(str(failed.path))}: cannot write: {TOLD[cause.errno]}", str(caught))


def check_state(index: Path, state: State, tree: Mapping[str, object]) -> None:
    """An index whose files are those of a state that was read whole before: only a graph's bytes are not compared."""
    if any(name.endswith("/ann.faiss") for name in tree):
        assert state_of(index) == state
        assert verify(index) == []
    else:
        assert Store.open(index).manifest.generation == state.generation


def check_nothing_happened(reference: Reference, index: Path) -> None:
    """The old state, and no file that was not there before; but a rollback leaves its own for the next writer."""
    before, after = (without_journal(tree_of(path)) for path in (reference.before / "index", index))
    left = set(after) - set(before)
    assert not [name for name in left if name.endswith(TEMPORARY)]
    assert reference.operation is OPERATIONS["rollback"] or after == before
    if reference.old is None:
        with pytest.raises(IndexFormatError):
            Store.open(index)
    elif after == before:
        check_state(index, reference.old, before)
    else:
        assert state_of(index) == reference.old
        assert verify(index) == []


def one_step_of_each_call(reference: Reference, seed: str) -> list[int]:
    """A step of each kind of call, and of each kind after the commit."""
    kinds: dict[tuple[str, bool], list[int]] = {}
    for step in reference.steps:
        kinds.setdefault((step.call, step.number > reference.commit), []).append(step.number)
    rng = random.Random(seed)
    return [rng.choice(steps) for steps in kinds.values()]


@pytest.mark.parametrize("name", NAMES)
def test_whichever_call_fails_the_state_is_whole(name, reference, kit, root):
    """By turns the disk is full and fails once: of calls that follow each other on a file the first and the last."""
    for number, step in enumerate(turns(reference(name).steps)):
        code, lasting = ((errno.ENOSPC, True), (errno.EIO, False))[number % 2]
        fail_and_finish(reference(name), Failing(root, step.number, code, lasting=lasting), kit, root)


@pytest.mark.parametrize(("code", "lasting"), [(errno.ENOSPC, False), (errno.EIO, True)], ids=["full once", "broken"])
@pytest.mark.parametrize("name", NAMES)
def test_when_one_call_of_each_kind_fails_the_state_is_whole(name, code, lasting, reference, kit, root):
    for number in one_step_of_each_call(reference(name), f"{name}-{code}-{lasting}"):
        fail_and_finish(reference(name), Failing(root, number, code, lasting=lasting), kit, root)


@pytest.mark.parametrize("name", NAMES)
def test_a_disk_that_fills_in_the_middle_of_a_write_leaves_the_old_state(name, reference, kit, root):
    writes = [step.number for step in reference(name).steps if step.call == "write"]
    for number in random.Random(name).sample(writes, 3):
        fail_and_finish(reference(name), Failing(root, number, errno.ENOSPC, lasting=True, torn=0.5), kit, root)


@pytest.mark.parametrize("name", NAMES)
def test_writes_that_take_only_a_part_are_gone_on_with(name, reference, kit, root):
    with reference(name).copy(root) as index:
        with Short(root, seed=7) as disk:
            OPERATIONS[name].run(kit, index)

        assert sum(step.call == "write" for step in disk.steps) > reference(name).writes
        assert state_of(index) == reference(name).new
        assert tree_of(index) == reference(name).tree


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_after_the_renaming_is_told_and_the_new_state_stands(name, reference, kit, root):
    """The new manifest is in place, and readers see it; only that it outlives a power loss is not sure.

    Taking it back could fail as well, and a reader may have it open: so it stays, and whoever runs the same again
    finds nothing to do, or loses nothing where the power was lost in between.
    """
    with reference(name).copy(root) as index:
        with Failing(root, reference(name).folder_synced, errno.EIO), pytest.raises(RagidxError) as caught:
            OPERATIONS[name].run(kit, index)

        assert str(caught.value) == (
            f"{index}: cannot write: Input/output error\n"
            "  hint: look at the disk, or choose another folder with `index`"
        )
        assert state_of(index) == reference(name).new
        assert verify(index) == []
        generation = Store.open(index).manifest.generation
        assert OPERATIONS[name].follow(kit, index).generation == generation
        assert tree_of(index) == reference(name).tree


def test_what_a_disk_refused_to_remove_the_next_writer_removes(reference, kit, root):
    """A folder that cannot be emptied, in the sweep after the commit."""
    steps = [step for step in reference("update").steps if step.call == "unlink" and "segments" in step.path.parts]
    before = reference("update").before / "index"
    assert steps, "the update sweeps a segment"
    with reference("update").copy(root) as index:
        with Failing(root, steps[0].number, errno.EIO):
            OPERATIONS["update"].run(kit, index)
        left = set(tree_of(index)) - set(reference("update").tree)

        kit.writer(index, blobs={}).close()

        assert left == {name for name in tree_of(before) if name.startswith(f"segments/{steps[0].path.parent.name}")}
        assert tree_of(index) == reference("update").tree


def test_a_build_on_a_full_disk_goes_on_from_what_was_encoded(reference, kit, root):
    """What is in the journal when the disk is full need not be encoded again when there is room."""
    first = reference("first build")
    late = [step.number for step in first.steps if step.call == "write" and step.path.name == "chunks.arrow"][-1]
    with first.copy(root) as index:
        with Failing(root, late, errno.ENOSPC, lasting=True), pytest.raises(RagidxError):
            first.operation.run(kit, index)

        _, encoded = kit.build(index, first.operation.documents, **first.operation.options)

        assert encoded == 0
        shutil.rmtree(index / "journal")
        assert verify(index) == []
