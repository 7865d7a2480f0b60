"""Room: bytes, and what fits into the memory as the build has it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann import index_types, tuning
from ragidx.indexer.ann.index_types import IndexOptions, candidates, footprint_of
from ragidx.indexer.writing.merging import shares
from ragidx.pipelines.plan.footprint import recipes
from ragidx.pipelines.plan.plan import plan

from ...raising import message_of
from .conftest import text_of

# what is made first


@pytest.mark.parametrize("name", index_types.INDEX_TYPES)
@pytest.mark.parametrize("rows", [9_999, 10_000, 60_000, 3_000_000])
def test_without_a_limit_the_first_candidate_is_made(name: str, rows: int) -> None:
    assert recipes(IndexOptions(name), [rows], 384) == candidates(name, rows, 384)[:1]


def test_auto_takes_the_first_that_fits_and_whole_vectors_where_all_must_be_found() -> None:
    every = candidates("auto", 1_000_000, 384)
    assert [str(one) for one in every] == ["IVF2048,PQ192x4fs", "PQ192x4fs", "IVF2048,SQ8"]

    for one in every[:2]:
        memory = footprint_of(one, 1_000_000, 384).memory_bytes
        assert recipes(IndexOptions("auto", max_memory=memory), [1_000_000], 384) == [one]
    assert recipes(IndexOptions("auto", target_recall=1.0), [100_000], 384) == [None]


@pytest.mark.parametrize("name", ["auto", "flat", "hnsw", "IVF256,SQ8"])
def test_what_fits_nowhere_is_refused_in_the_words_of_the_build(name: str, tmp_path: Path) -> None:
    options = IndexOptions(name, max_memory=5_000)

    with pytest.raises(SpecError) as expected:
        tuning.choose(tmp_path / "vectors.faiss", 384, 20_000, options, 5_000, lambda *_: None)
    with pytest.raises(SpecError) as fault:
        recipes(options, [20_000], 384)

    assert str(fault.value) == str(expected.value)
    assert "more than `max_memory` leaves" in str(fault.value)


def test_a_small_segment_is_compared_whole_whatever_memory_it_may_take() -> None:
    assert recipes(IndexOptions("hnsw", max_memory=1), [9_000], 384) == [None]


@pytest.mark.slow
@given(
    parts=st.lists(st.integers(1, 10**7), min_size=1, max_size=5),
    memory=st.integers(1, 10**12),
    taken=st.integers(0, 10**9),
)
def test_segments_share_the_memory_by_their_rows(parts: list[int], memory: int, taken: int) -> None:
    found = [share for share in shares(parts, memory, taken) if share is not None]

    assert len(found) == len(parts)
    assert 0 <= sum(found) <= max(0, memory - taken)
    assert shares(parts, None, taken) == [None] * len(parts)


# the index that is made


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index is made of however few rows."""
    for owner in (index_types, tuning):
        monkeypatch.setattr(owner, "MIN_ROWS", 1)


@pytest.mark.slow
def test_a_small_index_is_compared_whole(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    assert plan(records, tmp_path / "index", index_type="hnsw", **tiny).index_recipe == "flat"


@pytest.mark.slow
@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(("index_type", "recipe"), [("hnsw", "HNSW16"), ("rabitq", "RR,IVF32,RaBitQ"), ("SQ8", "SQ8")])
def test_what_the_build_makes_first_is_named(
    index_type: str, recipe: str, records: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    found = plan(records, tmp_path / "index", index_type=index_type, **tiny)

    assert (found.index_recipe, found.target_recall) == (recipe, 0.95)
    assert (found.index_type, found.footprint.ann_bytes > 0) == (index_type, True)


@pytest.mark.slow
@pytest.mark.usefixtures("any_size")
def test_an_index_of_known_vectors_alone_is_named_as_well(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    ragidx.build(records, tmp_path / "index", index_type="sq8", target_recall=0.5, **tiny)
    records.write_text(records.read_text().replace('"id": "r', '"id": "other'))

    found = plan(records, tmp_path / "index", allow_removal=True)

    assert (found.n_to_encode, found.speed, found.index_recipe) == (0, None, "SQ8")
    assert found.target_recall == 0.5


# --max-memory


def _memory_of(name: str, rows: int, dim: int) -> int:
    return footprint_of(candidates(name, rows, dim)[0], rows, dim).memory_bytes


@pytest.mark.slow
@pytest.mark.usefixtures("any_size")
def test_what_a_search_reads_is_planned_for_new_segments_and_known_of_those_that_stay(
    records: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    report = ragidx.build(records, tmp_path / "index", index_type="sq8", target_recall=0.5, **tiny).report
    limit = _memory_of("sq8", report.n_chunks, 16)

    new = plan(records, tmp_path / "new", index_type="sq8", max_memory=limit, **tiny).footprint
    kept = plan(records, tmp_path / "index").footprint

    assert (new.max_memory, new.search_bytes, new.ann_bytes) == (limit, limit, limit)
    on_disk = next((tmp_path / "index").rglob("ann.faiss")).stat().st_size
    assert (kept.max_memory, kept.search_bytes, kept.ann_bytes) == (None, on_disk, on_disk)


@pytest.mark.slow
@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("index_type", ["flat", "hnsw", "auto"])
def test_memory_that_nothing_fits_into_is_refused_as_the_build_refuses_it(
    index_type: str, records: Path, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    options = tiny | {"index_type": index_type, "max_memory": 500}

    with pytest.raises(SpecError) as fault:
        plan(records, tmp_path / "index", **options)
    assert str(fault.value) == message_of(SpecError, lambda: ragidx.build(records, tmp_path / "index", **options))
    assert "more than `max_memory` leaves" in str(fault.value)


@pytest.mark.slow
@pytest.mark.usefixtures("any_size")
def test_segments_that_stay_leave_less_memory(records: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    report = ragidx.build(records, tmp_path / "index", index_type="sq8", target_recall=0.5, **tiny).report
    held = _memory_of("sq8", report.n_chunks, 16)
    more = records.with_name("more")
    more.mkdir()
    shutil.copy(records, more / "records.jsonl")
    (more / "new.jsonl").write_text(
        "".join(json.dumps({"id": f"n{n}", "text": text_of(n, 9)}) + "\n" for n in range(90))
    )

    plan(more, tmp_path / "index", max_memory=held + _memory_of("sq8", 1000, 16), allow_removal=True)
    with pytest.raises(SpecError, match="more than `max_memory` leaves"):
        plan(more, tmp_path / "index", max_memory=held + 100, allow_removal=True)
