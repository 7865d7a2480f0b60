"""Adapt: a map that is trained on an index's own documents, kept only where answers get better."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx import Grid, Questions
from ragidx.corpora.errors import BusyError, CorpusError, ModelError, SpecError
from ragidx.corpora.records import Document
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.store import Store
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.verify import verify
from ragidx.indexer.token_table import TokenTable
from ragidx.pipelines.base.stages import Stage
from ragidx.pipelines.cli.demo import sample_corpus
from ragidx.pipelines.experiments.train.own_pairs import own_pairs
from ragidx.pipelines.experiments.trials.adapt import NOTE, WEIGHTS
from ragidx.pipelines.experiments.trials.questions import QuestionFile
from ragidx.pipelines.ingest.corpus import chunker_of

from ...indexer.states import content_of
from ...raising import message_of
from ..adapting import NOISE, PLACES, THINGS, write_corpus
from .conftest import INDEX, files

pytestmark = pytest.mark.slow

DIM = 64


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two indexes of such a corpus.

    In `dense` the words are few, and there is no search by words. In `hybrid` they are rare ones, which mislead it.
    """
    text = "".join(path.read_text("utf-8") for path in sorted(sample_corpus().rglob("*.md")))
    rare = random.Random(0).sample(sorted(set(re.findall("[a-z]{6,9}", text))), 600)
    for name, noise, count, lexical in (("dense", NOISE, 9, False), ("hybrid", rare, 20, True)):
        place = tmp_path_factory.mktemp(name)
        write_corpus(place / "corpus", noise, count)
        kept = ragidx.FilterSpec("truncation", dim=DIM)
        ragidx.build(place / "corpus", place / INDEX, lexical=lexical, filter=kept)
    return tmp_path_factory.getbasetemp()


def opened(ready: Path, name: str) -> ragidx.Index:
    shutil.copytree(ready / f"{name}0", ".", dirs_exist_ok=True)
    return ragidx.Index(INDEX)


@pytest.fixture
def index(folder: Path, ready: Path) -> ragidx.Index:
    return opened(ready, "dense")


@pytest.fixture
def hybrid(folder: Path, ready: Path) -> ragidx.Index:
    return opened(ready, "hybrid")


def adapted(index: ragidx.Index, **options: Any) -> Any:
    return index.adapt(cache="cache", **options)


def at_stage(name: str, act: Callable[[], object]) -> Callable[[Stage], None]:
    return lambda stage: act() if stage.name == name else None


def encoded(index: ragidx.Index) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of all chunks, as they are stored and as the index would make them."""
    store, searcher = index.searcher.store, index.searcher
    chunker = chunker_of(searcher.encoder, searcher.spec.chunk)
    texts = [chunker.encoded_text(chunk) for _, chunk in store.chunks()]
    return store.vectors(range(store.n_rows)), searcher.embedder.embed_document(texts)


def test_answers_that_get_better_are_kept_and_a_rollback_brings_the_old_ones_back(index: ragidx.Index) -> None:
    before, generation = content_of(INDEX), index.generation

    report = adapted(index)

    found = report.comparison
    assert (report.verdict, report.committed, report.weight) == ("better", True, None)
    assert (report.generation, index.generation) == (generation + 1, generation + 1)
    assert found.new - found.old == pytest.approx(found.difference)
    assert found.difference >= found.lower_bound > 0
    assert (found.queries, found.n_queries) == ("sentence", 90)
    assert [score.name for score in report.scores] == ["as they are", "mapped"]
    assert report.pairs["sentence"] > 200
    assert index.spec.filter.adapted
    assert "adapted filter" in Store.open(INDEX).manifest.requires
    assert verify(INDEX) == []
    assert not (INDEX / "upgrade" / "adapt").exists()
    np.testing.assert_allclose(*encoded(index), atol=2e-3)
    note = index.info().notes[NOTE]
    assert (note["verdict"], note["of"], note["lower_bound"]) == ("better", generation, found.lower_bound)
    assert index.rollback(generation) == generation + 2
    assert content_of(INDEX) == before
    assert NOTE not in index.info().notes


def test_the_gain_is_there_for_questions_that_people_ask(index: ragidx.Index) -> None:
    questions = {f"{thing} {town}": f"{thing}-{town}.txt" for thing in THINGS for town in PLACES}

    def found() -> float:
        answers = index.rank_documents(list(questions), k=1)
        return float(np.mean([hits[0][0] == name for hits, name in zip(answers, questions.values(), strict=True)]))

    before = found()
    adapted(index)

    assert found() > before


def test_without_a_gain_that_is_shown_nothing_changes(hybrid: ragidx.Index) -> None:
    before = files(INDEX)

    report = adapted(hybrid)

    assert (report.verdict, report.committed, report.generation) == ("not shown to be better", False, 1)
    assert report.comparison.lower_bound <= 0
    assert files(INDEX) == before


def test_where_mapped_vectors_are_no_better_the_weight_alone_is_changed(
    hybrid: ragidx.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def useless(sides: Any, batches: Any, dim: int, **options: Any) -> Filter:
        return Filter(np.eye(dim)[:, :1] @ np.ones((1, dim)), shift=np.zeros(dim))

    monkeypatch.setattr("ragidx.pipelines.experiments.trials.adapt.linear", useless)
    vectors = hybrid.searcher.store.vectors(range(hybrid.searcher.store.n_rows))

    report = adapted(hybrid, force=True)

    assert not report.is_mapped
    assert hybrid.spec.filter.adapted == ""
    assert hybrid.spec.weight == report.weight
    assert np.array_equal(vectors, hybrid.searcher.store.vectors(range(hybrid.searcher.store.n_rows)))
    assert verify(INDEX) == []


def test_the_weight_that_is_chosen_is_that_of_the_index_from_then_on(hybrid: ragidx.Index) -> None:
    hybrid.build("corpus", filter=ragidx.FilterSpec("truncation", dim=2), rebuild=True)  # such vectors are noise
    report = adapted(hybrid, force=True)

    weight = report.weight
    assert weight in WEIGHTS
    assert weight < 0.5
    assert hybrid.spec.weight == weight
    question = "the lamp of Oslo was seen"
    assert hybrid.search(question, k=9) == hybrid.search(question, k=9, weight=weight)
    assert hybrid.search(question, k=9) != hybrid.search(question, k=9, weight=0.5)
    assert hybrid.build("corpus").committed is False
    hybrid.add([Document("new", "The lamp of Oslo was sold.")])
    assert hybrid.spec.weight == weight
    rows = ragidx.evaluate(INDEX, grid=Grid(mode="hybrid"), questions=Questions.made(), cache=None).tasks[0].rows
    assert {row.configuration.weight for row in rows} == {weight}


def test_given_judgements_decide_and_none_of_their_documents_is_trained_on(
    index: ragidx.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = [(thing, town) for thing in THINGS[:5] for town in PLACES]
    Path("queries.tsv").write_text("".join(f"{t}{p}\twhere is the {t} of {p}?\n" for t, p in judged))
    Path("qrels.tsv").write_text("".join(f"{t}{p} 0 {t}-{p}.txt 1\n" for t, p in judged))
    seen: list[set[str]] = []

    def noted(*args: Any, without: set[str], **options: Any) -> Any:
        seen.append(without)
        return own_pairs(*args, without=without, **options)

    monkeypatch.setattr("ragidx.pipelines.experiments.trials.adapt.own_pairs", noted)
    report = adapted(index, queries="queries.tsv", qrels="qrels.tsv")

    assert (report.comparison.queries, report.comparison.n_queries) == ("given", 90)
    assert seen[0] >= {f"{thing}-{town}.txt" for thing, town in judged}


def test_given_pairs_are_trained_on_as_well(index: ragidx.Index) -> None:
    lines = [{"query": f"{t} in {p}", "positive": f"the {t} of {p}"} for t in THINGS for p in PLACES]
    Path("pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    report = adapted(index, pairs="pairs.jsonl")

    assert report.n_dropped == 90  # of the documents that are asked for
    assert report.pairs["pairs.jsonl"] > 80
    assert report.verdict == "better"


def test_pairs_of_the_user_that_hold_what_is_asked_are_dropped(index: ragidx.Index) -> None:
    judged = [(thing, town) for thing in THINGS[:4] for town in PLACES]
    Path("queries.tsv").write_text("".join(f"{t}{p}\twhere is the {t} of {p}?\n" for t, p in judged))
    Path("qrels.tsv").write_text("".join(f"{t}{p} 0 {t}-{p}.txt 1\n" for t, p in judged))
    known = [{"query": f"Where is the {t} of {p}", "positive": f"{t} {p} elsewhere"} for t, p in judged]
    known += [{"query": f"{t}", "positive": Path("corpus", f"{t}-{p}.txt").read_text()[:200]} for t, p in judged]
    fine = [{"query": f"the {t} at {p}", "positive": f"It is a {t}, and in {p} it stays."} for t, p in judged]
    Path("pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in known + fine))

    report = adapted(index, pairs="pairs.jsonl", queries="queries.tsv", qrels="qrels.tsv")

    assert report.n_dropped == len(known)
    assert report.pairs["pairs.jsonl"] <= len(fine)


def test_few_large_documents_are_enough(folder: Path) -> None:
    drawn = random.Random(0)
    Path("books").mkdir()
    for number in range(44):
        lines = [f"In chapter {n} of book {number} there was {' '.join(drawn.sample(NOISE, 6))}." for n in range(60)]
        Path("books", f"{number}.txt").write_text(" ".join(lines))
    index = ragidx.build("books", INDEX, lexical=False)

    report = adapted(index, epochs=1)

    assert report.pairs["sentence"] > 100


def test_an_index_of_one_document_says_what_is_wrong(folder: Path) -> None:
    Path("one").mkdir()
    Path("one", "a.txt").write_text("There is one document. It has three sentences in it, as it happens. That is all.")

    said = message_of(CorpusError, lambda: adapted(ragidx.build("one", INDEX)))

    assert "nothing can be concluded from fewer than 20" in said


def test_mapped_vectors_are_not_taken_for_those_of_the_model(index: ragidx.Index) -> None:
    index = ragidx.build("corpus", "raw", lexical=False, filter=ragidx.FilterSpec("none"))
    index.adapt(cache="cache", force=True)
    index.shrink(32)

    said = message_of(
        SpecError,
        lambda: ragidx.evaluate("raw", grid=Grid(filter="whitening"), questions=Questions.made(), cache=None),
    )
    assert "filter" in said
    assert ragidx.evaluate("raw", questions=Questions.made(), cache=None).tasks[0].rows


def test_what_is_committed_meanwhile_is_mapped_as_well(index: ragidx.Index) -> None:
    other = ragidx.Index(INDEX)
    text = "A boat came to the harbour of Oslo."

    report = adapted(index, on_progress=at_stage("training", lambda: other.add([Document("late", text)])))

    assert report.generation == 3
    np.testing.assert_allclose(*encoded(index), atol=2e-3)
    assert index.search(text, k=1)[0].doc_id == "late"


def test_an_index_that_was_made_anew_meanwhile_is_left_alone(index: ragidx.Index) -> None:
    def anew() -> None:
        ragidx.build("corpus", INDEX, lexical=False, filter=ragidx.FilterSpec("none"), rebuild=True)

    said = message_of(SpecError, lambda: adapted(index, on_progress=at_stage("asking both", anew)))

    assert said == ("ragidx-index: the index was made anew meanwhile, with other options\n  hint: run it again")
    assert ragidx.Index(INDEX).spec.filter.name == "none"
    assert verify(INDEX) == []


def test_it_is_shrunk_and_continued_and_adapted_again(index: ragidx.Index) -> None:
    adapted(index)
    wide = index.searcher.store.vectors(range(index.searcher.store.n_rows))

    index.shrink(24)

    stored, made = encoded(index)
    np.testing.assert_allclose(stored, l2_normalize(wide[:, :24]).vectors, atol=2e-3)
    np.testing.assert_allclose(stored, made, atol=4e-3)
    assert index.build("corpus").committed is False
    assert adapted(index, force=True).generation == 4
    np.testing.assert_allclose(*encoded(index), atol=5e-3)
    assert index.searcher.store.manifest.dim == 24
    assert verify(INDEX) == []


def test_an_upgrade_makes_vectors_that_are_not_adapted(index: ragidx.Index) -> None:
    adapted(index)
    other = ragidx.FilterSpec("random", dim=DIM)

    assert index.upgrade().verdict == "same"
    assert index.upgrade(filter=other, force=True).committed

    assert (index.spec.filter.name, index.spec.filter.adapted) == ("random", "")
    assert NOTE not in index.info().notes


def test_a_table_of_the_model_is_none_of_its_vectors(index: ragidx.Index) -> None:
    adapted(index)
    none = np.zeros(0, np.int64)
    table = TokenTable.of(index.searcher.encoder.tokenizer.texts, none, none, np.zeros((0, 384), np.float32))
    file = QuestionFile(table, index.spec.encoder_fingerprint(), "file")

    assert message_of(SpecError, lambda: file.into(Path(INDEX))) == (
        "file: the index was adapted, and the table knows its model alone\n"
        "  hint: train one of the index: `ragidx train questions`"
    )


def test_a_second_run_encodes_nothing_and_makes_the_same_map(index: ragidx.Index) -> None:
    first = adapted(index)
    content = index.spec.filter.adapted
    index.rollback(1)

    again = adapted(index)

    assert again.comparison == first.comparison
    assert index.spec.filter.adapted == content


def test_what_a_killed_run_has_left_does_not_matter(index: ragidx.Index) -> None:
    left = INDEX / "upgrade" / "adapt" / "index" / "segments"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"x")

    assert adapted(index).verdict == "better"
    assert not left.exists()


@pytest.mark.parametrize(
    ("options", "fault", "message"),
    [
        ({"limit": 0}, SpecError, "`limit`: limit=0 is out of range\n  hint: give 40 or more"),
        ({"limit": 39}, SpecError, "`limit`: limit=39 is out of range\n  hint: give 40 or more"),
        ({"seed": -1}, SpecError, "`seed`: seed=-1 is out of range\n  hint: give 0 or more"),
        ({"epochs": 0}, SpecError, "`epochs`: epochs=0 is out of range\n  hint: give 1 or more"),
        (
            {"pairs": "none.jsonl"},
            CorpusError,
            "none.jsonl: no such file or folder\n  hint: check the path",
        ),
        (
            {"queries": "few.tsv", "qrels": "few.qrels"},
            CorpusError,
            "few.qrels: 1 queries are judged: nothing can be concluded from fewer than 20\n"
            "  hint: judge more, or none, or decide without: `force=True`",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_before_anything_is_encoded(
    index: ragidx.Index, options: dict[str, Any], fault: type[Exception], message: str
) -> None:
    Path("few.tsv").write_text("q\twhere?\n")
    Path("few.qrels").write_text("q 0 lamp-Oslo.txt 1\n")

    assert message_of(fault, lambda: adapted(index, **options)) == message
    assert not Path("cache").exists()


def test_an_index_of_precomputed_vectors_is_refused(given: np.ndarray) -> None:
    assert message_of(SpecError, lambda: adapted(ragidx.Index(INDEX))) == (
        "ragidx-index: the index holds precomputed vectors, and a text without one of its sentences has none\n"
        "  hint: build an index of the texts with their model: `ragidx build CORPUS --model M`"
    )


def test_a_model_that_is_not_the_index_s_own_is_refused(index: ragidx.Index, model: Path) -> None:
    other = ragidx.Index(INDEX, model=str(model))

    assert "is not the model this index was made with" in message_of(ModelError, lambda: adapted(other))


def test_a_corpus_that_is_too_small_says_so(folder: Path) -> None:
    Path("small").mkdir()
    for number in range(30):
        Path("small", f"{number}.txt").write_text(f"Number {number} is here. It is a number of its own. Nothing more.")
    index = ragidx.build("small", INDEX)

    assert "nothing can be concluded from fewer than 20" in message_of(CorpusError, lambda: adapted(index))


def test_another_process_that_adapts_is_waited_for_no_longer(index: ragidx.Index) -> None:
    (INDEX / "upgrade").mkdir()
    with Lock(INDEX / "upgrade"):
        assert message_of(BusyError, lambda: adapted(index))
    assert not Path("cache").exists()


def test_nobody_names_a_map_in_a_build(folder: Path) -> None:
    wanted = ragidx.FilterSpec("truncation", adapted="0" * 16)

    assert message_of(SpecError, lambda: ragidx.build("corpus", INDEX, filter=wanted)) == (
        "`filter.adapted`: the map of an index that was adapted is its own\n  hint: remove `filter.adapted`"
    )
