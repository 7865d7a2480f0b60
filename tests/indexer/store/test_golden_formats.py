"""Indexes of formats 3 and 4 as ragidx wrote them: they open, answer and go on; `test_formats` has the older ones."""

from __future__ import annotations

import hashlib
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from states import content_of, files_of

from ragidx.corpora.errors import IndexFormatError
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.specs import FilterSpec, IndexSpec
from ragidx.indexer.store import rows
from ragidx.indexer.store.store import Store
from ragidx.indexer.writing.rewrite import compact
from ragidx.indexer.writing.writer import StoreWriter
from ragidx.retriever.where.masks import matching_rows, parse_for

DATA = Path(__file__).parent / "data"
SCHEMAS = {
    3: {"year": "float", "kind": "string"},
    4: {"year": "float", "kind": "string", "tags": "list", "opened": "timestamp"},
}


@pytest.fixture(params=["flat", "hnsw"])
def kind(request) -> str:
    return request.param


@pytest.fixture(params=[3, 4], ids=["format 3", "format 4"])
def version(request) -> int:
    return request.param


@pytest.fixture
def golden(version, kind, tmp_path) -> Path:
    """A copy: two generations, one document deleted, one replaced."""
    shutil.copytree(DATA / f"format-{version}" / kind, tmp_path / kind)
    return tmp_path / kind


def writer_of(index: Path) -> StoreWriter:
    spec = IndexSpec(index_type=index.name, filter=FilterSpec(name="none"))
    (note,) = index.glob("files/*-note.txt")
    return StoreWriter(
        index,
        spec=spec.to_json(),
        fingerprint=spec.fingerprint(),
        dim=8,
        index=IndexOptions(index.name),
        blobs={"note.txt": note.read_bytes()},
    )


def found(index: Path, where: str) -> list[str]:
    """The texts that a condition allows, deleted ones too."""
    store = Store.open(index)
    masks = matching_rows(store, parse_for(store, where))
    places = [(number, int(row)) for number, mask in enumerate(masks) for row in np.flatnonzero(mask)]
    return [row.text for row in store.rows(places)]


def test_it_opens_and_holds_what_was_committed(golden, version):
    store = Store.open(golden)

    assert json.loads((golden / "manifest.json").read_bytes())["format"] == version
    assert dict(store.manifest.schema) == SCHEMAS[version]
    assert (store.manifest.n_chunks, store.manifest.n_documents) == (31, 11)
    assert store.verify() == []
    (row,) = store.rows([(0, 3)])
    assert (row.text, row.metadata["year"], row.metadata["kind"]) == ("text 1 0", 1901.0, "old")


def test_a_build_that_changes_nothing_writes_nothing(golden):
    before = files_of(golden)

    with writer_of(golden) as writer:
        for number in range(12):
            writer.keep_document(f"doc-{number:02d}.txt")
        assert writer.commit({"corpus": "docs"}, 11).generation == 2

    assert files_of(golden) == before


@pytest.mark.slow
def test_a_list_and_a_time_come_in_and_nothing_else_changes(golden, version, kit):
    answers, when = content_of(golden), datetime(2024, 5, 1, 12, tzinfo=UTC)

    with writer_of(golden) as writer:
        kit.add(writer, kit.rows("new", ["one more"], tags=["tls", "http"], opened=when))
        manifest = writer.commit({}, 12)

    store = Store.open(golden)
    assert (manifest.format, dict(manifest.schema)) == (4, SCHEMAS[3] | SCHEMAS[4])
    assert store.rows([(2, 0)])[0].metadata == {"tags": ["tls", "http"], "opened": when}
    assert store.verify() == []
    assert {name: chunk for name, chunk in content_of(golden).chunks.items() if name != "new:0-1"} == answers.chunks
    assert found(golden, 'tags contains "http"') == ["one more"]
    assert found(golden, 'opened >= "2024-05-01"') == ["one more"]


def test_lists_and_times_of_format_4_are_searched_and_survive_a_merge(kind, tmp_path):
    index = tmp_path / kind
    shutil.copytree(DATA / "format-4" / kind, index)

    for _ in range(2):
        texts = ["text 1 0", "text 1 1", "text 1 2"]
        assert found(index, 'tags contains "v1"') == texts
        assert found(index, 'opened == "2020-01-02T14:00:00+02:00"') == texts
        compact(index)

    assert Store.open(index).rows([(0, 3)])[0].metadata == {
        "year": 1901.0,
        "kind": "old",
        "tags": ["tls", "v1"],
        "opened": datetime(2020, 1, 2, 12, tzinfo=UTC),
    }


def test_in_an_older_index_a_list_joins_the_json_text_that_is_there(kit, tmp_path):
    kit.build(tmp_path / "index", {})
    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, kit.rows("old", ["a"], tags='["notls"]', opened="2020-01-01T00:00:00"))
        writer.commit({}, 1)

    with kit.writer(tmp_path / "index") as writer:
        writer.keep_document("old")
        kit.add(writer, kit.rows("new", ["b"], tags=["x", "é"], opened=datetime(2021, 1, 1)))
        manifest = writer.commit({}, 2)

    assert dict(manifest.schema) == {"tags": "string", "opened": "string"}
    store = Store.open(tmp_path / "index")
    assert store.rows([(1, 0)])[0].metadata == {"tags": '["x","é"]', "opened": "2021-01-01T00:00:00+00:00"}
    assert found(tmp_path / "index", 'tags contains "tls"') == ["a"]
    assert found(tmp_path / "index", 'opened > "2020-06"') == ["b"]


def test_a_time_beyond_the_years_of_python_is_damage(kit, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_LAST_TIME", 0)
    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, kit.rows("d", ["a"], opened=datetime(2021, 1, 1)))
        writer.commit({}, 1)

    with pytest.raises(IndexFormatError) as caught:
        Store.open(tmp_path / "index").rows([(0, 0)])

    assert caught.value.message.endswith("the column 'meta.opened' holds a time that is out of range")


def test_the_golden_files_are_those_that_were_checked_in():
    """A test that wrote into them would make them say nothing."""
    digests = {
        path.parent.parent.name: hashlib.sha256(path.read_bytes()).hexdigest()[:8]
        for path in sorted(DATA.glob("format-*/flat/manifest.json"))
    }

    assert digests == {"format-1": "3be8e6f6", "format-2": "f0deec3f", "format-3": "6cdc842f", "format-4": "a3cc3842"}
