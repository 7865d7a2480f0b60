"""Postings: what is written is found, in any blocks. Damaged files: `writing/test_lexical_damage.py`."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.lexical import postings_writer
from ragidx.indexer.lexical.analyzer import Analyzer
from ragidx.indexer.lexical.blocks import blocks
from ragidx.indexer.lexical.postings import SCHEMA, Postings
from ragidx.indexer.lexical.postings_writer import write_postings

PLAIN = Analyzer()
TEXTS = ["the mill by the river", "", "a river, a mill, a river", "snake_case and max.rows", "火山"]


def write(folder: Path, texts: list[str]) -> Postings:
    path = folder / "lexical.arrow"
    path.unlink(missing_ok=True)
    write_postings(path, blocks([(text, "") for text in texts], PLAIN))
    return Postings(path, len(texts))


def test_a_term_has_its_rows_and_counts(tmp_path: Path) -> None:
    found = write(tmp_path, TEXTS)

    river = found.find("river")
    assert river is not None
    assert (river.rows.tolist(), river.counts.tolist()) == ([0, 2], [1, 2])
    assert found.find("snake") is not None
    assert found.find("absent") is None
    assert found.lengths.tolist() == [5, 0, 6, 7, 1]


def test_no_text_has_no_term(tmp_path: Path) -> None:
    found = write(tmp_path, ["", "..."])

    assert found.find("river") is None
    assert found.lengths.tolist() == [0, 0]
    found.read_all()


def test_what_was_read_is_freed_with_it(tmp_path: Path) -> None:
    """A service opens one after the other; the caches of the old ones must not keep them."""
    found = write(tmp_path, TEXTS)
    assert found.find("river") is not None
    left = weakref.ref(found)

    del found
    gc.collect()

    assert left() is None


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(alphabet="abc_. é火", max_size=30), max_size=30), st.sampled_from([1, 7, 1 << 20]))
def test_every_term_of_any_texts_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str], block: int
) -> None:
    monkeypatch.setattr("ragidx.indexer.lexical.blocks._BLOCK_TOKENS", block)
    monkeypatch.setattr(postings_writer, "_RUNS", 3)
    monkeypatch.setattr(postings_writer, "_RUN_TERMS", 2)
    monkeypatch.setattr(postings_writer, "_BATCH_POSTINGS", min(block, 5))
    counted = [Counter(PLAIN(text)) for text in texts]

    found = write(tmp_path, texts)

    found.read_all()
    assert found.lengths.tolist() == [one.total() for one in counted]
    for term in {term for one in counted for term in one}:
        hit = found.find(term)
        assert hit is not None
        expected = {row: one[term] for row, one in enumerate(counted) if term in one}
        assert dict(zip(hit.rows.tolist(), hit.counts.tolist(), strict=True)) == expected


@pytest.mark.slow
def test_one_word_a_million_times_is_counted(tmp_path: Path) -> None:
    found = write(tmp_path, ["no " * 1_000_000, "no"])

    hit = found.find("no")
    assert hit is not None
    assert hit.counts.tolist() == [1_000_000, 1]


def test_the_file_is_the_same_however_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, path = [(text, "a_mill") for text in [*TEXTS, "..."]], tmp_path / "lexical.arrow"
    write_postings(path, blocks(texts, PLAIN))
    once = path.read_bytes()
    monkeypatch.setattr("ragidx.indexer.lexical.blocks._BLOCK_TOKENS", 1)
    path.unlink()

    write_postings(path, blocks(texts, PLAIN))

    assert path.read_bytes() == once


def test_other_columns_are_refused(tmp_path: Path) -> None:
    path, schema = tmp_path / "lexical.arrow", pa.schema([("word", pa.string()), *list(SCHEMA)[1:]])
    with pa.ipc.new_file(str(path), schema) as file:
        file.write_batch(pa.record_batch([["a"], [[1]], [[1]]], schema=schema))

    with pytest.raises(IndexFormatError, match="columns"):
        Postings(path, 2)
