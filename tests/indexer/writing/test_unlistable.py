"""Folders of an index that cannot be listed: vacuum leaves them, a writer names the index's own."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragidx.corpora.errors import RagidxError
from ragidx.indexer.store.manifest import read_manifest

from ...raising import message_of


@pytest.fixture
def index(tmp_path: Path, kit: Any) -> Path:
    kit.build(tmp_path / "index", {"a": ["one"]})
    return tmp_path / "index"


def unlistable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = Path.iterdir

    def refuse(path: Path) -> Iterator[Path]:
        if path == folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refuse)


@pytest.mark.parametrize("part", ["deletions", "segments", "files"])
def test_a_commit_succeeds_where_a_folder_cannot_be_listed(
    part: str, index: Path, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (index / part).mkdir(exist_ok=True)
    unlistable(index / part, monkeypatch)

    manifest, _ = kit.build(index, {"a": ["one", "two"]})

    assert manifest == read_manifest(index)
    assert manifest.generation == 2


def test_an_index_folder_that_cannot_be_listed_is_named(index: Path, kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    unlistable(index, monkeypatch)

    assert message_of(RagidxError, lambda: kit.writer(index)) == (
        f"{index}: cannot write: Permission denied\n"
        "  hint: make the folder writable, or choose another one with `index`"
    )
