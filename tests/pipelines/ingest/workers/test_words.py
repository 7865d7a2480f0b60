"""Words that workers make: the same file for any number of them, also when they die; what they give is checked."""

import contextlib
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worker_corpora import WORDS, children, linux

import ragidx
from ragidx.indexer.lexical.analyzer import Analyzer
from ragidx.indexer.lexical.blocks import PostingsPiece, blocks, packed, unpacked
from ragidx.indexer.lexical.postings_writer import write_postings
from ragidx.indexer.store import Store
from ragidx.indexer.store.segment import Segment
from ragidx.pipelines.ingest.workers import words


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Some 1,500 rows with headings, records and whole files, which have names."""
    folder, chance = tmp_path_factory.mktemp("words"), random.Random(0)
    (folder / "corpus").mkdir()
    for number in range(150):
        paragraphs = "\n\n".join(" ".join(chance.choices(WORDS, k=60)) for _ in range(9))
        (folder / "corpus" / f"mill_No.{number}.md").write_text(f"# Part {number}\n\n{paragraphs}")
    ragidx.build(folder / "corpus", folder / "index", chunks=ragidx.ChunkSpec(size=64), index_type="flat").close()
    return Store.open(folder / "index")


def file_of(store: Store, path: Path, workers: int, kill: int = 0) -> bytes:
    """The postings of the first segment; all workers are killed after as many tasks."""
    told, kills = list[int](), [1] * kill

    def on_rows(count: int) -> None:
        told.append(count)
        for pid in children() if kills and kills.pop() else []:
            with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
                os.kill(pid, signal.SIGKILL)

    assert store.manifest.lexical is not None
    segment: Segment = store.segments[0]
    pieces = words.make_pieces(workers, segment, store.manifest.lexical, on_rows)
    write_postings(path, pieces, segment.entry.texts)
    assert sum(told) == segment.entry.rows
    assert children() == []
    return path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_any_number_of_workers_makes_the_same_words(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(words, "TASK_BATCHES", 1)
    segment = store.segments[0]

    assert segment.entry.rows > 4 * 256
    assert segment.entry.lexical is not None
    assert file_of(store, tmp_path / "x", workers) == (segment.folder / segment.entry.lexical).read_bytes()


@pytest.mark.slow
@linux
@pytest.mark.parametrize("kill", [1, 2, 9])
def test_workers_that_die_of_words_change_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: int
) -> None:
    monkeypatch.setattr(words, "TASK_BATCHES", 1)

    assert file_of(store, tmp_path / "x", 2, kill) == file_of(store, tmp_path / "y", 1)


def test_workers_that_cannot_start_change_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = file_of(store, tmp_path / "x", 1)
    monkeypatch.setattr(words, "TASK_BATCHES", 1)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))

    assert file_of(store, tmp_path / "y", 2) == whole


TEXTS = st.lists(st.tuples(st.text("ab.é火 ", max_size=12), st.text("xy", max_size=2)), max_size=5)


def of(piece: PostingsPiece) -> tuple[list[str], list[int], list[int], list[int]]:
    return piece.terms, piece.sizes.tolist(), piece.rows.tolist(), piece.counts.tolist()


@given(TEXTS, st.integers(0, 9))
def test_a_piece_comes_back_as_it_was(texts: list[tuple[str, str]], first: int) -> None:
    (piece,) = blocks(texts, Analyzer(), first)

    assert [of(one) for one in unpacked(packed(piece), range(first, first + len(texts)))] == [of(piece)]


@given(TEXTS, st.data())
def test_a_damaged_piece_is_an_error_or_a_piece(texts: list[tuple[str, str]], data: st.DataObject) -> None:
    body = packed(next(blocks(texts, Analyzer())))
    at = data.draw(st.integers(0, len(body) - 1))

    try:
        found = unpacked(body[:at] + data.draw(st.binary(max_size=4)) + body[at + 2 :], range(len(texts)))
    except (ValueError, pa.ArrowException, OSError):
        return

    assert all(piece.sizes.sum() == len(piece.rows) == len(piece.counts) for piece in found)


@pytest.mark.parametrize(
    ("terms", "sizes", "rows", "counts"),
    [
        (["", "b", "a"], [1, 1, 1], [0, 0, 0], [2, 1, 1]),
        (["", "a"], [1, 1], [0, 7], [1, 1]),
        (["", "a"], [1, 2], [0, 1, 0], [1, 1, 1]),
        (["", "a"], [1, 1], [0, 0], [1, 0]),
        (["", "a"], [1, 0], [0], [1]),
    ],
)
def test_postings_that_cannot_be_are_refused(
    terms: list[str], sizes: list[int], rows: list[int], counts: list[int]
) -> None:
    piece = PostingsPiece(terms, np.array(sizes), np.array(rows, "u4"), np.array(counts, "u4"))

    with pytest.raises(ValueError, match=r"cannot be|do not rise"):
        unpacked(packed(piece), range(2))
