"""FAISS's files: loading FAISS, what is written, and files that it must not be shown."""

from __future__ import annotations

import sys

import faiss
import numpy as np
import pytest

from ragidx.corpora.errors import IndexFormatError, RagidxError
from ragidx.indexer import ann
from ragidx.indexer.faiss_files import ANN, HEADER_BYTES, PACKAGES, VECTORS, load_faiss, map_vectors
from ragidx.indexer.index_types import Effort, Recipe

PUT_BACK = "  hint: put it back from a copy, or build again with --rebuild"

ROWS, DIM = 300, 8
GRAPH = "HNSW16"


@pytest.fixture
def pair(tmp_path, ann_kit):
    """A vectors file and the graph over it: 300 rows of 8 dimensions."""
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(ROWS, DIM))
    ann_kit.make(tmp_path, GRAPH, vectors)
    return tmp_path


def test_the_vectors_file_is_faiss_own_and_holds_numpys_float16(pair, ann_kit):
    index = faiss.read_index(str(pair / VECTORS))

    assert type(index) is faiss.IndexScalarQuantizer
    expected = ann_kit.clustered(ROWS, DIM).astype("f2")
    np.testing.assert_array_equal(index.reconstruct_n(0, ROWS), expected.astype("f4"))
    assert (HEADER_BYTES, (pair / VECTORS).read_bytes()[81:]) == (81, expected.tobytes())


def test_the_graph_file_holds_no_second_copy_of_the_vectors(pair, ann_kit):
    data = (pair / ANN).read_bytes()

    assert ann_kit.clustered(ROWS, DIM).astype("f2").tobytes()[:64] not in data
    assert ann_kit.open(pair / ANN, GRAPH, map_vectors(pair / VECTORS, DIM, ROWS)).ntotal == ROWS


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: faiss.IndexFlatIP(8), "its FAISS type is b'IxFI', not b'IxSQ'"),
        (lambda: faiss.index_factory(8, "IVF1,Flat"), "its FAISS type is b'IwFl', not b'IxSQ'"),
        (
            lambda: faiss.IndexScalarQuantizer(9, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT),
            "it holds 0 rows of 9 dimensions, not 300 of 8",
        ),
        (
            lambda: faiss.IndexScalarQuantizer(8, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_L2),
            "it is no inner-product index that is ready to search",
        ),
        (
            lambda: faiss.IndexScalarQuantizer(8, faiss.ScalarQuantizer.QT_bf16, faiss.METRIC_INNER_PRODUCT),
            "it is no float16 index of 300 rows and 8 dimensions",
        ),
    ],
)
def test_another_faiss_index_in_the_file_is_named(tmp_path, ann_kit, make, reason):
    index = make()
    if index.d == DIM:
        index.train(ann_kit.clustered(ROWS, DIM))
        index.add(ann_kit.clustered(ROWS, DIM))
    faiss.write_index(index, str(tmp_path / VECTORS))

    with pytest.raises(IndexFormatError) as caught:
        map_vectors(tmp_path / VECTORS, DIM, ROWS)

    assert str(caught.value) == f"{tmp_path / VECTORS}: the file is damaged: {reason}\n{PUT_BACK}"


@pytest.mark.parametrize("name", [VECTORS, ANN])
def test_a_file_cut_anywhere_is_an_error(pair, ann_kit, name):
    vectors = map_vectors(pair / VECTORS, DIM, ROWS)
    data = (pair / name).read_bytes()
    short = pair / "short.faiss"

    for length in [*range(0, 100, 7), len(data) // 2, len(data) - 1]:
        short.write_bytes(data[:length])
        with pytest.raises(IndexFormatError, match="the file is damaged"):
            map_vectors(short, DIM, ROWS) if name == VECTORS else ann_kit.open(short, GRAPH, vectors)


@pytest.mark.parametrize("name", [VECTORS, ANN])
def test_a_changed_byte_is_an_error_or_still_searchable(pair, ann_kit, name):
    """No change may end the process: this test itself would be gone."""
    whole = map_vectors(pair / VECTORS, DIM, ROWS)
    data = (pair / name).read_bytes()
    rng = np.random.default_rng(0)
    places = [*range(0, 90, 2), *rng.integers(90, len(data), 40).tolist()]

    for number, place in enumerate(places):
        changed = bytearray(data)
        changed[place] = int(rng.integers(256))
        path = pair / f"{number}.faiss"
        path.write_bytes(changed)
        try:
            vectors = map_vectors(path, DIM, ROWS) if name == VECTORS else whole
            graph = ann_kit.open(path if name == ANN else pair / ANN, GRAPH, vectors)
        except IndexFormatError:
            continue
        queries = ann_kit.clustered(5, DIM, seed=2)
        _, rows = ann.search(graph, Recipe.parse(GRAPH), Effort(beam=64), vectors, queries, 5, None)
        assert rows.max() < ROWS


def test_a_link_to_a_row_that_is_not_on_its_level_is_found(pair, ann_kit):
    vectors = map_vectors(pair / VECTORS, DIM, ROWS)
    graph = faiss.read_index(str(pair / ANN), faiss.IO_FLAG_SKIP_STORAGE)
    levels, starts = faiss.vector_to_array(graph.hnsw.levels), faiss.vector_to_array(graph.hnsw.offsets)
    links = faiss.vector_to_array(graph.hnsw.neighbors).copy()
    high, low = int(np.argmax(levels > 1)), int(np.argmax(levels == 1))
    data = (pair / ANN).read_bytes()
    begin = data.index(links.tobytes())
    place = begin + 4 * (int(starts[high]) + 2 * 16)  # its first link on level 1
    (pair / ANN).write_bytes(data[:place] + low.to_bytes(4, "little") + data[place + 4 :])

    with pytest.raises(IndexFormatError) as caught:
        ann_kit.open(pair / ANN, GRAPH, vectors)

    assert str(caught.value) == (
        f"{pair / ANN}: the file is damaged: it is no graph over the vectors beside it\n{PUT_BACK}"
    )


def test_faiss_that_is_not_installed_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)

    with pytest.raises(RagidxError) as caught:
        load_faiss()

    assert str(caught.value) == (
        "faiss is not installed\n  hint: pip install 'ragidx[cpu]' (or 'ragidx[gpu]' on a machine with an NVIDIA GPU)"
    )


def test_two_faiss_packages_are_named_with_what_to_uninstall(monkeypatch, tmp_path):
    for name in PACKAGES[:2]:
        folder = tmp_path / f"{name.replace('-', '_')}-1.15.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.15.1\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(RagidxError) as caught:
        load_faiss()

    assert str(caught.value) == (
        "faiss-cpu and faiss-gpu are both installed, and overwrite each other's files\n"
        "  hint: pip uninstall -y faiss-cpu faiss-gpu, then install one of them again"
    )
