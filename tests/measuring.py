"""ir_measures, whose nDCG the tests compare with, and evaluations of which a test varies one field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ir_measures

import ragidx
from ragidx.pipelines.cli.keywords import value_of
from ragidx.pipelines.experiments.evaluate.report import EvaluationReport


def evaluated(*sources: Any, **named: Any) -> EvaluationReport:
    """`ragidx.evaluate`, with the fields of its values among the keywords, as the command line has them."""
    values = {
        "grid": value_of(ragidx.Grid, named),
        "questions": value_of(ragidx.Questions, named),
        "judge": value_of(ragidx.Judge, named),
    }
    return ragidx.evaluate(*sources, **values, **named)


def ndcg_at_10(qrels: Mapping[str, Mapping[str, int]], run: Mapping[str, Mapping[str, float]]) -> float:
    """The mean over all judged queries; an unanswered one counts 0."""
    plain = {query: dict(hits) for query, hits in run.items()}  # it takes no other mappings
    return float(ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, plain)[ir_measures.nDCG @ 10])
