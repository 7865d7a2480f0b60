"""BM25: a value by hand, and the same scores however rows are spread and whatever was deleted."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.indexer.lexical.analyzer import Analyzer
from ragidx.indexer.lexical.bm25 import scores, statistics
from ragidx.indexer.lexical.postings import Postings
from ragidx.indexer.lexical.postings_writer import write_postings

PLAIN = Analyzer()


def make(folder: Path, texts: list[str]) -> Postings:
    path = folder / f"{len(list(folder.iterdir()))}.arrow"
    write_postings(path, [texts], PLAIN)
    return Postings(path, len(texts))


def test_a_score_by_hand(tmp_path: Path) -> None:
    segment = make(tmp_path, ["a mill", "a river by the mill mill", "a river"])

    found = scores([segment], [None], ["mill"], statistics([segment], [None]))

    idf, mean = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5)), 10 / 3
    expected = [
        idf * tf / (tf + 1.2 * (1 - 0.75 + 0.75 * length / mean)) if tf else 0
        for tf, length in [(1, 2), (2, 6), (0, 2)]
    ]
    assert found is not None
    assert found[0] == pytest.approx(expected, rel=1e-6)


def test_a_term_asked_twice_counts_twice(tmp_path: Path) -> None:
    segment = make(tmp_path, ["a mill", "a river"])
    of = statistics([segment], [None])

    once, twice = (scores([segment], [None], ["mill"] * count, of) for count in (1, 2))

    assert once is not None
    assert twice is not None
    assert twice[0] == pytest.approx(2 * once[0])


def test_words_that_no_live_row_has_give_none(tmp_path: Path) -> None:
    segment, dead = make(tmp_path, ["a mill", "a river"]), np.array([True, False])

    assert scores([segment], [dead], ["mill"], statistics([segment], [dead])) is None
    assert scores([], [], ["mill"], statistics([], [])) is None
    assert scores([segment], [None], [], statistics([segment], [None])) is None


TEXT = st.text(alphabet="ab c", max_size=12)


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(TEXT, st.booleans(), st.integers(0, 2)), min_size=1, max_size=20), TEXT)
def test_scores_depend_on_live_rows_alone(tmp_path: Path, rows: list[tuple[str, bool, int]], question: str) -> None:
    alive = [text for text, is_dead, _ in rows if not is_dead]
    fresh = [make(tmp_path, alive)] if alive else []
    parts = [[row for row in rows if row[2] == number] for number in range(3)]
    segments = [make(tmp_path, [text for text, _, _ in part]) for part in parts if part]
    dead = [np.array([is_dead for _, is_dead, _ in part]) for part in parts if part]
    terms = PLAIN(question)

    expected = scores(fresh, [None] * len(fresh), terms, statistics(fresh, [None] * len(fresh)))
    found = scores(segments, dead, terms, statistics(segments, dead))

    if expected is None:
        assert found is None
    else:
        assert found is not None
        by_text = dict(zip(alive, expected[0].tolist(), strict=True))
        for part, masked in zip([part for part in parts if part], found, strict=True):
            assert masked.tolist() == [0 if is_dead else by_text[text] for text, is_dead, _ in part]
