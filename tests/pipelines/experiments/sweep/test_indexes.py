"""`sweep` of an index: bytes, recall, overlap and types, and what cannot be asked of it.

What is timed is never asserted, and is cut short here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragidx
from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.indexer.ann.faiss_files import HEADER_BYTES
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.pipelines.experiments.evaluate.cells import index_of
from ragidx.pipelines.experiments.evaluate.evaluate import KNOWN as KNOWN_OPTIONS
from ragidx.pipelines.experiments.evaluate.sources.series import WidthChoice, series_of
from ragidx.pipelines.experiments.evaluate.sources.source import IndexSource
from ragidx.pipelines.vectors import build_vectors

from ....raising import message_of
from .conftest import means_of, random_rows, rows_of, sweep, widths_of

pytestmark = pytest.mark.usefixtures("briefly")

KNOWN = ", ".join(sorted(KNOWN_OPTIONS))


def test_flat_is_exact_at_every_width_and_full_width_overlaps_wholly(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(random_rows(60, 16)), filter=["truncation", "pca"])

    assert set(means_of(report, "ann_recall@10")) == {1.0}
    assert means_of(report, "overlap@10")[:2] == [1.0, 1.0]
    assert means_of(report, "overlap@10")[-1] < 1
    assert widths_of(report, "none") == [16]
    assert widths_of(report, "truncation") == [8, 4, 2, 1]
    assert widths_of(report, "pca") == [16, 8, 4, 2, 1]
    assert (report.tasks[0].n_chunks, len(report.tasks[0].query_ids)) == (54, 6)
    assert report.tasks[0].notes[0] == "There are no queries: 6 held-out chunks were asked."


def test_bytes_are_exact(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(random_rows(30, 16)), dim=[16, 5], filter=["truncation"])

    rows = report.tasks[0].rows[1:]
    want = [HEADER_BYTES + 27 * 32, HEADER_BYTES + 27 * 16]  # 5 dimensions are stored as 8
    assert [row.costs and row.costs.disk_bytes for row in rows] == want
    assert [row.bytes for row in rows] == [size / 27 for size in want]
    assert [row.configuration.tau for row in rows] == [1, 16 / 5]


def test_by_default_a_width_that_a_filter_cannot_be_fitted_for_is_left_out_and_told(
    given_index: Callable[..., Path],
) -> None:
    report = sweep(given_index(random_rows(12, 16)), tau=[1, 2])

    assert rows_of(report)[1:] == [("none", 16, "flat"), ("truncation", 8, "flat"), ("pca", 8, "flat")]
    assert report.tasks[0].notes[1] == (
        "pca at 16 dimensions is skipped: filter 'pca' is to keep 16 directions, and the 12 chunks that it is fitted"
        " on vary in 11."
    )


def test_a_filter_that_can_be_fitted_for_no_width_is_left_out_where_nobody_named_it(
    given_index: Callable[..., Path],
) -> None:
    index = given_index(random_rows(12, 16))

    report = sweep(index, dim=[16, 13])

    assert rows_of(report)[1:] == [("none", 16, "flat"), ("truncation", 13, "flat")]
    assert [note.partition(" is skipped")[0] for note in report.tasks[0].notes[1:]] == [
        "pca at 16 dimensions", "pca at 13 dimensions"
    ]  # fmt: skip
    with pytest.raises(SpecError, match="filter 'pca' is to keep 13 directions, and the 12 chunks"):
        sweep(index, dim=[16, 13], filter=["pca"])


def test_the_filter_none_alone_has_no_narrower_width(given_index: Callable[..., Path]) -> None:
    index = given_index(random_rows(20, 16))

    for widths in ({"tau": [1, 4]}, {"dim": [4]}):
        with pytest.raises(SpecError) as fault:
            sweep(index, filter=["none"], **widths)  # type: ignore[arg-type]
        assert str(fault.value) == (
            "`filter`: filter 'none' keeps all 16 dimensions, and has no width of 4\n"
            "  hint: remove `dim` and `tau`, or take the first dimensions: `filter=truncation`"
        )
    assert rows_of(sweep(index, filter=["none"], dim=[16]))[1:] == [("none", 16, "flat")]


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), width=st.integers(1, 8))
def test_a_narrower_width_is_what_a_query_of_that_width_compares(
    tmp_path_factory: pytest.TempPathFactory, seed: int, width: int
) -> None:
    folder = tmp_path_factory.mktemp("narrow")
    vectors = np.array(random_rows(20, 8, seed), "f4")
    np.save(folder / "given.npy", vectors)
    build_vectors(folder / "given.npy", folder / "index", index_type="flat")
    source = IndexSource(folder / "index", {})
    series = series_of(source, ["truncation"], WidthChoice(dims=(width,)), {})[0]

    blocks = (series.narrow(block, width) for block in source.blocks())
    store, _ = index_of(folder / "made", blocks, width, IndexOptions("flat"))
    unit = vectors[:3] / np.linalg.norm(vectors[:3], axis=1, keepdims=True)
    scores, _ = store.nearest(series.narrow(unit, width), 5)

    told = ragidx.Index(folder / "index").search_vectors(vectors[:3], k=5, dim=width)
    of_hits = [[hit.score for hit in hits] for hits in told]
    np.testing.assert_allclose(scores, of_hits, atol=1e-6)


def test_deleted_rows_are_not_searched(given_index: Callable[..., Path], tmp_path: Path) -> None:
    index = given_index(random_rows(20, 4))
    ragidx.Index(index).delete(["0", "1"])

    source = IndexSource(index, {})

    assert source.n_rows == 18
    assert sum(map(len, source.blocks())) == len(source.doc_ids()) == 18


def test_one_vector_has_nothing_to_be_compared_with(given_index: Callable[..., Path]) -> None:
    index = given_index([[1.0, 2.0]])

    said = message_of(CorpusError, lambda: sweep(index))

    assert said == f"{index}: one chunk alone has nothing to be compared with\n  hint: add documents"


def test_what_cannot_be_asked_of_an_index_is_refused(given_index: Callable[..., Path], tmp_path: Path) -> None:
    index = given_index(random_rows(20, 4))
    qrels = tmp_path / "qrels.tsv"
    for options, message in (
        ({"filter": ["pcs"]}, "unknown filter 'pcs'; did you mean 'pca'?"),
        ({"index_type": ["hnws"]}, "unknown index type 'hnws'; did you mean 'hnsw'?"),
        ({"method": "echo"},
         f"{index}: the index says how its vectors are made: `method` cannot be chosen\n  hint: remove it, or name a"
         " corpus in place of the index"),
        ({"layer": 0}, "`layer` cannot be chosen"),
        ({"tokeniser": "F"}, "evaluate takes no such option: 'tokeniser'; did you mean 'tokenizer'?"),
        ({"strict": True}, f"evaluate takes no such option: 'strict'\n  hint: known: {KNOWN}"),
        ({"allow_removal": True}, f"evaluate takes no such option: 'allow_removal'\n  hint: known: {KNOWN}"),
        ({"bogus": 1}, f"evaluate takes no such option: 'bogus'\n  hint: known: {KNOWN}"),
        ({"filter": ["truncation"], "filter_seed": 1},
         "`filter_seed`: none of the filters that are measured (truncation) has the option seed\n  hint: remove"
         " `filter_seed`"),
        ({"qrels": qrels},
         "`qrels`: qrels judge queries, and there are none\n  hint: name their file with `queries`"),
        ({"index_type": ["PQ4"]}, "product codes of 8 bits need lists"),
    ):  # fmt: skip
        with pytest.raises(SpecError) as fault:
            sweep(index, **options)  # type: ignore[arg-type]

        assert message in str(fault.value)


@pytest.mark.slow
def test_an_approximate_index_is_made_and_reaches_its_recall(given_index: Callable[..., Path]) -> None:
    report = sweep(
        given_index(random_rows(11_200, 16)), dim=[16, 8], filter=["truncation"], index_type=["flat", "hnsw"]
    )

    _, flat, graph, *_ = (row.costs for row in report.tasks[0].rows)
    assert [kind for _, _, kind in rows_of(report)] == ["exact", *["flat", "hnsw"] * 2]
    assert [row.costs and row.costs.factory for row in report.tasks[0].rows] == [None, *["flat", "HNSW16"] * 2]
    assert flat is not None
    assert graph is not None
    assert graph.effort is not None
    assert graph.effort.beam > 0
    assert 0.9 <= means_of(report, "ann_recall@10")[2] <= 1
    assert graph.disk_bytes > flat.disk_bytes


@pytest.mark.slow
def test_a_type_that_cannot_be_made_at_a_width_is_left_out_and_told(given_index: Callable[..., Path]) -> None:
    index = given_index(random_rows(11_200, 24))

    report = sweep(index, dim=[24, 16], filter=["truncation"], index_type=["IVF16,PQ3"], target_recall=0.1)

    assert rows_of(report)[1:] == [("none", 24, "IVF16,PQ3")]
    told = "IVF16,PQ3 at 16 dimensions is skipped: index type IVF16,PQ3: 3 codes do not divide 16 dimensions."
    assert told in report.tasks[0].notes
    with pytest.raises(SpecError) as fault:
        sweep(index, dim=[24, 16], filter=["truncation"], index_type=["IVF16,PQ5"])
    left_out = " ".join(
        told.replace("PQ3", "PQ5").replace("3 codes", "5 codes").replace("16 dim", f"{dim} dim") for dim in (24, 16)
    )
    assert str(fault.value) == (
        f"`index_type`: no index of any width could be made: {left_out}\n  hint: take another `index_type`"
    )


def test_few_rows_are_compared_whole_and_the_note_says_so(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(random_rows(30, 16)), dim=[16], filter=["truncation"], index_type=["flat", "hnsw"])

    assert rows_of(report)[1:] == [("none", 16, "flat")]
    assert report.tasks[0].notes[1:] == (
        "hnsw is measured as flat: 27 chunks are fewer than the 10,000 from which on an index is made.",
    )


def test_several_indexes_are_data_sets_of_one_report(given_index: Callable[..., Path], tmp_path: Path) -> None:
    first = given_index(random_rows(30, 8)).rename(tmp_path / "first")

    report = sweep(first, given_index(random_rows(20, 8, seed=1)), dim=[4], filter="truncation")

    assert [(task.name, task.n_chunks) for task in report.tasks] == [("first", 27), ("given", 18)]
    assert all(row.costs is not None for task in report.tasks for row in task.rows[1:])


def test_a_run_has_no_costs(tmp_path: Path) -> None:
    (tmp_path / "old.run").write_text("q Q0 d 1 0.5 x\n")

    assert message_of(SpecError, lambda: sweep(tmp_path / "old.run")) == (
        f"{tmp_path / 'old.run'}: it is a run, and costs are of a corpus or an index"
    )


def test_a_filter_that_draws_each_width_by_itself_is_made_at_each(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(random_rows(30, 8)), dim=[4, 2], filter=["random"])

    assert widths_of(report, "random") == [4, 2]


def test_filters_fitted_on_an_index_say_what_they_saw(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(random_rows(60, 8)), dim=[8], filter=["pca", "whitening"])

    assert report.tasks[0].notes[1:] == (
        "pca and whitening: fitted on vectors of unit length here, and on the model's own by a build; for a model that"
        " normalises these are the same.",
    )


@pytest.mark.slow
def test_an_index_of_filtered_vectors_is_swept_under_its_filter_alone(beir: Path, tmp_path: Path) -> None:
    ragidx.build(beir, tmp_path / "index", model="mini-decoder", chunks=ragidx.ChunkSpec(size=None))

    report = sweep(tmp_path / "index", queries=beir, qrels=beir)

    assert rows_of(report) == [
        ("embedfilter", 255, "exact"),
        *(("embedfilter", dim, "flat") for dim in (255, 128, 64, 32, 16)),
    ]
    assert report.tasks[0].rows[0].configuration.tau == 256 / 255
    assert means_of(report, "overlap@10")[1] == 1.0
    assert message_of(SpecError, lambda: sweep(tmp_path / "index", filter=["pca"])) == (
        "`filter`: the index holds vectors after the filter 'embedfilter', and others need raw ones\n"
        "  hint: measure the corpus, or an index of raw vectors: `filter=none`, not centred"
    )
