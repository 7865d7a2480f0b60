"""Vectors that are decoded from the codes of a file, against what FAISS decodes in memory."""

from __future__ import annotations

import faiss
import numpy as np
import pytest

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.indexer.ann import making
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.alone import check_decodable
from ragidx.indexer.ann.decoded import DecodedVectors
from ragidx.indexer.ann.faiss_files import inner, map_ann
from ragidx.indexer.ann.index_types import Effort, Recipe
from ragidx.indexer.ann.repeats import find_repeats
from ragidx.indexer.store.files import ANN, VECTORS

from ...raising import message_of

DIM, ROWS = 24, 700
RECIPES = (
    *("PQ12x4fs", "PQ3x4fs", "IVF8,PQ12x4fs", "IVF8,PQ8", "RaBitQfs", "SQ8", "SQ6", "SQ4", "RaBitQ"),
    *("IVF8,SQ8", "IVF8,SQ4", "IVF8,RaBitQ", "RR,IVF8,RaBitQ", "RR,SQ8", "RR,IVF8,PQ8"),
)


@pytest.fixture(scope="module")
def rows(ann_kit) -> np.ndarray:
    """Unit vectors: rows 33 to 40 are equal, 5 and 90 have none; the last five columns are zero, as padding is."""
    found = ann_kit.clustered(ROWS, DIM)
    found[:, 19:] = 0
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    found[33:41] = found[33]
    found[[5, 90]] = 0
    return found


def decoded_of(folder, factory: str, ann_kit, rows: np.ndarray) -> tuple[DecodedVectors, np.ndarray]:
    """The vectors, decoded from the file, and what FAISS decodes of the index in memory: (n, DIM)."""
    vectors, recipe = ann_kit.write(folder, rows), Recipe.parse(factory)
    repeats = find_repeats(folder / VECTORS, DIM, ROWS)
    index = making.make(recipe, folder / VECTORS, DIM, ROWS, repeats=repeats)
    path = ann_kit.make(folder, factory, vectors, repeats)
    if recipe.lists is not None:
        inner(index).set_direct_map_type(faiss.DirectMap.Array)
    firsts = repeats.firsts_of(np.arange(ROWS))
    places = firsts if recipe.takes_selector else (np.cumsum(repeats.kept) - 1)[firsts]
    mapped = map_ann(path, recipe, (DIM, ROWS), len(repeats))
    return DecodedVectors(path, recipe, mapped, 19, ROWS, repeats, 5), index.reconstruct_batch(places)


@pytest.mark.parametrize("factory", RECIPES)
def test_rows_are_decoded_as_faiss_decodes_them(tmp_path, ann_kit, rows, factory):
    faiss.omp_set_num_threads(1)  # training gives the same twice
    decoded, raw = decoded_of(tmp_path, factory, ann_kit, rows)
    raw[:, 19:], raw[[5, 90]] = 0, 0
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    expected = raw / np.where(lengths > 0, lengths, 1)

    found = decoded[np.arange(ROWS)]

    assert found.dtype == np.float16
    assert np.abs(found.astype(np.float32) - expected).max() < 2e-3  # a step of float16, and what training adds
    assert not found[[5, 90]].any()
    assert np.array_equal(found[[40, 7, 33]], decoded[np.array([40, 7, 33])])
    assert np.array_equal(found[33:41], np.repeat(found[33:34], 8, axis=0))


@pytest.mark.parametrize("factory", ["PQ12x4fs", "IVF8,PQ12x4fs", "SQ8", "RR,IVF8,RaBitQ"])
def test_every_search_gives_the_same_scores(tmp_path, ann_kit, rows, factory):
    decoded, _ = decoded_of(tmp_path, factory, ann_kit, rows)
    queries, allowed = ann_kit.clustered(7, DIM, seed=3), np.arange(ROWS) % 3 > 0
    every = decoded.reconstruct_batch(np.arange(ROWS))
    products = np.where(allowed, queries.astype(np.float64) @ every.T.astype(np.float64), -2)
    best = -np.sort(-products, axis=1)[:, :9]

    scores, numbers = ann.search_exact(decoded, queries, 9, allowed)

    assert scores == pytest.approx(best, abs=1e-6)
    assert allowed[numbers].all()
    repeats = find_repeats(tmp_path / VECTORS, DIM, ROWS)
    index, recipe = map_ann(tmp_path / ANN, Recipe.parse(factory), (DIM, ROWS), len(repeats)), Recipe.parse(factory)
    effort = Effort(lists=8 if recipe.lists else 0, factor=80)
    near, places = ann.search(index, recipe, effort, decoded, queries, 9, None, repeats)
    assert np.array_equal(near, ann.search_exact(decoded, queries, 9, None)[0])
    assert near == pytest.approx(np.take_along_axis(queries @ every.T, places, axis=1), abs=1e-6)


def test_codes_that_stand_for_no_vector_are_named(tmp_path, ann_kit, rows):
    decoded, _ = decoded_of(tmp_path, "PQ12x4fs", ann_kit, rows)
    path, table = tmp_path / ANN, np.float32(decoded._decode.__self__._table.ravel()[0]).tobytes()
    content = path.read_bytes().replace(table, np.float32(np.nan).tobytes())
    path.write_bytes(content)
    repeats = find_repeats(tmp_path / VECTORS, DIM, ROWS)
    mapped = map_ann(path, Recipe.parse("PQ12x4fs"), (DIM, ROWS), len(repeats))
    forged = DecodedVectors(path, Recipe.parse("PQ12x4fs"), mapped, 19, ROWS, repeats, None)

    message = message_of(IndexFormatError, lambda: forged[np.arange(ROWS)])

    assert f"{path}: the file is damaged: a code in it stands for no vector" in message


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        *(("flat", "no codes"), ("hnsw", "a graph"), ("HNSW32", "a graph"), ("ivf", "float16")),
        *(("IVF8,SQfp16", "float16"), ("RaBitQ4", "as it was coded"), ("RR,IVF8,RaBitQ2", "as it was coded")),
        *(("IVF8,RaBitQfs", "as they were coded"), ("RR,PQ12x4fs", "turned back"), ("RR,RaBitQfs", "turned back")),
    ],
)
def test_codes_that_cannot_stand_for_vectors(factory, reason):
    assert reason in message_of(SpecError, lambda: check_decodable(factory))


@pytest.mark.parametrize("factory", [*RECIPES, "auto", "pq4", "ivfpq4", "sq8", "ivfpq", "rabitq"])
def test_codes_that_can(factory):
    check_decodable(factory)
