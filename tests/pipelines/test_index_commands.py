"""Commands and members agree: both, on copies of one folder, answer the same and leave the same index."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx

from .conftest import Done

CHANGES: dict[str, tuple[str, Callable[[ragidx.Index], object]]] = {
    "build": ("build", lambda index: index.build()),
    "rebuild": ("build --rebuild --dim 32", lambda index: index.build(rebuild=True, filter=ragidx.FilterSpec(dim=32))),
    "add-source": ("add-source more --name m", lambda index: index.add_source("more", name="m")),
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


@pytest.mark.parametrize("change", CHANGES)
def test_a_command_leaves_the_index_that_the_member_leaves(
    change: str, mini_index: Path, run: Callable[..., Done]
) -> None:
    arguments, member = CHANGES[change]
    Path("more").mkdir()
    Path("more", "new.txt").write_text("A lease of another house.")
    Path("corpus", "changed.txt").write_text("A lease of the same house.")
    shutil.copytree(mini_index, "copy")

    done = run(*arguments.split())
    with ragidx.Index("copy") as index:
        member(index)

        assert done.status == 0, done.err
        with ragidx.Index(mini_index) as other:
            assert content(other) == content(index)


def test_query_and_search_find_the_same_and_the_lists_are_equal(mini_index: Path, run: Callable[..., Done]) -> None:
    index = ragidx.Index(mini_index)

    def said(*arguments: str) -> Any:
        return json.loads(run(*arguments, "--json").out)

    hits = index.search("who signed the lease?", k=3, where='doc_id != ""', mode="dense")
    where = ("--where", 'doc_id != ""', "--mode", "dense", "-k", "3")
    assert said("query", "who signed the lease?", *where)["hits"] == [hit.to_json() for hit in hits]
    assert run("verify").status == len(index.verify()) == 0
    assert [kept["generation"] for kept in said("history")["generations"]] == [
        one.generation for one in index.history()
    ]
    assert said("build", "--plan")["documents"] == index.plan().documents
