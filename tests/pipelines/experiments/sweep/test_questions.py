"""`sweep` with vectors of queries, with a model for questions, and how both are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.corpora.errors import ModelError, QueryError, RagidxError, SpecError
from ragidx.pipelines.experiments.evaluate.sources.source import IndexSource
from ragidx.pipelines.maintain.rewrite import shrink
from ragidx.pipelines.vectors import build_vectors

from ....raising import message_of
from .conftest import SUBJECTS, means_of, random_rows, sweep

pytestmark = pytest.mark.usefixtures("briefly")


def test_vectors_of_queries_are_judged_in_the_order_of_the_queries(
    given_index: Callable[..., Path], asked: dict[str, Path]
) -> None:
    report = sweep(given_index(np.eye(4).tolist()), filter=["truncation"], dim=[4, 2], **asked)  # type: ignore[arg-type]

    assert report.tasks[0].query_ids == ("second",)
    assert means_of(report, "ndcg@10")[:2] == [1.0, 1.0]  # its row is the nearest, after its length is taken away
    json.dumps(report.to_json(), allow_nan=False)  # of one query no difference can be detected


def test_vectors_alone_ask_and_nothing_judges(given_index: Callable[..., Path], asked: dict[str, Path]) -> None:
    index = given_index(np.eye(4).tolist())

    report = sweep(index, filter=["none"], vectors=asked["vectors"])

    task = report.tasks[0]
    assert (task.n_chunks, task.query_ids, task.measure) == (4, ("1", "2"), "overlap@10")


def test_after_a_shrink_vectors_of_queries_are_cut_as_the_rows_were(
    given_index: Callable[..., Path], asked: dict[str, Path]
) -> None:
    np.save(asked["vectors"], np.array([[3, 4, 9, 9], [0, 2, 0, 9]], "f4"))
    narrow = given_index(random_rows(20, 4))
    shrink(narrow, dim=2)

    source = IndexSource(narrow, {}, asked["vectors"])

    assert source.given is not None
    np.testing.assert_allclose(source.given, [[0.6, 0.8], [0, 1]], atol=1e-6)
    assert IndexSource(narrow, {}).given is None


def test_vectors_of_queries_that_do_not_fit_are_refused(
    given_index: Callable[..., Path], asked: dict[str, Path], small_corpus: Path
) -> None:
    index, path = given_index(np.eye(4).tolist()), asked["vectors"]

    def message(**options: Any) -> str:
        return message_of(RagidxError, lambda: sweep(options.pop("source", index), filter=["none"], **options))

    np.save(path, np.ones((3, 4), "f4"))
    assert message(**asked) == (
        f"{asked['queries']}: there are 3 vectors and 2 queries\n"
        "  hint: give a vector for each query, in the order of their file"
    )
    np.save(path, np.ones((2, 5), "f4"))
    assert message(**asked) == (
        f"{path}: the query's vector has 5 dimensions, those of the index have 4\n"
        "  hint: make it as the vectors of the index were made"
    )
    np.save(path, np.eye(4, dtype="f4")[:2] * [[1], [0]])
    assert message(**asked) == f"{path}: query 2: the query's vector is zero\n  hint: give another vector"
    assert message_of(SpecError, lambda: ragidx.evaluate(index, questions=ragidx.Questions.read(vectors=path))) == (
        "`questions.vectors`: they ask where costs are measured\n  hint: add `costs=True`"
    )
    assert message(source=small_corpus, vectors=path) == (
        "`questions.vectors`: of a corpus the queries are encoded by the model that encodes the documents\n"
        "  hint: remove it, or name an index of precomputed vectors"
    )
    assert message(queries=asked["queries"], qrels=asked["qrels"]) == (
        f"{index}: the index holds precomputed vectors: it has no model that encodes a text query\n"
        "  hint: name the model that made them when the index is built: ragidx build --vectors FILE --model M"
        " --rebuild; or measure it with the vectors of the queries, in their order: `questions.vectors=FILE`"
    )


def test_after_a_shrink_a_sweep_refuses_what_a_query_refuses(
    given_index: Callable[..., Path], asked: dict[str, Path]
) -> None:
    vectors = np.array([[1, 2, 0, 0], [3, 4, 0, np.nan]], "f4")
    np.save(asked["vectors"], vectors)
    narrow = given_index(random_rows(20, 4))
    shrink(narrow, dim=2)

    with pytest.raises(QueryError) as fault:
        sweep(narrow, dim=[2], vectors=asked["vectors"])
    with pytest.raises(QueryError) as of_query:
        ragidx.Index(narrow).search_vectors(vectors)

    assert str(of_query.value) == (
        "query 2: the query's vector holds a number that is not finite\n  hint: give another vector"
    )
    assert str(fault.value) == f"{asked['vectors']}: {of_query.value}"


@pytest.mark.parametrize("name", ["embedfilter", "optimal", "bulk"])
def test_a_filter_that_is_made_of_the_model_needs_one(name: str, given_index: Callable[..., Path]) -> None:
    index = given_index(random_rows(20, 4))

    assert message_of(ModelError, lambda: sweep(index, filter=["truncation", name], dim=[2])) == (
        f"`filter`: filter '{name}' is computed from a model's unembedding matrix, and the index names no model: its "
        "vectors are precomputed\n"
        "  hint: take truncation or pca, or name the model that made them when the index is built: "
        "ragidx build --vectors FILE --model M --rebuild"
    )


def test_a_file_of_vectors_is_to_become_an_index_first(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.eye(4, dtype="f4"))

    assert message_of(SpecError, lambda: sweep(tmp_path / "x.npy")) == (
        f"{tmp_path / 'x.npy'}: a file of vectors is not a corpus: there is no text that a model could read\n"
        "  hint: make an index of it and name that: ragidx build --vectors x.npy --index DIR"
    )


@pytest.mark.slow
def test_an_index_of_given_vectors_with_a_model_is_asked_in_words(beir: Path, tmp_path: Path) -> None:
    ragidx.build(beir, tmp_path / "own", chunks=ragidx.ChunkSpec(size=None), filter="none")
    documents = IndexSource(tmp_path / "own", {})
    table = pa.table({
        "id": documents.doc_ids(), "vector": list(np.concatenate(list(documents.blocks()))),
        "text": [f"The {word} and the story of its {word}." for word in SUBJECTS],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "given.parquet")
    build_vectors(tmp_path / "given.parquet", tmp_path / "given", model="mini", filter="none")

    whole, given = (sweep(tmp_path / name, queries=beir, qrels=beir) for name in ("own", "given"))

    assert [row.configuration for row in given.tasks[0].rows] == [row.configuration for row in whole.tasks[0].rows]
    assert given.tasks[0].rows[0].configuration.model == "mini"
    assert [row.interval for row in given.tasks[0].rows] == [row.interval for row in whole.tasks[0].rows]
