"""An index of codes alone beside the same index with vectors, for each kind of code, through any changes.

Small segments get codes here, so that a test takes a second. What a search must find is said by numpy, from the decoded
vectors that the index gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ragidx
from ragidx.indexer.ann import index_types, tuning
from ragidx.indexer.store import Store
from ragidx.indexer.writing import merging

from ..raising import message_of

CODES = ("pq4", "ivfpq4", "sq8", "rabitq")
DIM, ROWS, TOPICS = 16, 600, 12
EQUAL = range(40, 60)  # rows with one vector
LEAST = {"pq4": 0.55, "ivfpq4": 0.55, "sq8": 0.95, "rabitq": 0.3}  # of the exact ten of the vectors


def unit(raw: NDArray[np.floating]) -> NDArray[np.float32]:
    return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)


def drawn(n: int, seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((TOPICS, DIM))
    return unit(centres[rng.integers(TOPICS, size=n)] + 0.6 * rng.standard_normal((n, DIM)))


def ids_of(n: int, first: int = 0) -> list[str]:
    return [f"r{number:04d}" for number in range(first, first + n)]


def add(index: ragidx.Index, n: int, first: int = 0, seed: int = 0) -> None:
    vectors = drawn(n, seed)
    if not first:
        vectors[EQUAL] = vectors[EQUAL[0]]
    texts = [f"owl {number % 7} mill {number % 5}" for number in range(first, first + n)]
    metadata = [{"n": number, "tenth": number % 10} for number in range(first, first + n)]
    index.add_vectors(ids_of(n, first), vectors, texts=texts, metadata=metadata)


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    """Small segments have codes, and few questions choose their effort."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_types, "MIN_ROWS", 200)
        patch.setattr(tuning, "SAMPLE", 32)
        yield


@pytest.fixture(scope="module", params=CODES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ragidx.Index]:
    """The same rows, with vectors and by codes alone; not to be changed."""
    folder = tmp_path_factory.mktemp("pair")
    options = {"dim": DIM, "index_type": request.param}
    found = {
        name: ragidx.Index(folder / name, create={**options, "codes_only": name == "codes"})
        for name in ("full", "codes")
    }
    for index in found.values():
        add(index, ROWS)
    return found


@pytest.fixture(params=CODES)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> ragidx.Index:
    """An index of codes alone, to be changed."""
    index = ragidx.Index(tmp_path / "made", create={"dim": DIM, "index_type": request.param, "codes_only": True})
    add(index, ROWS)
    return index


def expected(index: ragidx.Index, query: NDArray[np.float32], ids: list[str]) -> dict[str, float]:
    """The cosine of each of some rows, by the decoded vectors."""
    return dict(zip(ids, (index.vectors(ids, decoded=True) @ query).clip(-1, 1).tolist(), strict=True))


def check_exact(index: ragidx.Index, query: NDArray[np.float32], k: int, ids: list[str], **asked: object) -> None:
    """That the hits are the k best of these rows; equal scores may be in another order of rounding."""
    cosines = expected(index, query, ids)
    hits = index.search(vector=query, k=k, fold=False, **asked)
    assert [hit.score for hit in hits] == pytest.approx(sorted(cosines.values(), reverse=True)[:k], abs=2e-6)
    assert [cosines[hit.chunk_id] for hit in hits] == pytest.approx([hit.score for hit in hits], abs=2e-6)
    assert len({hit.chunk_id for hit in hits}) == len(hits)


def files_of(index: ragidx.Index) -> list[set[str]]:
    return [{name.split("-")[0] for name in entry.files} for entry in index.info().segments]


def test_no_vectors_are_kept_and_the_index_says_so(pair):
    assert [files & {"vectors.faiss", "ann.faiss"} for files in files_of(pair["codes"])] == [{"ann.faiss"}]
    assert [files & {"vectors.faiss", "ann.faiss"} for files in files_of(pair["full"])] == [
        {"vectors.faiss", "ann.faiss"}
    ]
    assert not list(pair["codes"].path.rglob("vectors.faiss"))
    assert "codes alone" in pair["codes"].info().requires
    assert "codes alone" not in pair["full"].info().requires
    assert pair["codes"].verify() == []


def test_decoded_vectors_are_of_unit_length_near_the_stored_and_the_same_however_they_are_asked_for(pair):
    decoded, stored = pair["codes"].vectors(ids_of(ROWS), decoded=True), pair["full"].vectors(ids_of(ROWS))

    assert np.linalg.norm(decoded, axis=1) == pytest.approx(1, abs=1e-3)
    assert (decoded * stored).sum(axis=1).mean() > 0.75
    assert len(np.unique(decoded[EQUAL], axis=0)) == 1
    assert np.array_equal(decoded[7:9], pair["codes"].vectors(["r0007", "r0008"], decoded=True))


def test_scores_are_those_of_decoded_vectors_and_most_of_the_best_are_found(pair):
    queries, ids = drawn(30, seed=5), ids_of(ROWS)
    found = 0.0
    for query in queries:
        cosines = expected(pair["codes"], query, ids)
        hits = pair["codes"].search(vector=query, k=10, fold=False)
        assert [cosines[hit.chunk_id] for hit in hits] == pytest.approx([hit.score for hit in hits], abs=2e-6)
        tenth = sorted(cosines.values(), reverse=True)[9]
        found += sum(hit.score >= tenth - 2e-6 for hit in hits) / len(queries) / 10
    assert found >= 0.9  # of what an exact search of the decoded finds; the target is 0.95, of other questions


def test_what_codes_lose_is_measured(pair):
    queries, lost = drawn(30, seed=5), []
    for query in queries:
        by_vectors = {hit.chunk_id for hit in pair["full"].search(vector=query, k=10, fold=False)}
        by_codes = {hit.chunk_id for hit in pair["codes"].search(vector=query, k=10, fold=False)}
        lost.append(len(by_vectors & by_codes) / 10)
    [entry] = pair["codes"].info().segments
    assert np.mean(lost) > LEAST[pair["codes"].info().index.index_type]
    assert entry.ann.recall == pytest.approx(np.mean(lost), abs=0.25)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.sampled_from([1, 2, 20, 200, 599]), k=st.sampled_from([1, 10, 60]), seed=st.integers(0, 1000))
def test_k_hits_where_k_rows_match(pair, share, k, seed):
    query, ids = drawn(1, seed)[0], ids_of(share)

    hits = pair["codes"].search(vector=query, k=k, where=f"n < {share}", fold=False)

    assert len(hits) == min(k, share)
    assert {hit.chunk_id for hit in hits} <= set(ids)
    if share <= 20 or k == 60:
        check_exact(pair["codes"], query, min(k, 10) if share > 20 else k, ids[:20], where=f"n < {min(share, 20)}")


def test_z_scores_count_decoded_vectors(pair):
    query, store = drawn(1, 8), Store.open(pair["codes"].path)
    cosines = pair["codes"].vectors(ids_of(ROWS), decoded=True) @ query[0]

    _, _, spread = store.nearest_and_spread(query, 10)

    assert (float(spread.mean[0]), float(spread.deviation[0])) == pytest.approx(
        (cosines.mean(), cosines.std()), abs=1e-4
    )
    assert store.segments[0].moments is not None


def test_hybrid_search_and_unlike_hits(pair):
    asked = drawn(1, 8)[0]
    for options in ({}, {"fusion": "rrf"}, {"mmr": 0.5}, {"min_score": 0.2}, {"per_document": 1}):
        hits = pair["codes"].search("owl 3", vector=asked, k=5, **options)
        assert len(hits) == 5
        cosines = expected(pair["codes"], asked, [hit.chunk_id for hit in hits])
        assert {hit.chunk_id: hit.dense for hit in hits} == pytest.approx(cosines, abs=1e-5)


def test_adding_deleting_merging_and_going_back(made, monkeypatch):
    monkeypatch.setattr(merging, "MAX_SMALL", 2)
    queries, ids = drawn(3, seed=6), ids_of(ROWS)
    watcher = ragidx.Index(made.path)
    for first in range(ROWS, ROWS + 320, 80):
        add(made, 80, first, seed=first)
    ids += ids_of(320, ROWS)
    assert len(made.info().segments) > 1
    assert all(("vectors.faiss" in files) != ("ann.faiss" in files) for files in files_of(made))
    before = made.vectors(ids[:ROWS], decoded=True)
    gone = ids[: ROWS // 2 : 3]
    made.delete(gone)
    ids = [name for name in ids if name not in set(gone)]
    assert made.verify() == []
    for query in queries:
        check_exact(made, query, 10, ids[:8], where="n < 13")
        check_exact(made, query, len(ids), ids)
    assert watcher.refresh()
    assert watcher.count() == len(ids)
    kept = [name for name in ids if int(name[1:]) < ROWS]
    places = [int(name[1:]) for name in kept]
    assert np.array_equal(made.vectors(kept, decoded=True), before[places])  # no commit has coded them again
    made.rollback(made.generation - 1)
    assert made.count() == ROWS + 320


def test_compaction_codes_rows_again_only_where_all_is_asked_for(made):
    ids = ids_of(ROWS)
    made.delete(ids[:300])
    before, recall = made.vectors(ids[300:], decoded=True), made.info().segments[0].ann.recall
    assert not made.compact().committed
    assert np.array_equal(made.vectors(ids[300:], decoded=True), before)

    assert made.compact(everything=True).committed

    [entry] = made.info().segments
    assert (entry.rows, entry.has_vectors) == (300, False)
    assert entry.ann.recall <= recall
    assert (made.vectors(ids[300:], decoded=True) * before).sum(axis=1).mean() > 0.75
    assert made.verify() == []


def test_several_indexes_at_once(pair):
    query = drawn(1, 9)[0]
    both = ragidx.search([pair["full"], pair["codes"]], vector=query, k=10, fold=False)
    assert {Path(hit.index).name for hit in both} == {"full", "codes"}
    for hit in both:
        index = pair[Path(hit.index).name]
        [vector] = index.vectors([hit.chunk_id], decoded=True)
        assert hit.score == pytest.approx(float(vector @ query), abs=2e-6)


def test_an_unchanged_text_is_not_encoded_again_and_one_without_a_vector_stays_so(tmp_path):
    corpus, index = tmp_path / "corpus", tmp_path / "index"
    corpus.mkdir()
    words = np.random.default_rng(0).choice(["owl", "mill", "heron", "barn", "lease", "tower", "violin"], (250, 6))
    for number, text in enumerate(words.tolist()):
        (corpus / f"{number:03d}.txt").write_text(" ".join(text) if number % 50 else "𓀀𓁐𓂀")
    first = ragidx.build(corpus, index, codes_only=True, workers=1).report
    assert first.code_bytes is not None
    assert Store.open(index).n_zeros == 5
    (corpus / "003.txt").write_text("the compass of the orchard")

    second = ragidx.build(corpus, index, workers=1).report

    assert (second.n_encoded, second.n_changed) == (1, 1)
    with ragidx.Index(index) as opened:
        assert opened.verify() == []
        chunk = opened.chunks(document="050.txt")[0].id
        assert not opened.vectors([chunk], decoded=True).any()
        assert "vectors.faiss" not in files_of(opened)[0]
        assert opened.search("orchard compass", k=1)[0].doc_id == "003.txt"
        opened.delete(["050.txt"])
        assert opened.searcher.folder.n_zeros == 4
    again = ragidx.build(corpus, index, workers=1, restore=True).report
    assert again.n_encoded == 0


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda index, _: index.vectors(["r0001"]), "vectors"),
        (lambda index, _: index.to_batches(["vector"]), "vectors"),
        (lambda index, _: index.search(vector=drawn(1, 0)[0], dim=4), "dim"),
        (lambda index, _: index.search(vector=drawn(1, 0)[0], dim=4, rerank_dim=8), "dim"),
        (lambda index, _: index.shrink(8), "shrink"),
        (lambda index, path: index.reindex(path / "other", index_type="flat"), "reindex"),
        (lambda index, _: index.adapt(), "adapt"),
        (lambda index, path: index.export(f"parquet:{path}/rows.parquet"), "export"),
        (lambda index, _: ragidx.evaluate(index.path, costs=True, cache=None), "evaluate"),
    ],
)
def test_what_needs_vectors_is_refused_by_name(pair, tmp_path, use, name):
    message = message_of(ragidx.RagidxError, lambda: use(pair["codes"], tmp_path))

    assert f"an index of codes alone has no `{name}`" in message
    assert "rebuild=True" in message
    assert not list(tmp_path.iterdir())


def test_decoded_vectors_are_exported_where_they_are_asked_for(pair, tmp_path):
    import pyarrow.parquet as pq

    pair["codes"].export(f"parquet:{tmp_path}/rows.parquet", decoded=True)

    table = pq.read_table(tmp_path / "rows.parquet").sort_by("chunk_id")
    vectors = np.array(table.column("vector").to_pylist(), np.float32)
    assert np.array_equal(vectors, pair["codes"].vectors(table.column("chunk_id").to_pylist(), decoded=True))


@pytest.mark.parametrize("name", ["flat", "hnsw", "ivf", "HNSW16", "IVF64,SQfp16", "RaBitQ4", "IVF8,RaBitQfs"])
def test_types_that_cannot_stand_for_vectors_are_refused_at_once(tmp_path, name):
    create = {"dim": DIM, "index_type": name, "codes_only": True}
    message = message_of(ragidx.SpecError, lambda: ragidx.Index.create(tmp_path / "index", **create))

    assert f"index type {name} cannot be all that is kept of the vectors" in message
    assert not (tmp_path / "index").exists()


def test_the_option_is_kept_and_changed_by_a_rebuild_alone(tmp_path):
    (tmp_path / "a.txt").write_text("an owl in a mill")
    index = tmp_path / "index"
    ragidx.build(tmp_path / "a.txt", index, codes_only=True)
    assert ragidx.Index(index).info().index.codes_only

    message = message_of(ragidx.SpecError, lambda: ragidx.build(tmp_path / "a.txt", index, codes_only=False))
    assert "codes_only" in message
    assert "rebuild=True" in message
    assert "target_recall" in message_of(
        ragidx.SpecError, lambda: ragidx.build(tmp_path / "a.txt", index, target_recall=0.5)
    )
    ragidx.build(tmp_path / "a.txt", index, codes_only=False, rebuild=True)
    assert not ragidx.Index(index).info().index.codes_only


def test_codes_alone_are_made_of_an_index_with_vectors(pair, tmp_path):
    pair["full"].reindex(tmp_path / "other", codes_only=True)

    with ragidx.Index(tmp_path / "other") as other:
        assert "vectors.faiss" not in files_of(other)[0]
        ids = ids_of(ROWS)
        assert np.array_equal(other.vectors(ids, decoded=True), pair["codes"].vectors(ids, decoded=True))
