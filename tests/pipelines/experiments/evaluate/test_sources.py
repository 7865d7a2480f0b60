"""What may be evaluated: each kind of source gives its rows, and names what is wrong with it."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import CorpusError, RagidxError, SpecError
from ragidx.corpora.evalsets import load_pairs

from ....measuring import evaluated
from ....raising import message_of
from .conftest import WORDS, qrels_of, write_beir, write_qrels, write_run

DOCUMENTS = ragidx.ChunkSpec(size=None)


def evaluate(*sources: Path, **options: Any) -> Any:
    return evaluated(*sources, cache=None, **{"mode": "dense", "filter": "truncation", "chunks": DOCUMENTS} | options)


def means(report: Any) -> list[float]:
    return [row.interval.mean for task in report.tasks for row in task.rows]


def packed(folder: Path) -> Path:
    """Each file of a folder, as .gz."""
    for file in [one for one in folder.rglob("*") if one.is_file()]:
        file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    return folder


def test_a_beir_folder_may_be_packed(beir: Path) -> None:
    plain = evaluate(beir)

    assert means(evaluate(packed(beir))) == means(plain)
    assert plain.tasks[0].name == "beir"
    assert (plain.tasks[0].n_documents, len(plain.tasks[0].query_ids)) == (24, 24)


def test_another_split_is_judged_by_its_own_qrels(beir: Path) -> None:
    write_qrels(beir / "qrels" / "dev.tsv", qrels_of(3))

    report = evaluate(beir, split="dev")

    assert report.tasks[0].query_ids == ("q0", "q1", "q2")
    assert report.tasks[0].notes == (
        "Without judgements, and left out: 22 x query.",
        "Nothing can be concluded from fewer than 20 queries, here 3.",
    )


def test_queries_without_judgements_are_left_out_and_counted(beir: Path) -> None:
    report = evaluate(beir)

    assert "unjudged" not in report.tasks[0].query_ids
    assert report.tasks[0].notes == ("Without judgements, and left out: 1 x query.",)


def test_trec_topics_and_qrels_say_what_beir_says(beir: Path, tmp_path: Path) -> None:
    topics = "".join(
        f"<top>\n<num> Number: q{n}\n<title> what is told of the {word}?\n</top>\n" for n, word in enumerate(WORDS)
    )
    (tmp_path / "topics.txt").write_text(topics)
    lines = [f"{query} 0 {name} {grade}" for query, judged in qrels_of(24).items() for name, grade in judged.items()]
    (tmp_path / "trec.qrels").write_text("\n".join(lines) + "\n")

    report = evaluate(beir, queries=tmp_path / "topics.txt", qrels=tmp_path / "trec.qrels")

    assert means(report) == means(evaluate(beir))


def test_a_folder_of_files_takes_queries_and_qrels(small_corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_text("mill\twhere does the old mill stand?\nlake\twho signed the lease of the house?\n")
    (tmp_path / "qrels.tsv").write_text("mill 0 mill.md 1\nlake 0 lease.txt 1\n")

    report = evaluate(small_corpus, queries=tmp_path / "q.tsv", qrels=tmp_path / "qrels.tsv")

    assert means(report) == [1.0]


def test_pairs_of_sentences_are_correlated(sts: Path) -> None:
    report = evaluate(sts, filter=["truncation", "none"], dim=64)

    (task,) = report.tasks
    assert (task.kind, task.measure, list(task.values), task.n_documents) == (
        "pairs",
        "spearman",
        ["spearman", "pearson"],
        24,
    )
    raw = ragidx.load_embedder("mini", filter="none")
    pairs = load_pairs(sts)
    first, second = raw.embed_document(pairs.first), raw.embed_document(pairs.second)
    want = np.corrcoef(np.einsum("ij,ij->i", first, second), pairs.scores)[0, 1]
    assert task.rows[1].means["pearson"] == pytest.approx(want, abs=1e-5)
    assert means(evaluate(sts / "test.tsv", filter=["truncation", "none"], dim=64)) == means(report)
    assert means(evaluate(packed(sts), filter=["truncation", "none"], dim=64)) == means(report)


def test_filters_of_pairs_are_fitted_on_their_sentences(sts: Path) -> None:
    task = evaluate(sts, model="mini-decoder", filter=["pca", "optimal"], dim=16).tasks[0]

    pairs, raw = load_pairs(sts), ragidx.load_encoder("mini-decoder")
    vectors = raw.encode_query([*pairs.first, *pairs.second])
    centred = vectors - vectors.mean(axis=0)
    narrow = centred @ np.linalg.svd(centred, full_matrices=False)[2][:16].T
    first, second = np.split(narrow / np.linalg.norm(narrow, axis=1, keepdims=True), 2)
    want = np.corrcoef(np.einsum("ij,ij->i", first, second), pairs.scores)[0, 1]
    assert task.rows[0].means["pearson"] == pytest.approx(want, abs=1e-4)
    assert -1 <= task.rows[1].means["pearson"] <= 1


def test_an_index_is_measured_with_its_own_filter(beir: Path, tmp_path: Path) -> None:
    ragidx.build(beir, tmp_path / "index", filter=ragidx.FilterSpec("truncation", tau=4), chunks=DOCUMENTS)

    index = ragidx.evaluate(tmp_path / "index", questions=ragidx.Questions.read(queries=beir, qrels=beir), cache=None)

    corpus = evaluate(beir, tau=4, mode=["lexical", "dense", "hybrid"])
    assert [row.means for row in index.tasks[0].rows] == [row.means for row in corpus.tasks[0].rows]
    assert [row.configuration.dim for row in index.tasks[0].rows] == [None, 96, 96]


@pytest.mark.slow
def test_the_words_of_an_index_are_stemmed_as_it_stems_them(beir: Path, tmp_path: Path) -> None:
    judged = {"queries": beir, "qrels": beir, "cache": None, "mode": "lexical"}
    asked = (beir / "queries.jsonl").read_text()
    (beir / "queries.jsonl").write_text(asked.replace("what is told of the river?", "rivers"))  # no word of a document

    found = {}
    for stemmer in ("none", "english"):
        ragidx.build(beir, tmp_path / stemmer, stemmer=stemmer, chunks=DOCUMENTS)
        (task,) = evaluated(tmp_path / stemmer, **judged).tasks  # type: ignore[arg-type]
        found[stemmer] = task.values["mrr@10"][0][0]

    assert found == {"none": 0, "english": 1}


def test_an_index_gives_narrower_widths_and_refuses_other_filters(beir: Path, tmp_path: Path) -> None:
    ragidx.build(beir, tmp_path / "index", filter=ragidx.FilterSpec("truncation", tau=2), chunks=DOCUMENTS)
    judged = {"queries": beir, "qrels": beir, "cache": None, "mode": "dense"}

    report = evaluated(tmp_path / "index", dim=[32, 16], **judged)  # type: ignore[arg-type]

    assert means(report) == pytest.approx(means(evaluate(beir, dim=[32, 16])), abs=0.002)  # of float16 vectors
    for options, message in (
        ({"filter": "pca"}, "the index holds vectors after the filter 'truncation', and others need raw ones"),
        ({"offset": 3}, "the index holds vectors after its filter, which is fixed"),
        ({"method": "echo"}, "the index says how its vectors are made: `method` cannot be chosen"),
        ({"dim": 200}, "dim=200 is more than the 192 dimensions there are"),
    ):
        refused = message_of(RagidxError, lambda options=options: evaluated(tmp_path / "index", **judged, **options))  # type: ignore[misc]
        assert message in refused


def test_an_index_of_raw_vectors_is_measured_as_it_is_or_filtered(beir: Path, tmp_path: Path) -> None:
    ragidx.build(beir, tmp_path / "index", filter="none", chunks=DOCUMENTS)
    judged = {"queries": beir, "qrels": beir, "cache": None, "mode": "dense"}

    as_it_is = evaluated(tmp_path / "index", **judged)  # type: ignore[arg-type]
    filtered = evaluated(tmp_path / "index", filter=["pca", "none"], dim=16, **judged)  # type: ignore[arg-type]

    assert [row.configuration.filter for row in as_it_is.tasks[0].rows] == ["none"]
    assert [(row.configuration.filter, row.configuration.dim) for row in filtered.tasks[0].rows] == [
        ("pca", 16),
        ("none", 384),
    ]
    assert means(as_it_is) == means(filtered)[1:]


def test_several_data_sets_are_measured_each_by_its_own_queries(beir: Path, sts: Path, tmp_path: Path) -> None:
    other = write_beir(tmp_path / "other", WORDS[:21])

    report = evaluate(beir, sts, other)

    assert [(task.name, task.measure, len(task.query_ids)) for task in report.tasks] == [
        ("beir", "ndcg@10", 24), ("sts", "spearman", 24), ("other", "ndcg@10", 21)
    ]  # fmt: skip


def test_data_sets_of_one_name_are_told_apart_by_their_paths(beir: Path, tmp_path: Path) -> None:
    shutil.copytree(beir, tmp_path / "second" / "beir")

    report = evaluate(beir, tmp_path / "second" / "beir", beir)

    assert [task.name for task in report.tasks] == [str(beir), str(tmp_path / "second" / "beir")]


def test_the_document_with_the_id_of_the_query_is_dropped_where_that_is_wanted(beir: Path) -> None:
    lines = (beir / "queries.jsonl").read_text().replace('"_id": "q', '"_id": "d')
    (beir / "queries.jsonl").write_text(lines)
    judged = {name.replace("q", "d"): judgements for name, judgements in qrels_of(24).items()}
    write_qrels(beir / "qrels" / "test.tsv", judged)

    with_self, without = evaluate(beir), evaluate(beir, drop_self=True)

    assert with_self.tasks[0].rows[0].means["mrr@10"] == 1
    assert not any("own id" in note for note in with_self.tasks[0].notes)  # it is judged relevant
    assert without.tasks[0].rows[0].means["recall@10"] < 0.5  # half of what is relevant is gone

    (task,) = evaluate(
        beir, model="mini-decoder", filter=["none", "embedfilter"], tau=1, measure="recall@10", drop_self=True
    ).tasks

    low, high = task.rows[1].chance  # of rotations, which change no cosine
    assert low == pytest.approx(task.rows[0].means["recall@10"], abs=1e-6) == high


def test_queries_that_are_documents_are_noted_once(beir: Path) -> None:
    lines = (beir / "queries.jsonl").read_text().replace('"_id": "q', '"_id": "d')
    (beir / "queries.jsonl").write_text(lines)
    write_qrels(beir / "qrels" / "test.tsv", {f"d{n}": {f"d{n + 1}": 1} for n in range(23)})

    (task,) = evaluate(beir, tau=[1, 2]).tasks

    assert len(task.rows) > 1
    assert sum("own id first, which is not relevant: `drop_self=True`" in note for note in task.notes) == 1


def test_what_is_relevant_and_not_here_is_never_found(beir: Path) -> None:
    qrels = qrels_of(24)
    qrels["q3"] = {"elsewhere": 1}
    qrels["q99"] = {"d1": 1}
    file = write_qrels(beir / "qrels" / "test.tsv", qrels)

    report = evaluate(beir)

    assert report.tasks[0].values["ndcg@10"][0][3] == 0
    assert report.tasks[0].notes == (
        f"Not among the queries: 1 x judged query; first: 'q99' ({file}:49).",
        "Without judgements, and left out: 1 x query.",
        f"Not in the corpus, so never found: 1 x relevant document; first: 'elsewhere' ({file}:8).",
    )


def test_a_source_that_cannot_be_measured_says_why(beir: Path, small_corpus: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "old.run", {"q0": ["d0"]})
    write_qrels(tmp_path / "strange.tsv", {"q0": {"strange": 1}})
    (tmp_path / "asked.tsv").write_text("bees\thow do bees dance?\n")
    facts, nothing_says = small_corpus / "facts.jsonl", "nothing says which documents answer which query of this"
    give = "give `queries` and `qrels`, or make queries of the corpus itself: `Questions.made()`"
    for source, options, kind, message in (
        (tmp_path / "none", {}, CorpusError, f"{tmp_path}/none: no such file or folder\n  hint: check the path"),
        (small_corpus, {}, SpecError, f"{small_corpus}: there are no queries\n  hint: {give}"),
        (facts, {}, SpecError, f"{facts}: {nothing_says} corpus\n  hint: {give}"),
        (tmp_path / "old.run", {}, SpecError, f"{tmp_path}/old.run: {nothing_says} run\n  hint: give `qrels`"),
        (
            beir,
            {"qrels": tmp_path / "strange.tsv"},
            CorpusError,
            f"{tmp_path}/strange.tsv:2: no relevant document is here (qrels: 'strange', ...; documents: 'd0', ...)\n"
            "  hint: give the qrels that belong to the corpus",
        ),
        (
            beir,
            {"queries": tmp_path / "asked.tsv"},
            CorpusError,
            f"{beir}/qrels/test.tsv:2: no query is judged (queries: 'bees', ...; qrels: 'q0', ...)\n"
            "  hint: give the qrels that belong to the queries",
        ),
    ):  # fmt: skip
        assert message_of(kind, lambda source=source, options=options: evaluate(source, **options)) == message  # type: ignore[misc]
    assert message_of(SpecError, evaluate) == (
        "there is nothing to evaluate\n  hint: name a data set, an index or runs"
    )


@pytest.mark.parametrize("name", ["sts/test.csv", "sts/test.tsv"])
def test_a_file_of_pairs_says_which_line_is_wrong(tmp_path: Path, name: str) -> None:
    (tmp_path / "sts").mkdir()
    (tmp_path / name).write_text("3.0\ta\tb\nfive\ta\tb\n".replace("\t", "," if name.endswith("csv") else "\t"))

    assert message_of(CorpusError, lambda: evaluate(tmp_path / name)).startswith(
        f"{tmp_path / name}:2: the score 'five' is not a number"
    )
