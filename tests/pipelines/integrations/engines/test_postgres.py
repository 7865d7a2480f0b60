"""PostgreSQL: nothing half is seen, nothing secret is shown, and what it cannot hold or do is said."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ragidx
from ragidx.corpora.errors import EngineError, QueryError, SpecError
from ragidx.pipelines.index import Index
from ragidx.pipelines.integrations.engines.layout import AboutTable, rows_of, schema_of
from ragidx.pipelines.integrations.engines.table import Table
from ragidx.pipelines.integrations.engines.target import Target
from ragidx.retriever.where.binding import bind

psycopg = pytest.importorskip("psycopg")
engine = pytest.importorskip("ragidx.pipelines.integrations.engines.postgres")
dialect = pytest.importorskip("ragidx.pipelines.integrations.engines.postgres_sql").PostgresDialect({}, {})

ABOUT = AboutTable({"kind": "precomputed"}, "one", 1, "now", 8, {"doc_id": "string", "year": "int", "tags": "list"}, {})
Open = Callable[[str], Any]
_TESTS = itertools.count()


@pytest.fixture
def sql(server: str) -> Iterator[Any]:
    with psycopg.connect(server, autocommit=True) as connection:
        yield connection


@pytest.fixture
def to(server: str) -> str:
    """A target of the test's own."""
    return f"{server}#own{next(_TESTS)}"


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens a target; it is closed at the end."""
    with ExitStack() as closed:
        yield lambda to: closed.enter_context(closing(Target.parse(to).open()))


def batch(names: Sequence[str], about: AboutTable = ABOUT, **columns: Sequence[Any]) -> Any:
    """Rows with random vectors."""
    vectors = np.random.default_rng(len(names)).normal(size=(len(names), about.dim))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    values: dict[str, Any] = {"chunk_id": names, "doc_id": names, "text": names, "heading": names}
    values |= {"digest": [1] * len(names), "vector": list(vectors)} | columns
    schema = schema_of(about)
    return pa.record_batch(
        [pa.array(values.get(n, [None] * len(names)), schema.field(n).type) for n in schema.names], schema
    )


def ids(table: Table) -> list[str]:
    return sorted(name for rows in table.select(columns=["chunk_id"]) for name in rows.column(0).to_pylist())


def broken(rows: Any) -> Iterator[Any]:
    yield rows
    raise OSError("the disk is gone")


def test_a_password_is_never_shown(server: str, sql: Any, opened: Open) -> None:
    sql.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    [(file,)] = sql.execute("SHOW hba_file")
    rules = Path(file)
    rules.write_text(f"local all guarded scram-sha-256\n{rules.read_text()}")
    sql.execute("SELECT pg_reload_conf()")
    place = server.partition("@")[2]
    for to, said in [
        (f"postgresql://guarded:s3cr3t@{place}", "password authentication failed"),
        (
            f"postgresql:{server.partition('?')[2]} dbname=postgres user=guarded password=s3cr3t",
            "password authentication",
        ),
        ("postgresql://me:s3cr3t@127.0.0.1:1/none?connect_timeout=1", "Connection refused"),
        ("postgresql://me:s3cr3t%zz@127.0.0.1/none", "invalid percent-encoded token"),
    ]:
        target = Target.parse(to)
        with pytest.raises(EngineError, match=said) as fault:
            target.open()
        for shown in (str(fault.value), repr(fault.value), repr(target), target.shown):
            assert "s3cr3t" not in shown
    with pytest.raises(SpecError, match="it is no URL") as fault:
        Target.parse("postgresql://me:s3cr3t@[x/none")
    assert "s3cr3t" not in str(fault.value)
    table = opened(f"postgresql://guarded:right@{place}#unknown")
    assert table.about() is None


def test_a_database_without_pgvector_says_so(server: str, sql: Any, opened: Open) -> None:
    sql.execute("CREATE DATABASE bare")
    sql.execute("CREATE ROLE plain LOGIN")
    table = opened(server.replace("postgres:@/postgres", "plain@/bare"))
    with pytest.raises(EngineError) as fault:
        table.replace([], ABOUT)
    assert fault.value.message == 'the database has no pgvector: permission denied to create extension "vector"'
    assert fault.value.hint == (
        "install pgvector 0.8 or later, and let an administrator run CREATE EXTENSION vector there"
    )


def test_a_table_of_others_is_not_touched(index: Index, to: str, sql: Any) -> None:
    name = to.partition("#")[2]
    sql.execute(f"CREATE TABLE {name} (id int)")
    with pytest.raises(SpecError, match="it is a table that ragidx did not write") as fault:
        index.export(to)
    assert fault.value.hint == "name another table: TARGET#NAME, or replace it: `ragidx export --replace`"
    index.export(to, replace=True)
    sql.execute(f"ALTER TABLE {name} DROP COLUMN heading")
    with pytest.raises(SpecError, match="its columns are not those that ragidx wrote"):
        index.export(to)
    sql.execute(f"DROP TABLE {name}")
    assert index.export(to).n_written == 6


def test_what_it_cannot_hold_is_counted(index: Index, to: str, opened: Open) -> None:
    index.add(
        [
            ragidx.Document("nul", "a\0b"),
            ragidx.Document("field", "text", {"tags": ["a", "b\0"], "a.b": "\0"}),
            ragidx.Document("long" * 700, "text"),
        ]
    )
    refused = {"a text with NUL characters": 2, "an id of more than 2,600 bytes": 1}
    with pytest.raises(
        SpecError, match="it cannot hold 3 rows: 2 a text with NUL characters; 1 an id of more than 2,600"
    ):
        index.export(to, strict=True)
    report = index.export(to)
    assert (report.n_rows, report.refused) == (6, refused)
    again = index.export(to)
    assert (again.n_written, again.n_rows, again.refused) == (0, 6, refused)
    with pytest.raises(SpecError, match="it cannot hold 3 rows"):
        index.export(to, strict=True)
    table = opened(to)
    assert len(ids(table)) == 6
    assert list(table.select(ids=("doc_id", ["nu\0l"]))) == []


def test_the_table_of_the_tables_is_refused(server: str, opened: Open) -> None:
    table = opened(f"{server}#ragidx_tables")
    with pytest.raises(
        SpecError, match="no table can have the name 'ragidx_tables': that says which tables ragidx wrote"
    ):
        table.check(ABOUT)


def test_the_largest_vectors_are_held(to: str, opened: Open) -> None:
    table, about = opened(to), replace(ABOUT, dim=16_000)
    rows = batch(["a"], about)
    table.replace([rows], replace(about, n_rows=engine.INDEXED))
    [found] = table.select()
    assert found.equals(rows)


def test_a_crash_leaves_what_was_there(to: str, sql: Any, opened: Open) -> None:
    table, reader = opened(to), None
    with pytest.raises(OSError, match="the disk is gone"):
        table.replace(broken(batch(["a"])), ABOUT)
    assert table.about() is None
    table.replace([batch(["a", "b"])], ABOUT)
    reader, later = opened(to), replace(ABOUT, generation=2)

    def seen() -> Iterator[Any]:
        yield batch(["c"])
        assert ids(reader) == ["a", "b"]
        assert reader.about() == ABOUT

    with pytest.raises(OSError, match="the disk is gone"):
        table.replace(broken(batch(["c"])), later)
    with pytest.raises(OSError, match="the disk is gone"):
        table.update(broken(batch(["c"])), lambda: ["a"], later)
    assert ids(table) == ["a", "b"]
    table.update(seen(), lambda: ["a"], later)
    assert (ids(reader), table.about()) == (["b", "c"], later)
    table.replace([batch(["d"])], later)
    assert ids(reader) == ["d"]
    assert sql.execute("SELECT relname FROM pg_class WHERE relname LIKE '% new' AND relkind = 'r'").fetchall() == []


def test_two_exports_do_not_mix(to: str, opened: Open) -> None:
    one = opened(to)
    one.replace([batch(["a"])], ABOUT)
    two = opened(to)
    one.update([batch(["b"])], lambda: [], replace(ABOUT, generation=2))
    with pytest.raises(EngineError, match="another export changed it meanwhile") as fault:
        two.update([batch(["c"])], lambda: ["a"], replace(ABOUT, generation=3))
    assert fault.value.hint == "export again"
    assert ids(two) == ["a", "b"]


@pytest.mark.parametrize("dim", [8, 9])
def test_vectors_that_were_replaced_are_not_compared(to: str, dim: int, opened: Open) -> None:
    table, other = opened(to), replace(ABOUT, fingerprint="two", dim=dim)
    table.replace([batch(["a"])], ABOUT)
    open_before = opened(to)
    table.replace([batch(["b"], other)], other)
    vector, nothing = np.ones(8, np.float32), bind("doc_id == 'z'", ABOUT.fields)
    for ask in (
        lambda: open_before.nearest(vector, 1, None),
        lambda: open_before.nearest(vector, 1, nothing),
        lambda: open_before.by_words("b", 1, None),
        lambda: list(open_before.select()),
        lambda: list(open_before.select(nothing)),
    ):
        with pytest.raises(EngineError, match="its vectors were replaced by another model's") as fault:
            ask()
        assert fault.value.hint == "open it again"
    fewer = replace(other, fields={"doc_id": "string"})
    open_before = opened(to)
    table.replace([batch(["b"], fewer)], fewer)
    with pytest.raises(EngineError, match="its columns were replaced by others"):
        list(open_before.select())


def test_a_server_that_goes_away_is_asked_again(
    to: str, sql: Any, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    monkeypatch.setattr(engine, "_BATCH_ROWS", 1)
    table = opened(to)
    table.replace([batch(["a", "b", "c"])], ABOUT)
    reading = table.select()
    next(reading)
    others = "pid <> pg_backend_pid() AND backend_type = 'client backend'"
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
    sql.execute(end)
    with pytest.raises(EngineError) as fault:
        list(reading)
    assert fault.value.hint == "look at the engine: whether it runs, and what this user may do there"
    assert table.count() == 3
    sql.execute(end)
    with pytest.raises(EngineError):
        table.nearest(np.ones(8, np.float32), 1, None)
    assert table.nearest(np.ones(8, np.float32), 1, None).num_rows == 1


def test_the_approximate_index_answers_as_all_rows_do(
    to: str, sql: Any, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    monkeypatch.setattr(engine, "INDEXED", 2_000)
    table, n = opened(to), 2_000
    rows = batch([f"{number:04}" for number in range(n)], year=range(n))
    table.replace([rows], replace(ABOUT, n_rows=n))
    [(made,)] = sql.execute(
        "SELECT indexdef FROM pg_indexes WHERE indexdef LIKE '%%hnsw%%' AND tablename = %s", [table.target.name]
    )
    assert "halfvec_ip_ops" in made
    vectors = np.stack(rows.column("vector").to_numpy(zero_copy_only=False)).astype(np.float32)
    for where, allowed in (None, np.arange(n)), ("year >= 1990", np.arange(1990, n)), ("year == 7", np.array([7])):
        asked = vectors[5] + np.float32(0.01)
        best = allowed[np.argsort(-(vectors[allowed] @ asked), kind="stable")[:10]]
        condition = None if where is None else bind(where, ABOUT.fields)
        found = table.nearest(asked, 10, condition).column("year").to_pylist()
        assert len(set(found) & set(best.tolist())) >= min(9, len(best))
    plan = f"EXPLAIN SELECT chunk_id FROM {table.target.name} ORDER BY vector <#> '{vectors[5].tolist()}' LIMIT 20"
    assert "Index Scan" in str(sql.execute(plan).fetchall())


def test_a_table_that_grows_gets_the_approximate_index(
    index: Index, to: str, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "INDEXED", 7)
    made = "SELECT count(*) FROM pg_indexes WHERE indexdef LIKE '%%hnsw%%' AND tablename = %s"
    for number in range(3):
        index.export(to)
        assert sql.execute(made, [to.partition("#")[2]]).fetchone() == (min(number, 1),)
        index.add([ragidx.Document(f"new{number}", "Something new.")])
    with ragidx.connect(to) as remote:
        assert [hit.doc_id for hit in remote.search("bees", 1, mode="dense")] == ["bees"]


def test_threads_ask_at_once(to: str, opened: Open) -> None:
    table = opened(to)
    table.replace([batch([f"{number:03}" for number in range(100)])], ABOUT)
    vector = np.ones(8, np.float32)
    expected = table.nearest(vector, 5, None)
    reading = table.select()
    with ThreadPoolExecutor(8) as threads:
        assert all(found.equals(expected) for found in threads.map(lambda _: table.nearest(vector, 5, None), range(40)))
    assert sum(map(len, reading)) == 100


def test_literals_are_what_they_say(sql: Any) -> None:
    for text in ("it's", "\\", "\\'", "''", "%s %% %", "räv 🦊", '"', "$$", "\n\t\x01", "-- ", "{}"):
        for setting in ("on", "off"):
            sql.execute(f"SET standard_conforming_strings = {setting}; SET escape_string_warning = off")
            assert sql.execute(f"SELECT {dialect.text(text)}").fetchone() == (text,)
    for time in (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(2024, 2, 29, 12)):
        assert sql.execute(f"SELECT {dialect.time(time)}").fetchone() == (time,)
    with pytest.raises(QueryError, match="PostgreSQL has no texts with NUL characters"):
        dialect.text("a\0")


def test_words_of_any_text_are_indexed(to: str, opened: Open) -> None:
    table, about = opened(to), replace(ABOUT, stemmer="english")
    long = " ".join(f"word{number}" for number in range(300_000))
    texts = ["a river", "rivers and rivers and rivers", "rivers and mills", long]
    table.replace([batch(list("abcd"), about, text=texts)], about)
    assert table.by_words("river\0 & mill | (", 9, None).column("chunk_id").to_pylist() == ["c", "a", "b"]
    assert table.by_words("word7 https://a.b/?x=1&y=2", 9, None).column("chunk_id").to_pylist() == ["d"]
    assert table.by_words("the", 9, None).num_rows == table.by_words("", 9, None).num_rows == 0


def test_a_field_whose_type_changes_under_a_reader(to: str, opened: Open) -> None:
    opened(to).replace([batch(["a"], year=[1])], ABOUT)
    reader, later = opened(to), replace(ABOUT, fields=ABOUT.fields | {"year": "string"})
    opened(to).replace([batch(["a"], later, year=["unknown"])], later)
    with pytest.raises(EngineError, match="its columns were replaced by others"):
        reader.nearest(np.ones(8, np.float32), 1, None)


def test_a_snapshot_is_one_state(index: Index, to: str, opened: Open) -> None:
    index.export(to)
    table, [question] = opened(to), index.searcher.encode(["a paper mill"])
    with table.snapshot():
        before = table.nearest(question, 9, None)
        index.add([ragidx.Document("paper", "A paper mill by the river.")])
        index.export(to)
        assert table.nearest(question, 9, None) == before
        assert table.by_words("paper", 9, None).num_rows == 0
    assert table.by_words("paper", 9, None).num_rows == 1


def test_a_table_that_has_no_column_of_words(index: Index, to: str, sql: Any, opened: Open) -> None:
    index.export(to)
    texts = ("the old river mill", "bees", "")
    found = [opened(to).by_words(text, 9, None) for text in texts]
    sql.execute(f"ALTER TABLE {to.partition('#')[2]} DROP COLUMN _words")  # as the first ones were
    assert [opened(to).by_words(text, 9, None) for text in texts] == found
    index.add([ragidx.Document("paper", "A paper mill by the river.")])
    assert index.export(to).n_written == 1
    assert opened(to).by_words("paper", 9, None).column("doc_id").to_pylist() == ["paper"]


def test_a_field_may_have_the_name_of_the_score(index: Index, to: str, opened: Open) -> None:
    index.add([ragidx.Document("goal", "A goal in the last minute.", {"score": 3})])
    index.export(to)
    found = opened(to).by_words("goal", 1, bind("score == 3", index.schema))
    assert (found.column("score_2").to_pylist(), found.column("score").type) == ([3], pa.float32())


def test_the_page_asks_by_hand(index: Index, to: str, sql: Any) -> None:
    index.export(to)
    [question] = index.searcher.encode(["where do bees fly?"])
    for where, condition in (
        (None, "TRUE"),
        ("alive == true", "alive"),
        ("tags contains 'water'", "'water' = ANY(tags)"),
    ):
        found = sql.execute(
            f"SELECT chunk_id, -(vector <#> %(question)s::halfvec) AS cosine FROM {to.partition('#')[2]}"
            f" WHERE {condition} ORDER BY vector <#> %(question)s::halfvec LIMIT 10",
            {"question": str(question.tolist())},
        ).fetchall()
        hits = index.search(vector=question, where=where, fold=False)
        assert [name for name, _ in found] == [hit.chunk_id for hit in hits]
        np.testing.assert_allclose([cosine for _, cosine in found], [hit.score for hit in hits], atol=1e-3)


def test_the_rows_are_bit_for_bit(index: Index, to: str, sql: Any) -> None:
    index.export(to)
    store = index.searcher.store
    [rows] = rows_of(store, AboutTable.of(store))
    query = (
        f'SELECT chunk_id, vector::text, "end", pg_typeof(vector)::text FROM {to.partition("#")[2]} ORDER BY chunk_id'
    )
    for (name, text, end, kind), row in zip(sql.execute(query), rows.sort_by("chunk_id").to_pylist(), strict=True):
        assert (name, end, kind) == (row["chunk_id"], row["end"], "halfvec")
        assert [np.float16(number) for number in text.strip("[]").split(",")] == row["vector"]


def test_numbers_that_are_not_finite_fulfil_no_comparison_and_are_not_shown(index: Index, to: str, sql: Any) -> None:
    index.add([ragidx.Document("nan", "Not a number."), ragidx.Document("more", "One more.", {"share": 0.75})])
    index.export(to)
    sql.execute(f"UPDATE {to.partition('#')[2]} SET share = 'NaN' WHERE doc_id = 'nan'")
    with ragidx.connect(to) as remote:
        assert (remote.count("share > 0"), remote.count("share >= 0.5"), remote.count("not share > 0")) == (3, 3, 1)
        [hit] = remote.search("what?", 1, where="doc_id == 'nan'")
        assert "share" not in hit.metadata
