"""Tables of Qdrant: the alias, readers of what was replaced, the wire, faults, and what filters cannot say."""

from __future__ import annotations

import dataclasses
import gc
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import BusyError, QueryError, RagidxError, SpecError
from ragidx.pipelines.index import Index
from ragidx.pipelines.integrations.engines.layout import AboutTable, rows_of, vectors_of
from ragidx.pipelines.integrations.engines.table import Table
from ragidx.pipelines.integrations.engines.target import Target
from ragidx.retriever.where.binding import bind

pytest.importorskip("qdrant_client")

from qdrant_client import QdrantClient, models

from .qdrant_server import qdrant_server

MORE = [
    ragidx.Document(
        "big", "Large numbers.", {"n": 2**63 - 1, "x": -0.0, "flag": True, "at": datetime(1, 1, 1, tzinfo=UTC)}
    ),
    ragidx.Document("next", "Others.", {"n": 2**53 + 1, "x": 1e308, "flag": False, "labels": ["a", "b c"]}),
    ragidx.Document("less", "Less.", {"n": -(2**63), "x": 0.1, "at": datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)}),
    ragidx.Document("none", "Nothing.", {"labels": [], "name": "Ünder_%score"}),
    ragidx.Document("zero", "Zero.", {"n": 0, "name": "under"}),
]
CONDITIONS = [
    *(f"n {op} {bound}" for op in ("<", "<=", ">", ">=", "==", "!=") for bound in (-1, 0, 0.5, 2**53 - 1, 1e30, -1e30)),
    *(f"n == {2**53 + 1}", f"n != {2**63 - 1}", f"n in ({2**63 - 1}, 0.0, 1e30)", "not n in (0.5)", "not n in (0)"),
    *("x == 0", "x in (0.1, 5)", "not x in (0.1)", "x > 0.1", "not x >= 0.1", "x != 0.1", "not x != 0.1"),
    *("flag in (true, false)", "not flag in (true)", "flag != false", "flag is null", "not flag is null"),
    *(
        "labels is null",
        "labels is not null",
        "labels contains 'b c'",
        "labels contains 'b'",
        "not labels contains 'a'",
    ),
    *("at < '2024'", "at == '2024-05-06T07:08:09.123456'", "at > '2024-05-06T07:08:09.123455'", "at != '0001-01-01'"),
    *("at in ('0001-01-01', '2020')", "not at in ('2020')", "not (at < '2000' or n == 0)"),
    *("name contains '_%s'", "name contains 'score'", "name contains 'Score'", "not name contains 'x'"),
    *(
        "name starts with 'Ü'",
        "name starts with ''",
        "not name starts with 'u'",
        "name in ('under', 'x')",
        "name != ''",
    ),
    "not ((n > 0 and flag == true) or labels is null)",
]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    made = Index.create(tmp_path / "index")
    made.add(MORE)
    return made


@pytest.fixture
def to() -> Iterator[str]:
    """A target in memory, of each test its own."""
    name = f"t{uuid.uuid4().hex[:8]}"
    yield f"qdrant::memory:#{name}"
    client = shared()
    for found in client.get_collections().collections:
        if found.name.startswith(name):
            client.delete_collection(found.name)


def shared() -> QdrantClient:
    from ragidx.pipelines.integrations.engines.qdrant import _in_memory

    return _in_memory()


def opened(to: str) -> Table:
    return Target.parse(to).open()


def names(to: str) -> list[str]:
    """Of the collections of a table."""
    name = Target.parse(to).name
    found = [one.name for one in shared().get_collections().collections if one.name.startswith(name)]
    return sorted(found)


def ids(table: Table | Index, where: str) -> list[str]:
    if isinstance(table, Index):
        batches: Any = table.to_batches(["doc_id"], where=where)
    else:
        about = table.about()
        assert about is not None
        batches = table.select(bind(where, about.fields), ["doc_id"])
    return sorted({row["doc_id"] for batch in batches for row in batch.to_pylist()})


def fault_of(to: str) -> RagidxError:
    with pytest.raises(RagidxError) as fault:
        opened(to).about()
    return fault.value


def test_filters_are_as_exact_as_conditions(index: Index, to: str) -> None:
    index.export(to)
    table = opened(to)

    for where in CONDITIONS:
        assert ids(table, where) == ids(index, where), where


def test_what_a_filter_cannot_say_is_refused(index: Index, to: str) -> None:
    index.export(to)
    table = opened(to)

    for where, what in {
        "name matches 'a'": "'name' by matches",
        "name < 'a'": "'name' by < of text",
        f"n > {2**53}": "'n' by > of an integer past 53 bits",
        f"n <= -{2**53 + 1}": "'n' by <= of an integer past 53 bits",
        "flag == true or name >= 'a'": "'name' by >= of text",
    }.items():
        with pytest.raises(QueryError, match="Qdrant cannot compare") as fault:
            table.count(bind(where, index.schema))
        assert fault.value.message == f"Qdrant cannot compare {what}"


def test_a_point_can_be_asked_by_its_own_client(index: Index, to: str) -> None:
    index.export(to)
    client, name = shared(), Target.parse(to).name
    [question] = index.searcher.encode(["what is large?"])
    condition = models.Filter(must=[models.FieldCondition(key="n", range=models.Range(gte=0))])

    points = client.query_points(name, question.tolist(), query_filter=condition, limit=10, with_vectors=True).points

    hits = index.search(vector=question, k=10, where="n >= 0", fold=False)
    assert [(point.payload or {})["chunk_id"] for point in points] == [hit.chunk_id for hit in hits]
    assert [point.score for point in points] == pytest.approx([hit.score for hit in hits], abs=1e-3)
    first = points[0].payload or {}
    assert points[0].id == str(uuid.uuid5(uuid.NAMESPACE_URL, first["chunk_id"]))
    config = client.get_collection(name).config.params.vectors
    assert isinstance(config, models.VectorParams)
    assert (config.distance, config.datatype) == (models.Distance.DOT, models.Datatype.FLOAT16)
    none = next(point for point in client.scroll(name)[0] if (point.payload or {})["doc_id"] == "none")
    assert none.payload == {**(none.payload or {}), "labels": []}
    assert "n" not in (none.payload or {})
    assert (points[0].payload or {})["labels"] is None


def test_a_reader_of_replaced_rows_is_told_to_open_again(index: Index, to: str) -> None:
    index.export(to)
    reader = opened(to)
    before = names(to)

    index.export(to, replace=True)

    for ask in (
        reader.count,
        reader.digests,
        lambda: reader.nearest(np.zeros(index.info().dim, np.float32), 1, None),
        lambda: list(reader.select()),
    ):
        with pytest.raises(RagidxError) as fault:
            ask()
        assert str(fault.value) == f"{to}: its rows were replaced\n  hint: open it again"
    assert opened(to).count() == 5
    assert len(names(to)) == 2
    assert not set(names(to)) & set(before)


def test_a_replacement_that_breaks_off_changes_nothing_and_is_cleaned_up(index: Index, to: str) -> None:
    index.export(to)
    table, before = opened(to), names(to)
    store = index.searcher.store

    def breaking() -> Iterator[Any]:
        yield from rows_of(store, AboutTable.of(store))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.replace(breaking(), AboutTable.of(store))

    assert len(names(to)) == 4
    assert table.count() == opened(to).count() == 5
    shared().create_collection(
        f"{Target.parse(to).name}_0123abcd", models.VectorParams(size=2, distance=models.Distance.DOT)
    )
    index.export(to, replace=True)
    assert len(names(to)) == 3  # the one of somebody else is still there
    assert not set(names(to)) & set(before)


def test_what_ragidx_did_not_write_is_not_touched(index: Index, to: str) -> None:
    client, name = shared(), Target.parse(to).name
    size = models.VectorParams(size=2, distance=models.Distance.DOT)
    client.create_collection(name, size)

    with pytest.raises(SpecError) as fault:
        index.export(to)
    index.export(to, replace=True)

    assert str(fault.value) == (
        f"{to}: it is a table that ragidx did not write\n"
        "  hint: name another table: TARGET#NAME, or replace it: `ragidx export --replace`"
    )
    assert opened(to).count() == 5


def test_an_alias_of_something_else_is_moved_and_its_collection_stays(index: Index, to: str) -> None:
    client, name = shared(), Target.parse(to).name
    client.create_collection(f"{name}_other", models.VectorParams(size=2, distance=models.Distance.DOT))
    alias = models.CreateAlias(collection_name=f"{name}_other", alias_name=name)
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])

    assert fault_of(to).message == "it is a table that ragidx did not write"
    index.export(to, replace=True)

    assert opened(to).count() == 5
    assert client.collection_exists(f"{name}_other")


def test_what_is_said_of_the_rows_may_be_long(index: Index, to: str) -> None:
    about = dataclasses.replace(AboutTable.of(index.searcher.store), files={"filter": os.urandom(3 << 20)})
    table = opened(to)

    table.replace([], about)
    assert opened(to).about() == about
    table.update([], list, dataclasses.replace(about, generation=9))

    assert opened(to).about() == dataclasses.replace(about, generation=9)
    beside = next(name for name in names(to) if name.endswith("_about"))
    assert shared().count(beside).count == 1 + 5


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the client leaves its lock file open
def test_a_folder_is_open_in_one_process(tmp_path: Path) -> None:
    to = f"qdrant:{tmp_path / 'q'}#x"
    script = f"""
from qdrant_client import QdrantClient
client = QdrantClient(path={str(tmp_path / "q")!r})
print("open", flush=True)
input()"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(BusyError) as fault:
            opened(to)
        other.stdin.write("\n")
        other.stdin.flush()
    assert str(fault.value) == (
        f"{to}: the folder is open in another process\n  hint: close it there, or run a server, which many can ask"
    )
    with closing(opened(to)), closing(opened(to)):  # of one process
        pass
    opened(to).close()
    del fault
    gc.collect()


def test_a_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")

    fault = fault_of(f"qdrant:{tmp_path / 'file'}")

    assert "exists" in fault.message
    assert fault.hint == "look at the engine: whether it runs, and what this user may do there"


def test_a_server_has_the_rows_of_the_index(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_API_KEY", "the-key")
    with qdrant_server(key="the-key") as url:
        to = f"qdrant:{url}#chunks"
        index.export(to)
        index.add([ragidx.Document("zero", "Changed.", {"n": 1, "name": "under"})])  # others have these, too
        index.delete(["none"])
        assert index.export(to).n_written == 1
        table = opened(to)

        store = index.searcher.store
        assert table.about() == AboutTable.of(store)
        expected = {
            row: vector.tobytes()
            for batch in rows_of(store, AboutTable.of(store))
            for row, vector in zip(batch.column("chunk_id").to_pylist(), vectors_of(batch), strict=True)
        }
        found = {
            row: vector.tobytes()
            for batch in table.select()
            for row, vector in zip(batch.column("chunk_id").to_pylist(), vectors_of(batch), strict=True)
        }
        assert found == expected
        for where in CONDITIONS[::3]:
            assert ids(table, where) == ids(index, where), where
        [question] = index.searcher.encode(["what is large?"])
        hits = index.search(vector=question, k=3, fold=False)
        assert table.nearest(question, 3, None).column("chunk_id").to_pylist() == [hit.chunk_id for hit in hits]
        index.export(to, replace=True)
        with pytest.raises(RagidxError, match="its rows were replaced"):
            table.count()
        table.close()


def test_a_host_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fault = fault_of("qdrant:localhost:6333#chunks")
    assert fault.hint == "write the URL of the server: qdrant:http://localhost:6333"
    with pytest.raises(SpecError, match="there is no such table"):
        ragidx.connect("qdrant:nothing#chunks")
    assert list(tmp_path.iterdir()) == []


def test_an_older_server_is_not_asked_for_parts_of_texts(index: Index) -> None:
    with qdrant_server(version="1.19.2") as url:
        index.export(f"qdrant:{url}#chunks")
        table = opened(f"qdrant:{url}#chunks")

        assert table.count(bind("name == 'under'", index.schema)) == 1
        with pytest.raises(QueryError, match="Qdrant cannot compare 'name' by contains"):
            table.count(bind("name contains 'under'", index.schema))
        table.close()


def test_a_key_and_a_password_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_API_KEY", "hush-hush")
    with qdrant_server(key="the-key") as url:
        fault = fault_of(f"qdrant:{url}#chunks")
        assert fault.message.startswith("Unexpected Response: 401 (Unauthorized)")
        assert fault.where == f"qdrant:{url}#chunks"
        assert "hush" not in str(fault)

    for place in ("http://me:hush@localhost:6333", "http://localhost:6333?api_key=hush"):
        fault = fault_of(f"qdrant:{place}")
        assert str(fault) == (
            "qdrant:http://localhost:6333#ragidx: a URL of Qdrant holds no key and no password\n"
            "  hint: write http://HOST:PORT alone, and set the environment variable QDRANT_API_KEY"
        )


def test_a_server_that_is_not_there_or_goes_away_is_one_line(index: Index) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        to = f"qdrant:http://127.0.0.1:{free.getsockname()[1]}#chunks"
    assert "refused" in fault_of(to).message
    assert fault_of(to).where == to

    with qdrant_server(fails_at="/query") as url:
        index.export(f"qdrant:{url}#chunks")
        table = opened(f"qdrant:{url}#chunks")
        with pytest.raises(RagidxError) as fault:
            table.nearest(np.zeros(index.info().dim, np.float32), 1, None)
        assert fault.value.message == "Server disconnected without sending a response."
        table.close()
    with qdrant_server(fails_at="/points") as url, pytest.raises(RagidxError, match="Server disconnected"):
        index.export(f"qdrant:{url}#chunks")
