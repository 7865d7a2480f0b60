"""Postings of an index: whatever was added, deleted, merged or rewritten, they are those of a new index of its rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from fault_operations import small_indexes
from fault_reader import canonical
from hypothesis import given, settings
from hypothesis import strategies as st
from states import Words, content_of, words_of

from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.store import Store
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import merging
from ragidx.indexer.writing.history import rollback
from ragidx.indexer.writing.rewrite import NewForm, compact, copy, replace

Documents = Mapping[str, Sequence[str]]

ENGLISH = IndexOptions("flat", lexical="english")
MILLS = {"mill": ["The mill turns", "two mills turned"], "river": ["a river by the mill"], "none": ["...", ""]}
QUESTIONS = ("the mill", "mills river river", "two turning mills by a river", "absent", "mill 1")


def words(index: Path) -> Words:
    """The lexical part, and that no file of the index is damaged."""
    assert verify(index) == []
    found = words_of(Store.open(index), QUESTIONS)
    assert found is not None
    return found


def made_anew(kit: Any, store: Store, folder: Path) -> Words:
    """The lexical part of a new index with the live rows of this one, in one segment."""
    options = IndexOptions("flat", lexical=store.manifest.lexical.stemmer)
    with kit.writer(folder, index=options) as writer:
        rows = store.rows(range(store.n_rows))
        writer.add(rows, kit.vectors(rows))
        writer.commit({}, 1)
    return words(folder)


@pytest.fixture
def index(tmp_path: Path, kit: Any) -> Path:
    kit.build(tmp_path / "index", MILLS, index=ENGLISH)
    return tmp_path / "index"


# what a build writes


def test_a_build_writes_the_stems_of_headings_and_texts(index: Path) -> None:
    (segment,) = Store.open(index).segments
    postings = segment.postings

    found = {term: postings.find(term) for term in ("mill", "turn", "river", "mills", "0")}
    rows = {term: None if one is None else (one.rows.tolist(), one.counts.tolist()) for term, one in found.items()}
    assert rows == {  # a heading is the name of its document, and the number of the row in it
        "mill": ([0, 1, 2], [2, 2, 1]),
        "turn": ([0, 1], [1, 1]),
        "river": ([2], [2]),
        "mills": None,
        "0": ([0, 2, 3], [1, 1, 1]),
    }
    assert postings.lengths.tolist() == [5, 5, 7, 2, 2]
    assert segment.entry.lexical == "lexical-00000001.arrow"


def test_the_scores_are_those_of_the_formula(index: Path) -> None:
    found = words(index)

    assert (found.spec, found.counts) == (LexicalSpec.of("english"), (5, 21))
    idf = np.log1p((5 - 1 + 0.5) / (1 + 0.5))  # only one row has the river
    expected = 2 * idf * 2 / (2 + 1.2 * (1 - 0.75 + 0.75 * 7 / (21 / 5)))
    store = Store.open(index)
    (scores,) = (words_of(store, ["rivers river"]).scores[name] for name in ["river:0-1"])
    assert scores == (pytest.approx(expected),)
    assert found.scores["none:0-1"] == (0, 0, 0, 0, 0)
    assert {scores[3] for scores in found.scores.values()} == {0}


def test_a_segment_of_many_rows_keeps_the_moments_of_its_vectors(tmp_path: Path, kit: Any) -> None:
    with small_indexes():
        kit.build(tmp_path / "index", MILLS, index=ENGLISH)
    (segment,) = Store.open(tmp_path / "index").segments
    vectors = segment.codes.astype(np.float64)

    assert segment.entry.moments == "moments-00000001.bin"
    np.testing.assert_allclose(segment.moments.mean, vectors.mean(axis=0), atol=1e-12)
    scores = kit.queries(3) @ vectors.T
    np.testing.assert_allclose(segment.moments.spread(kit.queries(3)).deviation, scores.std(axis=1), atol=1e-6)


def test_a_segment_of_few_rows_keeps_none(index: Path) -> None:
    (segment,) = Store.open(index).segments

    assert (segment.entry.moments, segment.moments) == (None, None)


# whatever is done to an index


def updates(kit: Any, index: Path) -> None:
    with kit.writer(index, index=ENGLISH, compact=False) as writer:
        writer.delete_document("none")
        writer.delete_document("river")
        kit.add(writer, kit.rows("river", ["another river", "the mills of a river"]))
        writer.commit({}, 2)


def merges(kit: Any, index: Path) -> None:
    missing = 5 - len(Store.open(index).segments)
    for number in range(missing):
        with mock.patch.object(merging, "MAX_SMALL", 4), kit.writer(index, index=ENGLISH) as writer:
            kit.add(writer, kit.rows(f"more {number}", [f"mill {number}", "the river"]))
            writer.commit({}, number)
    assert len(Store.open(index).segments) == 1


def merges_without_dead_rows(kit: Any, index: Path) -> None:
    updates(kit, index)
    merges(kit, index)
    assert Store.open(index).manifest.deletions is None


def compacts(kit: Any, index: Path) -> None:
    updates(kit, index)
    assert compact(index).committed


def narrower(store: Store) -> NewForm:
    base = store.manifest
    return NewForm(base.spec, "e" * 64, 4, base.index, {})


def shrinks(kit: Any, index: Path) -> None:
    updates(kit, index)
    replace(index, narrower)
    assert Store.open(index).manifest.dim == 4


def copies(kit: Any, index: Path) -> None:
    updates(kit, index)
    copy(Store.open(index), index.parent / "copy", narrower)
    index.rename(index.parent / "source")
    (index.parent / "copy").rename(index)


@pytest.mark.slow
@pytest.mark.parametrize("change", [updates, merges, merges_without_dead_rows, compacts, shrinks, copies])
def test_every_commit_leaves_the_postings_of_a_new_index(
    index: Path, kit: Any, change: Callable[[Any, Path], object]
) -> None:
    before = words(index)

    change(kit, index)

    store = Store.open(index)
    assert all(segment.entry.lexical is not None for segment in store.segments)
    assert words(index) == made_anew(kit, store, index.parent / "anew")
    assert words(index) != before


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.sampled_from("abcd"),
            st.lists(st.sampled_from(["the mill", "mills of rivers", "a river", "", "two two", "mill 1"]), max_size=3),
        ),
        st.tuples(st.just("delete"), st.sampled_from("abcd"), st.none()),
        st.tuples(st.just("compact"), st.booleans(), st.none()),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(steps=STEPS, small=st.sampled_from([1, 2, 16]))
def test_any_history_leaves_the_postings_of_a_new_index(kit: Any, steps: list[Any], small: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "MAX_SMALL", small)
        index = Path(folder) / "index"
        kit.build(index, {"e": ["the mill of a river"]}, index=ENGLISH)
        for step, name, texts in steps:
            if step == "compact":
                compact(index, everything=name)
                continue
            with kit.writer(index, index=ENGLISH) as writer:
                writer.delete_document(name)
                if texts:
                    kit.add(writer, kit.rows(name, texts))
                writer.commit({}, 1)

        assert words(index) == made_anew(kit, Store.open(index), Path(folder) / "anew")


# which lexical part


def rebuilt(kit: Any, index: Path, lexical: str, documents: Documents = MILLS) -> Manifest:
    options = IndexOptions("flat", lexical=lexical)
    manifest: Manifest = kit.build(index, documents, index=options, compact=False)[0]
    return manifest


def test_the_lexical_part_goes_and_comes_back_the_same(index: Path, kit: Any) -> None:
    before, content = words(index), content_of(index)

    off = rebuilt(kit, index, "off")
    assert (off.generation, off.lexical, off.segments[0].lexical) == (2, None, None)
    assert rebuilt(kit, index, "off").generation == 2
    assert words_of(Store.open(index)) is None
    assert (index / "segments/00000001-0000/lexical-00000001.arrow").is_file()  # generation 1 names it

    back = rebuilt(kit, index, "english")
    assert (back.generation, back.segments[0].lexical) == (3, "lexical-00000003.arrow")
    assert words(index) == before
    assert content_of(index) == content
    assert rebuilt(kit, index, "english").generation == 3


def test_the_moments_go_with_the_lexical_part(tmp_path: Path, kit: Any) -> None:
    index = tmp_path / "index"
    with small_indexes():
        rebuilt(kit, index, "none")
        assert rebuilt(kit, index, "off").segments[0].moments is None
        assert rebuilt(kit, index, "none").segments[0].moments == "moments-00000003.bin"
        assert rebuilt(kit, index, "english").segments[0].moments == "moments-00000003.bin"  # no stemmer changes them


@pytest.mark.slow
def test_another_stemmer_remakes_all_postings_and_old_ones_stay_while_a_generation_names_them(
    index: Path, kit: Any
) -> None:
    updates(kit, index)
    documents = {"mill": MILLS["mill"], "river": ["another river", "the mills of a river"]}

    manifest = rebuilt(kit, index, "none", documents)

    assert manifest.lexical == LexicalSpec.of("none")
    assert [segment.lexical for segment in manifest.segments] == ["lexical-00000003.arrow"] * 2
    store = Store.open(index)
    assert [segment.postings.find("turned") is None for segment in store.segments] == [False, True]
    assert words(index) == made_anew(kit, store, index.parent / "anew")
    kept = {path.name for path in index.glob("segments/00000001-0000/lexical-*")}
    assert kept == {"lexical-00000001.arrow", "lexical-00000003.arrow"}

    for number in range(2):
        rebuilt(kit, index, "none", documents | {"new": [f"text {number}"]})

    assert {path.name for path in index.glob("segments/00000001-0000/lexical-*")} == {"lexical-00000003.arrow"}
    assert {path.name for path in index.glob("segments/00000002-0000/lexical-*")} == {"lexical-00000003.arrow"}
    assert verify(index) == []


def test_postings_that_an_unreadable_generation_may_name_stay(index: Path, kit: Any) -> None:
    whole = (index / "manifest.1.json").read_bytes()
    (index / "manifest.1.json").write_bytes(canonical({"format": 8, "ragidx": "9.1.0"}))

    for number, lexical in enumerate(("german", "french"), start=2):
        assert rebuilt(kit, index, lexical).generation == number

    of_first = index / "segments/00000001-0000/lexical-00000001.arrow"
    assert of_first.is_file()
    (index / "manifest.1.json").write_bytes(whole)
    rebuilt(kit, index, "none")
    assert not of_first.exists()
    assert verify(index) == []


@pytest.mark.slow
def test_going_back_brings_the_postings_of_before(index: Path, kit: Any) -> None:
    before = words(index)
    rebuilt(kit, index, "german")
    german = words(index)

    rollback(index, 1)
    assert words(index) == before
    assert rebuilt(kit, index, "english").generation == 3

    manifest = rebuilt(kit, index, "german")
    assert (manifest.generation, manifest.segments[0].lexical) == (4, "lexical-00000004.arrow")
    assert words(index) == german


@pytest.mark.parametrize("asked", ["english", "auto"])
@pytest.mark.parametrize(("name", "value"), [("stemming.stemmer_version", lambda: "9.9"), ("analyzer.VERSION", 9)])
def test_another_version_of_the_rules_remakes_postings_at_the_next_commit(
    index: Path, kit: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: object, asked: str
) -> None:
    monkeypatch.setattr(f"ragidx.indexer.lexical.{name}", value)

    manifest = rebuilt(kit, index, asked)

    assert manifest.lexical == LexicalSpec.of("english")
    assert (manifest.generation, manifest.segments[0].lexical) == (2, "lexical-00000002.arrow")
    assert words(index).counts == (5, 21)
    assert rebuilt(kit, index, asked).generation == 2


def test_an_index_by_older_rules_says_what_to_do_until_its_next_commit(
    tmp_path: Path, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By those of version 1, a soft hyphen and an accent made other terms."""
    index, documents = tmp_path / "index", {"mill": ["der Mühlen\u00adweg"]}
    with monkeypatch.context() as older:
        older.setattr("ragidx.indexer.lexical.analyzer.VERSION", 1)
        older.setattr("ragidx.indexer.lexical.blocks.tokens", str.split)
        older.setattr("ragidx.indexer.lexical.analyzer.spellings", lambda word: [word])
        rebuilt(kit, index, "none", documents)
    with pytest.raises(SpecError) as fault:
        Store.open(index).knows_a_word("Muhlenweg")
    assert str(fault.value) == (
        "the lexical part of the index was made with word rules of version 1; here is 2\n"
        "  hint: build again, which makes it anew and encodes nothing; or search with `mode=dense`"
    )
    assert verify(index) == []

    rebuilt(kit, index, "auto", documents)

    assert Store.open(index).knows_a_word("Muhlenweg")


def test_the_stemmers_version_is_nothing_to_an_index_without_one(
    index: Path, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt(kit, index, "none")
    monkeypatch.setattr("ragidx.indexer.lexical.stemming.stemmer_version", lambda: "9.9")

    assert rebuilt(kit, index, "none").generation == 2


def test_an_index_without_texts_has_no_lexical_part_until_there_is_one(tmp_path: Path, kit: Any) -> None:
    index, empty = tmp_path / "index", {"a": ["", " "], "b": [""]}

    assert rebuilt(kit, index, "auto", empty).lexical is None
    assert rebuilt(kit, index, "auto", empty).generation == 1
    assert not list(index.glob("segments/*/lexical-*"))

    manifest = rebuilt(kit, index, "auto", empty | {"c": ["the mill"]})
    assert manifest.lexical == LexicalSpec.of("none")
    assert [segment.lexical for segment in manifest.segments] == ["lexical-00000002.arrow"] * 2
    assert verify(index) == []


@pytest.mark.slow
def test_a_language_is_guessed_once_and_stays(tmp_path: Path, kit: Any) -> None:
    index = tmp_path / "index"
    english = {"a": ["The name of the ship is not known, and it was lost in the ice of the north."]}
    german = {"b": ["Der Name des Schiffes ist nicht bekannt, und es ging im Eis der See unter, wie die anderen."]}

    assert rebuilt(kit, tmp_path / "other", "auto", german).lexical == LexicalSpec.of("german")
    assert rebuilt(kit, index, "auto", english).lexical == LexicalSpec.of("english")
    for documents in (english | german, german):
        assert rebuilt(kit, index, "auto", documents).lexical == LexicalSpec.of("english")
    assert words(index) == made_anew(kit, Store.open(index), tmp_path / "anew")
    assert rebuilt(kit, index, "german", german).lexical == LexicalSpec.of("german")
    assert rebuilt(kit, index, "auto", german).lexical == LexicalSpec.of("german")

    anew, _ = kit.build(index, english, index=IndexOptions("flat"), replace=True)
    assert anew.lexical == LexicalSpec.of("english")  # a rebuild guesses again
