"""What an evaluation does not conclude, compare or search, and what it says instead."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import ragidx
from ragidx import Grid, Judge, Questions
from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.evalsets import load_pairs
from ragidx.pipelines.cli.demo import sample_corpus
from ragidx.pipelines.experiments.evaluate import chance, grid
from ragidx.pipelines.experiments.evaluate.sources.series import Series

from ....measuring import evaluated
from ....raising import message_of
from .conftest import WORDS, text_of, write_beir, write_lines, write_qrels, write_run

pytestmark = pytest.mark.slow

CORPUS = sample_corpus()
QUERIES = CORPUS.parent


def test_made_queries_compare_rows_of_one_mode_alone(tmp_path: Path) -> None:
    (task,) = ragidx.evaluate(CORPUS, grid=Grid(tau=[1, 8]), questions=Questions.made(), cache=None, out=tmp_path).tasks

    assert task.rows[task.reference].configuration.mode == "hybrid"
    for row in task.rows:
        if row.against is not None:
            assert (row.against.verdict == "unlike") == (row.configuration.mode != "hybrid")
    assert task.choice is not None
    assert {task.rows[one.number].configuration.mode for one in task.choice.tested} == {"hybrid"}
    with (tmp_path / "results.csv").open() as file:
        assert {line["synthetic"] for line in csv.DictReader(file)} == {"sentence"}


def test_a_log_of_queries_shows_how_alike_the_answers_are_and_nothing_else() -> None:
    (task,) = ragidx.evaluate(
        CORPUS, grid=Grid(tau=[1, 8]), questions=Questions.of_log(QUERIES / "queries.jsonl"), cache=None
    ).tasks

    assert set(task.values) == {"overlap@10", "rbo"}
    assert task.choice is None
    assert all(row.against is None and row.chance is None for row in task.rows)
    means = [row.means["overlap@10"] for row in task.rows]
    assert means[task.reference] == 1
    assert all(0 <= mean < 1 for place, mean in enumerate(means) if place != task.reference)
    assert len(task.query_ids) == 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"without_labels": True, "qrels": QUERIES},
            "`questions.qrels` and `questions.without_labels` exclude each other: each says which queries ask\n"
            "  hint: give one of them",
        ),
        ({"without_labels": True, "kind": "verse"}, "unknown kind of query 'verse'"),
        ({"queries": QUERIES, "qrels": QUERIES, "seed": 1}, "it is for queries that are made of the corpus"),
        ({"log": QUERIES, "qrels": QUERIES}, "`questions.qrels` and `questions.log` exclude each other"),
    ],
)
def test_ways_to_ask_exclude_each_other(options: dict[str, object], message: str) -> None:
    assert message in message_of(SpecError, lambda: evaluated(CORPUS, cache=None, **options))


@pytest.mark.parametrize(
    ("option", "now"),
    [
        ("tau", "grid=Grid(tau=...)"),
        ("measure", "judge=Judge(measure=...)"),
        ("queries", "questions=Questions.read(queries=...)"),
        ("query_vectors", "questions=Questions.read(vectors=...)"),
        ("without_labels", "questions=Questions.made()"),
        ("seed", "questions=Questions.made(seed=...)"),
        ("query_log", "questions=Questions.of_log(...)"),
    ],
)
def test_an_old_keyword_says_the_value_that_has_it_now(option: str, now: str) -> None:
    assert message_of(SpecError, lambda: ragidx.evaluate(CORPUS, **{option: 1})) == (
        f"`{option}`: evaluate takes it in a value\n  hint: give `{now}`"
    )


def test_the_old_keyword_of_what_encodes_questions_is_an_axis() -> None:
    assert message_of(SpecError, lambda: ragidx.evaluate(CORPUS, questions="table")) == (  # type: ignore[arg-type]
        "`questions`: 'table' is no Questions\n  hint: give `grid=Grid(questions=...)`"
    )


def test_pairs_have_no_log_of_queries(sts: Path) -> None:
    said = message_of(SpecError, lambda: ragidx.evaluate(sts, questions=Questions.of_log(QUERIES), cache=None))

    assert "it is pairs of sentences, and a log of queries asks a corpus or an index" in said


def test_a_log_of_queries_says_nothing_of_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a.run", {"q0": ["d0"]})

    said = message_of(
        SpecError,
        lambda: ragidx.evaluate(CORPUS, run, questions=Questions.of_log(QUERIES / "queries.jsonl"), cache=None),
    )

    assert "it is a run, and a log of queries asks a corpus or an index" in said


def test_pairs_of_one_score_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sts.tsv").write_text("3\ta b\tc d\n3.0\te f\tg h\n")

    said = message_of(CorpusError, lambda: ragidx.evaluate(tmp_path / "sts.tsv", cache=None))

    assert said == f"{tmp_path}/sts.tsv: all scores are 3\n  hint: give pairs that differ in it"


def test_made_queries_compare_pairs_of_rows_of_one_mode_alone() -> None:
    (task,) = ragidx.evaluate(
        CORPUS, grid=Grid(tau=[1, 8]), questions=Questions.made(), judge=Judge(all_pairs=True), cache=None
    ).tasks

    modes = [row.configuration.mode for row in task.rows]
    assert {pair: apart.verdict == "unlike" for pair, apart in task.pairs.items()} == {
        (one, other): modes[one] != modes[other] for one, other in task.pairs
    }


def test_where_nothing_relevant_is_found_nothing_is_chosen(beir: Path) -> None:
    qrels = write_qrels(beir / "zero.tsv", {f"q{n}": {f"d{n}": 0} for n in range(24)})

    (task,) = ragidx.evaluate(
        beir,
        grid=Grid(mode="dense", filter="truncation", tau=[1, 2]),
        questions=Questions.read(qrels=qrels),
        cache=None,
    ).tasks

    assert [row.interval.mean for row in task.rows] == [0, 0]
    assert task.choice is None


def test_the_interval_of_a_correlation_of_few_pairs_is_possible(tmp_path: Path) -> None:
    (tmp_path / "sts.tsv").write_text("1\ta\tb\n2\tc\td\n3\tc e\td\n")

    (row,) = ragidx.evaluate(tmp_path / "sts.tsv", grid=Grid(filter="none"), cache=None).tasks[0].rows

    assert -1 <= row.interval.low <= row.interval.high <= 1


def test_an_offset_that_leaves_nothing_is_refused(beir: Path) -> None:
    said = message_of(
        SpecError,
        lambda: ragidx.evaluate(
            beir, grid=Grid(model="mini-decoder", filter="embedfilter", offset=256, tau=2), cache=None
        ),
    )

    assert said == "`filter.offset`: offset=256 leaves nothing of 256 dimensions\n  hint: give less than 256"


def test_an_empty_list_of_values_is_the_default(beir: Path) -> None:
    (task,) = ragidx.evaluate(beir, grid=Grid(mode=[], dim=[], filter=[]), cache=None).tasks

    assert [row.name for row in task.rows] == ["lexical", "dense", "hybrid"]


def test_a_measure_that_one_of_the_data_sets_does_not_have_is_refused_first(
    beir: Path, sts: Path, encoded: list[str]
) -> None:
    assert "unknown measure 'map'" in message_of(
        SpecError, lambda: ragidx.evaluate(beir, sts, judge=Judge(measure="map"), cache=None)
    )
    assert encoded == []


def test_a_document_whose_id_comes_again_is_skipped_as_a_build_skips_it(beir: Path) -> None:
    lines = [json.loads(line) for line in (beir / "corpus.jsonl").read_text().splitlines()]
    write_lines(beir / "corpus.jsonl", [*lines, {"_id": "d1", "title": "", "text": "another text"}])

    (task,) = ragidx.evaluate(beir, grid=Grid(mode="dense"), cache=None).tasks

    assert task.n_documents == len(WORDS)
    assert any("its id was seen before in this file" in note for note in task.notes)


def test_a_query_that_the_model_makes_nothing_of_is_unanswered(beir: Path) -> None:
    lines = [json.loads(line) for line in (beir / "queries.jsonl").read_text().splitlines()]
    lines[3]["text"] = "\u200b"
    write_lines(beir / "queries.jsonl", lines)

    (task,) = ragidx.evaluate(beir, grid=Grid(mode=["lexical", "dense"]), cache=None).tasks

    dense = next(number for number, row in enumerate(task.rows) if row.configuration.mode == "dense")
    place = task.query_ids.index(lines[3]["_id"])
    assert task.values["ndcg@10"][dense, place] == 0
    assert task.values["recall@100"][dense, place] == 0
    assert task.values["recall@100"][dense].sum() > 0
    assert "Unanswered by dense search, since mini gives no vectors for them: 1 x query." in task.notes


def test_what_the_model_does_not_know_is_found_by_words_and_unanswered_by_vectors(beir: Path, tmp_path: Path) -> None:
    for name, text in (("corpus", "ผู้ดูแลประภาคาร จุดตะเกียงทุกคืน"), ("queries", "ประภาคาร")):
        lines = [json.loads(line) for line in (beir / f"{name}.jsonl").read_text().splitlines()]
        lines[3]["text"] = text
        write_lines(beir / f"{name}.jsonl", lines)
    ragidx.build(beir, tmp_path / "index")

    for of in (beir, tmp_path / "index"):
        (task,) = evaluated(of, mode=["hybrid", "dense"], queries=beir, qrels=beir, cache=None).tasks
        place = task.query_ids.index("q3")
        found = {row.configuration.mode: task.values["ndcg@10"][n, place] > 0 for n, row in enumerate(task.rows)}
        assert found == {"hybrid": True, "dense": False}
        assert "Unanswered by dense search, since mini gives no vectors for them: 1 x query." in task.notes


def test_of_filtered_vectors_no_random_projection_is_told(beir: Path, tmp_path: Path) -> None:
    files = {"queries": beir, "qrels": beir, "mode": "dense"}
    ragidx.build(beir, tmp_path / "index", model="mini-decoder", filter=ragidx.FilterSpec("embedfilter", tau=2))

    (of_index,) = evaluated(tmp_path / "index", **files).tasks
    (of_corpus,) = ragidx.evaluate(
        beir, grid=Grid(model="mini-decoder", mode="dense", filter="embedfilter", tau=2), cache=None
    ).tasks

    assert [row.chance for row in of_index.rows] == [None]
    assert of_corpus.rows[0].chance is not None


@pytest.mark.parametrize("fusion", ["rrf", "z"])
def test_random_projections_are_fused_as_searches_are(beir: Path, monkeypatch: pytest.MonkeyPatch, fusion: str) -> None:
    # With the filter in place of the projections, all ten reach what the search itself does.
    drawn: list[Series] = []
    monkeypatch.setattr(grid, "_is_embedfilter", lambda series: not drawn.append(series))  # type: ignore[func-returns-value]
    monkeypatch.setattr(chance, "random_projection", lambda *_: drawn[-1])

    (task,) = ragidx.evaluate(
        beir,
        grid=Grid(model="mini-decoder", filter="embedfilter", tau=8, mode="hybrid", fusion=fusion, weight=[0.3, 1]),
        cache=None,
    ).tasks

    for row in task.rows:
        assert row.chance == pytest.approx([row.interval.mean] * 2, abs=1e-6)


def test_an_id_with_white_space_costs_the_runs_not_the_results(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "beir")
    lines = [{"_id": f"d {number}", "title": "", "text": text_of(word)} for number, word in enumerate(WORDS)]
    write_lines(folder / "corpus.jsonl", lines)
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td {n}\t1\n" for n in range(len(WORDS)))
    (folder / "qrels" / "test.tsv").write_text(qrels)

    report = ragidx.evaluate(folder, grid=Grid(mode="dense"), cache=None, out=tmp_path / "out")

    assert (tmp_path / "out" / "results.csv").exists()
    assert not list((tmp_path / "out").rglob("*.run"))
    (note,) = [note for note in report.notes if "No runs" in note]
    assert "holds white space" in note


def test_without_a_filter_the_widths_that_are_not_measured_are_noted(beir: Path) -> None:
    (task,) = ragidx.evaluate(beir, grid=Grid(mode="dense", filter="none", tau=2), cache=None).tasks

    assert [row.configuration.dim for row in task.rows] == [384]
    assert any(note.startswith("Of mini only all dimensions are measured: it has no filter") for note in task.notes)


def test_a_line_that_is_not_comma_separated_is_named(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_bytes(b"score,sentence1,sentence2\n5,a b,c d\n4,e\rf,g\n")

    said = message_of(CorpusError, lambda: load_pairs(tmp_path / "test.csv"))

    assert "test.csv:3" in said
    assert "the line is not comma-separated (new-line character seen in unquoted field" in said


def test_five_data_sets_without_the_row_of_the_reference_say_why_there_is_no_test(tmp_path: Path, sts: Path) -> None:
    sets = [write_beir(tmp_path / f"set{number}") for number in range(4)]

    report = ragidx.evaluate(*sets, sts, grid=Grid(mode="dense"), cache=None)

    assert report.overall == ()
    assert "No test over the data sets: some of them do not have the row of the reference." in report.notes
