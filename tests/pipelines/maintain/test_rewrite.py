"""An index made narrower, or of another type, from what it holds: it answers as before, and builds go on with it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import BusyError, CorpusError, IndexFormatError, RagidxError, SpecError
from ragidx.indexer.ann import index_types, tuning
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.specs import FilterSpec, IndexSpec
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.manifest import MANIFEST, manifest_bytes, read_manifest
from ragidx.indexer.store.store import Store
from ragidx.indexer.writing import merging as assembly
from ragidx.indexer.writing import rewrite
from ragidx.indexer.writing.history import rollback
from ragidx.pipelines.build.resolve import FILTER_FILE
from ragidx.pipelines.maintain.rewrite import compact, reindex, shrink

pytestmark = pytest.mark.slow

INDEX = Path("ragidx-index")
QUESTION = "who signed the lease?"
WORDS = ["river", "mill", "lease", "tower", "bees", "planet", "type", "bread", "music", "bridge", "cure", "market"]


def vectors(index: Path) -> dict[str, np.ndarray]:
    """The live vectors by chunk id."""
    store, found = Store.open(index), {}
    for segment, dead in zip(store.segments, store.dead, strict=True):
        alive = np.arange(segment.entry.rows) if dead is None else np.flatnonzero(~dead)
        ids = segment.columns(["chunk_id"]).column(0).to_pylist()
        found |= dict(zip([ids[row] for row in alive], segment.vectors(alive), strict=True))
    return found


def spec_of(index: Path) -> IndexSpec:
    return IndexSpec.from_json(dict(Store.open(index).manifest.spec), where=str(index))


def files(index: Path) -> dict[str, bytes]:
    paths = (path for path in index.rglob("*") if path.is_file() and path.name != "LOCK")
    return {str(path.relative_to(index)): path.read_bytes() for path in paths}


def hits(index: Path, question: str = QUESTION, dim: int | None = None) -> list[tuple[str, float]]:
    found = ragidx.Retriever.open(index).search(question, k=6, dim=dim)
    return [(hit.chunk_id, hit.score) for hit in found]


def check_same_vectors(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """Each number is the other's to one step of float16, for one of the two was rounded twice; the cosine is 1."""
    assert one.keys() == other.keys()
    for name, vector in one.items():
        np.testing.assert_allclose(vector, other[name], atol=2**-11)
        assert vector @ other[name] / (np.linalg.norm(vector) * np.linalg.norm(other[name])) > 1 - 1e-6


# narrower


@pytest.mark.usefixtures("mini_index")
def test_a_narrower_index_answers_as_the_wide_one_did_at_that_width() -> None:
    expected = hits(INDEX, dim=64)

    report = shrink(INDEX, dim=64)

    assert (report.dim, report.committed, report.generation, report.n_chunks) == (64, True, 2, 6)
    assert report.bytes_after < report.bytes_before
    assert [name for name, _ in hits(INDEX)] == [name for name, _ in expected]
    np.testing.assert_allclose([s for _, s in hits(INDEX)], [s for _, s in expected], atol=1e-6)
    assert hits(INDEX)[0][0].startswith("lease.txt")
    assert Store.open(INDEX).verify() == []


@pytest.mark.usefixtures("mini_index")
def test_it_is_what_a_build_at_that_width_makes_and_builds_go_on_with_it() -> None:
    shrink(INDEX, dim=64)
    ragidx.build("corpus", "built", dim=64, filter_offset=1)

    made, built = Store.open(INDEX).manifest, Store.open("built").manifest
    assert spec_of(INDEX) == spec_of(Path("built"))
    assert spec_of(INDEX).filter == FilterSpec(dim=64, offset=1)
    assert (made.fingerprint, made.dim, made.files) == (built.fingerprint, built.dim, built.files)
    check_same_vectors(vectors(INDEX), vectors(Path("built")))
    again = ragidx.build("corpus", INDEX)
    asked = ragidx.build("corpus", INDEX, dim=64, filter_offset=1)
    for report in (again, asked):
        assert (report.n_encoded, report.n_unchanged, report.committed, report.generation) == (0, 6, False, 2)


@pytest.mark.usefixtures("mini_index")
def test_a_changed_document_goes_through_the_narrow_filter() -> None:
    shrink(INDEX, dim=32)
    Path("corpus/lease.txt").write_text("Grace Hopper signed the contract for the barn.\n")

    report = ragidx.build("corpus", INDEX)

    assert (report.n_changed, report.n_encoded, report.dim) == (1, 1, 32)
    assert hits(INDEX, "Grace Hopper signed the contract for the barn.")[0][1] == pytest.approx(1, abs=1e-3)
    ragidx.build("corpus", "built", dim=32, filter_offset=1)
    check_same_vectors(vectors(INDEX), vectors(Path("built")))


@pytest.mark.usefixtures("mini_index")
def test_the_wide_index_comes_back_by_going_back() -> None:
    before, answers = vectors(INDEX), hits(INDEX)
    shrink(INDEX, dim=16)

    rollback(INDEX, 1)

    after = vectors(INDEX)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert hits(INDEX) == answers
    assert ragidx.build("corpus", INDEX).committed is False


@pytest.mark.usefixtures("mini_index")
def test_what_has_that_width_already_is_left_as_it_is() -> None:
    before = files(INDEX)

    report = shrink(INDEX, dim=255)

    assert (report.committed, report.generation, report.n_rewritten) == (False, 1, 0)
    assert report.bytes_before == report.bytes_after
    assert files(INDEX) == before


@pytest.mark.usefixtures("mini_index")
def test_dead_rows_are_gone_and_two_narrowings_are_one() -> None:
    Path("corpus/lease.txt").write_text("Grace Hopper signed the contract for the barn.\n")
    ragidx.build("corpus", INDEX)
    once = reindex(INDEX, "once", dim=16)

    first = shrink(INDEX, dim=100)
    second = shrink(INDEX, dim=16)

    assert (first.n_dropped, first.n_rewritten, first.n_segments, second.n_dropped) == (1, 2, 1, 0)
    assert (once.n_dropped, once.generation, once.index) == (1, 1, "once")
    assert spec_of(INDEX) == spec_of(Path("once"))
    check_same_vectors(vectors(INDEX), vectors(Path("once")))


FILTERED: dict[str, tuple[dict[str, Any], FilterSpec]] = {
    "embedfilter, tau": ({"tau": 2}, FilterSpec(dim=6)),
    "embedfilter, offset": ({"filter_offset": 4}, FilterSpec(dim=6, offset=4)),
    "none": ({"filter": "none"}, FilterSpec(name="truncation", dim=6)),
    "truncation": ({"filter": "truncation", "dim": 12}, FilterSpec(name="truncation", dim=6)),
    "bulk": ({"filter": "bulk", "dim": 12}, FilterSpec(name="bulk", dim=6)),
    "optimal": ({"filter": "optimal", "dim": 12}, FilterSpec(name="optimal", dim=6)),
    "pca": ({"filter": "pca", "dim": 12}, FilterSpec(name="pca", dim=6)),
    "whitening": ({"filter": "whitening", "dim": 12, "filter_seed": 3}, FilterSpec(name="whitening", dim=6, seed=3)),
}


@pytest.fixture
def records(folder: Path) -> str:
    """Sixty short records, each of them a chunk: enough to fit a filter on."""
    rows = [
        {"id": f"r{n}", "text": f"The {WORDS[n % 12]} number {n} stands by the {WORDS[n * 7 % 11]}, {n * n}."}
        for n in range(60)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "corpus.jsonl"


@pytest.mark.parametrize("name", FILTERED)
def test_any_filter_whose_numbers_are_nested_is_cut_to_its_narrower_form(name: str, records: str, model: Path) -> None:
    asked, expected = FILTERED[name]
    tiny = {"model": "tiny", "method": "classical", "dtype": "float32", "device": "cpu"}
    ragidx.build(records, INDEX, **tiny, **asked)
    question = "The mill number 13 stands by the river."
    before = hits(INDEX, question, dim=6)

    shrink(INDEX, dim=6)

    after = hits(INDEX, question)
    assert [chunk for chunk, _ in after] == [chunk for chunk, _ in before]
    np.testing.assert_allclose([score for _, score in after], [score for _, score in before], atol=1e-6)
    assert spec_of(INDEX).filter == expected
    named = {key: value for key, value in asked.items() if key in ("filter_offset", "filter_seed")}
    ragidx.build(records, "built", **tiny, **named, filter=expected.name, dim=6)
    check_same_vectors(vectors(INDEX), vectors(Path("built")))
    assert spec_of(INDEX) == spec_of(Path("built"))
    cut, whole = (Filter.from_bytes(Store.open(path).blob(FILTER_FILE)) for path in (INDEX, "built"))
    np.testing.assert_allclose(cut.matrix, whole.matrix, atol=1e-5)
    # Of a fitted filter the numbers count too, and a product of narrower matrices need not round as the wider one did.
    if expected.name not in ("pca", "whitening"):
        assert Store.open(INDEX).manifest.fingerprint == Store.open("built").manifest.fingerprint
    report = ragidx.build(records, INDEX)
    assert (report.n_encoded, report.n_fitted, report.n_unchanged, report.committed) == (0, 0, 60, False)


def test_an_index_of_sentence_transformers_becomes_one_of_truncated_vectors(
    small_corpus: Path, folder: Path, tiny_sentence_transformer: Path
) -> None:
    model = {"model": str(tiny_sentence_transformer), "device": "cpu", "dtype": "float32"}
    ragidx.build("corpus", INDEX, **model)
    before = hits(INDEX, dim=8)

    shrink(INDEX, dim=8)

    assert [chunk for chunk, _ in hits(INDEX)] == [chunk for chunk, _ in before]
    assert spec_of(INDEX).filter == FilterSpec(name="truncation", dim=8)
    ragidx.build("corpus", "built", **model, filter="truncation", dim=8)
    assert Store.open(INDEX).manifest.fingerprint == Store.open("built").manifest.fingerprint
    check_same_vectors(vectors(INDEX), vectors(Path("built")))
    assert ragidx.build("corpus", INDEX).committed is False
    Path("corpus/lease.txt").write_text("Grace Hopper signed the contract for the barn.\n")
    report = ragidx.build("corpus", INDEX)
    assert (report.n_encoded, report.dim) == (1, 8)


# what is refused


@pytest.mark.usefixtures("mini_index")
@pytest.mark.parametrize("dim", [0, -1, 256])
def test_a_width_that_the_index_does_not_have_is_refused(dim: int) -> None:
    before = files(INDEX)

    for refuse in (lambda: shrink(INDEX, dim=dim), lambda: reindex(INDEX, "narrow", dim=dim)):
        with pytest.raises(SpecError) as fault:
            refuse()
        assert str(fault.value) == (
            f"--dim: dim {dim} is not from 1 to 255, the dimensions stored in the index\n"
            "  hint: give at most 255; for more, build again with a larger --dim"
        )
    assert files(INDEX) == before
    assert not Path("narrow").exists()


@pytest.mark.parametrize("name", ["random", "random-directions"])
def test_a_filter_whose_numbers_stand_in_no_order_is_refused(name: str, small_corpus: Path, model: Path) -> None:
    ragidx.build("corpus", INDEX, model="tiny", method="classical", filter=name, dim=12)

    with pytest.raises(SpecError) as fault:
        shrink(INDEX, dim=6)

    assert str(fault.value) == (
        f"--dim: filter '{name}' keeps numbers in no order: the first 6 are not its narrower form\n"
        "  hint: build again with --dim 6"
    )
    assert reindex(INDEX, "same").dim == 12


@pytest.mark.usefixtures("mini_index")
def test_another_writer_and_what_is_no_index_are_told() -> None:
    lock = Lock(INDEX)
    try:
        with pytest.raises(BusyError):
            shrink(INDEX, dim=64)
        with pytest.raises(BusyError):
            compact(INDEX)
        assert reindex(INDEX, "copy").n_chunks == 6  # which only reads it
    finally:
        lock.release()
    for act in (
        lambda: compact("nowhere"),
        lambda: shrink("nowhere", dim=8),
        lambda: reindex("nowhere", "copy2"),
    ):
        with pytest.raises(IndexFormatError) as fault:
            act()
        assert str(fault.value) == (
            "nowhere: there is no such folder\n  hint: build the index first, or name another folder with --index"
        )
    assert not Path("nowhere").exists()
    assert not Path("copy2").exists()


@pytest.mark.usefixtures("mini_index")
def test_a_target_that_holds_something_is_refused_and_left_as_it_is() -> None:
    Path("file").write_text("a letter")
    Path("full").mkdir()
    Path("full/letter.txt").write_text("a letter")
    messages = {
        "file": "file: it is a file, not a folder\n  hint: name another folder",
        "full": "full: it is not an index, and not empty\n  hint: name another folder",
        "ragidx-index": "ragidx-index: there is an index already\n  hint: name another folder, or remove that one",
    }
    before = files(INDEX)

    for target, message in messages.items():
        with pytest.raises(RagidxError) as fault:
            reindex(INDEX, target, dim=8)
        assert str(fault.value) == message

    assert Path("file").read_text() == "a letter"
    assert [path.name for path in Path("full").iterdir()] == ["letter.txt"]
    assert files(INDEX) == before
    Path("empty").mkdir()
    assert reindex(INDEX, "empty", dim=8).dim == 8


# vectors that were made elsewhere, and other index types


@pytest.fixture
def given(folder: Path) -> np.ndarray:
    """`ragidx-index`, of 400 given vectors of 16 numbers in two segments; the same vectors, which have length 1."""
    raw = np.random.default_rng(0).standard_normal((400, 16)).astype(np.float32)
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    for part in (slice(0, 300), slice(300, 400)):
        with ragidx.IndexWriter(INDEX, dim=16) as writer:
            writer.add([f"v{n}" for n in range(400)][part], raw[part])
            writer.commit()
    return raw


def test_an_index_of_given_vectors_gets_narrower_too(given: np.ndarray) -> None:
    query = given[:3] + 0.1
    expected = [[(hit.chunk_id, hit.score) for hit in of] for of in ragidx.IndexReader.open(INDEX).search(query, dim=8)]

    report = shrink(INDEX, dim=8)

    narrow = query[:, :8]
    found = [[(hit.chunk_id, hit.score) for hit in of] for of in ragidx.IndexReader.open(INDEX).search(narrow)]
    assert (report.dim, report.n_segments, report.n_rewritten) == (8, 1, 2)
    assert [[name for name, _ in of] for of in found] == [[name for name, _ in of] for of in expected]
    np.testing.assert_allclose(
        np.array(found)[..., 1].astype(float), np.array(expected)[..., 1].astype(float), atol=1e-6
    )
    with ragidx.IndexWriter(INDEX, dim=8) as writer:  # it goes on at the narrower width
        writer.add(["new"], narrow[:1])
        assert writer.commit().n_rows == 401
    with pytest.raises(SpecError, match="vectors have 8 numbers in the index, 12 now"):
        ragidx.IndexWriter(INDEX, dim=12)


def test_the_vectors_that_were_given_come_again_after_a_shrink_and_are_known(given: np.ndarray) -> None:
    shrink(INDEX, dim=12)
    shrink(INDEX, dim=8)

    with ragidx.IndexWriter(INDEX, dim=16) as writer:
        writer.add([f"v{n}" for n in range(400)], given)
        again = writer.commit()
    with ragidx.IndexWriter(INDEX, dim=16) as writer:  # another vector, which is stored as wide as the others
        writer.add(["v0"], -given[:1])
        changed = writer.commit()

    [[hit]] = ragidx.IndexReader.open(INDEX).search(-given[:1, :8], k=1)
    assert (again.committed, again.n_unchanged) == (False, 400)
    assert (changed.n_changed, changed.n_unchanged) == (1, 0)
    assert (hit.chunk_id, hit.score) == ("v0", pytest.approx(1, abs=5e-4))  # a step of float16


def test_a_given_vector_with_nothing_in_the_part_that_is_kept_is_left_out(given: np.ndarray) -> None:
    shrink(INDEX, dim=8)
    rows = np.stack([np.eye(16)[15], np.full(16, np.nan), np.zeros(16)])

    told = []
    with ragidx.IndexWriter(INDEX, dim=16) as writer:
        for row in range(3):
            with pytest.raises(CorpusError) as fault:
                writer.add(["x"], rows[row : row + 1])
            told.append(str(fault.value))

    assert told == [
        f"id 'x': {reason}\n  hint: mend it, or leave the row out; nothing of this call was added"
        for reason in (
            "the first 8 of 16 numbers of the vector are zero",
            "the vector holds a number that is not finite",
            "the vector is zero",
        )
    ]


def test_an_index_whose_widths_do_not_go_together_is_damaged(given: np.ndarray) -> None:
    shrink(INDEX, dim=8)
    manifest = read_manifest(Path(INDEX))
    forged = dataclasses.replace(manifest, spec=manifest.spec | {"given_dim": 8})
    Path(INDEX, MANIFEST).write_bytes(manifest_bytes(forged))

    with pytest.raises(IndexFormatError) as fault:
        ragidx.IndexWriter(INDEX, dim=16)

    assert str(fault.value) == (
        "ragidx-index: the index cannot hold the first 8 of 8 numbers\n"
        "  hint: put the manifest back, or replace the index with --rebuild"
    )


def test_a_vector_that_has_nothing_in_the_part_that_is_kept_is_refused(given: np.ndarray) -> None:
    with ragidx.IndexWriter(INDEX, dim=16) as writer:
        writer.add(["late"], np.eye(16, dtype=np.float32)[15:])
        writer.commit()
    before = files(INDEX)
    message = (
        "chunk late: the first 8 of 16 numbers of a vector are all zero\n"
        "  hint: keep more dimensions"
    )  # fmt: skip

    for refuse in (lambda: shrink(INDEX, dim=8), lambda: reindex(INDEX, "narrow", dim=8)):
        with pytest.raises(SpecError) as fault:
            refuse()
        assert str(fault.value) == message

    assert files(INDEX) == before
    assert not Path("narrow").exists()
    assert reindex(INDEX, "narrow").n_chunks == 401


def test_another_index_type_is_made_of_the_same_vectors(given: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(INDEX)
    monkeypatch.setattr(index_types, "MIN_ROWS", 200)
    told: list[tuple[str, int, int]] = []

    report = reindex(
        INDEX, "graph", index_type="hnsw", target_recall=0.9, on_stage=lambda *stage: told.append(stage)
    )  # fmt: skip

    store = Store.open("graph")
    assert (report.index, report.generation, report.index_type, report.made) == ("graph", 1, "hnsw", ["HNSW16"])
    assert (report.n_segments, report.n_rewritten, report.n_chunks, report.dim) == (1, 2, 400, 16)
    assert store.manifest.index.target_recall == 0.9
    assert store.manifest.segments[0].ann is not None
    assert (store.manifest.segments[0].ann.recall or 0) >= 0.9
    assert report.recall == store.manifest.segments[0].ann.recall
    assert {stage for stage, _, _ in told} == {"copying rows", "HNSW16"}
    assert spec_of(Path("graph")).index_type == "hnsw"
    found = ragidx.IndexReader.open("graph").search(given[:5], k=1)
    assert [of[0].chunk_id for of in found] == [f"v{n}" for n in range(5)]
    assert files(INDEX) == before
    assert store.verify() == []
    with ragidx.IndexWriter("graph", dim=16) as writer:  # the target goes on under its own type
        writer.add([f"v{n}" for n in range(400)], given)
        assert writer.commit().n_unchanged == 400


def test_narrower_and_of_another_type_at_once(given: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_types, "MIN_ROWS", 200)

    report = reindex(INDEX, "small", dim=8, index_type="SQ8", max_memory=10_000)

    assert (report.dim, report.made) == (8, ["SQ8"])
    assert Store.open("small").manifest.index.max_memory == 10_000
    assert report.bytes_after < report.bytes_before


def test_what_the_memory_does_not_hold_is_refused(given: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (index_types, tuning):
        monkeypatch.setattr(module, "MIN_ROWS", 200)

    with pytest.raises(SpecError) as fault:
        reindex(INDEX, "tiny-index", index_type="flat", max_memory=1000)

    assert str(fault.value) == (
        "--max-memory: 400 vectors of 16 dimensions take 1 MB as flat, more than --max-memory leaves\n"
        "  hint: allow that much, take fewer dimensions (--dim; give narrower vectors), "
        "or leave the type to --index-type auto"
    )
    assert not Path("tiny-index").exists()


def refuse_memory(monkeypatch: pytest.MonkeyPatch, target: Path) -> None:
    """A reindex that fails after its rows were copied."""
    for module in (index_types, tuning):
        monkeypatch.setattr(module, "MIN_ROWS", 200)
    with pytest.raises(SpecError, match="more than --max-memory leaves"):
        reindex(INDEX, target, index_type="flat", max_memory=1000)


@pytest.mark.usefixtures("given")
def test_what_fails_leaves_no_folder_that_was_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("there").mkdir()

    refuse_memory(monkeypatch, Path("there/new/deep"))

    assert list(Path("there").iterdir()) == []
    assert reindex(INDEX, "there/new/deep").n_chunks == 400


@pytest.mark.usefixtures("given")
def test_what_fails_leaves_an_empty_folder_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("empty").mkdir()

    refuse_memory(monkeypatch, Path("empty"))

    assert list(Path("empty").iterdir()) == []
    with pytest.raises(IndexFormatError, match=r"it is no index: manifest\.json is missing"):
        Store.open("empty")


@pytest.mark.usefixtures("given")
def test_what_fails_leaves_what_an_interrupted_build_is_to_go_on_from(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("begun/LOCK", "begun/journal/vectors"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("")

    refuse_memory(monkeypatch, Path("begun"))

    assert {"LOCK", "journal"} <= {path.name for path in Path("begun").iterdir()}
    assert Path("begun/journal/vectors").exists()


@pytest.mark.usefixtures("given")
def test_what_another_writer_made_meanwhile_is_left_alone() -> None:
    """Two fill one folder at once: the second is told, and takes nothing of the first with it."""
    Path("busy").mkdir()
    lock = Lock(Path("busy"))
    try:
        with pytest.raises(BusyError):
            reindex(INDEX, "busy")
    finally:
        lock.release()

    assert [path.name for path in Path("busy").iterdir()] == ["LOCK"]


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize("target", ["ragidx-index/sub", "ragidx-index/segments/x", "ragidx-index/../ragidx-index/a/b"])
def test_an_index_is_not_written_into_the_one_it_is_made_of(target: str) -> None:
    before = files(INDEX)

    with pytest.raises(SpecError) as fault:
        reindex(INDEX, target)

    assert str(fault.value) == (
        f"{Path(target)}: the folder lies in the index ragidx-index\n  hint: name a folder outside of it"
    )
    assert files(INDEX) == before
    assert not Path(target).exists()


@pytest.mark.usefixtures("given")
def test_nor_through_a_link() -> None:
    Path("link").symlink_to(INDEX, target_is_directory=True)

    with pytest.raises(SpecError, match=re.escape("link/sub: the folder lies in the index ragidx-index")):
        reindex(INDEX, "link/sub")


@pytest.mark.usefixtures("given")
def test_nor_around_it(folder: Path) -> None:
    with pytest.raises(SpecError) as fault:
        reindex(INDEX, folder)

    assert str(fault.value) == (f"{folder}: the index ragidx-index lies in this folder\n  hint: name another folder")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"target_recall": 1.5}, "--target-recall: a recall of 1.5 is no share\n  hint: give more than 0, at most 1"),
        ({"max_memory": 0}, "--max-memory: 0 bytes of memory hold nothing\n  hint: give a size such as 2GB"),
        (
            {"index_type": "IVF4,PQ3", "dim": 12},
            "--index-type: index type IVF4,PQ3: 3 codes do not divide 16 dimensions\n"
            "  hint: take one of PQ1, PQ2, PQ4, PQ8, PQ16, or another type",
        ),
    ],
)
def test_an_option_that_is_out_of_range_is_told_before_anything_is_written(
    asked: dict[str, Any], message: str, given: np.ndarray
) -> None:
    with pytest.raises(SpecError) as fault:
        reindex(INDEX, "other", **asked)

    assert str(fault.value) == message
    assert not Path("other").exists()


def test_a_type_that_is_wrong_is_told_with_those_that_there_are(given: np.ndarray) -> None:
    with pytest.raises(SpecError, match=re.escape("unknown index type 'hnws'; did you mean 'hnsw'?")):
        reindex(INDEX, "other", index_type="hnws")


def test_an_index_is_copied_while_commits_remove_its_files(given: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two blocks the index is compacted, and three more commits sweep what the copy is made of."""
    reader = Store.open(INDEX)
    monkeypatch.setattr(assembly, "_GROUP_BATCHES", 1)
    seen: list[int] = []

    def on_stage(stage: str, rows: int, done: int) -> None:
        if not seen:
            compact(INDEX)
            for number in range(3):
                with ragidx.IndexWriter(INDEX, dim=16) as writer:
                    writer.add([f"new {number}"], given[:1])
                    writer.commit()
        seen.append(done)

    report = reindex(INDEX, "copy", dim=8, on_stage=on_stage)

    assert not any(segment.folder.exists() for segment in reader.segments)
    assert (report.n_chunks, report.dim, seen) == (400, 8, [256, 300, 400])
    assert Store.open("copy").verify() == []
    assert {f"v{n}" for n in range(400)} == vectors(Path("copy")).keys()


def test_what_another_writer_commits_just_before_is_what_is_made_narrower(
    given: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first look at the index and its lock it is replaced by another one, 12 wide."""

    class LateLock(Lock):
        def __init__(self, folder: Path) -> None:
            if Store.open(folder).manifest.dim == 16:
                with ragidx.IndexWriter(folder, dim=12, made_by="another", replace=True) as writer:
                    writer.add(["other"], given[:1, :12])
                    writer.commit()
            super().__init__(folder)

    monkeypatch.setattr(rewrite, "Lock", LateLock)

    with pytest.raises(SpecError, match="dim 14 is not from 1 to 12"):
        shrink(INDEX, dim=14)
    report = shrink(INDEX, dim=8)

    assert (report.dim, report.n_chunks) == (8, 1)
    assert spec_of(INDEX).encoder.model == "another"
    assert Store.open(INDEX).verify() == []
