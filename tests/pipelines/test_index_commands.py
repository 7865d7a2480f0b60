"""Commands and members agree: both, on copies of one folder, answer the same and leave the same index."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import ragidx

from .conftest import Done

CHANGES: dict[str, tuple[str, Callable[[ragidx.Index], object]]] = {
    "build": ("build", lambda index: index.build()),
    "rebuild": ("build --rebuild --dim 32", lambda index: index.build(rebuild=True, filter=ragidx.FilterSpec(dim=32))),
    "build --vectors": (
        "build --vectors v.parquet --vector-field v --rebuild",
        lambda index: index.build(vectors="v.parquet", vector_field="v", rebuild=True),
    ),
    "add": ("add faq.jsonl", lambda index: index.add([ragidx.Document("faq-1", "The lease ends.", {"year": 1999})])),
    "add-source": ("add-source more --name m", lambda index: index.add_source("more", name="m")),
    "remove-source": ("remove-source corpus", lambda index: index.remove_source("corpus")),
    "delete": ("delete --where doc_id!='none'", lambda index: index.delete(where='doc_id != "none"')),
    "rollback": ("rollback 1", lambda index: index.rollback(1)),
    "compact": ("compact --all", lambda index: index.compact(everything=True)),
    "shrink": ("shrink --dim 16", lambda index: index.shrink(16)),
}


def content(index: ragidx.Index) -> tuple[Any, ...]:
    """What an index holds, how it is made, and from where."""
    manifest = index.info()
    documents = [(document.id, document.text, document.metadata) for document in index.documents()]
    sources = [(source.name, source.n_documents) for source in index.sources()]
    vectors = [batch.to_pylist() for batch in index.to_batches(["chunk_id", "vector"])]
    return manifest.generation, manifest.dim, index.spec, index.schema, documents, sources, vectors


def _as_json(answers: list[list[ragidx.Hit]]) -> list[list[dict[str, Any]]]:
    return [[hit.to_json() for hit in hits] for hits in answers]


@pytest.fixture
def said(run: Callable[..., Done]) -> Callable[..., Any]:
    """What a command prints as JSON."""
    return lambda *arguments: json.loads(run(*arguments, "--json").out)


def test_what_info_gives_is_not_part_of_the_index(mini_index: Path) -> None:
    with ragidx.Index(mini_index) as index:
        before = index.info().to_json()
        for manifest in (index.info(), *index.history()):
            manifest.notes["sources"] = []  # type: ignore[index]
            manifest.schema["year"] = "int"  # type: ignore[index]
        index.add([ragidx.Document("faq", "a river")])

        after = index.info().to_json()

    assert (after["schema"], bool(after["notes"]["sources"])) == (before["schema"], bool(before["notes"]["sources"]))


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_command_leaves_the_index_that_the_member_leaves(
    change: str, mini_index: Path, run: Callable[..., Done]
) -> None:
    arguments, member = CHANGES[change]
    Path("more").mkdir()
    Path("more", "new.txt").write_text("A lease of another house.")
    Path("corpus", "changed.txt").write_text("A lease of the same house.")
    Path("faq.jsonl").write_text('{"id": "faq-1", "text": "The lease ends.", "year": 1999}\n')
    pa.parquet.write_table(pa.table({"id": ["a", "b"], "v": list(np.eye(2, dtype="f4"))}), "v.parquet")
    shutil.copytree(mini_index, "copy")

    done = run(*arguments.split())
    with ragidx.Index("copy") as index:
        member(index)

        assert done.status == 0, done.err
        with ragidx.Index(mini_index) as other:
            assert content(other) == content(index)


def test_reindex_makes_the_index_that_the_member_makes(mini_index: Path, run: Callable[..., Done]) -> None:
    assert run("reindex", "by-command", "--dim", "32").status == 0
    with ragidx.Index(mini_index) as index:
        index.reindex("by-member", dim=32)

    with ragidx.Index("by-command") as one, ragidx.Index("by-member") as other:
        assert content(one) == content(other)


def test_query_answers_a_question_a_vector_and_files_of_queries_as_members_do(
    mini_index: Path, run: Callable[..., Done], said: Callable[..., Any]
) -> None:
    index = ragidx.Index(mini_index)
    texts, vector = ["who signed the lease?", "a river"], np.ones(index.info().dim).tolist()
    Path("queries.jsonl").write_text("".join(json.dumps({"id": text[0], "text": text}) + "\n" for text in texts))
    Path("vector.json").write_text(json.dumps(vector))

    where = 'doc_id != ""'
    by_text = said("query", texts[0], "--where", where, "--mode", "dense", "-k", "3")["hits"]
    by_vector = said("query", "--vector", "vector.json", "-k", "2")["answers"]
    lines = run("query", "--queries", "queries.jsonl", "-k", "2").out.splitlines()
    ranked = run("query", "--queries", "queries.jsonl", "-k", "2", "--run", "-", "--mode", "lexical").out.splitlines()

    asked = index.search(texts[0], k=3, where=where, mode="dense")
    hits = _as_json([asked, index.search(vector=vector, k=2), *index.search_batch(texts, k=2)])
    found = [by_text, by_vector[0]["hits"], *(json.loads(line)["hits"] for line in lines)]
    assert [[{name: one[name] for name in one if name != "passage"} for one in answer] for answer in found] == hits
    assert [tuple(line.split()[2:5:2]) for line in ranked] == [
        (doc_id, str(score)) for answer in index.rank_documents(texts, k=2, mode="lexical") for doc_id, score in answer
    ]


def test_no_question_has_no_answer_and_members_take_their_own_options_alone(mini_index: Path) -> None:
    index = ragidx.Index(mini_index)
    options: dict[str, Any] = {"mmr": 0.5}

    assert index.search_batch([]) == index.rank_documents([]) == []
    with pytest.raises(TypeError, match=r"Index.rank_documents\(\) got an unexpected keyword argument 'mmr'"):
        index.rank_documents(["a river"], **options)
    with pytest.raises(TypeError, match=r"Index.search_vectors\(\) got an unexpected keyword argument 'mode'"):
        index.search_vectors(np.ones((1, index.info().dim)), **{"mode": "dense"})
    with pytest.raises(TypeError, match=r"Index.search\(\) got an unexpected keyword argument 'mnr'"):
        index.search("a river", **{"mnr": 0.5})


def test_what_commands_tell_is_what_members_give(
    mini_index: Path, run: Callable[..., Done], said: Callable[..., Any]
) -> None:
    index = ragidx.Index(mini_index)

    assert said("info") == {"path": "ragidx-index"} | json.loads(json.dumps(index.info().to_json()))
    assert [(one["name"], one["n_documents"]) for one in said("sources")["sources"]] == [
        (one.name, one.n_documents) for one in index.sources()
    ]
    assert [kept["generation"] for kept in said("history")["generations"]] == [
        one.generation for one in index.history()
    ]
    assert run("verify").status == len(index.verify()) == 0
    assert said("build", "--plan")["n_documents"] == index.plan().n_documents
    ids = [next(index.documents()).id]
    assert said("delete", "--id", *ids, "--dry-run") == index.delete(ids, dry_run=True).to_json()
