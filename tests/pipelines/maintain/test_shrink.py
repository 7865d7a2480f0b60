"""An index made narrower from what it holds: it answers as before, and builds go on with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import BusyError, IndexFormatError, SpecError
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.specs import FilterSpec
from ragidx.indexer.store import Store
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing.history import rollback
from ragidx.pipelines.maintain.rewrite import compact, reindex, shrink
from ragidx.retriever.models import FILTER_FILE

from ...indexer.states import live_vectors
from ...raising import message_of
from .conftest import INDEX, files, spec_of

pytestmark = pytest.mark.slow

QUESTION = "who signed the lease?"
WORDS = ["river", "mill", "lease", "tower", "bees", "planet", "type", "bread", "music", "bridge", "cure", "market"]


def hits(index: Path, question: str = QUESTION, dim: int | None = None) -> list[tuple[str, float]]:
    found = ragidx.Index(index).search(question, k=6, dim=dim, mode="dense")
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
    assert verify(INDEX) == []


@pytest.mark.usefixtures("mini_index")
def test_it_is_what_a_build_at_that_width_makes_and_builds_go_on_with_it() -> None:
    shrink(INDEX, dim=64)
    ragidx.build("corpus", "built", filter=FilterSpec("truncation", dim=64))

    made, built = Store.open(INDEX).manifest, Store.open("built").manifest
    assert spec_of(INDEX) == spec_of(Path("built"))
    assert spec_of(INDEX).filter == FilterSpec("truncation", dim=64)
    assert (made.fingerprint, made.dim, made.files) == (built.fingerprint, built.dim, built.files)
    check_same_vectors(live_vectors(INDEX), live_vectors(Path("built")))
    again = ragidx.build("corpus", INDEX).report
    asked = ragidx.build("corpus", INDEX, filter=FilterSpec("truncation", dim=64)).report
    for report in (again, asked):
        assert (report.n_encoded, report.n_unchanged, report.committed, report.generation) == (0, 6, False, 2)


@pytest.mark.usefixtures("mini_index")
def test_a_changed_document_goes_through_the_narrow_filter() -> None:
    shrink(INDEX, dim=32)
    Path("corpus/lease.txt").write_text("Grace Hopper signed the contract for the barn.\n")

    report = ragidx.build("corpus", INDEX).report

    assert (report.n_changed, report.n_encoded, report.dim) == (1, 1, 32)
    assert hits(INDEX, "Grace Hopper signed the contract for the barn.")[0][1] == pytest.approx(1, abs=1e-3)
    ragidx.build("corpus", "built", filter=FilterSpec("truncation", dim=32))
    check_same_vectors(live_vectors(INDEX), live_vectors(Path("built")))


@pytest.mark.usefixtures("mini_index")
def test_the_wide_index_comes_back_by_going_back() -> None:
    before, answers = live_vectors(INDEX), hits(INDEX)
    shrink(INDEX, dim=16)

    rollback(INDEX, 1)

    after = live_vectors(INDEX)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert hits(INDEX) == answers
    assert ragidx.build("corpus", INDEX).report.committed is False


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
    check_same_vectors(live_vectors(INDEX), live_vectors(Path("once")))


FILTERED: dict[str, tuple[dict[str, Any], FilterSpec]] = {
    "embedfilter, tau": ({"filter": FilterSpec(tau=2)}, FilterSpec(dim=6)),
    "embedfilter, offset": ({"filter": FilterSpec(offset=4)}, FilterSpec(dim=6, offset=4)),
    "none": ({"filter": "none"}, FilterSpec(name="truncation", dim=6)),
    "truncation": ({"filter": FilterSpec("truncation", dim=12)}, FilterSpec(name="truncation", dim=6)),
    "bulk": ({"filter": FilterSpec("bulk", dim=12)}, FilterSpec(name="bulk", dim=6)),
    "optimal": ({"filter": FilterSpec("optimal", dim=12)}, FilterSpec(name="optimal", dim=6)),
    "pca": ({"filter": FilterSpec("pca", dim=12)}, FilterSpec(name="pca", dim=6)),
    "whitening": ({"filter": FilterSpec("whitening", dim=12, seed=3)}, FilterSpec(name="whitening", dim=6, seed=3)),
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
    ragidx.build(records, "built", **tiny, filter=expected)
    check_same_vectors(live_vectors(INDEX), live_vectors(Path("built")))
    assert spec_of(INDEX) == spec_of(Path("built"))
    cut, whole = (Filter.from_bytes(Store.open(path).blob(FILTER_FILE)) for path in (INDEX, "built"))
    np.testing.assert_allclose(cut.matrix, whole.matrix, atol=1e-5)
    # Of a fitted filter the numbers count too, and a product of narrower matrices need not round as the wider one did.
    if expected.name not in ("pca", "whitening"):
        assert Store.open(INDEX).manifest.fingerprint == Store.open("built").manifest.fingerprint
    report = ragidx.build(records, INDEX).report
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
    ragidx.build("corpus", "built", **model, filter=FilterSpec("truncation", dim=8))
    assert Store.open(INDEX).manifest.fingerprint == Store.open("built").manifest.fingerprint
    check_same_vectors(live_vectors(INDEX), live_vectors(Path("built")))
    assert ragidx.build("corpus", INDEX).report.committed is False
    Path("corpus/lease.txt").write_text("Grace Hopper signed the contract for the barn.\n")
    report = ragidx.build("corpus", INDEX).report
    assert (report.n_encoded, report.dim) == (1, 8)


# what is refused


@pytest.mark.usefixtures("mini_index")
@pytest.mark.parametrize("dim", [0, -1, 256])
def test_a_width_that_the_index_does_not_have_is_refused(dim: int) -> None:
    before = files(INDEX)

    for refuse in (lambda: shrink(INDEX, dim=dim), lambda: reindex(INDEX, "narrow", dim=dim)):
        assert message_of(SpecError, refuse) == (
            f"`dim`: dim {dim} is not from 1 to 255, the dimensions stored in the index\n"
            "  hint: give at most 255; for more, build again with a larger `dim` and `rebuild=True`, "
            "or go back with `ragidx rollback` if it was shrunk"
        )
    assert files(INDEX) == before
    assert not Path("narrow").exists()


@pytest.mark.parametrize("name", ["random", "random-directions"])
def test_a_filter_whose_numbers_stand_in_no_order_is_refused(name: str, small_corpus: Path, model: Path) -> None:
    ragidx.build("corpus", INDEX, model="tiny", method="classical", filter=FilterSpec(name, dim=12))

    assert message_of(SpecError, lambda: shrink(INDEX, dim=6)) == (
        f"`dim`: filter '{name}' keeps dimensions in no order: the first 6 are not its narrower form\n"
        "  hint: build again with `dim=6`"
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
        with pytest.raises(IndexFormatError, match="nowhere: there is no such folder"):
            act()
    assert not Path("nowhere").exists()
    assert not Path("copy2").exists()
