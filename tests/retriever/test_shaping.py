"""From ranked chunks to hits: folded, limited, diversified, with context; k of them whenever they exist."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragidx
from ragidx.pipelines.index import Index
from ragidx.pipelines.vectors import RowWriter
from ragidx.retriever import contents
from ragidx.retriever.hit import DocumentSpan, Hit

X = [[1.0, 0.0, 0.0]]


def falling(n: int) -> np.ndarray:
    """Vectors (n, 3) whose cosines with the first axis fall from 1 on."""
    angles = np.linspace(0, 1.5, n)
    return np.c_[np.cos(angles), np.sin(angles), np.zeros(n)]


def make(
    path: Path, texts: list[str | None], doc_ids: list[str] | None = None, vectors: np.ndarray | None = None
) -> Index:
    """An index of rows `0`, `1`, ... with falling cosines, or of these vectors."""
    with RowWriter(path, 3, stemmer="none") as writer:
        given = falling(len(texts)) if vectors is None else vectors
        writer.add_vectors(range(len(texts)), given, texts, doc_ids=doc_ids)
        writer.commit()
    return Index(path)


def ids(hits: list[Hit]) -> list[str]:
    return [hit.chunk_id for hit in hits]


def words(*changed: int) -> str:
    """Sixty different words, those at some places changed."""
    return " ".join(f"{'other' if at in changed else 'word'}{at}" for at in range(60))


# folding


def test_an_equal_passage_is_a_place_of_the_hit_before(tmp_path: Path) -> None:
    reader = make(tmp_path / "index", ["The mill.", "The lake.", "The mill.", "Bees."], ["x", "x", "y", "z"])

    [folded], [whole] = reader.search_vectors(X, 3), reader.search_vectors(X, 3, fold=False)

    assert [(hit.rank, hit.chunk_id, hit.also) for hit in folded] == [
        (1, "0", (DocumentSpan("y", 0, 9),)),
        (2, "1", ()),
        (3, "3", ()),
    ]
    assert [(hit.rank, hit.chunk_id, hit.also) for hit in whole] == [(1, "0", ()), (2, "1", ()), (3, "2", ())]
    assert folded[0].to_json()["also"] == [{"doc_id": "y", "start": 0, "end": 9}]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        # Of 60 words 58 triples: one changed word leaves 55 of 61 common (0.902), two leave 52 of 64 (0.813).
        (words(), words(30), True),
        (words(), words(20, 40), False),
        ("The Mill, by the river!", "the mill by the river", True),
        ("The mill.", "The mill!", True),
        ("The mill.", "The lake.", False),
        ("the mill by the river", "the mill by the river and the sea", False),
        ("--- ***", "--- ***", True),
        ("--- ***", "*** ---", False),
        ("東京タワー", "東京タワー", True),
    ],
)
def test_passages_with_nine_tenths_of_their_word_triples_in_common_are_one(
    one: str, other: str, is_same: bool, tmp_path: Path
) -> None:
    [hits] = make(tmp_path / "index", [one, other]).search_vectors(X)

    assert [(hit.text, len(hit.also)) for hit in hits] == ([(one, 1)] if is_same else [(one, 0), (other, 0)])


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 30]), st.sets(st.integers(0, 59), max_size=3)), min_size=1, max_size=12
    )
)
def test_folding_is_that_of_comparing_each_passage_with_all_before(made: list[tuple[int, set[int]]]) -> None:
    texts = [" ".join(words(*changed).split()[first:]) for first, changed in made]
    kept: list[tuple[set[tuple[str, ...]], list[int]]] = []
    for number, text in enumerate(texts):
        found = text.split()
        mine = set(itertools.pairwise(itertools.pairwise(found)))
        same = next((one for one in kept if len(one[0] & mine) >= 0.9 * len(one[0] | mine)), None)
        if same is None:
            kept.append((mine, [number]))
        else:
            same[1].append(number)

    with tempfile.TemporaryDirectory() as folder:
        [hits] = make(Path(folder) / "index", list(texts), [str(n) for n in range(len(texts))]).search_vectors(X, 12)

    assert [[int(hit.doc_id), *(int(span.doc_id) for span in hit.also)] for hit in hits] == [one[1] for one in kept]


def test_rows_without_texts_are_not_folded(tmp_path: Path) -> None:
    [hits] = make(tmp_path / "index", [None, None, ""]).search_vectors(X)

    assert ids(hits) == ["0", "1", "2"]


def test_as_many_hits_as_were_asked_for_are_found_behind_equal_ones(tmp_path: Path) -> None:
    reader = make(tmp_path / "index", ["The mill."] * 90 + [f"Text {n}" for n in range(10)])

    [hits] = reader.search_vectors(X, 5)
    [all_hits] = reader.search_vectors(X, 50)

    assert ids(hits) == ["0", "90", "91", "92", "93"]
    assert len(hits[0].also) == 89
    assert len(all_hits) == 11


def test_all_places_of_equal_chunks_are_named_however_few_hits_are_asked_for(tmp_path: Path) -> None:
    vectors = np.tile([0.6, 0.8, 0], (30, 1))
    reader = make(tmp_path / "index", ["The mill."] * 30, [f"d{n:02}" for n in range(30)], vectors)

    [[hit]] = reader.search_vectors(X, 1)

    assert hit.doc_id == "d00"
    assert sorted(span.doc_id for span in hit.also) == [f"d{n:02}" for n in range(1, 30)]


def test_lexical_search_folds_and_is_filled_up_too(tmp_path: Path) -> None:
    make(tmp_path / "index", ["the mill"] * 30 + [f"a mill number {n}" for n in range(3)])

    hits = Index(tmp_path / "index").search("mill", 3)

    assert [(hit.text, len(hit.also)) for hit in hits] == [
        ("the mill", 29),
        ("a mill number 0", 0),
        ("a mill number 1", 0),
    ]


# hits of a document


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_document_has_so_many_hits_and_others_fill_up(limit: int, tmp_path: Path) -> None:
    doc_ids = ["x"] * 40 + ["y"] * 40 + ["z"]
    reader = make(tmp_path / "index", [f"Text {n}" for n in range(81)], doc_ids)

    [hits] = reader.search_vectors(X, 5, per_document=limit)

    expected = [*range(limit), *range(40, 40 + limit), 80][:5]
    assert ids(hits) == [str(number) for number in expected]
    assert [hit.rank for hit in hits] == list(range(1, len(expected) + 1))


def test_a_passage_that_was_folded_does_not_count_for_its_document(tmp_path: Path) -> None:
    reader = make(tmp_path / "index", ["The mill.", "The mill.", "Bees.", "Lake."], ["x", "y", "y", "y"])

    [hits] = reader.search_vectors(X, 4, per_document=1)

    assert [(hit.chunk_id, [span.doc_id for span in hit.also]) for hit in hits] == [("0", ["y"]), ("2", [])]


# the smallest cosine


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=14), min_size=1, max_size=40), st.integers(1, 40))
def test_what_is_folded_is_what_comparing_all_pairs_folds(drawn: list[list[str]], repeated: int) -> None:
    texts = [" ".join([*(f"w{n}" for n in range(repeated)), *letters]) for letters in drawn]
    with tempfile.TemporaryDirectory() as folder:
        [hits] = make(Path(folder) / "index", texts).search_vectors(X, len(texts))

    kept: list[tuple[int, set[tuple[str, ...]]]] = []
    for number, text in enumerate(texts):
        words = text.split()
        triples = {tuple(words[at : at + 3]) for at in range(len(words) - 2)} if len(words) > 2 else {tuple(words)}
        if not any(len(triples & other) >= 0.9 * len(triples | other) for _, other in kept):
            kept.append((number, triples))
    assert [hit.chunk_id for hit in hits] == [str(number) for number, _ in kept]


@pytest.mark.parametrize(("limit", "n"), [(0.95, 10), (0.5, 36), (-1, 50), (1, 1)])
def test_chunks_below_the_smallest_cosine_are_left_out(limit: float, n: int, tmp_path: Path) -> None:
    cosines = np.cos(np.linspace(0, 1.5, 50))
    reader = make(tmp_path / "index", [f"Text {number}" for number in range(50)])

    [hits] = reader.search_vectors(X, 50, min_score=limit)

    expected = max(1, int((cosines >= limit).sum()))
    assert abs(expected - n) <= 1
    assert len(hits) == expected
    assert reader.rank_documents(vectors=X, k=50, min_score=limit) == [[(hit.doc_id, hit.score) for hit in hits]]


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """250 chunks of the bundled model: every tenth has the word mill."""
    folder = tmp_path_factory.mktemp("many")
    lines = [f"{'The old mill' if n % 10 == 0 else 'A new tower'} number {n} of the river" for n in range(250)]
    for n, line in enumerate(lines):
        (folder / f"{n:03}.txt").write_text(line)
    ragidx.build(folder, folder / "index")
    return Index(folder / "index")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
@pytest.mark.parametrize("rank", [5, 20, 180])
def test_the_smallest_cosine_holds_in_every_mode(mode: str, rank: int, retriever: Index) -> None:
    every = retriever.search("an old mill", 250, mode=mode, fold=False)
    near = retriever.search("an old mill", 250, mode="dense")
    limit = near[rank].score - 1e-4

    hits = retriever.search("an old mill", 250, mode=mode, min_score=limit, fold=False)
    few = retriever.search("an old mill", 4, mode=mode, min_score=limit, fold=False)

    cosine = {hit.chunk_id: hit.score for hit in near}
    assert ids(hits) == [hit.chunk_id for hit in every if cosine[hit.chunk_id] >= limit]
    assert all(hit.dense == pytest.approx(cosine[hit.chunk_id], abs=1e-6) for hit in hits)
    assert few == hits[:4]


@pytest.mark.slow
def test_the_smallest_sum_of_z_scores_ends_hybrid_hits(retriever: Index) -> None:
    every = retriever.search("an old mill", 250, fold=False)

    hits = retriever.search("an old mill", 250, min_z=every[6].score, fold=False)

    assert hits == every[:7]
    assert retriever.search("an old mill", min_z=every[0].score + 0.1) == []
    assert retriever.search("an old mill", 250, min_z=every[6].score, min_score=-1, fold=False) == hits


# unlike hits


def test_unlike_hits_come_first_as_far_as_the_weight_says(tmp_path: Path) -> None:
    vectors = np.array([[0.9, 0.1, 0], [0.89, 0.1, 0.01], [0.5, -0.8, 0], [0.6, 0, 0.8]])
    reader = make(tmp_path / "index", ["a", "b", "c", "d"], vectors=vectors)

    by_score, between, by_unlikeness, plain = (
        reader.search_vectors(X, 4, **options)[0] for options in ({"mmr": 1.0}, {"mmr": 0.5}, {"mmr": 0.0}, {})
    )

    assert by_score == plain
    assert ids(plain) == ["0", "1", "3", "2"]
    assert ids(between) == ids(by_unlikeness) == ["0", "2", "3", "1"]
    assert [hit.rank for hit in between] == [1, 2, 3, 4]


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.7])
def test_each_next_hit_is_the_best_by_score_and_likeness_to_those_before(weight: float, tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    vectors = chance.standard_normal((20, 3)) + np.array([2, 0, 0])
    reader = make(tmp_path / "index", [f"t{n}" for n in range(20)], vectors=vectors)
    [plain] = reader.search_vectors(X, 20)

    [hits] = reader.search_vectors(X, 8, mmr=weight)

    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    centred = unit - unit.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    scores = {hit.chunk_id: (hit.score - plain[-1].score) / (plain[0].score - plain[-1].score) for hit in plain}
    chosen = [plain[0].chunk_id]
    while len(chosen) < 8:
        gains = {
            name: weight * score - (1 - weight) * max(centred[int(name)] @ centred[int(one)] for one in chosen)
            for name, score in scores.items()
            if name not in chosen
        }
        chosen.append(max(gains, key=lambda name: gains[name]))
    assert ids(hits) == chosen


@pytest.mark.parametrize("k", [1, 3, 70])
def test_unlike_hits_are_as_many_as_were_asked_for(k: int, tmp_path: Path) -> None:
    reader = make(tmp_path / "index", ["same"] * 60 + [f"t{n}" for n in range(100)])

    [hits] = reader.search_vectors(X, k, mmr=0.5)

    assert len(set(ids(hits))) == len(hits) == k
    assert hits[0].chunk_id == "0"


def test_one_hit_and_equal_vectors_have_no_likeness_to_compare(tmp_path: Path) -> None:
    equal = make(tmp_path / "equal", ["a", "b", "c"], vectors=np.tile([1.0, 0, 0], (3, 1)))

    assert ids(equal.search_vectors(X, 3, mmr=0.0)[0]) == ["0", "1", "2"]
    assert ids(make(tmp_path / "one", ["a"]).search_vectors(X, mmr=0.0)[0]) == ["0"]


# context


def test_context_is_the_text_with_the_rows_of_its_document_around_it(tmp_path: Path) -> None:
    texts = ["one", "two", "three", "four", "five", "other"]
    reader = make(tmp_path / "index", texts, ["x"] * 5 + ["y"])

    def around(n: int) -> dict[str, str | None]:
        [hits] = reader.search_vectors(X, 6, context=n)
        assert [hit.text for hit in hits] == texts
        return {hit.text: hit.context for hit in hits}

    assert set(around(0).values()) == {None}
    assert around(1)["three"] == "two\nthree\nfour"
    assert around(2)["one"] == "one\ntwo\nthree"
    assert around(9)["five"] == "one\ntwo\nthree\nfour\nfive"
    assert around(9)["other"] == "other"


def test_rows_that_were_deleted_are_in_no_context(tmp_path: Path) -> None:
    make(tmp_path / "index", ["one", "two", "three", "four"], ["x"] * 4)
    Index(tmp_path / "index").delete(["1"])

    [hits] = Index(tmp_path / "index").search_vectors(X, 1, context=2)

    assert hits[0].context == "one\nthree\nfour"
    Index(tmp_path / "index").compact(everything=True)
    assert Index(tmp_path / "index").search_vectors(X, 1, context=2)[0][0].context == hits[0].context


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [0, 16, 24])
def test_the_context_of_all_chunks_is_the_document(overlap: int, tmp_path: Path) -> None:
    text = " ".join(f"Sentence {n} of the mill and the river {n * n} is here." for n in range(40))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text(text)
    (tmp_path / "docs" / "b.txt").write_text("Another document.")
    report = ragidx.build(
        tmp_path / "docs", tmp_path / "index", chunks=ragidx.ChunkSpec(size=48, overlap=overlap)
    ).report
    assert report.n_chunks > 8

    hits = Index(tmp_path / "index").search("the mill", 99, context=99)
    near = Index(tmp_path / "index").search("the mill", 99, context=1)

    rows = contents.rows(Index(tmp_path / "index").searcher.store, document="a.txt")
    assert any(after.start < before.end for before, after in itertools.pairwise(rows)) == (overlap > 0)
    for hit, one in zip(hits, near, strict=True):
        if hit.doc_id == "b.txt":
            assert hit.context == hit.text == "Another document."
            continue
        assert hit.text == text[hit.start : hit.end]
        assert hit.context is not None
        assert hit.context.replace("\n", " ") == text
        assert one.context is not None
        assert one.text in one.context
        assert one.context.replace("\n", " ") in text
        assert len(one.context) > len(one.text)


def test_hits_of_two_questions_share_nothing_that_can_change(tmp_path: Path) -> None:
    index = Index(tmp_path / "index", create=True)
    metadata = {"tags": ["old"], "nested": {"numbers": [1]}}
    index.add([ragidx.Document("mill", "The mill of the town.", metadata)])

    for _ in range(2):
        [hit] = index.search("mill")
        assert hit.metadata == metadata
        hit.metadata["tags"].append("new")
        hit.metadata["nested"]["numbers"].append(2)
        del hit.metadata["nested"]


@pytest.mark.parametrize("around", ["“{}”", "{}…", "  {}\n", "¿{}"])
def test_signs_around_words_make_no_other_passage(around: str, tmp_path: Path) -> None:
    text = "It was read in the evening, and put away with the others."
    index = Index(tmp_path / "index", create=True)
    index.add([ragidx.Document("one", text), ragidx.Document("other", around.format(text.upper()))])

    [hit] = index.search("what was read in the evening?")

    assert len(hit.also) == 1
