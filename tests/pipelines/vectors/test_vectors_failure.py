"""A writer of given vectors on a disk that fails: no second commit of it, and the next writer does all as it should."""

from __future__ import annotations

import contextlib
import errno
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import Disk, Failing, Step, error_of, turns

from ragidx.corpora.errors import RagidxError
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify
from ragidx.pipelines.index import Index
from ragidx.pipelines.maintain.batch import VectorBatch
from ragidx.pipelines.vectors import RowWriter

AXES = np.eye(4, dtype=np.float32)
FAILED = "this writer failed, and what it wrote may be incomplete; make another one"


def change(writer: VectorBatch) -> None:
    """Of a, b and c one goes, one is replaced and one stays; d comes."""
    writer.delete(["a"], missing="skip")
    writer.add_vectors(["b", "c", "d"], AXES[[3, 2, 0]], doc_ids=["x", "c", "x"])
    writer.commit()


def content(index: Path) -> tuple[int, int, dict[str, str]]:
    """Generation, documents, and which document each row belongs to; a row that is there twice fails."""
    reader = Index(index)
    hits = reader.search_vectors(AXES[:1], k=100)[0]
    assert len({hit.chunk_id for hit in hits}) == len(hits) == reader.info().n_chunks
    return reader.generation, reader.searcher.store.manifest.n_documents, {hit.chunk_id: hit.doc_id for hit in hits}


OLD = (1, 3, {"a": "a", "b": "b", "c": "c"})
NEW = (2, 2, {"b": "x", "c": "c", "d": "x"})


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with RowWriter(tmp_path / "old" / "index", 4) as writer:
        writer.add_vectors(["a", "b", "c"], AXES[:3])
        writer.commit()
    return tmp_path / "old"


@pytest.fixture
def steps(old: Path, tmp_path: Path) -> list[Step]:
    """What a change does to the disk without a fault."""
    root = shutil.copytree(old, tmp_path / "whole")
    with contextlib.closing(VectorBatch(Store.open(root / "index"), 0)) as writer, Disk(root) as disk:
        change(writer)
    assert content(root / "index") == NEW
    return disk.steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "torn"), [(errno.ENOSPC, 0.5), (errno.EIO, 0.0)], ids=["full, half written", "broken, not written"]
)
def test_whatever_call_failed_a_second_commit_is_refused_and_the_next_writer_is_right(
    old: Path, steps: list[Step], tmp_path: Path, code: int, torn: float
) -> None:
    commit = next(one.number for one in steps if one.call in ("rename", "replace") and one.path.name == "manifest.json")
    for step in turns(steps):
        root = shutil.copytree(old, tmp_path / f"copy {step.number}")
        index = root / "index"
        with contextlib.closing(VectorBatch(Store.open(index), 0)) as writer:
            with Failing(root, step.number, code, torn=torn):
                fault = error_of(lambda writer=writer: change(writer))
            if fault is not None:
                with pytest.raises(ValueError, match=FAILED):
                    writer.commit()
                with pytest.raises(ValueError, match=FAILED):
                    writer.add_vectors(["e"], AXES[:1])
                with pytest.raises(ValueError, match=FAILED):
                    writer.delete(["c"])
        assert content(index) == (OLD if fault is not None and step.number <= commit else NEW)

        with contextlib.closing(VectorBatch(Store.open(index), 0)) as writer:
            change(writer)
        assert content(index) == NEW
        assert verify(index) == []


def test_a_row_that_is_broken_is_no_failure(old: Path) -> None:
    with contextlib.closing(VectorBatch(Store.open(old / "index"), 0)) as writer:
        with pytest.raises(RagidxError):
            writer.add_vectors(["d"], np.zeros((1, 4)))
        change(writer)

    assert content(old / "index") == NEW


ONE = AXES[:1]
NO_IDS = "neither text nor a whole number"
MASKED = "are masked: remove these rows, or fill them"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "fault", "message"),
    [
        ({"ids": [None]}, TypeError, f"ids[0] is None, {NO_IDS}"),
        ({"ids": [True]}, TypeError, f"ids[0] is True, {NO_IDS}"),
        ({"ids": [1.5]}, TypeError, f"ids[0] is 1.5, {NO_IDS}"),
        ({"ids": [b"x"]}, TypeError, f"ids[0] is b'x', {NO_IDS}"),
        ({"doc_ids": [None]}, TypeError, f"doc_ids[0] is None, {NO_IDS}"),
        (
            {"ids": np.ma.array(["a"], mask=[1])},
            ValueError,
            f"some of the ids {MASKED}",
        ),
        (
            {"vectors": np.ma.array(ONE, mask=ONE > 0)},
            ValueError,
            f"some of the vectors {MASKED}",
        ),
        (
            {"vectors": ONE.astype(np.longdouble)},
            ValueError,
            "vectors have the shape (1, 4) and hold float128, not (1, 4) and numbers of at most 64 bits",
        ),
        (
            {"vectors": AXES},
            ValueError,
            "vectors have the shape (4, 4) and hold float32, not (1, 4) and numbers of at most 64 bits",
        ),
        (
            {"vectors": [[1, 2, 3]]},
            ValueError,
            "vectors have the shape (1, 3) and hold int64, not (1, 4) and numbers of at most 64 bits",
        ),
        ({"texts": ["t", "t"]}, ValueError, "2 texts for 1 ids"),
        ({"ids": [""]}, ValueError, "one of the ids is empty"),
        ({"ids": "d"}, TypeError, "expected a list of ids, got one string"),
        ({"texts": [5]}, TypeError, "texts[0] is 5, not text"),
        ({"texts": [b"x"]}, TypeError, "texts[0] is b'x', not text"),
        ({"texts": "x"}, TypeError, "expected a list of texts, got one string"),
        (
            {"texts": np.ma.array(["a"], mask=[1])},
            ValueError,
            f"some of the texts {MASKED}",
        ),
        ({"metadata": [5]}, TypeError, "the metadata of id 'd' are 5, not a mapping of names to values"),
        ({"metadata": [{5: 1}]}, TypeError, "the metadata of id 'd' are {5: 1}, not a mapping of names to values"),
        ({"metadata": [None]}, TypeError, "the metadata of id 'd' are None, not a mapping of names to values"),
    ],
)
def test_what_is_no_row_is_refused_and_the_writer_goes_on(
    given: dict[str, Any], fault: type[Exception], message: str, old: Path
) -> None:
    with contextlib.closing(VectorBatch(Store.open(old / "index"), 0)) as writer:
        with pytest.raises(fault, match=f"^{re.escape(message)}$"):
            writer.add_vectors(**{"ids": ["d"], "vectors": ONE, **given})
        change(writer)

    assert content(old / "index") == NEW


def test_an_id_of_numpy_is_as_that_of_python(tmp_path: Path) -> None:
    with RowWriter(tmp_path / "index", 4) as writer:
        writer.add_vectors([np.int64(7)], ONE)
        writer.add_vectors(np.array(["a"]), ONE)
        writer.commit()
    assert not Index(tmp_path / "index").delete(["\udcff"], missing="skip").committed

    assert content(tmp_path / "index") == (1, 2, {"7": "7", "a": "a"})
