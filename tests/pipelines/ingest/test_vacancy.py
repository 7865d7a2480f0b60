"""What a refused first build leaves: nothing, but what the next one goes on from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import CorpusError
from ragidx.indexer.store.files import JOURNAL, LOCK, SEGMENTS
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.writing.vacuum import cleaned_if_refused
from ragidx.pipelines.vectors import RowWriter, build_vectors

from ..conftest import Done


class _Refused(Exception):
    """What ends a build here."""


def _refuse(index: Path, begin: Callable[[Path], None]) -> None:
    """A build that begins, and ends with an error."""

    def build() -> None:
        with cleaned_if_refused(index):
            begin(index)
            raise _Refused

    with pytest.raises(_Refused):
        build()


def _write(*files: str) -> Callable[[Path], None]:
    """What a writer makes at once, and some files."""

    def begin(index: Path) -> None:
        index.mkdir(parents=True, exist_ok=True)
        Lock(index).release()
        for name in (SEGMENTS, JOURNAL):
            (index / name).mkdir(exist_ok=True)
        for name in files:
            (index / name).touch()

    return begin


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("before", "index", "files", "left"),
    [
        (["here/"], "here/deep/index", [], ["here"]),
        ([], ".", [], []),
        ([], "index", ["journal/vectors"], ["index", f"index/{LOCK}", "index/journal", "index/journal/vectors"]),
        ([], "index", ["note.txt"], ["index", f"index/{LOCK}", "index/note.txt"]),  # of somebody else
        ([LOCK], ".", [], []),
        (["journal/"], ".", [], [LOCK, "journal", "segments"]),
    ],
    ids=["the folders", "all in an empty folder", "not what was encoded", "not another file", "the lock", "no journal"],
)
def test_what_is_gone_of_a_refused_build(
    before: list[str], index: str, files: list[str], left: list[str], tmp_path: Path
) -> None:
    for name in before:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()

    _refuse(tmp_path / index, _write(*files))

    assert _names(tmp_path) == left


def test_a_folder_that_another_writer_has_taken_meanwhile_is_left_to_it(tmp_path: Path) -> None:
    others: list[RowWriter] = []

    _refuse(tmp_path / "index", lambda index: others.append(RowWriter(index, 2)))
    _commit(others[0])

    assert ragidx.Index(tmp_path / "index").count() == 1


def test_what_was_committed_stays(tmp_path: Path) -> None:
    _refuse(tmp_path / "index", lambda index: _commit(RowWriter(index, 2)))

    assert ragidx.Index(tmp_path / "index").count() == 1


def _commit(writer: RowWriter) -> None:
    with writer:
        writer.add_vectors(["a"], [[1.0, 0.0]])
        writer.commit()


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True])
def test_a_corpus_without_a_document_leaves_no_index(there: bool, folder: Path, run: Callable[..., Done]) -> None:
    (folder / "corpus").mkdir()
    if there:
        (folder / "ragidx-index").mkdir()
    before = _names(folder)

    done = run("build", "corpus")

    assert (done.status, _names(folder)) == (2, before)


def test_vectors_of_which_none_can_be_taken_leave_no_index(folder: Path) -> None:
    np.save(folder / "v.npy", np.zeros((3, 2)))

    with pytest.raises(CorpusError, match="there is no vector that can be read"):
        build_vectors("v.npy", "deep/index")

    assert _names(folder) == ["v.npy"]


@pytest.mark.slow
def test_a_build_that_is_refused_after_it_has_encoded_keeps_what_it_encoded(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise _Refused

    with monkeypatch.context() as patch:
        patch.setattr("ragidx.indexer.writing.writer.publish", refuse)
        with pytest.raises(_Refused):
            ragidx.build(small_corpus, tmp_path / "index")
    report = ragidx.build(small_corpus, tmp_path / "index").report

    assert (report.n_encoded, report.n_chunks_reused) == (0, 6)
