"""The store over its life: what is committed, kept, reused, dropped and gone back to."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from fault_reader import sign
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.indexer.store import Store
from ragidx.indexer.store.verify import verify
from ragidx.indexer.writing import segment_writer
from ragidx.indexer.writing.history import rollback
from ragidx.indexer.writing.rewrite import compact

from ...raising import message_of
from ..states import documents_of

SIX = {f"{name}.txt": [f"{name} {part}" for part in range(3)] for name in ("ant", "bee", "cat", "dog", "eel", "fox")}


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_the_same_documents_again_write_nothing(tmp_path, kit):
    first, encoded = kit.build(tmp_path / "index", SIX)
    before = files(tmp_path / "index")

    second, encoded_again = kit.build(tmp_path / "index", SIX)

    after = files(tmp_path / "index")
    assert (encoded, encoded_again) == (18, 0)
    assert second == first
    assert before.keys() == after.keys()
    assert all(before[name] == after[name] for name in before if name != "LOCK")


def test_a_changed_document_alone_is_encoded_again(tmp_path, kit):
    kit.build(tmp_path / "index", SIX)
    changed = SIX | {"bee.txt": ["bee 0", "bee one", "bee 2"]}

    manifest, encoded = kit.build(tmp_path / "index", changed)

    assert encoded == 1
    assert documents_of(Store.open(tmp_path / "index")) == changed
    assert [segment.rows for segment in manifest.segments] == [18, 3]
    assert manifest.n_chunks == 18


def test_a_document_that_is_gone_is_gone_from_the_index(tmp_path, kit):
    kit.build(tmp_path / "index", SIX)
    fewer = {name: texts for name, texts in SIX.items() if name != "cat.txt"}

    manifest, encoded = kit.build(tmp_path / "index", fewer)

    assert encoded == 0
    assert documents_of(Store.open(tmp_path / "index")) == fewer
    assert (manifest.n_chunks, manifest.n_documents) == (15, 5)


def test_documents_are_counted_once_however_their_rows_are_spread(tmp_path, kit, monkeypatch):
    monkeypatch.setattr(segment_writer, "MAX_VECTOR_BYTES", 2 * kit.dim)
    with kit.writer(tmp_path / "index") as writer:
        for row in kit.rows("long", ["one", "two", "three"]):
            writer.add([row], kit.vectors([row]))
        kit.add(writer, kit.rows("short", ["four"]))
        writer.commit({}, 2)

    with kit.writer(tmp_path / "index") as writer:
        writer.known_documents().keep("short")
        deleted = writer.delete_others()
        manifest = writer.commit({}, 1)

    assert (deleted, manifest.n_chunks) == (1, 1)
    assert documents_of(Store.open(tmp_path / "index")) == {"short": ["four"]}


def test_a_reused_vector_is_stored_bit_for_bit(tmp_path, kit):
    kit.build(tmp_path / "index", {"a": ["same", "old"]})
    kit.build(tmp_path / "index", {"b": ["new", "same"]})

    vectors = Store.open(tmp_path / "index").segments[0].vectors([1])

    expected = kit.vectors(kit.rows("a", ["same"])).astype("f2").astype("f4")
    np.testing.assert_array_equal(vectors, expected)


def test_a_segment_without_a_live_row_is_dropped(tmp_path, kit):
    kit.build(tmp_path / "index", {"a": ["one"]})
    kit.build(tmp_path / "index", {"a": ["one"], "b": ["two"]})

    manifest, _ = kit.build(tmp_path / "index", {"b": ["two"]})

    assert [segment.id for segment in manifest.segments] == ["00000002-0000"]
    assert manifest.deletions is None


def test_an_index_without_chunks_can_be_committed_and_searched(tmp_path, kit):
    manifest, _ = kit.build(tmp_path / "index", {})

    found = Store.open(tmp_path / "index").search(kit.queries(2), 3)

    assert (manifest.n_chunks, manifest.segments) == (0, ())
    assert found.rows == [[], []]


def test_a_document_added_and_deleted_before_the_commit_leaves_the_last_version(tmp_path, kit):
    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, kit.rows("a", ["draft", "more"]))
        kit.add(writer, kit.rows("b", ["other"]))
        deleted = writer.delete_document("a"), writer.delete_document("unknown")
        kit.add(writer, kit.rows("a", ["final"]))
        manifest = writer.commit({}, 2)

    assert deleted == (True, False)
    assert documents_of(Store.open(tmp_path / "index")) == {"b": ["other"], "a": ["final"]}
    assert manifest.n_chunks == 2


@pytest.mark.parametrize(
    ("bound", "rows"), [({"MAX_VECTOR_BYTES": 4 * 2 * 8}, [6] * 3), ({"MAX_TEXT_BYTES": 10}, [3] * 6)], ids=str
)
def test_a_full_segment_is_followed_by_another(tmp_path, kit, monkeypatch, bound, rows):
    monkeypatch.setattr(segment_writer, *next(iter(bound.items())))

    manifest, _ = kit.build(tmp_path / "index", SIX)

    assert [segment.rows for segment in manifest.segments] == rows  # documents stay whole
    assert documents_of(Store.open(tmp_path / "index")) == SIX


def test_replacing_keeps_nothing_and_goes_on_counting(tmp_path, kit):
    kit.build(tmp_path / "index", SIX)

    manifest, encoded = kit.build(tmp_path / "index", {"a": ["ant 0"]}, replace=True, fingerprint="0" * 64, dim=4)

    assert (manifest.generation, manifest.dim, encoded) == (2, 4, 1)
    assert documents_of(Store.open(tmp_path / "index")) == {"a": ["ant 0"]}


def test_replacing_works_over_a_damaged_manifest(tmp_path, kit):
    kit.build(tmp_path / "index", SIX)
    (tmp_path / "index" / "manifest.json").write_text("{}")

    manifest, _ = kit.build(tmp_path / "index", {"a": ["new"]}, replace=True)

    assert manifest.generation == 2
    assert documents_of(Store.open(tmp_path / "index")) == {"a": ["new"]}


def test_blobs_come_back_and_a_changed_one_is_a_change(tmp_path, kit):
    kit.build(tmp_path / "index", SIX, blobs={"filter.safetensors": b"matrix"})
    same, _ = kit.build(tmp_path / "index", SIX, blobs={"filter.safetensors": b"matrix"})

    other, _ = kit.build(tmp_path / "index", SIX, blobs={"filter.safetensors": b"another"})

    assert (same.generation, other.generation) == (1, 2)
    assert Store.open(tmp_path / "index").blob("filter.safetensors") == b"another"


@pytest.mark.slow
def test_an_open_reader_keeps_its_state_through_later_commits(tmp_path, kit):
    kit.build(tmp_path / "index", SIX)
    store = Store.open(tmp_path / "index")
    query = kit.queries(1)
    before = store.search(query, 18)

    for number in range(5):  # beyond the generations that are kept: its files are gone
        kit.build(tmp_path / "index", {"only": [f"text {number}"]})

    after = store.search(query, 18)
    assert not (tmp_path / "index" / "segments" / "00000001-0000").exists()
    assert after.rows == before.rows
    assert {row.doc_id for row in store.rows(after.rows[0])} == set(SIX)
    assert documents_of(Store.open(tmp_path / "index")) == {"only": ["text 4"]}


def test_the_files_of_three_generations_are_kept(tmp_path, kit):
    for number in range(5):
        kit.build(tmp_path / "index", {"only": [f"text {number}"]})

    names = {file.name for file in (tmp_path / "index").iterdir()}

    assert {name for name in names if name.startswith("manifest.")} == {
        "manifest.json", "manifest.3.json", "manifest.4.json", "manifest.5.json",
    }  # fmt: skip
    assert {folder.name for folder in (tmp_path / "index" / "segments").iterdir()} == {
        "00000003-0000", "00000004-0000", "00000005-0000",
    }  # fmt: skip


@pytest.mark.slow
def test_what_a_later_version_may_add_survives_every_writer(tmp_path, kit):
    """Notes of its own, and folders that hold segments of another machine until they are committed."""
    index = tmp_path / "index"
    kit.build(index, SIX)
    data = json.loads((index / "manifest.json").read_bytes())
    sign(index, data | {"notes": {"later": [1]}})
    staged = [index / "staged" / "00000009-0000", index / "segments" / "staged-1"]
    for folder in staged:
        folder.mkdir(parents=True)
        (folder / "vectors.faiss").write_bytes(b"later")

    for commits in (
        lambda: kit.build(index, {"a": ["one"]}),
        lambda: kit.build(index, {"b": ["two"]}),
        lambda: rollback(index, 2),
        lambda: kit.build(index, {"a": ["one"], "c": ["three"]}),
        lambda: compact(index),
    ):
        commits()
        assert dict(Store.open(index).manifest.notes)["later"] == [1]
    assert "rolled_back_to" not in Store.open(index).manifest.notes
    assert all((folder / "vectors.faiss").read_bytes() == b"later" for folder in staged)


def test_an_earlier_manifest_put_back_is_the_earlier_state(tmp_path, kit):
    index = tmp_path / "index"
    kit.build(index, SIX)
    kit.build(index, {"a": ["one"]})
    (index / "manifest.json").write_bytes((index / "manifest.1.json").read_bytes())

    reverted = documents_of(Store.open(index))
    kit.build(index, {"b": ["two"]})

    assert reverted == SIX
    assert documents_of(Store.open(index)) == {"b": ["two"]}


def test_a_writer_that_ends_without_a_commit_leaves_the_state_and_keeps_its_vectors(tmp_path, kit):
    index = tmp_path / "index"
    kit.build(index, SIX)
    with kit.writer(index) as writer:
        kit.add(writer, kit.rows("new", ["n0", "n1"]))

    with kit.writer(index) as writer:
        found = writer.reuse([kit.hash("n0"), kit.hash("n1"), kit.hash("ant 0"), kit.hash("unknown")])

    assert sorted(found) == sorted([kit.hash("n0"), kit.hash("n1"), kit.hash("ant 0")])
    assert documents_of(Store.open(index)) == SIX
    assert [folder.name for folder in (index / "segments").iterdir()] == ["00000001-0000"]
    _, encoded = kit.build(index, SIX | {"new": ["n0", "n1"]})
    assert encoded == 0
    assert list((index / "journal").iterdir()) == []


@pytest.mark.parametrize("change", [True, False], ids=["commits", "changes nothing"])
def test_a_writer_that_keeps_no_journal_leaves_that_of_an_interrupted_build(tmp_path, kit, change):
    kit.build(tmp_path / "index", {"a": ["one"], "b": ["two"]})
    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, kit.rows("c", ["encoded, not committed"]))

    with kit.writer(tmp_path / "index", journal=False) as writer:
        if change:
            writer.delete_document("b")
        generation = writer.commit({}, 1 if change else 2).generation

    assert generation == (2 if change else 1)
    _, encoded = kit.build(tmp_path / "index", {"a": ["one"], "c": ["encoded, not committed"]})
    assert encoded == 0
    assert not list((tmp_path / "index" / "journal").iterdir())


def test_the_journal_of_another_spec_survives_a_commit(tmp_path, kit):
    index = tmp_path / "index"
    kit.build(index, SIX)
    with kit.writer(index, fingerprint="1" * 64, replace=True) as writer:
        kit.add(writer, kit.rows("new", ["n0"]))

    kit.build(index, SIX | {"more": ["m"]})

    with kit.writer(index, fingerprint="1" * 64, replace=True) as writer:
        assert list(writer.reuse([kit.hash("n0")])) == [kit.hash("n0")]


def test_vectors_remembered_out_of_order_are_found(tmp_path, kit):
    with kit.writer(tmp_path / "index") as writer:
        rows = kit.rows("a", ["one", "two"])
        writer.remember([rows[1].text_hash], kit.vectors(rows[1:]))

        found = writer.reuse([rows[0].text_hash, rows[1].text_hash])

    assert list(found) == [rows[1].text_hash]


def test_another_spec_for_an_existing_index_is_an_error_that_says_what_differs(tmp_path, kit):
    kit.build(tmp_path / "index", SIX)

    assert message_of(SpecError, lambda: kit.writer(tmp_path / "index", fingerprint="0" * 64)) == (
        f"{tmp_path / 'index'}: the index was made with another fingerprint: {'f' * 64}, not {'0' * 64}\n"
        "  hint: build with the same options as before, or replace the index with `rebuild=True`"
    )


def test_a_committed_writer_takes_nothing_more(tmp_path, kit):
    with kit.writer(tmp_path / "index") as writer:
        writer.commit({}, 0)

        with pytest.raises(ValueError, match="this writer has committed or was closed; make another one"):
            kit.add(writer, kit.rows("a", ["one"]))


DOCUMENTS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]),
    st.lists(st.sampled_from(["x", "y", "z", "w"]), min_size=1, max_size=3),
    max_size=4,
)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(states=st.lists(DOCUMENTS, min_size=1, max_size=5), interrupted=st.lists(st.booleans(), min_size=5, max_size=5))
def test_whatever_is_added_and_deleted_the_index_holds_just_the_last_documents(kit, states, interrupted):
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        seen: set[str] = set()
        for state, stop in zip(states, interrupted, strict=False):
            if stop:
                with kit.writer(index) as writer:
                    kit.add(writer, [row for doc_id, texts in state.items() for row in kit.rows(doc_id, texts)])
                seen |= {text for texts in state.values() for text in texts}
            manifest, encoded = kit.build(index, state)

            assert documents_of(Store.open(index)) == state
            assert manifest.n_chunks == sum(len(texts) for texts in state.values())
            wanted = {text for texts in state.values() for text in texts}
            assert encoded >= len(wanted - seen)  # of deleted rows, too, the vectors are there as long as the rows
            assert not stop or encoded == 0
            seen |= wanted
            assert verify(index) == []
