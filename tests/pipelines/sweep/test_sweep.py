"""`sweep` from Python: bytes, recall, overlap and nDCG of real indexes made tiny, and every way it refuses.

What is timed is never asserted, and is cut short here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragidx
from ragidx.corpora.errors import CorpusError, ModelError, QueryError, RagidxError, SpecError
from ragidx.indexer.ann.faiss_files import HEADER_BYTES
from ragidx.indexer.encoders.static import StaticEncoder
from ragidx.pipelines.evaluate.measures import measure
from ragidx.pipelines.evaluate.significance import difference, interval, ndcg
from ragidx.pipelines.maintain.rewrite import shrink
from ragidx.pipelines.sweep import measure as sweep_measure
from ragidx.pipelines.sweep.corpus import CorpusSource
from ragidx.pipelines.sweep.grid import Stage
from ragidx.pipelines.sweep.measure import Exact, lay, share_found
from ragidx.pipelines.sweep.report import SweepReport, SweepRow
from ragidx.pipelines.sweep.series import Widths, series_of
from ragidx.pipelines.sweep.source import IndexSource
from ragidx.pipelines.sweep.sweep import sweep

pytestmark = pytest.mark.usefixtures("briefly")

SUBJECTS = ["river", "mill", "lease", "tower", "bees", "planet", "printing", "bread", "music", "bridge", "medicine"]


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """Eleven documents, two of the queries judged; a judged query that is not there."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    texts = {f"d{n}": f"The {word} and the story of its {word}." for n, word in enumerate(SUBJECTS)}
    _write_lines(folder / "corpus.jsonl", [{"_id": name, "title": "", "text": text} for name, text in texts.items()])
    asked = {"q1": "the story of the bees", "q2": "music", "q3": "nobody judged this"}
    _write_lines(folder / "queries.jsonl", [{"_id": name, "text": text} for name, text in asked.items()])
    lines = ["query-id\tcorpus-id\tscore", "q1\td4\t1", "q2\td8\t1", "q9\td0\t1"]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def given_index(tmp_path: Path) -> Callable[[Sequence[Sequence[float]]], Path]:
    """An index of vectors that were made elsewhere, which needs no model."""

    def make(vectors: Sequence[Sequence[float]]) -> Path:
        np.save(tmp_path / "given.npy", np.array(vectors, "f4"))
        ragidx.build_vectors(tmp_path / "given.npy", tmp_path / "given", index_type="flat")
        return tmp_path / "given"

    return make


def _write_lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _random(rows: int, dim: int, seed: int = 0) -> list[list[float]]:
    found: list[list[float]] = np.random.default_rng(seed).standard_normal((rows, dim)).tolist()
    return found


def _widths(report: SweepReport, name: str) -> list[int]:
    return [row.dim for row in report.rows if row.filter == name]


# known values


def test_the_nearest_rows_are_those_with_the_largest_cosine(given_index: Callable[..., Path]) -> None:
    source = IndexSource(given_index([[1, 0], [3, 4], [0, 2], [-1, 0]]), {})

    scores, rows = Exact(source).search(np.array([[2.0, 0.0], [0.0, 1.0]], "f4"), 3)

    assert rows.tolist() == [[0, 1, 2], [2, 1, 0]]
    np.testing.assert_allclose(scores, [[1, 0.6, 0], [1, 0.8, 0]], atol=5e-4)  # stored as float16


def test_scores_of_given_rows_are_cosines_and_no_row_has_none(given_index: Callable[..., Path]) -> None:
    source = IndexSource(given_index([[1, 0], [3, 4], [0, 2]]), {})

    scores = Exact(source).scores(np.array([[0.0, 5.0]], "f4"), np.array([[2, -1, 1]]))

    np.testing.assert_allclose(scores, [[1, -np.inf, 0.8]], atol=5e-4)


def test_ndcg_has_linear_gain_and_a_logarithmic_discount() -> None:
    got = ndcg(["a", "x", "b"], {"a": 1, "b": 2, "c": 0, "d": -1})

    assert got == pytest.approx((1 + 2 / 2) / (2 + 1 / math.log2(3)))


def test_ndcg_of_a_query_without_relevant_documents_is_0() -> None:
    assert ndcg(["a"], {"a": 0}) == 0.0


def test_ndcg_counts_ten_documents() -> None:
    assert ndcg([f"x{n}" for n in range(10)] + ["a"], {"a": 1}) == 0.0


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_ndcg_equals_that_of_ir_measures(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    qrels = {f"q{q}": {f"d{d}": int(drawn.integers(-1, 4)) for d in drawn.permutation(20)[:8]} for q in range(3)}
    run = {q: {f"d{d}": 1 - rank / 20 for rank, d in enumerate(drawn.permutation(20)[:14])} for q in qrels}

    ours = np.mean([ndcg(list(run[q]), qrels[q]) for q in qrels])

    assert ours == pytest.approx(measure(qrels, run, ["nDCG@10"])["nDCG@10"], abs=1e-6)


def test_an_interval_of_equal_values_is_that_value() -> None:
    found = interval(np.full(5, 0.25))

    assert (found.mean, found.low, found.high) == (0.25, 0.25, 0.25)


def test_an_interval_is_that_of_the_normal_distribution_for_many_values() -> None:
    values = np.random.default_rng(0).standard_normal(2000)

    found = interval(values)

    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / math.sqrt(2000), rel=0.05)


def test_a_difference_that_is_always_the_same_way_is_real() -> None:
    found = difference(np.zeros(20), np.full(20, 0.1))

    assert (found.mean, found.verdict) == (pytest.approx(-0.1), "worse")
    assert found.p < 0.001
    assert difference(np.full(20, 0.1), np.zeros(20)).verdict == "better"


def test_no_difference_has_a_p_of_1() -> None:
    found = difference(np.array([0.2, 0.4]), np.array([0.2, 0.4]))

    assert (found.p, found.verdict) == (1.0, "not real")


def test_of_three_queries_no_difference_can_be_real() -> None:
    # All three the same way: of the eight ways to swap them two are as extreme, so p is 1/4.
    found = difference(np.full(3, 0.9), np.zeros(3))

    assert found.p == pytest.approx(0.25, abs=0.02)
    assert found.verdict == "not real"


def test_the_share_found_counts_ties_with_the_last() -> None:
    exact = np.array([[0.9, 0.5]], "f4")

    assert share_found(np.array([[0.9, 0.5]], "f4"), exact) == 1
    assert share_found(np.array([[0.9, -np.inf]], "f4"), exact) == 0.5


# widths


def test_widths_are_those_of_the_given_taus_and_dims() -> None:
    assert Widths().of(896, 896) == (896, 448, 224, 112, 56)
    assert Widths(taus=(1, 3)).of(10, 10) == (10, 3)
    assert Widths(dims=(3, 7), taus=(2,)).of(10, 10) == (7, 5, 3)
    assert Widths().of(256, 255) == (255, 128, 64, 32, 16)
    assert Widths().of(4, 4) == (4, 2, 1)


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ({"dims": (0,)}, "--dim: dim=0 keeps nothing\n  hint: give 1 or more"),
        ({"taus": (0.5,)}, "--tau: tau=0.5 would widen the vectors\n  hint: give 1 or more: hidden width / kept width"),
        ({"dims": (11,)}, "--dim: dim=11 is more than the 8 dimensions there are\n  hint: give at most 8"),
        ({"taus": (1.1,)}, "--tau: tau=1.1, 9 dimensions, is more than the 8 dimensions there are\n"
                           "  hint: give a larger tau"),
    ],
)  # fmt: skip
def test_a_width_that_is_not_there_is_refused(widths: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as fault:
        Widths(**widths).of(10, 8)

    assert str(fault.value) == message


# an index


def test_flat_is_exact_at_every_width_and_full_width_overlaps_wholly(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(_random(60, 16)), filters=["truncation", "pca"])

    assert {row.recall for row in report.rows} == {1.0}
    assert report.rows[0].filter == "none"
    assert report.rows[0].overlap == 1.0
    assert report.rows[-1].overlap < 1
    assert _widths(report, "none") == [16]
    assert _widths(report, "truncation") == [8, 4, 2, 1]
    assert _widths(report, "pca") == [16, 8, 4, 2, 1]
    assert (report.n_chunks, report.n_queries) == (54, 6)
    assert report.queries == "6 chunks that were held out, as no queries were given"


def test_bytes_are_exact(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(_random(30, 16)), dims=[16, 5], filters=["truncation"])

    assert [row.bytes_per_vector for row in report.rows] == [32, 16]  # 5 numbers are stored as 8
    assert [row.disk_bytes for row in report.rows] == [HEADER_BYTES + 27 * 32, HEADER_BYTES + 27 * 16]
    assert [row.tau for row in report.rows] == [1, 16 / 5]


def test_by_default_a_width_that_a_filter_cannot_be_fitted_for_is_left_out_and_told(
    given_index: Callable[..., Path],
) -> None:
    report = sweep(given_index(_random(12, 16)), taus=[1, 2])

    assert [(row.filter, row.dim) for row in report.rows] == [("none", 16), ("truncation", 8), ("pca", 8)]
    assert report.notes[0] == (
        "pca at 16 dimensions is left out: filter 'pca' is to keep 16 directions, and the 12 chunks that it is fitted"
        " on vary in 11."
    )


def test_a_filter_that_can_be_fitted_for_no_width_is_left_out_where_nobody_named_it(
    given_index: Callable[..., Path],
) -> None:
    index = given_index(_random(12, 16))

    report = sweep(index, dims=[16, 13])

    assert [(row.filter, row.dim) for row in report.rows] == [("none", 16), ("truncation", 13)]
    assert [note.partition(" is left out")[0] for note in report.notes] == [
        "pca at 16 dimensions", "pca at 13 dimensions"
    ]  # fmt: skip
    with pytest.raises(SpecError) as fault:
        sweep(index, dims=[16, 13], filters=["pca"])
    assert str(fault.value) == (
        "--filter: filter 'pca' is to keep 13 directions, and the 12 chunks that it is fitted on vary in 11\n"
        "  hint: give a smaller --dim, a larger --filter-sample or a larger corpus, or take another filter"
    )


def test_the_filter_none_alone_has_no_narrower_width(given_index: Callable[..., Path]) -> None:
    index = given_index(_random(20, 16))

    for widths in ({"taus": [1, 4]}, {"dims": [4]}):
        with pytest.raises(SpecError) as fault:
            sweep(index, filters=["none"], **widths)  # type: ignore[arg-type]
        assert str(fault.value) == (
            "--filter: filter 'none' keeps all 16 numbers, and has no width of 4\n"
            "  hint: leave --dim and --tau out, or take the first numbers: --filter truncation"
        )
    assert [row.dim for row in sweep(index, filters=["none"], dims=[16]).rows] == [16]


# given vectors and questions


@pytest.fixture
def asked(tmp_path: Path) -> dict[str, Path]:
    """Two queries, the second of which is judged, and their vectors of 4 numbers."""
    files = {"queries": tmp_path / "q.jsonl", "qrels": tmp_path / "qrels.tsv", "query_vectors": tmp_path / "q.npy"}
    _write_lines(files["queries"], [{"_id": "first", "text": "any"}, {"_id": "second", "text": "other"}])
    files["qrels"].write_text("query-id\tcorpus-id\tscore\nsecond\t2\t1\n")
    np.save(files["query_vectors"], np.array([[1, 0, 0, 0], [0, 0, 9, 1]], "f4"))
    return files


def test_vectors_of_queries_are_judged_in_the_order_of_the_queries(
    given_index: Callable[..., Path], asked: dict[str, Path]
) -> None:
    report = sweep(given_index(np.eye(4).tolist()), filters=["truncation"], dims=[4, 2], **asked)  # type: ignore[arg-type]

    assert (report.n_queries, report.queries) == (1, "1 that are judged")
    assert report.reference_ndcg is not None
    assert report.reference_ndcg.mean == 1.0
    assert report.rows[0].ndcg is not None
    assert report.rows[0].ndcg.mean == 1.0  # its row is the nearest, after its length is taken away
    assert report.recommended is not None


def test_vectors_alone_ask_and_nothing_judges(given_index: Callable[..., Path], asked: dict[str, Path]) -> None:
    index = given_index(np.eye(4).tolist())

    report = sweep(index, filters=["none"], query_vectors=asked["query_vectors"])

    assert (report.n_chunks, report.queries, report.reference_ndcg) == (4, "2 without qrels", None)


def test_after_a_shrink_vectors_of_queries_are_cut_as_the_rows_were(
    given_index: Callable[..., Path], asked: dict[str, Path]
) -> None:
    np.save(asked["query_vectors"], np.array([[3, 4, 9, 9], [0, 2, 0, 9]], "f4"))
    narrow = given_index(_random(20, 4))
    shrink(narrow, dim=2)

    source = IndexSource(narrow, {}, asked["query_vectors"])

    assert source.given is not None
    np.testing.assert_allclose(source.given, [[0.6, 0.8], [0, 1]], atol=1e-6)
    assert IndexSource(narrow, {}).given is None


def test_vectors_of_queries_that_do_not_fit_are_refused(
    given_index: Callable[..., Path], asked: dict[str, Path], small_corpus: Path
) -> None:
    index, path = given_index(np.eye(4).tolist()), asked["query_vectors"]

    def message(**options: Any) -> str:
        with pytest.raises(RagidxError) as fault:
            sweep(options.pop("source", index), filters=["none"], **options)
        return str(fault.value)

    np.save(path, np.ones((3, 4), "f4"))
    assert message(**asked) == (
        f"{asked['queries']}: there are 3 vectors and 2 queries\n"
        "  hint: give a vector for each query, in the order of their file"
    )
    np.save(path, np.ones((2, 5), "f4"))
    assert message(**asked) == (
        f"{path}: the query's vector has 5 numbers, those of the index have 4\n"
        "  hint: make it as the vectors of the index were made"
    )
    np.save(path, np.eye(4, dtype="f4")[:2] * [[1], [0]])
    assert message(**asked) == f"{path}: query 2: the query's vector is zero\n  hint: give another vector"
    assert message(source=small_corpus, query_vectors=path) == (
        "--query-vectors: of a corpus the queries are encoded by the model that encodes the documents\n"
        "  hint: leave it out, or sweep an index of given vectors"
    )
    assert message(queries=asked["queries"], qrels=asked["qrels"]) == (
        f"{index}: the index holds vectors that were made elsewhere: no query in words can be encoded for it\n"
        "  hint: give the vectors of the queries, in their order, with --query-vectors FILE; or name the model that"
        " made them when the index is built: ragidx build --vectors FILE --model M --rebuild"
    )


def test_after_a_shrink_a_sweep_refuses_what_a_query_refuses(
    given_index: Callable[..., Path], asked: dict[str, Path]
) -> None:
    vectors = np.array([[1, 2, 0, 0], [3, 4, 0, np.nan]], "f4")
    np.save(asked["query_vectors"], vectors)
    narrow = given_index(_random(20, 4))
    shrink(narrow, dim=2)

    with pytest.raises(QueryError) as fault:
        sweep(narrow, dims=[2], query_vectors=asked["query_vectors"])
    with pytest.raises(QueryError) as of_query:
        ragidx.IndexReader.open(narrow).search(vectors)

    assert str(of_query.value) == (
        "query 2: the query's vector holds a number that is not finite\n  hint: give another vector"
    )
    assert str(fault.value) == f"{asked['query_vectors']}: {of_query.value}"


@pytest.mark.parametrize("name", ["embedfilter", "optimal", "bulk"])
def test_a_filter_that_is_made_of_the_model_needs_one(name: str, given_index: Callable[..., Path]) -> None:
    index = given_index(_random(20, 4))

    with pytest.raises(ModelError) as fault:
        sweep(index, filters=["truncation", name], dims=[2])

    assert str(fault.value) == (
        f"--filter: filter '{name}' is made of a model's unembedding matrix, and the index names no model: its vectors "
        "were made elsewhere\n"
        "  hint: take truncation or pca, or name the model that made them when the index is built: "
        "ragidx build --vectors FILE --model M --rebuild"
    )


def test_a_file_of_vectors_is_to_become_an_index_first(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(4, dtype="f4"))

    with pytest.raises(SpecError) as fault:
        sweep(tmp_path / "x.npy")

    assert str(fault.value) == (
        f"{tmp_path / 'x.npy'}: a file of vectors is no corpus: there is no text that a model could read\n"
        "  hint: make an index of it and sweep that: ragidx build --vectors x.npy --index DIR"
    )


@pytest.mark.slow
def test_an_index_of_given_vectors_with_a_model_is_asked_in_words(beir: Path, tmp_path: Path) -> None:
    ragidx.build(beir, tmp_path / "own", chunk_size="none", filter="none")
    documents = IndexSource(tmp_path / "own", {})
    table = pa.table({
        "id": documents.doc_ids(), "vector": list(np.concatenate(list(documents.blocks()))),
        "text": [f"The {word} and the story of its {word}." for word in SUBJECTS],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "given.parquet")
    ragidx.build_vectors(tmp_path / "given.parquet", tmp_path / "given", model="mini", filter="none")

    whole, given = (sweep(tmp_path / name, queries=beir, qrels=beir) for name in ("own", "given"))

    assert (given.model, given.encoder) == (whole.model, whole.encoder)
    assert [(row.filter, row.dim) for row in given.rows] == [(row.filter, row.dim) for row in whole.rows]
    assert [row.ndcg for row in given.rows] == [row.ndcg for row in whole.rows]
    assert given.queries == "2 that are judged"


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), width=st.integers(1, 8))
def test_a_narrower_width_is_what_a_query_of_that_width_compares(
    tmp_path_factory: pytest.TempPathFactory, seed: int, width: int
) -> None:
    folder = tmp_path_factory.mktemp("narrow")
    vectors = np.array(_random(20, 8, seed), "f4")
    np.save(folder / "given.npy", vectors)
    ragidx.build_vectors(folder / "given.npy", folder / "index", index_type="flat")
    source = IndexSource(folder / "index", {})
    series = series_of(source, ["truncation"], Widths(dims=(width,)), {})[0]

    laid = lay(folder / "laid", width, 20, (series.narrow(block, width) for block in source.blocks()))
    unit = vectors[:3] / np.linalg.norm(vectors[:3], axis=1, keepdims=True)
    scores, _ = laid.search(series.narrow(unit, width), 5)

    told = ragidx.IndexReader.open(folder / "index").search(vectors[:3], k=5, dim=width)
    of_hits = [[hit.score for hit in hits] for hits in told]  # at most 1: float16 may make a row longer
    np.testing.assert_allclose(np.minimum(scores, 1), of_hits, atol=1e-6)


def test_deleted_rows_are_not_searched(given_index: Callable[..., Path], tmp_path: Path) -> None:
    index = given_index(_random(20, 4))
    with ragidx.IndexWriter(index, dim=4) as writer:
        assert writer.delete([0, 1]) == 2
        writer.commit()

    source = IndexSource(index, {})

    assert source.n_rows == 18
    assert sum(map(len, source.blocks())) == len(source.doc_ids()) == 18


def test_one_vector_has_nothing_to_be_compared_with(given_index: Callable[..., Path]) -> None:
    index = given_index([[1.0, 2.0]])

    with pytest.raises(CorpusError) as fault:
        sweep(index)

    assert str(fault.value) == f"{index}: one chunk alone has nothing to be compared with\n  hint: add documents"


def test_what_cannot_be_asked_of_an_index_is_refused(given_index: Callable[..., Path], tmp_path: Path) -> None:
    index = given_index(_random(20, 4))
    qrels = tmp_path / "qrels.tsv"
    for options, message in (
        ({"filters": ["random"]},
         "--filter: filter 'random' draws each width by itself: a narrower one is no prefix of a wider one\n"
         "  hint: sweep one of embedfilter, truncation, dominant, secondary, bulk, optimal, optimal-abs, whitening,"
         " pca, none"),
        ({"filters": ["pcs"]}, "unknown filter 'pcs'; did you mean 'pca'?"),
        ({"index_types": ["hnws"]}, "unknown index type 'hnws'; did you mean 'hnsw'?"),
        ({"method": "echo"},
         f"{index}: the index says how its vectors are made: method cannot be chosen\n  hint: leave it out, or sweep a"
         " corpus in place of the index"),
        ({"layer": 0}, "layer cannot be chosen"),
        ({"tau": 2}, "sweep: a sweep has no tau: it takes several\n  hint: give taus, a list"),
        ({"strict": True}, "sweep: a sweep has no strict: it builds nothing that stays\n  hint: leave it out"),
        ({"filters": ["truncation"], "filter_seed": 1},
         "--filter-seed: none of the filters that are swept (truncation) has the option seed\n  hint: leave out"
         " --filter-seed"),
        ({"qrels": qrels},
         "--qrels: qrels judge queries, and there are none\n  hint: name their file with --queries"),
        ({"index_types": ["PQ4"]}, "product codes stand in lists"),
    ):  # fmt: skip
        with pytest.raises(SpecError) as fault:
            sweep(index, **options)  # type: ignore[arg-type]

        assert message in str(fault.value)


@pytest.mark.slow
def test_an_approximate_index_is_made_and_reaches_its_recall(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(_random(11_200, 16)), dims=[16, 8], filters=["truncation"], index_types=["flat", "hnsw"])

    flat, graph, *_ = report.rows
    assert [row.index_type for row in report.rows] == ["flat", "HNSW16"] * 2
    assert graph.effort.beam > 0
    assert 0.9 <= graph.recall <= 1
    assert graph.disk_bytes > flat.disk_bytes
    assert report.notes == ()


@pytest.mark.slow
def test_a_type_that_cannot_be_made_at_a_width_is_left_out_and_told(given_index: Callable[..., Path]) -> None:
    index = given_index(_random(11_200, 24))

    report = sweep(index, dims=[24, 16], filters=["truncation"], index_types=["IVF16,PQ3"], target_recall=0.1)

    assert [(row.dim, row.index_type) for row in report.rows] == [(24, "IVF16,PQ3")]
    told = "IVF16,PQ3 at 16 dimensions is left out: index type IVF16,PQ3: 3 codes do not divide 16 dimensions."
    assert told in report.notes
    with pytest.raises(SpecError) as fault:
        sweep(index, dims=[24, 16], filters=["truncation"], index_types=["IVF16,PQ5"])
    left_out = " ".join(
        told.replace("PQ3", "PQ5").replace("3 codes", "5 codes").replace("16 dim", f"{dim} dim") for dim in (24, 16)
    )
    assert str(fault.value) == (
        f"--index-type: no index of any width could be made: {left_out}\n"
        "  hint: take another --index-type, or a lower --target-recall"
    )


def test_few_rows_are_compared_whole_and_the_note_says_so(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(_random(30, 16)), dims=[16], filters=["truncation"], index_types=["flat", "hnsw"])

    assert [row.index_type for row in report.rows] == ["flat"]
    assert report.notes == (
        "hnsw is measured as flat: 27 chunks are fewer than the 10,000 from which on an index is made.",
    )


def test_filters_fitted_on_an_index_say_what_they_saw(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(_random(60, 8)), dims=[8], filters=["pca", "whitening"])

    assert report.notes == (
        "pca and whitening: fitted on vectors of unit length here, and on the model's own by a build; for a model that"
        " normalises these are the same.",
    )


@pytest.mark.slow
def test_an_index_of_filtered_vectors_is_swept_under_its_filter_alone(beir: Path, tmp_path: Path) -> None:
    ragidx.build(beir, tmp_path / "index", chunk_size="none")

    report = sweep(tmp_path / "index", queries=beir, qrels=beir)

    assert [row.dim for row in report.rows] == [255, 128, 64, 32, 16]
    assert {row.filter for row in report.rows} == {"embedfilter"}
    assert report.reference == "the index's vectors, after the filter 'embedfilter'"
    assert (report.hidden, report.reference_dim) == (256, 255)
    assert report.rows[0].overlap == 1.0
    with pytest.raises(SpecError) as fault:
        sweep(tmp_path / "index", filters=["pca"])
    assert str(fault.value) == (
        "--filter: the index holds vectors after the filter 'embedfilter', and others need raw ones\n"
        "  hint: sweep the corpus, or an index that was built with --filter none"
    )


# a corpus


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every document that goes through a model, in order."""
    seen: list[str] = []
    batches = StaticEncoder.batches

    def counted(self: StaticEncoder, texts: Sequence[str], **options: Any) -> Any:
        if options.get("instruction") is None:
            seen.extend(texts)
        return batches(self, texts, **options)

    monkeypatch.setattr(StaticEncoder, "batches", counted)
    return seen


def test_a_corpus_is_encoded_once_for_all_filters_and_widths(beir: Path, encoded: list[str]) -> None:
    report = sweep(beir, filters=["embedfilter", "truncation", "pca", "optimal"], dims=[8, 4], chunk_size="none")

    assert sorted(encoded) == sorted({f"The {word} and the story of its {word}." for word in SUBJECTS})
    assert [(row.filter, row.dim) for row in report.rows] == [
        ("none", 256), *((name, dim) for name in ("embedfilter", "truncation", "pca", "optimal") for dim in (8, 4))
    ]  # fmt: skip


def test_the_queries_and_qrels_of_a_beir_folder_are_asked(beir: Path) -> None:
    report = sweep(beir, chunk_size="none")

    assert report.queries == "2 that are judged"
    assert report.notes[0] == "Not in the file of queries, and left out: 1 x judged query."
    assert _widths(report, "embedfilter") == [255, 128, 64, 32, 16]
    assert report.reference_ndcg is not None
    first = next(row for row in report.rows if row.filter == "embedfilter")
    assert first.ndcg is not None
    assert first.ndcg.mean == 1.0  # the documents that have the words stand first


def test_the_widths_of_a_sweep_rank_documents_as_an_index_of_that_width_does(beir: Path, tmp_path: Path) -> None:
    ragidx.build(beir, tmp_path / "index", chunk_size="none", filter="pca", dim=6)
    retriever = ragidx.Retriever.open(tmp_path / "index")
    asked = {"q1": "the story of the bees", "q2": "music"}
    answers = retriever.search_documents(list(asked.values()))
    qrels = {"q1": {"d4": 1}, "q2": {"d8": 1}}
    want = measure(qrels, {q: dict(hits) for q, hits in zip(asked, answers, strict=True)}, ["nDCG@10"])["nDCG@10"]

    report = sweep(beir, filters=["pca"], dims=[6], chunk_size="none")

    row = report.rows[-1]
    assert (row.filter, row.dim) == ("pca", 6)
    assert row.ndcg is not None
    assert row.ndcg.mean == pytest.approx(want, abs=1e-6)


def test_the_sample_of_a_fit_is_that_of_a_build(beir: Path, tmp_path: Path) -> None:
    ragidx.build(beir, tmp_path / "index", chunk_size="none", filter="pca", dim=3, filter_sample=5, filter_seed=4)
    kept = ragidx.Retriever.open(tmp_path / "index").encode(["music"])
    options = {"chunk_size": "none"}
    from ragidx.indexer.specs import FilterSpec

    fitted = FilterSpec(name="pca", dim=3, sample=5, seed=4)
    source = CorpusSource(beir, tmp_path, fitted=fitted, options=options)
    series = series_of(source, ["pca"], Widths(dims=(3,)), {"sample": 5, "seed": 4})[0]

    np.testing.assert_allclose(series.narrow(source.encode(["music"]), 3), kept, atol=1e-5)


def test_documents_count_by_their_best_chunk(tmp_path: Path) -> None:
    """The words of one document fill more than ten chunks; the others still are found."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "bees.txt").write_text("\n\n".join(f"Bees dance, bees hum, and bees fly home {n}." for n in range(30)))
    for word in SUBJECTS[:3]:
        (folder / f"{word}.txt").write_text(f"The {word} is another story altogether.\n")
    _write_lines(tmp_path / "q.jsonl", [{"_id": "q", "text": "bees"}])
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\triver.txt\t1\nq\tbees.txt\t1\n")

    report = sweep(folder, queries=tmp_path / "q.jsonl", qrels=tmp_path / "qrels.tsv", dims=[64], chunk_size=16)

    assert report.n_chunks > 30
    assert report.reference_ndcg is not None
    assert report.reference_ndcg.mean > (1 + 1 / math.log2(5)) / (1 + 1 / math.log2(3)) - 1e-9


def test_what_is_left_out_of_a_corpus_is_noted(small_corpus: Path) -> None:
    (small_corpus / "broken.json").write_text("{")

    report = sweep(small_corpus, dims=[8])

    assert any(note.startswith("Left out: 1 x ") for note in report.notes)


@pytest.mark.slow
def test_the_results_of_an_earlier_sweep_are_no_documents(small_corpus: Path) -> None:
    first, second = (sweep(small_corpus, dims=[8], out=small_corpus / "report") for _ in range(2))

    assert (small_corpus / "report" / "sweep.csv").is_file()
    assert first.n_documents == second.n_documents == 6


def test_an_index_without_rows_is_refused(given_index: Callable[..., Path]) -> None:
    index = given_index(_random(2, 4))
    with ragidx.IndexWriter(index, dim=4) as writer:
        writer.delete([0, 1])
        writer.commit()

    with pytest.raises(CorpusError) as fault:
        sweep(index)

    assert str(fault.value) == f"{index}: there is no vector to search\n  hint: add documents"


def test_a_corpus_without_documents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(CorpusError, match="the corpus is empty: there is no file in it"):
        sweep(tmp_path / "empty")


def test_queries_that_nobody_judged_are_refused(beir: Path, tmp_path: Path) -> None:
    _write_lines(tmp_path / "other.jsonl", [{"_id": "z", "text": "bees"}])

    with pytest.raises(CorpusError) as fault:
        sweep(beir, queries=tmp_path / "other.jsonl", qrels=beir / "qrels" / "test.tsv", chunk_size="none")

    assert str(fault.value) == (
        f"{beir / 'qrels' / 'test.tsv'}: no query is judged (queries: 'z', ...; qrels: 'q1', ...)\n"
        "  hint: give the qrels that belong to the queries"
    )


def test_qrels_of_another_corpus_are_refused(small_corpus: Path, beir: Path) -> None:
    with pytest.raises(CorpusError) as fault:
        sweep(small_corpus, queries=beir, qrels=beir, dims=[8])

    assert str(fault.value) == (
        f"{beir}: no relevant document is here (qrels: 'd4', ...; documents: 'facts.jsonl#bees', ...)\n"
        "  hint: give the qrels that belong to the corpus"
    )


def test_relevant_documents_that_are_not_there_are_noted(beir: Path) -> None:
    with (beir / "qrels" / "test.tsv").open("a") as file:
        file.write("q1\tgone\t1\n")

    report = sweep(beir, dims=[8], chunk_size="none")

    assert "Not in the corpus, so never found: 1 x relevant document." in report.notes


def test_queries_beside_documents_that_are_no_beir_corpus_are_not_asked(beir: Path) -> None:
    (beir / "corpus.jsonl").rename(beir / "documents.jsonl")

    report = sweep(beir, dims=[8])

    assert report.reference_ndcg is None


def test_a_model_with_its_own_modules_is_swept_by_truncation_and_pca(
    small_corpus: Path, tiny_sentence_transformer: Path
) -> None:
    report = sweep(small_corpus, model=str(tiny_sentence_transformer), dims=[4], device="cpu")

    assert list(dict.fromkeys(row.filter for row in report.rows)) == ["none", "truncation", "pca"]


def test_stages_are_counted_and_nothing_stays_behind(
    beir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    stages: list[Stage] = []

    sweep(beir, dims=[8], chunk_size="none", on_progress=stages.append)

    assert [stage.number for stage in stages] == [1, 2, 3, 4, 5, 6]
    assert [stage.total for stage in stages] == [0, 0, 0, 6, 6, 6]
    assert [stage.name for stage in stages] == [
        "encoding the corpus", "encoding the queries", "fitting the filters", "the exact answers at full width",
        "none, 256 dimensions, flat", "embedfilter, 8 dimensions, flat",
    ]  # fmt: skip
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_temporary_folder_without_room_is_named(given_index: Callable[..., Path], tmp_path: Path) -> None:
    blocker = tmp_path / "laid"
    blocker.write_text("a file where a folder is to be")

    with pytest.raises(RagidxError) as fault:
        lay(blocker, 2, 1, [np.ones((1, 2), "f4")])

    assert fault.value.message.startswith("the temporary folder: cannot write: ")
    assert fault.value.hint == "free some space, or name a folder with room: TMPDIR=DIR ragidx sweep ..."


# the recommendation


def _report(rows: list[tuple[int, float]], spread: float = 0.0) -> SweepReport:
    """Rows of (dim, nDCG) by real statistics: forty queries whose values vary alike for all rows."""
    base = 0.5 + 0.1 * np.sin(np.arange(40))
    noise = spread * np.random.default_rng(1).standard_normal(40)
    times = sweep_measure.Times(1.0, 2.0, 3.0, 10)
    made = [
        SweepRow(
            filter="pca", dim=dim, tau=256 / dim, asked="flat", index_type="flat", effort=sweep_measure.Effort(),
            bytes_per_vector=2 * dim, disk_bytes=dim, build_seconds=0.0, recall=1.0, overlap=1.0, single=times,
            batch=times, queries_per_s=1.0, ndcg=interval(base + moved + noise),
            against=difference(base + moved + noise, base),
        )
        for dim, moved in rows
    ]  # fmt: skip
    return SweepReport(
        source="s", model="m", encoder="", hidden=256, reference="r", reference_dim=256, reference_ndcg=interval(base),
        n_documents=1, n_chunks=1, n_queries=40, queries="", threads=1, batch=64, rows=tuple(made),
    )  # fmt: skip


def test_the_smallest_width_that_is_not_really_worse_is_recommended() -> None:
    report = _report([(256, 0.0), (64, 0.0), (32, -0.2)], spread=0.01)

    assert report.recommended is report.rows[1]
    assert report.recommendation().startswith(
        "Take 64 dimensions, pca: the smallest width that is not measurably worse than the full one, with 1/4 of its"
        " bytes (nDCG@10 0.5"
    )


def test_where_every_smaller_width_is_worse_the_full_one_is_kept() -> None:
    assert _report([(256, 0.0), (64, -0.1)]).recommendation() == (
        "Keep all 256 dimensions: every smaller width that was measured is measurably worse."
    )
    assert _report([(256, -0.1), (64, -0.1)]).recommendation() == (
        "Every width that was measured is measurably worse than the full one: keep the full width."
    )


def test_a_better_width_is_called_better() -> None:
    assert "measurably better than 0.50" in _report([(128, 0.1)]).recommendation()


def test_without_qrels_nothing_is_recommended(given_index: Callable[..., Path]) -> None:
    report = sweep(given_index(_random(30, 8)), filters=["truncation"])

    assert report.recommended is None
    assert report.recommendation() == (
        "Without qrels the overlap tells how near a width stays to the full one, not whether it is good enough: give"
        " --queries and --qrels."
    )


def test_json_and_csv_hold_every_row(given_index: Callable[..., Path], tmp_path: Path) -> None:
    report = sweep(given_index(_random(30, 8)), filters=["truncation"], out=tmp_path / "out")

    data = json.loads((tmp_path / "out" / "sweep.json").read_text("ascii"))
    head, *lines = (tmp_path / "out" / "sweep.csv").read_text().splitlines()
    assert data == json.loads(json.dumps(report.to_json()))
    assert len(lines) == len(data["rows"]) == 4
    assert head.startswith("filter,dim,tau,asked,index_type,effort_beam,effort_lists,effort_factor,bytes_per_vector,")
    assert lines[0].startswith("none,8,1.0,flat,flat,0,0,1,16,")
    assert "ndcg" not in head  # nothing is judged
    judged = _report([(64, 0.0)]).to_csv().splitlines()[0]
    assert judged.endswith(
        ",ndcg_mean,ndcg_low,ndcg_high,against_mean,against_low,against_high,against_p,against_verdict"
    )


def test_an_out_that_is_no_folder_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(RagidxError) as fault:
        sweep(tmp_path / "nothing", out=tmp_path / "file")

    assert str(fault.value) == f"{tmp_path / 'file'}: a file has this name\n  hint: name another folder with --out"
