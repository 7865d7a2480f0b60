"""A password in an address is never shown, whatever characters it has and whatever else is wrong with the address."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ragidx
from ragidx.corpora.errors import RagidxError
from ragidx.indexer.models.address import address_of
from ragidx.pipelines.index import Index
from ragidx.pipelines.integrations.engines.target import Target
from ragidx.pipelines.integrations.export import target_of
from ragidx.pipelines.serve.settings import named

from ...conftest import Done

LETTERS = "ZJ"  # in no message
PASSWORDS = st.text(st.sampled_from([*LETTERS, *"#@%/?:'\"&\\ .-8"]), min_size=3, max_size=9)
PLACES = [
    "postgresql://me:{}@127.0.0.1:1/db",
    "postgresql://me:{}@127.0.0.1:1/db#chunks",
    "postgresql://me:{}@127.0.0.1:1/db#a-b",
    "postgresql://me:{}@127.0.0.1:1,127.0.0.1:2/db",
    "postgresql://127.0.0.1:1/db?password={}",
    "postgresql://127.0.0.1:1/db?user=me&password={}&sslmode=disable#chunks",
    "postgresql:me:{}@127.0.0.1:1/db",
    "postgresql:host=127.0.0.1 port=1 user=me password='{}' dbname=x",
    "postgresql:host=127.0.0.1 port=1 password = '{}'#chunks",
    "postgresql:host=127.0.0.1 password={} port=1",
    "postgresql:host=127.0.0.1 port=1 password={}#chunks",
    "postgres://me:{}@127.0.0.1/db#chunks",
    "qdrant:http://me:{}@127.0.0.1:1",
    "qdrant:http://127.0.0.1:1?api_key={}#chunks",
    "qdrant:me:{}@127.0.0.1:1",
    "milvus:http://me:{}@127.0.0.1:1#chunks",
    "milvus:http://127.0.0.1:1?token={}#chunks",
    "http://me:{}@127.0.0.1:1/v1",
    "ftp://me:{}@127.0.0.1:1/v1",
    "me:{}@127.0.0.1:1",
]
WAYS: list[Callable[[str], Any]] = [
    lambda to: Target.parse(to).open(),
    lambda to: Target.parse(to, to_read=True),
    target_of,
    address_of,
    ragidx.Client,
    lambda to: named([to]),
    lambda to: named([f"a b={to}"]),
    Index,
]


def shown_of(way: Callable[[str], Any], to: str) -> str:
    """All that can be seen of what is made of an address, or of why nothing is and of what led to that."""
    try:
        made = way(to)
    except RagidxError as fault:
        shown, link = list[str](), pickle.loads(pickle.dumps(fault))
        shown += [str(link), repr(vars(link))]
        link = fault
        while link is not None:
            shown += [str(link), repr(link)]
            link = link.__cause__ or link.__context__
        return "\n".join(shown)
    return repr(made) if isinstance(made, Target) else ""


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=40, deadline=None)
@example(password="ZJZ#JZJ")
@example(password="ZJZ@JZJ")
@example(password="Z%8ZJ/J#J?Z")
@example(password="88/ZJZ")
@example(password="'#JZJ")
@example(password="J #ZJZ")
@example(password="&#JZJ")
@example(password="J\\ '#ZJZ")
@given(password=PASSWORDS)
def test_no_part_of_a_password_is_shown(place: str, password: str) -> None:
    pytest.importorskip("psycopg"), pytest.importorskip("qdrant_client"), pytest.importorskip("pymilvus")
    for written in (password, quote(password, safe="")):
        to = place.format(written)
        for way in WAYS:
            shown = shown_of(way, to)
            assert not set(LETTERS) & set(shown), (way, to, shown)


COMMANDS = [
    ("export", "{}"),
    ("query", "x", "{}"),
    ("build", "{}"),
    ("add", "{}"),
    ("evaluate", "{}"),
    ("delete", "{}"),
    ("{}",),
    ("query", "x", "--at", "{}"),
    ("query", "x", "--index", "lancedb:{}"),
    ("serve", "--index", "{}"),
    ("build", "--vectors", "{}"),
    ("query", "x", "--endpoint", "{}", "--model", "openai:x"),
]
"""With an address where it belongs, and where it does not."""
ADDRESS = "postgresql://me:ZJ'Z#J@ZJ@127.0.0.1:1/db"


@pytest.mark.parametrize("arguments", COMMANDS)
def test_no_password_is_shown_by_a_command(run: Callable[..., Done], arguments: tuple[str, ...]) -> None:
    done = run(*(one.format(ADDRESS) for one in arguments))
    assert done.status == 2
    assert not set(LETTERS) & set(done.out + done.err)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [COMMANDS[2], COMMANDS[4], COMMANDS[8]])
def test_no_password_is_shown_in_a_traceback(run_process: Any, arguments: tuple[str, ...]) -> None:
    done = run_process(*(one.format(ADDRESS) for one in arguments), env={"RAGIDX_DEBUG": "1"})
    assert done.err.startswith("Traceback (most recent call last):")
    assert not set(LETTERS) & set(done.err.replace(str(Path(ragidx.__file__).parent), ""))  # a folder has any name


def test_a_name_of_a_user_is_no_secret(server: str) -> None:
    with pytest.raises(RagidxError, match="Connection refused"):
        Target.parse("postgresql://u@127.0.0.1:1/db").open()


def test_a_target_is_shown_as_it_is_typed() -> None:
    for to in ("postgresql:///db", "lancedb:a@b", "lancedb:s3://bucket/a@b", "qdrant:http://h:1/x", "milvus:a.db"):
        assert Target.parse(f"{to}#chunks").shown == f"{to}#chunks"
    assert Target.parse("postgresql:///db?host=/tmp").shown == "postgresql:///db#ragidx"
    made = Target.parse("postgresql:host=h password='a#b' dbname=x user=u#chunks")
    assert (made.name, made.shown) == ("chunks", "postgresql:host=h password=*** dbname=x user=u#chunks")
    made = Target.parse("postgresql://me:a#b@h/db")
    assert (made.place, made.name, made.shown) == ("postgresql://me:a#b@h/db", "ragidx", "postgresql://h/db#ragidx")


@pytest.mark.parametrize("to", ["postgresql://h/db?password=a#b", "postgresql:host=h password=a#b"])
def test_a_name_that_may_be_the_end_of_a_password_is_refused(to: str) -> None:
    with pytest.raises(RagidxError) as fault:
        Target.parse(to)
    assert str(fault.value) == (
        "postgresql: a # stands right behind a password, and may belong to it\n"
        "  hint: write the password before another option, so that it does not end at the name of the table"
    )


def test_an_address_that_cannot_be_told_apart_is_refused() -> None:
    with pytest.raises(RagidxError) as fault:
        Target.parse("postgresql://me:a@b@h/db")
    assert str(fault.value) == (
        "postgresql: it is no URL\n"
        "  hint: name one as lancedb:DIR, postgresql://HOST/DATABASE, qdrant:URL, milvus:URL; in a password write "
        "@ as %40, / as %2F, # as %23 and % as %25"
    )


@pytest.mark.parametrize("key", ["ZJZ\nJ", "ZJZé"])
def test_a_key_that_a_header_cannot_hold_is_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("qdrant_client")
    monkeypatch.setenv("QDRANT_API_KEY", key)
    for way in (lambda: Target.parse("qdrant:http://127.0.0.1:1").open(), lambda: ragidx.Client("http://h", token=key)):
        with pytest.raises(RagidxError, match="has characters that") as fault:
            way()
        assert "ZJ" not in str(fault.value)
        assert fault.value.__context__ is None
