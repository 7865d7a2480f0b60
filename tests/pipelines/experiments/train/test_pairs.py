"""Pairs to train on: what is read, what is refused by file and line, and which are drawn."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import ragidx
from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.indexer.arrays import slices
from ragidx.pipelines.experiments.train.own_pairs import knowing, own_pairs, without
from ragidx.pipelines.experiments.train.pairs import Pair, TrainingPairs, joined, read_pairs
from ragidx.pipelines.ingest.corpus import chunker_of

from ....raising import message_of


def _lines(n: int, name: str = "q") -> str:
    return "".join(json.dumps({"query": f"{name}{i}", "positive": f"p{i}", "negative": ["n"]}) + "\n" for i in range(n))


def _pairs(*sizes: int) -> TrainingPairs:
    data_sets = [[Pair(f"{group}-{n}", f"p{group}-{n}") for n in range(size)] for group, size in enumerate(sizes)]
    return TrainingPairs.of([str(group) for group in range(len(sizes))], data_sets)


def test_each_file_is_a_data_set_packed_or_not(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(_lines(3))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(_lines(2, "lake é ").encode()))
    (tmp_path / "notes.txt").write_text("no pairs")

    pairs = read_pairs([tmp_path])

    assert pairs["query"] == ["lake é 0", "lake é 1", "q0", "q1", "q2"]
    assert pairs["positive"] == ["p0", "p1", "p0", "p1", "p2"]
    assert pairs.groups.tolist() == [0, 0, 1, 1, 1]
    assert pairs.names == ("a.jsonl.gz", "b.jsonl")


def test_a_parquet_file_of_pairs_is_read_and_a_row_that_is_none_is_named(tmp_path: Path) -> None:
    rows = [
        {"query": "a", "positive": "b", "negative": ["n", "m"], "score": 1.0},
        {"query": "c", "positive": "d", "negative": None, "score": 0.5},
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"query": ["a", None], "positive": ["b", "d"]}), tmp_path / "b.parquet")
    parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "c.parquet")
    (tmp_path / "d.parquet").write_bytes(b"PAR1")

    pairs = read_pairs([tmp_path / "a.parquet"])

    assert (pairs["query"], pairs["positive"], pairs["negatives"]) == (["a", "c"], ["b", "d"], [["n", "m"], []])
    for name, said in (
        ("b.parquet", ":2: the pair has no text in `query`"),
        ("c.parquet", ":1: the pair has no text in `query`"),
        ("d.parquet", ": the file cannot be read:"),
    ):
        file = tmp_path / name
        assert message_of(CorpusError, lambda file=file: read_pairs([file])).startswith(f"{file}{said}")


def test_of_many_pairs_each_data_set_gives_as_many() -> None:
    drawn = _pairs(100, 5, 100).drawn(45, seed=0)

    assert np.bincount(drawn.groups).tolist() == [20, 5, 20]
    assert drawn["query"] == sorted(drawn["query"], key=lambda name: tuple(map(int, name.split("-"))))
    assert drawn["query"] == _pairs(100, 5, 100).drawn(45, seed=0)["query"]
    assert drawn["query"] != _pairs(100, 5, 100).drawn(45, seed=1)["query"]
    assert len(_pairs(3, 4).drawn(7, seed=0)) == 7


def test_no_text_that_is_held_out_is_trained_on() -> None:
    pairs = TrainingPairs.of("f", [[Pair(f"q{place % 10}", f"p{place}") for place in range(40)]])

    held, rest = pairs.split(5, seed=0)

    assert len(held) == 5
    assert {*rest["query"]}.isdisjoint(held["query"])
    assert {*rest["query"], *held["query"]} == {*pairs["query"]}


def test_an_answer_that_is_held_out_is_no_wrong_answer_in_training() -> None:
    texts = tuple(f"p{place}" for place in range(40))
    pairs = TrainingPairs.of("f", [[Pair(f"q{place}", text, texts) for place, text in enumerate(texts)]])

    held, rest = pairs.split(5, seed=0)

    assert rest["negatives"] == [[text for text in texts if text not in held["positive"]]] * len(rest)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "{}: the file holds no pair\n  hint: check that it is the right one"),
        (
            '{"query": "a"}\n',
            '{}:1: the pair has no text in `positive`\n  hint: write one JSON object a line: {{"query": "...", '
            '"positive": "..."}}',
        ),
        (_lines(1) + "[1]\n", '{}:2: the line is no JSON object\n  hint: write one JSON object a line: {{"query": '
         '"...", "positive": "..."}}'),
        ('{"query": " ", "positive": "b"}\n', "{}:1: the pair has no text in `query`"),
        ('{"query": "\\ud800", "positive": "b"}\n', "{}:1: `query` is not Unicode text\n  hint: write it in UTF-8"),
        ("{no\n", "{}:1: the line is no JSON: Expecting property name"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(text)

    assert message_of(CorpusError, lambda: read_pairs([file])).startswith(message.format(file))


def test_a_file_that_is_not_there_or_no_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes(b'{"query": "\xe9", "positive": "b"}\n')
    (tmp_path / "empty").mkdir()

    assert message_of(CorpusError, lambda: read_pairs([tmp_path / "none.jsonl"])) == (
        f"{tmp_path / 'none.jsonl'}: no such file or folder\n  hint: check the path"
    )
    assert message_of(CorpusError, lambda: read_pairs([tmp_path / "latin.jsonl"])) == (
        f"{tmp_path / 'latin.jsonl'}:1: the line is not UTF-8\n  hint: write the file as UTF-8"
    )
    assert message_of(CorpusError, lambda: read_pairs([tmp_path / "empty"])) == (
        f"{tmp_path / 'empty'}: the folder holds no file of pairs\n"
        "  hint: name them *.jsonl, *.jsonl.gz, *.jsonl.zst, *.parquet"
    )
    assert message_of(SpecError, lambda: read_pairs([])) == (
        "`pairs`: there are no pairs\n  hint: name a file of pairs, or a folder of them"
    )


def test_batches_are_of_one_data_set_and_have_no_text_twice() -> None:
    numbers, groups = np.arange(600) % 40, np.repeat([0, 1, 2], 200)
    every = [Pair(str(number), str(place)) for place, number in enumerate(numbers)]
    pairs = TrainingPairs.of("abc", list(slices(every, 200)))

    batches = list(pairs.batches(epochs=2, seed=0))

    assert len(batches) == 6
    for batch in batches:
        assert len(set(groups[batch].tolist())) == 1
        assert len(set(numbers[batch].tolist())) == len(batch) == 40


def test_texts_of_one_owner_are_in_no_batch_together_and_on_one_side_of_a_split() -> None:
    owners = [str(number % 50) for number in range(600)]
    pairs = TrainingPairs.of("a", [[Pair(str(n), str(n), owner=owner) for n, owner in enumerate(owners)]])

    for batch in pairs.batches(epochs=2, seed=0):
        assert len({owners[place] for place in batch}) == len(batch) > 30
    held, rest = pairs.split(20, seed=0)
    assert {*held["owner"]}.isdisjoint(rest["owner"])
    assert len(rest) > 300


def test_joined_pairs_keep_their_data_sets_apart() -> None:
    one, other = _pairs(2, 3), _pairs(4)

    both = joined(one, other)

    assert both["query"] == one["query"] + other["query"]
    assert both["owner"] == one["positive"] + other["positive"]
    assert both.groups.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert both.names == ("0", "1", "0")


def test_a_corpus_gives_sentences_and_headings_without_what_asks(tmp_path: Path) -> None:
    for number in range(60):
        text = f"# The house number {number} of all\n\n" + " ".join(
            f"Room {room} of house {number} has {room + number} windows and a door." for room in range(4)
        )
        (tmp_path / f"{number}.md").write_text(text)
    index = ragidx.build(tmp_path, tmp_path / "index")
    store, searcher = index.searcher.store, index.searcher
    chunker = chunker_of(searcher.encoder, searcher.spec.chunk)

    pairs = own_pairs(store, chunker, without={"0.md", "1.md"}, limit=10_000, seed=0)

    kinds = np.bincount(pairs.groups).tolist()
    assert pairs.names == ("sentence", "heading")
    assert kinds == [58 * 4, 58]
    assert {*pairs["owner"]} == {f"{number}.md" for number in range(2, 60)}
    assert all(query not in positive for query, positive in zip(pairs["query"], pairs["positive"], strict=True))
    fewer = own_pairs(store, chunker, without=set(), limit=20, seed=0)
    assert 10 <= np.bincount(fewer.groups)[0] <= 40
    assert own_pairs(store, chunker, without=set(), limit=20, seed=0)["query"] == fewer["query"]


LONG = "the lease of the house by the lake was signed by Ada Lovelace in the year 1840 in London"


@pytest.mark.parametrize(
    ("text", "is_known"),
    [
        ("who signed the lease", True),
        ("Please tell me: WHO signed the lease, and when?", True),  # it holds a query
        ("who signed a lease", False),
        ("They say the lease of the house by the lake was signed by Ada Lovelace, twice", True),  # 13 words of a text
        ("the house by the lake was signed by Ada", False),
        ("Owls: the owl hunts by night alone.", True),  # it holds a short text
        ("the owl hunts by day", False),
        ("Ada", True),
        ("Ada and the others", False),  # a query of one word is in many texts by chance
        ("湖边的房子是谁租的", True),
        ("请问湖边的房子是谁租的呢", True),
        ("湖边的房子很大", False),
    ],
)
def test_a_text_that_holds_what_is_asked_is_known(text: str, is_known: bool) -> None:
    knows = knowing(["Who signed the lease?", "Ada", "湖边的房子是谁租的？"], [LONG, "The owl hunts by night."])

    assert knows(text) is is_known


def test_a_pair_is_apart_where_neither_side_is_known_nor_part_of_a_text() -> None:
    texts = ["the house by the lake", "who signed the lease of it", "a bridge over the river"]
    pairs = TrainingPairs.of("f", [[*map(Pair, ["one", "two", "three"], texts)]])

    assert without(pairs, ["who signed the lease"], [LONG])["query"] == ["three"]
