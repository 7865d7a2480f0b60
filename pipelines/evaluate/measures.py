"""Measures of a run against qrels, by ir_measures, and rank correlation, by SciPy (extra `eval`).

Qrels and a run in, one number a measure out: the mean over all judged queries, an unanswered one counting 0. Names are
ir_measures': nDCG@10 (linear gain, log2 discount), RR@10, R@100, AP, P@5. No measure is defined here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from ragidx.corpora.errors import CorpusError, ModelError, SpecError, missing_extra, unknown_name
from ragidx.corpora.evalsets import Qrels

DEFAULT_MEASURES = ("nDCG@10", "RR@10", "R@100")


def measure(
    qrels: Qrels, run: Mapping[str, Mapping[str, float]], names: Sequence[str] = DEFAULT_MEASURES
) -> dict[str, float]:
    """The measures by the names given; queries of the run without judgements are skipped.

    Raises:
        RagidxError: the extra `eval` is not installed.
        SpecError: a measure is unknown, or is written wrong.
        CorpusError: nothing is judged, or no query of the run is.
    """
    ir_measures = _ir_measures()
    parsed = {name: _parse(ir_measures, name) for name in names}
    if not qrels:
        raise CorpusError("the qrels judge no query", "give the qrels that belong to the queries")
    if run and not run.keys() & qrels.keys():
        raise CorpusError(
            f"no query of the run is judged (run: '{next(iter(run))}', ...; qrels: '{next(iter(qrels))}', ...)",
            "give the qrels that belong to the queries",
        )
    # ir_measures takes plain dictionaries only, and counts an unanswered judged query as 0 (held by a test).
    plain = {query_id: dict(hits) for query_id, hits in run.items()}
    values = ir_measures.calc_aggregate(list(set(parsed.values())), qrels, plain)
    return {name: float(values[found]) for name, found in parsed.items()}


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Spearman's rank correlation, ties at their mean rank: STS's measure.

    Raises:
        RagidxError: the extra `eval` is not installed.
        CorpusError: the gold scores are all the same, so that no correlation is defined.
        ModelError: the predicted scores are.
        ValueError: the lengths differ, or are less than two.
    """
    if len(gold) != len(predicted) or len(gold) < 2:
        raise ValueError(f"{len(gold)} gold and {len(predicted)} predicted scores: two or more pairs are needed")
    if len(set(gold)) == 1:
        raise CorpusError(
            f"every gold score is {gold[0]:g}: there is no order to compare with", "check the score column"
        )
    if len(set(predicted)) == 1:
        raise ModelError(
            f"every pair got the score {predicted[0]:g}: the vectors are all alike",
            "check the pooling and the template",
        )
    try:
        from scipy.stats import spearmanr
    except ImportError as fault:
        raise missing_extra("rank correlation needs", ["scipy"], "eval") from fault
    return float(spearmanr(gold, predicted).statistic)


def _ir_measures() -> ModuleType:
    try:
        import ir_measures
    except ImportError as fault:
        raise missing_extra("measures need", ["ir_measures"], "eval") from fault
    module: ModuleType = ir_measures
    return module


def _parse(ir_measures: ModuleType, name: str) -> Any:
    try:
        parsed = ir_measures.parse_measure(name)
        parsed.validate_params()
    except NameError as fault:
        raise unknown_name(
            "measure", name.partition("@")[0].partition("(")[0], ir_measures.measures.registry
        ) from fault
    except (ValueError, TypeError, KeyError, AssertionError) as fault:
        raise _written_wrong(name) from fault
    # trec_eval, below ir_measures, ends the whole process on a cutoff of 0.
    if parsed.params.get("cutoff") is not None and parsed["cutoff"] < 1:
        raise _written_wrong(name)
    return parsed


def _written_wrong(name: str) -> SpecError:
    return SpecError(f"the measure '{name}' is written wrong", "write it as in nDCG@10, P(rel=2)@5 or AP")
