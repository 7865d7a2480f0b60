"""`--offline` refuses each server that is not on this machine, whatever names it, before anything is sent."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from ragidx.pipelines.integrations.engines.target import Target

from ..conftest import Done

Run = Callable[..., Done]

AWAY = "192.0.2.1"  # of documentation: nobody has it
TARGETS = [
    (f"qdrant:http://{AWAY}:6333", "qdrant_client"),
    (f"milvus:http://{AWAY}:19530", "pymilvus"),
    (f"postgresql://{AWAY}/x", "psycopg"),
    (f"postgresql:///x?host=127.0.0.1,{AWAY}", "psycopg"),
    (f"postgresql:///x?host=localhost&hostaddr={AWAY}", "psycopg"),
    ("postgresql:///x?service=elsewhere", "psycopg"),
    ("lancedb:s3://localhost/x", "lancedb"),
]
MESSAGE = (
    "is another machine, and no network may be used\n  hint: name a server on this machine, or allow the network\n"
)


@pytest.fixture(autouse=True)
def _forbidden_for_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `--offline` sets in this process goes away with the test."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "0")


def is_refused(done: Done) -> bool:
    assert (done.status, done.out) == (2, ""), done
    return done.err.endswith(MESSAGE)


@pytest.mark.parametrize(("target", "package"), TARGETS)
def test_an_engine_on_another_machine_is_refused(target: str, package: str, run: Run) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")

    assert is_refused(run("query", "a river", "--at", target, "--offline"))


@pytest.mark.slow
def test_every_command_that_names_a_server_refuses_another_machine(run: Run, mini_index: Path) -> None:
    target = f"postgresql://{AWAY}/x"

    assert is_refused(run("export", "--to", target, "--offline"))
    assert is_refused(run("build", "--vectors", target, "--index", "new", "--offline"))
    assert is_refused(run("build", "--vectors", f"chroma:http://{AWAY}:8000", "--index", "new", "--offline"))
    assert is_refused(run("serve", "--index", f"one={target}", "--port", "0", "--offline"))
    assert is_refused(run("mcp", "--index", f"one={target}", "--offline"))
    endpoint = ("--model", "openai:m", "--endpoint", f"http://{AWAY}/v1")
    assert is_refused(run("build", "corpus", "--index", "new", *endpoint, "--offline"))
    looked = run("doctor", *endpoint, "--offline")
    assert looked.status == 1
    assert f"{AWAY} is another machine, and no network may be used" in looked.out


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra 'ray'")
@pytest.mark.parametrize("address", ["auto", f"{AWAY}:6379", f"ray://{AWAY}:10001"])
def test_a_cluster_of_ray_is_refused(address: str, run: Run, small_corpus: Path) -> None:
    assert is_refused(run("build", str(small_corpus), "--ray", address, "--stage", "stage", "--offline"))


@pytest.mark.skipif(importlib.util.find_spec("psycopg") is None, reason="needs the extra 'postgresql'")
def test_what_a_url_leaves_to_the_environment_is_looked_at(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", AWAY)

    assert is_refused(run("query", "a river", "--at", "postgresql:///x", "--offline"))


def test_a_server_on_this_machine_may_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    from ragidx.pipelines.integrations.engines.postgres import hosts

    monkeypatch.delenv("PGHOST", raising=False)

    for place in ("///x", "///x?host=/run/postgresql", "///x?host=%40socket"):
        assert hosts(Target.parse(f"postgresql:{place}")) == []
    assert hosts(Target.parse("postgresql://127.0.0.1,[::1]/x")) == ["127.0.0.1", "::1"]
