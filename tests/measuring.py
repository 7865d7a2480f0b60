"""ir_measures, whose nDCG the tests compare with."""

from __future__ import annotations

from collections.abc import Mapping

import ir_measures


def ndcg_at_10(qrels: Mapping[str, Mapping[str, int]], run: Mapping[str, Mapping[str, float]]) -> float:
    """The mean over all judged queries; an unanswered one counts 0."""
    plain = {query: dict(hits) for query, hits in run.items()}  # it takes no other mappings
    return float(ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, plain)[ir_measures.nDCG @ 10])
