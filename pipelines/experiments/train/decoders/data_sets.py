"""What a decoder learns from pairs, as sentence-transformers' trainer takes it.

pairs -> as many wrong answers for all of a file -> perhaps a teacher's vectors of all texts -> a data set of each file,
with a column for each side and wrong answer -> batches of one data set each, none with a text twice
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sentence_transformers.base.sampler import MultiDatasetDefaultBatchSampler

from ragidx.corpora.errors import SpecError
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.normalize import l2_normalize
from ragidx.pipelines.base.stages import Stages
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors, cache_folder
from ragidx.pipelines.experiments.train.decoders.negatives import filled, mined
from ragidx.pipelines.experiments.train.frozen import encoded
from ragidx.pipelines.experiments.train.keywords import StepKeywords
from ragidx.pipelines.experiments.train.pairs import TrainingPairs, shares_of, some_of
from ragidx.pipelines.ingest.resolve import Resolved

QUERY, POSITIVE, LABEL = "query", "positive", "label"

_NEGATIVE = "negative"
_SAMPLED = 256  # rows, whose tokens are counted


def with_wrong_answers(
    pairs: TrainingPairs, wanted: int | None, by: Resolved, cache: str | os.PathLike[str] | None, tell: Stages
) -> tuple[TrainingPairs, tuple[str, ...]]:
    """The pairs, all of a data set with equally many wrong answers; and a note for people on where these are from."""
    of_files, groups = pairs["negatives"], pairs.groups
    most = int(any(of_files)) if wanted is None else wanted
    negatives = [texts[:most] for texts in of_files]
    n_of_files = sum(map(len, negatives))
    if wanted and any(len(texts) < wanted for texts in negatives):
        near = mined(pairs, encoded(pairs, by, cache, tell), wanted)
        negatives = [[*texts, *others][:wanted] for texts, others in zip(negatives, near, strict=True)]
    n_found = sum(map(len, negatives)) - n_of_files
    having = {group for group, texts in zip(groups, of_files, strict=True) if texts}  # no file without any gets them
    negatives = filled(pairs, negatives, [int(group in having) if wanted is None else wanted for group in groups])
    n = sum(map(len, negatives))
    note = f"Of {n:,} wrong answers {n_of_files:,} are of the files, {n_found:,} were found"
    note += f", {n - n_of_files - n_found:,} are drawn, or come twice."
    return pairs.with_negatives(negatives), (note,) if n else ()


def labels_of(
    pairs: TrainingPairs, teacher: Resolved, cache: str | os.PathLike[str] | None, tell: Stages
) -> list[Floats]:
    """The teacher's vectors of each pair, (columns, d) of unit length."""
    answers = [[text, *wrong] for text, wrong in zip(pairs["positive"], pairs["negatives"], strict=True)]
    with RawVectors(teacher, cache_folder(cache)) as vectors:
        tell(f"encoding by {teacher.encoder_spec.model}")
        queries = l2_normalize(vectors.queries(pairs["query"])).vectors
        texts = l2_normalize(vectors.texts([text for row in answers for text in row])).vectors
    parts = np.split(texts, np.cumsum([len(row) for row in answers])[:-1])
    return [np.concatenate([query[None], part]) for query, part in zip(queries, parts, strict=True)]


def data_sets(pairs: TrainingPairs, labels: Sequence[Floats] | None) -> datasets.DatasetDict:
    """The data sets of more than one pair by name, each with a column for each side."""
    by_name, groups = {}, pairs.groups
    for number, name in enumerate(pairs.names):
        places = np.flatnonzero(groups == number)
        if len(places) > 1:
            table = pairs.some(places).table
            columns = {side: table[side] for side in (QUERY, POSITIVE)}
            for place in range(len(table["negatives"][0])):
                columns[f"{_NEGATIVE}_{place + 1}"] = pc.list_element(table["negatives"], place)
            if labels is not None:
                columns[LABEL] = _nested(np.stack([labels[place] for place in places.tolist()]))
            by_name[name] = datasets.Dataset(pa.table(columns), fingerprint=str(number))  # else all of it is hashed
    return datasets.DatasetDict(by_name)


def _nested(rows: Floats) -> pa.Array:
    """(n, c, d) as lists of lists."""
    flat = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[2])
    return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def longest_of(data: datasets.DatasetDict) -> list[str]:
    """The longest texts, one or two: what a mini-batch of has to fit into memory."""
    longest: set[str] = set()
    for part in data.values():
        for name in _texts_of(part):
            lengths = pc.utf8_length(part.data[name])
            longest.add(part[int(pc.index(lengths, pc.max(lengths)).as_py())][name])
    return sorted(longest, key=len)[-2:]


def sampled(data: datasets.DatasetDict, seed: int) -> list[list[str]]:
    """The texts of some random rows, of all data sets."""
    drawn, ends = np.random.default_rng(seed), np.cumsum([len(part) for part in data.values()])
    places = np.sort(drawn.choice(ends[-1], min(_SAMPLED, int(ends[-1])), replace=False))
    rows = []
    for start, part in zip([0, *ends[:-1]], data.values(), strict=True):
        here = places[(places >= start) & (places < start + len(part))] - start
        rows += [[row[name] for name in _texts_of(part)] for row in part.select(here.tolist())]
    return rows


def _texts_of(part: datasets.Dataset) -> list[str]:
    return [name for name in part.column_names if name != LABEL]


class Batches(MultiDatasetDefaultBatchSampler):
    """All batches of a run, as one epoch: the library ends its own at n / batch of them, and texts that come twice make
    more.
    """

    def __init__(self, *args: Any, made: Sequence[list[int]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made = made

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.made)

    def __len__(self) -> int:
        return len(self.made)


def batches_of(
    data: datasets.DatasetDict, how: StepKeywords, weights: Mapping[str, float] | None = None
) -> list[list[int]]:
    """Numbers of rows, counted through all data sets: each batch of one of them, without a text twice, in random order.

    There are as many as `epochs` passes have, or as `steps` says. In a pass the batches of a data set come as often as
    its weight says; without weights each comes once.

    Raises:
        SpecError: none has two rows.
    """
    drawn, batches = np.random.default_rng(how["seed"]), list[list[int]]()
    numbers = {name: _numbers(part) for name, part in data.items()}
    for epoch in itertools.count(1):
        of_epoch, start = list[list[int]](), 0
        for name, rows in numbers.items():
            fewest = 2 if rows.shape[1] == len((QUERY, POSITIVE)) else 1  # a wrong answer of its own is enough
            for share in shares_of((weights or {}).get(name, 1.0)):
                packed = _packed(rows, drawn.permutation(len(rows)), how["batch"])
                made = [[start + place for place in batch] for batch in packed if len(batch) >= fewest]
                of_epoch += some_of(made, share)
            start += len(rows)
        batches += [of_epoch[place] for place in drawn.permutation(len(of_epoch)).tolist()]
        if not batches:
            raise SpecError(
                "no file has two pairs of different texts: the other pairs of its file are a query's wrong answers",
                "put pairs of a kind into one file",
                where="`pairs`",
            )
        if (epoch == how["epochs"]) if how["steps"] is None else (len(batches) >= how["steps"]):
            break
    return batches[: how["steps"]]


def _numbers(part: datasets.Dataset) -> Ints:
    """(n, columns) of each row's texts: equal texts have the same number."""
    columns = [part.data[name].combine_chunks() for name in _texts_of(part)]
    numbers: Ints = pa.chunked_array(columns).combine_chunks().dictionary_encode().indices.to_numpy()
    return numbers.reshape(len(columns), -1).T


def _packed(rows: Ints, order: Ints, size: int) -> list[list[int]]:
    """Rows (n, columns) in batches of `size`, none with a number twice but within a row.

    Each goes to the first batch that has room, behind the last one that has a number of it.
    """
    batches: list[list[int]] = [[]]
    first, free = 0, dict[int, int]()  # the first that has room; behind the last one of a number
    for place in order.tolist():
        texts = set(rows[place].tolist())
        number = max(first, *(free.get(text, 0) for text in texts))
        while number < len(batches) and len(batches[number]) == size:
            number += 1
        if number == len(batches):
            batches.append([])
        batches[number].append(place)
        free |= dict.fromkeys(texts, number + 1)
        while first < len(batches) and len(batches[first]) == size:
            first += 1
    return batches
