"""Folders that are no index, or a damaged or lying one: each ends in one IndexFormatError."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pytest
from fault_reader import canonical, plant, sign

from ragidx import __version__
from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.ann import index_types
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.store import verify as verify_module
from ragidx.indexer.store.store import Store

PUT_BACK = "  hint: put it back from a copy, or build again with --rebuild"
GO_BACK = "  hint: copy the newest manifest.<number>.json beside it over manifest.json, or build again with --rebuild"

WAY_BACK = "  hint: put it back from a copy, go back with 'ragidx rollback 1', or build again with --rebuild"

SEGMENT = "segments/00000001-0000"


@pytest.fixture(scope="module")
def pristine(kit, tmp_path_factory) -> Path:
    """An index with every kind of file: two segments, a graph each, deletions, a blob."""
    path = tmp_path_factory.mktemp("pristine") / "index"
    blobs = {"filter.safetensors": b"the matrix"}
    first = {f"d{n}": [f"t{n} {part}" for part in range(3)] for n in range(100)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_types, "MIN_ROWS", 2)
        index = IndexOptions("hnsw", target_recall=0.01)  # nearly all rows of so few ask, with their links cut
        kit.build(path, first, index=index, blobs=blobs)
        kit.build(path, first | {"d0": ["changed", "twice"]}, index=index, blobs=blobs)
    assert [entry.ann is not None for entry in Store.open(path).manifest.segments] == [True, True]
    return path


@pytest.fixture
def index(pristine, tmp_path) -> Path:
    shutil.copytree(pristine, tmp_path / "index")
    return tmp_path / "index"


def refused(path: Path) -> str:
    with pytest.raises(IndexFormatError) as caught:
        Store.open(path)
    return str(caught.value)


def lie(index: Path, change) -> None:
    """Change the manifest and give it a checksum that fits."""
    data = json.loads((index / "manifest.json").read_bytes())
    change(data)
    sign(index, data)


def test_a_folder_that_is_not_there(tmp_path):
    assert refused(tmp_path / "none") == (
        f"{tmp_path / 'none'}: there is no such folder\n"
        "  hint: build the index first, or name another folder with --index"
    )


def test_a_folder_that_is_no_index(tmp_path):
    (tmp_path / "letter.txt").write_text("hello")

    assert refused(tmp_path) == (
        f"{tmp_path}: it is no index: manifest.json is missing\n  hint: name another folder with --index"
    )


def test_an_index_whose_first_build_was_interrupted(tmp_path, kit):
    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, kit.rows("a", ["one"]))

    assert refused(tmp_path / "index") == (
        f"{tmp_path / 'index'}: the index is not built yet: nothing was committed\n"
        "  hint: run the same 'ragidx build' or 'ragidx reindex' again"
    )


def test_a_folder_of_something_else_is_not_written_to(tmp_path, kit):
    (tmp_path / "letter.txt").write_text("hello")

    with pytest.raises(IndexFormatError) as caught:
        kit.writer(tmp_path)

    assert str(caught.value) == (
        f"{tmp_path}: it is not an index, and not empty\n  hint: choose another folder with --index"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


def test_a_file_is_not_written_to(tmp_path, kit):
    (tmp_path / "letter.txt").write_text("hello")

    with pytest.raises(IndexFormatError) as caught:
        kit.writer(tmp_path / "letter.txt")

    assert str(caught.value) == (
        f"{tmp_path / 'letter.txt'}: it is a file, not a folder\n  hint: choose another folder with --index"
    )


def test_an_empty_folder_is_written_to(tmp_path, kit):
    manifest, _ = kit.build(tmp_path, {"a": ["one"]})

    assert manifest.generation == 1


def test_a_part_of_the_index_that_is_a_link_is_not_followed_by_a_writer(index, tmp_path, kit):
    (tmp_path / "elsewhere" / "00000009-0000").mkdir(parents=True)
    shutil.rmtree(index / "segments")
    (index / "segments").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(IndexFormatError) as caught:
        kit.writer(index, replace=True)

    assert str(caught.value) == (
        f"{index}: 'segments' in it is a link, and is not followed\n  hint: choose another folder with --index"
    )
    assert (tmp_path / "elsewhere" / "00000009-0000").exists()


def test_a_newer_format_names_both_versions_and_is_never_replaced(index, kit):
    (index / "manifest.json").write_bytes(canonical({"format": 3, "ragidx": "9.1.0", "shape": "unknown"}))
    expected = (
        f"{index / 'manifest.json'}: the index has the format 3 (written by ragidx '9.1.0'); "
        f"ragidx {__version__} reads up to format 2\n"
        "  hint: upgrade: pip install --upgrade ragidx"
    )

    assert refused(index) == expected
    with pytest.raises(IndexFormatError) as caught:
        kit.writer(index, replace=True)
    assert str(caught.value) == expected


def test_a_missing_segment(index):
    shutil.rmtree(index / SEGMENT)

    assert refused(index) == f"{index / SEGMENT / 'ann.faiss'}: the file is missing\n{PUT_BACK}"


def test_a_file_of_another_length(index):
    path = index / SEGMENT / "vectors.faiss"
    path.write_bytes(path.read_bytes() + b"x")

    size = path.stat().st_size
    assert refused(index) == f"{path}: the file is damaged: it has {size:,} bytes, not {size - 1:,}\n{PUT_BACK}"


def test_a_flipped_byte_in_any_file_is_found_at_open_and_by_verify(index):
    rng = np.random.default_rng(0)
    ours = [file for file in index.rglob("*") if file.is_file() and file.name != "LOCK"]
    used = [file for file in ours if file.name not in ("manifest.1.json", "manifest.2.json")]
    assert {file.suffix for file in used} == {".json", ".faiss", ".arrow", ".safetensors"}
    for file in used:
        data = file.read_bytes()
        for place in [0, len(data) - 1, *rng.integers(0, len(data), 4).tolist()]:
            changed = bytearray(data)
            changed[place] ^= 1
            file.write_bytes(changed)

            text = refused(index)

            assert "damaged" in text
            assert text.startswith(f"{file}: ")
            assert [line.split(": ")[0] for line in verify_module.verify(index)] == [str(file)]
        file.write_bytes(data)
    assert Store.open(index).verify() == []


def test_a_flipped_byte_reads_as_one_line(index):
    path = index / SEGMENT / "ann.faiss"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    message = f"{path}: the file is damaged: its checksum differs from the manifest's"
    assert refused(index) == f"{message}\n{PUT_BACK}"
    assert verify_module.verify(index) == [f"{message}; put it back from a copy, or build again with --rebuild"]


def test_verify_tells_every_damaged_file(index):
    store = Store.open(index)
    for name in ("vectors.faiss", "chunks.arrow"):
        (index / SEGMENT / name).write_bytes(b"")
    (index / "files").rename(index / "away")

    lines = store.verify()

    assert len(lines) == 3
    assert "the file is missing" in lines[0]
    assert "the file is damaged: it has 0 bytes" in lines[1]
    assert "the file is damaged: it has 0 bytes" in lines[2]


def test_verify_of_no_index_says_so(tmp_path):
    assert verify_module.verify(tmp_path) == [f"{tmp_path}: it holds no index; name another folder with --index"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"format":1}', b'{"format":NaN}']
)
def test_a_manifest_that_is_none(index, content):
    (index / "manifest.json").write_bytes(content)

    text = refused(index)

    assert text.startswith(f"{index / 'manifest.json'}: the manifest is damaged: ")
    assert text.endswith(GO_BACK)


def test_a_manifest_whose_checksum_does_not_fit(index):
    path = index / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"n_chunks":299', b'"n_chunks":298'))

    assert refused(index) == f"{path}: the manifest is damaged: checksum: it does not fit the rest\n{GO_BACK}"


def test_a_manifest_that_is_a_pipe_is_not_waited_for(index):
    (index / "manifest.json").unlink()
    os.mkfifo(index / "manifest.json")

    assert refused(index) == f"{index / 'manifest.json'}: the manifest is damaged: it is no plain file\n{GO_BACK}"


def test_a_file_that_is_a_link_is_not_followed(index):
    path = index / SEGMENT / "chunks.arrow"
    path.rename(index / "away")
    path.symlink_to(index / "away")

    assert refused(index) == f"{path}: it is no plain file\n{PUT_BACK}"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d["segments"][0].update(id="../../etc"), "segment.id: '../../etc' cannot stand there"),
        (lambda d: d["segments"][0].update(id="a/b"), "segment.id: 'a/b' cannot stand there"),
        (lambda d: d["files"].update({"../x": d["files"]["filter.safetensors"]}), "files: '../x' cannot stand there"),
        (
            lambda d: d["segments"][0]["files"].update({"x.so": d["deletions"]}),
            "segment 00000001-0000: files: 'x.so' is unknown",
        ),
        (
            lambda d: d["segments"][0]["files"].pop("ann.faiss"),
            "segment 00000001-0000: files: 'ann.faiss' is missing",
        ),
        (lambda d: d.update(dim=65537), "dim: 65537 is no integer from 1 to 65536"),
        (lambda d: d.update(dim=True), "dim: True is no integer from 1 to 65536"),
        (lambda d: d.update(dim=8.0), "dim: 8.0 is no integer from 1 to 65536"),
        (
            lambda d: d["segments"][0].update(rows=2**40),
            "segment 00000001-0000: rows: 1099511627776 is no integer from 1 to 2147483647",
        ),
        (lambda d: d["segments"].append(d["segments"][0]), "segments: two have the same id"),
        (lambda d: d.update(n_chunks=-1), "n_chunks: -1 is no integer from 0 to 302"),
        (lambda d: d["index"].update(index_type="exec"), "index: unknown index type 'exec'"),
        (lambda d: d["index"].update(index_type=1), "index.index_type: 1 cannot stand there"),
        (
            lambda d: d["index"].update(index_type="HNSW16" * 30),
            f"index.index_type: '{('HNSW16' * 30)[:59]}... cannot stand there",
        ),
        (lambda d: d["index"].update(target_recall=1.5), "index.target_recall: 1.5 is no share"),
        (lambda d: d["index"].update(target_recall=0), "index: a recall of 0 is no share"),
        (lambda d: d["index"].update(target_recall=True), "index.target_recall: True is no share"),
        (lambda d: d["index"].update(max_memory=0), "index.max_memory: 0 is no integer from 1 to 9007199254740992"),
        (lambda d: d.update(index="flat"), "index: it is no object"),
        (lambda d: d.update(index_type="flat"), "manifest: 'index_type' is unknown"),
        (
            lambda d: d["segments"][0].update(ann=None),
            "segment 00000001-0000: files: 'ann.faiss' is unknown",
        ),
        (
            lambda d: d["segments"][0]["ann"].update(factory="Flat"),
            "segment 00000001-0000: ann: unknown index type 'Flat'; did you mean 'flat'?",
        ),
        (
            lambda d: d["segments"][0]["ann"].update(factory="IVF4,PQ3"),
            "segment 00000001-0000: index type IVF4,PQ3: 3 codes do not divide 8 dimensions",
        ),
        (
            lambda d: d["segments"][0]["ann"].update(beam=-1),
            "segment 00000001-0000: ann.beam: -1 is no integer from 0 to 2147483647",
        ),
        (lambda d: d["segments"][0]["ann"].update(recall=2), "segment 00000001-0000: ann.recall: 2 is no share"),
        (lambda d: d["segments"][0]["ann"].pop("sample"), "segment 00000001-0000: ann: 'sample' is missing"),
        (lambda d: d["segments"][0].update(ann=[]), "segment 00000001-0000: ann: it is no object"),
        (lambda d: d.update(fingerprint="../" * 10), f"fingerprint: '{'../' * 10}' cannot stand there"),
        (lambda d: d.update(schema={"year": "date"}), "schema.year: 'date' cannot stand there"),
        (lambda d: d.update(spec=[]), "spec: it is no object"),
        (lambda d: d.update(extra=1), "manifest: 'extra' is unknown"),
        (lambda d: d.pop("notes"), "manifest: 'notes' is missing"),
        (lambda d: d["deletions"].update(sha256="x" * 64), f"deletions: sha256: '{'x' * 59}... cannot stand there"),
    ],
)
def test_a_manifest_that_lies_is_refused_by_field(index, change, reason):
    lie(index, change)

    assert refused(index) == f"{index / 'manifest.json'}: the manifest is damaged: {reason}\n{GO_BACK}"


def test_more_chunks_than_there_are(index):
    lie(index, lambda data: data.update(n_chunks=3))

    assert refused(index) == (
        f"{index}: the manifest counts 3 chunks, its segments and deletions 299\n  hint: build again with --rebuild"
    )


def test_rows_or_dimensions_that_the_vectors_do_not_have(index):
    lie(index, lambda data: data.update(dim=16))

    assert refused(index) == (
        f"{index / 'manifest.json'}: the manifest is damaged: "
        f"segment 00000001-0000: vectors.faiss cannot hold 300 rows of 16 dimensions\n{GO_BACK}"
    )


@pytest.mark.parametrize("factory", ["Flat", "IVF1,Flat", "PQ4x4", "HNSW8"])
def test_another_faiss_index_with_a_checksum_that_fits(index, factory):
    other = faiss.index_factory(8, factory, faiss.METRIC_INNER_PRODUCT)
    raw = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    other.train(raw)
    other.add(raw)
    content, size = faiss.serialize_index(other).tobytes(), (index / SEGMENT / "vectors.faiss").stat().st_size
    plant(index, f"{SEGMENT}/ann.faiss", content)
    plant(
        index, f"{SEGMENT}/vectors.faiss", content[:size].ljust(size, b"\0")
    )  # the manifest knows how long it must be

    text = refused(index)

    assert text.startswith(f"{index / SEGMENT / 'vectors.faiss'}: the file is damaged: its FAISS type is b'")


def arrow(schema: pa.Schema, rows: int, batches: int = 1) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for _ in range(batches):
            filler = {pa.int64(): 0, pa.large_string(): "x", pa.binary(16): b"x" * 16, pa.string(): "x"}
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
            arrow(chunk_schema().append(pa.field("meta.x", pa.int64())), 256, 2),
            "its columns are not those of the manifest",
        ),
        (arrow(chunk_schema().remove(4), 256, 2), "it has no column 'text'"),
    ],
)
def test_other_columns_with_a_checksum_that_fits(index, content, reason):
    plant(index, f"{SEGMENT}/chunks.arrow", content)

    assert refused(index) == f"{index / SEGMENT / 'chunks.arrow'}: the file is damaged: {reason}\n{PUT_BACK}"


def test_record_batches_of_another_length_are_found_when_they_are_read(index):
    plant(index, f"{SEGMENT}/chunks.arrow", arrow(chunk_schema(), 255, 2))
    store = Store.open(index)

    with pytest.raises(IndexFormatError) as caught:
        store.rows([(0, 299)])

    assert str(caught.value) == (
        f"{index / SEGMENT / 'chunks.arrow'}: the file is damaged: record batch 1 holds 255 rows, not 44\n{PUT_BACK}"
    )
    assert len(store.verify()) == 1


def test_a_changed_byte_in_the_columns_is_an_error_or_still_text(index):
    """With a checksum that fits, as in an index made to harm: whatever is read is checked before it is used."""
    whole = (index / SEGMENT / "chunks.arrow").read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 150).tolist():
        changed = bytearray(whole)
        changed[place] = int(rng.integers(256))
        plant(index, f"{SEGMENT}/chunks.arrow", bytes(changed))
        try:
            rows = Store.open(index).rows([(0, 0), (0, 299)])
        except IndexFormatError:
            continue
        assert all(isinstance(row.text, str) for row in rows)


def test_deletions_of_rows_that_are_not_there(index):
    path = next((index / "deletions").iterdir())
    schema = pa.schema(
        [pa.field("segment", pa.large_string(), nullable=False), pa.field("row", pa.int32(), nullable=False)]
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(
            pa.record_batch(
                [pa.array(["00000001-0000"], pa.large_string()), pa.array([300], pa.int32())], schema=schema
            )
        )
    content = sink.getvalue().to_pybytes()
    plant(index, f"deletions/{path.name}", content)

    assert refused(index) == (
        f"{path}: the file is damaged: it names a row that segment 0 of 300 rows does not have\n{WAY_BACK}"
    )


def test_a_blob_that_is_not_there(index):
    store = Store.open(index)

    with pytest.raises(IndexFormatError) as caught:
        store.blob("other")

    assert str(caught.value) == f"{index}: the index holds no file 'other'\n  hint: build again with --rebuild"


def test_a_large_index_is_not_hashed_whole_when_it_is_opened(index, monkeypatch):
    monkeypatch.setattr(verify_module, "HASHED_AT_OPEN", 10_000)
    path = index / SEGMENT / "ann.faiss"
    assert path.stat().st_size > 10_000
    data = bytearray(path.read_bytes())
    data[len(data) - 5] ^= 1
    path.write_bytes(data)

    faults = Store.open(index).verify()

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
    message = f"{index / SEGMENT / 'ann.faiss'}: the file is damaged: it is no graph over the vectors beside it"

    store = Store.open(index)
    with pytest.raises(IndexFormatError) as caught:
        store.search(kit.queries(1), 3)

    assert str(caught.value) == f"{message}\n{PUT_BACK}"
    assert store.verify() == [f"{message}; put it back from a copy, or build again with --rebuild"]
