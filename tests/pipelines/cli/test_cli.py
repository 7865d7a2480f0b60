"""The commands as a user runs them: what stands on standard output, what on standard error, and the exit status."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click
import pytest

import ragidx
from ragidx.pipelines.cli.main import COMMANDS, cli

from ..conftest import Done

Run = Callable[..., Done]

QUESTION = "who signed the lease of the house?"
ANSWER = "The lease of the house by the lake was signed by Ada Lovelace in 1840."
TINY = ("--model", "tiny", "--method", "classical", "--tau", "2", "--device", "cpu", "--dtype", "float32")
HEAVY = ("torch", "transformers", "sentence_transformers", "faiss", "pyarrow", "numpy")
# Not for a terminal: controls, line separators, halves of pairs, and marks that turn the direction of writing.
FORBIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def _hits(done: Done) -> list[dict[str, Any]]:
    assert (done.status, done.err) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.out)["hits"]
    return found


# build


@pytest.mark.usefixtures("small_corpus", "model")
def test_a_build_tells_what_it_made_and_how(run: Run) -> None:
    done = run("build", "corpus", *TINY)

    *lines, size, seconds = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    assert lines == [
        "index      ragidx-index (generation 1)",
        "model      tiny: classical, mean pooling, causal attention, last layer",
        "filter     EmbedFilter, 16 dimensions, tau 2, the middle of the spectrum",
        "documents  6: 6 new, 0 changed, 0 as before",
        "chunks     6: 6 encoded, 0 known already",
    ]
    assert re.fullmatch(r"size       \d+\.\d KiB, [\d,]+ bytes a chunk", size)
    assert re.fullmatch(r"time       \d+\.\d s, [\d,]+ chunks/s \(cpu, float32\)", seconds)


@pytest.mark.usefixtures("small_corpus", "model")
def test_a_build_for_machines_has_one_json_object_on_stdout_and_its_progress_on_stderr(run: Run) -> None:
    done = run("build", "corpus", *TINY, "--json")

    report = json.loads(done.out)
    assert done.status == 0
    assert done.out.isascii()
    measured = {name: report.pop(name) for name in ("seconds", "encode_seconds", "index_bytes", "n_tokens")}
    assert all(value > 0 for value in measured.values())
    assert report == {
        "index": "ragidx-index",
        "model": "tiny",
        "method": "classical",
        "encoder": 'EncoderSpec(model="tiny")',
        "filter": "FilterSpec(tau=2)",
        "dim": 16,
        "generation": 1,
        "committed": True,
        "n_documents": 6,
        "n_chunks": 6,
        "n_added": 6,
        "n_changed": 0,
        "n_unchanged": 0,
        "n_unopened": 0,
        "n_removed": 0,
        "n_encoded": 6,
        "n_reused": 0,
        "n_kept": 0,
        "n_truncated": 0,
        "n_empty": 0,
        "n_fitted": 0,
        "index_type": "auto",
        "made": ["flat"],
        "recall": None,
        "skipped": {},
        "skipped_places": {},
        "device": "cpu",
        "dtype": "float32",
    }
    steps = [json.loads(line)["progress"] for line in done.err.splitlines()]
    names = [
        "stage",
        "n_bytes",
        "total_bytes",
        "n_documents",
        "n_cut",
        "n_chunks",
        "n_sample",
        "n_encoded",
        "n_tokens",
        "seconds",
        "n_rows",
        "n_derived",
        "last",
    ]
    assert all(list(step) == names for step in steps)
    assert [step["last"] for step in steps] == [False] * (len(steps) - 1) + [True]
    assert (steps[-1]["n_documents"], steps[-1]["n_encoded"]) == (6, 6)
    assert steps[-1]["n_bytes"] == steps[-1]["total_bytes"] == sum(p.stat().st_size for p in Path("corpus").iterdir())


@pytest.mark.usefixtures("index")
def test_the_same_build_again_says_that_nothing_changed(run: Run) -> None:
    done = run("build", "corpus")

    lines = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    assert lines[0] == "index      ragidx-index (generation 1, unchanged)"
    assert lines[3:5] == [
        "documents  6: 0 new, 0 changed, 6 as before",
        "chunks     6: 6 as before",
    ]
    assert re.fullmatch(r"time       \d+\.\d s", lines[6])


@pytest.mark.usefixtures("index")
def test_a_changed_corpus_is_told_by_what_came_changed_and_went(run: Run) -> None:
    Path("corpus/lease.txt").write_text("The lease was torn up.\n")
    Path("corpus/mill.md").rename("corpus/windmill.md")

    done = run("build", "corpus")

    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[0] == "index      ragidx-index (generation 2)"
    assert done.out.splitlines()[3:5] == [
        "documents  6: 1 new, 1 changed, 4 as before, 1 gone",
        "chunks     6: 1 encoded, 1 known already, 4 as before",
    ]


@pytest.mark.usefixtures("index")
def test_a_build_that_only_moved_texts_has_no_rate(run: Run) -> None:
    Path("corpus/mill.md").rename("corpus/windmill.md")

    lines = run("build", "corpus").out.splitlines()

    assert lines[4] == "chunks     6: 0 encoded, 1 known already, 5 as before"
    assert re.fullmatch(r"time       \d+\.\d s \(cpu, float32\)", lines[6])


@pytest.mark.parametrize(
    ("data", "documents"),
    [
        (ANSWER.encode(), ["-"]),
        (b'{"id": "a", "text": "One."}\n{"id": "b", "text": "Two."}\n', ["-#a", "-#b"]),
    ],
)
def test_standard_input_is_a_text_or_json_lines(run: Run, data: bytes, documents: list[str]) -> None:
    built = run("build", "-", stdin=data)

    assert (built.status, built.err) == (0, "")
    hits = _hits(run("query", "one", "-k", str(len(documents)), "--json"))
    assert sorted(hit["doc_id"] for hit in hits) == documents


def test_fields_and_globs_choose_what_is_read(run: Run, small_corpus: Path) -> None:
    (small_corpus / "songs.csv").write_text("song,words\nlark,Up in the air\n")

    done = run("build", "corpus", "--include", "*.csv", "--text-field", "words", "--id-field", "song", "--json")

    report = json.loads(done.out)
    assert (report["n_documents"], report["skipped"]) == (1, {"not matched by --include": 4})
    assert [hit["doc_id"] for hit in _hits(run("query", "air", "-k", "1", "--json"))] == ["songs.csv#lark"]


def test_at_a_terminal_a_build_shows_a_bar_on_stderr_and_takes_it_away(run: Run, small_corpus: Path) -> None:
    with _terminal("stderr") as shown:
        done = run("build", "corpus")

    assert done.status == 0
    assert done.out.startswith("index      ragidx-index (generation 1)\n")
    assert "indexing" in shown[0]
    assert shown[0].endswith("\x1b[1A\x1b[2K")  # up to the bar's line, and cleared


# query


@pytest.mark.usefixtures("mini_index")
def test_a_query_prints_a_table_of_hits_best_first(run: Run) -> None:
    done = run("query", QUESTION, "-k", "2")

    head, first, passage, second, *_ = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    assert head == " #  score  source"
    assert re.fullmatch(r" 1  0\.\d{3}  lease\.txt", first)
    assert passage == f"           {ANSWER}"
    assert re.match(r" 2  -?0\.\d{3}  \S", second)


@pytest.mark.usefixtures("mini_index")
def test_a_heading_stands_beside_its_source(run: Run) -> None:
    done = run("query", "the old mill by the river", "-k", "1")

    _, first, passage = done.out.splitlines()
    assert re.fullmatch(r" 1  0\.\d{3}  mill\.md  › The mill", first)
    assert passage == "           The old mill stands where the river reaches the sea."


@pytest.mark.usefixtures("mini_index")
def test_a_query_for_machines_has_every_field_of_its_hits(run: Run) -> None:
    done = run("query", QUESTION, "-k", "3", "--json")

    answer = json.loads(done.out)
    assert (done.status, done.err) == (0, "")
    assert {name: answer[name] for name in ("query", "where", "k")} == {"query": QUESTION, "where": None, "k": 3}
    scores = [hit["score"] for hit in answer["hits"]]
    assert scores == sorted(scores, reverse=True)
    assert [hit["rank"] for hit in answer["hits"]] == [1, 2, 3]
    assert answer["hits"][0] == {
        "rank": 1,
        "score": scores[0],
        "text": ANSWER,
        "doc_id": "lease.txt",
        "chunk_id": "lease.txt:0-70",
        "start": 0,
        "end": 70,
        "heading": "",
        "metadata": {},
    }


@pytest.mark.usefixtures("index")
def test_a_condition_keeps_the_chunks_that_match(run: Run) -> None:
    done = run("query", QUESTION, "-k", "2", "--where", 'subject == "history" and year > 1000', "--json")

    assert {hit["doc_id"] for hit in _hits(done)} == {"facts.jsonl#printing", "mill.md"}


@pytest.mark.usefixtures("small_corpus", "model")
def test_an_instruction_changes_what_is_asked(run: Run) -> None:
    run("build", "corpus", "--model", "tiny", "--method", "echo")  # the second copy of a query has seen it

    plain, other, none = (
        _hits(run("query", QUESTION, "-k", "1", "--json", *more))[0]["score"]
        for more in ((), ("--instruction", "Find the year of a telescope"), ("--instruction", ""))
    )

    assert plain != other
    assert plain == none


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
        for hit in _hits(run("query", text, "-k", "99", "--json")):
            best[hit["doc_id"]].append(hit["score"])
        assert len(best["long.txt"]) == 3
        wanted = sorted(((max(scores), doc_id) for doc_id, scores in best.items()), reverse=True)[:5]
        found = [(float(line[4]), line[2]) for line in lines if line[0] == query]
        assert [doc_id for _, doc_id in found] == [doc_id for _, doc_id in wanted]
        assert [score for score, _ in found] == pytest.approx([score for score, _ in wanted], abs=1e-6)


@pytest.mark.usefixtures("index")
def test_a_file_of_queries_for_machines_says_what_was_written(run: Run) -> None:
    Path("queries.jsonl").write_text('{"_id": "q", "text": "dancing bees"}\n')

    done = run("query", "--queries", "queries.jsonl", "--run", "run.trec", "-k", "4", "--json")

    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out) == {"queries": 1, "run": "run.trec", "k": 4, "documents": 4}


# info, models, verify, and where the index is


@pytest.mark.usefixtures("small_corpus", "model")
def test_info_tells_what_an_index_holds_and_how_it_was_made(run: Run) -> None:
    run("build", "corpus", *TINY)

    done = run("info")

    first, *lines = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    version = re.escape(ragidx.__version__)
    assert re.fullmatch(
        rf"index        ragidx-index \(generation 1, \d{{4}}-\d\d-\d\dT[\d:]+Z, ragidx {version}\)", first
    )
    assert lines[:2] == ["holds        6 documents, 6 chunks in 1 segment", "vectors      16 x float16, auto: flat"]
    assert re.fullmatch(r"size         \d+\.\d KiB, [\d,]+ bytes a chunk", lines[2])
    assert re.fullmatch(r"model        tiny \(weights [0-9a-f]{12}\)", lines[3])
    assert lines[4:8] == [
        "encoder      classical, mean pooling, causal attention, last layer",
        "filter       EmbedFilter, 16 dimensions, tau 2, the middle of the spectrum",
        "chunks       at most 256 tokens",
        "metadata     subject (string), title (string), year (int)",
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

    lines = people.out.splitlines()
    rows = json.loads(machines.out)
    assert (people.status, people.err, machines.status, machines.err) == (0, "", 0, "")
    assert re.split(r"  +", lines[0]) == ["--model", "preset", "width", "memory (float32 / 16 bit)", "needs"]
    assert re.split(r"  +", lines[1])[0] == rows[0]["name"] == "mini"
    assert rows[0]["needs"] == "nothing: it is bundled"
    assert [re.split(r"  +", line)[0] for line in lines[1 : len(rows) + 1]] == [row["name"] for row in rows]
    assert all(list(row) == ["name", "preset", "width", "memory", "needs"] for row in rows)
    assert lines[-1] == "Any sentence-transformers model works with its own modules and prompts."


def test_models_lists_the_tasks_that_an_instruction_can_name(run: Run) -> None:
    people, machines = run("models", "--tasks"), run("models", "--tasks", "--json")

    rows = json.loads(machines.out)
    head, *lines = [re.split(r"  +", line) for line in people.out.splitlines()]
    assert (people.status, people.err, machines.status, machines.err) == (0, "", 0, "")
    assert head == ["--instruction", "stands for"]
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
    assert whole == (0, "ragidx-index: whole\n", "")
    assert damaged == (1, f"{fault}\n", "")
    assert (for_machines.status, for_machines.err) == (1, "")
    assert json.loads(for_machines.out) == {"path": "ragidx-index", "faults": [fault], "kept": []}


def test_a_damaged_copy_that_no_search_reads_leaves_the_index_whole(run: Run, index: Path) -> None:
    assert run("query", QUESTION, "--dim", "8").status == 0
    copy = next(index.glob("segments/*/prefix-8-*.faiss"))
    copy.write_bytes(copy.read_bytes()[:-1] + b"\x7f")

    done = run("verify")

    assert done == (
        0,
        "ragidx-index: whole\n",
        f"{copy.relative_to(index.parent)}: the file is damaged: its checksum differs from the one in its name; "
        "it can be made again: delete it\n",
    )


@pytest.mark.usefixtures("small_corpus", "model")
def test_the_environment_names_the_index_and_the_option_outdoes_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGIDX_INDEX", "elsewhere")
    built, other = run("build", "corpus", *TINY), run("build", "corpus", *TINY, "--index", "here")

    assert (built.status, other.status) == (0, 0)
    assert run("verify").out == "elsewhere: whole\n"
    assert run("verify", "--index", "here").out == "here: whole\n"
    assert not Path("ragidx-index").exists()


# help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_option_has_its_help(run: Run, name: str) -> None:
    done = run(name, "--help")

    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert (done.status, done.err) == (0, "")
    assert re.match(r"Usage: \S+ " + name + r"( \[\w+\]| \w+)+\n\n  [A-Z]", done.out)
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert option.opts[-1] in done.out


def test_the_group_lists_the_commands_and_its_version(run: Run) -> None:
    done = run("--help")

    listed = re.findall(r"^  (\w+)  +[A-Z]", done.out.partition("Commands:")[2], re.MULTILINE)
    assert (done.status, done.err, listed) == (0, "", list(COMMANDS))
    assert run("--version") == (0, f"ragidx, version {ragidx.__version__}\n", "")


@pytest.mark.parametrize("args", [("--help",), ("build", "--help"), ("query", "--help"), ("doctor", "--help")])
def test_help_imports_nothing_heavy(run_process: Run, args: tuple[str, ...]) -> None:
    code = (
        "import runpy, sys\n"
        "try: runpy.run_module('ragidx', run_name='__main__', alter_sys=True)\n"
        f"finally: print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )

    done = run_process(*args, code=code)

    assert (done.status, done.err) == (0, "[]\n")
    assert done.out.startswith("Usage: ")


# the terminal, pipes, signals, faults


def test_no_control_character_of_a_corpus_reaches_a_terminal(run: Run, folder: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b1mred\u202edesrever\u2066\u2028\r\x08"
    filler = "Plain words about bees and flowers stand here. " * 40  # few controls in much text: it is read
    (folder / "corpus").mkdir()
    (folder / "corpus" / f"a{evil}.md").write_text(f"# Bees {evil}\n\n{filler}{evil}\n", encoding="utf-8")
    (folder / "corpus" / f"b{evil}.txt").write_bytes(b"\0")
    record = {"id": evil, "text": f"bees {evil}", evil: evil}
    (folder / "corpus" / f"c{evil}.jsonl").write_text(f"{json.dumps(record)}\n" * 2)

    with _terminal("stdout", "stderr") as shown:
        statuses = [run(*args).status for args in (["build", "corpus"], ["query", "bees"], ["info"], ["verify"])]
    printed = [run("query", "bees", "--json"), run("info", "--json")]

    own = r"\x1b\[(?:0|1|36)m"  # bold and cyan, of the table
    bar = r"\x1b\[(?:\?25[lh]|\d*[AK]|[\d;]*m)|\r"
    out, err = re.sub(own, "", shown[0]).replace("\r\n", "\n"), re.sub(bar, "", shown[1])
    assert statuses == [0, 0, 0, 0]
    assert "desrever" in out
    assert "desrever" in err
    assert FORBIDDEN.findall(out) == []
    assert FORBIDDEN.findall(err) == []
    assert all(done.out.isascii() and FORBIDDEN.findall(done.out) == [] for done in printed)


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        ("models",),
        ("info", "--json"),
        pytest.param(("query", "bees", "-k", "3"), marks=pytest.mark.slow),
        pytest.param(("query", "bees", "-k", "3", "--json"), marks=pytest.mark.slow),
        pytest.param(("build", "corpus", "--rebuild"), marks=pytest.mark.slow),
    ],
)
def test_a_closed_pipe_is_no_error(args: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    child = subprocess.Popen([sys.executable, "-m", "ragidx", *args], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    os.close(reader)  # what `| head -0` does: the first write fails

    _, err = child.communicate()

    assert (child.returncode, err) == (0, b"")


@pytest.mark.slow
@pytest.mark.usefixtures("index")
def test_head_takes_the_first_line_of_a_query(run_process: Run) -> None:
    through = ("bash", "-c", 'set -o pipefail; "$@" | head -1', "bash")

    done = run_process("query", "bees", "-k", "3", through=through)

    assert done == (0, " #  score  source\n", "")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="signals of POSIX")
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_build_that_is_ended_loses_nothing_and_the_next_goes_on(
    run: Run, index: Path, folder: Path, sent: int, status: int
) -> None:
    rows = ({"id": n, "text": f"Document {n} tells of {n * 7} things and more."} for n in range(4000))
    Path("corpus/many.jsonl").write_text("\n".join(map(json.dumps, rows)))
    shutil.rmtree(index)
    options = ("--method", "echo", "--dim", "64", "--dtype", "float32", "--device", "cpu")
    assert run("build", "corpus", "--exclude", "many.jsonl", *options).status == 0
    # Where the tests run in the background SIGINT is ignored, and a child would inherit that.
    code = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from ragidx.pipelines.cli.main import main\nmain(sys.argv[1:])"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "build", "corpus", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    _wait_until(lambda: any(path.stat().st_size > 4096 for path in (index / "journal").glob("*")))
    child.send_signal(sent)
    out, err = child.communicate()

    assert (child.returncode, out) == (status, b"")
    if sent == signal.SIGINT:
        message = "Interrupted: nothing was committed; what was encoded is kept, the same command goes on."
        assert err.decode().splitlines()[-1] == message
        assert b"Traceback" not in err
    assert json.loads(run("info", "--json").out)["n_documents"] == 6
    assert [hit["doc_id"] for hit in _hits(run("query", QUESTION, "-k", "1", "--json"))] == ["lease.txt"]
    again = json.loads(run("build", "corpus", "--json").out)
    assert again["n_reused"] > 0
    assert again["n_encoded"] + again["n_reused"] == 4000
    assert run("verify").out == "ragidx-index: whole\n"


def test_a_fault_has_a_traceback_only_where_it_is_asked_for(run_process: Run) -> None:
    plain = run_process("info")
    asked = run_process("info", env={"RAGIDX_DEBUG": "1"})

    message = (
        "ragidx-index: there is no such folder\n  hint: build the index first, or name another folder with --index\n"
    )
    assert plain == (2, "", f"Error: {message}")
    assert asked.status != 0
    assert asked.err.startswith("Traceback (most recent call last):\n")
    assert asked.err.endswith(f"ragidx.corpora.errors.IndexFormatError: {message}")


def _wait_until(is_so: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


@contextmanager
def _terminal(*names: str) -> Iterator[list[str]]:
    """A real terminal in the place of `sys.stdout` or `sys.stderr`; at the end the list holds what each was sent."""
    shown: list[str] = []
    opened: list[tuple[str, TextIO, int, bytearray, threading.Thread]] = []
    for name in names:
        master, slave = os.openpty()
        received = bytearray()
        drain = threading.Thread(target=_drain, args=(master, received))
        drain.start()
        opened.append((name, getattr(sys, name), master, received, drain))
        setattr(sys, name, os.fdopen(slave, "w", encoding="utf-8"))
    try:
        yield shown
    finally:
        for name, before, master, received, drain in opened:
            getattr(sys, name).close()
            setattr(sys, name, before)
            drain.join()
            os.close(master)
            shown.append(received.decode())


def _drain(master: int, received: bytearray) -> None:
    """Read until the other end is closed, so that a writer never waits."""
    while True:
        select.select([master], [], [])
        try:
            block = os.read(master, 65536)
        except OSError:  # Linux says so when the last writer has gone
            return
        if not block:
            return
        received += block


@pytest.mark.usefixtures("small_corpus")
def test_a_report_names_at_most_twelve_reasons(run: Run, small_corpus: Path) -> None:
    for number in range(15):
        (small_corpus / f"blob.x{number}").write_bytes(bytes(100))

    done = run("build", "corpus")

    assert done.err.count("Left out: ") == 12
    assert done.err.endswith("Left out for 3 more reasons: --json lists all of them.\n")


def test_a_table_is_aligned_by_what_a_terminal_shows(capsys: pytest.CaptureFixture[str]) -> None:
    from ragidx.pipelines.cli.console import print_table

    print_table(["token", "logit"], [["東京", "1"], ["e\u0301té", "2"], ["a", "3"]])

    assert capsys.readouterr().out.splitlines() == ["token  logit", "東京   1", "e\u0301té    2", "a      3"]


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
    assert (listed.status, listed.err) == (0, f"Left out: {what}; {hint}\n")
    assert [kept["generation"] for kept in for_machines["generations"]] == [2]
    assert for_machines["faults"] == [f"{what}; {hint}"]
    assert run("verify") == (0, "ragidx-index: whole\n", f"{what}; {hint}\n")
    assert json.loads(run("verify", "--json").out)["kept"] == [f"{what}; {hint}"]
    assert run("rollback", "1") == (2, "", f"Error: {what}\n  hint: {hint}\n")
    assert run("query", "bees").status == 0
