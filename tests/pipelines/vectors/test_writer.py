"""The writer of precomputed vectors, and what its index says of itself."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import BusyError, CorpusError, IndexFormatError, QueryError, SpecError
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.specs import IndexSpec, Precomputed
from ragidx.pipelines.index import Index
from ragidx.pipelines.ingest.build import build
from ragidx.pipelines.maintain.batch import VectorBatch
from ragidx.pipelines.vectors import RowWriter, build_vectors
from ragidx.retriever import contents

from ...raising import message_of
from .conftest import AXES, content_of

# the writer


def test_nothing_changes_without_a_commit(tmp_path: Path) -> None:
    with RowWriter(tmp_path / "index", 4) as writer:
        writer.add_vectors(["a"], AXES[:1])
    with pytest.raises(IndexFormatError, match="nothing was committed"):
        Index(tmp_path / "index")
    with RowWriter(tmp_path / "index", 4) as writer:
        writer.add_vectors(["a"], AXES[:1])
        manifest = writer.commit()
        assert (manifest.generation, writer.n_added, manifest.n_chunks, manifest.n_documents) == (1, 1, 1, 1)

    with contextlib.closing(VectorBatch(Index(tmp_path / "index").searcher.store, 0)) as batch:
        batch.delete(["a"])

    assert contents.rows(Index(tmp_path / "index").searcher.store, ["a"])[0].chunk_id == "a"


def test_later_calls_of_a_batch_win(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", dim=4)
    index.add_vectors(["a", "b", "c"], AXES[:3])

    with index.batch() as batch:
        batch.delete(["a"])
        batch.add_vectors(["a"], AXES[3:], texts=["again"])
        batch.add_vectors(["x", "y", "z"], AXES[:3], doc_ids=["d", "d", "z"])
        batch.add_vectors(["b", "x"], AXES[2:], texts=["other", "new"], doc_ids=["b", "d"])
        batch.delete(["c", "z"])
        batch.add_vectors(["c"], AXES[:1], texts=["third"])
        batch.delete(["b"])

    texts = {row["chunk_id"]: row["text"] for rows in index.to_batches() for row in rows.to_pylist()}
    assert texts == {"a": "again", "c": "third", "x": "new", "y": ""}
    assert index.info().n_documents == 3
    with index.batch() as batch:
        batch.add_vectors(["p"], AXES[:1], doc_ids=["d"])
        batch.delete(["d"])
        with pytest.raises(QueryError, match="the index has no document or row 'p'"):
            batch.delete(["a", "p"])
    assert sorted(content_of(tmp_path / "index")) == ["a", "c"]
    assert index.verify() == []


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_sequence_of_batches_is_what_a_dictionary_holds(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    drawn, held = random.Random(seed), dict[str, tuple[str, str, str, list[float]]]()
    index = Index.create(tmp_path_factory.mktemp("batches"), dim=4)
    for _ in range(4):
        with index.batch() as batch:
            for _ in range(drawn.randint(1, 6)):
                names = drawn.sample("abcdefgh", drawn.randint(1, 4))
                if drawn.random() < 0.6:
                    texts = [f"{name} {drawn.random()}" for name in names]
                    owners, vectors = drawn.choices("xyz", k=len(names)), drawn.choices(AXES.tolist(), k=len(names))
                    values = drawn.choices([None, 1, "s"], k=len(names))
                    metadata: list[dict[str, object]] = [{"m": value} for value in values]
                    batch.add_vectors(names, vectors, texts=texts, metadata=metadata, doc_ids=owners)
                    shown = [str(value) for value in values]  # ints and strings in one field are strings
                    held |= dict(zip(names, zip(owners, texts, shown, vectors, strict=True), strict=True))
                else:
                    gone = [*names, drawn.choice("xyz")]
                    batch.delete(gone, missing="skip")
                    held = {name: row for name, row in held.items() if name not in gone and row[0] not in gone}
        found = {
            name: (owner, text, str(fields.get("m")), vector)
            for name, (owner, text, fields, vector) in content_of(index.path).items()
        }
        assert found == held
        assert index.info().n_documents == len({row[0] for row in held.values()})


def test_replace_keeps_the_old_state_until_the_commit_and_takes_another_width(tmp_path: Path) -> None:
    with RowWriter(tmp_path / "index", 4) as writer:
        writer.add_vectors(["a"], AXES[:1])
        writer.commit()

    with RowWriter(tmp_path / "index", 2, replace=True) as writer:
        writer.add_vectors(["z"], [[1, 1]])
        assert Index(tmp_path / "index").info().dim == 4
        writer.commit()

    assert Index(tmp_path / "index").info().dim == 2


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with RowWriter(tmp_path / "index", 4), pytest.raises(BusyError):
        RowWriter(tmp_path / "index", 4)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"vectors": [[0, 0, 0, 0]]}, "id 'b': the vector is zero"),
        ({"vectors": [[0, np.nan, 0, 0]]}, "id 'b': the vector holds a number that is not finite"),
        ({"vectors": [[0, 0, -np.inf, 0]]}, "id 'b': the vector holds a number that is not finite"),
        ({"ids": ["x"]}, "id 'x': the id was seen before"),
        ({"texts": ["\ud800"]}, "id 'b': the text is not Unicode text"),
        ({"ids": ["b\udc00"]}, "id 'b\\udc00': the id is not Unicode text"),
        ({"doc_ids": ["\udc00"]}, "id 'b': the document's id is not Unicode text"),
        ({"metadata": [{"m": float("inf")}]}, "id 'b': the field 'm' cannot be kept: not a finite number"),
        ({"metadata": [{"m": b"raw"}]}, "id 'b': the field 'm' cannot be kept: a value of type bytes"),
    ],
)
def test_a_broken_row_is_an_error_and_nothing_of_the_call_is_added(
    row: dict[str, Any], message: str, tmp_path: Path
) -> None:
    good = {"ids": ["b"], "vectors": [[1, 0, 0, 0]], "texts": ["t"], "metadata": [{}], "doc_ids": ["d"]}
    first = {"ids": ["x"], "vectors": [[1, 0, 0, 0]], "texts": ["t"], "metadata": [{}], "doc_ids": ["d"]}
    with RowWriter(tmp_path / "index", 4) as writer:
        writer.add_vectors(["a"], AXES[:1])

        with pytest.raises(CorpusError) as fault:
            writer.add_vectors(**{name: [*first[name], *(good | row)[name]] for name in good})

        assert str(fault.value) == f"{message}\n  hint: repair it, or remove the row; nothing of this call was added"
        assert writer.commit().n_chunks == 1


# what the index is


def test_the_spec_says_that_the_vectors_were_made_elsewhere(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", AXES)

    build_vectors(tmp_path / "v.npy", tmp_path / "index", made_by="my model")

    spec = Index(tmp_path / "index").spec
    assert (spec.encoder, spec.precomputed, spec.filter.name, spec.weights) == (
        None,
        Precomputed(made_by="my model"),
        "none",
        "",
    )
    assert Index(tmp_path / "index").searcher.store.manifest.fingerprint == spec.fingerprint()
    assert isinstance(spec, IndexSpec)


def test_another_model_name_is_an_error_and_none_is_the_indexs_own(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", AXES)
    build_vectors(tmp_path / "v.npy", tmp_path / "index", made_by="one")

    assert build_vectors(tmp_path / "v.npy", tmp_path / "index").model == "one"
    with pytest.raises(SpecError, match="`made_by` is 'one' in the index, 'two' now"):
        build_vectors(tmp_path / "v.npy", tmp_path / "index", made_by="two")


def test_a_corpus_does_not_go_into_an_index_of_given_vectors(small_corpus: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", AXES)
    build_vectors(tmp_path / "v.npy", tmp_path / "index")

    assert message_of(SpecError, lambda: build(small_corpus, tmp_path / "index")) == (
        f"{tmp_path / 'index'}: the index holds precomputed vectors, and cannot be updated from a corpus\n"
        "  hint: update it with `vectors`, choose another `index`, or replace it with `rebuild=True`"
    )


@pytest.mark.slow
def test_given_vectors_do_not_go_into_an_index_of_a_model(small_corpus: Path, tmp_path: Path) -> None:
    build(small_corpus, tmp_path / "index")
    np.save(tmp_path / "v.npy", AXES)

    assert message_of(SpecError, lambda: build_vectors(tmp_path / "v.npy", tmp_path / "index")) == (
        f"{tmp_path / 'index'}: the index holds what the model 'mini' encoded, not precomputed vectors\n"
        "  hint: choose another `index`, or replace it with `rebuild=True`"
    )


def test_a_writer_of_another_width_or_type_is_refused(tmp_path: Path) -> None:
    with RowWriter(tmp_path / "index", 4, index_type="flat") as writer:
        writer.commit()

    with pytest.raises(SpecError, match="vectors have 4 dimensions in the index, 3 now"):
        RowWriter(tmp_path / "index", 3)
    assert message_of(SpecError, lambda: RowWriter(tmp_path / "index", 4, index_type="hnsw")) == (
        f"{tmp_path / 'index'}: the index was built with other options: `index_type` is 'flat' in the index, "
        "'hnsw' now\n"
        "  hint: remove the option to update the index, name another `index`, or replace this one with `rebuild=True`; "
        f"'ragidx reindex DIR --index {tmp_path / 'index'} --index-type hnsw' makes one of that type beside it, and "
        "encodes nothing"
    )
    with pytest.raises(SpecError, match="unknown index type 'hnws'; did you mean 'hnsw'"):
        RowWriter(tmp_path / "other", 4, index_type="hnws")


@pytest.mark.parametrize("dim", ["x", "4", 4.0, None, True, 0, -1, 65_537], ids=repr)
def test_a_width_that_is_none_is_an_error_and_makes_no_folder(dim: Any, tmp_path: Path) -> None:
    assert message_of(SpecError, lambda: RowWriter(tmp_path / "index", dim)) == (
        f"dim is {dim!r}, no whole number from 1 to 65,536\n  hint: give the width of the vectors that are added"
    )
    assert not (tmp_path / "index").exists()
    with RowWriter(tmp_path / "index", np.int64(4)) as writer:  # a number of numpy's is one
        writer.commit()


def test_an_option_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"a build of vectors takes no such option: 'chunks'"):
        build_vectors(tmp_path, tmp_path / "index", chunks=ChunkSpec(size=2))
