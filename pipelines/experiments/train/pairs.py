"""Pairs to train on: a question, or any text, and a text that answers it.

    {"query": "who signed?", "positive": "The lease was signed by Ada."}    one a line, in files of JSON Lines, or
    columns of these names in parquet

files and folders, packed or not -> `TrainingPairs`, each file a data set of its own -> some of them, as many of each ->
batches of one data set, none with a text twice.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.corpora.errors import CorpusError, SpecError, check_machine, lone_surrogate
from ragidx.corpora.evalset_files import ENDINGS, LineError, lines_of, take_lines
from ragidx.indexer.arrays import Ints, slices

_LINE = 'write one JSON object a line: {"query": "...", "positive": "..."}'
_BATCH = 256
_PARQUET = ".parquet"
_NAMES = (*(f".jsonl{ending}" for ending in ENDINGS), _PARQUET)
_COLUMNS = ("query", "positive", "negative")


@dataclass(frozen=True)
class TrainingPairs:
    """Pairs of several data sets.

    Attributes:
        queries: one side.
        positives: the other; row i belongs to query i.
        groups: (n,) the number of each pair's data set.
        names: of the data sets.
        owners: what each is of, a document say, of which another text is no wrong answer; by default the positive.
        negatives: texts that do not answer; by default none. Only the training of decoders reads them.
    """

    queries: list[str]
    positives: list[str]
    groups: Ints
    names: tuple[str, ...]
    owners: list[str] = field(default_factory=list)
    negatives: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.owners:
            object.__setattr__(self, "owners", self.positives)
        if not self.negatives:
            object.__setattr__(self, "negatives", [()] * len(self.queries))

    def __len__(self) -> int:
        return len(self.queries)

    def some(self, numbers: Ints) -> TrainingPairs:
        """Those with these numbers."""
        places = numbers.tolist()
        return TrainingPairs(
            [self.queries[place] for place in places],
            [self.positives[place] for place in places],
            self.groups[numbers],
            self.names,
            [self.owners[place] for place in places],
            [self.negatives[place] for place in places],
        )

    def drawn(self, n: int, seed: int) -> TrainingPairs:
        """At most n, as many of each data set as there are; in their order."""
        if n >= len(self):
            return self
        sizes, left, share = np.bincount(self.groups, minlength=len(self.names)), n, np.zeros(len(self.names), np.int64)
        for rank, group in enumerate(np.argsort(sizes, kind="stable")):
            share[group] = min(sizes[group], left // (len(sizes) - rank))
            left -= share[group]
        order = np.random.default_rng(seed).permutation(len(self))
        taken = [order[self.groups[order] == group][: share[group]] for group in range(len(sizes))]
        return self.some(np.sort(np.concatenate(taken)))

    def split(self, n: int, seed: int) -> tuple[TrainingPairs, TrainingPairs]:
        """Those of random owners, n or more, and the others without a text that is in the first, nor as a wrong answer
        one that is an answer there.
        """
        owners = numbered(self.owners)
        counts = np.bincount(owners)
        order = np.random.default_rng(seed).permutation(len(counts))
        held = np.isin(owners, order[: 1 + np.searchsorted(np.cumsum(counts[order]), n)])
        first = self.some(np.flatnonzero(held))
        seen = {*first.queries, *first.positives}
        rest = [
            place
            for place in np.flatnonzero(~held).tolist()
            if seen.isdisjoint((self.queries[place], self.positives[place]))
        ]
        others, answers = self.some(np.array(rest, np.int64)), set(first.positives)
        kept = [tuple(text for text in texts if text not in answers) for texts in others.negatives]
        return first, dataclasses.replace(others, negatives=kept)

    def batches(self, epochs: int, seed: int) -> Iterator[Ints]:
        """Numbers of pairs, of one data set each and no query or owner twice, in random order.

        The first pair of each owner comes before all second ones, and so on; a query that comes again is skipped.
        """
        queries, owners = numbered(self.queries), numbered(self.owners)
        drawn = np.random.default_rng(seed)
        for _ in range(epochs):
            batches = []
            for group in np.unique(self.groups):
                order = drawn.permutation(np.flatnonzero(self.groups == group))
                times = _times(owners[order])
                for turn in range(times.max() + 1):
                    of_turn = order[times == turn]
                    for drawn_at_once in slices(of_turn, _BATCH):
                        part = drawn_at_once[np.unique(queries[drawn_at_once], return_index=True)[1]]
                        if len(part) > 1:
                            batches.append(part)
            yield from (batches[place] for place in drawn.permutation(len(batches)))


def numbered(texts: Sequence[str]) -> Ints:
    """The number of each text among all different ones, sorted; an array of texts would give each the longest's room.

    >>> numbered(["b", "a", "b"]).tolist()
    [1, 0, 1]
    """
    numbers = {text: number for number, text in enumerate(sorted(set(texts)))}
    return np.fromiter((numbers[text] for text in texts), np.int64, len(texts))


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


def joined(one: TrainingPairs, other: TrainingPairs) -> TrainingPairs:
    """All pairs of both, the data sets of the first before those of the other."""
    return TrainingPairs(
        one.queries + other.queries,
        one.positives + other.positives,
        np.concatenate([one.groups, other.groups + len(one.names)]),
        one.names + other.names,
        one.owners + other.owners,
        one.negatives + other.negatives,
    )


def read_pairs(paths: Sequence[str | Path]) -> TrainingPairs:
    """The pairs of files, and of the files of folders.

    Raises:
        CorpusError: a file is missing, unreadable or empty, or has lines that are no pairs.
        SpecError: there is no path.
    """
    files = [file for path in paths for file in _files(Path(path))]
    if not files:
        raise SpecError("there are no pairs", "name a file of pairs, or a folder of them", where="`pairs`")
    found: list[tuple[str, str, tuple[str, ...]]] = []
    sizes = []
    for file in files:
        before = len(found)
        if file.suffix == _PARQUET:
            take_lines(file, "pair", _rows(file), lambda row: found.append(_pair(row)))
        else:
            take_lines(file, "pair", lines_of(file), lambda line: found.append(_pair(_object(line))))
        sizes.append(len(found) - before)
    queries, positives, negatives = zip(*found, strict=True)
    names = tuple(file.name for file in files)
    if len(set(names)) < len(names):  # of several folders
        names = tuple(str(file) for file in files)
    groups = np.repeat(np.arange(len(files)), sizes)
    return TrainingPairs(list(queries), list(positives), groups, names, negatives=list(negatives))


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
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as stored:
            names = [name for name in _COLUMNS if name in stored.schema_arrow.names]
            number = 0
            for batch in stored.iter_batches(columns=names):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pa.ArrowInvalid, OSError) as fault:
        check_machine(fault, file)
        raise CorpusError(f"the file cannot be read: {fault}", "create the file again", where=str(file)) from fault


def _object(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as fault:
        raise LineError(f"the line is no JSON: {fault}", _LINE) from fault
    if not isinstance(row, dict):
        raise LineError("the line is no JSON object", _LINE)
    return row


def _pair(row: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    wrong = [] if row.get("negative") is None else row["negative"]
    negatives = wrong if isinstance(wrong, list) else [wrong]
    for name, text in (
        ("query", row.get("query")),
        ("positive", row.get("positive")),
        *(("negative", n) for n in negatives),
    ):
        if not isinstance(text, str) or not text.strip():
            raise LineError(f"the pair has no text in `{name}`", _LINE)
        if lone_surrogate(text) is not None:
            raise LineError(f"`{name}` is not Unicode text", "write it in UTF-8")
    return row["query"], row["positive"], tuple(negatives)
