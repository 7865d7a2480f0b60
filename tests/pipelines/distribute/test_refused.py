"""What may go wrong between a division and its commit: nothing committed is lost, nothing half is visible."""

from __future__ import annotations

import dataclasses
import errno
import importlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import BusyError, CorpusError, IndexFormatError, RagidxError, SpecError
from ragidx.indexer.store import lock
from ragidx.pipelines import distribute
from ragidx.pipelines.distribute import Division, parts
from ragidx.pipelines.ingest.report import StrictError

from ...indexer.faults import Disk, Failing
from .conftest import WORDS, build_divided, content, lines, same, write

pytestmark = pytest.mark.slow

divide_module: Any = importlib.import_module("ragidx.pipelines.distribute.divide")

FILES = {f"{n}.txt": f"The {WORDS[n]} and the {WORDS[-n]} number {n}." for n in range(8)}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "corpus", FILES)


@pytest.fixture
def division(corpus: Path, tmp_path: Path) -> Division:
    """Of two shards, none of them built."""
    return distribute.divide(corpus, 2, tmp_path / "stage", tmp_path / "index")


def test_a_shard_that_is_done_is_done(division: Division) -> None:
    first = distribute.build_shard(division, 0)
    folder = division.shards / first.folder
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert distribute.build_shard(division, 0) == first
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_shard_that_another_machine_did_too(division: Division, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that did it the first counts, also where the second was at it before that was said."""
    first = distribute.build_shard(division, 0)
    descriptor = division.shards / "00000.json"
    said = descriptor.read_bytes()
    descriptor.unlink()
    monkeypatch.setattr("socket.gethostname", lambda: "another/host")
    second = distribute.build_shard(division, 0)
    assert second.folder == "00000-another-host"
    assert first.folder != second.folder
    distribute.build_shard(division, 1)
    descriptor.write_bytes(said)
    assert distribute.commit(division).n_documents == 8


def test_what_is_missing_is_named(division: Division, tmp_path: Path) -> None:
    distribute.build_shard(division, 0)
    with pytest.raises(SpecError, match="1 of 2 shards are not done: 1") as caught:
        distribute.commit(division)
    assert f"ragidx build --shard 1/2 --stage {tmp_path / 'stage'}" in caught.value.hint
    assert not (tmp_path / "index").exists()


def test_exactly_the_shards_of_a_division(division: Division) -> None:
    made = [distribute.build_shard(division, number) for number in range(2)]
    with pytest.raises(SpecError, match="two descriptors are of one shard"):
        distribute.commit(division, [made[0], made[0]])
    with pytest.raises(SpecError, match="1 of 2 shards are not done: 0"):
        distribute.commit(division, made[1:])
    with pytest.raises(SpecError, match="shard 0 is of another division"):
        distribute.commit(division, [dataclasses.replace(made[0], division="other"), made[1]])
    with pytest.raises(IndexFormatError, match="shard 1 is not the one that was built"):
        distribute.commit(division, [made[0], dataclasses.replace(made[1], manifest="0" * 64)])
    assert distribute.commit(division, made).n_documents == 8


@pytest.mark.parametrize(("number", "message"), [(-1, "there is no shard -1"), (2, "there is no shard 2")])
def test_a_shard_that_there_is_not(division: Division, number: int, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        distribute.build_shard(division, number)


@pytest.mark.parametrize("n", [0, -1, 100_000, True, 1.5])
def test_a_number_of_shards_that_cannot_be(corpus: Path, tmp_path: Path, n: int) -> None:
    with pytest.raises(SpecError, match="is no number of shards"):
        distribute.divide(corpus, n, tmp_path / "stage", tmp_path / "index")
    assert not (tmp_path / "stage").exists()


def test_an_option_that_no_shard_takes(division: Division) -> None:
    with pytest.raises(SpecError, match="a shard takes no option chunk_size"):
        distribute.build_shard(division, 0, chunk_size=3)


@pytest.mark.parametrize("change", ["longer", "touched", "gone"])
def test_a_file_that_changed_since(division: Division, corpus: Path, change: str) -> None:
    path = corpus / "7.txt"
    if change == "longer":
        path.write_text("another text")
    elif change == "touched":
        os.utime(path, (1, 1))
    else:
        path.unlink()
    distribute.build_shard(division, 0)
    with pytest.raises(CorpusError, match="cannot be read now" if change == "gone" else "it changed since") as caught:
        distribute.build_shard(division, 1)
    assert caught.value.where == str(path)


def test_an_index_that_another_process_wrote_since(corpus: Path, tmp_path: Path) -> None:
    """The commit is refused, and what was encoded is not encoded again."""
    division = distribute.divide(corpus, 2, tmp_path / "stage", tmp_path / "index")
    for number in range(2):
        distribute.build_shard(division, number)
    with ragidx.Index.create(tmp_path / "index") as index:
        index.add([ragidx.Document("own", "A program's document.")])
    before = content(tmp_path / "index")
    with pytest.raises(SpecError, match="the index has generation 2 now: another process wrote it") as caught:
        distribute.commit(division)
    assert caught.value.hint == "divide again: finished shards lend their vectors"
    assert content(tmp_path / "index") == before
    report = build_divided(corpus, 2, tmp_path / "stage", tmp_path / "index")
    assert (report.n_encoded, report.n_added) == (0, 8)
    assert len(content(tmp_path / "index")) == 9


def test_an_index_that_is_gone(corpus: Path, tmp_path: Path) -> None:
    ragidx.build(corpus, tmp_path / "index")
    write(corpus, {"new.txt": "A new text."})
    division = distribute.divide(corpus, 1, tmp_path / "stage", tmp_path / "index")
    distribute.build_shard(division, 0)
    shutil.rmtree(tmp_path / "index")
    with pytest.raises(SpecError, match="the index is gone"):
        distribute.commit(division)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("rebuild", [False, True])
def test_shards_that_are_committed_already(corpus: Path, tmp_path: Path, rebuild: bool) -> None:
    division = distribute.divide(corpus, 2, tmp_path / "stage", tmp_path / "index", rebuild=rebuild)
    for number in range(2):
        distribute.build_shard(division, number)
    shutil.copytree(tmp_path / "stage", tmp_path / "kept")
    first = distribute.commit(division)
    shutil.rmtree(tmp_path / "stage")
    shutil.copytree(tmp_path / "kept", tmp_path / "stage")  # as if the first were killed before it could clear up
    again = distribute.commit(division)
    assert (again.committed, again.generation, again.n_documents) == (False, 1, first.n_documents)
    assert sorted(path.name for path in (tmp_path / "stage").iterdir()) == ["LOCK", "committed.json"]


def test_two_divisions_in_one_folder(division: Division, corpus: Path, tmp_path: Path) -> None:
    """The later one counts; a shard of the earlier one is none of it, and lends its vectors."""
    first = [distribute.build_shard(division, number) for number in range(2)]
    later = distribute.divide(corpus, 3, tmp_path / "stage", tmp_path / "index")
    with pytest.raises(SpecError, match="3 of 3 shards are not done: 0, 1, 2"):
        distribute.commit(later)
    with pytest.raises(SpecError, match="there is no shard 2"):
        distribute.build_shard(division, 2)
    with pytest.raises(SpecError, match="1 of 3 shards are not done: 2"):
        distribute.commit(later, first)
    for number in range(3):
        distribute.build_shard(Division.open(tmp_path / "stage"), number)
    assert distribute.commit(later).n_encoded == 0
    with pytest.raises(SpecError, match="there is no division"):
        Division.open(tmp_path / "stage")


def test_a_stage_of_another_index(division: Division, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=f"it has a division of the index {tmp_path / 'index'}"):
        distribute.divide(corpus, 2, tmp_path / "stage", tmp_path / "other")
    ragidx.build(corpus, tmp_path / "other")
    with pytest.raises(SpecError, match="it is an index"):
        distribute.divide(corpus, 2, tmp_path / "other", tmp_path / "index")


def test_a_stage_inside_of_the_corpus(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="it is inside of the source 'corpus'"):
        distribute.divide(corpus, 2, corpus / "stage", tmp_path / "index")
    assert not (corpus / "stage").exists()


def test_what_else_is_in_the_stage_stays(corpus: Path, tmp_path: Path) -> None:
    mine = write(tmp_path / "stage", {"mine/seed/a.txt": "a", "mine/parts/b.txt": "b", "0123456789abcdef/c.txt": "c"})
    before = {path for path in mine.rglob("*") if path.is_file()}
    build_divided(corpus, 2, tmp_path / "stage", tmp_path / "index")
    assert {path for path in mine.rglob("*") if path.is_file()} == before | {mine / "LOCK", mine / "committed.json"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ragidx": "0.0.1"}, "it was divided by ragidx 0.0.1, and this is"),
        ({"format": 9}, "the division cannot be read"),
        ({"index": None}, "the division cannot be read"),
        ({"options": []}, "the division cannot be read: its checksum does not fit the rest"),
        ({"ledger": {"sources": []}}, "the division cannot be read: its checksum does not fit the rest"),
    ],
)
def test_a_division_that_cannot_be_used(division: Division, change: dict[str, object], message: str) -> None:
    path = division.stage / "division.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SpecError, match=message):
        Division.open(division.stage)


def test_a_shard_of_another_fingerprint(division: Division, corpus: Path, tmp_path: Path) -> None:
    """Its files are whole, and it says that it is of this division; its vectors are others."""
    other = distribute.divide(
        corpus, 2, tmp_path / "other-stage", tmp_path / "other", filter=ragidx.FilterSpec("truncation", dim=8)
    )
    made = [distribute.build_shard(one, 1) for one in (division, other)]
    distribute.build_shard(division, 0)
    shutil.rmtree(division.shards / made[0].folder)
    shutil.copytree(other.shards / made[1].folder, division.shards / made[0].folder)
    with pytest.raises(SpecError, match="shard 1 is of another division"):
        distribute.commit(division)


def test_a_shard_that_is_damaged(division: Division) -> None:
    made = [distribute.build_shard(division, number) for number in range(2)]
    path = next((division.shards / made[1].folder).rglob("vectors.faiss"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(IndexFormatError, match="its checksum differs from the manifest's"):
        distribute.commit(division)


def test_a_shard_that_is_damaged_is_built_anew(division: Division, tmp_path: Path) -> None:
    made = [distribute.build_shard(division, number) for number in range(2)]
    next((division.shards / made[1].folder).rglob("vectors.faiss")).unlink()
    with pytest.raises(IndexFormatError, match="shard 1: the file is missing") as caught:
        distribute.commit(division)
    assert "ragidx build --shard 1/2 --stage" in caught.value.hint
    assert distribute.build_shard(division, 1).n_documents == made[1].n_documents
    assert distribute.commit(division).n_documents == 8


def test_a_damaged_shard_of_an_earlier_division_lends_nothing(division: Division, corpus: Path, tmp_path: Path) -> None:
    made = [distribute.build_shard(division, number) for number in range(2)]
    next((division.shards / made[1].folder).rglob("vectors.faiss")).unlink()
    assert build_divided(corpus, 3, tmp_path / "stage", tmp_path / "index").n_encoded == made[1].n_chunks


def test_the_same_division_is_continued(division: Division, corpus: Path, tmp_path: Path) -> None:
    """Where nothing differs, what is finished is not even read again."""
    made = distribute.build_shard(division, 0)
    again = distribute.divide(corpus, 2, tmp_path / "stage", tmp_path / "index")
    assert (again.id, again) == (division.id, Division.open(tmp_path / "stage"))
    assert distribute.build_shard(again, 0) == made
    others = [{"strict": True}, {"chunks": ragidx.ChunkSpec(size=9)}, {"exclude": "7.txt"}, {"index_type": "flat"}]
    for options in others:
        other = distribute.divide(corpus, 2, tmp_path / "stage", tmp_path / "index", **options)
        assert other.id != again.id
        again = other
    write(corpus, {"7.txt": "Another text."})
    assert distribute.divide(corpus, 2, tmp_path / "stage", tmp_path / "index", **others[-1]).id != again.id


def test_a_division_that_cannot_be_read_is_replaced(division: Division, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "stage" / "division.json").write_text("{")
    assert build_divided(corpus, 2, tmp_path / "stage", tmp_path / "docs" / ".." / "index").n_documents == 8


def test_a_writer_of_the_index_leaves_the_stage_alone(corpus: Path, tmp_path: Path) -> None:
    division = distribute.divide(corpus, 1, tmp_path / "stage", tmp_path / "index")
    distribute.build_shard(division, 0)
    before = set((tmp_path / "stage").rglob("*"))
    ragidx.build(corpus, tmp_path / "index")
    assert set((tmp_path / "stage").rglob("*")) == before
    with pytest.raises(SpecError, match="it is inside of the index"):
        distribute.divide(corpus, 1, tmp_path / "index" / "stage", tmp_path / "index")


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_place_where_no_index_can_be(corpus: Path, tmp_path: Path, what: str) -> None:
    """Before anything is encoded."""
    if what == "file":
        (tmp_path / "index").write_text("mine")
    else:
        write(tmp_path / "index", {"mine.txt": "mine"})
    with pytest.raises(IndexFormatError, match=r"it is (a file|not an index)"):
        distribute.divide(corpus, 2, tmp_path / "stage", tmp_path / "index")
    assert not (tmp_path / "stage").exists()


def test_a_rebuild_replaces_an_index_that_is_damaged(corpus: Path, tmp_path: Path) -> None:
    ragidx.build(corpus, tmp_path / "index")
    (tmp_path / "index" / "manifest.json").write_text("{")
    with pytest.raises(IndexFormatError):
        distribute.divide(corpus, 2, tmp_path / "stage", tmp_path / "index")
    report = build_divided(corpus, 2, tmp_path / "stage", tmp_path / "index", rebuild=True, allow_removal=True)
    assert report.n_documents == 8


def test_a_state_that_is_committed_while_it_is_divided(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known and what the commit expects are of one state."""
    ragidx.build(corpus, tmp_path / "index")
    real = divide_module.reading_of

    def changed(*arguments: Any) -> Any:
        with ragidx.Index(tmp_path / "index") as index:
            index.delete(["3.txt"])
        return real(*arguments)

    monkeypatch.setattr(divide_module, "reading_of", changed)
    division = distribute.divide(corpus, 1, tmp_path / "stage", tmp_path / "index")
    distribute.build_shard(division, 0)
    with pytest.raises(SpecError, match="the index has generation 2 now"):
        distribute.commit(division)


def test_strict_holds_across_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_SPLIT_BYTES", 100)
    monkeypatch.setattr(parts, "_FILE_BYTES", 1)
    corpus = write(tmp_path / "corpus", {"a.jsonl": lines({"id": n % 15, "text": f"text {n}"} for n in range(40))})
    division = distribute.divide(corpus, 4, tmp_path / "stage", tmp_path / "index", strict=True)
    for number in range(4):
        distribute.build_shard(division, number)
    with pytest.raises(StrictError, match="its id is another document's"):
        distribute.commit(division)
    assert not (tmp_path / "index" / "manifest.json").exists()


def test_a_clock_that_is_an_hour_off(division: Division, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribute.build_shard(division, 0)
    with monkeypatch.context() as patch:
        for module in ("commit", "adoption"):
            patch.setattr(f"ragidx.indexer.writing.{module}.now", lambda: "2020-01-01T00:00:00Z")
        distribute.build_shard(division, 1)
    distribute.commit(division)
    assert len(content(tmp_path / "index")) == 8


def test_a_commit_while_another_writes(division: Division, tmp_path: Path) -> None:
    for number in range(2):
        distribute.build_shard(division, number)
    (tmp_path / "index").mkdir()
    with lock.Lock(tmp_path / "index"), pytest.raises(BusyError):
        distribute.commit(division)
    assert distribute.commit(division).n_documents == 8


def test_a_disk_that_is_full_at_the_commit(corpus: Path, tmp_path: Path) -> None:
    """Whichever call of it fails, the index is what it was, and the same commit succeeds when there is room."""
    ragidx.build(corpus, tmp_path / "before")
    write(corpus, {"new.jsonl": lines({"text": f"record {n}", "n": n} for n in range(10)), "0.txt": "another text"})
    shutil.copytree(tmp_path / "before", tmp_path / "index")
    division = distribute.divide(corpus, 2, tmp_path / "stage", tmp_path / "index")
    for number in range(2):
        distribute.build_shard(division, number)
    before, states = content(tmp_path / "index"), {name: tmp_path / name for name in ("index", "stage")}
    for path in states.values():
        shutil.copytree(path, path.with_name(f"kept-{path.name}"))
    with Disk(tmp_path / "index") as counted:
        distribute.commit(division)
    after = content(tmp_path / "index")
    assert len(after) == len(before) + 10
    for at in range(0, len(counted.steps), max(1, len(counted.steps) // 8)):
        for path in states.values():
            shutil.rmtree(path)
            shutil.copytree(path.with_name(f"kept-{path.name}"), path)
        try:
            with Failing(tmp_path / "index", at=at, code=errno.ENOSPC):
                distribute.commit(division)
        except RagidxError:
            assert content(tmp_path / "index") == before
            distribute.commit(Division.open(tmp_path / "stage"))
        assert content(tmp_path / "index") == after, at


KILLED = """
    import os, random, signal, sys
    from ragidx.pipelines import distribute

    stage, step, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    division = distribute.Division.open(stage)
    EVENTS = ("open", "os.rename", "os.remove", "os.link")
    work = (lambda: distribute.commit(division)) if step == "commit" else (lambda: distribute.build_shard(division, 0))

    def forked(turn, told=None):
        child = os.fork()
        if child:
            return os.waitpid(child, 0)[1]
        seen = []

        def hook(event, args):
            if event in EVENTS:
                seen.append(event)
                if len(seen) == turn:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        work()
        if told is not None:
            os.write(told, str(len(seen)).encode())
        os._exit(0)

    chance = random.Random(seed)
    for _ in range(6):
        if os.WIFSIGNALED(forked(int(300 * chance.random() ** 2))):
            print("killed", flush=True)
        else:
            break
"""


@pytest.mark.parametrize("step", ["shard", "commit"])
def test_a_process_that_is_killed(corpus: Path, tmp_path: Path, step: str) -> None:
    """At any file that it opens, links or renames; what was killed is begun again, and the end is the same."""
    ragidx.build(corpus, tmp_path / "one")
    n_killed = 0
    for seed in range(2):
        folder = tmp_path / f"{seed}"
        division = distribute.divide(corpus, 1, folder / "stage", folder / "index")
        if step == "commit":
            distribute.build_shard(division, 0)
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(folder / "stage"), step, str(seed)]
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        n_killed += told.stdout.count("killed")
        if (folder / "index" / "manifest.json").exists():
            assert step == "commit"
        else:
            distribute.build_shard(division, 0)
            distribute.commit(division)
        same(tmp_path / "one", folder / "index")
    assert n_killed
