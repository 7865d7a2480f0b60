"""Help, and the commands at a terminal, with pipes, signals and faults."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragidx
from ragidx.pipelines.cli import console
from ragidx.pipelines.cli.main import COMMANDS
from ragidx.retriever.passages import _best_start, nearest

from ..conftest import PROGRESS, Done
from .conftest import QUESTION, hits_of

Run = Callable[..., Done]

HEAVY = ("torch", "transformers", "sentence_transformers", "faiss", "pyarrow", "numpy")

# Not for a terminal: controls, line separators, halves of pairs, and marks that turn the direction of writing.
FORBIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


@pytest.mark.slow
def test_at_a_terminal_a_build_shows_a_bar_on_stderr_and_takes_it_away(run: Run, small_corpus: Path) -> None:
    with _terminal("stderr") as shown:
        done = run("build", "corpus")

    assert done.status == 0
    assert done.out.startswith("index      ragidx-index (generation 1)\n")
    assert "making the index of words" in shown[0]  # the last stage; of short ones before it there may be no frame
    assert shown[0].endswith("\x1b[1A\x1b[2K")  # up to the bar's line, and cleared


def test_at_a_terminal_a_wait_is_named_when_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with _terminal("stderr") as shown:
        with console.waiting("nothing"):
            pass
        monkeypatch.setattr(console, "PATIENCE_S", 0.0)
        with console.waiting("loading the model"):
            for thread in threading.enumerate():
                if isinstance(thread, threading.Timer):
                    thread.join()

    assert shown == ["loading the model ...\r\x1b[K"]


@pytest.mark.slow
def test_at_a_terminal_a_question_says_that_a_model_is_loaded(
    run: Run, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "PATIENCE_S", 0.0)
    with _terminal("stderr") as by_vectors:
        answered = run("query", "bees", "-k", "2", "--index", str(index))
    with _terminal("stderr") as by_words:
        run("query", "bees", "-k", "2", "--index", str(index), "--mode", "lexical")

    assert answered.status == 0
    assert by_vectors[0] == "loading the model ...\r\x1b[K"
    assert "loading" not in by_words[0]


# help


def test_the_group_lists_the_commands_and_its_version(run: Run) -> None:
    done = run("--help")

    listed = re.findall(r"^  ([\w-]+)  +[A-Z]", done.out.partition("Commands:")[2], re.MULTILINE)
    assert (done.status, done.err, listed) == (0, "", list(COMMANDS))
    assert run("--version") == (0, f"ragidx, version {ragidx.__version__}\n", "")


@pytest.mark.slow
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


@pytest.mark.slow
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

    own = r"\x1b\[(?:0|1|2|36)m"  # bold, dim and cyan, of the table
    bar = r"\x1b\[(?:\?25[lh]|\d*[AK]|[\d;]*m)|\r"
    out, err = re.sub(own, "", shown[0]).replace("\r\n", "\n"), re.sub(bar, "", shown[1])
    assert statuses == [0, 0, 0, 0]
    assert "desrever" in out
    assert "desrever" in err
    assert FORBIDDEN.findall(out) == []
    assert FORBIDDEN.findall(err) == []
    assert all(done.out.isascii() and FORBIDDEN.findall(done.out) == [] for done in printed)


@pytest.mark.usefixtures("mini_index")
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

    assert (child.returncode, PROGRESS.sub("", err.decode())) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="signals of POSIX")
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_build_that_is_ended_loses_nothing_and_the_next_goes_on(
    run: Run, mini_index: Path, sent: int, status: int
) -> None:
    rows = ({"id": n, "text": f"Document {n} tells of {n * 7} things and more."} for n in range(6000))
    Path("corpus/many.jsonl").write_text("\n".join(map(json.dumps, rows)))
    # Where the tests run in the background SIGINT is ignored, and a child would inherit that.
    code = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from ragidx.pipelines.cli.main import main\nmain(sys.argv[1:])"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "build", "corpus"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _wait_until(lambda: any(path.stat().st_size > 4096 for path in (mini_index / "journal").glob("*")))
    child.send_signal(sent)
    out, err = child.communicate()

    assert (child.returncode, out) == (status, b"")
    if sent == signal.SIGINT:
        message = "Interrupted: nothing was committed; encoded chunks are kept, and the same command continues."
        assert err.decode().splitlines()[-1] == message
        assert b"Traceback" not in err
    assert json.loads(run("info", "--json").out)["n_documents"] == 6
    assert [hit["doc_id"] for hit in hits_of(run("query", QUESTION, "-k", "1", "--json"))] == ["lease.txt"]
    again = json.loads(run("build", "corpus", "--json").out)
    assert again["n_chunks_reused"] > 0
    assert again["n_encoded"] + again["n_chunks_reused"] == 6000
    assert run("verify").out == "ragidx-index: intact\n"


@pytest.mark.slow
def test_a_fault_has_a_traceback_only_where_it_is_asked_for(run_process: Run) -> None:
    plain = run_process("info")
    asked = run_process("info", env={"RAGIDX_DEBUG": "1"})

    message = "ragidx-index: there is no such folder\n  hint: build the index first, or name another folder with "
    assert plain == (2, "", f"Error: {message}--index\n")
    assert asked.status != 0
    assert asked.err.startswith("Traceback (most recent call last):\n")
    assert asked.err.endswith(f"ragidx.corpora.errors.IndexFormatError: {message}`index`\n")


def _wait_until(is_so: Callable[[], bool], seconds: float = 600) -> None:
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


def test_a_table_is_aligned_by_what_a_terminal_shows(capsys: pytest.CaptureFixture[str]) -> None:
    from ragidx.pipelines.cli.console import print_table

    print_table(["token", "logit"], [["東京", "1"], ["e\u0301té", "2"], ["a", "3"]])

    assert capsys.readouterr().out.splitlines() == ["token  logit", "東京   1", "e\u0301té    2", "a      3"]


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["mill", "sea", "river"])), max_size=20, unique=True),
    st.sets(st.integers(0, 60), min_size=1),
    st.integers(1, 30),
)
def test_the_passage_begins_where_most_letters_of_different_words_follow(
    found: list[tuple[int, str]], places: set[int], length: int
) -> None:
    starts = sorted(places)
    spans = sorted((place, place + 2, word) for place, word in found)

    def worth(start: int) -> int:
        return sum(map(len, {word for first, last, word in spans if start <= first and last <= start + length}))

    assert _best_start(starts, spans, length) == max(starts, key=lambda at: (worth(at), -at))


@pytest.mark.slow
def test_a_passage_of_many_sentences_is_shown_at_once() -> None:
    text = "The mill is by the river. " * 30_000 + "A lease was signed."

    assert "lease" in nearest(text, "who signed the lease?")[0]
