"""Writing a segment: both files grow while rows come, and what was added is what is read."""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import ModelError, RagidxError
from ragidx.indexer import atomic
from ragidx.indexer.ann.faiss_files import HEADER_BYTES, vectors_header
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import CHUNKS, VECTORS
from ragidx.indexer.store.segment import Segment
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import segment_writer
from ragidx.indexer.writing.segment_writer import SegmentWriter


@pytest.fixture
def streaming(monkeypatch) -> None:
    """As if 2 kB of columns were much: kinds are settled with the first 256 rows, and columns go to the disk."""
    monkeypatch.setattr(segment_writer, "SETTLED_BYTES", 2000)
    monkeypatch.setattr(segment_writer, "_CODE_BYTES", 1000)


def written(writer: SegmentWriter, kit) -> Segment:
    return Segment(writer.folder, writer.finish(), kit.dim, writer.schema)


def many(kit, documents: int, chunks: int, **metadata) -> list:
    return [
        row for n in range(documents) for row in kit.rows(f"d{n}", [f"t{n} {m}" for m in range(chunks)], **metadata)
    ]


@pytest.mark.parametrize("step", [1, 255, 256, 257, 1000])
def test_rows_come_back_as_they_were_added_however_they_come(tmp_path, kit, streaming, step):
    rows = many(kit, 100, 10, year=1900, note="ä")
    vectors = kit.vectors(rows)
    writer = SegmentWriter(tmp_path / "segments" / "s", kit.dim)

    for start in range(0, len(rows), step):
        writer.add(rows[start : start + step], vectors[start : start + step])
    segment = written(writer, kit)

    assert segment.entry.rows == writer.n_rows == 1000
    assert segment.rows(range(1000)) == rows
    np.testing.assert_array_equal(segment.codes, vectors.astype("f2"))


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=6),
    settled=st.sampled_from([1, 2000, 16 << 20]),
    block=st.sampled_from([1, 777, 1 << 20]),
)
def test_where_columns_are_settled_and_blocks_end_changes_no_byte_of_the_vectors(
    tmp_path_factory, kit, sizes, settled, block
):
    rows = many(kit, sum(sizes), 1)
    vectors, start = kit.vectors(rows), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_writer, "SETTLED_BYTES", settled)
        patch.setattr(segment_writer, "_CODE_BYTES", block)
        writer = SegmentWriter(tmp_path_factory.mktemp("s") / "segments" / "s", kit.dim)
        for size in sizes:
            writer.add(rows[start : start + size], vectors[start : start + size])
            start += size
        segment = written(writer, kit)

    expected = vectors_header(kit.dim, len(rows)) + vectors.astype("<f2").tobytes()
    assert (writer.folder / VECTORS).read_bytes() == expected
    assert segment.rows(range(len(rows))) == rows


@pytest.mark.parametrize(("rows", "dim"), [(1, 1), (3, 8), (300, 65), (70_000, 2)])
def test_the_header_of_the_vectors_is_faiss_own_to_the_byte(rows, dim):
    index = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    index.add(np.ones((rows, dim), "f4"))

    assert vectors_header(dim, rows) == faiss.serialize_index(index).tobytes()[:HEADER_BYTES]


def test_a_vectors_file_is_the_file_that_faiss_would_have_written(tmp_path, kit, streaming):
    rows = many(kit, 300, 1)
    writer = SegmentWriter(tmp_path / "segments" / "s", kit.dim)
    writer.add(rows, kit.vectors(rows))
    writer.finish()
    index = faiss.IndexScalarQuantizer(kit.dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)

    index.add(kit.vectors(rows).astype("f2").astype("f4"))

    assert (writer.folder / VECTORS).read_bytes() == faiss.serialize_index(index).tobytes()


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("later", [{"year": 1900.5}, {"year": "1900"}, {"year": 1900, "new": True}])
def test_a_field_that_widens_after_columns_were_written_begins_another_segment(tmp_path, kit, later):
    early, late = many(kit, 300, 1, year=1900), kit.rows("late", ["x", "y"], **later)

    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, early)
        kit.add(writer, late)
        manifest = writer.commit({}, 301)

    store = Store.open(tmp_path / "index")
    assert [segment.entry.rows for segment in store.segments] == [300, 2]
    found = store.rows([0, 299, 300, 301])
    assert [row.metadata["year"] for row in found] == [1900, 1900, later["year"], later["year"]]
    assert manifest.schema["year"] == {float: "float", str: "string", int: "int"}[type(later["year"])]
    assert [row.metadata.get("new") for row in found] == [None, None, *[later.get("new")] * 2]
    assert verify(tmp_path / "index") == []


@pytest.mark.usefixtures("streaming")
def test_a_value_of_a_narrower_type_than_the_column_begins_another_segment_and_keeps_it(tmp_path, kit):
    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, many(kit, 300, 1, year=1900.5, note="x"))
        kit.add(writer, kit.rows("late", ["x"], year=1900))
        writer.commit({}, 301)

    store = Store.open(tmp_path / "index")
    assert [segment.kinds for segment in store.segments] == [{("year", "float"), ("note", "string")}, {("year", "int")}]
    assert store.rows([300])[0].metadata == {"year": 1900.0}


def test_a_field_that_widens_before_columns_are_written_stays_in_the_segment(tmp_path, kit):
    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, many(kit, 300, 1, year=1900))
        kit.add(writer, kit.rows("late", ["x"], year=1900.5))
        writer.commit({}, 301)

    store = Store.open(tmp_path / "index")
    assert len(store.segments) == 1
    assert [row.metadata["year"] for row in store.rows([0, 300])] == [1900.0, 1900.5]


@pytest.mark.slow
def test_many_fields_and_long_texts_come_back(tmp_path, kit, streaming):
    wide = kit.rows("wide", ["x"], **{f"f{n}": n if n % 2 else f"v{n}" for n in range(300)})
    long = kit.rows("long", ["ä" * 3_000_000, "b"])
    rows = [*wide, *long]
    writer = SegmentWriter(tmp_path / "segments" / "s", kit.dim)

    writer.add(rows, kit.vectors(rows))
    segment = written(writer, kit)

    assert segment.rows(range(3)) == rows
    assert writer.text_bytes == 6_000_002
    assert len(writer.schema) == 300


def test_a_segment_that_is_given_up_leaves_no_file(tmp_path, kit, streaming):
    rows = many(kit, 600, 1)
    writer = SegmentWriter(tmp_path / "segments" / "s", kit.dim)
    writer.add(rows, kit.vectors(rows))
    assert {path.name for path in writer.folder.iterdir()} == {CHUNKS, VECTORS}

    writer.abort()

    assert list((tmp_path / "segments").iterdir()) == []


def test_a_segment_is_given_up_even_where_its_files_cannot_be_closed(tmp_path, kit, streaming, monkeypatch):
    rows = many(kit, 600, 1)
    writer = SegmentWriter(tmp_path / "segments" / "s", kit.dim)
    writer.add(rows, kit.vectors(rows))
    real = atomic.NewFile.close

    def failing(file: atomic.NewFile) -> None:
        real(file)
        raise RagidxError("cannot write: Input/output error")

    monkeypatch.setattr(atomic.NewFile, "close", failing)
    writer.abort()
    monkeypatch.undo()

    assert not Path(writer.folder).exists()


def test_a_vector_that_is_refused_is_not_half_in_the_segment(tmp_path, kit):
    rows = kit.rows("a", ["one", "two"])
    writer = SegmentWriter(tmp_path / "segments" / "s", kit.dim)
    with pytest.raises(ModelError, match="chunk a:0-1: the vector has the length 2, not 1"):
        writer.add(rows, 2 * kit.vectors(rows))

    writer.add(rows, kit.vectors(rows))

    assert written(writer, kit).rows(range(2)) == rows


def test_another_shape_of_vectors_is_named(tmp_path, kit):
    rows = kit.rows("a", ["one", "two"])
    writer = SegmentWriter(tmp_path / "segments" / "s", kit.dim)

    with pytest.raises(ValueError, match=r"vectors have the shape \(2, 9\), not \(2, 8\)"):
        writer.add(rows, kit.vectors(rows, 9))
