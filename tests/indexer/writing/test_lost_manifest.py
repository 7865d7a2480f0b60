"""An index without its manifest.json: lost where commits were made before, begun anew where none was."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_operations import tree_of
from states import texts_of

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing.history import history, rollback
from ragidx.indexer.writing.rewrite import NewForm, compact, copy
from ragidx.indexer.writing.vacuum import vacuum

from ...raising import message_of

STATES = [{"ant": ["an ant"]}, {"ant": ["an ant"], "bee": ["a bee"]}, {"bee": ["a bee"], "cat": ["a cat"]}]
HINT = "copy the newest manifest.<number>.json beside it over manifest.json, or build again with `rebuild=True`"


@pytest.fixture
def index(tmp_path: Path, kit: Any) -> Path:
    for state in STATES:
        kit.build(tmp_path / "index", state)
    (tmp_path / "index" / "manifest.json").unlink()
    return tmp_path / "index"


USES: dict[str, Callable[[Path, Any], object]] = {
    "open": lambda index, kit: Store.open(index),
    "history": lambda index, kit: history(index),
    "rollback": lambda index, kit: rollback(index, 2),
    "compact": lambda index, kit: compact(index),
    "build": lambda index, kit: kit.build(index, STATES[0]),
    "a writer that adds nothing": lambda index, kit: kit.writer(index).close(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", USES)
def test_a_lost_manifest_is_told_with_what_mends_it_and_nothing_is_removed(index: Path, kit: Any, name: str) -> None:
    before = tree_of(index)

    with pytest.raises(IndexFormatError) as caught:
        USES[name](index, kit)

    told = f"{index / 'manifest.json'}: the manifest is missing, but manifest.3.json is there"
    assert str(caught.value) == f"{told}\n  hint: {HINT}"
    assert tree_of(index) == before


def test_verify_tells_it_in_one_line(index: Path) -> None:
    assert verify(index) == [
        f"{index / 'manifest.json'}: the manifest is missing, but manifest.3.json is there; {HINT}"
    ]


def test_a_sweep_removes_nothing(index: Path) -> None:
    (index / "segments" / "00000009-0000").mkdir()
    before = tree_of(index)

    vacuum(index)

    assert tree_of(index) == before


def test_the_copy_mends_it(index: Path, kit: Any) -> None:
    shutil.copy(index / "manifest.3.json", index / "manifest.json")

    assert texts_of(index) == ["a bee", "a cat"]
    assert kit.build(index, STATES[2])[0].generation == 3
    assert rollback(index, 1).generation == 4
    assert texts_of(index) == ["an ant"]


@pytest.mark.slow
@pytest.mark.parametrize("lock", [True, False], ids=["with its lock", "without"])
def test_a_rebuild_goes_on_counting_and_keeps_the_way_back(index: Path, kit: Any, lock: bool) -> None:
    if not lock:  # as in a copy of an index that was interrupted
        (index / "LOCK").unlink()

    manifest, _ = kit.build(index, STATES[0], replace=True)

    assert manifest.generation == 4
    assert texts_of(index) == ["an ant"]
    assert rollback(index, 3).generation == 5
    assert texts_of(index) == ["a bee", "a cat"]
    assert verify(index) == []


def test_no_other_index_is_written_into_it(index: Path, tmp_path: Path, kit: Any) -> None:
    kit.build(tmp_path / "other", STATES[0])
    before = tree_of(index)

    def as_it_is(store: Store) -> NewForm:
        base = store.manifest
        return NewForm(base.spec, base.fingerprint, base.dim, base.index, {})

    assert message_of(SpecError, lambda: copy(Store.open(tmp_path / "other"), index, as_it_is)) == (
        f"{index}: there is an index already\n  hint: name a folder for the new index; the source is `index`"
    )
    assert tree_of(index) == before


def test_a_first_build_that_was_killed_in_its_commit_begins_anew(tmp_path: Path, kit: Any) -> None:
    """Its manifest has its number and not yet its place: nobody has seen the state."""
    index = tmp_path / "index"
    kit.build(index, STATES[1])
    (index / "manifest.json").unlink()

    with pytest.raises(IndexFormatError, match="the index is not built yet: nothing was committed"):
        Store.open(index)
    kit.build(index, STATES[0])

    assert (Store.open(index).manifest.generation, texts_of(index)) == (1, ["an ant"])
    assert verify(index) == []
