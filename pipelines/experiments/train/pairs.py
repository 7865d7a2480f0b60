"""Pairs to train on: a question, or any text, and a text that answers it.

    {"query": "who signed?", "positive": "The lease was signed by Ada."}    one a line, in files of JSON Lines, or
    columns of these names in parquet

files and folders, packed or not -> `TrainingPairs`, one Arrow table, each file a data set of its own -> some of them,
as many of each -> batches of one data set, none with a text twice. `FILE=2`: the batches of this file
come twice as often.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from ragidx.corpora.errors import CorpusError, SpecError, check_machine, lone_surrogate
from ragidx.corpora.evalset_files import ENDINGS, LineError, lines_of, take_lines
from ragidx.indexer.arrays import Ints, numbers_of, slices

T = TypeVar("T")

FEWEST_PAIRS = 40

_HELD_OUT, _MOST_HELD_OUT, _MOST_WEIGHT = 0.05, 1_000, 1_000
_LINE = 'write one JSON object a line: {"query": "...", "positive": "..."}'
_BATCH = 256
_PARQUET = ".parquet"
_NAMES = (*(f".jsonl{ending}" for ending in ENDINGS), _PARQUET)
_COLUMNS = ("query", "positive", "negative")  # of a file
_TEXT = pa.large_string()


@dataclass(frozen=True, slots=True)
class Pair:
    """A text that asks, and a text that answers it.

    Attributes:
        query: the text that asks.
        positive: the text that answers.
        negatives: texts that do not answer. Only the training of decoders reads them.
        owner: what the answer is a part of, such as a document: another text of it is no wrong answer. "": the answer
            belongs to nothing but itself.
    """

    query: str
    positive: str
    negatives: tuple[str, ...] = ()
    owner: str = ""


@dataclass(frozen=True)
class TrainingPairs:
    """Pairs of several data sets, by column: `pairs["query"]` is a list of texts.

    Attributes:
        table: a row a pair, with the fields of a `Pair` and `group`, the number of its data set.
        names: the data sets, by number.
        weights: how often the batches of each data set come in a pass over the pairs, by number.
    """

    table: pa.Table
    names: tuple[str, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(
        cls, names: Sequence[str], data_sets: Sequence[Sequence[Pair]], weights: Sequence[float] = ()
    ) -> TrainingPairs:
        """The pairs of each data set, one after the other; without weights each has 1."""
        every = [pair for part in data_sets for pair in part]
        columns = {
            "query": pa.array([pair.query for pair in every], _TEXT),
            "positive": pa.array([pair.positive for pair in every], _TEXT),
            "negatives": _lists([pair.negatives for pair in every]),
            "owner": pa.array([pair.owner or pair.positive for pair in every], _TEXT),
            "group": pa.array(np.repeat(np.arange(len(data_sets)), [len(part) for part in data_sets])),
        }
        return cls(pa.table(columns), tuple(names), tuple(weights) or (1.0,) * len(names))

    def __len__(self) -> int:
        return self.table.num_rows  # type: ignore[no-any-return]

    def __getitem__(self, column: str) -> list[Any]:
        return self.table[column].to_pylist()  # type: ignore[no-any-return]

    @property
    def groups(self) -> Ints:
        """(n,) the number of each pair's data set."""
        return numbers_of(self.table["group"].combine_chunks(), "i8")

    def with_negatives(self, negatives: Sequence[Sequence[str]]) -> TrainingPairs:
        """The same pairs, with other texts that do not answer."""
        return self.replaced("negatives", _lists(negatives))

    def some(self, numbers: Ints) -> TrainingPairs:
        """The pairs with these numbers."""
        return replace(self, table=self.table.take(pa.array(numbers)))

    def held_and_rest(
        self, limit: int | None, seed: int, most: int = _MOST_HELD_OUT
    ) -> tuple[TrainingPairs, TrainingPairs]:
        """The pairs that say what was learnt, some `most` at most, and those that are learnt from, of `limit` drawn.

        Raises:
            SpecError: there are too few.
        """
        drawn = self if limit is None else self.drawn(limit, seed)
        if len(drawn) < FEWEST_PAIRS:
            raise SpecError(f"{len(drawn):,} pairs teach nothing", f"give {FEWEST_PAIRS} or more", where="`pairs`")
        held, rest = drawn.split(min(most, max(FEWEST_PAIRS // 2, round(_HELD_OUT * len(drawn)))), seed)
        if len(rest) < FEWEST_PAIRS // 2:
            few = f"{len(rest):,} pairs are left of texts that are not held out"
            raise SpecError(few, "give pairs of more texts, or take more with `limit`", where="`pairs`")
        return held, rest

    def drawn(self, n: int, seed: int) -> TrainingPairs:
        """At most n random pairs in their order, as many of each data set, where it has them."""
        if n >= len(self):
            return self
        groups = self.groups
        sizes, left, share = np.bincount(groups, minlength=len(self.names)), n, np.zeros(len(self.names), np.int64)
        for rank, group in enumerate(np.argsort(sizes, kind="stable")):
            share[group] = min(sizes[group], left // (len(sizes) - rank))
            left -= share[group]
        order = np.random.default_rng(seed).permutation(len(self))
        taken = [order[groups[order] == group][: share[group]] for group in range(len(sizes))]
        return self.some(np.sort(np.concatenate(taken)))

    def split(self, n: int, seed: int) -> tuple[TrainingPairs, TrainingPairs]:
        """The pairs of random owners, n or more; and the others that share no text with these, without wrong answers
        that are answers there.
        """
        owners = self._numbered("owner")
        counts = np.bincount(owners)
        order = np.random.default_rng(seed).permutation(len(counts))
        is_held = np.isin(owners, order[: 1 + np.searchsorted(np.cumsum(counts[order]), n)])
        held, others = self.some(np.flatnonzero(is_held)), self.some(np.flatnonzero(~is_held))
        answers = set(held["positive"])
        seen = answers.union(held["query"])
        is_apart = [seen.isdisjoint(texts) for texts in zip(others["query"], others["positive"], strict=True)]
        rest = others.some(np.flatnonzero(is_apart))
        return held, rest.with_negatives(
            [[text for text in texts if text not in answers] for texts in rest["negatives"]]
        )

    def batches(self, epochs: int, seed: int) -> Iterator[Ints]:
        """Numbers of pairs, of one data set each and no query or owner twice, in random order.

        The first pair of each owner comes before all second ones, and so on; a query that comes again is skipped.
        """
        queries, owners, groups = self._numbered("query"), self._numbered("owner"), self.groups
        drawn = np.random.default_rng(seed)
        for _ in range(epochs):
            batches: list[Ints] = []
            for group in np.unique(groups):
                for share in shares_of(self.weights[group]):
                    order = drawn.permutation(np.flatnonzero(groups == group))
                    times, made = _times(owners[order]), []
                    for turn in range(times.max() + 1):
                        for block in slices(order[times == turn], _BATCH):
                            part = block[np.unique(queries[block], return_index=True)[1]]
                            if len(part) > 1:
                                made.append(part)
                    batches += some_of(made, share)
            yield from (batches[place] for place in drawn.permutation(len(batches)))

    def replaced(self, column: str, values: pa.Array) -> TrainingPairs:
        """The same pairs, with other values in a column of the table."""
        return replace(self, table=self.table.set_column(self.table.column_names.index(column), column, values))

    def _numbered(self, column: str) -> Ints:
        """The number of each text among all different ones, sorted."""
        return numbers_of(pc.rank(self.table[column], tiebreaker="dense"), "i8") - 1


def joined(pairs: TrainingPairs, others: TrainingPairs) -> TrainingPairs:
    """All pairs of both, the data sets of the first before those of the other."""
    others = others.replaced("group", pa.array(others.groups + len(pairs.names)))
    tables = [pairs.table, others.table]
    return TrainingPairs(pa.concat_tables(tables), pairs.names + others.names, pairs.weights + others.weights)


def shares_of(weight: float) -> list[float]:
    """The share of a data set's batches that each packing of it gives to a pass, by its weight.

    >>> shares_of(1), shares_of(2.25), shares_of(0.5)
    ([1.0], [1.0, 1.0, 0.25], [0.5])
    """
    whole = int(weight)
    return [1.0] * whole + [weight - whole] * (weight > whole)


def some_of(batches: list[T], share: float) -> list[T]:
    """The first of them by their share, one at the least."""
    return batches[: max(1, math.floor(share * len(batches) + 0.5))]


def _lists(texts: Sequence[Sequence[str]]) -> pa.Array:
    return pa.array(texts, pa.list_(_TEXT))


def _times(values: Ints) -> Ints:
    """How often each value has come before.

    >>> _times(np.array([7, 5, 7, 7, 5])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(values, kind="stable")
    starts = np.searchsorted(values[order], values[order])
    times = np.empty(len(values), np.int64)
    times[order] = np.arange(len(values)) - starts
    return times


def read_pairs(paths: Sequence[str | Path]) -> TrainingPairs:
    """The pairs of files, and of the files of folders; `PATH=2` gives them a weight, unless there is such a path.

    Raises:
        CorpusError: a file is missing, unreadable or empty, or has lines that are no pairs.
        SpecError: there is no path, or a weight is none.
    """
    weighted = [(file, weight) for path, weight in map(_weighted, paths) for file in _files(path)]
    files = [file for file, _ in weighted]
    if not files:
        raise SpecError("there are no pairs", "name a file of pairs, or a folder of them", where="`pairs`")
    data_sets: list[list[Pair]] = []
    for file in files:
        data_sets.append([])
        lines: Iterator[tuple[int, Any]] = _rows(file) if file.suffix == _PARQUET else lines_of(file)
        take_lines(file, "pair", lines, lambda line: data_sets[-1].append(_pair(line)))
    names = [file.name for file in files]
    if len(set(names)) < len(names):  # of several folders
        names = [str(file) for file in files]
    return TrainingPairs.of(names, data_sets, [weight for _, weight in weighted])


def _weighted(named: str | Path) -> tuple[Path, float]:
    head, found, written = str(named).rpartition("=")
    if not found or Path(named).exists() or not Path(head).exists():
        return Path(named), 1.0
    try:
        weight = float(written)
    except ValueError:
        weight = math.nan
    if not 0 < weight <= _MOST_WEIGHT:
        hint = f"give a number above 0, {_MOST_WEIGHT:,} at most: {head}=2"
        raise SpecError(f"'{written}' is no weight of a file", hint, where="`pairs`")
    return Path(head), weight


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.exists():
            raise CorpusError("no such file or folder", "check the path", where=str(path))
        return [path]
    files = sorted(file for file in path.iterdir() if file.name.endswith(_NAMES))
    if not files:
        raise CorpusError("the folder holds no file of pairs", f"name them *{', *'.join(_NAMES)}", where=str(path))
    return files


def _rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, row) of a parquet file; numbers start at 1."""
    try:
        with parquet.ParquetFile(file) as stored:
            names = [name for name in _COLUMNS if name in stored.schema_arrow.names]
            rows = (row for batch in stored.iter_batches(columns=names) for row in batch.to_pylist())
            yield from enumerate(rows, 1)
    except (pa.ArrowInvalid, OSError) as fault:
        check_machine(fault, file)
        raise CorpusError(f"the file cannot be read: {fault}", "create the file again", where=str(file)) from fault


def _pair(written: str | Mapping[str, Any]) -> Pair:
    """Of a line of JSON, or a row."""
    try:
        row = json.loads(written) if isinstance(written, str) else written
    except ValueError as fault:
        raise LineError(f"the line is no JSON: {fault}", _LINE) from fault
    if not isinstance(row, Mapping):
        raise LineError("the line is no JSON object", _LINE)
    given = [] if row.get("negative") is None else row["negative"]
    negatives = given if isinstance(given, list) else [given]
    texts = [
        ("query", row.get("query")),
        ("positive", row.get("positive")),
        *(("negative", text) for text in negatives),
    ]
    for name, text in texts:
        if not isinstance(text, str) or not text.strip():
            raise LineError(f"the pair has no text in `{name}`", _LINE)
        if lone_surrogate(text) is not None:
            raise LineError(f"`{name}` is not Unicode text", "write it in UTF-8")
    return Pair(row["query"], row["positive"], tuple(negatives))
