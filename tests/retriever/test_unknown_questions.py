"""Questions and chunks that the model does not know: words alone answer, and a note says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.pipelines.index import Index
from ragidx.retriever.hit import NO_KNOWN_WORD, NO_VECTOR, NOTHING_KNOWN, WORDS_ALONE, Hits

THAI = {  # a sentence each, and only the first is of a lighthouse, ประภาคาร
    "lamp": "ผู้ดูแลประภาคารจุดตะเกียงทุกคืนก่อนที่เรือประมงจะกลับเข้าฝั่งและจดบันทึกสภาพอากาศลงในสมุดเล่มใหญ่ที่วางอยู่ข้างหน้าต่าง",
    "rice": "ชาวนาปลูกข้าวในฤดูฝนและเก็บเกี่ยวเมื่อน้ำลดลงแล้วจึงนำเมล็ดข้าวไปตากแดดบนลานกว้างหน้าบ้านก่อนเก็บไว้ในยุ้งฉางตลอดฤดูหนาว",
    "tax": "พนักงานสำนักงานสรรพากรอธิบายว่าผู้มีรายได้ต้องยื่นแบบแสดงรายการภาษีภายในเดือนมีนาคมมิฉะนั้นจะต้องเสียค่าปรับตามกฎหมาย",
    "train": "รถไฟขบวนสุดท้ายออกจากสถานีกลางเวลาเที่ยงคืนผู้โดยสารควรมาถึงก่อนเวลาสามสิบนาทีเพื่อตรวจตั๋วและหาที่นั่งของตนให้เรียบร้อย",
}
ENGLISH = {
    "mill": "The old mill by the river grinds flour for the villages in the valley.",
    "bees": "Bees dance to tell the others of their hive where the flowers are.",
    "sea": "The lighthouse keeper lights the lamp before the fishing boats come home from the sea.",
}
LIGHTHOUSE = "ประภาคาร"
KHMER = "តើអ្នកណាជាអ្នកថែរក្សាប៉មភ្លើង"
PARTY = "🎉🎉🎊🥳👏🏽"


def index_of(folder: Path, texts: dict[str, str]) -> Index:
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, "utf-8")
    return ragidx.build(folder, folder.with_suffix(".index"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("unknown")


@pytest.fixture(scope="module")
def thai(folder: Path) -> Index:
    return index_of(folder / "thai", THAI)


@pytest.fixture(scope="module")
def mixed(folder: Path) -> Index:
    return index_of(folder / "mixed", {**ENGLISH, **THAI, "party": PARTY})


def names(hits: Hits) -> list[str]:
    return [hit.doc_id.removesuffix(".txt") for hit in hits]


def test_of_four_texts_that_are_one_to_the_model_the_one_with_the_word_is_first(thai: Index) -> None:
    hits = thai.search(LIGHTHOUSE)

    assert (names(hits)[0], hits.notes) == ("lamp", [WORDS_ALONE])
    assert names(hits) == names(thai.search(LIGHTHOUSE, mode="lexical"))
    assert [hit.dense for hit in hits] == [None] * len(hits)
    assert names(thai.search(LIGHTHOUSE, fusion="rrf")) == names(hits)


@pytest.mark.parametrize("options", [{"mode": "dense"}, {"min_score": -1.0}, {"mode": "lexical", "min_score": 0.0}])
def test_where_only_a_vector_can_answer_nothing_does(thai: Index, options: dict[str, object]) -> None:
    hits = thai.search(LIGHTHOUSE, **options)  # type: ignore[arg-type]

    assert list(hits) == []
    assert hits.notes == [WORDS_ALONE if "mode" not in options else NO_VECTOR]


def test_an_unknown_question_of_unknown_words_finds_nothing(mixed: Index) -> None:
    assert (list(mixed.search(KHMER)), mixed.search(KHMER).notes) == ([], [NOTHING_KNOWN])
    assert (list(mixed.search(KHMER, mode="dense")), mixed.search(KHMER, mode="dense").notes) == ([], [NO_VECTOR])
    assert mixed.search(KHMER, mode="lexical").notes == []


def test_a_known_question_never_finds_an_unknown_chunk_by_its_vector(mixed: Index) -> None:
    for options in ({"mode": "dense"}, {}, {"fusion": "rrf"}, {"dim": 64}, {"mmr": 0.5}):
        hits = mixed.search("who tends the light at the coast?", 10, **options)  # type: ignore[arg-type]
        assert (names(hits)[0], sorted(names(hits)), hits.notes) == ("sea", sorted(ENGLISH), [])


def test_a_score_is_the_sum_of_its_z_scores_and_a_vector_that_is_none_counts_0(mixed: Index) -> None:
    question, weight = "the lighthouse ประภาคาร of the sea", 0.6
    store = mixed.searcher.folder
    query = mixed.searcher.encode([question])[0].astype(np.float64)
    vectors = store.vectors(range(store.n_rows)).astype(np.float64)
    known = vectors.any(axis=1)
    assert store.lexical is not None
    bm25 = store.lexical.scores(question)
    assert bm25 is not None
    dense = vectors @ query
    parts = np.where(known, (dense - dense[known].mean()) / dense[known].std(), 0), (bm25 - bm25.mean()) / bm25.std()
    scores = weight * parts[0] + (1 - weight) * parts[1]

    hits = mixed.search(question, 10, weight=weight)

    rows = {row.chunk_id: number for number, row in enumerate(store.rows(range(store.n_rows)))}
    found = [rows[hit.chunk_id] for hit in hits]
    np.testing.assert_allclose([hit.score for hit in hits], scores[found], atol=1e-4)
    assert set(found) == set(np.flatnonzero(known | (bm25 > 0)).tolist())
    assert "lamp" in names(hits)
    assert [hit.dense is None for hit in hits] == (~known[found]).tolist()


def test_each_question_of_a_batch_has_its_own_answer(mixed: Index) -> None:
    asked = ["the old mill", LIGHTHOUSE, KHMER, "zzz qqq", "the bees 🎉"]

    hybrid, dense = mixed.search_batch(asked), mixed.search_batch(asked, mode="dense")

    assert [hits.notes for hits in hybrid] == [[], [WORDS_ALONE], [NOTHING_KNOWN], [NO_KNOWN_WORD], []]
    assert [names(hits)[:1] for hits in hybrid][:2] == [["mill"], ["lamp"]]
    assert [hits.notes for hits in dense] == [[], [NO_VECTOR], [NO_VECTOR], [], []]
    assert [len(hits) for hits in dense] == [3, 0, 0, 3, 3]


def test_several_indexes_answer_as_one(thai: Index, mixed: Index, folder: Path) -> None:
    other = ragidx.build(folder / "mixed", folder / "other.index", model="mini-decoder", filter="none")

    for indexes in ([thai, mixed], [thai, other]):
        hits = ragidx.search(indexes, LIGHTHOUSE, fold=False)
        assert (names(hits)[:2], hits.notes) == (["lamp", "lamp"], [WORDS_ALONE])
        assert ragidx.search(indexes, LIGHTHOUSE, mode="dense") == []
