"""An index that changes while it is served: newer states, damage, rollback; ends and kills."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import ModelError
from ragidx.pipelines.index import Index
from ragidx.pipelines.serve import served_index as serve_served

from .conftest import TOKEN, Running, running, until


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_served, "WATCH_S", 0.05)


def add(index: Path, name: str, text: str) -> int:
    with Index(index) as opened:
        opened.add([ragidx.Document(name, text)])
        return opened.generation


def found(served: Running, query: str) -> list[str]:
    answer = served.search(query)
    assert answer.status == 200
    return [hit["doc_id"] for hit in answer.body["hits"]]


# -- states -----------------------------------------------------------------------------------------------------------


def test_a_commit_is_shown(own_index: Path) -> None:
    with running({"own": own_index}) as served:
        assert "comet" not in found(served, "a comet with a tail")
        generation = add(own_index, "comet", "A comet with a long tail.")
        until(lambda: served.search("a comet").body["generation"] == generation)
        assert found(served, "a comet with a tail")[0] == "comet"
        with Index(own_index) as opened:
            newest = opened.rollback(1 if generation == 2 else generation - 1)
        until(lambda: served.search("a comet").body["generation"] == newest)
        assert "comet" not in found(served, "a comet with a tail")


@pytest.mark.slow
def test_no_answer_mixes_two_states(own_index: Path) -> None:
    """In each generation all documents have its number; a hit of another would show."""

    def commit(number: int) -> None:
        with Index(own_index) as opened, opened.batch() as batch:
            batch.add([ragidx.Document(f"d{n}", f"a mill, number {number}", {"number": number}) for n in range(20)])

    commit(0)
    numbers, ended = {}, threading.Event()
    with running({"own": own_index}) as served:

        def ask() -> None:
            while not ended.is_set():
                answer = served.search("a mill", k=20, where="number >= 0", fold=False)
                assert answer.status == 200
                seen = {hit["metadata"]["number"] for hit in answer.body["hits"]}
                assert len(seen) == 1, seen
                numbers.setdefault(answer.body["generation"], set()).update(seen)

        asking = [threading.Thread(target=ask) for _ in range(4)]
        for thread in asking:
            thread.start()
        for number in range(1, 6):
            commit(number)
            time.sleep(0.2)
        ended.set()
        for thread in asking:
            thread.join()
    assert len(numbers) > 2
    assert all(len(seen) == 1 for seen in numbers.values())


def test_an_index_that_is_gone_or_damaged_keeps_answering(own_index: Path, tmp_path: Path) -> None:
    with running({"own": own_index}) as served:
        manifest = (own_index / "manifest.json").read_bytes()
        (own_index / "manifest.json").write_bytes(b"{")
        until(lambda: served.ask("GET", "/readyz").body["status"] == "stale")
        assert found(served, "bees")[0] == "bees"
        assert served.ask("GET", "/readyz").status == 200
        assert 'ragidx_stale{index="own"} 1.0' in served.ask("GET", "/metrics").body
        assert served.ask("GET", "/v1/info").body["indexes"][0]["problem"].startswith("a newer state cannot be shown")
        (own_index / "manifest.json").write_bytes(manifest)
        until(lambda: served.ask("GET", "/readyz").body["status"] == "ok")
        own_index.rename(tmp_path / "away")
        until(lambda: served.ask("GET", "/readyz").body["status"] == "stale")
        assert found(served, "bees")[0] == "bees"
        assert served.ask("GET", "/v1/documents/bees").status == 200
        (tmp_path / "away").rename(own_index)
        until(lambda: served.ask("GET", "/readyz").body["status"] == "ok")


def test_an_index_with_another_model_is_shown_with_it(own_index: Path, tmp_path: Path, tiny_model: Any) -> None:
    with Index.create(tmp_path / "next", model=str(tiny_model()), method="prompteol") as other:
        other.add([ragidx.Document("only", "A mill.")])
    with running({"own": own_index}) as served:
        assert len(found(served, "a mill")) > 1
        shutil.rmtree(own_index)
        (tmp_path / "next").rename(own_index)
        until(lambda: found(served, "a mill") == ["only"])


def test_a_model_that_is_gone(own_index: Path, tmp_path: Path, tiny_model: Any) -> None:
    model = shutil.copytree(tiny_model(), tmp_path / "model")
    with Index.create(tmp_path / "index", model=str(model), method="prompteol") as made:
        made.add([ragidx.Document("only", "A mill.")])
    shutil.rmtree(model)
    with running({"index": tmp_path / "index"}, wait=False) as served:
        until(lambda: bool(served.service.indexes["index"].problem))
        ready = served.ask("GET", "/readyz")
        assert (ready.status, ready.body["indexes"]) == (503, {"index": "failed"})
        answer = served.search("a mill")
        assert answer.status == 503
        assert str(tmp_path) not in json.dumps(answer.body)
        assert answer.error == "the model cannot be used now"
        assert served.search("a mill", mode="lexical").status == 200


def test_it_answers_while_the_index_is_opened(own_index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, opened = threading.Event(), serve_served.Searcher.open
    monkeypatch.setattr(serve_served.Searcher, "open", lambda *given: (go.wait(20), opened(*given))[1])
    with running({"own": own_index}, wait=False) as served:
        assert served.ask("GET", "/healthz").status == 200
        answer = served.search("bees")
        assert (answer.status, answer.error, answer.headers["retry-after"]) == (503, "the index is being opened", "1")
        assert served.ask("GET", "/readyz").status == 503
        page = served.ask("GET", "/?q=bees")
        assert (page.status, "The index is being opened." in page.body) == (503, True)
        go.set()
        until(lambda: served.ask("GET", "/readyz").status == 200)


def test_a_state_that_was_committed_here_stays_when_an_older_one_is_opened(own_index: Path) -> None:
    from ragidx.retriever.searcher import Searcher

    with running({"own": own_index}) as served:
        one = served.service.indexes["own"]
        older, load, opened = one.current, one._load, []

        async def slow(state: Searcher) -> None:  # meanwhile a change is committed and shown
            await load(state)
            if not opened:
                add(own_index, "comet", "A comet.")
                opened.append(Searcher.open(own_index, one.place, older))
                one.show(opened[0])

        one._load = slow  # type: ignore[method-assign]
        add(own_index, "tail", "A tail.")
        until(lambda: bool(opened))
        time.sleep(0.3)
        assert served.search("a comet").body["generation"] == opened[0].store.manifest.generation


@pytest.mark.parametrize("fault", [RuntimeError("no memory for it"), ValueError("odd")])
def test_whatever_a_new_state_fails_with_is_said_and_tried_again(
    own_index: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def broken(*_: object) -> None:
        raise fault

    with running({"own": own_index}) as served:
        with monkeypatch.context() as patch:
            patch.setattr(serve_served.Searcher, "open", broken)
            generation = add_elsewhere(own_index)
            until(lambda: str(fault) in served.service.indexes["own"].problem)
            assert found(served, "bees")[0] == "bees"
        until(lambda: served.search("a comet").body["generation"] == generation)


def add_elsewhere(index: Path) -> int:
    """A commit of another process."""
    script = "import ragidx, sys; i = ragidx.Index(sys.argv[1]); i.add([ragidx.Document('comet', 'A comet.')])"
    script += "; print(i.generation)"
    done = subprocess.run([sys.executable, "-c", script, str(index)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_panic_at_one_question_leaves_the_next_answered(own_index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panics(*_: object) -> None:
        raise PanicException("of a library")

    with running({"own": own_index}, deadline_s=5) as served:
        state = served.service.indexes["own"].current
        with monkeypatch.context() as patch:
            patch.setattr(state, "encode", panics)
            assert served.search("bees", mode="dense").status >= 500
        assert found(served, "bees")[0] == "bees"


def test_questions_that_waited_are_one_batch(own_index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running({"own": own_index}) as served:
        state, batches = served.service.indexes["own"].current, []
        encode = state.encode
        monkeypatch.setattr(
            state,
            "encode",
            lambda texts, asked: (batches.append(list(texts)), time.sleep(0.2), encode(texts, asked))[2],
        )
        monkeypatch.setattr(state, "encodes_at_once", lambda _: False)  # as a network does
        answers: dict[str, Any] = {}
        asking = [
            threading.Thread(target=lambda name=f"mill {n}": answers.update({name: served.search(name)}))
            for n in range(8)
        ]
        asking.append(threading.Thread(target=lambda: answers.update(empty=served.search("\u0007"))))
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert answers.pop("empty").status == 422  # and fails by itself
        assert {answer.status for answer in answers.values()} == {200}
        assert max(map(len, batches)) > 1
        for name, answer in answers.items():
            expected = [hit.chunk_id for hit in Index(own_index).search(name)]
            assert [hit["chunk_id"] for hit in answer.body["hits"]] == expected


# -- the process ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def process(index: Path, *options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`ragidx serve` as a process of its own, and its address."""
    command = [sys.executable, "-m", "ragidx", "serve", "--index", str(index), "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment) as started:
        assert started.stderr is not None
        first = started.stderr.readline()
        threading.Thread(target=started.stderr.read, daemon=True).start()
        try:
            yield started, first
        finally:
            started.kill()


def _port(line: str) -> int:
    found = re.search(r":(\d+)  indexes", line)
    assert found is not None, line
    return int(found[1])


def _ready(port: int) -> Callable[[], bool]:
    def is_ready() -> bool:
        with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as asked:
            asked.request("GET", "/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
            return asked.getresponse().status == 200
        return False

    return is_ready


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_asked_to(own_index: Path, number: int) -> None:
    with process(own_index) as (started, line):
        assert line.endswith("indexes: own  auth: none (loopback)  writable: no\n")
        until(_ready(_port(line)))
        started.send_signal(number)
        assert started.wait(15) == 0


@pytest.mark.slow
def test_what_was_answered_is_there_after_a_kill(own_index: Path) -> None:
    kept, lost = set[str](), threading.Event()
    with process(own_index, "--writable", RAGIDX_TOKEN=TOKEN) as (started, line):
        assert "auth: bearer token  writable: yes" in line
        port = _port(line)
        until(_ready(port))

        def put(worker: int) -> None:
            for number in range(1000):
                try:
                    if _puts(port, name := f"{worker}-{number}") == 200:
                        kept.add(name)
                except (OSError, http.client.HTTPException):
                    lost.set()
                    return

        putting = [threading.Thread(target=put, args=(worker,)) for worker in range(4)]
        for thread in putting:
            thread.start()
        until(lambda: len(kept) > 20)
        started.kill()
        for thread in putting:
            thread.join()
    assert lost.is_set()
    with Index(own_index) as opened:
        assert kept <= {document.id for document in opened.documents()}
        assert opened.verify() == []
    with process(own_index) as (_, line):
        until(_ready(_port(line)))


def _puts(port: int, name: str) -> int:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as asked:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        asked.request("PUT", f"/v1/documents/{name}", json.dumps({"text": f"The text of {name}."}), headers)
        return asked.getresponse().status


def test_an_index_that_is_not_there_is_an_error_at_once(run: Callable[..., Any]) -> None:
    done = run("serve", "--index", "nowhere")
    assert done.status == 2
    assert "nowhere: there is no such folder" in done.err


def test_a_writable_service_without_a_token_is_refused_in_words_of_the_command_line(
    run: Callable[..., Any], index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAGIDX_TOKEN", raising=False)
    assert run("serve", "--writable", "--index", str(index)).err == (
        "Error: --writable needs a token: whoever reaches the port could change the index\n"
        "  hint: put one of 32 characters or more in a file, and name it with --token-file; or set RAGIDX_TOKEN\n"
    )
    assert run("serve", "--allow-host", "a:1", "--index", str(index)).err == (
        "Error: --allow-host: 'a:1' is no name of a host\n  hint: without http:// and port\n"
    )


def test_without_the_extra(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "uvicorn" else find(name, *more)
    )
    for command in ("serve", "mcp"):
        done = run(command)
        assert done.status == 2
        assert f"`ragidx {command}` needs uvicorn, which is not installed" in done.err
        assert "pip install '.[serve]' in a checkout of ragidx" in done.err


def test_errors_of_a_model_are_not_shown(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise ModelError("the weights differ", "look there", where="/secret/model")

    with monkeypatch.context() as patch:
        patch.setattr(served.service.indexes["docs"].current, "encode", gone)
        answer = served.search("bees", mode="dense")
    assert answer.status == 503
    assert "secret" not in json.dumps(answer.body)


def test_searches_that_were_quick_change_no_thread(own_index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running({"own": own_index}) as served:
        state, threads = served.service.indexes["own"].current, []
        hits = state.hits
        monkeypatch.setattr(state, "hits", lambda *given: (threads.append(threading.current_thread()), hits(*given))[1])
        monkeypatch.setattr(serve_served, "QUICK_CPU_S", 60.0)
        monkeypatch.setattr(serve_served, "QUICK_S", 60.0)

        def in_pool(**options: Any) -> bool:
            assert served.search("mill", **options).status == 200
            return threads[-1].name.startswith("search")

        assert [in_pool() for _ in range(serve_served.RECENT)] == [True] * serve_served.RECENT
        assert not in_pool()
        for option in ({"k": 21}, {"context": 1}, {"mmr": 0.5}, {"where": "doc_id != 'x'"}):
            assert in_pool(**option)
        monkeypatch.setattr(serve_served, "QUICK_S", 0.0)
        assert not in_pool()  # and took too long
        assert in_pool()
