"""Milvus: what it cannot hold, what it cannot say, and files and servers that are not what they should be."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import ragidx
from ragidx.corpora.errors import IndexFormatError, QueryError, RagidxError, SpecError
from ragidx.pipelines.index import Index
from ragidx.pipelines.integrations.engines.layout import AboutTable, rows_of
from ragidx.pipelines.integrations.engines.table import Table
from ragidx.pipelines.integrations.engines.target import Target
from ragidx.retriever.where.binding import bind
from tests.pipelines.integrations.engines.conftest import made_in

if importlib.util.find_spec("milvus_lite") is None:
    pytest.skip("Milvus Lite is not installed", allow_module_level=True)

from milvus_lite.adapter.grpc.server import start_server_in_thread
from milvus_lite.db import MilvusLite
from milvus_lite.server_manager import server_manager_instance
from pymilvus import MilvusClient

from ragidx.pipelines.integrations.engines import milvus


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return made_in(tmp_path_factory.mktemp("index") / "index")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lite.db"


@pytest.fixture
def client(file: Path) -> Iterator[MilvusClient]:
    """What somebody else has open in the same process."""
    client = MilvusClient(str(file), dedicated=True)
    yield client
    client.close()


def opened(to: str) -> Table:
    return Target.parse(to).open()


@pytest.mark.slow
def test_a_server_of_lite_that_is_dead_in_this_process_is_started_anew(
    index: Index, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = f"milvus:{file}#rows"
    index.export(to)
    monkeypatch.setattr(milvus, "_CONNECT_S", 1.0)
    server_manager_instance.start_and_get_uri(str(file))
    server, db, _ = server_manager_instance._servers[str(file)]
    server.stop(grace=0).wait()
    db.close()

    with ragidx.connect(to) as remote:
        assert remote.search("where do bees fly?", k=1)


def test_what_milvus_cannot_hold_is_counted(tmp_path: Path, file: Path) -> None:
    index = Index.create(tmp_path / "index")
    fits = {"note": "ä" * 32_767 + "a", "tags": ["x"] * 4_096}
    index.add(
        [
            ragidx.Document("fits", "It fits.", fits),
            ragidx.Document("text", "Its note is too long.", {"note": "ä" * 32_768}),
            ragidx.Document("item", "An item is too long.", {"tags": ["a", "b" * 65_536]}),
            ragidx.Document("list", "It has too many items.", {"tags": ["x"] * 4_097}),
        ]
    )
    with pytest.raises(SpecError, match="it cannot hold 3 rows: 1 a list of more than 4,096 items; 2 a text of more"):
        index.export(f"milvus:{file}", strict=True)
    assert not file.exists()
    report = index.export(f"milvus:{file}")
    assert report.refused == {"a text of more than 65,535 bytes": 2, "a list of more than 4,096 items": 1}
    table = opened(f"milvus:{file}")
    [row] = [row for batch in table.select() for row in batch.to_pylist()]
    assert (row["doc_id"], row["note"], row["tags"]) == ("fits", fits["note"], fits["tags"])
    table.close()


def test_texts_and_names_that_the_language_of_milvus_uses(tmp_path: Path, file: Path) -> None:
    index = Index.create(tmp_path / "index")
    index.add(
        [
            ragidx.Document('a"b', "One.", {"in": 1, "iso": "x", "s": '"%\n', "tags": ["%"]}),
            ragidx.Document("a'b", "Two.", {"in": 2, "s": "_\\_\r"}),
            ragidx.Document("a\\b", "Three.", {"s": "'_'", "tags": []}),
        ]
    )
    index.export(f"milvus:{file}")
    table = opened(f"milvus:{file}")
    expected = {"`in` > 1": ["a'b"], "iso == 'x'": ['a"b'], "s contains '%\\n'": ['a"b'], "not s contains '_'": ['a"b']}
    expected |= {"s starts with '\"%'": ['a"b'], "s == '_\\\\_\\r'": ["a'b"], "doc_id in ('a\\\\b')": ["a\\b"]}
    expected |= {"tags contains '%'": ['a"b'], "not tags contains 'x' and s contains '_'": ["a\\b"]}
    for where, ids in expected.items():
        condition = bind(where, index.schema)
        if "tags" in where and "contains '_'" in where:
            with pytest.raises(QueryError, match="Milvus cannot compare 's' by a text with % or _ beside a list"):
                table.count(condition)
            continue
        assert [row["doc_id"] for batch in table.select(condition, ["doc_id"]) for row in batch.to_pylist()] == ids
    with pytest.raises(QueryError, match="Milvus cannot compare 's' by a text with a backslash"):
        table.count(bind("s contains '\\\\'", index.schema))
    found = table.select(columns=["doc_id"], ids=("doc_id", ['a"b', "a\\b"]))
    assert sorted(row["doc_id"] for batch in found for row in batch.to_pylist()) == ['a"b', "a\\b"]
    table.close()


def test_pages_go_past_quotes(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index.create(tmp_path / "index")
    index.add([ragidx.Document(name, "One.") for name in ('a"', "b\\", "c'", "d\n")])
    index.export(f"milvus:{file}")
    monkeypatch.setattr(milvus, "_MAX_ROWS", 1)
    table = opened(f"milvus:{file}")
    assert len(table.digests()) == 4
    table.close()


def test_a_replaced_table_is_opened_again(index: Index, file: Path) -> None:
    to = f"milvus:{file}"
    index.export(to)
    table = opened(to)
    with pytest.raises(QueryError, match="Milvus finds up to 16,384 rows, not 16,385"):
        table.by_words("bees", 16_385, None)
    index.export(to, replace=True)
    vector = index.searcher.encode(["bees"])[0]
    for asked in (table.count, lambda: table.nearest(vector, 1, None), lambda: list(table.select())):
        with pytest.raises(RagidxError, match="its rows were replaced") as fault:
            asked()
        assert fault.value.hint == "open it again"
    table.close()


def test_what_a_crash_leaves_is_deleted_by_the_next(index: Index, file: Path, client: MilvusClient) -> None:
    to, store = f"milvus:{file}#t", index.searcher.store
    index.export(to)
    table = opened(to)

    def rows() -> Iterator[Any]:
        yield from rows_of(store, AboutTable.of(store))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.replace(rows(), AboutTable.of(store))
    assert (table.count(), len(client.list_collections())) == (6, 4)
    index.export(to, replace=True)
    table.close()
    made, about = sorted(client.list_collections())
    assert re.fullmatch("t_[0-9a-f]{8}", made)
    assert about == f"{made}_about"


def test_a_collection_of_somebody_else(index: Index, file: Path, client: MilvusClient) -> None:
    client.create_collection("theirs", 2)
    client.create_alias("theirs", "other")
    for name in ("theirs", "other"):
        with pytest.raises(SpecError, match="it is a table that ragidx did not write") as fault:
            index.export(f"milvus:{file}#{name}")
        assert fault.value.hint == "name another table: TARGET#NAME, or replace it: `ragidx export --replace`"
    with pytest.raises(SpecError, match="ragidx did not write it, and reads no tables of others from milvus"):
        ragidx.build(index=file.parent / "back", vectors=f"milvus:{file}#theirs")
    assert index.export(f"milvus:{file}#other", replace=True).n_written == 6
    assert client.has_collection("theirs")
    assert index.export(f"milvus:{file}#theirs", replace=True).n_written == 6
    assert client.query("theirs", output_fields=["count(*)"])[0]["count(*)"] == 6


def test_an_about_of_megabytes(index: Index, file: Path) -> None:
    to, about = f"milvus:{file}", AboutTable.of(index.searcher.store)
    index.export(to)
    table = opened(to)
    large = dataclasses.replace(about, files={"filter": os.urandom(2_000_000)}, generation=about.generation + 1)
    table.update(iter([]), lambda: [], large)
    assert table.about() == large
    table.update(iter([]), lambda: [], about)
    assert table.about() == about
    name = f"{table.rows_in}_about"  # type: ignore[attr-defined]
    table._client.delete(name, filter='part like "%/000001"')  # type: ignore[attr-defined]
    table.close()
    with pytest.raises(IndexFormatError, match="what it says of its vectors cannot be read"):
        index.export(to)
    index.export(to, replace=True)
    table = opened(to)
    assert table.about() == about
    table.close()


def test_many_rows_get_an_approximate_index(index: Index, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milvus, "INDEXED", 6)
    index.export(f"milvus:{file}")
    table = opened(f"milvus:{file}")
    vector = index.searcher.encode(["where do bees fly?"])[0]
    expected = [hit.chunk_id for hit in index.search(vector=vector, k=3, fold=False)]
    assert table.nearest(vector, 3, None).column("chunk_id").to_pylist() == expected
    assert table._client.describe_index(table.rows_in, "vector")["index_type"] == "AUTOINDEX"  # type: ignore[attr-defined]
    table.close()


def test_closing_ends_the_server(index: Index, file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    to, before, processes = f"milvus:{file}", set(threading.enumerate()), psutil.Process().children()
    index.export(to)
    one, two = opened(to), opened(to)
    one.close()
    one.close()
    assert two.count() == 6
    with pytest.raises(RagidxError):
        _ask_wrongly(two)
    two.close()
    new = {thread.name for thread in set(threading.enumerate()) - before}
    assert not [name for name in new if name.startswith("milvus_lite")]
    assert psutil.Process().children() == processes
    MilvusLite(str(file)).close()  # the file is free
    assert capfd.readouterr().err == ""


def _ask_wrongly(table: Table) -> None:
    with table._asking() as client:  # type: ignore[attr-defined]
        client.query(table.rows_in, "no such thing")  # type: ignore[attr-defined]


def test_files_that_cannot_be_opened(index: Index, file: Path) -> None:
    assert opened(f"milvus:{file}").about() is None
    assert not file.exists()
    with pytest.raises(SpecError, match=r"Milvus Lite opens no file of this name") as fault:
        opened("milvus:file")
    assert fault.value.hint == "let its name end in .db, or name a server: milvus:http://HOST:19530"
    with pytest.raises(RagidxError, match="not exists"):
        index.export(f"milvus:{file.parent}/no/lite.db")
    file.write_bytes(b"SQLite format 3\0")
    with pytest.raises(RagidxError, match="File exists"):
        opened(f"milvus:{file}")
    file.unlink()
    held = MilvusLite(str(file))
    with pytest.raises(RagidxError, match="another process holds the lock"):
        opened(f"milvus:{file}")
    held.close()
    index.export(f"milvus:{file}")
    for schema in file.glob("collections/*/schema.json"):
        schema.write_text("{")
    with pytest.raises(RagidxError, match="is not valid JSON"):
        opened(f"milvus:{file}")
    MilvusLite(str(file)).close()


def test_one_long_document_among_few(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = made_in(tmp_path / "index")
    index.add([ragidx.Document("long", " ".join(f"Mill {number} ground wheat." for number in range(1_000)))])
    index.export(f"milvus:{file}")
    monkeypatch.setattr(milvus, "_MAX_ROWS", 14)
    monkeypatch.setattr(milvus.MilvusTable, "max_rows", 14)
    with ragidx.connect(f"milvus:{file}") as remote:
        found = remote.search("mill ground wheat", 4, mode="dense", per_document=1)
        assert "long" in {hit.doc_id for hit in found}
        with pytest.raises(QueryError, match="Milvus finds up to 14 rows, not 31"):
            remote.search("mill ground wheat", 20, mode="dense")


def test_a_server_is_asked_by_its_url(index: Index, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILVUS_TOKEN", "root:secret")
    server, database, port = start_server_in_thread(str(file))
    to = f"milvus:http://127.0.0.1:{port}#t"
    assert index.export(to).n_written == 6
    table = opened(to)
    assert table.count() == 6
    server.stop(grace=0).wait()
    database.close()
    with pytest.raises(RagidxError, match="Fail connecting to server") as fault:
        table.count()
    assert "secret" not in str(fault.value)
    table.close()


def test_servers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match="a password does not belong into the URL of Milvus") as refused:
        opened("milvus:http://root:secret@127.0.0.1:19530")
    assert refused.value.hint == "put it into the environment variable MILVUS_TOKEN, as USER:PASSWORD or a token"
    assert "secret" not in str(refused.value)
    monkeypatch.setattr(milvus, "_CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(RagidxError, match="Fail connecting to server") as fault:
            opened(f"milvus:http://127.0.0.1:{silent.getsockname()[1]}")
        assert str(fault.value.where).endswith("#ragidx")
    with pytest.raises(RagidxError, match="is illegal, needs start with"):
        opened("milvus:ftp://127.0.0.1")
