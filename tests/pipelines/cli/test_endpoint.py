"""The command line with a model of a server: what reports say, and what is refused."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ...embedding_server import EmbeddingServer, after, status
from ..conftest import Done
from .conftest import QUESTION, hits_of

Run = Callable[..., Done]
MODEL = ("--model", "openai:m")


@pytest.fixture
def built(run: Run, server: EmbeddingServer, small_corpus: Path) -> Done:
    """The index of the small corpus; the server forgets what it was asked."""
    done = run("build", "corpus", *MODEL, "--endpoint", server.url)
    server.messages.clear()
    return done


def test_a_build_reports_the_server_and_what_it_read(built: Done, server: EmbeddingServer) -> None:
    assert (built.status, built.err) == (0, "")
    rows = dict(re.findall(r"^(\S+) +(.*)$", built.out, re.MULTILINE))
    assert rows["model"] == "openai:m: the server's own method, tokens counted by characters"
    assert re.fullmatch(rf"{server.url}/embeddings: 3 requests, \d+ tokens read", rows["endpoint"])
    assert rows["filter"] == "none: 16 raw coordinates"


def test_a_server_that_does_not_count_is_reported(run: Run, server: EmbeddingServer, small_corpus: Path) -> None:
    server.replies.append(status(500))
    server.always = lambda handler, texts: handler.send_json({"data": handler.server.data(texts)})

    done = run("build", "corpus", *MODEL, "--endpoint", server.url)

    assert f"{server.url}/embeddings: 3 requests, 1 sent again, tokens not counted by it\n" in done.out


@pytest.mark.usefixtures("built")
def test_a_question_finds_its_server(run: Run, server: EmbeddingServer) -> None:
    assert hits_of(run("query", QUESTION, "--json"))[0]["doc_id"] == "lease.txt"
    assert hits_of(run("query", QUESTION, "--json", "--offline"))[0]["doc_id"] == "lease.txt"
    assert server.asked.count(QUESTION) == 2


@pytest.mark.usefixtures("built")
def test_a_lexical_search_asks_no_server_whether_it_has_hits_or_not(run: Run, server: EmbeddingServer) -> None:
    server.always = status(500)

    found, nothing = (run("query", words, "--mode", "lexical") for words in ("lease", "zebra"))

    assert (found.status, nothing.status) == (0, 0)
    assert "lease.txt" in found.out
    assert not server.messages


@pytest.mark.usefixtures("built")
def test_the_address_may_be_in_the_environment(
    run: Run, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGIDX_ENDPOINT", f"{server.url}/elsewhere")

    assert run("query", QUESTION).status == 0
    assert server.paths[-1] == "/v1/elsewhere/embeddings"


@pytest.mark.slow
def test_an_address_in_the_environment_is_not_for_other_models(
    run: Run, small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGIDX_ENDPOINT", "http://127.0.0.1:1")

    assert run("build", "corpus").status == 0


@pytest.mark.slow
def test_neither_torch_nor_transformers_is_needed(
    run_process: Run, server: EmbeddingServer, small_corpus: Path, without: Callable[..., dict[str, str]]
) -> None:
    env = without("torch", "transformers", "sentence_transformers", "huggingface_hub")

    built = run_process("build", "corpus", *MODEL, "--endpoint", server.url, env=env)
    asked = run_process("query", QUESTION, "--json", env=env)

    assert (built.status, built.err) == (0, "")
    assert hits_of(asked)[0]["doc_id"] == "lease.txt"


@pytest.mark.usefixtures("built")
def test_info_names_the_server(run: Run, server: EmbeddingServer) -> None:
    out = run("info").out

    assert re.search(r"^model +openai:m, at an endpoint$", out, re.MULTILINE)
    assert re.search(rf"^endpoint +{server.url}/embeddings$", out, re.MULTILINE)
    assert re.search(r"^encoder +the server's own method, tokens counted by characters$", out, re.MULTILINE)


@pytest.mark.usefixtures("built")
def test_a_file_of_settings_names_no_server(run: Run, folder: Path) -> None:
    (folder / "ragidx.toml").write_text('[index]\nendpoint = "https://api.example/v1"\n')

    assert run("build", "corpus").err.startswith(f"Error: {folder}/ragidx.toml:2: unknown key 'endpoint'")


def test_the_doctor_asks_the_server(run: Run, server: EmbeddingServer) -> None:
    done = run("doctor", *MODEL, "--endpoint", server.url, "--json")

    assert done.status == 0
    checks = {check["name"]: check["status"] for check in json.loads(done.out)["checks"]}
    assert checks == {
        "the endpoint answers, 16 dimensions": "ok",
        "the same text twice": "ok",
        "alone and in a batch": "ok",
    }


def test_the_doctor_sees_a_server_that_changes_its_mind(run: Run, server: EmbeddingServer) -> None:
    def other(handler: object, texts: list[str]) -> None:
        server.seed += 1
        answer(handler, texts)  # type: ignore[arg-type]

    answer = server.always
    server.always = other

    done = run("doctor", *MODEL, "--endpoint", server.url, "--json")

    assert done.status == 1
    checks = {check["name"]: check["status"] for check in json.loads(done.out)["checks"]}
    assert checks["the same text twice"] == checks["alone and in a batch"] == "failed"


def test_the_doctor_tells_that_a_server_is_down(run: Run, server: EmbeddingServer) -> None:
    server.replies.append(status(401))

    done = run("doctor", *MODEL, "--endpoint", server.url)

    assert done.status == 1
    assert (
        f"failed  the endpoint answers  -   -      -      {server.url}/embeddings: it asks for a key (status 401); put "
        "the key into the environment variable RAGIDX_API_KEY\n"
    ) in done.out


def test_a_plan_counts_tokens(run: Run, server: EmbeddingServer, small_corpus: Path) -> None:
    done = run("build", "corpus", *MODEL, "--endpoint", server.url, "--plan")

    assert (done.status, done.err) == (0, "")
    assert re.search(r"^tokens +\d+, \d+ a chunk$", done.out, re.MULTILINE)
    assert re.search(r"^filter +none: 16 raw coordinates$", done.out, re.MULTILINE)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ("lens", "a text", *MODEL),
            "Error: --model: 'openai:m' is a model of a server, and its files are needed here\n"
            "  hint: name its folder or its hub id\n",
        ),
        (
            ("lens", QUESTION, "--index", "ragidx-index"),
            "Error: ragidx-index: 'openai:m' is a model of a server, and the lens reads the weights\n"
            "  hint: build an index with the model's folder or its hub id\n",
        ),
        (
            ("query", QUESTION, "--rerank", "openai:m"),
            "Error: --rerank: 'openai:m' is a model of a server, and its files are needed here\n"
            "  hint: name its folder or its hub id\n",
        ),
        (
            ("build", "corpus", "--endpoint", "nowhere", "--rebuild", *MODEL),
            "Error: --endpoint: 'nowhere' is no address of a server\n"
            "  hint: write it as --endpoint http://127.0.0.1:11434/v1\n",
        ),
        (
            ("build", "corpus", "--device", "cpu"),
            "Error: --device cpu: the server runs 'openai:m'\n  hint: remove --device\n",
        ),
    ],
)
def test_what_a_server_cannot_do_is_refused(run: Run, command: tuple[str, ...], message: str) -> None:
    assert run(*command) == (2, "", message)


@pytest.mark.usefixtures("built")
def test_words_without_a_hit_ask_no_server(run: Run, server: EmbeddingServer) -> None:
    server.messages.clear()

    assert run("query", "xyzzy", "--mode", "lexical", "--endpoint", server.url).status == 0
    assert server.messages == []


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_the_server(server: EmbeddingServer, folder: Path, small_corpus: Path) -> None:
    lines = [json.dumps({"id": str(number), "text": f"text {number}"}) for number in range(100)]
    (small_corpus / "many.jsonl").write_text("\n".join(lines))
    server.replies.append(server.always)
    server.always = after(600)
    # Where the tests run in the background SIGINT is ignored, and a child would inherit that.
    code = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from ragidx.pipelines.cli.main import main\nmain(sys.argv[1:])"
    command = [sys.executable, "-c", code, "build", "corpus", *MODEL, "--endpoint", server.url]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(server.messages) < 3:
        time.sleep(0.05)

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)

    assert process.returncode == 130
    assert "Interrupted" in err
