"""A table that is asked as the index is: the same hits, documents and values; what an engine cannot do is refused."""

from __future__ import annotations

import itertools
import json
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import EngineError, ModelError, QueryError, SpecError
from ragidx.pipelines.index import Index
from ragidx.pipelines.integrations.engines.table import ReplacedError
from ragidx.pipelines.integrations.engines.target import Target
from ragidx.retriever.hit import NO_KNOWN_WORD, NO_VECTOR

from ...conftest import Done


@pytest.fixture
def remote(exported: tuple[Index, str]) -> Any:
    """The index of `exported`, asked in its engine."""
    with ragidx.connect(exported[1]) as opened:
        yield opened


def test_hybrid_search_is_by_places(exported: tuple[Index, str], remote: Any) -> None:
    if not remote.searcher.store.table.has_words:
        assert remote.search("bees", 1)[0].bm25 is None
        with pytest.raises(QueryError, match="no lexical part"):
            remote.search("bees", mode="lexical")
        return
    by_words = remote.search("bees by the river", mode="lexical")
    assert {hit.doc_id for hit in by_words} >= {"bees", "mill"}
    assert all(hit.score == hit.bm25 for hit in by_words)
    near = [hit.chunk_id for hit in remote.search("bees by the river", mode="dense")]
    ranked = [hit.chunk_id for hit in by_words]
    places = {
        name: sum(0.5 / (61 + one.index(name)) for one in (near, ranked) if name in one) for name in {*near, *ranked}
    }
    assert remote.search("nothingofthis", mode="lexical") == []
    found = remote.search("bees by the river")
    assert [hit.score for hit in found] == pytest.approx(sorted(places.values(), reverse=True)[: len(found)])
    assert {hit.chunk_id: hit.score for hit in found} == pytest.approx(
        {hit.chunk_id: places[hit.chunk_id] for hit in found}
    )


def test_a_word_of_other_rows_is_in_the_index(
    exported: tuple[Index, str], remote: Any, run: Callable[..., Done]
) -> None:
    if not remote.searcher.store.table.has_words:
        pytest.skip("this engine does not rank by words")
    assert [hit.bm25 for hit in remote.search("bees", where="year > 0")] == [0.0, 0.0]
    assert remote.search("bees", where="year > 0").notes == []
    for question, k, where in itertools.product(["nothingofthis"], [1, 10], [None, "year > 0", "year > 5000"]):
        found = remote.search(question, k=k, where=where)
        assert {hit.bm25 for hit in found} <= {None}
        assert found.notes == [NO_KNOWN_WORD]
    # The best by vectors may have no word, and others have one.
    assert remote.search("the bees", k=1, weight=1).notes == []
    found = {hit.doc_id: hit.bm25 for hit in remote.search("bees")}
    assert found.pop("bees") > 0
    assert set(found.values()) == {0.0}
    done = run("query", "bees", "--at", exported[1], "--where", "year > 0")
    assert "No word of the question" not in done.err
    assert f"  {remote.searcher.store.words_by:>5}  source" in done.out


def test_the_score_of_words_has_the_name_of_what_it_is(
    exported: tuple[Index, str], remote: Any, run: Callable[..., Done]
) -> None:
    if not remote.searcher.store.table.has_words:
        pytest.skip("this engine does not rank by words")
    from ...serve.conftest import running

    words = "ts_rank" if exported[1].startswith("postgres") else "bm25"
    for more in ((), ("--mode", "dense")):
        assert json.loads(run("query", "bees", "--at", exported[1], "--json", *more).out)["words_by"] == words
    with running({"docs": exported[1], "own": exported[0].path}) as served:
        assert served.search("bees", index="docs").body["words_by"] == words
        assert served.search("bees", index="own").body["words_by"] == "bm25"
        asked = {"queries": ["bees"], "index": "docs"}
        assert served.ask("POST", "/v1/search:batch", asked).body["words_by"] == words
        shown = served.ask("GET", "/?q=bees&index=docs").body
        assert f"  {words} " in shown
        assert ("  bm25 " in shown) == (words == "bm25")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dim": 8}, "an engine cannot do that"),
        ({"min_z": 1.0}, "an engine cannot do that"),
        ({"fusion": "z"}, "an engine fuses by places"),
    ],
    ids=str,
)
def test_what_an_engine_cannot_do_is_refused(remote: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(QueryError, match=said):
        remote.search("bees", **options)


def test_it_shows_one_state_until_it_is_refreshed(index: Index, place: Callable[[str], str], tmp_path: Path) -> None:
    index.export(place("chunks"))
    remote = ragidx.connect(place("chunks"))
    assert not remote.refresh()
    index.add([ragidx.Document("new", "Something new about bees.")])
    index.export(place("chunks"))
    assert remote.refresh()
    assert (remote.generation, remote.count()) == (index.generation, 7)
    remote.close()
    with pytest.raises(ValueError, match="was closed"):
        remote.search("bees")


def test_a_table_that_is_not_there(place: Callable[[str], str]) -> None:
    with pytest.raises(SpecError, match="there is no such table") as fault:
        ragidx.connect(place("nothing"))
    assert fault.value.hint.startswith("write one: `ragidx export --to ")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nothing:here", "unknown engine 'nothing'"),
        ("lancedb:", "unknown engine"),
        ("lancedb:x#a-b", "no table can have the name 'a-b'"),
        ("lancedb:x#" + "a" * 60, "no table can have the name"),
        ('lancedb:x#"; drop', "no table can have the name"),
    ],
)
def test_targets_that_are_none(target: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        ragidx.connect(target)


def test_the_command_asks_an_engine(engine: str, exported: tuple[Index, str], run: Callable[..., Done]) -> None:
    to = exported[1]
    done = run("query", "where do bees fly?", "--at", to, "-k", "2", "--mode", "dense", "--json")
    assert done.status == 0
    found = [hit["doc_id"] for hit in json.loads(done.out)["hits"]]
    assert found == [hit.doc_id for hit in exported[0].search("where do bees fly?", 2, mode="dense")]
    done = run("query", "where do bees fly?", "--at", to)
    assert "bees" in done.out
    assert ("by words are fused by places" in done.err) == (engine != "qdrant")  # which ranks by no words
    both = run("query", "bees", "--at", to, "--index", "x")
    assert (both.status, both.out) == (2, "")
    assert "--index and --at exclude each other" in both.err


def test_who_asks_while_a_table_is_replaced_gets_the_old_rows_or_the_new(
    engine: str, index: Index, place: Callable[[str], str], tmp_path: Path
) -> None:
    if engine in ("qdrant", "milvus"):
        pytest.skip("its local mode is not opened and closed by several threads at once")
    other = Index.create(tmp_path / "other")
    other.add([ragidx.Document(f"new{number}", f"The new mill, part {number}.") for number in range(5)])
    to, states = place("live"), [{one.id for one in made.documents()} for made in (index, other)]
    index.export(to)
    seen, faults, ended = list[set[str]](), list[str](), threading.Event()

    def ask() -> None:
        while not ended.is_set():
            try:
                with ragidx.connect(to) as remote:
                    seen.append({hit.doc_id for hit in remote.search("the mill", 10, fold=False)})
            except EngineError as fault:  # what it had open is gone
                faults.append(str(fault))

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            for made in (other, index, other):
                n_asked = len(seen)
                made.export(to, replace=True)
                while len(seen) == n_asked and not asking.done():
                    time.sleep(0.01)
        finally:
            ended.set()
        asking.result()
    assert seen
    assert all("replaced" in one for one in faults)
    assert all(one in states for one in seen)


@pytest.mark.parametrize(
    "to",
    [
        "postgres://me:hush@h/db",
        "milvus:http://me:hush@h#my-table",
        "foo:http://me:hush@h",
        "postgresql://me:a/hush@h#1",
        "postgresql:host=h password='a hush' dbname=x#1",
        "postgresql:host=h password = hush#1",
        "postgresql:password='a hush#1",
    ],
)
def test_no_password_is_shown_of_a_target_that_is_refused(index: Index, to: str) -> None:
    with pytest.raises(SpecError) as fault:
        index.export(to)
    assert "hush" not in str(fault.value)


def test_the_same_state_written_anew_is_asked_after_a_refresh(index: Index, place: Callable[[str], str]) -> None:
    index.export(place("anew"))
    with ragidx.connect(place("anew")) as remote:
        index.export(place("anew"), replace=True)
        remote.refresh()
        assert remote.search("bees", 1, mode="dense")[0].doc_id == "bees"


@pytest.mark.parametrize(
    "arguments",
    [
        ("query", "x", "--index", "postgresql://me:hush@h/db"),
        ("query", "x", "--index", "postgresql://me:hush@h/db", "--index", "other"),
        ("serve", "--index", "postgresql://me:hush@h/db"),
        ("info", "--index", "postgresql://me:hush@h/db"),
        ("build", "--vectors", "postgres://me:hush@h/db"),
    ],
)
def test_no_password_is_shown_of_a_url_in_the_place_of_a_folder(run: Callable[..., Done], arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.status == 2
    assert "an index is a folder, not a URL" in done.err or "unknown engine 'postgres'" in done.err
    assert "hush" not in done.out + done.err


@pytest.mark.parametrize("where", [None, "even == true"])
def test_the_first_ten_of_many_are_those_of_the_index(wide: tuple[Index, str], where: str | None) -> None:
    index, to = wide
    with ragidx.connect(to) as remote:
        for question in ("a mill by the river", "the treaty after the war", "bees and flowers", "a letter on a ship"):
            expected = index.search(question, 10, mode="dense", where=where, fold=False)
            found = remote.search(question, 10, mode="dense", where=where, fold=False)
            assert [hit.chunk_id for hit in found] == [hit.chunk_id for hit in expected]
            assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=1e-6)


def test_another_model_than_that_of_the_rows_is_refused(
    place: Callable[[str], str], tmp_path: Path, tiny_model: Any
) -> None:
    theirs, other = tiny_model(), tiny_model(hidden_size=64)
    with Index.create(tmp_path / "network", model=str(theirs), method="prompteol") as made:
        made.add([ragidx.Document("mill", "The old mill.")])
        made.export(place("network"))
    with ragidx.connect(place("network")) as remote:
        assert remote.search("mill", 1, mode="dense")[0].doc_id == "mill"
    with (
        ragidx.connect(place("network"), model=str(other)) as remote,
        pytest.raises(ModelError, match="is not the model this index was made with"),
    ):
        remote.search("mill", 1, mode="dense")


def test_who_has_a_table_open_is_answered_after_it_is_replaced(index: Index, place: Callable[[str], str]) -> None:
    index.export(place("open"))
    with ragidx.connect(place("open")) as remote:
        assert remote.search("bees", 1)[0].doc_id == "bees"
        for number in range(2):
            index.add([ragidx.Document("paper", f"A paper mill, number {number}.")])
            index.export(place("open"), replace=True)
            assert {hit.doc_id for hit in remote.search("bees", 2)} & {"bees"}
            assert remote.get(["bees"])[0].text == "Bees dance to tell where flowers are."
        assert remote.refresh()
        assert "number 1" in remote.search("a paper mill", 1)[0].text


def test_an_at_sign_in_a_path_is_shown() -> None:
    assert Target.parse("lancedb:s3://bucket/a@b#chunks").shown == "lancedb:s3://bucket/a@b#chunks"


def test_rows_that_are_gone_pickle() -> None:
    fault = pickle.loads(pickle.dumps(ReplacedError.of(Target.parse("milvus:a.db#chunks"))))
    assert (type(fault), fault.message, fault.where) == (ReplacedError, "its rows were replaced", "milvus:a.db#chunks")


@pytest.mark.slow
def test_a_row_or_a_question_that_the_model_does_not_know_is_compared_with_nothing(
    place: Callable[[str], str], tmp_path: Path
) -> None:
    index = Index.create(tmp_path / "index")
    thai = "ผู้ดูแลประภาคาร จุดตะเกียงทุกคืน"
    index.add(
        [ragidx.Document("mill", "The old mill."), ragidx.Document("lamp", thai), ragidx.Document("party", "🎉🎊")]
    )
    index.export(place("unknown"))

    with ragidx.connect(place("unknown")) as remote:
        assert [hit.doc_id for hit in remote.search("the mill", mode="dense")] == ["mill"]
        assert (list(remote.search(thai, mode="dense")), remote.search(thai, mode="dense").notes) == ([], [NO_VECTOR])
        if remote.searcher.store.table.has_words:
            hits = remote.search("the mill")
            assert [hit.doc_id for hit in hits] == ["mill"]
            assert {hit.dense for hit in remote.search(thai)} <= {None}
