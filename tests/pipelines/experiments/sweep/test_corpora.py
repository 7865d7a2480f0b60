"""`sweep` of a corpus: encoded once, judged by its qrels, and every way it refuses."""

from __future__ import annotations

import math
import resource
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import CorpusError, RagidxError
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.encoders.static import StaticEncoder
from ragidx.indexer.specs import FilterSpec
from ragidx.pipelines.base.stages import Stage
from ragidx.pipelines.experiments.evaluate.cells import index_of
from ragidx.pipelines.experiments.evaluate.sources.corpus import CorpusSource
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors
from ragidx.pipelines.experiments.evaluate.sources.series import WidthChoice, series_of
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.ingest.resolve import resolve_against

from ....measuring import ndcg_at_10
from ....raising import message_of
from .conftest import SUBJECTS, means_of, random_rows, rows_of, sweep, widths_of, write_lines

pytestmark = pytest.mark.usefixtures("briefly")


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every document that goes through a model, in order."""
    seen: list[str] = []
    batches = StaticEncoder.batches

    def counted(self: StaticEncoder, texts: Sequence[str], **options: Any) -> Any:
        if options.get("instruction") is None:
            seen.extend(texts)
        return batches(self, texts, **options)

    monkeypatch.setattr(StaticEncoder, "batches", counted)
    return seen


@pytest.mark.slow
def test_a_corpus_is_encoded_once_for_all_filters_and_widths(beir: Path, encoded: list[str]) -> None:
    report = sweep(
        beir,
        model="mini-decoder",
        filter=["embedfilter", "truncation", "pca", "optimal"],
        dim=[8, 4],
        chunks=ragidx.ChunkSpec(size=None),
    )

    assert sorted(encoded) == sorted({f"The {word} and the story of its {word}." for word in SUBJECTS})
    names = ("embedfilter", "truncation", "pca", "optimal")
    assert rows_of(report) == [
        ("none", 256, "exact"),
        ("none", 256, "flat"),
        *((name, dim, "flat") for name in names for dim in (8, 4)),
    ]


@pytest.mark.slow
def test_a_second_sweep_takes_raw_vectors_from_the_cache(beir: Path, tmp_path: Path, encoded: list[str]) -> None:
    first = sweep(beir, model="mini-decoder", dim=[8], chunks=ragidx.ChunkSpec(size=None), cache=tmp_path / "kept")
    encoded.clear()

    again = sweep(beir, model="mini-decoder", dim=[8, 4], chunks=ragidx.ChunkSpec(size=None), cache=tmp_path / "kept")

    assert encoded == []
    assert means_of(again, "ndcg@10")[:3] == means_of(first, "ndcg@10")
    sweep(beir, model="mini-decoder", dim=[8], chunks=ragidx.ChunkSpec(size=None), cache=None)
    assert len(encoded) == 11


@pytest.mark.slow
def test_the_queries_and_qrels_of_a_beir_folder_are_asked(beir: Path) -> None:
    report = sweep(beir, model="mini-decoder", chunks=ragidx.ChunkSpec(size=None))

    task = report.tasks[0]
    assert task.query_ids == ("q1", "q2")
    assert task.notes[:2] == (
        f"Not among the queries: 1 x judged query; first: 'q9' ({beir / 'qrels' / 'test.tsv'}:4).",
        "Without judgements, and left out: 1 x query.",
    )
    assert widths_of(report, "embedfilter") == [255, 128, 64, 32, 16]
    assert task.rows[0].configuration.index_type == "exact"
    first = next(row for row in task.rows if row.configuration.filter == "embedfilter")
    assert first.interval.mean == 1.0  # the documents that have the words stand first


@pytest.mark.slow
def test_the_widths_of_a_sweep_rank_documents_as_an_index_of_that_width_does(beir: Path, tmp_path: Path) -> None:
    ragidx.build(beir, tmp_path / "index", chunks=ragidx.ChunkSpec(size=None), filter=ragidx.FilterSpec("pca", dim=6))
    retriever = ragidx.Index(tmp_path / "index")
    asked = {"q1": "the story of the bees", "q2": "music"}
    answers = retriever.rank_documents(list(asked.values()))
    qrels = {"q1": {"d4": 1}, "q2": {"d8": 1}}
    want = ndcg_at_10(qrels, {q: dict(hits) for q, hits in zip(asked, answers, strict=True)})

    report = sweep(beir, filter=["pca"], dim=[6], chunks=ragidx.ChunkSpec(size=None))

    assert rows_of(report)[-1] == ("pca", 6, "flat")
    assert means_of(report, "ndcg@10")[-1] == pytest.approx(want, abs=1e-6)


@pytest.mark.slow
def test_the_sample_of_a_fit_is_that_of_a_build(beir: Path, tmp_path: Path) -> None:
    ragidx.build(
        beir,
        tmp_path / "index",
        chunks=ragidx.ChunkSpec(size=None),
        filter=ragidx.FilterSpec("pca", dim=3, sample=5, seed=4),
    )
    kept = ragidx.Index(tmp_path / "index").searcher.encode(["music"])
    fitted = FilterSpec(name="pca", dim=3, sample=5, seed=4)
    resolved = resolve_against(build_options("sweep", filter="none", chunks=ragidx.ChunkSpec(size=None)))

    with RawVectors(resolved, None) as vectors:
        source = CorpusSource(beir, tmp_path, vectors, fitted=fitted)
        series = series_of(source, ["pca"], WidthChoice(dims=(3,)), {"sample": 5, "seed": 4})[0]

        np.testing.assert_allclose(series.narrow(source.encode(["music"]), 3), kept, atol=1e-5)


@pytest.mark.slow
def test_documents_count_by_their_best_chunk(tmp_path: Path) -> None:
    """The words of one document fill more than ten chunks; the others still are found."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "bees.txt").write_text("\n\n".join(f"Bees dance, bees hum, and bees fly home {n}." for n in range(30)))
    for word in SUBJECTS[:3]:
        (folder / f"{word}.txt").write_text(f"The {word} is another story altogether.\n")
    write_lines(tmp_path / "q.jsonl", [{"_id": "q", "text": "bees"}])
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\triver.txt\t1\nq\tbees.txt\t1\n")

    report = sweep(
        folder, queries=tmp_path / "q.jsonl", qrels=tmp_path / "qrels.tsv", dim=[64], chunks=ragidx.ChunkSpec(size=16)
    )

    assert report.tasks[0].n_chunks > 30
    assert means_of(report, "ndcg@10")[0] > (1 + 1 / math.log2(5)) / (1 + 1 / math.log2(3)) - 1e-9


@pytest.mark.slow
def test_what_is_left_out_of_a_corpus_is_noted(small_corpus: Path) -> None:
    (small_corpus / "broken.json").write_text("{")

    report = sweep(small_corpus, dim=[8])

    assert any(note.startswith("Skipped: 1 x ") for note in report.tasks[0].notes)


@pytest.mark.slow
def test_the_results_of_an_earlier_sweep_are_no_documents(small_corpus: Path) -> None:
    (small_corpus / "report").mkdir()
    (small_corpus / "report" / "results.csv").write_text("task,model\nscifact,mini\n")

    report = sweep(small_corpus, dim=[8], out=small_corpus / "report")

    assert report.tasks[0].n_documents == 6


def test_an_index_without_rows_is_refused(given_index: Callable[..., Path]) -> None:
    index = given_index(random_rows(2, 4))
    ragidx.Index(index).delete(["0", "1"])

    said = message_of(CorpusError, lambda: sweep(index))

    assert said == f"{index}: there is no vector to search\n  hint: add documents"


@pytest.mark.slow
def test_a_corpus_without_documents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(CorpusError, match="the corpus is empty: there is no file in it"):
        sweep(tmp_path / "empty")


@pytest.mark.slow
def test_queries_that_nobody_judged_are_refused(beir: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "other.jsonl", [{"_id": "z", "text": "bees"}])

    with pytest.raises(CorpusError, match="no query is judged"):
        sweep(beir, queries=tmp_path / "other.jsonl", qrels=beir / "qrels" / "test.tsv")


@pytest.mark.slow
def test_a_malformed_line_of_qrels_ends_it_before_anything_is_encoded(small_corpus: Path, beir: Path) -> None:
    stages: list[str] = []
    with (beir / "qrels" / "test.tsv").open("a") as file:
        file.write("q1\td4\tmuch\n")

    message = message_of(
        CorpusError,
        lambda: sweep(small_corpus, queries=beir, qrels=beir, on_progress=lambda stage: stages.append(stage.name)),
    )
    assert message.startswith(f"{beir / 'qrels' / 'test.tsv'}:5: ")
    assert stages == []


def test_qrels_of_another_corpus_are_refused(small_corpus: Path, beir: Path) -> None:
    with pytest.raises(CorpusError, match=r"no relevant document is here .*documents: 'facts.jsonl#bees'"):
        sweep(small_corpus, queries=beir, qrels=beir, dim=[8])


@pytest.mark.slow
def test_relevant_documents_that_are_not_there_are_noted(beir: Path) -> None:
    with (beir / "qrels" / "test.tsv").open("a") as file:
        file.write("q1\tgone\t1\n")

    report = sweep(beir, dim=[8], chunks=ragidx.ChunkSpec(size=None))

    told = f"Not in the corpus, so never found: 1 x relevant document; first: 'gone' ({beir / 'qrels' / 'test.tsv'}:5)."
    assert told in report.tasks[0].notes


@pytest.mark.slow
def test_queries_beside_documents_that_are_no_beir_corpus_are_not_asked(beir: Path) -> None:
    (beir / "corpus.jsonl").rename(beir / "documents.jsonl")

    report = sweep(beir, dim=[8])

    assert report.tasks[0].measure == "overlap@10"


@pytest.mark.slow
def test_a_model_with_its_own_modules_is_swept_by_truncation_and_pca(
    small_corpus: Path, tiny_sentence_transformer: Path
) -> None:
    report = sweep(small_corpus, model=str(tiny_sentence_transformer), dim=[4], device="cpu")

    assert list(dict.fromkeys(name for name, _, _ in rows_of(report))) == ["none", "truncation", "pca"]


@pytest.mark.slow
def test_stages_are_counted_and_nothing_stays_behind(
    beir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    stages: list[Stage] = []

    sweep(beir, model="mini-decoder", dim=[8], chunks=ragidx.ChunkSpec(size=None), on_progress=stages.append)

    assert [stage.number for stage in stages] == [1, 2, 3, 4, 5, 6, 7]
    assert [stage.total for stage in stages] == [0, 7, 7, 7, 7, 7, 7]
    assert [stage.name for stage in stages] == [
        "encoding with mini-decoder", "indexing the words", "words",
        "the exact answers at full width", "none, 256 dimensions, flat", "random projections, 8 dimensions",
        "embedfilter, 8 dimensions, flat",
    ]  # fmt: skip
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_temporary_folder_without_room_is_named(tmp_path: Path) -> None:
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(RagidxError) as fault:
            index_of(tmp_path / "made", [np.tile(np.eye(1, 8, dtype="f4"), (99, 1))], 8, IndexOptions("flat"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)

    assert fault.value.message.startswith("the temporary folder: cannot write: ")
    assert fault.value.hint == "free some space, or name a folder with room: TMPDIR=DIR ragidx ..."
