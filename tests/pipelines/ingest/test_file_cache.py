"""Files that nobody has touched are not opened again, and whoever touches one is noticed."""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.readers import registry as readers
from ragidx.corpora.readers import source_file
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import FILE_CACHE
from ragidx.indexer.writing.history import rollback
from ragidx.pipelines.ingest import file_cache as seen
from ragidx.pipelines.ingest.ledger import REPEATED
from ragidx.pipelines.ingest.report import BuildReport, StrictError
from ragidx.pipelines.maintain.delete import delete

from ..conftest import Done

pytestmark = pytest.mark.slow  # half a second a build


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files that have settled: for these tests a file has after some ticks of the kernel's clock."""
    monkeypatch.setattr(seen, "_SETTLED_NS", 0)
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    for name, text in (("a.txt", "Ants build."), ("deep/b.txt", "Bees dance."), ("c.txt", "Cats sleep.")):
        (folder / name).write_text(text)
    _settle()
    return folder


@pytest.fixture
def index(corpus: Path, tmp_path: Path) -> Path:
    """Of the corpus, built once."""
    report = ragidx.build(corpus, tmp_path / "index").report
    assert (report.n_added, report.n_files_unopened) == (3, 0)
    return tmp_path / "index"


def _settle() -> None:
    time.sleep(0.05)


def _counts(report: BuildReport) -> tuple[int, int, int, int, int]:
    r = report
    return r.n_files_unopened, r.n_unchanged, r.n_added, r.n_changed, r.n_removed


def _texts(index: Path) -> dict[str, str]:
    """Text by chunk id, of all that is alive."""
    store = Store.open(index)
    return {row.chunk_id: row.text for row in store.rows(range(store.n_rows))}


def test_a_second_build_opens_no_file(corpus: Path, index: Path, closed: None) -> None:
    before = Store.open(index).manifest.generation
    report = ragidx.build(corpus, index).report
    assert _counts(report) == (3, 3, 0, 0, 0)
    assert (report.committed, report.generation, report.n_documents, report.skipped) == (False, before, 3, {})


def test_reread_opens_every_file(corpus: Path, index: Path, run: Callable[..., Done]) -> None:
    assert _counts(ragidx.build(corpus, index, reread=True).report) == (0, 3, 0, 0, 0)
    for options, unopened in ((["--reread"], 0), ([], 3)):
        told = run("build", str(corpus), "--index", str(index), "--json", *options)
        assert json.loads(told.out)["n_files_unopened"] == unopened


def test_the_progress_ends_at_all_bytes_when_nothing_is_read(corpus: Path, index: Path, closed: None) -> None:
    told: list[tuple[int, int, int]] = []
    ragidx.build(corpus, index, on_progress=lambda p: told.append((p.n_bytes, p.total_bytes, p.n_documents)))
    size = sum(path.stat().st_size for path in corpus.rglob("*.txt"))
    assert told[-1] == (size, size, 3)


def test_a_change_that_hides_behind_size_and_time_of_writing_is_noticed(corpus: Path, index: Path) -> None:
    file, before = corpus / "a.txt", (corpus / "a.txt").stat()
    file.write_text("Ants sleep.")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    assert _counts(ragidx.build(corpus, index).report) == (2, 2, 0, 1, 0)
    assert _texts(index)["a.txt:0-11"] == "Ants sleep."


def test_a_file_put_in_another_s_place_is_noticed(corpus: Path, index: Path) -> None:
    other = corpus.parent / "other.txt"
    other.write_text("Ants think.")
    before = (corpus / "a.txt").stat()
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(corpus / "a.txt")
    assert _counts(ragidx.build(corpus, index).report) == (2, 2, 0, 1, 0)
    assert _texts(index)["a.txt:0-11"] == "Ants think."


def test_a_file_that_was_only_touched_is_read_and_found_unchanged(corpus: Path, index: Path) -> None:
    (corpus / "a.txt").touch()
    _settle()
    report = ragidx.build(corpus, index).report
    assert (_counts(report), report.committed) == ((2, 3, 0, 0, 0), False)
    assert _counts(ragidx.build(corpus, index).report) == (3, 3, 0, 0, 0)


def test_a_file_just_written_is_read_again(corpus: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write within the same tick of a coarse clock would leave no trace in its times."""
    monkeypatch.undo()
    (corpus / "new.txt").write_text("Dogs bark.")
    ragidx.build(corpus, index)
    assert _counts(ragidx.build(corpus, index).report) == (3, 4, 0, 0, 0)
    assert seen._SETTLED_NS == 2_000_000_000


def test_new_renamed_and_removed_files_beside_those_passed_over(corpus: Path, index: Path) -> None:
    (corpus / "b.txt").write_text("Birds fly.")
    (corpus / "c.txt").rename(corpus / "d.txt")
    (corpus / "deep" / "b.txt").unlink()
    report = ragidx.build(corpus, index).report
    assert (_counts(report), report.n_chunks_reused) == ((1, 1, 2, 0, 2), 1)
    assert _texts(index) == {"a.txt:0-11": "Ants build.", "b.txt:0-10": "Birds fly.", "d.txt:0-11": "Cats sleep."}


def test_a_file_of_many_records_is_one_file(corpus: Path, index: Path, closed: None) -> None:
    shutil.rmtree(corpus)
    corpus.mkdir()
    records = [{"id": str(number), "text": f"Record {number}."} for number in range(5)]
    (corpus / "many.jsonl").write_text("\n".join(map(json.dumps, records)))
    _settle()
    with pytest.MonkeyPatch.context() as open_again:
        open_again.setattr(source_file, "_open_regular", lambda path, **how: path.open("rb", **how))
        assert _counts(ragidx.build(corpus, index).report) == (0, 0, 5, 0, 3)
    assert _counts(ragidx.build(corpus, index).report) == (1, 5, 0, 0, 0)


def test_what_is_left_out_of_a_file_is_told_at_every_build(corpus: Path, index: Path) -> None:
    (corpus / "many.jsonl").write_text('{"id": "1", "text": "One."}\nno JSON\n')
    (corpus / "none.txt").write_text("")
    _settle()
    for unopened, unchanged, added in ((3, 3, 1), (4, 4, 0), (4, 4, 0)):  # a file without a document is read again
        report = ragidx.build(corpus, index).report
        assert _counts(report) == (unopened, unchanged, added, 0, 0)
        assert sum(report.skipped.values()) == 2


def test_a_file_whose_id_is_that_of_a_file_passed_over_is_left_out(corpus: Path, index: Path) -> None:
    """The other way round, too: whichever is read, the first of the two in the walk is the one that counts."""
    (corpus / "d.jsonl#x.md").write_text("The file.")
    _settle()
    ragidx.build(corpus, index)
    (corpus / "d.jsonl").write_text('{"id": "x.md", "text": "The record."}')
    _settle()

    counts = []
    for _ in range(3):
        report = ragidx.build(corpus, index).report
        counts.append((*_counts(report), report.n_documents, report.committed, report.skipped))

    told = {REPEATED: 1}
    assert counts == [
        (3, 3, 0, 1, 0, 4, True, told),  # the record takes the file's place
        (4, 4, 0, 0, 0, 4, False, told),
        (4, 4, 0, 0, 0, 4, False, told),
    ]
    assert _texts(index)["d.jsonl#x.md:0-11"] == "The record."


def test_the_report_says_how_many_files_were_not_opened(corpus: Path, index: Path, run: Callable[..., Done]) -> None:
    lines = []
    for _ in range(2):
        lines.append(run("build", str(corpus), "--index", str(index)).out.splitlines()[3])
        for name in ("a.txt", "c.txt"):
            (corpus / name).touch()

    assert lines == [
        "documents  3: 0 new, 0 changed, 3 unchanged, 3 files not opened",
        "documents  3: 0 new, 0 changed, 3 unchanged, 1 file not opened",
    ]


def test_strict_opens_the_files_of_an_index_in_which_a_document_is_cut(
    corpus: Path, index: Path, tiny_model: Callable[..., Path]
) -> None:
    whole: dict[str, Any] = {
        "model": str(tiny_model("llama")),
        "method": "classical",
        "chunks": ragidx.ChunkSpec(size=None),
    }
    ragidx.build(corpus, index, rebuild=True, **whole)
    assert _counts(ragidx.build(corpus, index, strict=True).report)[0] == 3
    (corpus / "long.txt").write_text("7" * 500)
    _settle()
    assert ragidx.build(corpus, index).report.n_truncated == 1

    with pytest.raises(StrictError) as fault:
        ragidx.build(corpus, index, strict=True)

    assert (fault.value.where, Store.open(index).manifest.generation) == ("long.txt", 3)


def test_a_restored_document_comes_back_with_its_untouched_file(corpus: Path, index: Path) -> None:
    delete(index, ids=["a.txt"])
    assert _counts(ragidx.build(corpus, index, restore=True).report) == (2, 2, 1, 0, 0)
    assert len(_texts(index)) == 3


def test_after_going_back_the_files_are_read_that_the_old_state_has_otherwise(corpus: Path, index: Path) -> None:
    (corpus / "a.txt").write_text("Ants march.")
    _settle()
    ragidx.build(corpus, index)
    rollback(index, 1)
    assert _counts(ragidx.build(corpus, index).report) == (2, 2, 0, 1, 0)
    assert _texts(index)["a.txt:0-11"] == "Ants march."


def test_a_replaced_index_is_made_from_all_files(corpus: Path, index: Path) -> None:
    assert _counts(ragidx.build(corpus, index, rebuild=True).report) == (0, 0, 3, 0, 0)
    assert _counts(ragidx.build(corpus, index).report) == (3, 3, 0, 0, 0)


def test_a_folder_that_becomes_one_of_beir_is_read_again(corpus: Path, index: Path) -> None:
    (corpus / "corpus.jsonl").write_text('{"_id": "1", "title": "Ants", "text": "build."}')
    _settle()
    assert ragidx.build(corpus, index).report.n_added == 1
    (corpus / "queries.jsonl").write_text("")
    assert _counts(ragidx.build(corpus, index).report) == (0, 0, 1, 0, 4)
    assert _texts(index) == {"1:0-11": "Ants build."}


@pytest.mark.parametrize("what", ["a version", "a reader"])
def test_whatever_else_a_document_depends_on_makes_files_unknown(
    corpus: Path, index: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "a version":
        monkeypatch.setattr(ragidx, "__version__", "99.0")
        seen._rules_of.cache_clear()
    if what == "a reader":  # of somebody else, who may change it from day to day
        monkeypatch.setattr(seen, "added_endings", lambda: (".txt",))
    try:
        assert _counts(ragidx.build(corpus, index).report) == (0, 3, 0, 0, 0)
    finally:
        seen._rules_of.cache_clear()


def test_endings_of_added_readers_are_those_that_ragidx_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_added_readers", lambda: {".txt": None, ".odd": None})
    assert readers.added_endings() == (".odd",)


def _flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    for place in range(24, 24 + 3 * 48, 48):
        data[place + 20] ^= 1  # of a document's digest
    file.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "random": lambda file: file.write_bytes(random.Random(1).randbytes(16 + 48 * 3)),
    "flipped": _flipped,
    "other skips": lambda file: file.write_bytes(file.read_bytes().removesuffix(b"{}") + b'{ "x": 1}'),
    "short": lambda file: file.write_bytes(file.read_bytes()[:-5]),
    "sparse": lambda file: os.truncate(file, 16 + 48 * (1 << 32)),
    "gone": Path.unlink,
    "link": lambda file: (file.unlink(), file.symlink_to("/dev/zero")),
    "pipe": lambda file: (file.unlink(), os.mkfifo(file)),
    "folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_costs_reading_and_nothing_else(corpus: Path, index: Path, damage: str) -> None:
    (corpus / "a.txt").write_text("Ants march.")
    _settle()
    DAMAGES[damage](index / FILE_CACHE)
    assert _counts(ragidx.build(corpus, index).report) == (0, 2, 0, 1, 0)
    assert _counts(ragidx.build(corpus, index).report) == ((0 if damage == "folder" else 3), 3, 0, 0, 0)
    assert _texts(index)["a.txt:0-11"] == "Ants march."


def test_standard_input_is_never_known(index: Path, run: Callable[..., Done]) -> None:
    for _ in range(2):
        told = run("build", "-", "--index", str(index), "--json", stdin=b'{"text": "One."}\n')
        assert json.loads(told.out)["n_files_unopened"] == 0, told.err


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_the_files_the_index_is_theirs(seed: int, corpus: Path, index: Path) -> None:
    lots = random.Random(seed)
    for _ in range(12):
        for _ in range(lots.randint(0, 3)):
            _meddle(corpus, lots)
        if lots.random() < 0.5:
            _settle()
        ragidx.build(corpus, index)
        files = {str(path.relative_to(corpus)): path.read_text() for path in corpus.rglob("*.txt")}
        assert {name.rsplit(":", 1)[0]: text for name, text in _texts(index).items()} == files


def _meddle(corpus: Path, lots: random.Random) -> None:
    """Write, rewrite with the old time, move over another, touch or remove a file; the last one is left."""
    files = sorted(corpus.rglob("*.txt"))
    file, status = (one := lots.choice(files)), one.stat()
    match lots.randrange(6):
        case 0:
            (corpus / f"{lots.randrange(9)}.txt").write_text(f"Number {lots.randrange(9)}.")
        case 1:
            file.write_text(file.read_text()[::-1])
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        case 2:
            file.replace(corpus / f"{lots.randrange(9)}.txt")
        case 3:
            file.touch()
        case 4 if len(files) > 1:
            file.unlink()
        case _:
            file.write_text(f"{file.read_text()} More.")


def test_a_new_version_of_any_package_that_readers_import_makes_files_unknown() -> None:
    room = Path(readers.__file__).parents[1]
    nodes = [node for path in room.rglob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    roots = {name.split(".")[0] for name in names} - {"ragidx", "numpy", "tokenizers"}  # which read no file
    installed = metadata.packages_distributions()
    packages = {package.lower() for root in roots for package in installed.get(root, [])}

    assert len(packages) >= 5
    assert packages <= set(seen.READING)
