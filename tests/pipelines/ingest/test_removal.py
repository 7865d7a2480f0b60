"""What a build removes: most of an index only where that is allowed, and the report says how it comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.indexer.store.store import Store
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
