"""Measures of rankings and of similarities, query by query.

run and qrels -> nDCG, recall, MRR, MAP and precision by ir_measures (trec_eval underneath) -> name -> (q,) values
similarities and scores of pairs -> Spearman's and Pearson's correlation -> name -> (n,) values, whose mean it is

Equal scores of a run are ordered as trec_eval does it, by falling id, before any measure is computed: the libraries
under ir_measures differ in that. A judged query that a run does not answer counts 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragidx.corpora.errors import RagidxError
from ragidx.corpora.evalsets import Qrels, Run
from ragidx.indexer.arrays import Doubles

MEASURES = {
    "ndcg@10": "nDCG@10",
    "recall@10": "R@10",
    "recall@100": "R@100",
    "mrr@10": "RR@10",
    "map": "AP",
    "p@10": "P@10",
    "judged@10": "Judged@10",
}
"""Those of rankings, with their names in ir_measures."""
CORRELATIONS = ("spearman", "pearson")
AGREEMENTS = OVERLAP, ANN_RECALL = "overlap@10", "ann_recall@10"
"""Shares of the ten that exact search finds, at full width and at the same one: no quality."""
DEPTH = 100
"""Documents of a ranking that are measured."""


def of_rankings(run: Run, qrels: Qrels) -> dict[str, Doubles]:
    """Each of `MEASURES` for each judged query, in their order: name -> (q,).

    Raises:
        RagidxError: ir_measures is not installed.
    """
    ir = load_ir_measures()
    of_ir = {ir.parse_measure(name): ours for ours, name in MEASURES.items()}
    place = {query_id: number for number, query_id in enumerate(qrels)}
    values = {name: np.zeros(len(place)) for name in MEASURES}
    ordered = {query_id: ranked_scores(hits) for query_id, hits in run.items() if query_id in place}
    for one in ir.iter_calc(list(of_ir), {name: dict(judged) for name, judged in qrels.items()}, ordered):
        values[of_ir[one.measure]][place[one.query_id]] = one.value
    return values


def ranked_scores(hits: Mapping[str, float]) -> dict[str, float]:
    """Documents in the order in which trec_eval ranks them, the first `DEPTH`, with scores that say so.

    >>> ranked_scores({"a": 0.5, "b": 0.5, "c": 0.9})
    {'c': 0.0, 'b': -1.0, 'a': -2.0}
    """
    falling = sorted(sorted(hits, reverse=True), key=lambda doc_id: -hits[doc_id])
    return {doc_id: -float(place) for place, doc_id in enumerate(falling[:DEPTH])}


def of_similarities(similarities: Sequence[float] | Doubles, scores: Sequence[float]) -> dict[str, Doubles]:
    """Each of `CORRELATIONS` as a value for each pair: name -> (n,).

    The mean of the values is the correlation, and their spread is that of the correlation in large samples (its
    influence function), so intervals and tests are those of any other measure.
    """
    found, wanted = np.asarray(similarities, np.float64), np.asarray(scores, np.float64)
    return {"spearman": _influence(_ranks(found), _ranks(wanted)), "pearson": _influence(found, wanted)}


def _influence(found: Doubles, wanted: Doubles) -> Doubles:
    """(n,) values whose mean is the correlation of two (n,); 0 where one of them does not vary."""
    if not (found.std() and wanted.std()):
        return np.zeros(len(found))
    x, y = (found - found.mean()) / found.std(), (wanted - wanted.mean()) / wanted.std()
    correlation = float((x * y).mean())
    return x * y + correlation * (1 - (x * x + y * y) / 2)  # type: ignore[no-any-return]


def _ranks(values: Doubles) -> Doubles:
    """Ranks from 1; equal values have the mean of theirs."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[group]


def load_ir_measures() -> Any:
    """The library behind `of_rankings`, to be asked for before anything is encoded.

    Raises:
        RagidxError: it is not installed.
    """
    try:
        import ir_measures
    except ImportError as fault:
        raise RagidxError(
            "measures of rankings need ir-measures, which is not installed", "pip install 'ragidx[eval]'"
        ) from fault
    return ir_measures
