"""An index of codes alone whose manifest lies, or that an older reader opens: each is one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_operations import small_indexes
from fault_reader import sign

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.store import Store, manifest
from ragidx.indexer.store.manifest import NewerFormatError
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing.rewrite import compact

from ...raising import message_of
from .hostile_kit import refused


@pytest.fixture
def alone(kit, tmp_path) -> Path:
    """Two segments of codes alone."""
    index = tmp_path / "index"
    options = IndexOptions("pq4", target_recall=0.01, codes_only=True)
    documents = {f"d{n}": [f"t{n} {part}" for part in range(3)] for n in range(40)}
    with small_indexes():
        kit.build(index, documents, index=options)
        kit.build(index, documents | {"more": ["one", "two", "three"]}, index=options)
    return index


def changed(index: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads((index / "manifest.json").read_bytes())
    change(data)
    sign(index, data)


def test_the_index_is_whole_and_has_no_vectors(alone):
    assert verify(alone) == []
    store = Store.open(alone)
    assert [entry.has_vectors for entry in store.manifest.segments] == [False, False]
    assert store.manifest.requires[-1] == "codes alone"
    assert "codes_only" in json.loads((alone / "manifest.json").read_bytes())["index"]


def test_the_option_is_in_no_other_manifest(kit, tmp_path):
    kit.build(tmp_path / "index", {"a": ["one"]})

    assert "codes_only" not in json.loads((tmp_path / "index" / "manifest.json").read_bytes())["index"]


def test_a_reader_that_does_not_know_codes_alone_says_so(alone, monkeypatch):
    monkeypatch.setattr(manifest, "KNOWN", tuple(name for name in manifest.KNOWN if name != "codes alone"))
    manifest.parse_manifest.cache_clear()

    message = message_of(NewerFormatError, lambda: Store.open(alone))

    assert "the index needs a reader that knows 'codes alone'" in message


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: data["index"].pop("codes_only"), "'vectors.faiss' is missing"),
        (lambda data: data["index"].update(codes_only="yes"), "index.codes_only: 'yes' is neither true nor false"),
        (
            lambda data: data["segments"][0]["files"].update({"vectors.faiss": {"bytes": 1, "sha256": 64 * "0"}}),
            "'vectors.faiss' is unknown",
        ),
        (lambda data: data["segments"][0].update(ann=None), "'vectors.faiss' is missing"),
        (lambda data: data["segments"][0].update(zero=3), "the first row without a vector"),
        (lambda data: data["segments"][0].update(zeros=3), "the first row without a vector"),
        (lambda data: data["segments"][0].update(zeros=3, zero=120), "the first row without a vector"),
        (lambda data: data["segments"][0].update(zeros=3, zero=-1), "zero: -1 is not an integer"),
        (lambda data: data["segments"][0]["ann"].update(factory="RaBitQ4"), "cannot be all that is kept"),
        (lambda data: data["segments"][0]["ann"].update(factory="HNSW16"), "cannot be all that is kept"),
    ],
)
def test_a_manifest_that_lies_is_refused(alone, change, told):
    changed(alone, change)

    assert told in refused(alone)


def test_a_row_said_to_have_no_vector_is_named_by_verify(alone):
    changed(alone, lambda data: data["segments"][0].update(zeros=3, zero=7))

    [line] = verify(alone)

    assert "1 rows have no vector, and the manifest says 3" in line


def test_an_open_index_needs_its_files_no_more(alone, kit):
    store, queries = Store.open(alone), kit.queries(3)
    before = store.search(queries, 5)
    with small_indexes():
        compact(alone, everything=True)
    for path in alone.rglob("*.faiss"):
        path.unlink()

    after = store.search(queries, 5)

    assert after.rows == before.rows
    assert "the file is missing" in message_of(IndexFormatError, lambda: Store.open(alone))
