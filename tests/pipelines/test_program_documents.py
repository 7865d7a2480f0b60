"""A program's documents: added, changed and deleted by id, whole, in one commit or none; and what is refused."""

from __future__ import annotations

import copy
import itertools
import random
import shutil
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

import ragidx
from ragidx import (
    BusyError,
    ChunkSpec,
    CorpusError,
    Document,
    FilterSpec,
    Index,
    IndexFormatError,
    QueryError,
)
from ragidx.indexer.store.lock import Lock

from ..raising import message_of

WORDS = ["mill", "river", "lease", "bees", "lake", "tower", "letter", "copper", "engine", "violin", "glacier", "senate"]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.create(tmp_path / "index", chunks=ChunkSpec(size=16))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("bees", "Bees dance for each other."), ("mill", "The old mill stands by the river.")):
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "docs" / f"{name}.txt").write_text(text)
    return tmp_path / "docs"


def test_one_document_alone_is_added_all_chunks_are_given_and_what_is_printed_is_a_line(index: Index) -> None:
    text = "How do bees dance? " * 20
    assert index.add(Document("bees", text)) == 1
    with index.batch() as batch:
        batch.add(Document("mill", "The mill stands by the river."))

    assert index.chunks() == index.chunks(document="bees") + index.chunks(document="mill")
    created = index.info().created
    assert repr(index.info()) == (
        f"<Manifest of generation 3, {created}: 2 documents, {len(index.chunks()):,} chunks of 255 dimensions>"
    )
    assert repr(index.searcher.embedder.filter) == "<Filter from 384 to 255 dimensions>"
    embedder = index.searcher.embedder
    assert (embedder.encode_document([text]) == embedder.embed_document([text])).all()
    assert (embedder.encode_query([text], "Ask: ") == embedder.embed_query([text], "Ask: ")).all()


def test_documents_are_found_and_given_back_whole(index: Index) -> None:
    metadata = {"n": 1, "x": 0.5, "tags": ["a", "b"], "when": datetime(2026, 5, 4, 3, tzinfo=UTC), "none": None}
    first = Document("faq-1", "  How do bees dance?\n\n\n" + "In circles, they say. " * 20, metadata)
    second = Document("faq-2", "# Mills\n\nThe mill stands by the river.", {"n": 2}, markdown=True, heading="Mills")

    assert index.add([first, second]) == 2

    assert index.get(["faq-2", "faq-1"]) == [second, first]
    assert list(index.documents()) == [first, second]
    assert index.search("where does the mill stand?", k=1)[0].doc_id == "faq-2"
    assert (index.count(), index.count("n == 2"), index.values("n")) == (
        2,
        1,
        [(1, len(index.chunks(document="faq-1"))), (2, 1)],
    )
    assert (index.generation, index.verify()) == (2, [])


def test_an_unchanged_document_makes_no_commit_and_a_changed_one_replaces_it(index: Index) -> None:
    index.add([Document("a", "The mill."), Document("b", "The lake.")])

    assert (index.add([Document("a", "The mill.")]), index.generation) == (0, 2)
    assert (index.add([Document("a", "The mill.", {"n": 1})]), index.generation) == (1, 3)
    assert [(one.id, one.metadata) for one in index.get(["a", "b"])] == [("a", {"n": 1}), ("b", {})]
    assert index.delete(["a"]).n_documents == 1
    assert (index.count(), [hit.doc_id for hit in index.search("mill")]) == (1, ["b"])
    assert index.add([Document("a", "The mill.")]) == 1  # a program's deletion is final, not a rule for builds


def test_a_batch_is_one_commit_and_its_later_calls_win(index: Index) -> None:
    with index.batch() as batch:
        batch.add([Document("a", "one mill"), Document("b", "two lakes"), Document("c", "three bees")])
        batch.add([Document("a", "four towers")])
        batch.delete(["b"])
        batch.delete(["nothing"], missing="skip")
        assert index.count() == 0

    assert (index.generation, index.count()) == (2, 2)
    assert {one.id: one.text for one in index.documents()} == {"a": "four towers", "c": "three bees"}


def test_a_batch_that_is_left_by_an_exception_changes_nothing(index: Index) -> None:
    index.add([Document("a", "The mill.")])

    with pytest.raises(RuntimeError, match="halt"), index.batch() as batch:  # noqa: PT012  # a block is what is tested
        batch.add([Document("b", "The lake.")])
        batch.delete(["a"])
        raise RuntimeError("halt")

    assert (index.generation, [one.id for one in index.documents()], index.verify()) == (2, ["a"], [])
    assert index.add([Document("b", "The lake.")]) == 1


def test_a_failure_that_is_caught_inside_a_batch_commits_nothing(index: Index) -> None:
    index.add([Document("a", "The mill."), Document("b", "The lake.")])

    with pytest.raises(ValueError, match="a change of this batch failed"), index.batch() as batch:  # noqa: PT012
        with pytest.raises(CorpusError, match="a document has no id"):
            batch.add([Document("a", "Another mill."), Document("new", "Bees."), Document("", "x")])
        batch.delete(["b"])

    assert ([one.text for one in index.documents()], index.count(), index.generation) == (
        ["The mill.", "The lake."],
        2,
        2,
    )


@pytest.mark.slow
def test_another_change_inside_ones_own_batch_is_an_error_and_no_deadlock(index: Index) -> None:
    with index.batch() as batch:
        for change in (
            lambda: index.add([Document("b", "x")]),
            lambda: index.delete(["b"]),
            index.compact,
            index.batch().__enter__,
        ):
            with pytest.raises(ValueError, match="a batch of this index is open"):
                change()
        batch.add([Document("a", "The mill.")])
    with pytest.raises(ValueError, match="the batch has ended"):
        batch.add([Document("c", "x")])

    assert index.count() == 1


def test_a_writer_waits_for_another_one_and_then_gives_up(index: Index) -> None:
    lock = Lock(index.path)
    with pytest.raises(BusyError, match="is being written by process"):
        index.add([Document("a", "The mill.")], timeout=0.1)
    threading.Timer(0.3, lock.release).start()

    assert index.add([Document("a", "The mill.")], timeout=30) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "message"),
    [
        (Document("", "x"), "a document has no id\n  hint: give each one a text of its own as id"),
        (Document("a", "x", {"n": "one"}), "a: the field 'n' holds values of the type int in this index, and this is a "
         "string\n  hint: give it the same type, or another name"),
        (Document("a", "x", {"m": {"deep": {1}}}), "a: the field 'm': {1} is a set\n  hint: give texts, finite "
         "numbers, true, false, None, times, and lists and dicts of them"),
        (Document("a", None), "a: the text of the document is a NoneType\n  hint: give a str"),  # type: ignore[arg-type]
        (Document("a", "x\ud800"), "a: holds half of a surrogate pair, which no UTF-8 file can\n"
         "  hint: repair the text"),
        (Document("a", "x" * (64 * 2**20 + 1)), "a: the document has 67,108,865 characters, more than 67,108,864\n"
         "  hint: divide it"),
    ],
    ids=["no id", "another type", "a set", "none", "no unicode", "too long"],
)  # fmt: skip
def test_what_an_index_cannot_hold_is_refused_and_nothing_is_added(
    document: Document, message: str, index: Index
) -> None:
    index.add([Document("known", "The mill.", {"n": 1})])

    assert message_of(CorpusError, lambda: index.add([Document("new", "The lake."), document])) == message
    assert (index.generation, index.count()) == (2, 1)


@pytest.mark.parametrize("blank", ["", " \n", "\u200b"])
def test_a_document_without_a_text_is_skipped_and_what_it_replaces_goes(blank: str, index: Index) -> None:
    with index.batch() as batch:
        batch.add([Document("mill", "The mill."), Document("none", blank), Document("heron", "The heron.")])

    assert (batch.blank, batch.n_added) == (["none"], 2)
    assert (sorted(one.id for one in index.documents()), index.info().n_documents) == (["heron", "mill"], 2)
    assert index.add(Document("mill", blank)) == 0
    assert ([one.id for one in index.documents()], index.info().n_documents) == (["heron"], 1)
    assert index.verify() == []


@pytest.mark.slow
def test_documents_of_a_folder_and_of_a_program_live_side_by_side(folder: Path, tmp_path: Path) -> None:
    index = ragidx.build(folder, tmp_path / "index")
    index.add([Document("faq-1", "Who signed the lease?")])

    assert message_of(CorpusError, lambda: index.add([Document("bees.txt", "x")])) == (
        "bees.txt: the document is one of the source 'docs', and cannot be a program's too\n"
        "  hint: give it another id, or delete that one from its source"
    )
    (folder / "mill.txt").unlink()
    (folder / "faq-1").write_text("A file with the id of a program's document.")
    report = index.build(allow_removal=True)
    assert (report.n_removed, report.skipped) == (1, {"a program's document has its id": 1})
    assert (index.count(), sorted(one.id for one in index.documents())) == (2, ["bees.txt", "faq-1"])
    assert [one.id for one in index.documents(source="docs")] == ["bees.txt"]
    index.compact(everything=True)
    index.build(rebuild=True, sources=folder, chunks=ChunkSpec(size=8))
    assert (index.spec.chunk.size, index.get(["faq-1"])[0].text) == (8, "Who signed the lease?")
    assert (index.remove_source("docs"), [one.id for one in index.documents()]) == (1, ["faq-1"])


def test_a_closed_index_and_a_path_that_is_none_are_errors(index: Index, tmp_path: Path) -> None:
    index.close()

    uses = [index.refresh, index.count, index.plan, index.history, index.verify, index.build, index.compact]
    for use in (*uses, lambda: index.search("x"), lambda: index.add([]), lambda: index.reindex(tmp_path / "other")):
        with pytest.raises(ValueError, match="was closed"):
            use()
    with pytest.raises(IndexFormatError, match="there is no such folder"):
        Index(tmp_path / "nowhere")
    with pytest.raises(QueryError, match="the index has no document 'z'"):
        Index(index.path).get(["z"])


@pytest.mark.slow
def test_a_killed_add_loses_itself_alone(index: Index) -> None:
    index.add([Document("a", "The mill.")])
    code = (
        "import os, signal, sys, ragidx\n"
        "with ragidx.Index(sys.argv[1]).batch() as batch:\n"
        "    batch.add([ragidx.Document('b', 'The lake.')]); batch.delete(['a'])\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    done = subprocess.run([sys.executable, "-c", code, str(index.path)], check=False)

    assert done.returncode == -signal.SIGKILL
    assert (index.refresh(), [one.id for one in index.documents()], index.verify()) == (False, ["a"], [])
    assert index.add([Document("b", "The lake.")]) == 1


PROGRAM_IDS = [*(f"d{number}" for number in range(8)), "papers/a.txt", "papers/p", "mill.txt"]
FILES = ("docs/mill.txt", "docs/papers/a.txt", "papers/a.txt", "papers/b.txt")  # beside docs/bees.txt, which stays


class Held:
    """What an index should hold: owner and text by id; what was deleted by hand; the sources that it has."""

    def __init__(self) -> None:
        self.documents, self.deleted, self.sources = dict[str, tuple[str, str]](), set[tuple[str, str]](), ["docs"]

    def read(self, root: Path, sources: list[str]) -> None:
        """Build these sources."""
        found = dict[str, tuple[str, str]]()
        for source in sources:
            for path in sorted((root / source).rglob("*.txt")):
                doc_id = ("" if source == "docs" else "papers/") + path.relative_to(root / source).as_posix()
                owner, _ = self.documents.get(doc_id, (source, ""))
                if doc_id not in found and owner in sources and (source, doc_id) not in self.deleted:
                    found[doc_id] = source, path.read_text()
        self.documents = {name: one for name, one in self.documents.items() if one[0] not in sources} | found

    def delete(self, ids: list[str]) -> None:
        """Delete by hand."""
        self.deleted |= {(owner, name) for name in ids if (owner := self.documents.pop(name)[0]) != "program"}

    def add(self, documents: list[Document]) -> bool:
        """Add a program's, unless one has the id of a file's."""
        if any(self.documents.get(one.id, ("program", ""))[0] != "program" for one in documents):
            return False
        self.documents |= {one.id: ("program", one.text) for one in documents}
        return True


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_sequence_of_changes_is_what_a_dictionary_holds(seed: int, folder: Path, tmp_path: Path) -> None:
    draw, held, papers = random.Random(seed), Held(), tmp_path / "papers"
    papers.mkdir()
    index = ragidx.build(folder, tmp_path / "index", chunks=ChunkSpec(size=8), stemmer="none")
    handles = [index, Index(index.path)]  # each change is made by one that may show an older state
    held.read(tmp_path, held.sources)
    states = {index.generation: copy.deepcopy(held)}
    for step in range(32):
        some = [
            Document(name, " ".join(draw.choices(WORDS, k=draw.randint(1, 40))), {"step": step})
            for name in draw.sample(PROGRAM_IDS, draw.randint(1, 3))
        ]
        gone = draw.sample(sorted(set(held.documents) - {"bees.txt"}), min(len(held.documents) - 1, 2))
        index = draw.choice(handles)
        match draw.choice(["add", "add", "delete", "batch", "build", "build", "source", "compact", "rollback"]):
            case "add":
                if held.add(some):
                    index.add(some)
                else:
                    with pytest.raises(CorpusError, match="cannot be a program's too"):
                        index.add(some)
            case "delete" if gone:
                index.delete(gone)
                held.delete(gone)
            case "batch":
                free = [one for one in some if held.documents.get(one.id, ("program",))[0] == "program"]
                with index.batch() as batch:
                    batch.delete(gone)
                    batch.add(free)
                held.delete(gone)
                held.add(free)
            case "build":
                for name in draw.sample(FILES, 2):
                    (tmp_path / name).unlink(missing_ok=True)
                for name in draw.sample(FILES, 2):
                    (tmp_path / name).parent.mkdir(exist_ok=True)
                    (tmp_path / name).write_text(draw.choice(WORDS))
                (papers / "c.txt").write_text(f"Wasps dance {step}.")
                sources = draw.choice([held.sources, ["docs"]])
                index.build([tmp_path / name for name in sources], allow_removal=True)
                held.read(tmp_path, sources)
            case "source" if "papers" in held.sources:
                index.remove_source("papers")
                held.sources = ["docs"]
                held.documents = {name: one for name, one in held.documents.items() if one[0] != "papers"}
                held.deleted = {one for one in held.deleted if one[0] != "papers"}
            case "source" if any(papers.iterdir()):
                index.add_source(papers)
                held.sources = ["docs", "papers"]
                held.read(tmp_path, ["papers"])
            case "compact":
                index.compact(everything=True)
            case "rollback":
                target = draw.choice([state.generation for state in index.history() if state.generation in states])
                index.rollback(target)
                held = copy.deepcopy(states[target])
        index.refresh()
        states[index.generation] = copy.deepcopy(held)
        found = {one.id: one for one in index.documents()}
        assert {name: one.text for name, one in found.items()} == {n: text for n, (_, text) in held.documents.items()}
        for source in held.sources:
            own = {name for name, (owner, _) in held.documents.items() if owner == source}
            assert {one.id for one in index.documents(source=source)} == own
            assert own == set() or {one.name: one.n_documents for one in index.sources()}[source] == len(own)
        assert index.count() == len(held.documents)

    fresh = Index.create(tmp_path / "fresh", chunks=ChunkSpec(size=8), stemmer="none")
    fresh.add([Document(one.id, one.text) for one in found.values()])
    # The words of a file's name are among those that lexical search finds.
    for question, mode in itertools.product(set(WORDS) - {"mill", "bees"}, ("dense", "lexical", "hybrid")):
        ours, theirs = (one.search(question, k=5, mode=mode, fold=False) for one in (index, fresh))
        assert [(hit.chunk_id, hit.score) for hit in ours] == [(hit.chunk_id, hit.score) for hit in theirs]
    assert index.verify() == []


def test_an_index_that_another_one_replaced_shows_nothing_of_the_old_one(index: Index, tmp_path: Path) -> None:
    index.add([Document("a", "The mill stands by the river.")])
    shutil.rmtree(index.path)
    other = Index.create(index.path, chunks=ChunkSpec(size=16))
    other.add([Document("b", "Bees dance for each other.")])
    assert [one.id for one in index.info().segments] == [one.id for one in other.info().segments]

    assert index.add([Document("a", "The mill stands by the river."), Document("b", "Bees dance.")]) == 2

    assert sorted((one.id, one.text) for one in index.documents()) == [
        ("a", "The mill stands by the river."),
        ("b", "Bees dance."),
    ]
    assert {hit.doc_id for hit in index.search("bees")} == {"a", "b"}


@pytest.mark.slow
def test_an_index_of_a_program_alone_is_planned_rebuilt_and_fitted_as_one_of_files(index: Index) -> None:
    index.add([Document(f"d{number}", " ".join(WORDS[number:] * 3)) for number in range(8)])

    small = ChunkSpec(size=8)
    plan = index.plan(rebuild=True, chunks=small)
    report = index.build(rebuild=True, chunks=small)

    assert (report.n_added, report.n_documents, index.count()) == (8, 8, 8)
    assert (plan.n_documents, plan.n_chunks) == (8, report.n_chunks)
    fitted = index.build(rebuild=True, chunks=small, filter=FilterSpec("pca", dim=4))
    assert fitted.n_fitted == report.n_chunks
    assert (index.spec.filter.name, index.build().n_unchanged) == ("pca", 8)


@pytest.mark.slow
def test_languages_are_named_in_a_program_s_documents_too(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("py3langid", reason="needs the extra 'language'")
    index = ragidx.build(folder, tmp_path / "index")
    index.add([Document("faq-1", "Who signed the lease of the old house by the river, and when was that?")])

    index.build(language=True)
    index.add(
        [Document("faq-2", "Wer hat den Mietvertrag des alten Hauses am Fluss unterschrieben, und wann war das?")]
    )

    assert {
        hit.doc_id: hit.metadata.get("language") for hit in index.search("lease", k=9, where="file.source is null")
    } == {"faq-1": "en", "faq-2": "de"}
    assert index.build(language=False).n_changed == 4
    assert [one.metadata for one in index.get(["faq-1", "faq-2"])] == [{}, {}]


@pytest.mark.slow
def test_a_rebuild_of_a_damaged_index_without_documents_of_a_program_needs_no_leave(
    folder: Path, tmp_path: Path
) -> None:
    index = ragidx.build(folder, tmp_path / "index")
    (index.path / "manifest.json").write_text("{}")
    assert ragidx.build(folder, index.path, rebuild=True).count() == 2

    (index.path / "manifest.json").write_text("{}")
    max(index.path.glob("manifest.*.json")).write_text("{}")
    with pytest.raises(IndexFormatError, match="a program's documents cannot be read: the manifest is damaged: "):
        ragidx.build(folder, index.path, rebuild=True)


@pytest.mark.slow
def test_a_rebuild_of_a_damaged_index_loses_a_program_s_documents_only_if_told_to(folder: Path, tmp_path: Path) -> None:
    index = ragidx.build(folder, tmp_path / "index")
    index.add([Document("faq-1", "Who signed the lease?")])
    index.close()
    file = max(index.path.glob("segments/*/chunks.arrow"))
    file.write_bytes(file.read_bytes()[:-1])

    said = message_of(IndexFormatError, lambda: ragidx.build(folder, index.path, rebuild=True))
    report = ragidx.build(folder, index.path, rebuild=True, allow_removal=True).report

    assert said.startswith(f"{file}: a program's documents cannot be read: the file is damaged: ")
    assert said.endswith(
        "\n  hint: put the file back from a copy, or give `allow_removal=True` to build without these documents"
    )
    assert (report.n_documents, report.skipped) == (2, {"a program's documents cannot be read": 1})


def test_a_hit_has_the_whole_number_that_its_field_with_fractions_rounds(tmp_path: Path) -> None:
    with Index.create(tmp_path / "index") as index:
        numbers = {"a": 2**53 + 1, "b": 1.5, "c": -(2**63), "d": 1e300, "e": 3}
        index.add([Document(name, f"A number, {name}.", {"n": number}) for name, number in numbers.items()])

        found = {hit.doc_id: hit.metadata["n"] for hit in index.search("a number", 9, fold=False)}

    assert found == numbers
    assert isinstance(found["a"], int)
    assert isinstance(found["d"], float)
