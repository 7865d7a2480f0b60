"""Measures against values worked by hand, what an unanswered query counts, and the messages."""

import math
import sys

import pytest

from ragidx.corpora.errors import CorpusError, ModelError, RagidxError, SpecError
from ragidx.pipelines.evaluate.measures import measure, spearman

from ...raising import message_of

QRELS = {"q1": {"d1": 2, "d2": 1, "d3": 0}, "q2": {"d4": 1}}
RUN = {"q1": {"d3": 0.9, "d1": 0.8, "d2": 0.7}, "q2": {"d4": 0.5}}


@pytest.mark.wheel
def test_ndcg_has_linear_gain_and_a_log2_discount() -> None:
    found = 2 / math.log2(3) + 1 / math.log2(4)
    best = 2 / math.log2(2) + 1 / math.log2(3)

    assert measure(QRELS, RUN, ["nDCG@10"]) == {"nDCG@10": pytest.approx((found / best + 1) / 2)}


def test_reciprocal_rank_and_recall_are_means_over_the_queries() -> None:
    assert measure(QRELS, RUN, ["RR@10", "R@1", "R@100"]) == {"RR@10": 0.75, "R@1": 0.5, "R@100": 1.0}


def test_an_unanswered_judged_query_counts_zero() -> None:
    one = {"q2": RUN["q2"]}

    assert measure(QRELS, one) == {"nDCG@10": 0.5, "RR@10": 0.5, "R@100": 0.5}
    assert measure(QRELS, {"q1": {}, **one}) == {"nDCG@10": 0.5, "RR@10": 0.5, "R@100": 0.5}
    assert measure(QRELS, {}) == {"nDCG@10": 0.0, "RR@10": 0.0, "R@100": 0.0}


def test_a_query_that_nobody_judged_changes_nothing() -> None:
    assert measure(QRELS, {**RUN, "q9": {"d1": 1.0}}) == measure(QRELS, RUN)


def test_the_result_is_named_as_the_caller_named_it() -> None:
    assert list(measure(QRELS, RUN, ["R@100", "nDCG @ 10", "R@100"])) == ["R@100", "nDCG @ 10"]


def test_an_unknown_measure_names_the_near_miss() -> None:
    with pytest.raises(SpecError) as fault:
        measure(QRELS, RUN, ["nDGC@10"])

    first, hint = str(fault.value).split("\n")
    assert first == "unknown measure 'nDGC'; did you mean 'nDCG'?"
    assert hint.startswith("  hint: known: ")


@pytest.mark.parametrize("name", ["nDCG@0", "nDCG@x", "nDCG(foo=1)@5", "P", "P(rel='a')@5", "nDCG@10.5", "", "1 + 1"])
def test_a_measure_that_is_written_wrong_is_refused(name: str) -> None:
    assert message_of(SpecError, lambda: measure(QRELS, RUN, [name])) == (
        f"the measure '{name}' is written wrong\n  hint: write it as in nDCG@10, P(rel=2)@5 or AP"
    )


def test_qrels_without_a_judgement_are_refused() -> None:
    said = message_of(CorpusError, lambda: measure({}, RUN))

    assert said == "the qrels judge no query\n  hint: give the qrels that belong to the queries"


def test_a_run_of_other_queries_is_refused() -> None:
    assert message_of(CorpusError, lambda: measure(QRELS, {"7": {"d1": 1.0}})) == (
        "no query of the run is judged (run: '7', ...; qrels: 'q1', ...)\n"
        "  hint: give the qrels that belong to the queries"
    )


@pytest.mark.parametrize(("package", "what"), [("ir_measures", "measures need"), ("scipy", "rank correlation needs")])
def test_a_missing_package_names_the_extra(package: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.stats", None)

    with pytest.raises(RagidxError) as fault:
        _ = measure(QRELS, RUN) if package == "ir_measures" else spearman([1, 2], [1, 2])

    assert str(fault.value) == (
        f"{what} {package}, which is not installed\n"
        "  hint: pip install '.[eval]' in a checkout, or pip install 'ragidx[eval]'"
    )


@pytest.mark.wheel
@pytest.mark.slow
def test_spearman_compares_orders_and_gives_ties_their_mean_rank() -> None:
    assert spearman([1, 2, 3], [0.1, 0.5, 9.0]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(math.sqrt(3) / 2)


def test_scores_that_are_all_the_same_have_no_correlation() -> None:
    with pytest.raises(CorpusError) as gold:
        spearman([2, 2], [1, 2])
    with pytest.raises(ModelError) as predicted:
        spearman([1, 2], [0.5, 0.5])

    assert str(gold.value) == (
        "every gold score is 2: there is no order to compare with\n  hint: check the score column"
    )
    assert str(predicted.value) == (
        "every pair got the score 0.5: the vectors are all alike\n  hint: check the pooling and the template"
    )


@pytest.mark.parametrize(("gold", "predicted"), [([1, 2], [1]), ([1], [1]), ([], [])])
def test_lengths_that_do_not_match_are_a_programmers_mistake(gold: list[float], predicted: list[float]) -> None:
    with pytest.raises(ValueError, match=f"^{len(gold)} gold and {len(predicted)} predicted scores: two or more"):
        spearman(gold, predicted)
