"""An upgrade: what a new index would be, unless answers get worse; what is committed meanwhile stays."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import BusyError, CorpusError, IndexFormatError, ModelError, RagidxError, SpecError
from ragidx.corpora.records import Document
from ragidx.indexer.store import Store
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.verify import verify
from ragidx.pipelines.experiments.evaluate.measures import ndcg
from ragidx.pipelines.experiments.evaluate.significance import lower_bound
from ragidx.pipelines.experiments.trials import trial
from ragidx.pipelines.experiments.trials.upgrade import NOTE, OPTIONS
from ragidx.retriever.keywords import UpgradeKeywords

from ...embedding_server import EmbeddingServer
from ...indexer.states import Content, content_of, words_of
from ...raising import message_of
from .conftest import INDEX, documents, files

pytestmark = pytest.mark.slow

THINGS = ["lamp", "bridge", "violin", "harbour", "glacier", "orchard", "compass", "parrot", "candle", "tunnel"]
PLACES = ["Lisbon", "Oslo", "Kyoto"]
TAU4 = {"filter": ragidx.FilterSpec("truncation", tau=4)}  # no spectrum has to be computed


@pytest.fixture
def corpus(folder: Path) -> Path:
    """30 short documents, and `queries.tsv` and `qrels.tsv` with a question about each."""
    (folder / "corpus").mkdir()
    names = [(thing, place) for thing in THINGS for place in PLACES]
    for thing, place in names:
        text = f"The {thing} of {place} is old.\n\nWhoever comes to {place} looks at the {thing} first.\n"
        (folder / "corpus" / f"{thing}-{place}.txt").write_text(text)
    (folder / "queries.tsv").write_text("".join(f"{t}{p}\twhere is the {t} of {p}?\n" for t, p in names))
    (folder / "qrels.tsv").write_text("".join(f"{t}{p} 0 {t}-{p}.txt 1\n" for t, p in names))
    return folder / "corpus"


@pytest.fixture(scope="session")
def _ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("upgrade") / "index"


@pytest.fixture
def index(corpus: Path, _ready: Path) -> ragidx.Index:
    """Of two sources and a program's documents, without one of each that was deleted; dense search alone."""
    Path("notes").mkdir()
    for name in ("a", "b"):
        Path("notes", f"{name}.txt").write_text(f"Note {name} is about soup.")
    if not _ready.exists():
        make(INDEX).delete(["lamp-Oslo.txt", "p1"])
        shutil.move(INDEX, _ready)
    return ragidx.Index(shutil.copytree(_ready, INDEX))


def make(place: Path, **options: Any) -> ragidx.Index:
    made = ragidx.build("corpus", place, lexical=False, chunks=ragidx.ChunkSpec(size=12), **options)
    made.add_source("notes")
    made.add([Document(f"p{n}", f"A program wrote number {n}.", {"n": n}) for n in range(3)])
    return made


QUERIES: dict[str, Any] = {"queries": "queries.tsv", "qrels": "qrels.tsv"}


def remade(changes: Callable[[ragidx.Index], object] = lambda index: None, **options: Any) -> Content:
    """What a new index of what `index` is made of holds, after the same changes."""
    made = make(Path("fresh"), **options)
    made.delete([name for name in ("lamp-Oslo.txt", "p1") if name in documents("fresh")])
    changes(made)
    found = content_of(Path("fresh"))
    shutil.rmtree("fresh")
    return found


def test_it_holds_what_a_new_index_would_and_a_rollback_brings_the_old_vectors_back(index: ragidx.Index) -> None:
    before, generation = content_of(INDEX), index.generation
    model = index.searcher.encoder

    report = index.upgrade(**QUERIES, **TAU4)

    assert (report.committed, report.verdict, report.beside) == (True, "not worse", None)
    assert (report.generation, index.generation) == (generation + 1, generation + 1)
    assert content_of(INDEX) == remade(**TAU4)
    assert index.spec.filter.tau == 4
    assert index.spec.chunk.size == 12
    assert index.searcher.encoder is model
    assert index.search("the violin of Kyoto", k=1)[0].doc_id == "violin-Kyoto.txt"
    assert verify(INDEX) == []
    assert [path.name for path in (INDEX / "upgrade").iterdir()] == ["LOCK"]
    assert index.build().committed is False  # nothing is new, and nothing deleted comes back
    assert index.rollback(generation) == generation + 2
    assert content_of(INDEX) == before
    assert NOTE not in index.info().notes


def test_the_manifest_says_what_was_compared(index: ragidx.Index) -> None:
    before = index.info()
    queries = dict(line.split("\t") for line in Path("queries.tsv").read_text().splitlines())
    relevant = {line.split()[0]: {line.split()[2]: 1} for line in Path("qrels.tsv").read_text().splitlines()}

    def values() -> np.ndarray:
        found = index.rank_documents(list(queries.values()))
        return np.array([ndcg([name for name, _ in r], relevant[q]) for r, q in zip(found, queries, strict=True)])

    old = values()
    report = index.upgrade(**QUERIES, **TAU4, margin=0.2)
    new = values()

    note, c = index.info().notes[NOTE], report.comparison
    assert c is not None
    assert (c.n_queries, c.old, c.new) == (30, pytest.approx(old.mean()), pytest.approx(new.mean()))
    assert c.difference == pytest.approx(new.mean() - old.mean())
    assert c.lower_bound == pytest.approx(lower_bound(new - old))
    assert note == {
        "verdict": "not worse",
        "from": before.fingerprint,
        "to": index.info().fingerprint,
        "of": before.generation,
        "queries": "given",
        **{name: getattr(c, name) for name in ("n_queries", "seed", "old", "new", "difference", "low", "high", "p")},
        **{name: getattr(c, name) for name in ("detectable", "lower_bound", "margin", "queries_needed")},
    }
    index.add([Document("later", "one more", {})])
    assert index.info().notes[NOTE] == note
    json.dumps(report.to_json())


def test_a_worse_one_stays_beside_and_is_taken_by_force_with_all_that_was_committed_since(index: ragidx.Index) -> None:
    before, worse = files(INDEX), {"filter": ragidx.FilterSpec("random", dim=1)}

    report = index.upgrade(**QUERIES, **worse)

    assert (report.committed, report.verdict, report.generation) == (False, "worse", index.generation)
    assert report.beside is not None
    assert Store.open(report.beside).manifest.dim == 1
    assert {name: data for name, data in files(INDEX).items() if not name.startswith("upgrade/")} == before

    def change(one: ragidx.Index) -> None:
        one.delete(["p2", "candle-Oslo.txt"])
        one.add([Document("p0", "A program wrote this anew.", {}), Document("p9", "And this.", {})])
        one.remove_source("notes")

    Path("corpus", "tunnel-Oslo.txt").write_text("The tunnel of Oslo is new.")
    Path("corpus", "more.txt").write_text("One more text.")
    Path("corpus", "tunnel-Kyoto.txt").unlink()
    index.build()
    change(index)
    report = index.upgrade(force=True, **worse)

    assert (report.committed, report.verdict, report.comparison) == (True, "forced", None)
    assert report.build is not None
    assert report.build.n_encoded < 10
    assert content_of(INDEX) == remade(change, **worse)
    assert verify(INDEX) == []


def test_what_is_restored_comes_back_in_the_new_one_too(index: ragidx.Index) -> None:
    index.upgrade(**QUERIES, **TAU4, margin=1e-9)
    index.build(restore=True)
    index.upgrade(force=True, **TAU4)

    assert "lamp-Oslo.txt" in documents()
    assert index.info().n_documents == Store.open(INDEX).manifest.n_documents == len(documents())


def test_what_another_writer_commits_while_it_runs_is_in_it(index: ragidx.Index) -> None:
    stages: list[int] = []

    def commit(progress: Any) -> None:
        if progress.last:
            stages.append(len(stages))
            ragidx.Index(INDEX).add([Document(f"while {len(stages)}", f"said at {len(stages)}", {})], timeout=0)
            if len(stages) == 1:
                ragidx.Index(INDEX).delete(["orchard-Oslo.txt"])

    with pytest.raises(BusyError, match="is being written by process"):  # the last build is under the lock
        index.upgrade(**QUERIES, **TAU4, on_progress=commit)

    assert stages == [0, 1, 2]
    index.upgrade(**QUERIES, **TAU4)
    assert {"while 1", "while 2"} <= set(documents())
    assert "orchard-Oslo.txt" not in documents()
    assert verify(INDEX) == []


def test_an_index_that_was_made_anew_meanwhile_is_left(index: ragidx.Index) -> None:
    def rebuild(progress: Any) -> None:
        if progress.last and ragidx.Index(INDEX).spec.filter.tau != 8:
            ragidx.build("corpus", INDEX, rebuild=True, lexical=False, filter=ragidx.FilterSpec("truncation", tau=8))

    message = message_of(SpecError, lambda: index.upgrade(force=True, **TAU4, on_progress=rebuild))

    assert message == ("ragidx-index: the index was made anew meanwhile, with other options\n  hint: run it again")
    assert ragidx.Index(INDEX).spec.filter.tau == 8


def test_with_the_same_options_there_is_nothing_to_do(index: ragidx.Index) -> None:
    before, filter_ = files(INDEX), index.spec.filter

    for options in ({}, {"model": "mini"}, {"filter": filter_}, {"chunks": ragidx.ChunkSpec(size=12)}):
        report = index.upgrade(**options)
        assert (report.committed, report.verdict, report.generation) == (False, "same", index.generation)

    assert files(INDEX) == before


def test_other_chunks_and_a_fitted_filter_come_with_an_upgrade(index: ragidx.Index) -> None:
    options: dict[str, Any] = {"chunks": ragidx.ChunkSpec(size=8), "filter": ragidx.FilterSpec("pca", dim=16)}

    index.upgrade(force=True, **options)

    assert (index.spec.chunk.size, index.spec.filter.name, index.info().dim) == (8, "pca", 16)
    assert index.upgrade(**options).verdict == "same"
    assert index.build().committed is False
    assert verify(INDEX) == []


def test_the_words_of_an_index_are_those_of_a_new_one(corpus: Path) -> None:
    index = ragidx.build(corpus, INDEX, stemmer="german")

    index.upgrade(force=True, **TAU4)

    fresh = ragidx.build(corpus, "fresh", stemmer="german", **TAU4)
    assert words_of(Store.open(INDEX)) == words_of(Store.open(fresh.path))
    assert index.info().index == fresh.info().index


def test_where_files_cannot_be_linked_they_are_copied(index: ragidx.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    index.upgrade(force=True, **TAU4)

    assert content_of(INDEX) == remade(**TAU4)
    assert verify(INDEX) == []


def test_a_model_of_a_server_and_back(corpus: Path, server: EmbeddingServer) -> None:
    index = ragidx.build(corpus, INDEX, lexical=False)
    served: dict[str, Any] = {"model": "openai:m", "endpoint": server.url}

    report = index.upgrade(**QUERIES, **served, margin=0.9)

    assert (report.committed, index.spec.encoder and index.spec.encoder.model) == (True, "openai:m")
    assert index.search("the violin of Kyoto", k=1)[0].doc_id == "violin-Kyoto.txt"
    assert index.upgrade(**served).verdict == "same"
    assert index.upgrade(**QUERIES, model="mini", margin=0.9).committed
    assert index.search("the violin of Kyoto", k=1)[0].doc_id == "violin-Kyoto.txt"
    assert verify(INDEX) == []


def test_an_index_that_was_opened_with_another_place_of_its_model_goes_on_with_the_new_one(
    corpus: Path, model: Path
) -> None:
    ragidx.build(corpus, INDEX, model="tiny")
    index = ragidx.Index(INDEX, model=str(model.rename("moved")))

    index.upgrade(model="mini", force=True)

    assert index.search("the violin of Kyoto", k=1)[0].doc_id == "violin-Kyoto.txt"


WITHOUT = "; or swap without a comparison: `force=True`, and no `queries`"


def test_without_its_own_model_an_index_can_be_upgraded_by_force_alone(corpus: Path, model: Path) -> None:
    index = ragidx.build(corpus, INDEX, model="tiny")
    model.rename("moved")
    encoded: list[int] = []

    fault = message_of(
        ModelError,
        lambda: ragidx.Index(INDEX).upgrade(**QUERIES, model="mini", on_progress=lambda p: encoded.append(p.n_encoded)),
    )

    assert "tiny" in fault
    assert fault.endswith(WITHOUT)
    assert encoded == []
    assert ragidx.Index(INDEX).upgrade(model="mini", force=True).committed
    assert index.refresh()


def test_what_the_old_model_cannot_be_asked_ends_it_before_anything_is_encoded(
    corpus: Path, server: EmbeddingServer
) -> None:
    ragidx.build(corpus, "served", model="openai:m", endpoint=server.url, lexical=False)
    served, own = ragidx.Index("served", endpoint="http://127.0.0.1:9"), ragidx.build(corpus, INDEX, lexical=False)
    Path("queries.tsv").write_text(Path("queries.tsv").read_text().replace("where is the lamp of Oslo?", "\u200b"))
    encoded: list[int] = []

    def upgrade(index: ragidx.Index, **options: Any) -> str:
        return message_of(
            RagidxError, lambda: index.upgrade(**QUERIES, **options, on_progress=lambda p: encoded.append(p.n_encoded))
        )

    gone, nothing = upgrade(served, model="mini"), upgrade(own, **TAU4)

    assert gone.startswith("http://127.0.0.1:9")
    assert gone.endswith(WITHOUT)
    assert nothing == f"the model gives no vector for the query '\\u200b'\n  hint: use words that it knows{WITHOUT}"
    assert encoded == []
    assert served.upgrade(model="mini", force=True).committed
    assert own.upgrade(**TAU4, force=True).committed


def test_few_queries_show_nothing(index: ragidx.Index) -> None:
    Path("few.tsv").write_text("".join(Path("queries.tsv").read_text().splitlines(keepends=True)[:19]))

    assert message_of(CorpusError, lambda: index.upgrade(queries="few.tsv", qrels="qrels.tsv", **TAU4)) == (
        "qrels.tsv: 19 queries are judged: nothing can be concluded from fewer than 20\n"
        "  hint: judge more, or none, or decide without: `force=True`"
    )
    assert not (Path(INDEX) / "upgrade").exists()
    assert index.upgrade(queries="few.tsv", qrels="qrels.tsv", force=True, **TAU4).verdict == "forced"


def test_it_takes_what_makes_vectors_and_refuses_what_only_a_build_takes(index: ragidx.Index) -> None:
    assert {*OPTIONS} == {*UpgradeKeywords.__annotations__, "workers"}
    known = ", ".join(sorted(OPTIONS))
    for name, value in {"index_type": "hnsw", "lexical": True, "rebuild": True, "include": "*.md"}.items():
        message = message_of(SpecError, lambda given={name: value}: index.upgrade(**given))
        assert message.startswith(f"upgrade takes no such option: '{name}'")
        assert message.endswith(f"\n  hint: known: {known}")


def test_what_cannot_be_upgraded_is_refused_before_anything_is_made(index: ragidx.Index) -> None:
    before = files(INDEX)
    Path("others.tsv").write_text("lampOslo 0 elsewhere.txt 1\n")
    no_loss = "allows no loss\n  hint: give a number above 0"
    messages: list[tuple[Callable[[], object], str]] = [
        (
            lambda: index.upgrade(queries="queries.tsv", **TAU4),
            "queries and what judges them go together\n  hint: give both, `queries` and `qrels`, or neither",
        ),
        (lambda: index.upgrade(**QUERIES, **TAU4, margin=0.0), f"`margin`: margin=0 {no_loss}"),
        (lambda: index.upgrade(**QUERIES, **TAU4, margin=float("nan")), f"`margin`: margin=nan {no_loss}"),
        (
            lambda: index.upgrade(queries="no.tsv", qrels="qrels.tsv", **TAU4),
            "no.tsv: no such file\n  hint: check the path",
        ),
        (
            lambda: index.upgrade(queries="queries.tsv", qrels="others.tsv", **TAU4),
            "others.tsv:1: no relevant document is here (qrels: 'elsewhere.txt', ...; "
            "documents: 'bridge-Kyoto.txt', ...)\n  hint: give the qrels that belong to the corpus",
        ),
    ]

    for call, message in messages:
        assert message_of(RagidxError, call) == message
    assert files(INDEX) == before


@pytest.mark.usefixtures("given")
def test_precomputed_vectors_have_no_text_to_encode() -> None:
    assert message_of(SpecError, lambda: ragidx.Index(INDEX).upgrade(model="mini")) == (
        "ragidx-index: the index holds precomputed vectors: there is no text to encode\n"
        "  hint: build again from vectors of the new model: `ragidx build --vectors FILE --rebuild`"
    )


def test_a_source_that_cannot_be_read_ends_it_before_it_begins(index: ragidx.Index) -> None:
    before = files(INDEX)
    Path("notes").rename("elsewhere")

    fault = message_of(RagidxError, lambda: index.upgrade(force=True, **TAU4))

    assert fault.startswith("notes: the source 'notes' is not at ")
    Path("elsewhere").rename("notes")
    Path("notes", "b.txt").unlink()
    Path("notes", "b.txt").symlink_to("b.txt")  # a link to itself: what it held cannot be read
    fault = message_of(CorpusError, lambda: index.upgrade(force=True, **TAU4))
    assert fault == (
        "notes/b.txt: it cannot be read now, and 1 document of the index would be lost\n"
        "  hint: make it readable, or delete what is lost: `ragidx delete`"
    )
    after = {name: data for name, data in files(INDEX).items() if name != "upgrade/LOCK"}
    assert after == before


def test_a_file_that_a_reader_cannot_read_any_more_ends_it_too(corpus: Path) -> None:
    Path("corpus", "facts.jsonl").write_text('{"id": "a", "text": "one"}\n')
    index = ragidx.build(corpus, INDEX)
    Path("corpus", "facts.jsonl").write_bytes(b'{"id": "a", "text": \xff\xfe\x00\n')

    fault = message_of(RagidxError, lambda: index.upgrade(force=True, **TAU4))

    assert "would be lost" in fault or "facts.jsonl" in fault
    assert "facts.jsonl#a" in documents()


def test_most_of_an_index_is_not_dropped_on_the_way(index: ragidx.Index) -> None:
    for path in list(Path("corpus").iterdir())[:25]:
        path.unlink()

    fault = message_of(SpecError, lambda: index.upgrade(force=True, **TAU4))

    assert "this build would remove 2" in fault
    assert fault.endswith("  hint: `ragidx build` brings the index up to date first")
    assert len(documents()) > 25


def test_a_second_upgrade_waits_for_none(index: ragidx.Index) -> None:
    (INDEX / "upgrade").mkdir()

    with Lock(INDEX / "upgrade"):
        fault = message_of(BusyError, lambda: index.upgrade(force=True, **TAU4))

    assert fault.startswith(f"ragidx-index/upgrade: the index is being written by process {os.getpid()}, since ")


def test_a_writer_that_does_not_end_leaves_the_new_one_for_the_next_time(
    index: ragidx.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "WAIT_S", 0.1)
    with Lock(INDEX):
        assert message_of(BusyError, lambda: index.upgrade(force=True, **TAU4)).startswith("ragidx-index: the index is")

    report = index.upgrade(force=True, **TAU4)

    assert report.committed
    assert report.build is not None
    assert report.build.n_encoded == 0


def test_a_damaged_new_index_is_named_with_what_to_do(index: ragidx.Index) -> None:
    report = index.upgrade(**QUERIES, filter=ragidx.FilterSpec("random", dim=1))
    assert report.beside is not None
    Path(report.beside, "manifest.json").write_text("{}")

    fault = message_of(IndexFormatError, lambda: index.upgrade(force=True, filter=ragidx.FilterSpec("random", dim=1)))

    assert fault.endswith(f"  hint: remove the folder {report.beside}, and run the upgrade again")
