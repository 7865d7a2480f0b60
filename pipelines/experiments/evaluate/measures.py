"""Measures of rankings and of similarities, query by query.

run and qrels -> nDCG, recall, MRR, MAP and precision by ir_measures (trec_eval underneath) -> name -> (q,) values
two runs -> overlap@10 and rank-biased overlap: how alike they are, which says nothing of how good they are
similarities and scores of pairs -> Spearman's and Pearson's correlation -> name -> (n,) values, whose mean it is

Equal scores of a run are ordered as trec_eval does it, by falling id, before any measure is computed: the libraries
under ir_measures differ in that. A judged query that a run does not answer counts 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ragidx.corpora.errors import missing_extra
from ragidx.corpora.evalsets import Qrels, Run
from ragidx.indexer.arrays import Doubles
from ragidx.pipelines.experiments.evaluate.options import ANSWERS
from ragidx.pipelines.experiments.evaluate.significance import K, ranks

_FEW_OWN = 0.05
MEASURES = {
    "ndcg@10": "nDCG@10",
    "recall@10": "R@10",
    "recall@100": "R@100",
    "recall@1000": "R@1000",
    "mrr@10": "RR@10",
    "map": "AP",
    "p@10": "P@10",
    "judged@10": "Judged@10",
}
"""The measures of rankings, with their names in ir_measures."""
CORRELATIONS = ("spearman", "pearson")
NEARNESS = OVERLAP, ANN_RECALL = "overlap@10", "ann_recall@10"
"""Shares of the ten that exact search finds, at full width and at the same one: no quality."""
AGREEMENT = ("overlap@10", "rbo")
"""How alike the answers of two configurations are: no quality either."""


def measures_of(depth: int) -> tuple[str, ...]:
    """The measures of rankings that so many documents of each query are enough for.

    >>> set(MEASURES) - set(measures_of(100))
    {'recall@1000'}
    """
    return tuple(name for name in MEASURES if int(name.partition("@")[2] or 0) <= depth)


def own_first(run: Run, qrels: Qrels) -> str:
    """A note on queries that find, first of all, a document of their own id that is not relevant; empty: hardly any."""
    first = {name: max(hits, key=lambda doc_id: hits[doc_id]) for name, hits in run.items() if hits}
    own = [name for name, doc_id in first.items() if name == doc_id and qrels.get(name, {}).get(doc_id, 0) <= 0]
    if not own or len(own) < _FEW_OWN * len(first):  # where both are numbers, a few may be equal by chance
        return ""
    return (
        f"{len(own):,} of {len(first):,} queries find the document of their own id first, which is not relevant: "
        "`drop_self=True` leaves it out."
    )


def of_rankings(run: Run, qrels: Qrels, names: Iterable[str] = measures_of(ANSWERS)) -> dict[str, Doubles]:
    """Measures for each judged query, in their order: name -> (q,).

    Args:
        run: the answers to each query.
        qrels: the judgements of each query.
        names: some of `MEASURES`; each takes time.

    Raises:
        RagidxError: ir_measures is not installed.
    """
    ir = ir_measures()
    of_ir = {ir.parse_measure(MEASURES[name]): name for name in names}
    place = {query_id: number for number, query_id in enumerate(qrels)}
    values = {name: np.zeros(len(place)) for name in of_ir.values()}
    ordered = {query_id: ranked_scores(hits) for query_id, hits in run.items() if query_id in place and hits}
    # Grades below 0 are 0 in every measure, and below -1 pytrec_eval ends the process by them.
    grades = {name: {doc_id: max(0, grade) for doc_id, grade in judged.items()} for name, judged in qrels.items()}
    for one in ir.iter_calc(list(of_ir), grades, ordered):
        values[of_ir[one.measure]][place[one.query_id]] = one.value
    return values


def ndcg(ranking: Sequence[str], judged: Mapping[str, int]) -> float:
    """nDCG@10 of one query: its documents, best first, and the relevance of those that were judged.

    For trials, which need no ir_measures: of rankings of which no two scores are equal, its value is the same.

    >>> round(ndcg(["b", "a"], {"a": 1}), 4)
    0.6309
    """
    best = sorted((gain for gain in judged.values() if gain > 0), reverse=True)[:K]
    if not best:
        return 0.0
    discounts = 1 / np.log2(np.arange(2, K + 2))
    found = np.array([max(0, judged.get(name, 0)) for name in ranking[:K]], np.float64)
    return float(found @ discounts[: len(found)] / (np.array(best) @ discounts[: len(best)]))


def ranked_scores(hits: Mapping[str, float]) -> dict[str, float]:
    """Documents in the order in which trec_eval ranks them, which reads float32, with scores that say so.

    >>> ranked_scores({"a": 0.5, "b": 0.5, "c": 0.9})
    {'c': 0.0, 'b': -1.0, 'a': -2.0}
    """
    falling = sorted(sorted(hits, reverse=True), key=lambda doc_id: -np.float32(hits[doc_id]))
    return {doc_id: float(-place) for place, doc_id in enumerate(falling)}


def agreement(one: Run, other: Run) -> dict[str, Doubles]:
    """How alike the answers of two systems are, for each query of the first: name -> (q,) values from 0 to 1.

    overlap@10 is the share of the first ten documents (of the longer list, where both are shorter) that both have. rbo
    is rank-biased overlap, which weighs the first ranks most, extrapolated from lists of any length (Webber, Moffat and
    Zobel 2010, equation 32) with p = 0.9: the first ten ranks have 86 % of the weight.
    """
    pairs = [(list(ranked_scores(hits)), list(ranked_scores(other.get(name, {})))) for name, hits in one.items()]
    by_length = (sorted(pair, key=len) for pair in pairs)
    return {
        "overlap@10": np.array([_overlap(mine[:10], theirs[:10]) for mine, theirs in pairs]),
        "rbo": np.array([_rank_biased_overlap(short, long) for short, long in by_length]),
    }


def _overlap(mine: Sequence[str], theirs: Sequence[str]) -> float:
    longer = max(len(mine), len(theirs))
    return len(set(mine) & set(theirs)) / longer if longer else 1.0


def _rank_biased_overlap(short: Sequence[str], long: Sequence[str], p: float = 0.9) -> float:
    if not short:
        return 0.0 if long else 1.0
    s, seen, total = len(short), [set[str](), set[str]()], 0.0
    common = np.zeros(len(long) + 1)
    for depth in range(1, len(long) + 1):
        for names, ranked in zip(seen, (short, long), strict=True):
            names.update(ranked[depth - 1 : depth])
        common[depth] = len(seen[0] & seen[1])
        past = common[s] * (depth - s) / (s * depth) if depth > s else 0.0
        total += (common[depth] / depth + past) * p**depth
    tail = (common[-1] - common[s]) / len(long) + common[s] / s
    return float((1 - p) / p * total + tail * p ** len(long))


def of_similarities(similarities: Sequence[float] | Doubles, scores: Sequence[float]) -> dict[str, Doubles]:
    """Each of `CORRELATIONS` as a value for each pair: name -> (n,); 0 where one side does not vary.

    The mean of the values is the correlation, and their spread is that of the correlation in large samples (its
    influence function: Croux and Dehon 2010), so intervals and tests are those of any other measure.
    """
    x, y = np.asarray(similarities, np.float64), np.asarray(scores, np.float64)
    y = np.ldexp(y, -np.frexp(np.abs(y).max())[1])  # by a power of two, which changes no digit: products overflow
    return {"spearman": _correlation(_of_ranks, ranks(x), ranks(y)), "pearson": _correlation(_products, x, y)}


def _correlation(shares: Callable[[Doubles, Doubles], Doubles], x: Doubles, y: Doubles) -> Doubles:
    """(n,) values whose mean is the correlation, from the share that each pair has in the three covariances."""
    if x.min() == x.max() or y.min() == y.max():
        return np.zeros(len(x))
    both, of_x, of_y = shares(x, y), shares(x, x), shares(y, y)
    scale = np.sqrt(of_x.mean() * of_y.mean())
    correlation = both.mean() / scale
    return both / scale + correlation * (1 - (of_x / of_x.mean() + of_y / of_y.mean()) / 2)  # type: ignore[no-any-return]


def _products(x: Doubles, y: Doubles) -> Doubles:
    return (x - x.mean()) * (y - y.mean())  # type: ignore[no-any-return]


def _of_ranks(x: Doubles, y: Doubles) -> Doubles:
    """The product of a pair's ranks, and what the pair adds to those of the pairs above it."""
    u, v = (x - 0.5) / len(x), (y - 0.5) / len(x)
    shares = u * v + _above(x, v) + _above(y, u)
    return shares - shares.mean() + (u * v).mean() - 0.25  # type: ignore[no-any-return]


def _above(x: Doubles, values: Doubles) -> Doubles:
    """(n,) sums of the values with a higher rank, and of half of those with the same, by n."""
    place = (2 * x).astype(np.int64)  # ranks of equal values may end in .5
    sums = np.bincount(place, weights=values)
    return (np.cumsum(sums[::-1])[::-1] - sums / 2)[place] / len(x)


def ir_measures() -> Any:
    """The library that measures rankings.

    Raises:
        RagidxError: it is not installed.
    """
    try:
        import ir_measures as library
    except ImportError as fault:
        raise missing_extra("measures of rankings need", ["ir-measures"], "eval") from fault
    return library
