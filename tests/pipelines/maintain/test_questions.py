"""Questions by a table: what is trained, when it answers, and what becomes of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import ragidx
from ragidx import Grid, Questions
from ragidx.corpora.errors import BusyError, CorpusError, ModelError, SpecError
from ragidx.indexer.store import Store, manifest
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.verify import verify
from ragidx.pipelines.base.stages import Stage, Stages
from ragidx.pipelines.cli.demo import sample_corpus
from ragidx.pipelines.experiments.evaluate.tasks import task_of
from ragidx.pipelines.experiments.trials.questions import NOTE, QuestionsReport, _Run, _Texts
from ragidx.pipelines.experiments.trials.trial import by_query, queries_of
from ragidx.retriever.models import QUESTIONS_FILE

from ...measuring import evaluated
from ...raising import message_of
from .conftest import INDEX, spec_of

pytestmark = pytest.mark.slow

DIM = 64
QUESTION = "why were pigeons chased out of an antenna?"
KEPT = ragidx.FilterSpec("embedfilter", dim=DIM)
SUBJECTS = ("astronomy", "history", "economics", "music")


class Built(NamedTuple):
    """Indexes of a third of the sample corpus whose model has layers, without a table and with one; how it was made."""

    plain: Path
    trained: Path
    report: QuestionsReport
    stages: list[str]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    place, stages = tmp_path_factory.mktemp("questions"), list[str]()
    plain, trained = place / "plain", place / "trained"
    some, size = ["astronomy/*", "history/*", "economics.tsv", "music.csv"], ragidx.ChunkSpec(size=96)
    ragidx.build(sample_corpus(), plain, model="mini-decoder", method="llm2vec", filter=KEPT, include=some, chunks=size)
    shutil.copytree(plain, trained)
    index = ragidx.Index(trained)
    report = index.train_questions(
        epochs=4, force=True, cache=None, on_progress=lambda stage: stages.append(stage.name)
    )
    return Built(plain, trained, report, stages)


@pytest.fixture
def plain(folder: Path, built: Built) -> ragidx.Index:
    shutil.copytree(built.plain, INDEX)
    return ragidx.Index(INDEX)


@pytest.fixture
def trained(folder: Path, built: Built) -> ragidx.Index:
    shutil.copytree(built.trained, INDEX)
    return ragidx.Index(INDEX)


def judged(names: Callable[[list[str]], list[str]]) -> dict[str, Any]:
    """Some queries of the sample, as options."""
    every = task_of(sample_corpus().parent).judged
    some = every.some(names(list(every.texts)))
    Path("q.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in some.texts.items()))
    lines = [f"{name} 0 {doc} {grade}\n" for name, docs in some.qrels.items() for doc, grade in docs.items()]
    Path("qrels").write_text("".join(lines))
    return {"queries": "q.tsv", "qrels": "qrels"}


def of_these(names: list[str]) -> list[str]:
    """Those that ask for documents of the index."""
    return [name for name in names if name.startswith(SUBJECTS)]


def ids(index: ragidx.Index, **options: Any) -> list[str]:
    return [hit.chunk_id for hit in index.search(QUESTION, **options)]


def has_table(index: ragidx.Index) -> bool:
    return QUESTIONS_FILE in Store.open(index.path).manifest.files


def test_a_table_is_trained_compared_and_committed(trained: ragidx.Index, built: Built) -> None:
    before = ids(ragidx.Index(built.plain), mode="dense")
    report, stages = built.report, built.stages

    store = Store.open(INDEX)
    assert (report.index, report.generation, report.questions) == (str(built.trained), 2, "table")
    assert report.verdict in ("not worse", "forced")
    assert (report.n_chunks, report.n_texts) == (store.manifest.n_chunks, 0)
    assert report.n_bytes == store.manifest.files[QUESTIONS_FILE].bytes
    assert report.comparison.queries == "sentence"
    assert report.comparison.old > report.comparison.new > 0.2
    assert 0 < report.table_ms < report.model_ms
    note = store.manifest.notes[NOTE]
    assert isinstance(note, dict)
    assert {"seed", "of", "lower_bound", "questions", "n_tokens"} <= note.keys()
    assert store.manifest.requires == ("question table",)
    assert stages[:2] == ["encoding 4,415 single tokens", "training, step 0 of 4"]
    assert stages[-2:] == ["asking both", "writing the table"]
    assert not verify(INDEX)
    table = trained.searcher.table
    assert (table.dim, len(table.tokens)) == (DIM, report.n_tokens)
    assert (trained.searcher.encode([QUESTION]) == table.vectors([QUESTION])).all()
    assert ids(trained, mode="dense") != before
    assert ids(ragidx.Index(INDEX, questions="model"), mode="dense") == before
    trained.rollback(1)
    assert ids(trained, mode="dense") == before
    assert trained.searcher.questions == "model"


def test_the_model_encodes_where_the_table_is_not_shown_to_be_as_good(plain: ragidx.Index) -> None:
    report = plain.train_questions(epochs=1, margin=1e-4, cache=None)

    assert report.verdict in ("worse", "undecided")
    assert (report.questions, plain.searcher.questions, has_table(plain)) == ("model", "model", True)
    assert plain.searcher.encode([QUESTION]).tolist() != plain.searcher.table.vectors([QUESTION]).tolist()
    asked = ragidx.Index(INDEX, questions="table").searcher.encode([QUESTION])
    assert (asked == plain.searcher.table.vectors([QUESTION])).all()


def test_judged_queries_decide(plain: ragidx.Index) -> None:
    folder = sample_corpus().parent
    report = plain.train_questions(epochs=2, queries=folder, qrels=folder, cache=None)

    assert (report.comparison.queries, report.comparison.n_queries) == ("given", 60)


def test_texts_of_the_user_are_learnt_from_too(plain: ragidx.Index) -> None:
    Path("more.txt").write_text("A zyzzyva is a weevil of the tropics, and zyzzyvas eat palms. " * 20)
    report = plain.train_questions(text="more.txt", epochs=1, force=True, cache="cache")

    assert report.n_texts >= 1
    assert report.n_tokens > 0
    assert any(Path("cache").iterdir())
    assert plain.searcher.table.vectors(["zyzzyva"]).any()


def test_the_table_that_is_judged_has_learnt_no_text_of_the_user_that_holds_what_is_asked(plain: ragidx.Index) -> None:
    store = plain.searcher.store
    made = queries_of(plain.searcher, None, None)
    wanted = {doc_id for relevance in made.qrels.values() for doc_id in relevance}
    known = [chunk.text for _, chunk in store.chunks() if chunk.doc_id in wanted]
    asking = [f"Somebody asked: {text}" for text in made.texts.values()]
    others = ["A zyzzyva is a weevil of the tropics, and zyzzyvas eat palms." for _ in range(3)]
    texts = [*known, *asking, *others]

    apart = _Texts(texts, np.arange(len(texts), dtype=np.float32)[:, None]).apart(made, store)

    assert apart.texts == others
    assert apart.vectors.ravel().tolist() == list(range(len(texts) - 3, len(texts)))


def test_a_token_that_spells_nothing_is_not_sent_to_the_model(
    plain: ragidx.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher, sent = plain.searcher, list[str]()
    batches = searcher.encoder.batches
    monkeypatch.setattr(
        type(searcher.encoder), "batches", lambda self, texts, **more: [sent.extend(texts), batches(texts, **more)][1]
    )
    monkeypatch.setattr(
        "ragidx.pipelines.experiments.trials.questions.spelled", lambda tokenizer, tokens: ["", "owl", " "]
    )

    of = _Run(searcher, 10, 1, 0, Stages(None))._single(searcher.encoder.tokenizer.texts, np.array([0, 7, 9]))

    assert sent == ["owl"]
    assert of(np.array([0, 7, 9])).any(axis=1).tolist() == [False, True, False]


def test_a_writer_that_holds_the_index_at_the_end_is_waited_for(plain: ragidx.Index) -> None:
    def hold(stage: Stage) -> None:
        if stage.name == "writing the table":
            threading.Timer(0.5, Lock(INDEX).release).start()

    report = plain.train_questions(epochs=1, force=True, on_progress=hold, **judged(of_these))

    assert report.generation == 2


def test_an_index_whose_questions_are_a_table_s_is_adapted_only_if_that_answers_better(trained: ragidx.Index) -> None:
    options = judged(lambda names: [*of_these(names)[:5], *sorted({*names} - {*of_these(names)})[:15]])
    before = float(by_query(trained.searcher, task_of(INDEX, Questions.read(**options)).judged).mean())

    report = trained.adapt(limit=60, epochs=1, cache=None, **options)

    assert report.comparison.old == pytest.approx(before)
    assert trained.searcher.questions == ("model" if report.committed and report.is_mapped else "table")


def test_a_query_loads_no_network(trained: ragidx.Index) -> None:
    code = f"""
import json, sys, ragidx
hits = ragidx.Index({str(INDEX)!r}).search({QUESTION!r})
print(json.dumps([hits[0].doc_id, sorted({{"torch", "transformers"}} & set(sys.modules))]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["astronomy/cosmic-microwave-background.md", []]


def test_what_a_table_cannot_do_the_model_does(trained: ragidx.Index) -> None:
    by_model = ragidx.Index(INDEX, questions="model")
    told = {"instruction": "Find what answers the question."}
    assert (trained.searcher.encode([QUESTION], **told) == by_model.searcher.encode([QUESTION], **told)).all()
    both = trained.searcher.encode(["щ", QUESTION])
    assert (both[0] == by_model.searcher.encode(["щ"])[0]).all()
    assert (both[1] == trained.searcher.table.vectors([QUESTION])[0]).all()


def test_a_table_stays_with_the_index_and_leaves_with_its_vectors(trained: ragidx.Index) -> None:
    was = Store.open(INDEX).blob(QUESTIONS_FILE)
    trained.add([ragidx.Document("one", "A page about pigeons.")])
    assert (trained.searcher.questions, Store.open(INDEX).blob(QUESTIONS_FILE) == was) == ("table", True)
    trained.shrink(dim=16)
    assert (trained.searcher.table.dim, trained.searcher.encode([QUESTION]).shape) == (16, (1, 16))
    trained.compact()
    assert trained.searcher.questions == "table"
    assert not verify(INDEX)


def test_vectors_that_are_made_anew_have_no_table(trained: ragidx.Index) -> None:
    report = trained.upgrade(filter=ragidx.FilterSpec("none"), force=True)
    assert report.committed
    assert not has_table(trained)
    assert (spec_of(INDEX).questions, trained.searcher.questions) == ("", "model")


def test_an_index_that_is_adapted_has_no_table(trained: ragidx.Index) -> None:
    report = trained.adapt(limit=60, epochs=1, force=True, cache=None)
    assert report.is_mapped is not has_table(trained)
    by_model = ragidx.Index(INDEX, questions="model").searcher.encode([QUESTION])
    if report.is_mapped:
        assert (trained.searcher.encode([QUESTION]) == by_model).all()


def test_what_cannot_be_trained_is_refused_in_a_sentence(plain: ragidx.Index) -> None:
    small = ragidx.build(sample_corpus(), "static")
    assert message_of(SpecError, small.train_questions) == (
        "static: 'mini' is a table of tokens already: a question takes it as long\n"
        "  hint: a table is for models with layers"
    )
    assert message_of(SpecError, lambda: plain.train_questions(epochs=0)).startswith(
        "`epochs`: epochs=0 is out of range"
    )
    assert "margin=0 allows no loss" in message_of(SpecError, lambda: plain.train_questions(margin=0))
    assert "qrels" in message_of(SpecError, lambda: plain.train_questions(queries="q.jsonl"))
    assert message_of(SpecError, lambda: ragidx.Index(INDEX, questions="table")) == (
        f"{INDEX}: the index has no table of questions\n  hint: make one: `ragidx train questions`"
    )
    assert "neither table nor model" in message_of(SpecError, lambda: ragidx.Index(INDEX, questions="words"))
    (INDEX / "upgrade").mkdir()
    with Lock(INDEX / "upgrade"):
        message_of(BusyError, plain.train_questions)
    few = ragidx.build(sample_corpus(), "few", model="mini-decoder", method="llm2vec", include="astronomy/*")
    message_of(CorpusError, few.train_questions)
    shutil.move(INDEX, "moved")
    assert not has_table(ragidx.Index("moved"))


def test_given_vectors_have_no_table(given: np.ndarray) -> None:
    message_of(ModelError, lambda: ragidx.Index(INDEX).train_questions())


def test_a_reader_that_knows_no_tables_says_so(trained: ragidx.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "KNOWN", ("trained head",))
    manifest.parse_manifest.cache_clear()
    assert "knows 'question table'" in message_of(manifest.NewerFormatError, lambda: ragidx.Index(INDEX))
    manifest.parse_manifest.cache_clear()


def test_an_evaluation_compares_both_on_judged_queries(trained: ragidx.Index) -> None:
    by_hand = judged(of_these)

    (task,) = evaluated(INDEX, questions=["model", "table"], mode="dense", cache=None, **by_hand).tasks

    assert [(row.configuration.questions, row.name) for row in task.rows] == [("model", "model"), ("table", "table")]
    (alone,) = evaluated(INDEX, mode="dense", cache=None, **by_hand).tasks
    assert alone.rows[0].means == task.rows[1].means  # which the index takes by itself
    assert alone.rows[0].means != task.rows[0].means
    (made,) = ragidx.evaluate(INDEX, grid=Grid(mode="dense"), questions=Questions.made(), cache=None).tasks
    assert [row.configuration.questions for row in made.rows] == ["model"]
    for source, options, message in (
        (
            INDEX,
            {"questions": "table", "without_labels": True},
            "`questions`: the table has learnt from the sentences that would ask\n"
            "  hint: give `queries` and `qrels`; `ragidx train questions` compares both without",
        ),
        (
            sample_corpus(),
            {"questions": "table", **by_hand},
            "`questions`: a corpus has no table of questions\n  hint: evaluate the index that has it",
        ),
        (
            INDEX,
            {"questions": "tables", **by_hand},
            "`questions`: 'tables' is neither table nor model\n  hint: give one of them",
        ),
    ):
        asked: dict[str, Any] = {"cache": None, **options}
        said = message_of(SpecError, lambda source=source, asked=asked: evaluated(source, **asked))
        assert said == message


def test_an_index_of_too_few_chunks_is_refused_before_its_model_is_loaded(
    tmp_path: Path, tiny_model: Callable[..., Path]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("The mill stands by the river.")
    ragidx.build(tmp_path / "docs", tmp_path / "index", model=str(tiny_model()), filter="none").close()
    with ragidx.Index(tmp_path / "index") as index:
        assert message_of(CorpusError, index.train_questions) == (
            f"{tmp_path / 'index'}: the index has 1 chunks with a text: nothing is learnt from fewer than 100\n"
            "  hint: the model encodes its questions"
        )
        assert "encoder" not in vars(index.searcher)
