"""Files of an index that are damaged, missing or another's: each is one error that names the file."""

from __future__ import annotations

import dataclasses
import shutil

import faiss
import numpy as np
import pyarrow as pa
import pytest
from fault_reader import flip, plant

from ragidx.corpora.errors import IndexFormatError
from ragidx.corpora.records import Document
from ragidx.corpora.whole_documents import whole_of
from ragidx.indexer.digests import digest
from ragidx.indexer.store import Store, generations
from ragidx.indexer.store.deletions import SCHEMA
from ragidx.indexer.store.verify import verify

from ...raising import message_of
from .hostile_kit import PUT_BACK, SEGMENT, WAY_BACK, refused


def test_a_missing_segment(index):
    shutil.rmtree(index / SEGMENT)

    assert refused(index) == f"{index / SEGMENT / 'ann.faiss'}: the file is missing\n{PUT_BACK}"


def test_a_file_of_another_length(index):
    path = index / SEGMENT / "vectors.faiss"
    path.write_bytes(path.read_bytes() + b"x")

    size = path.stat().st_size
    assert refused(index) == f"{path}: the file is damaged: it has {size:,} bytes, not {size - 1:,}\n{PUT_BACK}"


def test_a_flipped_byte_reads_as_one_line(index):
    path = index / SEGMENT / "ann.faiss"
    flip(path)

    message = f"{path}: the file is damaged: its checksum differs from the manifest's"
    assert refused(index) == f"{message}\n{PUT_BACK}"
    assert verify(index) == [f"{message}; put it back from a copy, or build again with `rebuild=True`"]


def test_verify_tells_every_damaged_file(index):
    store = Store.open(index)
    for name in ("vectors.faiss", "chunks.arrow"):
        (index / SEGMENT / name).write_bytes(b"")
    (index / "files").rename(index / "away")

    lines = verify(store.path)

    assert len(lines) == 3
    assert "the file is missing" in lines[0]
    assert "the file is damaged: it has 0 bytes" in lines[1]
    assert "the file is damaged: it has 0 bytes" in lines[2]


def test_verify_reads_a_program_s_documents(tmp_path, kit):
    good = whole_of(Document("good", "mine"))

    def verified(whole, hashed):
        folder = tmp_path / digest(whole + hashed).hex()
        with kit.writer(folder) as writer:
            for name, stored, of in (("good", good, good), ("bad", whole, hashed)):
                rows = [dataclasses.replace(kit.rows(name, ["mine"])[0], owner=0, whole=stored, doc_hash=digest(of))]
                writer.add(rows, kit.vectors(rows))
            writer.commit({}, 2)
        return [line.removeprefix(f"{folder / SEGMENT}: ").partition(";")[0] for line in verify(folder)]

    assert verified(good, good) == []
    assert verified(good, "another") == ["the file is damaged: the document 'bad' is not the one that was added"]
    assert verified("{}", "{}") == ["bad: the document is damaged: 'metadata'"]


def test_verify_of_no_index_says_so(tmp_path):
    assert verify(tmp_path) == [f"{tmp_path}: it holds no index; name another folder with `index`"]


def test_a_file_that_is_a_link_is_not_followed(index):
    path = index / SEGMENT / "chunks.arrow"
    path.rename(index / "away")
    path.symlink_to(index / "away")

    assert refused(index) == f"{path}: it is not a plain file\n{PUT_BACK}"


def arrow(schema: pa.Schema, rows: int, batches: int = 1) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for _ in range(batches):
            words = {pa.large_string(): "x", pa.string(): "x"}
            filler = {pa.int64(): 0, pa.int32(): 0, pa.binary(16): b"x" * 16, **words}
            columns = [pa.array([filler[field.type]] * rows, field.type) for field in schema]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    return sink.getvalue().to_pybytes()


def chunk_schema(**changes: pa.DataType) -> pa.Schema:
    from ragidx.indexer.store.rows import FIXED

    return pa.schema([(name, changes.get(name, FIXED.field(name).type)) for name in FIXED.names])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no arrow at all, but long enough", "Arrow cannot read it: Not an Arrow file"),
        (arrow(chunk_schema(), 256, 1), "it holds 1 record batches, not 2"),
        (arrow(chunk_schema(text=pa.string()), 256, 2), "its columns are not those of the manifest"),
        (
            arrow(chunk_schema().append(pa.field("meta.x", pa.int32())), 256, 2),  # int64 may be of dead rows
            "its columns are not those of the manifest",
        ),
        (arrow(chunk_schema().remove(4), 256, 2), "it has no column 'text'"),
    ],
)
def test_other_columns_with_a_checksum_that_fits(index, content, reason):
    plant(index, f"{SEGMENT}/chunks.arrow", content)

    assert refused(index) == f"{index / SEGMENT / 'chunks.arrow'}: the file is damaged: {reason}\n{PUT_BACK}"


def test_record_batches_of_another_length_are_found_when_they_are_read(wordless):
    plant(wordless, f"{SEGMENT}/chunks.arrow", arrow(chunk_schema(), 255, 2))
    store = Store.open(wordless)

    assert message_of(IndexFormatError, lambda: store.rows([store.n_rows - 3])) == (
        f"{wordless / SEGMENT / 'chunks.arrow'}: the file is damaged: record batch 1 holds 255 rows, not 44\n{PUT_BACK}"
    )
    assert len(verify(store.path)) == 1


def test_deletions_of_rows_that_are_not_there(index):
    path = next((index / "deletions").iterdir())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_batch(pa.record_batch([["00000001-0000"], [300]], schema=SCHEMA))
    plant(index, f"deletions/{path.name}", sink.getvalue().to_pybytes())

    assert refused(index) == (
        f"{path}: the file is damaged: it names a row that the segment 00000001-0000 does not have\n{WAY_BACK}"
    )


def test_a_failure_without_words_is_called_by_its_class(index, monkeypatch):
    def fail(*_):
        raise ValueError

    monkeypatch.setattr("ragidx.indexer.store.deletions._read", fail)
    path = next((index / "deletions").iterdir())

    assert refused(index) == f"{path}: the file is damaged: ValueError\n{WAY_BACK}"

    monkeypatch.setattr(faiss, "read_index", lambda *_: (_ for _ in ()).throw(RuntimeError))
    path = index / SEGMENT / "vectors.faiss"

    assert refused(index) == f"{path}: the file is damaged: FAISS cannot read it: RuntimeError\n{PUT_BACK}"


def test_a_blob_that_is_not_there(index):
    store = Store.open(index)

    said = message_of(IndexFormatError, lambda: store.blob("other"))

    assert said == f"{index}: the index holds no file 'other'\n  hint: build again with `rebuild=True`"


def test_a_large_index_is_not_hashed_whole_when_it_is_opened(index, monkeypatch):
    monkeypatch.setattr(generations, "HASHED_AT_OPEN", 10_000)
    path = index / SEGMENT / "ann.faiss"
    assert path.stat().st_size > 10_000
    flip(path, -5)

    faults = verify(index)

    assert len(faults) == 1
    assert faults[0].startswith(f"{path}: the file is damaged: its checksum differs")


def test_a_link_that_leads_nowhere_is_named_by_verify_and_by_the_first_search(index, kit):
    """With a checksum that fits: an index opens without following its links."""
    data = (index / SEGMENT / "ann.faiss").read_bytes()
    graph = faiss.read_index(str(index / SEGMENT / "ann.faiss"), faiss.IO_FLAG_SKIP_STORAGE)
    levels, starts = faiss.vector_to_array(graph.hnsw.levels), faiss.vector_to_array(graph.hnsw.offsets)
    links = faiss.vector_to_array(graph.hnsw.neighbors)
    high, low = int(np.argmax(levels > 1)), int(np.argmax(levels == 1))
    place = data.index(links.tobytes()) + 4 * (int(starts[high]) + 2 * 16)  # its first link on level 1
    plant(index, f"{SEGMENT}/ann.faiss", data[:place] + low.to_bytes(4, "little") + data[place + 4 :])
    message = f"{index / SEGMENT / 'ann.faiss'}: the file is damaged: it is not a graph over the vectors beside it"

    store = Store.open(index)
    assert message_of(IndexFormatError, lambda: store.search(kit.queries(1), 3)) == f"{message}\n{PUT_BACK}"
    assert verify(store.path) == [f"{message}; put it back from a copy, or build again with `rebuild=True`"]
