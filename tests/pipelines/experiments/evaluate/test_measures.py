"""Measures by query: equal to ir_measures and pytrec_eval, and correlations equal to scipy."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ragidx.corpora.errors import RagidxError
from ragidx.corpora.evalsets import Qrels, Run
from ragidx.pipelines.experiments.evaluate.measures import (
    AGREEMENT,
    MEASURES,
    agreement,
    measures_of,
    ndcg,
    of_rankings,
    of_similarities,
    ranked_scores,
)
from ragidx.pipelines.experiments.evaluate.significance import interval

from ....raising import message_of

TREC = {
    "ndcg@10": "ndcg_cut_10",
    "recall@10": "recall_10",
    "recall@100": "recall_100",
    "map": "map",
    "p@10": "P_10",
}


def random_set(seed: int) -> tuple[Run, Qrels]:
    """Few distinct scores, so many ties; queries without answers and without judgements, answers without documents."""
    drawn = random.Random(seed)
    documents = [f"d{number}" for number in range(150)]
    qrels = {
        f"q{query}": {name: drawn.choice([-1, 0, 0, 1, 2]) for name in drawn.sample(documents, drawn.randint(1, 30))}
        for query in range(6)
    }
    run = {
        f"q{query}": {name: drawn.choice([0.1, 0.2, 0.3, drawn.random()]) for name in drawn.sample(documents, length)}
        for query, length in enumerate([0, 1, 9, 130, 150], start=2)
    }
    return run, qrels


@pytest.mark.wheel
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_measures_equal_those_of_pytrec_eval(seed: int) -> None:
    run, qrels = random_set(seed)

    found = of_rankings(run, qrels)

    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.10,100", "map", "P.10"}).evaluate(run)
    for ours, name in TREC.items():
        expected = [theirs.get(query_id, {}).get(name, 0) for query_id in qrels]
        np.testing.assert_allclose(found[ours], expected, atol=1e-6, err_msg=ours)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_ndcg_of_trials_is_that_of_ir_measures(seed: int) -> None:
    run, qrels = random_set(seed)

    found = [ndcg(list(ranked_scores(run.get(name, {}))), judged) for name, judged in qrels.items()]

    np.testing.assert_allclose(found, of_rankings(run, qrels, ["ndcg@10"])["ndcg@10"], atol=1e-12, rtol=0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_means_equal_those_of_ir_measures_where_no_scores_are_equal(seed: int) -> None:
    run, qrels = random_set(seed)
    run = {name: {doc_id: score + place for place, (doc_id, score) in enumerate(hits.items())}
           for name, hits in run.items() if hits}  # fmt: skip
    theirs = {name: ir_measures.parse_measure(of_ir) for name, of_ir in MEASURES.items() if name != "judged@10"}

    found = of_rankings(run, qrels, MEASURES)

    expected = ir_measures.calc_aggregate(list(theirs.values()), qrels, run)
    for name, measure in theirs.items():
        assert found[name].mean() == pytest.approx(expected[measure], abs=1e-6), name


def test_values_are_in_the_order_of_the_judged_queries() -> None:
    found = of_rankings({"q2": {"a": 1.0}, "q1": {"b": 1.0}}, {"q1": {"a": 1}, "q2": {"a": 1}})

    assert list(found) == [name for name in MEASURES if name != "recall@1000"]
    assert found["ndcg@10"].tolist() == [0, 1]


def test_a_judged_query_that_is_not_answered_counts_0() -> None:
    found = of_rankings({"q1": {"a": 1.0}, "q2": {}}, {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}})

    assert {name: values.tolist() for name, values in found.items()} == {
        name: [0.1 if name == "p@10" else 1, 0, 0] for name in measures_of(100)
    }


def test_a_run_without_any_answer_is_0() -> None:
    assert of_rankings({}, {"q1": {"a": 1}})["map"].tolist() == [0]


def test_grades_below_0_are_0() -> None:
    rng = np.random.default_rng(0)
    grades = {f"q{n}": {f"d{m}": int(rng.choice([-1000, -2, 0, 1])) for m in range(4)} for n in range(30)}
    run = {query: {f"d{m}": float(rng.random()) for m in range(6)} for query in grades}
    clipped = {query: {doc_id: max(0, grade) for doc_id, grade in judged.items()} for query, judged in grades.items()}

    found, expected = of_rankings(run, grades), of_rankings(run, clipped)

    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    assert expected["ndcg@10"].any()


def test_queries_without_judgements_are_left_out() -> None:
    assert of_rankings({"q1": {"a": 1.0}, "q2": {"a": 1.0}}, {"q1": {"a": 1}})["mrr@10"].tolist() == [1]


def test_judged_counts_the_documents_that_somebody_looked_at() -> None:
    found = of_rankings({"q1": {"a": 3.0, "b": 2.0, "x": 1.0, "y": 0.0}}, {"q1": {"a": 1, "b": 0}})

    assert found["judged@10"].tolist() == [0.5]


def test_equal_scores_are_ordered_by_falling_id_for_every_measure() -> None:
    found = of_rankings({"q1": {"a": 0.5, "b": 0.5}}, {"q1": {"a": 1}})

    assert found["mrr@10"].tolist() == [0.5]
    assert found["ndcg@10"].tolist() == [pytest.approx(0.6309, abs=1e-4)]


def test_scores_that_float32_cannot_tell_apart_are_equal_as_for_trec_eval() -> None:
    assert list(ranked_scores({"a": 0.5 + 1e-12, "b": 0.5})) == ["b", "a"]


def test_documents_beyond_the_hundredth_count_for_map() -> None:
    run = {"q1": {f"d{place:04}": -float(place) for place in range(200)}}

    assert of_rankings(run, {"q1": {"d0149": 1}})["map"].tolist() == [pytest.approx(1 / 150)]


def test_a_missing_ir_measures_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_measures", None)

    assert message_of(RagidxError, lambda: of_rankings({}, {})) == (
        "measures of rankings need ir-measures, which is not installed\n"
        "  hint: pip install '.[eval]' in a checkout of ragidx"
    )


# correlations


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 5), st.floats(-5, 5).map(lambda x: round(x, 3))), min_size=3, max_size=40))
def test_the_means_are_the_correlations_of_scipy(pairs: list[tuple[int, float]]) -> None:
    similarities, scores = (np.array(one, np.float64) for one in zip(*pairs, strict=True))

    found = of_similarities(similarities, scores)

    if len(set(similarities)) == 1 or len(set(scores)) == 1:
        assert not any(values.any() for values in found.values())
        return
    assert found["spearman"].mean() == pytest.approx(stats.spearmanr(similarities, scores).statistic, abs=1e-9)
    assert found["pearson"].mean() == pytest.approx(stats.pearsonr(similarities, scores).statistic, abs=1e-9)


def test_scores_whose_products_overflow_have_the_correlation_of_smaller_ones() -> None:
    similarities, scores = np.array([0.9, 0.2, 0.4]), np.array([1.0, -1.0, 0.25])

    found, expected = (of_similarities(similarities, scores * scale)["pearson"].mean() for scale in (2.0**1023, 1.0))

    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spearman", "pearson"])
@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
def test_intervals_are_those_of_a_bootstrap_over_pairs(correlation: float, name: str) -> None:
    drawn = np.random.default_rng(0)
    similarities, scores = drawn.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], 400).T
    scores = np.round(scores)  # people give few grades, so there are ties
    statistic = {"spearman": stats.spearmanr, "pearson": stats.pearsonr}[name]

    found = interval(of_similarities(similarities, scores)[name])

    draws = (drawn.integers(0, 400, 400) for _ in range(2000))
    low, high = np.percentile([statistic(similarities[one], scores[one]).statistic for one in draws], [2.5, 97.5])
    assert (found.low, found.high) == (pytest.approx(low, abs=0.012), pytest.approx(high, abs=0.012))
    assert found.high - found.low == pytest.approx(high - low, rel=0.06)


def _run(answers: Mapping[str, str]) -> Run:
    """A query and one letter a document, best first."""
    return {name: {letter: -float(place) for place, letter in enumerate(letters)} for name, letters in answers.items()}


def test_agreement_of_known_lists() -> None:
    one = _run({"same": "abcdefghij", "prefix": "abc", "none": "", "turned": "ab", "others": "abc", "missing": "ab"})
    other = _run({"same": "abcdefghij", "prefix": "abcde", "none": "", "turned": "ba", "others": "xyz"})

    values = agreement(one, other)

    assert list(values) == list(AGREEMENT)
    assert values["overlap@10"].tolist() == [1, 0.6, 1, 1, 0, 0]
    assert values["rbo"] == pytest.approx([1, 1, 1, 0.9, 0, 0])


def test_overlap_is_of_the_first_ten() -> None:
    values = agreement(_run({"q": "abcdefghijxyz"}), _run({"q": "xyzdefghijabc"}))

    assert values["overlap@10"].tolist() == [0.7]


_LISTS = st.permutations("abcdefgh").flatmap(lambda names: st.integers(1, 8).map(lambda n: "".join(names[:n])))


@given(_LISTS, _LISTS)
def test_rank_biased_overlap_is_the_sum_of_its_definition(one: str, other: str) -> None:
    short, long = sorted((one, other), key=len)
    common = [len(set(short[:depth]) & set(long[:depth])) for depth in range(len(long) + 1)]
    s, total = len(short), 0.0
    for depth in range(1, 500):  # what is not seen agrees as what is seen does
        seen = min(depth, len(long))
        shared = common[seen] + (common[s] * (seen - s) / s if seen > s else 0)
        total += 0.1 * 0.9 ** (depth - 1) * shared / seen

    values = agreement(_run({"q": one}), _run({"q": other}))

    assert values["rbo"][0] == pytest.approx(total)
    assert values["rbo"][0] == pytest.approx(agreement(_run({"q": other}), _run({"q": one}))["rbo"][0])
    assert -1e-9 <= values["rbo"][0] <= 1 + 1e-9


def test_some_measures_are_those_among_all() -> None:
    run, qrels = {"q": {"a": 1.0, "b": 0.5}}, {"q": {"b": 1}}

    values = of_rankings(run, qrels, ["mrr@10", "ndcg@10"])

    assert list(values) == ["mrr@10", "ndcg@10"]
    assert all(values[name].tolist() == of_rankings(run, qrels)[name].tolist() for name in values)
