"""FAISS behind its one module: loading it, what it may be given, and files it must not be shown."""

from __future__ import annotations

import sys

import faiss
import numpy as np
import pytest

from ragidx.corpora.errors import IndexFormatError, RagidxError
from ragidx.indexer import ann


def unit(n: int, dim: int = 8, seed: int = 0) -> np.ndarray:
    raw = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    return raw / np.linalg.norm(raw, axis=1, keepdims=True)


def written(path, index) -> None:
    with path.open("wb") as file:
        ann.write(index, file.write)


@pytest.fixture
def pair(tmp_path):
    """A vectors file and the graph over it: 300 rows of 8 dimensions."""
    vectors = ann.new_vectors(8)
    ann.add(vectors, unit(300))
    written(tmp_path / ann.VECTORS, vectors)
    written(tmp_path / ann.GRAPH, ann.new_graph(vectors))
    return tmp_path


def test_the_vectors_file_is_faiss_own_and_holds_numpys_float16(pair):
    index = faiss.read_index(str(pair / ann.VECTORS))

    assert type(index) is faiss.IndexScalarQuantizer
    expected = unit(300).astype("f2")
    np.testing.assert_array_equal(index.reconstruct_n(0, 300), expected.astype("f4"))
    assert (pair / ann.VECTORS).read_bytes()[81:] == expected.tobytes()


def test_the_graph_file_holds_no_second_copy_of_the_vectors(pair):
    data = (pair / ann.GRAPH).read_bytes()

    assert unit(300).astype("f2").tobytes()[:64] not in data
    assert ann.map_graph(pair / ann.GRAPH, ann.map_vectors(pair / ann.VECTORS, 8, 300)).ntotal == 300


def test_mapped_search_equals_search_in_memory(pair):
    memory = ann.new_vectors(8)
    ann.add(memory, unit(300))

    mapped = ann.search(ann.map_vectors(pair / ann.VECTORS, 8, 300), None, unit(5, seed=1), 7, None)

    for one, other in zip(mapped, ann.search(memory, None, unit(5, seed=1), 7, None), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_not_there_is_minus_one_and_minus_infinity(pair):
    vectors = ann.map_vectors(pair / ann.VECTORS, 8, 300)
    allowed = np.zeros(300, np.bool_)
    allowed[[3, 250]] = True

    scores, rows = ann.search(vectors, None, unit(1, seed=1), 4, allowed)

    assert (sorted(rows[0, :2]), rows[0, 2:].tolist()) == ([3, 250], [-1, -1])
    assert scores[0, 2:].tolist() == [-np.inf, -np.inf]


def test_a_graph_that_reaches_too_few_rows_is_helped_out_by_the_exact_index(pair):
    vectors = ann.map_vectors(pair / ann.VECTORS, 8, 300)
    graph = ann.map_graph(pair / ann.GRAPH, vectors)

    _, rows = ann.search(vectors, graph, unit(3, seed=1), 300, None)

    assert [sorted(found) for found in rows.tolist()] == [list(range(300))] * 3


def test_a_graph_that_many_rows_pass_is_used_and_gives_allowed_rows_only(pair, monkeypatch):
    monkeypatch.setattr(ann, "EXACT_ROWS", 10)
    vectors = ann.map_vectors(pair / ann.VECTORS, 8, 300)
    graph = ann.map_graph(pair / ann.GRAPH, vectors)
    allowed = np.arange(300) % 3 == 0

    scores, rows = ann.search(vectors, graph, unit(10, seed=1), 5, allowed)

    exact = ann.search(vectors, None, unit(10, seed=1), 5, allowed)
    assert (rows % 3 == 0).all()
    assert np.mean(rows == exact[1]) > 0.95
    assert (np.diff(scores, axis=1) <= 0).all()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: faiss.IndexFlatIP(8), "its FAISS type is b'IxFI', not b'IxSQ'"),
        (lambda: faiss.index_factory(8, "IVF1,Flat"), "its FAISS type is b'IwFl', not b'IxSQ'"),
        (lambda: ann.new_vectors(9), "it holds 0 rows of 9 dimensions, not 300 of 8"),
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
def test_another_faiss_index_in_the_file_is_named(tmp_path, make, reason):
    index = make()
    if index.d == 8:
        index.train(unit(300))
        index.add(unit(300))
    faiss.write_index(index, str(tmp_path / ann.VECTORS))

    with pytest.raises(IndexFormatError) as caught:
        ann.map_vectors(tmp_path / ann.VECTORS, 8, 300)

    assert str(caught.value) == (
        f"{tmp_path / ann.VECTORS}: the file is damaged: {reason}\n"
        "  hint: put it back from a copy, or build again with --rebuild"
    )


@pytest.mark.parametrize("name", [ann.VECTORS, ann.GRAPH])
def test_a_file_cut_anywhere_is_an_error(pair, name):
    vectors = ann.map_vectors(pair / ann.VECTORS, 8, 300)
    data = (pair / name).read_bytes()
    short = pair / "short.faiss"

    for length in [*range(0, 100, 7), len(data) // 2, len(data) - 1]:
        short.write_bytes(data[:length])
        with pytest.raises(IndexFormatError, match="the file is damaged"):
            ann.map_vectors(short, 8, 300) if name == ann.VECTORS else ann.map_graph(short, vectors)


@pytest.mark.parametrize("name", [ann.VECTORS, ann.GRAPH])
def test_a_changed_byte_is_an_error_or_still_searchable(pair, name):
    """No change may end the process: this test itself would be gone."""
    whole = ann.map_vectors(pair / ann.VECTORS, 8, 300)
    data = (pair / name).read_bytes()
    rng = np.random.default_rng(0)
    places = [*range(0, 90, 2), *rng.integers(90, len(data), 40).tolist()]

    for number, place in enumerate(places):
        changed = bytearray(data)
        changed[place] = int(rng.integers(256))
        path = pair / f"{number}.faiss"
        path.write_bytes(changed)
        try:
            vectors = ann.map_vectors(path, 8, 300) if name == ann.VECTORS else whole
            graph = ann.map_graph(path, vectors) if name == ann.GRAPH else None
        except IndexFormatError:
            continue
        _, rows = ann.search(vectors, graph, unit(5, seed=2), 5, None)
        assert rows.max() < 300


def test_a_link_to_a_row_that_is_not_on_its_level_is_found(pair):
    vectors = ann.map_vectors(pair / ann.VECTORS, 8, 300)
    graph = faiss.read_index(str(pair / ann.GRAPH), faiss.IO_FLAG_SKIP_STORAGE)
    levels, starts = faiss.vector_to_array(graph.hnsw.levels), faiss.vector_to_array(graph.hnsw.offsets)
    links = faiss.vector_to_array(graph.hnsw.neighbors).copy()
    high, low = int(np.argmax(levels > 1)), int(np.argmax(levels == 1))
    data = (pair / ann.GRAPH).read_bytes()
    begin = data.index(links.tobytes())
    place = begin + 4 * (int(starts[high]) + 2 * ann.HNSW_LINKS)
    (pair / ann.GRAPH).write_bytes(data[:place] + low.to_bytes(4, "little") + data[place + 4 :])

    with pytest.raises(IndexFormatError) as caught:
        ann.map_graph(pair / ann.GRAPH, vectors)

    assert str(caught.value) == (
        f"{pair / ann.GRAPH}: the file is damaged: it is no graph over the vectors beside it\n"
        "  hint: put it back from a copy, or build again with --rebuild"
    )


def test_faiss_that_is_not_installed_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)

    with pytest.raises(RagidxError) as caught:
        ann.load_faiss()

    assert str(caught.value) == (
        "faiss is not installed\n  hint: pip install 'ragidx[cpu]' (or 'ragidx[gpu]' on a machine with an NVIDIA GPU)"
    )


def test_two_faiss_packages_are_named_with_what_to_uninstall(monkeypatch, tmp_path):
    for name in ann.PACKAGES[:2]:
        folder = tmp_path / f"{name.replace('-', '_')}-1.15.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.15.1\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(RagidxError) as caught:
        ann.load_faiss()

    assert str(caught.value) == (
        "faiss-cpu and faiss-gpu are both installed, and overwrite each other's files\n"
        "  hint: pip uninstall -y faiss-cpu faiss-gpu, then install one of them again"
    )
