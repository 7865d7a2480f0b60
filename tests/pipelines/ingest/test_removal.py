"""What a build removes: most of an index only where that is allowed, and the report says how it comes back."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.indexer.store import Store
from ragidx.pipelines.ingest.removal import is_unreadable

from ..conftest import Done

Run = Callable[..., Done]
WAYS_ON = (
    "  hint: use another --index for this corpus, --allow-removal if they are really gone, or --rebuild to replace the "
    "index\n"
)


def corpus_of(name: str, n: int) -> Path:
    """A folder of n documents."""
    folder = Path(name)
    folder.mkdir(exist_ok=True)
    for number in range(n):
        (folder / f"{name}-{number}.txt").write_text(f"The {name} number {number} is here.\n")
    return folder


def table_of(n: int, first: int = 0) -> Path:
    """A file of n vectors with the ids from `first` on."""
    ids = [f"v{number}" for number in range(first, first + n)]
    vectors = pa.array([[1.0, float(number)] for number in range(first, first + n)], pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": ids, "vector": vectors}), "vectors.parquet")
    return Path("vectors.parquet")


@pytest.fixture
def barns(folder: Path, run: Run) -> Path:
    """`ragidx-index`, made of twelve documents about barns."""
    assert run("build", str(corpus_of("barn", 12))).status == 0
    return folder / "ragidx-index"


def replaced_by_mills() -> None:
    """The folder of barns holds five mills."""
    for path in Path("barn").iterdir():
        path.unlink()
    for path in corpus_of("mill", 5).iterdir():
        path.rename(Path("barn") / path.name)


@pytest.mark.slow
def test_another_corpus_does_not_empty_an_index_and_a_plan_is_refused_in_the_same_words(barns: Path, run: Run) -> None:
    corpus_of("mill", 5)
    another = (
        f"Error: mill: the index holds {barns.parent}/barn (12 documents), and not this\n"
        "  hint: `ragidx add-source mill` puts it beside, another --index keeps it apart, "
        "--rebuild replaces the index\n"
    )

    assert run("build", "mill") == run("build", "mill", "--plan") == (2, "", another)
    manifest = Store.open(barns).manifest
    assert (manifest.generation, manifest.n_documents) == (1, 12)
    assert run("build", "mill", "--plan", "--allow-removal").status == 0
    replaced_by_mills()
    refused = "Error: ragidx-index: this build would remove 12 of 12 documents\n" + WAYS_ON
    assert run("build", "barn", "--plan") == (2, "", refused)
    assert run("build", "barn", "--plan", "--allow-removal").status == 0


@pytest.mark.slow
@pytest.mark.usefixtures("barns")
def test_with_allow_removal_the_same_build_takes_what_was_encoded_from_the_journal(run: Run) -> None:
    replaced_by_mills()
    assert run("build", "barn").status == 2

    done = run("build", "barn", "--allow-removal", "--json")

    report = json.loads(done.out)
    assert (done.status, report["n_added"], report["n_removed"]) == (0, 5, 12)
    assert (report["n_encoded"], report["n_chunks_reused"]) == (0, 5)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "left", "refused"), [(12, 6, False), (12, 5, True), (10, 4, True), (9, 1, False)])
def test_more_than_half_of_ten_documents_or_more_is_too_much(
    before: int, left: int, refused: bool, folder: Path
) -> None:
    ragidx.build(corpus_of("barn", before), folder / "index")
    for number in range(left, before):
        Path(f"barn/barn-{number}.txt").unlink()

    if refused:
        with pytest.raises(SpecError, match=f"would remove {before - left} of {before} documents"):
            ragidx.build("barn", folder / "index")
    else:
        assert ragidx.build("barn", folder / "index").report.n_removed == before - left


@pytest.mark.slow
def test_changed_documents_are_not_removed_and_count_as_documents_of_the_index(folder: Path) -> None:
    ragidx.build(corpus_of("barn", 12), folder / "index")
    for path in Path("barn").iterdir():
        path.write_text(f"{path.name} was painted.\n")
    Path("barn/barn-0.txt").unlink()

    report = ragidx.build("barn", folder / "index").report

    assert (report.n_changed, report.n_removed) == (11, 1)


@pytest.mark.slow
def test_another_file_of_vectors_does_not_empty_an_index(folder: Path, run: Run) -> None:
    run("build", "--vectors", str(table_of(12)))

    done = run("build", "--vectors", str(table_of(12, first=8)))

    assert done == (2, "", "Error: ragidx-index: this build would remove 8 of 12 rows\n" + WAYS_ON)
    assert Store.open(folder / "ragidx-index").manifest.generation == 1
    told = "Removed: 8; `ragidx rollback 1` brings them back while generation 1 is kept.\n"
    assert run("build", "--vectors", "vectors.parquet", "--allow-removal")[::2] == (0, told)


@pytest.mark.slow
@pytest.mark.usefixtures("barns")
def test_the_report_says_how_what_was_removed_comes_back(folder: Path, run: Run) -> None:
    (folder / "barn" / "barn-0.txt").unlink()
    told = "Removed: 1 (barn-0.txt); `ragidx rollback 1` brings it back while generation 1 is kept.\n"

    assert run("build", "barn")[::2] == (0, told)
    assert run("rollback", "1").status == 0
    assert Store.open(folder / "ragidx-index").manifest.n_documents == 12


def test_a_record_that_cannot_be_read_does_not_make_its_file_unreadable() -> None:
    assert is_unreadable("a.jsonl", "binary file", "a.jsonl")
    assert not is_unreadable("a.jsonl:7", "empty text", "a.jsonl")
    assert not is_unreadable("a.jsonl", "empty text", "a.jsonl")
    assert not is_unreadable("a.txt", "ignored by .gitignore", "b.txt")


def mills(n: int, folder: str = "z") -> None:
    """Documents in a folder of `barn`."""
    for number in range(n):
        path = Path(f"barn/{folder}/{number}.md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"The mill {folder} {number} turns.\n")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_folder_that_is_not_mounted_keeps_its_documents_until_that_is_allowed(run: Run) -> None:
    corpus_of("barn", 40)
    mills(10), mills(3, "y/deep")
    run("build", "barn")
    shutil.move("barn/z", "elsewhere")
    shutil.rmtree("barn/y")
    Path("barn/z").mkdir()
    refused = (
        "Error: ragidx-index: this build would remove all 10 documents of the folder z/, which is empty\n"
        "  hint: mount it or bring it back, or give --allow-removal if they are really gone\n"
    )

    assert run("build", "barn") == run("build", "barn", "--plan") == (2, "", refused)
    assert run("build", "barn", "--strict") == (2, "", refused)
    assert ragidx.Index("ragidx-index").get(["z/0.md"])
    done = run("build", "barn", "--allow-removal")
    assert done.err == (
        "Removed: 13 (y/deep/0.md, y/deep/1.md, y/deep/2.md, ...); `ragidx rollback 1` brings them back while "
        "generation 1 is kept.\n"
        "Removed of folders that are empty or gone: z/ 10, y/ 3.\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("others", "files", "way", "refused"),
    [
        (90, 10, "empty", True),
        (90, 9, "empty", False),
        (30, 10, "gone", True),
        (31, 10, "gone", False),
        (30, 10, "excluded", False),
        (30, 10, "all but one", False),
        (30, 10, "renamed", False),
    ],
)
def test_a_folder_is_asked_about_if_it_is_empty_or_had_a_quarter_of_its_source(
    others: int, files: int, way: str, refused: bool, folder: Path
) -> None:
    corpus_of("barn", others)
    mills(files)
    ragidx.build("barn", "index")
    exclude = ["z/"] if way == "excluded" else []
    if way == "renamed":
        Path("barn/z").rename("barn/y")
    elif way != "excluded":
        for path in list(Path("barn/z").iterdir())[way == "all but one" :]:
            path.unlink()
    if way == "gone":
        Path("barn/z").rmdir()

    if refused:
        with pytest.raises(SpecError, match=f"all 10 documents of the folder z/, which is {way}"):
            ragidx.build("barn", "index", exclude=exclude)
    else:
        report = ragidx.build("barn", "index", exclude=exclude).report
        assert report.removed_folders == ({} if way in ("excluded", "all but one") else {"z/": files})


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_records_members_and_ids_with_slashes_are_no_folders() -> None:
    lines = [json.dumps({"id": f"http://mill.org/a/{number}", "text": f"mill {number}"}) for number in range(12)]
    corpus_of("barn", 30)
    Path("barn/mills.jsonl").write_text("\n".join([*lines, '{"id": "7", "text": "the last mill"}']))
    with zipfile.ZipFile("barn/a.zip", "w") as archive:
        for number in range(12):
            archive.writestr(f"docs/{number}.txt", f"A heron {number}.")
    assert len(list(ragidx.build("barn", "index").documents())) == 55
    Path("barn/mills.jsonl").write_text('{"id": "7", "text": "the last mill"}')
    Path("barn/a.zip").unlink()

    report = ragidx.build("barn", "index").report

    assert (report.n_removed, report.removed_folders) == (24, {})


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_folder_of_a_second_source_is_asked_about_too_also_by_an_upgrade() -> None:
    corpus_of("barn", 30)
    mills(12)
    corpus_of("shed", 3)
    index = ragidx.build(["shed", "barn"], "index")
    for path in Path("barn/z").iterdir():
        path.unlink()

    with pytest.raises(SpecError, match=r"index: barn: .* all 12 documents of the folder barn/z/, which is empty"):
        ragidx.build(index="index")
    with pytest.raises(SpecError, match=r"index: .* all 12 documents of the folder barn/z/, which is empty"):
        index.upgrade(chunks=ragidx.ChunkSpec(size=64), force=True)
    assert ragidx.build("shed", "index").report.n_removed == 0
