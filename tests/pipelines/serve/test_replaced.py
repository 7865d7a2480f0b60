"""A folder that is replaced, emptied, truncated or overwritten below a service that runs, and below an open handle.

What is mapped goes on to be read, or there is one clear error: no answer is wrong without a word.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ragidx
from ragidx.corpora.errors import IndexFormatError, RagidxError
from ragidx.pipelines.index import Index
from ragidx.pipelines.serve import served_index as serve_served

from .conftest import TEXTS, TOKEN, Running, make_index, running, until


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_served, "WATCH_S", 0.05)
    monkeypatch.setattr(serve_served, "BACK_OFF_S", 0.2)


def other_index(path: Path) -> Path:
    """An index of the same names of files and other texts."""
    with Index.create(path) as index:
        index.add([ragidx.Document(name, f"{name} is about comets.", about) for name, (_, about) in TEXTS.items()])
    return path


def files(index: Path) -> list[Path]:
    """All of its files."""
    return sorted(file for file in index.rglob("*") if file.is_file())


def replaced(index: Path, other: Path) -> None:
    """Another folder in its place, by renames: what docs/serve.md says."""
    index.rename(index.with_name("before"))
    other.rename(index)


def emptied(index: Path, other: Path) -> None:
    """Nothing is in it."""
    shutil.rmtree(index)
    index.mkdir()


def removed(index: Path, other: Path) -> None:
    """It is gone."""
    shutil.rmtree(index)


def truncated(index: Path, other: Path) -> None:
    """Each file is there and empty, as after `>`."""
    for file in files(index):
        os.truncate(file, 0)


def cut(index: Path, other: Path) -> None:
    """Each file is shorter by a byte."""
    for file in files(index):
        os.truncate(file, max(0, file.stat().st_size - 1))


def overwritten(index: Path, other: Path) -> None:
    """Other bytes are in its files, as after `cp` or `rsync --inplace` of another index."""
    for file in files(other):
        name = index / file.relative_to(other)
        name.parent.mkdir(parents=True, exist_ok=True)
        with name.open("r+b" if name.exists() else "wb") as out:
            out.write(file.read_bytes())
            out.truncate()


def flipped(index: Path, other: Path) -> None:
    """A bit of each large file is another; the manifest is the same."""
    for file in index.rglob("*.arrow"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        with file.open("r+b") as out:
            out.write(data)


Change = Callable[[Path, Path], None]
KEPT: list[Change] = [emptied, removed]
LOST: list[Change] = [truncated, cut, flipped]
NEW: list[Change] = [replaced, overwritten]
PLACES = [("GET", "/v1/documents/mill", None), ("GET", "/?q=mill", None), ("GET", "/document?id=mill", None)]
PLACES += [("PUT", "/v1/documents/comet", {"text": "A comet."}), ("DELETE", "/v1/documents/mill", None)]
PLACES += [("POST", "/v1/search", {"query": "mill", "where": "year < 1900"}), ("GET", "/metrics", None)]
PLACES += [("GET", "/v1/info", None), ("GET", "/readyz", None)]


def state_of(served: Running) -> str:
    return str(served.ask("GET", "/readyz").body["indexes"]["own"])


def without_defects(served: Running) -> dict[str, int]:
    """The status of each route; none is a defect."""
    found = {f"{method} {place}": served.ask(method, place, body).status for method, place, body in PLACES}
    assert not [place for place, status in found.items() if status == 500]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("change", KEPT, ids=lambda change: change.__name__)
def test_what_is_mapped_answers_where_the_folder_is_empty_or_gone(
    own_index: Path, tmp_path: Path, change: Change
) -> None:
    with running({"own": own_index}, writable=True, token=TOKEN) as served:
        before = served.search("the mill", where="year < 1900").body["hits"]
        change(own_index, other_index(tmp_path / "other"))
        until(lambda: state_of(served) == "stale")
        assert served.search("the mill", where="year < 1900").body["hits"] == before
        found = without_defects(served)
        assert found["GET /v1/documents/mill"] == 200
        assert found["PUT /v1/documents/comet"] == found["DELETE /v1/documents/mill"] == 503
        shutil.rmtree(own_index, ignore_errors=True)
        make_index(tmp_path / "again").rename(own_index)
        until(lambda: state_of(served) == "ready")
        assert served.search("the mill", where="year < 1900").body["hits"] == before


@pytest.mark.slow
@pytest.mark.parametrize("change", LOST, ids=lambda change: change.__name__)
def test_a_state_whose_files_are_written_into_is_let_go(own_index: Path, tmp_path: Path, change: Change) -> None:
    with running({"own": own_index}, writable=True, token=TOKEN) as served:
        change(own_index, other_index(tmp_path / "other"))
        until(lambda: state_of(served) == "failed")
        answer = served.search("the mill")
        assert (answer.status, answer.error, answer.headers["retry-after"]) == (503, "the index cannot be opened", "1")
        assert "The index cannot be opened." in served.ask("GET", "/?q=mill").body
        assert set(without_defects(served).values()) <= {200, 503}
        shutil.rmtree(own_index)
        make_index(tmp_path / "again").rename(own_index)
        until(lambda: state_of(served) == "ready")
        assert served.search("the mill").body["hits"][0]["text"] == TEXTS["mill"][0]


@pytest.mark.slow
@pytest.mark.parametrize("change", NEW, ids=lambda change: change.__name__)
def test_another_index_in_its_place_is_shown(own_index: Path, tmp_path: Path, change: Change) -> None:
    with running({"own": own_index}) as served:
        change(own_index, other_index(tmp_path / "other"))
        until(lambda: served.search("the mill").status == 200 and "comets" in str(served.search("the mill").body))
        assert served.ask("GET", "/v1/documents/mill").body["text"] == "mill is about comets."
        until(lambda: state_of(served) == "ready")


def test_files_that_are_only_touched_change_no_answer(own_index: Path) -> None:
    with running({"own": own_index}) as served:
        before = served.search("the mill").body["hits"]
        for file in files(own_index):
            file.touch()

        def is_same() -> bool:  # it may be opened anew meanwhile
            answer = served.search("the mill")
            assert answer.status in (200, 503)
            return answer.status == 200 and answer.body["hits"] == before

        until(is_same)


@pytest.mark.parametrize("change", [emptied, removed, replaced], ids=lambda change: change.__name__)
def test_a_handle_goes_on_with_what_it_has_mapped(own_index: Path, tmp_path: Path, change: Change) -> None:
    with Index(own_index) as opened:
        before = opened.search("the mill", where="year < 1900")
        change(own_index, other_index(tmp_path / "other"))
        assert opened.search("the mill", where="year < 1900") == before
        assert opened.get(["mill"])[0].text == TEXTS["mill"][0]
        assert {document.id for document in opened.documents()} == {*TEXTS}
        if change is replaced:
            opened.refresh()
            assert opened.get(["mill"])[0].text == "mill is about comets."
            return
        for changing in (opened.refresh, lambda: opened.add([ragidx.Document("a", "A text.")])):
            with pytest.raises(RagidxError) as caught:
                changing()
            assert str(own_index) in str(caught.value)
        assert opened.search("the mill", where="year < 1900") == before


@pytest.mark.parametrize("change", [truncated, cut, flipped], ids=lambda change: change.__name__)
def test_a_handle_is_not_opened_on_files_that_were_written_into(
    own_index: Path, tmp_path: Path, change: Change
) -> None:
    change(own_index, other_index(tmp_path / "other"))
    with pytest.raises(IndexFormatError) as caught:
        Index(own_index)
    assert str(own_index) in str(caught.value)


@pytest.mark.slow
def test_the_signal_of_a_truncated_file_is_named(own_index: Path) -> None:
    """Before the service has seen that a file is cut, a question may touch it: the process ends, and says by what."""
    program = """
import os, sys, threading, urllib.request
from pathlib import Path
from ragidx.pipelines.serve import served_index as served
from ragidx.pipelines.serve.http_server import serve
from ragidx.pipelines.serve.settings import Settings

served.WATCH_S = 1000
index = Path(sys.argv[1])

def truncate_and_ask(url):
    while urllib.request.urlopen(url + "/v1/info").read().find(b'"ready":true') < 0: pass
    for file in index.rglob("*.arrow"): os.truncate(file, 0)
    for file in index.rglob("*.faiss"): os.truncate(file, 0)
    urllib.request.urlopen(url + "/document?id=mill")

started = lambda url, _: threading.Thread(target=truncate_and_ask, args=[url]).start()
serve({"docs": index}, Settings(port=0), on_start=started)
"""
    command = [sys.executable, "-c", program, str(own_index)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in ended.stderr
