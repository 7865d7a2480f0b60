"""Rows of a commit: they come back as they were added, their fields widen, and what is no row is refused."""

from __future__ import annotations

import numpy as np
import pytest

from ragidx.corpora.errors import CorpusError, ModelError
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify


def test_rows_come_back_as_they_were_added(tmp_path, kit):
    rows = kit.rows("a.md", ["first", "zweiter \u2028 日本"], year=1999, open=True, share=0.5, name="x", none=None)
    with kit.writer(tmp_path / "index") as writer:
        writer.add(rows, kit.vectors(rows))
        manifest = writer.commit({"seconds": 1.5}, 1)

    store = Store.open(tmp_path / "index")

    found = store.rows([1, 0, 1])
    assert [row.text for row in found] == ["zweiter \u2028 日本", "first", "zweiter \u2028 日本"]
    assert found[1].metadata == {"year": 1999, "open": True, "share": 0.5, "name": "x"}
    assert [getattr(found[1], name) for name in ("chunk_id", "doc_id", "start", "end", "heading")] == [
        "a.md:0-1", "a.md", 0, 1, "a.md > 0",
    ]  # fmt: skip
    assert (found[1].text_hash, found[1].doc_hash) == (rows[0].text_hash, rows[0].doc_hash)
    np.testing.assert_array_equal(store.vectors(range(store.n_rows)), kit.vectors(rows).astype("f2").astype("f4"))
    assert store.manifest == manifest
    assert (manifest.n_chunks, manifest.n_documents, manifest.notes) == (2, 1, {"seconds": 1.5})
    assert manifest.schema == {"year": "int", "open": "bool", "share": "float", "name": "string"}
    assert verify(store.path) == []


def test_a_field_widens_over_segments_and_is_null_where_it_is_missing(tmp_path, kit):
    for number, (name, metadata) in enumerate(
        [("a", {"year": 1999}), ("b", {"year": 0.5, "flag": True}), ("c", {"flag": 3})], start=1
    ):
        with kit.writer(tmp_path / "index") as writer:
            rows = kit.rows(name, [name], **metadata)
            writer.add(rows, kit.vectors(rows))
            writer.commit({}, number)

    store = Store.open(tmp_path / "index")

    assert store.manifest.schema == {"year": "float", "flag": "string"}
    assert [table.to_pylist() for table in store.tables(["meta.year", "doc_id", "meta.flag"])] == [
        [{"meta.year": 1999.0, "doc_id": "a", "meta.flag": None}],
        [{"meta.year": 0.5, "doc_id": "b", "meta.flag": "true"}],
        [{"meta.year": None, "doc_id": "c", "meta.flag": "3"}],
    ]
    assert [row.metadata for row in store.rows(range(3))] == [
        {"year": 1999},
        {"year": 0.5, "flag": True},
        {"flag": 3},
    ]
    with pytest.raises(ValueError, match=r"the index has no column 'year'"):
        next(store.tables(["year"]))


def test_values_of_one_field_widen_inside_a_segment(tmp_path, kit):
    values = [1, 2.5, True, "word", None, 2**70, -0.5]
    with kit.writer(tmp_path / "index") as writer:
        for number, value in enumerate(values):
            rows = kit.rows(f"d{number}", [f"text {number}"], mixed=value, whole=2**70 if number else 1)
            writer.add(rows, kit.vectors(rows))
        writer.commit({}, len(values))

    store = Store.open(tmp_path / "index")
    [table] = store.tables(["meta.mixed", "meta.whole"])

    huge = str(2**70)
    assert table.column(0).to_pylist() == ["1", "2.5", "true", "word", None, huge, "-0.5"]
    assert table.column(1).to_pylist() == ["1", *[huge] * 6]
    given = [row.metadata.get("mixed") for row in store.rows(range(len(values)))]
    assert list(map(repr, given)) == ["1", "2.5", "True", "'word'", "None", repr(huge), "-0.5"]


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (np.nan, "the vector holds a number that is not finite\n  hint: encode with `dtype=float32`"),
        (0.5, "the vector has the length 0.5, not 1\n  hint: normalise the vectors before they are added"),
    ],
)
def test_a_vector_that_is_no_unit_vector_is_refused_by_chunk(tmp_path, kit, factor, text):
    rows = kit.rows("a", ["one", "two"])
    vectors = kit.vectors(rows)
    vectors[1] *= factor

    with kit.writer(tmp_path / "index") as writer, pytest.raises(ModelError) as caught:
        writer.add(rows, vectors)

    assert str(caught.value) == f"chunk a:1-2: {text}"


def test_half_a_surrogate_pair_is_refused_by_chunk(tmp_path, kit):
    rows = [*kit.rows("a", ["fine"]), *kit.rows("b", ["fine too"], title="half \ud800")]

    with kit.writer(tmp_path / "index") as writer:
        writer.add(rows, kit.vectors(rows))
        with pytest.raises(CorpusError) as caught:
            writer.commit({}, 2)

    assert str(caught.value) == (
        "b:0-1: holds half of a surrogate pair, which no UTF-8 file can\n"
        "  hint: repair the text, or skip the document with `exclude`"
    )


def test_a_width_that_cannot_be_is_refused_before_anything_is_written(tmp_path, kit):
    with pytest.raises(ValueError, match=r"^dim 0 is not from 1 to 65536$"):
        kit.writer(tmp_path / "index", dim=0)

    assert not (tmp_path / "index").exists()
