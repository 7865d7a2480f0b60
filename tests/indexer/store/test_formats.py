"""Format 1: what the version of before wrote opens, answers, goes back and goes on; new states are format 2."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from states import documents_of

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.indexer.ann.index_types import DEFAULT_RECALL, Effort, IndexOptions, Recipe
from ragidx.indexer.specs import FilterSpec, IndexSpec
from ragidx.indexer.store.manifest import read_manifest
from ragidx.indexer.store.store import Store
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing.history import history, rollback
from ragidx.indexer.writing.writer import StoreWriter

DATA = Path(__file__).parent / "data" / "format-1"
TYPES = ["flat", "hnsw"]
NO_ANN = "segment 00000001-0000: files: 'ann.faiss' is unknown"  # of an index that says of no graph
FIRST = {f"doc-{n:02d}.txt": [f"text {n} {part}" for part in range(3)] for n in range(12)}
SECOND = {name: texts for name, texts in FIRST.items() if name != "doc-03.txt"} | {"doc-05.txt": ["text 5 changed"]}


@pytest.fixture(params=TYPES)
def old(request, tmp_path) -> Path:
    """A copy of an index of format 1: two generations, one document deleted, one replaced."""
    shutil.copytree(DATA / request.param, tmp_path / request.param)
    return tmp_path / request.param


def go_on(index: Path) -> StoreWriter:
    """A writer as a build makes one for this index."""
    spec = IndexSpec(index_type=index.name, filter=FilterSpec(name="none"))
    return StoreWriter(
        index,
        spec=spec.to_json(),
        fingerprint=spec.fingerprint(),
        dim=8,
        index=IndexOptions(index.name),
        blobs={"note.txt": b"format 1"},
    )


def test_the_files_are_of_format_1(old):
    for name in ("manifest.json", "manifest.1.json", "manifest.2.json"):
        found = json.loads((old / name).read_bytes())
        assert (found["format"], found["index_type"], "index" in found) == (1, old.name, False)


def test_it_opens_and_holds_what_was_committed(old):
    store = Store.open(old)

    assert (store.manifest.generation, store.manifest.n_chunks, store.manifest.n_documents) == (2, 31, 11)
    assert documents_of(store) == SECOND
    assert dict(store.manifest.schema) == {"year": "float", "kind": "string"}
    assert store.manifest.index == IndexOptions(old.name, DEFAULT_RECALL, None)
    assert store.blob("note.txt") == b"format 1"
    assert store.verify() == []


def test_its_graphs_are_searched_as_before_and_its_metadata_is_read(old, kit):
    store = Store.open(old)
    made = [segment.entry.ann for segment in store.segments]

    if old.name == "flat":
        assert made == [None, None]
    else:
        assert [(one.recipe, one.effort, one.recall) for one in made] == [(Recipe(links=32), Effort(beam=64), None)] * 2
    changed = kit.vectors(kit.rows("doc-05.txt", ["text 5 changed"]))
    (row,) = store.rows(store.search(changed, 1).places[0])
    assert (row.text, row.metadata["year"]) == ("text 5 changed", 1905.5)


def test_it_answers_as_numpy_does(old, kit):
    store, queries = Store.open(old), kit.queries(20)
    rows = [row for name, texts in SECOND.items() for row in kit.rows(name, texts)]
    vectors = kit.vectors(rows).astype("f2").astype("f4")

    found = store.search(queries, 5)

    np.testing.assert_allclose(found.scores, -np.sort(-(queries @ vectors.T), axis=1)[:, :5], atol=1e-6)
    narrower = store.search(queries, 5, dim=3, rerank_dim=8)
    assert narrower.places == found.places  # of 31 chunks all are compared again


def test_its_history_is_read_and_its_first_generation_comes_back(old):
    assert [manifest.generation for manifest in history(old)] == [2, 1]

    manifest = rollback(old, 1)

    assert (manifest.generation, manifest.format) == (3, 2)
    assert documents_of(Store.open(old)) == FIRST
    assert verify(old) == []
    assert [one.generation for one in history(old)] == [3, 2, 1]


def test_a_build_on_top_keeps_its_vectors_bit_for_bit_and_writes_format_2(old, kit):
    before = {segment.entry.id: np.array(segment.codes) for segment in Store.open(old).segments}
    first = hashlib.sha256((old / "manifest.1.json").read_bytes()).hexdigest()

    with go_on(old) as writer:
        writer.delete_document("doc-00.txt")
        again = kit.rows("doc-07.txt", ["text 7 0", "brand new"])  # one chunk of it is known
        writer.delete_document("doc-07.txt")
        encoded = kit.add(writer, again)
        manifest = writer.commit({}, 10)

    store = Store.open(old)
    expected = {name: texts for name, texts in SECOND.items() if name not in ("doc-00.txt", "doc-07.txt")}
    assert encoded == 1
    assert documents_of(store) == expected | {"doc-07.txt": ["text 7 0", "brand new"]}
    for segment in store.segments[:2]:
        np.testing.assert_array_equal(segment.codes, before[segment.entry.id])
    assert (manifest.format, manifest.generation, json.loads((old / "manifest.json").read_bytes())["format"]) == (
        2,
        3,
        2,
    )
    assert store.verify() == []
    assert hashlib.sha256((old / "manifest.1.json").read_bytes()).hexdigest() == first
    assert read_manifest(old, "manifest.2.json").generation == 2
    assert [one.format for one in history(old)] == [2, 2, 2]  # as they are read


def test_a_build_that_changes_nothing_leaves_it_in_format_1(old):
    before = (old / "manifest.json").read_bytes()

    with go_on(old) as writer:
        for name in SECOND:
            writer.keep_document(name)
        manifest = writer.commit({}, 11)

    assert manifest.generation == 2
    assert (old / "manifest.json").read_bytes() == before


def test_another_index_type_than_it_has_is_refused(old):
    spec = IndexSpec(index_type=old.name, filter=FilterSpec(name="none"))

    with pytest.raises(SpecError) as caught:
        StoreWriter(old, spec=spec.to_json(), fingerprint=spec.fingerprint(), dim=8, index=IndexOptions("sq8"))

    assert str(caught.value) == (
        f"{old}: the index was made with another index_type: {old.name}, not sq8\n"
        "  hint: build with the same options as before, or replace the index with `rebuild=True`"
    )


def lie(index: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest and give it a checksum that fits."""
    data = json.loads((index / "manifest.json").read_bytes())
    del data["checksum"]
    change(data)
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    data["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    (index / "manifest.json").write_text(json.dumps(data, sort_keys=True, separators=(",", ":")) + "\n")


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (lambda data: data.update(index_type="exec"), ("index: unknown index type 'exec'", NO_ANN)),
        (lambda data: data.pop("index_type"), ("index.index_type: None is not allowed there", NO_ANN)),
        (lambda data: data.update(segments=3), ("segments: it is not a list",) * 2),
        (
            lambda data: data["segments"][0]["files"].update({"x.so": {}}),
            ("segment 00000001-0000: files: 'x.so' is unknown",) * 2,
        ),
    ],
)
def test_what_lies_in_format_1_is_refused_as_in_format_2(old, change, reasons):
    lie(old, change)

    with pytest.raises(IndexFormatError) as caught:
        Store.open(old)

    reason = reasons[TYPES.index(old.name)]
    assert str(caught.value) == (
        f"{old / 'manifest.json'}: the manifest is damaged: {reason}\n"
        "  hint: copy the newest manifest.<number>.json beside it over manifest.json, "
        "or build again with `rebuild=True`"
    )


@pytest.mark.parametrize(
    "change", [lambda data: data.update(index={"x": 1}), lambda data: data["segments"][0].update(ann={"factory": "x"})]
)
def test_fields_that_format_1_does_not_have_are_not_believed(old, change):
    lie(old, change)

    assert documents_of(Store.open(old)) == SECOND
