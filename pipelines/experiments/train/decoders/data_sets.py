"""What a decoder learns from pairs, as sentence-transformers' trainer takes it.

pairs -> a column for each side and wrong answer -> perhaps a teacher's vectors of them -> a data set of each file ->
batches of one data set each, none with a text twice
"""

from __future__ import annotations

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
from ragidx.pipelines.experiments.train.decoders.how import How
from ragidx.pipelines.experiments.train.decoders.material import filled, mined
from ragidx.pipelines.experiments.train.frozen import encoded
from ragidx.pipelines.experiments.train.pairs import TrainingPairs
from ragidx.pipelines.ingest.resolve import Resolved

QUERY, POSITIVE, LABEL = "query", "positive", "label"

_NEGATIVE = "negative"
_SAMPLED = 256  # rows, whose tokens are counted


def columns_of(
    pairs: TrainingPairs, negatives: int | None, by: Resolved, cache: str | os.PathLike[str] | None, tell: Stages
) -> tuple[list[dict[str, str]], tuple[str, ...]]:
    """The texts of each pair, by column, as many wrong answers for all of a data set; and what to say of them."""
    own = [list(texts) for texts in pairs.negatives]
    wanted = int(any(own)) if negatives is None else negatives
    wrong = [texts[:wanted] for texts in own]
    if negatives and any(len(texts) < negatives for texts in wrong):
        found = mined(pairs, encoded(pairs, by, cache, tell), negatives)
        wrong = [[*texts, *others][:negatives] for texts, others in zip(wrong, found, strict=True)]
    n_own = sum(min(len(texts), wanted) for texts in own)
    n_found = sum(map(len, wrong)) - n_own
    if negatives is None:  # no file without any gets them
        having = {group for group, texts in zip(pairs.groups.tolist(), own, strict=True) if texts}
        wanted_of = [int(group in having) for group in pairs.groups.tolist()]
    else:
        wanted_of = [negatives] * len(pairs)
    wrong = filled(pairs, wrong, wanted_of)
    columns = [
        {QUERY: query, POSITIVE: text, **{f"{_NEGATIVE}_{number}": one for number, one in enumerate(others, 1)}}
        for query, text, others in zip(pairs.queries, pairs.positives, wrong, strict=True)
    ]
    n = sum(map(len, wrong))
    if not n:
        return columns, ()
    note = f"Of {n:,} wrong answers {n_own:,} are of the files, {n_found:,} were found"
    return columns, (f"{note}, {n - n_own - n_found:,} are drawn, or come twice.",)


def labels_of(
    columns: Sequence[Mapping[str, str]], teacher: Resolved, cache: str | os.PathLike[str] | None, tell: Stages
) -> list[Floats]:
    """(columns, d) of each pair: the teacher's vectors of unit length."""
    with RawVectors(teacher, cache_folder(cache)) as vectors:
        tell(f"encoding by {teacher.encoder_spec.model}")
        queries = vectors.queries([row[QUERY] for row in columns])
        texts = [text for row in columns for name, text in row.items() if name != QUERY]
        others = l2_normalize(vectors.texts(texts)).vectors
    ends = np.cumsum([len(row) - 1 for row in columns])[:-1]
    parts = np.split(others, ends)
    own = l2_normalize(queries).vectors
    return [np.concatenate([one[None], part]) for one, part in zip(own, parts, strict=True)]


def data_sets(
    pairs: TrainingPairs, columns: Sequence[Mapping[str, str]], labels: Sequence[Floats] | None
) -> datasets.DatasetDict:
    """By name, a column for each side."""
    found = {}
    for number, name in enumerate(pairs.names):
        places = np.flatnonzero(pairs.groups == number).tolist()
        if len(places) > 1:
            made: dict[str, Any] = {one: [columns[place][one] for place in places] for one in columns[places[0]]}
            if labels is not None:
                made[LABEL] = _nested(np.stack([labels[place] for place in places]))
            found[name] = datasets.Dataset(pa.table(made), fingerprint=str(number))  # else all of it is hashed
    return datasets.DatasetDict(found)


def _nested(rows: Floats) -> pa.Array:
    """(n, c, d) as lists of lists."""
    flat = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[2])
    return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def longest_of(data: datasets.DatasetDict) -> list[str]:
    """The longest texts, one or two: what a mini-batch of has to fit into memory."""
    found: set[str] = set()
    for part in data.values():
        for name in _texts_of(part):
            lengths = pc.utf8_length(part.data[name])
            found.add(part[int(pc.index(lengths, pc.max(lengths)).as_py())][name])
    return sorted(found, key=len)[-2:]


def sampled(data: datasets.DatasetDict, seed: int) -> list[list[str]]:
    """The texts of some random rows, of all data sets."""
    drawn, ends = np.random.default_rng(seed), np.cumsum([len(part) for part in data.values()])
    places = np.sort(drawn.choice(ends[-1], min(_SAMPLED, int(ends[-1])), replace=False))
    rows = []
    for start, part in zip([0, *ends[:-1]], data.values(), strict=True):
        own = places[(places >= start) & (places < start + len(part))] - start
        rows += [[row[name] for name in _texts_of(part)] for row in part.select(own.tolist())]
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


def batches_of(data: datasets.DatasetDict, how: How) -> list[list[int]]:
    """Numbers of rows, counted through all data sets: each batch of one of them, without a text twice, in random order.

    Raises:
        SpecError: none has two rows.
    """
    drawn, made = np.random.default_rng(how.seed), list[list[int]]()
    numbers = [_numbers(part) for part in data.values()]
    for _ in range(how.epochs):
        of_epoch, start = list[list[int]](), 0
        for rows in numbers:
            fewest = 2 if rows.shape[1] == len((QUERY, POSITIVE)) else 1  # a wrong answer of its own is enough
            packed = _packed(rows, drawn.permutation(len(rows)), how.batch)
            of_epoch += [[start + place for place in batch] for batch in packed if len(batch) >= fewest]
            start += len(rows)
        made += [of_epoch[place] for place in drawn.permutation(len(of_epoch)).tolist()]
    if not made:
        raise SpecError(
            "no file has two pairs of different texts: the other pairs of its file are a query's wrong answers",
            "put pairs of a kind into one file",
            where="`pairs`",
        )
    return made


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
        own = set(rows[place].tolist())
        number = max(first, *(free.get(one, 0) for one in own))
        while number < len(batches) and len(batches[number]) == size:
            number += 1
        if number == len(batches):
            batches.append([])
        batches[number].append(place)
        free |= dict.fromkeys(own, number + 1)
        while first < len(batches) and len(batches[first]) == size:
            first += 1
    return batches
