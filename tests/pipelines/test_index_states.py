"""Index: what it imports, the state that it shows while others change the folder, and when models are loaded."""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.retriever import models

from .conftest import Done

SECONDS = float(os.environ.get("RAGIDX_TEST_SECONDS", "3"))  # and until so many states were seen:
STATES = 4
MOST_MODULES = 56
# Arguments: the index; prints what a search with a vector imports.
OPEN = """
import json, sys
import ragidx
index = ragidx.Index("ragidx-index")
assert len(index.search(vector=[1.0] * index.info().dim, k=3)) == 3
modules = {id(module): name for name, module in sys.modules.items() if name.startswith("ragidx.")}  # aliases once
print(json.dumps(sorted(modules.values())))
"""
# Changes the index at random until it is stopped: every committed state has the documents of one version, and four of
# the program, or none, of one pair.
CHANGE = """
import random, shutil, sys
from pathlib import Path
import ragidx

def write(version):
    for number in range(6):
        text = f"Document {number} is of version v{version}x and tells of rivers.\\n"
        Path("corpus", f"{number}.txt").write_text(text * (1 + (number + version) % 3))

chance, version, pair = random.Random(int(sys.argv[1])), 1, 0
index = ragidx.Index("ragidx-index")
while not Path("stop").exists():
    change = chance.choice(["build", "add", "batch", "delete", "compact", "rollback", "rebuild"])
    pair += 1
    texts = [f"Document {number} is of pair p{pair}x and tells of rivers." for number in range(4)]
    documents = [ragidx.Document(f"faq-{number}", text) for number, text in enumerate(texts)]
    if change in ("build", "rebuild"):
        version += 1
        write(version)
        kept = ragidx.FilterSpec(dim=chance.choice([32, 48]))
        index.build(rebuild=change == "rebuild", filter=kept if change == "rebuild" else None)
    elif change == "add":
        index.add(documents)
    elif change == "batch":
        with index.batch() as batch:
            batch.delete(["faq-0"], missing="skip")
            batch.add(documents)
    elif change == "delete" and index.count("file.source == 'corpus'") > 2:
        index.delete([next(index.documents(source="corpus")).id])
        index.delete([f"faq-{number}" for number in range(4)], missing="skip")
    elif change == "compact":
        index.compact(everything=True)
    elif change == "rollback":
        kept = index.history()
        index.rollback(kept[-1].generation) if len(kept) > 1 else None
print(version, index.generation)
"""


def answers(index: ragidx.Index) -> list[list[tuple[str, str, float]]]:
    """Hits of a question, by vectors, by words and by the first dimensions of the vectors."""
    ways: list[dict[str, object]] = [{"mode": "dense"}, {"mode": "lexical"}, {"mode": "dense", "dim": 24}, {}]
    found = [index.search("who signed the lease?", k=3, **way) for way in ways]  # type: ignore[arg-type]
    return [[(hit.chunk_id, hit.text, hit.score) for hit in hits] for hits in found]


def test_opening_and_searching_with_a_vector_imports_few_modules_and_neither_a_reader_nor_a_writer(
    run_process: Callable[..., Done], mini_index: Path
) -> None:
    done = run_process(code=OPEN)

    assert done.status == 0, done.err
    imported = json.loads(done.out)
    assert len(imported) <= MOST_MODULES, imported
    parts = ("writ", ".ingest", ".encoders", ".readers", ".sources")
    assert [name for name in imported if any(part in name for part in parts)] == []


@pytest.mark.slow
def test_an_open_index_answers_from_its_state_however_often_it_is_rebuilt_elsewhere(
    mini_index: Path, tiny_model: Callable[..., Path]
) -> None:
    shutil.copytree(mini_index, "copy")
    with ragidx.Index("copy") as index:
        expected = answers(index)
    opened = ragidx.Index(mini_index)
    others: list[dict[str, object]] = [
        {"model": str(tiny_model("llama")), "method": "classical"},
        {"model": "mini", "filter": ragidx.FilterSpec(dim=32)},
        {"model": "mini", "filter": "none"},
        {"model": "mini", "filter": ragidx.FilterSpec(tau=3.0)},
    ]
    for number, options in enumerate(others):
        Path("corpus", f"{number}.txt").write_text(f"The lease of house {number} was signed.")
        ragidx.build(None, mini_index, rebuild=True, **options).close()  # type: ignore[arg-type]

    before = opened.generation
    assert not [path for path in mini_index.rglob("*") if "00000001-0000" in path.name]  # its files are gone
    assert answers(opened) == expected
    assert opened.refresh()
    assert opened.generation == before + 4
    with ragidx.Index(mini_index) as fresh:
        assert answers(opened) == answers(fresh) != expected
    assert not opened.refresh()


def test_reindex_and_export_are_of_the_state_that_is_shown_also_when_its_files_are_gone(tmp_path: Path) -> None:
    shown, other = ragidx.Index.create(tmp_path / "index", dim=4, lexical=False), ragidx.Index(tmp_path / "index")
    shown.add_vectors(["a", "b"], np.eye(2, 4), texts=["one", "two"])
    before = {segment.id for segment in shown.info().segments}
    for number in range(4):
        other.refresh()
        other.add_vectors(["a", "b", "c"], np.eye(3, 4) + number + 1, texts=["1", "2", "3"])
    assert before.isdisjoint(path.name for path in (tmp_path / "index" / "segments").iterdir())

    shown.reindex(tmp_path / "copy")
    shown.export(f"parquet:{tmp_path / 'rows.parquet'}")

    with ragidx.Index(tmp_path / "copy") as copy:
        assert [(one.id, one.text) for one in copy.documents()] == [("a", "one"), ("b", "two")]
    assert pq.read_table(tmp_path / "rows.parquet")["text"].to_pylist() == ["one", "two"]
    assert shown.verify() == []  # of the folder: the committed state and those before it


@pytest.mark.slow
def test_indexes_of_the_same_model_load_it_once_and_free_it_after_the_last_close(
    mini_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models._shared.clear()
    one, other = ragidx.Index(mini_index), ragidx.Index(mini_index)
    hits = one.search("who signed the lease?")
    assert other.search("who signed the lease?") == hits
    assert len(models._shared) == 1

    encoder = one.searcher.encoder
    Path("corpus", "more.txt").write_text("One more document.")
    one.build()
    other.refresh()
    one.search("a river")
    assert one.searcher.encoder is other.searcher.encoder is encoder

    moved = pickle.dumps(one)
    monkeypatch.chdir("/")
    assert pickle.loads(moved).search("who signed the lease?") == one.search("who signed the lease?")
    del encoder
    one.close()
    assert len(models._shared) == 1
    other.close()
    gc.collect()
    assert len(models._shared) == 0


@pytest.mark.slow
def test_one_process_changes_an_index_while_another_searches_and_no_state_is_mixed(folder: Path) -> None:
    (folder / "corpus").mkdir()
    (folder / "corpus" / "0.txt").write_text("Document 0 is of version v1x and tells of rivers.\n")
    index = ragidx.build("corpus", "ragidx-index")
    changing = subprocess.Popen(
        [sys.executable, "-c", CHANGE, "7"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        start, states, seen = time.monotonic(), 0, index.generation
        while changing.poll() is None and (time.monotonic() - start < SECONDS or states < STATES):
            states += index.refresh()
            assert index.generation >= seen
            seen = index.generation
            documents = {document.id: document.text.split()[5] for document in index.documents()}
            n, pairs = len(documents), [word for name, word in documents.items() if name.startswith("faq")]
            (version,) = set(documents.values()) - set(pairs)
            assert (len(pairs), len(set(pairs))) in ((0, 0), (4, 1)), documents
            found = {hit.doc_id for hit in index.search(version, k=100, mode="lexical", fold=False)}
            assert found == {name for name, word in documents.items() if word == version}
            assert len({hit.doc_id for hit in index.search("rivers", k=100, mode="dense", fold=False)}) == n
            vector = np.ones(index.info().dim, np.float32)
            assert len({hit.doc_id for hit in index.search(vector=vector, k=100, fold=False)}) == n
            assert index.count() == n
    finally:
        (folder / "stop").touch()
        out, err = changing.communicate(timeout=60)
    assert (changing.returncode, err) == (0, "")
    assert states >= STATES, out
