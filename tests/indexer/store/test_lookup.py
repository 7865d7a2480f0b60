"""Which rows belong to which document, and digests in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.indexer.digests import DigestTable, as_digests, digest
from ragidx.indexer.store import Store
from ragidx.indexer.store.lookup import CommittedVectors, Documents

HASHES = [bytes([number]) * 15 + b"\0" for number in range(4)]  # numpy drops trailing zeros where it can


def _match(documents: Documents, names: list[str], hashes: list[bytes]) -> list[bool]:
    wanted = np.frombuffer(b"".join(hashes), "V16")
    found: list[bool] = documents.match(as_digests([digest(name) for name in names]), wanted).tolist()
    return found


@pytest.fixture
def documents() -> Documents:
    """a with two runs, b, c."""
    found = Documents()
    for name, doc_hash, first in (("a", 0, 0), ("b", 1, 2), ("a", 0, 3), ("c", 2, 5)):
        found.add(name, HASHES[doc_hash], first, 1, owner=2 if name == "c" else 1)
    found.add("program", HASHES[3], 9, 1)
    return found


def test_a_document_matches_with_its_hash_alone(documents: Documents) -> None:
    assert (
        _match(documents, ["a", "b", "c", "d", "b"], [HASHES[n] for n in (0, 1, 0, 2, 3)]) == [True, True] + [False] * 3
    )


def test_a_document_that_was_forgotten_matches_no_more(documents: Documents) -> None:
    assert documents.pop("b").tolist() == [2]
    assert _match(documents, ["a", "b"], [HASHES[0], HASHES[1]]) == [True, False]
    assert "b" not in documents
    assert documents.get("a") == HASHES[0]


def test_keeping_many_at_once_is_keeping_each(documents: Documents) -> None:
    documents.keep_all(as_digests([digest("a"), digest("nobody")]))
    assert len(documents.others()) == 2
    assert sorted(documents.pop_others().tolist()) == [2, 5]


def test_a_document_has_the_owner_of_its_rows_and_a_program_s_is_none_of_the_others(documents: Documents) -> None:
    assert [documents.owner(name) for name in ("a", "c", "program", "nobody")] == [1, 2, 0, None]
    assert documents.of([0, 2]).tolist() == sorted(as_digests([digest("c"), digest("program")]).tolist())
    assert len(documents.others()) == 3


def test_an_empty_table_matches_nothing() -> None:
    assert _match(Documents(), ["a"], [HASHES[0]]) == [False]
    assert _match(Documents(), [], []) == []


@pytest.mark.slow
@given(
    added=st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.integers(0, 1 << 40)), max_size=60),
    at_once=st.integers(0, 60),
    asked=st.lists(st.binary(min_size=16, max_size=16), max_size=5),
)
def test_a_table_finds_what_was_added_one_by_one_or_at_once(
    added: list[tuple[bytes, int]], at_once: int, asked: list[bytes]
) -> None:
    table, part = DigestTable(), added[:at_once]
    table.extend(as_digests([key for key, _ in part]), np.array([number for _, number in part], np.int64))
    for key, number in added[at_once:]:
        table.add(key, number)
    wanted = [*asked, *(key for key, _ in added)]
    truth = [sorted(number for known, number in added if known == key) for key in wanted]
    assert [sorted(table.find(key)) for key in wanted] == truth
    for found in (table.first(wanted), table.first(as_digests(wanted))):
        for number, every in zip(found.tolist(), truth, strict=True):
            assert number in (every or [-1])


@pytest.mark.parametrize(("dead", "wanted"), [([], 0), ([0], 1), ([1], 0), ([0, 1], 0)])
def test_a_text_has_the_vector_of_a_live_row_else_that_of_a_dead_one(
    dead: list[int], wanted: int, kit: Any, tmp_path: Path
) -> None:
    rows = [*kit.rows("one", ["same"]), *kit.rows("two", ["same"])]
    made = kit.queries(2)
    with kit.writer(tmp_path / "index") as writer:
        writer.add(rows, made)
        writer.commit({}, 2)
    store = Store.open(tmp_path / "index")
    store.dead = np.isin(np.arange(2), dead)

    found = CommittedVectors(store).get([rows[0].text_hash])

    np.testing.assert_array_equal(found[rows[0].text_hash], made[wanted].astype("<f2"))
