"""BM25: a value by hand, and the same scores however rows are spread and whatever was deleted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.indexer.arrays import Bools, Floats
from ragidx.indexer.lexical.analyzer import Analyzer
from ragidx.indexer.lexical.blocks import blocks
from ragidx.indexer.lexical.bm25 import Bm25
from ragidx.indexer.lexical.postings import Postings
from ragidx.indexer.lexical.postings_writer import write_postings
from ragidx.indexer.store.live import LivePostings

PLAIN = Analyzer()


def make(folder: Path, texts: list[str], names: Sequence[str] = ()) -> Postings:
    path = folder / f"{len(list(folder.iterdir()))}.arrow"
    write_postings(path, blocks(itertools.zip_longest(texts, names, fillvalue=""), PLAIN))
    return Postings(path, len(texts))


def scores(segments: Sequence[Postings], terms: Sequence[str], dead: Bools | None = None) -> Floats | None:
    if dead is None:
        return Bm25(segments).scores(terms)
    parts = np.split(dead, np.cumsum([len(segment.lengths) for segment in segments])[:-1])
    return Bm25([LivePostings(segment, part) for segment, part in zip(segments, parts, strict=True)]).scores(terms)


def test_a_score_by_hand(tmp_path: Path) -> None:
    segment = make(tmp_path, ["a mill", "a river by the mill mill", "a river"])

    found = scores([segment], ["mill"])

    idf, mean = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5)), 10 / 3
    expected = [
        idf * tf / (tf + 1.2 * (1 - 0.75 + 0.75 * length / mean)) if tf else 0
        for tf, length in [(1, 2), (2, 6), (0, 2)]
    ]
    assert found is not None
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_word_of_the_name_adds_a_fifth_and_changes_no_length(tmp_path: Path) -> None:
    texts = ["a mill", "a river by the mill mill", "a river", ""]
    named = make(tmp_path, texts, ["a/River-mill.old", "", "mill", "mill"])

    found = scores([named], ["mill"])
    river = scores([named], ["river"])

    idf, mean = math.log(1 + (4 - 3 + 0.5) / (3 + 0.5)), 10 / 4
    of_text = [tf / (tf + 1.2 * (0.25 + 0.75 * length / mean)) if tf else 0 for tf, length in [(1, 2), (2, 6), (0, 2)]]
    assert found is not None
    assert found == pytest.approx([idf * (of_text[0] + 0.2), idf * of_text[1], idf * 0.2, 0], rel=1e-6)
    assert river is not None
    assert [score > 0 for score in river] == [True, True, True, False]
    assert Bm25([named]).n_terms == Bm25([make(tmp_path, texts)]).n_terms
    assert named.lengths.tolist() == [2, 6, 2, 0]
    named.read_all()


def test_a_term_asked_twice_counts_twice(tmp_path: Path) -> None:
    segment = make(tmp_path, ["a mill", "a river"])

    once, twice = (scores([segment], ["mill"] * count) for count in (1, 2))

    assert once is not None
    assert twice is not None
    assert twice == pytest.approx(2 * once)


def test_words_that_no_live_row_has_give_none(tmp_path: Path) -> None:
    segment, dead = make(tmp_path, ["a mill", "a river"]), np.array([True, False])

    assert scores([segment], ["mill"], dead) is None
    assert scores([segment], []) is None


TEXT = st.text(alphabet="ab c", max_size=12)


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(TEXT, st.booleans(), st.integers(0, 2), TEXT), min_size=1, max_size=20), TEXT)
def test_scores_depend_on_live_rows_alone(
    tmp_path: Path, rows: list[tuple[str, bool, int, str]], question: str
) -> None:
    live = [row for row in rows if not row[1]]
    fresh = [make(tmp_path, [row[0] for row in live], [row[3] for row in live])]
    parts = [[row for row in rows if row[2] == number] for number in range(3)]
    segments = [make(tmp_path, [row[0] for row in part], [row[3] for row in part]) for part in parts]
    spread = [row for part in parts for row in part]

    expected = scores(fresh, PLAIN(question))
    found = scores(segments, PLAIN(question), np.array([row[1] for row in spread]))

    if expected is None:
        assert found is None
    else:
        assert found is not None
        by_row = dict(zip(((row[0], row[3]) for row in live), expected.tolist(), strict=True))
        assert found.tolist() == [by_row[row[0], row[3]] for row in spread if not row[1]]
