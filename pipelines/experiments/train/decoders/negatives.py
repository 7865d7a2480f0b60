"""Wrong answers of each query: the nearest texts of its data set that are no answers, or others of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ragidx.indexer.arrays import slices
from ragidx.indexer.normalize import l2_normalize
from ragidx.pipelines.experiments.train.frozen import Sides
from ragidx.pipelines.experiments.train.pairs import TrainingPairs

_MARGIN = 0.95  # of the cosine of a query's own text
_AT_ONCE = 1024  # queries whose cosines are held


def mined(pairs: TrainingPairs, sides: Sides, n: int) -> list[list[str]]:
    """For each query the n texts of its data set that are nearest to it, of those with less than 95 % of the cosine of
    its own (NV-Retriever, Moreira et al. 2024); fewer where there are not so many.

    A text that another pair has as the answer to the same query is none of them, nor another text of its owner.
    """
    nearest: list[list[str]] = [[] for _ in range(len(pairs))]
    answering, texts, owners = _answering(pairs), pairs["positive"], pairs["owner"]
    queries, positives = l2_normalize(sides.queries).vectors, l2_normalize(sides.positives).vectors
    for group in np.unique(pairs.groups):
        places = np.flatnonzero(pairs.groups == group)
        for part in slices(places, _AT_ONCE):
            cosines = queries[part] @ positives[places].T
            of_pairs = (queries[part] * positives[part]).sum(axis=1, keepdims=True)
            cosines[cosines >= of_pairs * np.where(of_pairs > 0, _MARGIN, 1 / _MARGIN)] = -np.inf
            for row, place in zip(cosines, part.tolist(), strict=True):
                for near in np.argsort(-row, kind="stable"):
                    if len(nearest[place]) == n or row[near] == -np.inf:
                        break
                    if owners[places[near]] not in answering[place] and texts[places[near]] not in nearest[place]:
                        nearest[place].append(texts[places[near]])
    return nearest


def filled(pairs: TrainingPairs, negatives: Sequence[Sequence[str]], wanted: Sequence[int]) -> list[list[str]]:
    """As many wrong answers as wanted: those that there are, again, and where there are none other texts of the data
    set, of other owners; none for a data set in which a query has no such text.
    """
    enough = [[*itertools.islice(itertools.cycle(texts), n)] for texts, n in zip(negatives, wanted, strict=True)]
    groups = pairs.groups
    lacking = {groups[place] for place, texts in enumerate(enough) if len(texts) < wanted[place]}
    answering, texts, owners = _answering(pairs), pairs["positive"], pairs["owner"]
    for group in lacking:
        places = np.flatnonzero(groups == group).tolist()
        for turn, place in enumerate(places):
            if not enough[place] and wanted[place]:
                after = itertools.chain(places[turn:], places[:turn])
                others = (texts[other] for other in after if owners[other] not in answering[place])
                drawn = [*itertools.islice(others, wanted[place])]
                enough[place] = [*itertools.islice(itertools.cycle(drawn), wanted[place])]
        if not all(enough[place] for place in places):
            for place in places:
                enough[place] = []
    return enough


def _answering(pairs: TrainingPairs) -> list[set[str]]:
    """Of each pair, the owners of all texts that answer its query."""
    answering: dict[str, set[str]] = {}
    for query, owner in zip(pairs["query"], pairs["owner"], strict=True):
        answering.setdefault(query, set()).add(owner)
    return [answering[query] for query in pairs["query"]]
