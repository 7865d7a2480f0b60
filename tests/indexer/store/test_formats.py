"""Formats 1 and 2: what older versions wrote opens, answers, goes back and goes on; new states are format 4."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from states import content_of, documents_of, files_of

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.indexer.ann.index_types import DEFAULT_RECALL, Effort, IndexOptions, Recipe
from ragidx.indexer.lexical.spec import LexicalSpec
from ragidx.indexer.specs import FilterSpec, IndexSpec
from ragidx.indexer.store.manifest import Manifest, read_manifest
from ragidx.indexer.store.store import Store
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing.history import history, rollback
from ragidx.indexer.writing.rewrite import Change, compact, copy
from ragidx.indexer.writing.writer import StoreWriter

DATA = Path(__file__).parent / "data"
TYPES = ["flat", "hnsw"]
GRAPHS = {1: (Recipe(links=32), Effort(beam=64)), 2: (Recipe(links=16), Effort(beam=10))}
RECALLS = {1: [None, None], 2: [pytest.approx(0.99, abs=0.01), 1.0]}  # format 1 has measured none
NO_ANN = "segment 00000001-0000: files: 'ann.faiss' is unknown"  # of an index that says of no graph
FIRST = {f"doc-{n:02d}.txt": [f"text {n} {part}" for part in range(3)] for n in range(12)}
SECOND = {name: texts for name, texts in FIRST.items() if name != "doc-03.txt"} | {"doc-05.txt": ["text 5 changed"]}


@pytest.fixture(params=[1, 2], ids=["format 1", "format 2"])
def version(request) -> int:
    return request.param


@pytest.fixture(params=TYPES)
def old(request, version, tmp_path) -> Path:
    """A copy of an index of an older format: two generations, one document deleted, one replaced."""
    return copied(version, request.param, tmp_path)


@pytest.fixture(params=TYPES)
def first_format(request, tmp_path) -> Path:
    return copied(1, request.param, tmp_path)


@pytest.fixture(params=TYPES)
def second_format(request, tmp_path) -> Path:
    return copied(2, request.param, tmp_path)


def copied(version: int, index_type: str, folder: Path) -> Path:
    shutil.copytree(DATA / f"format-{version}" / index_type, folder / index_type)
    return folder / index_type


def go_on(index: Path, lexical: str = "auto") -> StoreWriter:
    """A writer as a build makes one for this index."""
    spec = IndexSpec(index_type=index.name, filter=FilterSpec(name="none"))
    return StoreWriter(
        index,
        spec=spec.to_json(),
        fingerprint=spec.fingerprint(),
        dim=8,
        index=IndexOptions(index.name, lexical=lexical),
        blobs={"note.txt": note_of(index)},
    )


def note_of(index: Path) -> bytes:
    """The blob, which says the format."""
    (path,) = index.glob("files/*-note.txt")
    return path.read_bytes()


def idle_build(index: Path, lexical: str = "auto") -> Manifest:
    """A build that finds every document as it was."""
    with go_on(index, lexical) as writer:
        for name in SECOND:
            writer.keep_document(name)
        return writer.commit({}, 11)


def test_the_files_are_of_the_older_format(old, version):
    for name in ("manifest.json", "manifest.1.json", "manifest.2.json"):
        found = json.loads((old / name).read_bytes())
        options = {"index_type": old.name} if version == 1 else {"index": asdict(IndexOptions(old.name))}
        options.get("index", {}).pop("lexical", None)
        assert found["format"] == version
        assert {name: value for name, value in found.items() if name in ("index", "index_type", "lexical")} == options


def test_it_opens_and_holds_what_was_committed(old, version):
    store = Store.open(old)

    assert (store.manifest.generation, store.manifest.n_chunks, store.manifest.n_documents) == (2, 31, 11)
    assert documents_of(store) == SECOND
    assert dict(store.manifest.schema) == {"year": "float", "kind": "string"}
    assert store.manifest.index == IndexOptions(old.name, DEFAULT_RECALL, None)
    assert store.manifest.lexical is None
    assert [(segment.postings, segment.moments) for segment in store.segments] == [(None, None)] * 2
    assert [row.line for row in store.rows([(0, 0), (1, 0)])] == [None, None]
    assert store.blob("note.txt") == f"format {version}".encode()
    assert store.verify() == []


def test_its_graphs_are_searched_as_before_and_its_metadata_is_read(old, version, kit):
    store = Store.open(old)
    made = [segment.entry.ann for segment in store.segments]

    if old.name == "flat":
        assert made == [None, None]
    else:
        assert [(one.recipe, one.effort) for one in made] == [GRAPHS[version]] * 2
        assert [one.recall for one in made] == RECALLS[version]
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

    assert (manifest.generation, manifest.format) == (3, 4)
    assert documents_of(Store.open(old)) == FIRST
    assert verify(old) == []
    assert [one.generation for one in history(old)] == [3, 2, 1]


@pytest.mark.slow
def test_a_build_on_top_keeps_its_vectors_bit_for_bit_and_writes_format_4(old, kit):
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
    assert (manifest.format, manifest.generation) == (4, 3)
    assert json.loads((old / "manifest.json").read_bytes())["format"] == 4
    assert [segment.entry.lexical for segment in store.segments] == ["lexical-00000003.arrow"] * 3
    assert [len(segment.postings.find("text").rows) for segment in store.segments[:2]] == [36, 1]  # dead ones, too
    assert store.verify() == []
    assert hashlib.sha256((old / "manifest.1.json").read_bytes()).hexdigest() == first
    assert read_manifest(old, "manifest.2.json").generation == 2
    assert [one.format for one in history(old)] == [4, 4, 4]  # as they are read


@pytest.mark.slow
def test_a_build_that_changes_nothing_adds_postings_once(old, version):
    before, answers = files_of(old), content_of(old)

    manifest = idle_build(old)

    assert (manifest.generation, manifest.format, manifest.lexical) == (3, 4, LexicalSpec.of("none"))
    after = files_of(old)
    assert {name for name in after if after[name] != before.get(name)} == {
        "manifest.json",
        "manifest.3.json",
        "deletions/00000003.arrow",
        *(f"segments/{segment}/lexical-00000003.arrow" for segment in ("00000001-0000", "00000002-0000")),
    }
    assert set(before) <= set(after)
    assert content_of(old) == answers
    assert Store.open(old).segments[0].postings.find("text").rows.tolist() == list(range(36))
    assert Store.open(old).verify() == []
    assert idle_build(old) == manifest
    assert files_of(old) == after
    assert [json.loads((old / f"manifest.{number}.json").read_bytes())["format"] for number in (1, 2, 3)] == [
        version,
        version,
        4,
    ]


@pytest.mark.slow
def test_after_going_back_to_it_the_next_build_adds_postings_again(old):
    idle_build(old)

    assert rollback(old, 2).lexical is None
    manifest = idle_build(old)

    assert (manifest.generation, manifest.lexical) == (5, LexicalSpec.of("none"))
    assert [segment.lexical for segment in manifest.segments] == ["lexical-00000005.arrow"] * 2
    assert idle_build(old).generation == 5
    assert verify(old) == []


def test_without_a_lexical_part_an_idle_build_writes_format_4_and_no_postings(old):
    manifest = idle_build(old, "off")

    assert (manifest.generation, manifest.format, manifest.lexical) == (3, 4, None)
    assert not list(old.glob("segments/*/lexical-*"))
    assert idle_build(old, "off").generation == 3


@pytest.mark.slow
def test_every_other_commit_adds_postings_as_well(old):
    shutil.copytree(old, old.parent / "other" / old.name)
    compacted, reindexed = old, old.parent / "other" / old.name

    compact(compacted)
    copy(reindexed, old.parent / "new", lambda store: as_it_is(store.manifest))

    for index, rows in ((compacted, 31), (old.parent / "new", 31)):
        store = Store.open(index)
        assert store.manifest.lexical == LexicalSpec.of("none")
        assert [len(segment.postings.find("text").rows) for segment in store.segments] == [rows]
        assert documents_of(store) == SECOND
        assert store.verify() == []
    assert Store.open(reindexed).manifest.generation == 2


def as_it_is(manifest: Manifest) -> Change:
    return Change(manifest.spec, manifest.fingerprint, manifest.dim, manifest.index, {"note.txt": b""})


def test_another_index_type_than_it_has_is_refused(old):
    spec = IndexSpec(index_type=old.name, filter=FilterSpec(name="none"))

    with pytest.raises(SpecError) as caught:
        StoreWriter(old, spec=spec.to_json(), fingerprint=spec.fingerprint(), dim=8, index=IndexOptions("sq8"))

    assert str(caught.value) == (
        f"{old}: the index was made with another index_type: {old.name}, not sq8\n"
        "  hint: build with the same options as before, or replace the index with `rebuild=True`"
    )


def alter(index: Path, change: Callable[[dict[str, Any]], object]) -> None:
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
def test_what_cannot_be_in_format_1_is_refused_as_in_the_present_one(first_format, change, reasons):
    alter(first_format, change)

    with pytest.raises(IndexFormatError) as caught:
        Store.open(first_format)

    reason = reasons[TYPES.index(first_format.name)]
    assert str(caught.value) == (
        f"{first_format / 'manifest.json'}: the manifest is damaged: {reason}\n"
        "  hint: copy the newest manifest.<number>.json beside it over manifest.json, "
        "or build again with `rebuild=True`"
    )


@pytest.mark.parametrize(
    "change", [lambda data: data.update(index={"x": 1}), lambda data: data["segments"][0].update(ann={"factory": "x"})]
)
def test_fields_that_format_1_does_not_have_are_not_believed(first_format, change):
    alter(first_format, change)

    assert documents_of(Store.open(first_format)) == SECOND


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(lexical={"stemmer": "english", "stemmer_version": "", "analyzer": 1}),
        lambda data: data["index"].update(lexical="english"),
    ],
)
def test_fields_that_format_2_does_not_have_are_not_believed(second_format, change):
    alter(second_format, change)

    store = Store.open(second_format)
    assert documents_of(store) == SECOND
    assert (store.manifest.lexical, store.manifest.index.lexical) == (None, "auto")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data.update(index=3), "index: it is not an object"),
        (lambda data: data["index"].pop("index_type"), "index: 'index_type' is missing"),
        (
            lambda data: data["segments"][0]["files"].update(
                {"lexical-00000001.arrow": data["segments"][0]["files"]["chunks.arrow"]}
            ),
            "segment 00000001-0000: files: it has postings, or none, against the field 'lexical'",
        ),
    ],
)
def test_what_cannot_be_in_format_2_is_refused(second_format, change, reason):
    alter(second_format, change)

    with pytest.raises(IndexFormatError) as caught:
        Store.open(second_format)

    assert caught.value.message == f"the manifest is damaged: {reason}"
