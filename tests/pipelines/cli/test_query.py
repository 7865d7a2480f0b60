"""`ragidx query` as a user runs it: hits as a table, as JSON, and as a TREC run."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

import ragidx
from ragidx.corpora.records import FILE_FIELDS

from ..conftest import Done
from .conftest import ANSWER, QUESTION, hits_of

Run = Callable[..., Done]


@pytest.mark.wheel
@pytest.mark.slow
@pytest.mark.usefixtures("mini_index")
def test_a_query_prints_a_table_of_hits_best_first(run: Run) -> None:
    done = run("query", QUESTION, "-k", "2")

    head, first, passage, second, *_ = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    assert head == " #  score  cosine   bm25  source"
    assert re.fullmatch(r" 1  \d\.\d{3}   0\.\d{3}   \d\.\d\d  lease\.txt:1", first)
    assert passage == f"           {ANSWER}"
    assert re.match(r" 2  -?\d\.\d{3}  [ -]0\.\d{3}   \d\.\d\d  \S", second)


@pytest.mark.slow
@pytest.mark.usefixtures("mini_index")
def test_a_query_for_machines_has_every_field_of_its_hits(run: Run) -> None:
    done = run("query", QUESTION, "-k", "3", "--json")

    answer = json.loads(done.out)
    assert (done.status, done.err) == (0, "")
    asked = {name: answer[name] for name in ("query", "where", "k", "mode")}
    assert asked == {"query": QUESTION, "where": None, "k": 3, "mode": "hybrid"}
    scores = [hit["score"] for hit in answer["hits"]]
    assert scores == sorted(scores, reverse=True)
    assert [hit["rank"] for hit in answer["hits"]] == [1, 2, 3]
    metadata = answer["hits"][0].pop("metadata")
    assert metadata.keys() == set(FILE_FIELDS)
    assert metadata["file.path"] == "lease.txt"
    assert answer["hits"][0] == {
        "rank": 1,
        "score": scores[0],
        "text": ANSWER,
        "doc_id": "lease.txt",
        "chunk_id": "lease.txt:0-70",
        "start": 0,
        "end": 70,
        "heading": "",
        "dense": pytest.approx(0.5729, abs=1e-3),
        "bm25": pytest.approx(3.3718, abs=1e-3),
        "line": 1,
        "page": None,
        "context": None,
        "also": [],
        "passage": {"text": ANSWER, "line": 1, "page": None},
    }


@pytest.mark.usefixtures("index")
def test_a_condition_keeps_the_chunks_that_match(run: Run) -> None:
    done = run("query", QUESTION, "-k", "2", "--where", 'subject == "history" and year > 1000', "--json")

    assert {hit["doc_id"] for hit in hits_of(done)} == {"facts.jsonl#printing", "mill.md"}


@pytest.mark.slow
@pytest.mark.usefixtures("small_corpus", "model")
def test_an_instruction_changes_what_is_asked(run: Run) -> None:
    run("build", "corpus", "--model", "tiny", "--method", "echo")  # the second copy of a query has seen it

    plain, other, none = (
        hits_of(run("query", QUESTION, "-k", "1", "--json", *more))[0]["score"]
        for more in ((), ("--instruction", "Find the year of a telescope"), ("--instruction", ""))
    )

    assert plain != other
    assert plain == none


@pytest.mark.slow
@pytest.mark.usefixtures("small_corpus")
def test_a_file_of_queries_becomes_a_trec_run_in_which_a_documents_best_chunk_counts(run: Run) -> None:
    about = ["Bees dance in the dark of the hive.", "A mill grinds corn by the river.", "Who signed the lease?"]
    Path("corpus/long.txt").write_text("\n\n".join(about))
    Path("queries.jsonl").write_text('{"_id": "q2", "text": "dancing bees"}\n{"_id": "q1", "text": "old mill"}\n')
    assert run("build", "corpus", "--chunk-size", "12").status == 0

    done = run("query", "--queries", "queries.jsonl", "--run", "run.trec", "-k", "5")

    assert done == (0, "", "2 queries answered, run in run.trec\n")
    lines = [line.split(" ") for line in Path("run.trec").read_text().splitlines()]
    assert [(line[0], line[1], line[3], line[5]) for line in lines] == [
        (query, "Q0", str(rank), "ragidx") for query in ("q2", "q1") for rank in range(1, 6)
    ]
    for query, text in (("q2", "dancing bees"), ("q1", "old mill")):
        best: defaultdict[str, list[float]] = defaultdict(list)
        for hit in hits_of(run("query", text, "-k", "99", "--json")):
            best[hit["doc_id"]].append(hit["score"])
        assert len(best["long.txt"]) == 3
        wanted = sorted(((max(scores), doc_id) for doc_id, scores in best.items()), reverse=True)[:5]
        found = [(float(line[4]), line[2]) for line in lines if line[0] == query]
        assert [doc_id for _, doc_id in found] == [doc_id for _, doc_id in wanted]
        assert [score for score, _ in found] == pytest.approx([score for score, _ in wanted], abs=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_a_file_of_queries_alone_is_answered_in_lines_of_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragidx.pipelines.cli.query._BLOCK", 2)
    texts = {"q2": "dancing bees", "q1": "old mill", "q3": "caf\u00e9"}
    Path("queries.jsonl").write_text("".join(json.dumps({"_id": name, "text": texts[name]}) + "\n" for name in texts))

    done = run("query", "--queries", "queries.jsonl", "-k", "2")

    assert (done.status, done.err) == (0, "")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [(one["id"], one["query"]) for one in found] == list(texts.items())
    for one in found:
        alone = hits_of(run("query", one["query"], "-k", "2", "--json"))
        assert [hit["chunk_id"] for hit in one["hits"]] == [hit["chunk_id"] for hit in alone]
        assert [hit["score"] for hit in one["hits"]] == pytest.approx([hit["score"] for hit in alone], abs=1e-6)


@pytest.mark.usefixtures("index")
def test_a_file_of_queries_for_machines_says_what_was_written(run: Run) -> None:
    Path("queries.jsonl").write_text('{"_id": "q", "text": "dancing bees"}\n')

    done = run("query", "--queries", "queries.jsonl", "--run", "run.trec", "-k", "4", "--json")

    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out) == {"queries": 1, "run": "run.trec", "k": 4, "documents": 4}


@pytest.mark.usefixtures("index")
def test_a_run_may_go_to_standard_output(run: Run) -> None:
    Path("queries.jsonl").write_text('{"_id": "q", "text": "dancing bees"}\n')
    run("query", "--queries", "queries.jsonl", "--run", "run.trec", "-k", "4")

    done = run("query", "--queries", "queries.jsonl", "--run", "-", "-k", "4")

    assert done == (0, Path("run.trec").read_text(), "1 query answered\n")
    assert not Path("-").exists()


@pytest.fixture
def two(folder: Path) -> list[str]:
    """Indexes of one space, and the options that name them."""
    for name, text in (("a", ANSWER), ("b", "Bees dance by the mill.")):
        ragidx.Index.create(name, stemmer="english").add([ragidx.Document(name, text)])
    return ["--index", "a", "--index", "b"]


def test_several_indexes_are_asked_as_one(two: list[str], run: Run) -> None:
    done = run("query", QUESTION, *two)
    answer = json.loads(run("query", QUESTION, *two, "--json").out)

    assert (done.status, done.err) == (0, "2 hits, 10 were requested: the index has no other chunk.\n")
    places = [line.split("  ", 4)[-1].strip() for line in done.out.splitlines() if "  in " in line]
    assert [place.split("  ")[-2:] for place in places] == [["a", "in a"], ["b", "in b"]]
    assert (answer["indexes"], answer["by_places"], answer["mode"]) == (["a", "b"], None, "hybrid")
    assert [hit["index"] for hit in answer["hits"]] == ["a", "b"]
    assert all("index" not in hit for hit in hits_of(run("query", QUESTION, "--index", "a", "--json")))


def test_several_indexes_answer_a_file_of_queries_and_vectors(two: list[str], run: Run, folder: Path) -> None:
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": QUESTION}))
    (folder / "vector.json").write_text(json.dumps([1.0] * ragidx.Index("a").info().dim))

    lines = run("query", "--queries", "queries.jsonl", *two).out
    ranked = run("query", "--queries", "queries.jsonl", "--run", "-", *two).out
    vectors = json.loads(run("query", "--vector", "vector.json", *two, "--json").out)

    assert [hit["index"] for hit in json.loads(lines)["hits"]] == ["a", "b"]
    assert [line.split()[2] for line in ranked.splitlines()] == ["a", "b"]
    assert (vectors["indexes"], len(vectors["answers"][0]["hits"])) == (["a", "b"], 2)


def test_what_is_fused_by_places_is_said(two: list[str], run: Run) -> None:
    ragidx.Index.create("c", stemmer="none").add([ragidx.Document("c", "A tower.")])

    done = run("query", QUESTION, *two, "--index", "c", "-k", "1", "--json")

    why = "the words of 'a' and 'c' were stemmed in two ways"
    assert done.err == f"Each index answers by itself, and hits are fused by places: {why}.\n"
    assert json.loads(done.out)["by_places"] == why


@pytest.mark.usefixtures("two")
def test_one_of_several_indexes_that_is_missing_or_named_twice_is_refused(run: Run) -> None:
    missing, twice = (run("query", QUESTION, "--index", "a", "--index", name) for name in ("none", "./a"))

    assert missing == (
        2,
        "",
        "Error: none: there is no such folder\n  hint: build the index first, or name another folder with --index\n",
    )
    assert twice == (2, "", "Error: a: the index is named twice\n  hint: name each index once\n")


@pytest.mark.usefixtures("two")
def test_the_environment_and_the_file_of_settings_name_one_index(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "ragidx.toml").write_text('[index]\npath = "b"\n')
    of_file = run("query", QUESTION, "-k", "1", "--mode", "lexical").out
    monkeypatch.setenv("RAGIDX_INDEX", "a:b")

    assert " b" in of_file.splitlines()[1]
    assert "Error: a:b: there is no such folder" in run("query", QUESTION).err
