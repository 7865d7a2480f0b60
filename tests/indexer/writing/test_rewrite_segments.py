"""Compaction: which segments are rewritten, and their rows, columns and indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from states import Content, content_of, files_of, texts_of

from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann import index_types, tuning
from ragidx.indexer.ann.index_types import IndexOptions, footprint_of
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import ANN
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import lexical_files, segment_writer
from ragidx.indexer.writing import merging as assembly
from ragidx.indexer.writing.rewrite import Rewritten, compact

Documents = Mapping[str, Sequence[str]]


@pytest.fixture
def add(kit: Any) -> Callable[..., Manifest]:
    """`add(path, {"ant": ["an ant"]}, index=..., year=1900)`: a commit that brings a segment of its own."""

    def commit(path: Path, documents: Documents, index: IndexOptions | None = None, **metadata: Any) -> Manifest:
        with kit.writer(path, **({} if index is None else {"index": index})) as writer:
            kit.add(writer, [row for doc_id, texts in documents.items() for row in kit.rows(doc_id, texts, **metadata)])
            return writer.commit({}, 1)

    return commit


@pytest.fixture
def delete(kit: Any) -> Callable[..., Manifest]:
    def commit(path: Path, *doc_ids: str) -> Manifest:
        with kit.writer(path) as writer:
            for doc_id in doc_ids:
                assert writer.delete_document(doc_id)
            return writer.commit({}, 1)

    return commit


def numbered(prefix: str, count: int) -> dict[str, list[str]]:
    """Documents of one chunk each."""
    return {f"{prefix}{number:03}": [f"text {prefix} {number}"] for number in range(count)}


# rows


@pytest.mark.slow
def test_equal_scores_stand_in_the_order_of_their_chunk_ids_before_and_after(
    tmp_path: Path, kit: Any, add: Callable[..., Manifest]
) -> None:
    index = tmp_path / "index"
    for name in ("d", "b", "e", "a", "c"):
        add(index, {name: ["the same text"], f"{name} else": [f"of {name}"]})
    query = kit.vectors(kit.rows("query", ["the same text"]))

    def first(k: int) -> list[str]:
        store = Store.open(index)
        return [row.chunk_id for row in store.rows(store.search(query, k).rows[0])]

    for _ in range(2):
        assert first(5) == ["a:0-1", "b:0-1", "c:0-1", "d:0-1", "e:0-1"]
        assert first(2) == ["a:0-1", "b:0-1"]
        compact(index)


@pytest.mark.slow
def test_rows_past_a_record_batch_keep_their_order(
    tmp_path: Path, add: Callable[..., Manifest], delete: Callable[..., Manifest]
) -> None:
    index = tmp_path / "index"
    for prefix, count in (("a", 256), ("b", 512), ("c", 300), ("d", 1)):  # whole batches of 256, and parts of them
        add(index, numbered(prefix, count))
    delete(index, "a000", "a255", "b256", "c299")
    before = content_of(index)

    compact(index)

    assert content_of(index) == before
    (segment,) = Store.open(index).segments
    ids = segment.columns(["doc_id"]).column(0).to_pylist()
    assert segment.entry.rows == 1069 - 4
    assert ids == sorted(ids)


@pytest.mark.slow
def test_long_texts_are_copied_in_small_groups(
    tmp_path: Path, add: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    add(index, numbered("a", 600))
    add(index, numbered("b", 3))
    before = content_of(index)
    monkeypatch.setattr(assembly, "_GROUP_BYTES", 1)
    told: list[tuple[str, int, int]] = []

    compact(index, on_stage=lambda *stage: told.append(stage))

    assert content_of(index) == before
    stages = (assembly.COPYING, (256, 512, 600, 603)), (lexical_files.WORDS, (256, 512, 603))
    assert told == [(stage, 603, done) for stage, steps in stages for done in steps]


# which segments


@pytest.fixture
def mixed(
    tmp_path: Path, add: Callable[..., Manifest], delete: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Large: 20 rows whole, 20 with 2 dead, 20 with 3 dead. Small: 3, 4. Large is 10 rows and more."""
    index = tmp_path / "index"
    monkeypatch.setattr(assembly, "SMALL_BYTES", 2 * 8 * 10)
    for prefix, count in (("whole", 20), ("tenth", 20), ("holed", 20), ("small", 3), ("other", 4)):
        add(index, numbered(prefix, count))
    delete(index, "tenth001", "tenth002", "holed000", "holed007", "holed019", "small001")
    return index


@pytest.mark.slow
def test_only_small_and_holed_segments_are_rewritten(mixed: Path) -> None:
    before, kept = content_of(mixed), files_of(mixed)
    old = Store.open(mixed).manifest

    done = compact(mixed)

    ids = [entry.id for entry in done.manifest.segments]
    assert (done.n_segments, done.n_dropped) == (3, 4)
    assert ids == ["00000001-0000", "00000002-0000", "00000007-0000"]
    assert done.manifest.segments[:2] == old.segments[:2]
    assert all(
        files_of(mixed)[name] == data for name, data in kept.items() if name.split("/")[1:2] in ([i] for i in ids)
    )
    assert done.manifest.segments[2].rows == 17 + 2 + 4
    assert content_of(mixed) == before
    store = Store.open(mixed)
    assert np.flatnonzero(store.dead).tolist() == [store.starts[1] + 1, store.starts[1] + 2]
    assert done.manifest.deletions is not None
    assert verify(store.path) == []


@pytest.mark.slow
def test_all_of_them_are_where_that_is_asked_for(mixed: Path) -> None:
    before = content_of(mixed)

    done = compact(mixed, everything=True)

    assert (done.n_segments, done.n_dropped, [entry.rows for entry in done.manifest.segments]) == (5, 6, [61])
    assert done.manifest.deletions is None
    assert content_of(mixed) == before


def nothing_to_do(index: Path, *, everything: bool = False) -> Rewritten:
    before = files_of(index)
    done = compact(index, everything=everything)
    assert (done.committed, done.n_segments, done.n_dropped) == (False, 0, 0)
    assert done.manifest == Store.open(index).manifest
    assert files_of(index) == before
    return done


def test_where_there_is_nothing_to_gain_nothing_is_written(
    tmp_path: Path, add: Callable[..., Manifest], delete: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    monkeypatch.setattr(assembly, "SMALL_BYTES", 2 * 8 * 10)
    add(index, numbered("small", 5))
    nothing_to_do(index)
    nothing_to_do(index, everything=True)
    add(index, numbered("large", 20))
    delete(index, "large003", "large004")

    nothing_to_do(index)  # one small segment, and one of which no more than a tenth is dead

    assert compact(index, everything=True).committed
    nothing_to_do(index, everything=True)


@pytest.mark.slow
def test_full_segments_are_not_rewritten_again_and_again(
    tmp_path: Path, add: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    for prefix in "abc":
        add(index, numbered(prefix, 300))
    for module in (assembly, segment_writer):
        monkeypatch.setattr(module, "MAX_VECTOR_BYTES", 2 * 8 * 256)
    monkeypatch.setattr(assembly, "SMALL_BYTES", 2 * 8 * 256)

    nothing_to_do(index, everything=True)
    nothing_to_do(index)


@pytest.mark.slow
def test_a_full_segment_is_closed_and_the_next_begun(
    tmp_path: Path, add: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    for prefix in "abc":
        add(index, numbered(prefix, 300))
    before = content_of(index)
    monkeypatch.setattr(segment_writer, "MAX_VECTOR_BYTES", 2 * 8 * 500)
    monkeypatch.setattr(assembly, "_GROUP_BATCHES", 1)

    made = compact(index).manifest.segments

    assert [(entry.id, entry.rows) for entry in made] == [("00000004-0000", 512 + 44), ("00000004-0001", 300 + 44)]
    assert content_of(index) == before


# columns


@pytest.mark.slow
def test_kinds_that_widened_and_fields_that_some_segments_lack(tmp_path: Path, add: Callable[..., Manifest]) -> None:
    index = tmp_path / "index"
    add(index, {"a": ["text a"]}, year=1900, open=True)
    add(index, {"b": ["text b"]}, year=1950.5)
    add(index, {"c": ["text c"]}, pages=3)
    add(index, {"d": ["text d"]}, open="on Sundays", year=7)
    before = content_of(index)

    made = compact(index).manifest

    (segment,) = Store.open(index).segments
    columns = segment.columns(["meta.year", "meta.open", "meta.pages"])
    assert content_of(index) == before
    assert made.schema == {"year": "float", "open": "string", "pages": "int"}
    assert columns.to_pydict() == {
        "meta.year": [1900.0, 1950.5, None, 7.0],
        "meta.open": ["true", None, None, "on Sundays"],
        "meta.pages": [None, None, 3, None],
    }
    assert verify(index) == []


@pytest.mark.slow
def test_a_field_that_only_dead_rows_had_does_no_harm(
    tmp_path: Path, add: Callable[..., Manifest], delete: Callable[..., Manifest]
) -> None:
    index = tmp_path / "index"
    add(index, {"a": ["text a"]}, old="field")
    add(index, {"b": ["text b"]})
    delete(index, "a")
    add(index, {"c": ["text c"]})

    compact(index)

    store = Store.open(index)
    assert texts_of(index) == ["text b", "text c"]
    assert (store.manifest.schema, store.segments[0].kinds) == ({}, set())
    assert verify(store.path) == []


# indexes of large segments


@pytest.mark.slow
def test_what_is_large_now_gets_its_index(
    tmp_path: Path, add: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, options = tmp_path / "index", IndexOptions("hnsw", target_recall=0.5)
    monkeypatch.setattr(index_types, "MIN_ROWS", 200)
    for prefix in "abc":
        assert add(index, numbered(prefix, 150), index=options).segments[-1].ann is None
    chunks = content_of(index).chunks
    told: list[tuple[str, int, int]] = []

    (made,) = compact(index, on_stage=lambda *stage: told.append(stage)).manifest.segments

    assert made.ann is not None
    assert made.ann.recall is not None
    assert (str(made.ann.recipe), made.ann.recall >= 0.5, made.ann.sample > 0) == ("HNSW16", True, True)
    remade = {"lexical-00000004.arrow", "moments-00000004.bin"}
    assert set(made.files) == {"chunks.arrow", "vectors.faiss", ANN} | remade
    of_graph = [stage for stage in told if stage[0] not in (assembly.COPYING, lexical_files.WORDS)]
    assert of_graph[-1] == ("HNSW16", 450, 450)
    assert told[-1] == (lexical_files.WORDS, 450, 450)
    assert content_of(index).chunks == chunks
    assert verify(index) == []


@pytest.mark.slow
def test_new_segments_share_the_memory_that_the_others_leave(
    tmp_path: Path, add: Callable[..., Manifest], delete: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two segments that stay and two that are merged: the merged one alone would fit, beside the others it does not."""
    index = tmp_path / "index"
    rows = {"large": 400, "small": 150, "other": 150}
    of_large, of_merged = (footprint_of(None, count, 8).memory_bytes for count in (400, 300))
    monkeypatch.setattr(assembly, "SMALL_BYTES", 2 * 8 * 200)

    def build(path: Path, max_memory: int) -> tuple[Content, dict[str, bytes]]:
        for prefix, count in rows.items():
            add(path, numbered(prefix, count), index=IndexOptions("flat", max_memory=max_memory))
        return content_of(path), files_of(path)

    state, before = build(index, of_large + of_merged - 1)
    build(tmp_path / "roomy", of_large + of_merged + 200)
    for module in (index_types, tuning):
        monkeypatch.setattr(module, "MIN_ROWS", 200)

    with pytest.raises(SpecError) as fault:
        compact(index)

    assert fault.value.where == "`max_memory`"
    assert fault.value.message.startswith("300 vectors of 8 dimensions take 1 MB as flat")
    assert (content_of(index), files_of(index)) == (state, before)
    assert len(compact(tmp_path / "roomy").manifest.segments) == 2
