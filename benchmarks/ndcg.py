"""nDCG@10 of one query, as trec_eval has it: linear gain, log2 discount, negative relevance counts 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

K = 10


def ndcg(ranking: Sequence[str], judged: Mapping[str, int]) -> float:
    """Of one query: its documents, best first, and the relevance of those that were judged.

    A query without relevant documents is 0.

    >>> round(ndcg(["b", "a"], {"a": 1}), 4)
    0.6309
    """
    best = sorted((gain for gain in judged.values() if gain > 0), reverse=True)[:K]
    if not best:
        return 0.0
    discounts = 1 / np.log2(np.arange(2, K + 2))
    found = np.array([max(0, judged.get(name, 0)) for name in ranking[:K]], np.float64)
    return float(found @ discounts[: len(found)] / (np.array(best) @ discounts[: len(best)]))
