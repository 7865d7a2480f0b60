"""An index of precomputed vectors made narrower: the same vectors are recognised, and damage is found."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import CorpusError, IndexFormatError, SpecError
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import MANIFEST
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.manifest import manifest_bytes, read_manifest
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import rewrite
from ragidx.pipelines.maintain.rewrite import reindex, shrink
from ragidx.pipelines.vectors import RowWriter

from ...raising import message_of
from .conftest import INDEX, files, spec_of

pytestmark = pytest.mark.slow


def test_an_index_of_given_vectors_gets_narrower_too(given: np.ndarray) -> None:
    query = given[:3] + 0.1
    expected = [[(hit.chunk_id, hit.score) for hit in of] for of in ragidx.Index(INDEX).search_vectors(query, dim=8)]

    report = shrink(INDEX, dim=8)

    narrow = query[:, :8]
    found = [[(hit.chunk_id, hit.score) for hit in of] for of in ragidx.Index(INDEX).search_vectors(narrow)]
    assert (report.dim, report.n_segments, report.n_rewritten) == (8, 1, 2)
    assert [[name for name, _ in of] for of in found] == [[name for name, _ in of] for of in expected]
    np.testing.assert_allclose(
        np.array(found)[..., 1].astype(float), np.array(expected)[..., 1].astype(float), atol=1e-6
    )
    with RowWriter(INDEX, dim=8) as writer:  # it goes on at the narrower width
        writer.add_vectors(["new"], narrow[:1])
        assert writer.commit().n_chunks == 401
    with pytest.raises(SpecError, match="vectors have 8 dimensions in the index, 12 now"):
        RowWriter(INDEX, dim=12)


def test_the_vectors_that_were_given_come_again_after_a_shrink_and_are_known(given: np.ndarray) -> None:
    shrink(INDEX, dim=12)
    shrink(INDEX, dim=8)

    before = read_manifest(INDEX)
    with RowWriter(INDEX, dim=16) as again:
        again.add_vectors([f"v{n}" for n in range(400)], given)
        assert again.commit() == before
    with RowWriter(INDEX, dim=16) as changed:  # another vector, which is stored as wide as the others
        changed.add_vectors(["v0"], -given[:1])
        changed.commit()

    [[hit]] = ragidx.Index(INDEX).search_vectors(-given[:1, :8], k=1)
    assert (again.n_unchanged, again.n_changed) == (400, 0)
    assert (changed.n_changed, changed.n_unchanged) == (1, 0)
    assert (hit.chunk_id, hit.score) == ("v0", pytest.approx(1, abs=5e-4))  # a step of float16


def test_a_given_vector_with_nothing_in_the_part_that_is_kept_is_left_out(given: np.ndarray) -> None:
    shrink(INDEX, dim=8)
    rows = np.stack([np.eye(16)[15], np.full(16, np.nan), np.zeros(16)])
    reasons = (
        "the first 8 of 16 dimensions of the vector are zero",
        "the vector holds a number that is not finite",
        "the vector is zero",
    )

    with RowWriter(INDEX, dim=16) as writer:
        for row, reason in zip(rows, reasons, strict=True):
            with pytest.raises(CorpusError, match=f"^id 'x': {reason}\n"):
                writer.add_vectors(["x"], row[None])


def test_an_index_whose_widths_do_not_go_together_is_damaged(given: np.ndarray) -> None:
    shrink(INDEX, dim=8)
    manifest = read_manifest(Path(INDEX))
    forged = dataclasses.replace(
        manifest, spec=manifest.spec | {"precomputed": manifest.spec["precomputed"] | {"input_dim": 8}}
    )
    Path(INDEX, MANIFEST).write_bytes(manifest_bytes(forged))

    assert message_of(IndexFormatError, lambda: RowWriter(INDEX, dim=16)) == (
        "ragidx-index: the index cannot hold the first 8 of 8 dimensions\n"
        "  hint: put the manifest back, or replace the index with `rebuild=True`"
    )


def test_a_vector_that_has_nothing_in_the_part_that_is_kept_is_refused(given: np.ndarray) -> None:
    with RowWriter(INDEX, dim=16) as writer:
        writer.add_vectors(["late"], np.eye(16, dtype=np.float32)[15:])
        writer.commit()
    before = files(INDEX)
    message = (
        "chunk late: the first 8 of 16 dimensions of a vector are all zero\n"
        "  hint: keep more dimensions"
    )  # fmt: skip

    for refuse in (lambda: shrink(INDEX, dim=8), lambda: reindex(INDEX, "narrow", dim=8)):
        assert message_of(SpecError, refuse) == message
    assert files(INDEX) == before
    assert not Path("narrow").exists()
    assert reindex(INDEX, "narrow").n_chunks == 401


def test_what_another_writer_commits_just_before_is_what_is_made_narrower(
    given: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first look at the index and its lock it is replaced by another one, 12 wide."""

    class LateLock(Lock):
        def __init__(self, folder: Path, timeout: float) -> None:
            if Store.open(folder).manifest.dim == 16:
                with RowWriter(folder, dim=12, made_by="another", replace=True) as writer:
                    writer.add_vectors(["other"], given[:1, :12])
                    writer.commit()
            super().__init__(folder, timeout)

    monkeypatch.setattr(rewrite, "Lock", LateLock)

    with pytest.raises(SpecError, match="dim 14 is not from 1 to 12"):
        shrink(INDEX, dim=14)
    report = shrink(INDEX, dim=8)

    assert (report.dim, report.n_chunks) == (8, 1)
    assert spec_of(INDEX).precomputed.made_by == "another"
    assert verify(INDEX) == []
